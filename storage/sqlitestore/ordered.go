package sqlitestore

import (
	"bytes"
	"slices"
	"strings"

	"github.com/asof/asof/storage/driver"
)

// groupRead is how many entries with one value are sorted in memory. Above that,
// reading the index again in the order of the keys is cheaper.
const groupRead = 64

// orderedPage reads an index in the order of the query. It returns false when it
// examined more rows than its limit.
//
// The index orders by (value, key). That is the order of a query that sorts
// by this field alone, ascending, and backward its reverse. A descending
// order has keys ascend within a value, and further fields decide before the
// keys; then the entries of each value form a group that is sorted separately.
func (r *run) orderedPage(o ordered) ([]*driver.Version, bool, error) {
	desc := false
	if len(r.orders) > 0 {
		desc = r.orders[0].desc
	}
	p := &filler{r: r}
	w := &orderedWalk{run: r, filler: p, ix: o.ix, reverse: desc != r.q.Backward, scanLimit: r.rows + r.scanLimit()}
	w.grouped = !o.fixed && o.ix != r.coll.keys && (desc || len(r.orders) > 1)
	if len(r.orders) > 1 && !o.fixed && r.orders[1].meta == driver.MetaKey && r.orders[1].desc == desc {
		w.grouped = false
	}
	w.byKey = len(r.orders) == 1
	ranges := slices.Clone(o.ranges)
	if w.reverse {
		slices.Reverse(ranges)
	}
	var err error
	for _, sp := range ranges {
		from, to := r.narrow(sp, o)
		if w.grouped {
			err = w.groups(from, to)
		} else {
			err = w.inOrder(from, to)
		}
		if err != nil || w.overLimit || p.full() {
			break
		}
	}
	return p.page(), !w.overLimit, err
}

// narrow applies the bounds of the page to a range of values.
func (r *run) narrow(sp span, o ordered) (from, to bound) {
	from, to = bound{value: sp.low}, bound{value: sp.high}
	desc := len(r.orders) > 0 && r.orders[0].desc
	low, high := r.after, r.before
	if desc {
		low, high = high, low
	}
	switch {
	case o.ix == r.coll.keys:
		if low != nil {
			from.value = maxBytes(from.value, append([]byte{tagValue}, low.key...))
		}
		if high != nil {
			to.value = minBytes(to.value, append([]byte{tagValue}, high.key...))
		}
		return from, to
	case o.fixed:
		// All entries have one value: the keys are the order.
		if low != nil {
			from.key = low.key
		}
		if high != nil {
			to = bound{value: sp.low, key: high.key + "\x00"}
		}
		return from, to
	}
	// Entries equal to a bound are included; the comparison of candidates excludes them.
	if low != nil && bytes.Compare(low.values[0], from.value) > 0 {
		from.value = low.values[0]
		if len(r.orders) == 1 && !desc {
			from.key = low.key
		}
	}
	if high != nil {
		if end := successor(high.values[0]); bytes.Compare(end, to.value) < 0 {
			to.value = end
			if len(r.orders) == 1 && !desc {
				to = bound{value: high.values[0], key: high.key + "\x00"}
			}
		}
	}
	return from, to
}

// orderedWalk is one walk along an index.
type orderedWalk struct {
	*run
	*filler
	ix        *index
	reverse   bool
	grouped   bool
	byKey     bool // within a group the keys alone decide
	scanLimit int64
	overLimit bool
}

// inOrder takes entries in the order of the index.
func (w *orderedWalk) inOrder(from, to bound) error {
	cur, err := w.walk(w.ix, from, to, w.reverse)
	if err != nil {
		return err
	}
	return cur.close(w.take(cur))
}

func (w *orderedWalk) take(cur *cursor) error {
	for {
		more, err := cur.next()
		if err != nil || !more {
			return err
		}
		if more, err = w.examine(cur.entry.doc, unsafeString(cur.entry.key), w.visit); err != nil || !more {
			return err
		}
	}
}

// examine calls f with the document of an entry, and reports whether the walk goes on.
func (w *orderedWalk) examine(doc docID, key string, f visit) (bool, error) {
	more, err := w.document(w.ix, doc, key, f)
	w.overLimit = more && w.rows > w.scanLimit
	return more && !w.overLimit, err
}

// groups takes the entries of one value after the other.
func (w *orderedWalk) groups(from, to bound) error {
	for {
		next, err := w.group(from, to)
		if err != nil || next == nil || w.full() || w.overLimit {
			return err
		}
		if w.reverse {
			to = bound{value: next}
		} else {
			from = bound{value: successor(next)}
		}
		if bytes.Compare(from.value, to.value) >= 0 {
			return nil
		}
	}
}

// pair is a copy of an entry's key and document.
type pair struct {
	key string
	doc docID
}

// group reads groups with one cursor while they are small. It returns the value of
// the first large group, after reading all of that: the caller continues
// after this value with another cursor. At the end it returns nil.
func (w *orderedWalk) group(from, to bound) ([]byte, error) {
	cur, err := w.walk(w.ix, from, to, w.reverse)
	if err != nil {
		return nil, err
	}
	var value []byte
	var members []pair
	for {
		var more bool
		if more, err = cur.next(); err != nil {
			break
		}
		if !more || members != nil && !bytes.Equal(cur.entry.value, value) {
			if err = w.sorted(members); err != nil || !more || w.full() || w.overLimit {
				value = nil
				break
			}
			members = members[:0]
		}
		if len(members) == 0 {
			value = bytes.Clone(cur.entry.value)
		}
		members = append(members, pair{key: string(cur.entry.key), doc: cur.entry.doc})
		if w.byKey && len(members) > groupRead {
			// A large group: read it in the order of the keys instead.
			if err = cur.close(nil); err == nil {
				err = w.byKeys(value)
			}
			return value, err
		}
	}
	return value, cur.close(err)
}

// byKeys takes the entries of one value in the order of the keys.
func (w *orderedWalk) byKeys(value []byte) error {
	from, to := bound{value: value}, bound{value: successor(value)}
	// Keys ascend in every order, and descend only backward.
	if a := w.after; a != nil && bytes.Equal(a.values[0], value) {
		from.key = a.key
	}
	if b := w.before; b != nil && bytes.Equal(b.values[0], value) {
		to = bound{value: value, key: b.key + "\x00"}
	}
	cur, err := w.walk(w.ix, from, to, w.q.Backward)
	if err != nil {
		return err
	}
	return cur.close(w.take(cur))
}

// sorted takes the entries of a group in the query's order.
func (w *orderedWalk) sorted(members []pair) error {
	if w.byKey {
		slices.SortFunc(members, func(a, b pair) int {
			if w.q.Backward {
				a, b = b, a
			}
			return strings.Compare(a.key, b.key)
		})
		for _, m := range members {
			if more, err := w.examine(m.doc, m.key, w.visit); err != nil || !more {
				return err
			}
		}
		return nil
	}
	t := &top{r: w.run}
	if w.q.Limit > 0 {
		t.limit = w.q.Limit - len(w.out)
	}
	for _, m := range members {
		if more, err := w.examine(m.doc, m.key, w.collect(t)); err != nil || !more {
			return err
		}
	}
	return t.read(w.filler)
}
