package record

import (
	"encoding/json"
	"slices"
)

// The fields of a draft, by their place.
const (
	DraftKey = iota
	DraftBase
	DraftAuthor
	DraftShared
	DraftTitle
	DraftExpires
	DraftContent
)

// newDraftType returns the type of the drafts of a type, which declares nothing as required.
func newDraftType(t *Type) *Type {
	d := &Type{Name: t.Name + "Draft", Collection: draftCollection(t), Fields: []Field{
		DraftKey:     {Name: "documentKey", Kind: KindID, Indexed: true},
		DraftBase:    {Name: "baseVersion", Kind: KindInt}, // 0: of a new document
		DraftAuthor:  {Name: "author", Kind: KindID},
		DraftShared:  {Name: "shared", Kind: KindBoolean, Default: json.RawMessage("false")},
		DraftTitle:   {Name: "title", Kind: KindString},
		DraftExpires: {Name: "expiresAt", Kind: KindDateTime},
		DraftContent: {Name: "document", Kind: KindObject, Object: incomplete(&ObjectType{Name: t.Name, Fields: t.Fields}, map[*ObjectType]*ObjectType{})},
	}}
	d.Drafts, d.Tags = d, d // it has none of its own
	return d
}

// draftCollection is where the drafts of a type are kept.
func draftCollection(t *Type) string { return t.Collection + DraftSuffix }

// DraftSuffix ends the names of the collections of drafts.
const DraftSuffix = ".drafts"

// incomplete returns a type without required fields. Types may contain themselves, so done
// holds those that were made so far.
func incomplete(o *ObjectType, done map[*ObjectType]*ObjectType) *ObjectType {
	if o == nil || done[o] != nil {
		return done[o]
	}
	out := &ObjectType{Name: o.Name, Fields: slices.Clone(o.Fields)}
	done[o] = out
	for i := range out.Fields {
		f := &out.Fields[i]
		f.NonNull, f.Indexed, f.Object = false, false, incomplete(f.Object, done)
	}
	return out
}

// The fields of a tag, by their place.
const (
	TagDocument = iota
	TagName
	TagVersion
)

// newTagType returns the type of the tags of a type.
func newTagType(t *Type) *Type {
	k := &Type{Name: t.Name + "Tag", Collection: tagCollection(t), Fields: []Field{
		TagDocument: {Name: "documentKey", Kind: KindID, Indexed: true},
		TagName:     {Name: "name", Kind: KindString, Indexed: true},
		TagVersion:  {Name: "number", Kind: KindInt},
	}}
	k.Drafts, k.Tags = k, k // it has none of its own
	return k
}

// tagCollection is where the tags of a type are kept.
func tagCollection(t *Type) string { return t.Collection + TagSuffix }

// TagSuffix ends the names of the collections of tags.
const TagSuffix = ".tags"
