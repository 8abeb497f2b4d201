package plan

import (
	"github.com/99designs/gqlgen/graphql"

	"github.com/asof/asof/storage"
)

// versionInfo makes the writer of what is known of the version that was read.
func versionInfo(b *planning, of graphql.CollectedField) writer[*storage.Object] {
	inner := selectionOf(b, "VersionInfo", of.Selections, versionInfoField)
	if inner == nil {
		return nil
	}
	return func(r *run, at *place, o *storage.Object) bool {
		r.enter(at)
		defer r.leave()
		return inner.write(r, *o.Of().VersionInfo())
	}
}

func versionInfoField(b *planning, f graphql.CollectedField, _ *selection[storage.VersionInfo]) writer[storage.VersionInfo] {
	switch f.Name {
	case "number":
		return func(r *run, _ *place, v storage.VersionInfo) bool { return r.int(v.Number()) }
	case "recordedAt":
		return func(r *run, _ *place, v storage.VersionInfo) bool { return r.instant(v.RecordedAt()) }
	case "supersededAt":
		return func(r *run, _ *place, v storage.VersionInfo) bool {
			at := v.SupersededAt()
			return at != nil && r.instant(*at)
		}
	case "author":
		return author(b, f)
	case "message":
		return func(r *run, _ *place, v storage.VersionInfo) bool { return r.optional(v.Message()) }
	case "operation":
		return func(r *run, _ *place, v storage.VersionInfo) bool { return r.string(string(v.Operation())) }
	case "changeGroup":
		return func(r *run, _ *place, v storage.VersionInfo) bool { return r.optional(v.ChangeGroup()) }
	case "isCurrent":
		return func(r *run, _ *place, v storage.VersionInfo) bool { return r.bool(v.IsCurrent()) }
	case "changedFields":
		return func(r *run, _ *place, v storage.VersionInfo) bool {
			fields := v.ChangedFields()
			return writeList(r, len(fields), true, func(i int) bool { return r.string(fields[i]) })
		}
	default:
		return nil
	}
}

// author makes the writer of who wrote a version.
func author(b *planning, of graphql.CollectedField) writer[storage.VersionInfo] {
	inner := selectionOf(b, "Actor", of.Selections, func(_ *planning, f graphql.CollectedField, _ *selection[storage.VersionInfo]) writer[storage.VersionInfo] {
		if f.Name != "id" {
			return nil
		}
		return func(r *run, _ *place, v storage.VersionInfo) bool { return r.string(v.Author().ID) }
	})
	if inner == nil {
		return nil
	}
	return func(r *run, at *place, v storage.VersionInfo) bool {
		r.enter(at)
		defer r.leave()
		return inner.write(r, v)
	}
}
