package record

import (
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
func (t *Type) prepareCopies(types map[string]*Type) {
	t.copiesOnce.Do(func() {
		t.copies = slices.Clone(t.Copies)
		for i := range t.copies {
			c := &t.copies[i]
			c.Ref = t.Object.byName[c.From[0]]
			c.Of = types[t.Object.Fields[c.Ref].Ref]
			in := c.Of.Object
			for _, name := range c.From[1:] {
				if c.Field != nil {
					c.In, in = append(c.In, c.Place), c.Field.Object
				}
				c.Place = in.byName[name]
				c.Field = &in.Fields[c.Place]
				c.Stored = append(c.Stored, c.Field.Stored)
			}
		}
	})
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
