package storage

import (
	"context"
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
	in     []int // the places of the objects that the field is nested in
	place  int   // the place of the field in the innermost
	field  *Field
	stored []string // the path to it
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
			if clash := t.object.field(c.Name) != nil || slices.Contains(reserved, c.Name); clash || !c.prepare(t, types) {
				t.copiesErr = fmt.Errorf("storage: %s.%s: it cannot be copied from %q, or another field has its name", t.Name, c.Name, c.From)
			}
		}
	})
	return t.copiesErr
}

func (c *Copy) prepare(t *Type, types map[string]*Type) bool {
	if len(c.From) < 2 {
		return false
	}
	ref, ok := t.object.byName[c.From[0]]
	if !ok || t.object.Fields[ref].Kind != KindRef || t.object.Fields[ref].List {
		return false
	}
	c.Ref, c.Of = ref, types[t.object.Fields[ref].Ref]
	in := c.Of.object
	for i, name := range c.From[1:] {
		if c.place, ok = in.byName[name]; !ok || in.Fields[c.place].List {
			return false
		}
		c.field = &in.Fields[c.place]
		c.stored = append(c.stored, c.field.Stored)
		if i < len(c.From)-2 {
			if c.field.Kind != KindObject {
				return false
			}
			c.in, in = append(c.in, c.place), c.field.Object
		}
	}
	return c.field.sortable() && c.field.Kind != KindRef
}

// Source returns where the field is in the document that it is copied from: an object and the
// place in it; nil where there is no such object.
func (c *Copy) Source(d *Document) (*Object, int, error) {
	o := &d.Object
	for _, i := range c.in {
		var err error
		if o, err = o.Object(i); o == nil || err != nil {
			return nil, 0, err
		}
	}
	return o, c.place, nil
}

// Member is the stored name of the member of the source that holds the field.
func (c *Copy) Member() string { return c.stored[0] }

// target is the field in the documents that it is copied from.
func (c *Copy) target() driver.Field {
	return driver.Field{Path: c.stored, Kind: c.field.driverKind()}
}

// reference is the reference in the documents that show the field.
func (c *Copy) reference(t *Type) driver.Field {
	return driver.Field{Path: []string{t.object.Fields[c.Ref].Stored}, Kind: driver.KindString}
}

// refers is the condition that the reference is to one of some documents.
func (c *Copy) refers(t *Type, keys []driver.Value) driver.Filter {
	return driver.In{Field: c.reference(t), Values: keys}
}

// maxSources is the most documents to copy from that the conditions of a list, or one place in
// its order, may be about: their keys are held in memory, and each is looked for in an index.
const maxSources = 10_000

// meeting returns the keys of the documents that meet a condition at an instant, at most so many,
// and one more if there are more.
func (s *Store) meeting(ctx context.Context, t *Type, at driver.Instant, f driver.Filter, most int) ([]driver.Value, error) {
	vs, err := s.engine.Query(ctx, &driver.Query{Collection: t.Collection, At: at, Filter: f, Limit: most + 1, Fields: []string{}, Keys: true})
	if err != nil {
		return nil, fromDriver(ctx, err)
	}
	keys := make([]driver.Value, len(vs))
	for i, v := range vs {
		keys[i] = v.Key
	}
	return keys, s.beyond(ctx, t, at)
}

// copied is the condition on a copied field: that the document's reference is to one of those
// that meet it; or, where null meets it, to none of those that do not, so that it holds for
// documents without a source, too.
func (b *filterBuilder) copied(c *Copy, m map[string]any, path string) (driver.Filter, error) {
	if b.meeting == nil {
		return nil, badInput("%s: it is copied from other documents, which are as of one instant only in lists: leave it out of subscriptions, and where a tag is given; a condition on %s is possible", path, c.From[0])
	}
	meets, err := b.scalar(c.field, c.target(), m, path)
	if err != nil {
		return nil, err
	}
	plain := *c.field
	plain.Default = nil // it is that of a document which is there
	// An error would have been above.
	null, _ := (&filterBuilder{}).scalar(&plain, c.target(), m, path)
	negated := holds(null, nil, []byte("{}"))
	if negated {
		meets = driver.Not{Filter: meets}
	}
	keys, err := b.meeting(c.Of, meets, maxSources-b.found)
	if err != nil {
		return nil, err
	}
	if b.found += len(keys); b.found > maxSources {
		return nil, errorf(CodeQueryTooComplex, "%s: the conditions on copied fields are about more than %d documents: ask for fewer values, or for %s by key", path, maxSources, c.From[0])
	}
	in := c.refers(b.t, keys)
	if negated {
		return driver.Not{Filter: in}, nil
	}
	return in, nil
}
