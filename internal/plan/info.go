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
	if f.Name == "author" {
		return one(selectionOf(b, "Actor", f.Selections, table(authorFields)), s, func(v storage.VersionInfo) storage.VersionInfo { return v })
	}
	return versionInfoFields[f.Name]
}

var versionInfoFields = map[string]writer[storage.VersionInfo]{
	"number":     func(r *run, _ *place, v storage.VersionInfo) bool { return r.int(v.Number()) },
	"recordedAt": func(r *run, _ *place, v storage.VersionInfo) bool { return r.instant(v.RecordedAt()) },
	"supersededAt": func(r *run, _ *place, v storage.VersionInfo) bool {
		at := v.SupersededAt()
		return at != nil && r.instant(*at)
	},
	"message":     func(r *run, _ *place, v storage.VersionInfo) bool { return r.optional(v.Message()) },
	"operation":   func(r *run, _ *place, v storage.VersionInfo) bool { return r.string(string(v.Operation())) },
	"changeGroup": func(r *run, _ *place, v storage.VersionInfo) bool { return r.optional(v.ChangeGroup()) },
	"isCurrent":   func(r *run, _ *place, v storage.VersionInfo) bool { return r.bool(v.IsCurrent()) },
	"changedFields": func(r *run, at *place, v storage.VersionInfo) bool {
		fields := v.ChangedFields()
		return writeList(r, at, len(fields), true, func(i int) bool { return r.string(fields[i]) })
	},
}

// authorFields are those of who wrote a version.
var authorFields = map[string]writer[storage.VersionInfo]{
	"id": func(r *run, _ *place, v storage.VersionInfo) bool { return r.string(v.Author().ID) },
}
