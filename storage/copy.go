package storage

import (
	"context"
	"fmt"
	"slices"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/rawjson"
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

// refers is the condition that the reference is to one of some documents.
func (c *Copy) refers(t *Type, keys []driver.Value) driver.Filter {
	return driver.In{Field: driver.Field{Path: []string{t.object.Fields[c.Ref].Stored}, Kind: driver.KindString}, Values: keys}
}

// maxSources is the most documents to copy from that the conditions of a list, or one place in
// its order, may be about: their keys are held in memory, and each is looked for in an index.
const maxSources = 10_000

// meeting returns the keys of the documents that meet a condition at an instant, at most so many,
// and one more if there are more.
func (s *Store) meeting(ctx context.Context, t *Type, at driver.Instant, f driver.Filter, most int) ([]driver.Value, error) {
	vs, err := s.engine.Query(ctx, &driver.Query{Collection: t.Collection, At: at, Filter: f, Limit: most + 1, Fields: []string{}})
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
	null, err := (&filterBuilder{}).scalar(&plain, c.target(), m, path)
	if err != nil {
		return nil, err
	}
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

// metaCopied marks a copied field in an order, which no engine sees; its name is the path.
const metaCopied driver.Meta = 255

// firstCopied returns the copied field that is the first of an order; nil where it is another.
func (t *Type) firstCopied(orders []driver.Order) *Copy {
	if len(orders) > 0 && orders[0].Field.Meta == metaCopied {
		return t.Copy(orders[0].Field.Path[0])
	}
	return nil
}

// byCopy is a list in the order of a copied field, which is the first of the query's. It takes
// the place of the engine's list: it follows the sources in the order of their values, and reads
// the documents that refer to each.
type byCopy struct {
	store  *Store
	t      *Type
	c      *Copy
	values map[string]driver.Value // of the documents that were returned, by key
}

// mostGroups is how many groups are looked for in one query of the documents.
const mostGroups = 256

// group is the sources with one value.
type group struct {
	value driver.Value // nil: the documents of the group have none
	keys  []driver.Value
}

// Count is driver.Engine's.
func (l *byCopy) Count(ctx context.Context, q *driver.Query) (int64, error) {
	return l.store.engine.Count(ctx, q)
}

// Query is driver.Engine's.
func (l *byCopy) Query(ctx context.Context, q *driver.Query) ([]*driver.Version, error) {
	w := &walk{byCopy: l, q: q, near: q.After, far: q.Before, down: q.Order[0].Desc != q.Backward}
	l.values = map[string]driver.Value{}
	if q.Backward {
		w.near, w.far = w.far, w.near
	}
	for size := 1; len(w.out) < q.Limit; {
		before := len(w.out)
		some, err := w.next(ctx, size)
		if err != nil || some == nil {
			return w.out, err
		}
		all, err := w.read(ctx, some)
		switch {
		case err != nil:
			return nil, err
		case all && some[0].value != nil: // as many as are likely to fill the page, and not many more
			size = min(2*size, mostGroups)
			if got := len(w.out) - before; got > 0 {
				size = min(size, 1+(q.Limit-len(w.out))*len(some)/got)
			}
		case all:
		default: // there are too many to sort them here
			size = len(some) / 2
			w.groups = append(some, w.groups...)
		}
	}
	return w.out, nil
}

// walk is one execution of a query. It goes from group to group, from near the place where the
// page begins to far from there.
type walk struct {
	*byCopy
	q         *driver.Query
	near, far *driver.Position
	down      bool    // from the greatest value to the least
	groups    []group // that were read and not used; the last may not be complete
	last      *driver.Position
	seen      int  // sources that were read: as many are read next, so that a long group takes few reads
	nulls     bool // the group without values was used
	ended     bool // there are no more groups with values
	out       []*driver.Version
}

// compare is the direction of the walk; null is the least.
func (w *walk) compare(a, b driver.Value) int {
	orders := []driver.Order{{Field: w.q.Order[0].Field, Desc: w.down}}
	return comparePositions(orders, &driver.Position{Values: []driver.Value{a}}, &driver.Position{Values: []driver.Value{b}})
}

// bound returns a bound of the page that lies within a group; nil where it does not.
func (w *walk) bound(p *driver.Position, g group) *driver.Position {
	if p == nil || w.compare(p.Values[0], g.value) != 0 {
		return nil
	}
	return &driver.Position{Values: p.Values[1:], Key: p.Key}
}

// next returns at most so many of the groups that follow, nil at the end. One without values, or
// in which a bound lies, is alone.
func (w *walk) next(ctx context.Context, size int) ([]group, error) {
	if !w.down && !w.nulls {
		if null, err := w.null(ctx); null != nil || err != nil {
			return null, err
		}
	}
	for !w.ended && (len(w.groups) < 2 || len(w.groups) <= size && w.held() < maxSources) {
		if err := w.more(ctx, max(8*size, min(w.seen, maxSources))); err != nil {
			return nil, err
		}
	}
	if len(w.groups) == 0 {
		if w.nulls {
			return nil, nil
		}
		return w.null(ctx)
	}
	n, keys, most := 0, 0, len(w.groups)
	if !w.ended {
		most-- // the last may not be complete
	}
	for n < min(size, most) {
		g := w.groups[n]
		if n > 0 && (keys+len(g.keys) > maxSources || w.bound(w.far, g) != nil) {
			break
		}
		keys += len(g.keys)
		if n++; w.bound(w.near, g) != nil {
			break
		}
	}
	some := slices.Clone(w.groups[:n])
	w.groups = w.groups[n:]
	return some, nil
}

// held is how many sources are in memory.
func (w *walk) held() (n int) {
	for _, g := range w.groups {
		n += len(g.keys)
	}
	return n
}

// null returns the group without values; nil where it is not within the page's bounds.
func (w *walk) null(ctx context.Context) ([]group, error) {
	w.nulls = true
	if w.near != nil && w.compare(nil, w.near.Values[0]) < 0 || w.far != nil && w.compare(nil, w.far.Values[0]) > 0 {
		return nil, nil
	}
	keys, err := w.store.meeting(ctx, w.c.Of, w.q.At, driver.Present{Field: w.c.target()}, maxSources)
	if err == nil && len(keys) > maxSources {
		err = w.tooMany("there are")
	}
	return []group{{keys: keys}}, err
}

func (w *walk) tooMany(there string) error {
	return errorf(CodeQueryTooComplex, "orderBy: %s more than %d %s with a value of %s: sort by another field, or from the other end, or ask for fewer by where", there, maxSources, w.c.Of.Plural, w.c.Name)
}

// more reads so many sources that follow in the order of their values.
func (w *walk) more(ctx context.Context, atOnce int) error {
	q := &driver.Query{
		Collection: w.c.Of.Collection, At: w.q.At, Limit: atOnce, After: w.last, Fields: []string{w.c.Member()},
		Order: []driver.Order{{Field: w.c.target(), Desc: w.down}},
	}
	within := driver.And{driver.Present{Field: w.c.target()}}
	for _, b := range []struct {
		at *driver.Position
		up bool
	}{{w.near, !w.down}, {w.far, w.down}} {
		switch {
		case b.at == nil:
		case b.at.Values[0] != nil && b.up:
			within = append(within, driver.Compare{Field: w.c.target(), Op: driver.Ge, Value: b.at.Values[0]})
		case b.at.Values[0] != nil:
			within = append(within, driver.Compare{Field: w.c.target(), Op: driver.Le, Value: b.at.Values[0]})
		case !b.up: // what is not above null is null
			w.ended = true
			return nil
		}
	}
	q.Filter = within
	vs, err := w.store.engine.Query(ctx, q)
	if err != nil {
		return err
	}
	for _, v := range vs {
		value := sortValue(w.c.target().Kind, w.c.field, valueAt(v.Data, w.c.stored))
		if n := len(w.groups); n > 0 && w.compare(w.groups[n-1].value, value) == 0 {
			if w.groups[n-1].keys = append(w.groups[n-1].keys, v.Key); len(w.groups[n-1].keys) > maxSources {
				return w.tooMany("in one place are")
			}
		} else {
			w.groups = append(w.groups, group{value, []driver.Value{v.Key}})
		}
		w.last = &driver.Position{Values: []driver.Value{value}, Key: v.Key}
	}
	w.seen, w.ended = w.seen+len(vs), len(vs) < atOnce
	return w.store.beyond(ctx, w.c.Of, w.q.At)
}

// read adds the documents of groups to the page. It adds nothing and returns false if there are
// more of several groups than the page needs: an engine would not return the first of them.
func (w *walk) read(ctx context.Context, some []group) (bool, error) {
	q := *w.q
	q.Order, q.After, q.Before = w.q.Order[1:], w.bound(w.q.After, some[0]), w.bound(w.q.Before, some[0])
	left := w.q.Limit - len(w.out)
	if q.Limit = left; len(some) > 1 {
		q.Limit++
	}
	ref := w.t.object.Fields[w.c.Ref].Stored
	if q.Fields != nil {
		q.Fields = append(slices.Clip(q.Fields), ref)
	}
	of := map[string]int{} // the groups, by source
	var keys []driver.Value
	for i, g := range some {
		for _, key := range g.keys {
			of[key.(string)] = i //nolint:forcetypeassert // keys are strings
		}
		keys = append(keys, g.keys...)
	}
	in := w.c.refers(w.t, keys)
	if some[0].value == nil {
		in = driver.Not{Filter: in}
	}
	q.Filter = driver.And{in}
	if w.q.Filter != nil {
		q.Filter = driver.And{in, w.q.Filter}
	}
	vs, err := w.store.engine.Query(ctx, &q)
	if err != nil || len(vs) > left {
		return false, err
	}
	place := func(v *driver.Version) int {
		if len(some) == 1 {
			return 0
		}
		key, _ := rawjson.Unquote(valueAt(v.Data, []string{ref}))
		return of[key]
	}
	vs = slices.Clone(vs) // the engine's are shared
	slices.SortStableFunc(vs, func(a, b *driver.Version) int {
		if w.q.Backward {
			return place(b) - place(a)
		}
		return place(a) - place(b)
	})
	for _, v := range vs {
		w.values[v.Key] = some[place(v)].value
	}
	if w.q.Backward {
		w.out = append(vs, w.out...)
	} else {
		w.out = append(w.out, vs...)
	}
	return true, nil
}
