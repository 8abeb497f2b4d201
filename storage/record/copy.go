package record

import (
	"fmt"
	"slices"

	"github.com/asof/asof/storage/driver"
)

// Copy is a field that documents show and do not store: it reads as a field of the document
// that a reference of theirs leads to, at the instant of the reference. It is null where
// there is no such document.
type Copy struct {
	Name string   // in the GraphQL schema
	From []string // the reference, nested objects and the field, by their names in the schema

	// What follows is filled by prepare.

	Ref    int   // the place of the reference
	Of     *Type // what it leads to
	In     []int // the places of the objects that the field is nested in
	Place  int   // the place of the field in the innermost
	Field  *Field
	Stored []string // the path to it
}

// Copy returns the copied field of a name; nil where there is none.
func (t *Type) Copy(name string) *Copy {
	if i := slices.IndexFunc(t.Copies, func(c Copy) bool { return c.Name == name }); i >= 0 {
		return &t.copies[i]
	}
	return nil
}

// prepareCopies finds what the copied fields are copied from, once.
func (t *Type) prepareCopies(types map[string]*Type) error {
	t.copiesOnce.Do(func() {
		t.copies = slices.Clone(t.Copies)
		for i := range t.copies {
			c := &t.copies[i]
			if clash := t.Object.Field(c.Name) != nil || slices.Contains(reserved, c.Name); clash || !c.prepare(t, types) {
				t.copiesErr = fmt.Errorf("%s.%s: it cannot be copied from %q, or another field has its name", t.Name, c.Name, c.From)
			}
		}
	})
	return t.copiesErr
}

func (c *Copy) prepare(t *Type, types map[string]*Type) bool {
	if len(c.From) < 2 {
		return false
	}
	ref, ok := t.Object.byName[c.From[0]]
	if !ok || t.Object.Fields[ref].Kind != KindRef || t.Object.Fields[ref].List {
		return false
	}
	c.Ref, c.Of = ref, types[t.Object.Fields[ref].Ref]
	in := c.Of.Object
	for i, name := range c.From[1:] {
		if c.Place, ok = in.byName[name]; !ok || in.Fields[c.Place].List {
			return false
		}
		c.Field = &in.Fields[c.Place]
		c.Stored = append(c.Stored, c.Field.Stored)
		if i < len(c.From)-2 {
			if c.Field.Kind != KindObject {
				return false
			}
			c.In, in = append(c.In, c.Place), c.Field.Object
		}
	}
	return c.Field.Sortable() && c.Field.Kind != KindRef
}

// Member is the stored name of the member of the source that holds the field.
func (c *Copy) Member() string { return c.Stored[0] }

// Target is the field in the documents that it is copied from.
func (c *Copy) Target() driver.Field {
	return driver.Field{Path: c.Stored, Kind: c.Field.DriverKind()}
}

// Reference is the reference in the documents that show the field.
func (c *Copy) Reference(t *Type) driver.Field {
	return driver.Field{Path: []string{t.Object.Fields[c.Ref].Stored}, Kind: driver.KindString}
}

// Refers is the condition that the reference is to one of some documents.
func (c *Copy) Refers(t *Type, keys []driver.Value) driver.Filter {
	return driver.In{Field: c.Reference(t), Values: keys}
}
