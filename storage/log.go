package storage

import (
	"context"
	"iter"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/record"
)

// moreVersions is how many times as many versions are asked for where those before
// were too few.
const moreVersions = 4

// readLog reads what a query selects, without pruned versions where it does not ask for
// them. It checks the hints, which an engine may ignore;
// where that leaves too few versions, it asks for more. Its errors are *Error. One beside a version is of that
// alone (see isUnreadable), and what follows on it can be read; any other is the last.
func (s *Store) readLog(ctx context.Context, q *driver.LogQuery) iter.Seq2[*driver.Version, error] {
	return func(yield func(*driver.Version, error) bool) {
		asked, found := *q, 0
		for {
			var last *driver.Version
			n := 0
			for v, err := range s.engine.Log(ctx, &asked) {
				if err == nil {
					err = ended(ctx)
				}
				if err != nil && !isUnreadable(err) {
					yield(nil, fromDriver(ctx, err))
					return
				}
				n, last = n+1, v
				if !q.Hints.Hold(v) || v.Op == driver.OpPruned && len(q.Hints.Ops) == 0 {
					continue
				}
				lists(ctx, v)
				if found++; !yield(v, fromDriver(ctx, err)) || found == q.Limit {
					return
				}
			}
			if q.Limit == 0 || n < asked.Limit {
				return
			}
			after := last.Position()
			asked.After, asked.Limit = &after, moreVersions*asked.Limit
		}
	}
}

// logOf is the log of a document between two numbers, both included.
func logOf(t *record.Type, key string, first, last int64) *driver.LogQuery {
	return &driver.LogQuery{Collections: []string{t.Collection}, Keys: []string{key}, FromNumber: first, ToNumber: last + 1}
}

// entry is a version of a log with the one before it, nil for a document's first.
type entry struct{ version, before *driver.Version }

// begins reports whether what is before the version was pruned, so that nobody knows what it
// changed.
func (e entry) begins() bool { return e.before != nil && e.before.Op == driver.OpPruned }

// How many entries are read before the versions before them are, at first and at
// most, and after how many bytes.
const (
	firstEntries = 2
	mostEntries  = 128
	entryBytes   = 4 << 20
)

// entries is readLog with the version before each, unless none is wanted: from the
// log where it is there, and else read by number, those of many entries at once.
func (s *Store) entries(ctx context.Context, q *driver.LogQuery, before bool) iter.Seq2[entry, error] {
	return func(yield func(entry, error) bool) {
		asked := *q
		if before && len(q.Keys) == 1 && !q.Hints.Any() { // neighbours: one more is read
			asked.FromNumber = max(0, q.FromNumber-1)
			if q.Limit > 0 && (q.Backward || q.FromNumber > 1) {
				asked.Limit++
			}
		}
		var waiting []entry
		var previous *driver.Version // the last one before those
		flush := func(n int) bool {
			if err := s.fillBefore(ctx, q, previous, waiting, n); err != nil {
				yield(entry{}, err)
				return false
			}
			for _, e := range waiting[:n] {
				if err := ended(ctx); err != nil { // what is made of each takes time
					yield(entry{}, err)
					return false
				}
				if !yield(e, nil) {
					return false
				}
				previous = e.version
			}
			waiting = append(waiting[:0], waiting[n:]...)
			return true
		}
		most, size, n := firstEntries, 0, 0
		if q.Limit > 0 {
			most = min(asked.Limit, mostEntries)
		}
		for v, err := range s.readLog(ctx, &asked) {
			if err != nil {
				yield(entry{}, err)
				return
			}
			if v.Number < q.FromNumber && !q.Backward {
				previous = v
				continue
			}
			if !before {
				if !yield(entry{version: v}, nil) {
					return
				}
				continue
			}
			waiting = append(waiting, entry{version: v})
			if n++; v.Number < q.FromNumber || q.Limit > 0 && n > q.Limit {
				flush(len(waiting) - 1) // the last one is only what is before another
				return
			}
			if size += v.Size(); len(waiting) < most && size < entryBytes {
				continue
			}
			ready := len(waiting)
			if ready > 1 && q.Backward && len(q.Keys) == 1 {
				ready-- // what is before the last one probably comes next
			}
			if !flush(ready) {
				return
			}
			most, size = min(2*most, mostEntries), 0
		}
		flush(len(waiting))
	}
}

// fillBefore fills in what is before the first n of some entries of a log.
func (s *Store) fillBefore(ctx context.Context, q *driver.LogQuery, previous *driver.Version, list []entry, n int) error {
	isBefore := func(p, v *driver.Version) bool {
		return p != nil && p.Number == v.Number-1 && p.Key == v.Key && p.Collection == v.Collection
	}
	var known map[driver.LogPosition]*driver.Version // the time is left out
	if len(q.Keys) != 1 && n > 1 {
		known = make(map[driver.LogPosition]*driver.Version, len(list))
		for _, e := range list {
			known[driver.LogPosition{Collection: e.version.Collection, Key: e.version.Key, Number: e.version.Number}] = e.version
		}
	}
	refs := map[string][]driver.Ref{}
	places := map[string][]int{}
	near := previous
	for i := range list[:n] {
		v := list[i].version
		if q.Backward {
			near = nil
			if i+1 < len(list) {
				near = list[i+1].version
			}
		}
		switch {
		case v.Number == 1:
		case isBefore(near, v):
			list[i].before = near
		default:
			if p := known[driver.LogPosition{Collection: v.Collection, Key: v.Key, Number: v.Number - 1}]; p != nil {
				list[i].before = p
				break
			}
			refs[v.Collection] = append(refs[v.Collection], driver.Ref{Key: v.Key, Number: v.Number - 1})
			places[v.Collection] = append(places[v.Collection], i)
		}
		near = v
	}
	for collection, rs := range refs {
		vs, err := s.engine.Get(ctx, collection, rs, q.Fields)
		if err != nil {
			return fromDriver(ctx, err)
		}
		for i, v := range vs {
			if v == nil {
				return fromDriver(ctx, driver.Errorf(driver.CodeInternal, "%s %q: version %d is missing in the middle of its history", collection, rs[i].Key, rs[i].Number))
			}
			list[places[collection][i]].before = v
		}
	}
	return nil
}
