package storage

import (
	"context"
	"slices"

	"github.com/asof/asof/storage/condition"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/fault"
	"github.com/asof/asof/storage/rawjson"
	"github.com/asof/asof/storage/record"
)

// SourceOf returns where the field is in the document that it is copied from: an object and the
// place in it; nil where there is no such object.
func SourceOf(c *record.Copy, d *Document) (*Object, int, error) {
	o := &d.Object
	for _, i := range c.In {
		var err error
		if o, err = o.Object(i); o == nil || err != nil {
			return nil, 0, err
		}
	}
	return o, c.Place, nil
}

// meeting returns the keys of the documents that meet a condition at an instant, at most so many,
// and one more if there are more.
func (s *Store) meeting(ctx context.Context, t *record.Type, at driver.Instant, f driver.Filter, most int) ([]driver.Value, error) {
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

// metaCopied marks a copied field in an order, which no engine sees; its name is the path.
const metaCopied driver.Meta = 255

// firstCopied returns the copied field that is the first of an order; nil where it is another.
func firstCopied(t *record.Type, orders []driver.Order) *record.Copy {
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
	t      *record.Type
	c      *record.Copy
	values map[string]driver.Value // of the documents that were returned, by key
}

// mostGroups is how many groups are looked for in one query of the documents.
const mostGroups = 256

// group is the sources with one value.
type group struct {
	value driver.Value // nil: the documents of the group have none
	keys  []driver.Value
	null  driver.Filter // which documents are of the group without values
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
		case all && some[0].value != nil: // as many as are likely to fill the page, and no more
			if w.bound(w.near, some[0]) == nil { // else it tells nothing of the others
				size = min(2*size, mostGroups)
			}
			if got := len(w.out) - before; got > 0 {
				size = max(1, min(size, (q.Limit-len(w.out))*len(some)/got))
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

// compare is the direction of the walk. Null is last in either order, so that only who comes to the end of a
// list looks for what has no value.
func (w *walk) compare(a, b driver.Value) int {
	orders := []driver.Order{{Field: w.q.Order[0].Field, Desc: w.down}}
	if a == nil || b == nil { // null is the least in the order of an engine
		orders[0].Desc = !w.q.Backward
	}
	return condition.ComparePositions(orders, &driver.Position{Values: []driver.Value{a}}, &driver.Position{Values: []driver.Value{b}})
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
	if w.q.Backward && !w.nulls {
		if null, err := w.null(ctx); null != nil || err != nil {
			return null, err
		}
	}
	for !w.ended && (len(w.groups) < 2 || len(w.groups) <= size && w.held() < condition.MaxSources) {
		if err := w.more(ctx, max(8*size, min(w.seen, condition.MaxSources))); err != nil {
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
		if n > 0 && (keys+len(g.keys) > condition.MaxSources || w.bound(w.far, g) != nil) {
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
	null, err := w.valueless(ctx)
	return []group{{null: null}}, err
}

func (w *walk) tooMany(there string) error {
	return fault.Errorf(fault.CodeQueryTooComplex, "orderBy: %s more than %d %s with a value of %s: sort by another field, or from the other end, or ask for fewer by where", there, condition.MaxSources, w.c.Of.Plural, w.c.Name)
}

// more reads so many sources that follow in the order of their values.
func (w *walk) more(ctx context.Context, atOnce int) error {
	q := &driver.Query{
		Collection: w.c.Of.Collection, At: w.q.At, Limit: atOnce, After: w.last, Fields: []string{w.c.Member()},
		Order: []driver.Order{{Field: w.c.Target(), Desc: w.down}},
	}
	within := driver.And{driver.Present{Field: w.c.Target()}}
	for _, b := range []struct {
		at *driver.Position
		up bool
	}{{w.near, !w.down}, {w.far, w.down}} {
		switch {
		case b.at == nil:
		case b.at.Values[0] != nil && b.up:
			within = append(within, driver.Compare{Field: w.c.Target(), Op: driver.Ge, Value: b.at.Values[0]})
		case b.at.Values[0] != nil:
			within = append(within, driver.Compare{Field: w.c.Target(), Op: driver.Le, Value: b.at.Values[0]})
		case (b.at == w.near) != w.q.Backward: // only null is beyond null
			w.ended = true
			return nil
		}
	}
	q.Filter = append(within, sources(w.c, w.t, w.q.Filter)...)
	vs, err := w.store.engine.Query(ctx, q)
	if err != nil {
		return err
	}
	for _, v := range vs {
		value := condition.SortValue(w.c.Target().Kind, w.c.Field, rawjson.Find(v.Data, w.c.Stored))
		if n := len(w.groups); n > 0 && w.compare(w.groups[n-1].value, value) == 0 {
			if w.groups[n-1].keys = append(w.groups[n-1].keys, v.Key); len(w.groups[n-1].keys) > condition.MaxSources {
				return w.tooMany("in one place are")
			}
		} else {
			w.groups = append(w.groups, group{value: value, keys: []driver.Value{v.Key}})
		}
		w.last = &driver.Position{Values: []driver.Value{value}, Key: v.Key}
	}
	w.seen, w.ended = w.seen+len(vs), len(vs) < atOnce
	return w.store.beyond(ctx, w.c.Of, w.q.At)
}

// sources are those of a filter's conditions that are about the reference alone, as conditions on the
// documents that it leads to: so a list that is filtered and sorted by one copied field does not come
// to the others.
func sources(c *record.Copy, t *record.Type, f driver.Filter) (out driver.And) {
	switch f := f.(type) {
	case driver.And:
		for _, f := range f {
			out = append(out, sources(c, t, f)...)
		}
	case driver.Not:
		if in, ok := f.Filter.(driver.In); ok && slices.Equal(in.Field.Path, c.Reference(t).Path) {
			out = driver.And{driver.Not{Filter: driver.In{Field: condition.Key, Values: in.Values}}}
		}
	case driver.In:
		if slices.Equal(f.Field.Path, c.Reference(t).Path) {
			out = driver.And{driver.In{Field: condition.Key, Values: f.Values}}
		}
	}
	return out
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
	ref := w.c.Reference(w.t).Path
	if q.Fields != nil {
		q.Fields = append(slices.Clip(q.Fields), ref...)
	}
	of := map[string]int{} // the groups, by source
	var keys []driver.Value
	for i, g := range some {
		for _, key := range g.keys {
			of[key.(string)] = i //nolint:forcetypeassert // keys are strings
		}
		keys = append(keys, g.keys...)
	}
	in := w.c.Refers(w.t, keys)
	if some[0].value == nil {
		in = some[0].null
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
		key, _ := rawjson.Unquote(rawjson.Find(v.Data, ref))
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

// valueless is the condition that the reference leads to none of the documents with a value, as far as those
// that meet the query's conditions are concerned. An engine looks between the keys of all of these.
func (w *walk) valueless(ctx context.Context) (driver.Filter, error) {
	valued := append(driver.And{driver.Present{Field: w.c.Target()}}, sources(w.c, w.t, w.q.Filter)...)
	keys, err := w.store.meeting(ctx, w.c.Of, w.q.At, valued, condition.MaxSources)
	if err == nil && len(keys) > condition.MaxSources {
		err = w.tooMany("there are")
	}
	return driver.Not{Filter: w.c.Refers(w.t, keys)}, err
}
