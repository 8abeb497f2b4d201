// Package record says what documents are made of, and reads and changes their bytes by that: types,
// with those of drafts and tags, fields, and what reads, writes, checks, compares and shows the
// values of fields as they are stored. It knows neither times nor stores, and versions only to say which
// of them a type keeps.
//
// Stored bytes are never decoded as a whole. Members that a type does not declare are kept and never
// shown.
package record

import (
	"cmp"
	"fmt"
	"slices"
	"sync"

	"github.com/asof/asof/storage/driver"
)

// Type describes one kind of documents.
type Type struct {
	Name       string // "Project"
	Singular   string // root field of one document, "project"
	Plural     string // root field of many, "projects"
	Collection string // where the engine keeps them, "software"
	Fields     []Field
	Auth       Auth
	Keep       *Keep  // nil: all versions
	Was        string // what the type was called, and ids name it by; "": nothing else
	Copies     []Copy

	once   sync.Once
	object *ObjectType // the same fields, indexed; filled by prepare
	Drafts *Type       // of its drafts; filled by prepare
	Tags   *Type       // of its tags; filled by prepare
	err    error

	copiesOnce sync.Once
	copies     []Copy // as they are prepared
	copiesErr  error
}

// Auth says who may do what. Nil lists of roles let in everybody, empty ones nobody.
type Auth struct {
	Read, Write []string
	History     []string // who may read the past
	Erase       []string // who may erase; nil: nobody
	Rows        string   // a rule of package rule: which documents; "": all
}

// Object is the type's fields as a store has prepared them, with what was left
// out filled in; nil before a store was made of the type.
func (t *Type) Object() *ObjectType { return t.object }

// Copied are the type's copies as a store has prepared them.
func (t *Type) Copied() []Copy { return t.copies }

// reserved are the names that every document has; a type's own fields cannot
// be called so.
var reserved = []string{
	"id", "key", "version", "versionInfo", "versions", "changelog", "blame", "diff", "recordedAt", "and", "or", "not",
}

// Prepare checks the metadata and indexes it. It may be called more than
// once, and concurrently, with the same types.
func Prepare(types []*Type) error {
	names, collections, roots := map[string]*Type{}, map[string]*Type{}, map[string]*Type{}
	for _, t := range types {
		switch {
		case t == nil || t.Name == "":
			return fmt.Errorf("storage: a type has no name")
		case names[t.Name] != nil:
			return fmt.Errorf("storage: two types are called %s", t.Name)
		case t.Collection == "":
			return fmt.Errorf("storage: type %s names no collection", t.Name)
		case collections[t.Collection] != nil:
			return fmt.Errorf("storage: types %s and %s share the collection %s", collections[t.Collection].Name, t.Name, t.Collection)
		}
		for _, root := range []string{t.Singular, t.Plural} {
			if root != "" && roots[root] != nil {
				return fmt.Errorf("storage: types %s and %s share the root field %s", roots[root].Name, t.Name, root)
			}
			roots[root] = t
		}
		names[t.Name], collections[t.Collection] = t, t
	}
	for _, t := range types {
		if names[t.Was] != nil {
			return fmt.Errorf("storage: type %s was called %s, and a type is called so", t.Name, t.Was)
		}
		for of, name := range map[string]string{"drafts": draftCollection(t), "tags": tagCollection(t)} {
			if other := collections[name]; other != nil {
				return fmt.Errorf("storage: the collection of type %s, %s, is that of the %s of type %s", other.Name, other.Collection, of, t.Name)
			}
		}
		if err := t.prepare(); err != nil {
			return err
		}
		if err := t.object.checkRefs(names, nil); err != nil {
			return err
		}
	}
	for _, t := range types {
		if err := t.prepareCopies(names); err != nil {
			return err
		}
	}
	return nil
}

// prepare checks the type by itself and indexes its fields, once.
func (t *Type) prepare() error {
	t.once.Do(func() {
		for _, f := range t.Fields {
			if slices.Contains(reserved, f.Name) {
				t.err = fmt.Errorf("storage: %s.%s: the name is reserved; use another one with @stored(as: %q)", t.Name, f.Name, f.Name)
				return
			}
		}
		if t.err = t.Keep.check(); t.err != nil {
			t.err = fmt.Errorf("storage: type %s %w", t.Name, t.err)
			return
		}
		if t.object, t.err = prepareObject(&ObjectType{Name: t.Name, Fields: t.Fields}, map[*ObjectType]*ObjectType{}); t.err == nil && t.Drafts == nil {
			t.Drafts, t.Tags = newDraftType(t), newTagType(t)
			t.err = cmp.Or(t.Drafts.prepare(), t.Tags.prepare())
		}
	})
	return t.err
}

// Collections are those of the type, of its drafts and of its tags.
func (t *Type) Collections() (out []driver.Collection) {
	for _, kept := range []*Type{t, newDraftType(t), newTagType(t)} {
		out = append(out, driver.Collection{Name: kept.Collection, Indexes: indexesOf(kept.Fields, nil, nil, nil)})
	}
	return out
}
