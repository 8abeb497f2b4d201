package storage

import (
	"slices"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/record"
)

// ownTypes are the types of what asof notes for itself, which no schema has.
func ownTypes() []*record.Type {
	return []*record.Type{actorType(), archiveType(), retentionType(), schemaType()}
}

// IsOwn reports whether a collection holds what asof notes for itself, and no documents.
func IsOwn(collection string) bool {
	return slices.ContainsFunc(ownTypes(), func(t *record.Type) bool { return t.Collection == collection })
}

// CollectionsOf says what an engine must hold for the types: a collection for
// each, with the indexes that they declare, one for its drafts, one for its tags, and those that asof has for itself.
func CollectionsOf(types []*record.Type) (out []driver.Collection) {
	for _, t := range ownTypes() {
		out = append(out, driver.Collection{Name: t.Collection})
	}
	for _, t := range types {
		out = append(out, t.Collections()...)
	}
	return out
}
