package plan

import (
	"github.com/99designs/gqlgen/graphql"

	"github.com/asof/asof/storage"
)

// versionInfo makes the writer of what is known of the version that was read.
func versionInfo(b *planning, f graphql.CollectedField, s *selection[*storage.Object]) writer[*storage.Object] {
	return one(selectionOf(b, "VersionInfo", f.Selections, versionInfoField), s, func(o *storage.Object) storage.VersionInfo { return *o.Of().VersionInfo() })
}

func versionInfoField(b *planning, f graphql.CollectedField, s *selection[storage.VersionInfo]) writer[storage.VersionInfo] {
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
		return one(selectionOf(b, "Actor", f.Selections, authorField), s, func(v storage.VersionInfo) storage.VersionInfo { return v })
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

// authorField is a field of who wrote a version.
func authorField(_ *planning, f graphql.CollectedField, _ *selection[storage.VersionInfo]) writer[storage.VersionInfo] {
	if f.Name != "id" {
		return nil
	}
	return func(r *run, _ *place, v storage.VersionInfo) bool { return r.string(v.Author().ID) }
}
