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

// How many versions are read before those before them are, at first and at most, and after how many bytes.
const (
	firstEntries = 2
	mostEntries  = 128
	entryBytes   = 4 << 20
)

// entries is readLog with the version before each: the one beside it in the log, where that is the one, and else
// one that is read by number, those of many entries at once.
func (s *Store) entries(ctx context.Context, q *driver.LogQuery) iter.Seq2[entry, error] {
	return func(yield func(entry, error) bool) {
		var read []*driver.Version
		previous := 0 // of read: it was yielded, and may be before the next one
		flush := func(end int) bool {
			list, err := s.withBefore(ctx, q, read, previous, end)
			if err != nil {
				yield(entry{}, err)
				return false
			}
			for _, e := range list {
				if err := ended(ctx); err != nil { // what is made of each takes time
					yield(entry{}, err)
					return false
				}
				if !yield(e, nil) {
					return false
				}
			}
			previous = min(1, end)
			read = append(read[:0], read[end-previous:]...)
			return true
		}
		most, size := firstEntries, 0
		if q.Limit > 0 {
			most = min(q.Limit, mostEntries)
		}
		for v, err := range s.readLog(ctx, q) {
			if err != nil {
				yield(entry{}, err)
				return
			}
			read = append(read, v)
			if size += v.Size(); len(read)-previous < most && size < entryBytes {
				continue
			}
			end := len(read)
			if end-previous > 1 && q.Backward && len(q.Keys) == 1 {
				end-- // what is before the last one probably comes next
			}
			if !flush(end) {
				return
			}
			most, size = min(2*most, mostEntries), 0
		}
		flush(len(read))
	}
}

// withBefore returns versions of a log, from one place to another, with those before them.
func (s *Store) withBefore(ctx context.Context, q *driver.LogQuery, read []*driver.Version, from, to int) ([]entry, error) {
	list := make([]entry, 0, to-from)
	refs, places := map[string][]driver.Ref{}, map[string][]int{}
	for i := from; i < to; i++ {
		v, beside := read[i], i-1
		if q.Backward {
			beside = i + 1
		}
		e := entry{version: v}
		if 0 <= beside && beside < len(read) && read[beside].Collection == v.Collection && read[beside].Key == v.Key && read[beside].Number == v.Number-1 {
			e.before = read[beside]
		} else if v.Number > 1 {
			refs[v.Collection] = append(refs[v.Collection], driver.Ref{Key: v.Key, Number: v.Number - 1})
			places[v.Collection] = append(places[v.Collection], len(list))
		}
		list = append(list, e)
	}
	for collection, rs := range refs {
		vs, err := s.engine.Get(ctx, collection, rs, q.Fields)
		if err != nil {
			return nil, fromDriver(ctx, err)
		}
		for i, v := range vs {
			if v == nil {
				return nil, fromDriver(ctx, driver.Errorf(driver.CodeInternal, "%s %q: version %d is missing in the middle of its history", collection, rs[i].Key, rs[i].Number))
			}
			list[places[collection][i]].before = v
		}
	}
	return list, nil
}
