package sqlitestore

import (
	"bytes"
	"cmp"
	"math"
	"slices"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/driver/check"
)

// How a page is found. The plans differ in what they read:
//
//   - ordered: an index in the order of the query, or the keys, and the document
//     of each entry until the page is full. Best where most documents pass the filter.
//   - selected: the entries that a condition allows, all their documents,
//     sorted. Best where these are few.
//   - scan: all documents in the order of the file, with those of the page kept.
//     Within a constant factor of what is possible without an index.
//
// An ordered plan stops when it has examined more documents than a scan could have in
// the same time, and the scan answers instead.

// ordered is the plan that follows an index.
type ordered struct {
	access
	fixed  bool // the ranges hold one value, or keys: the order is that of the keys
	narrow bool // the filter allows some of these only
}

// page answers the query.
func (r *run) page() ([]*driver.Version, error) {
	along := r.alongIndex()
	if along == nil && r.orderedByKey() {
		along = r.alongKeys()
	}
	selected, count, err := r.selective(along)
	if err != nil {
		return nil, err
	}
	switch {
	case selected != nil && count == 0:
		return nil, nil
	case selected != nil && (along == nil || r.cheaper(count)):
		return r.selectPage(*selected)
	case along != nil && (r.q.Limit > 0 || along.narrow):
		out, done, err := r.orderedPage(*along)
		if err != nil || done {
			return out, err
		}
	}
	return r.scanPage()
}

// alongKeys returns a plan in the order of the keys: by an index of which the filter
// allows one value, or by the keys themselves.
func (r *run) alongKeys() *ordered {
	keys := &ordered{access: access{ix: r.coll.keys, ranges: []span{everyKey}}, fixed: true}
	for _, a := range r.access {
		switch {
		case a.ix == r.coll.keys:
			keys.access, keys.narrow = a, true
		case len(a.ranges) == 1 && a.ranges[0].point():
			return &ordered{access: a, fixed: true, narrow: true}
		}
	}
	return keys
}

// alongIndex returns a plan by the index that has the query's order, if there is one.
func (r *run) alongIndex() *ordered {
	if len(r.orders) == 0 || r.orders[0].meta != driver.MetaNone {
		return nil
	}
	ix := r.coll.index(r.orders[0].path, r.orders[0].kind, false)
	if ix == nil {
		return nil
	}
	if i := slices.IndexFunc(r.access, func(a access) bool { return a.ix == ix }); i >= 0 {
		return &ordered{access: r.access[i]}
	}
	return &ordered{access: access{ix: ix, ranges: []span{everything}, exact: r.m.cond == nil}}
}

// orderedByKey reports whether the order is that of the keys alone.
func (r *run) orderedByKey() bool {
	return len(r.orders) == 0 || r.orders[0].meta == driver.MetaKey
}

// selective returns the index whose ranges hold the fewest entries, and their number;
// nil if reading all of them is never cheaper than following the order.
func (r *run) selective(along *ordered) (*access, int64, error) {
	most := r.size/4 + 16
	if r.q.Limit > 0 && along != nil {
		// Beyond this it is cheaper to follow the order, see cheaper.
		most = int64(math.Sqrt(float64(r.q.Limit)*float64(r.size))) + 16
	}
	var best *access
	for i, a := range r.access {
		if along != nil && along.ix == a.ix && (along.exact || along.narrow) {
			continue
		}
		n, err := r.countEntries(a, most+1)
		if err != nil {
			return nil, 0, err
		}
		if n <= most {
			best, most = &r.access[i], n
		}
	}
	return best, most, nil
}

// cheaper reports whether reading that many selected documents costs less
// than following the order until the page is full, which takes about
// limit × size / count documents if the selected ones are spread evenly.
func (r *run) cheaper(count int64) bool {
	return r.q.Limit == 0 || count <= int64(r.q.Limit) || count*count <= int64(r.q.Limit)*r.size
}

// count answers Count.
func (r *run) count() (int64, error) {
	if r.m.cond == nil && r.live {
		return r.size, nil
	}
	if r.m.cond == nil {
		// An index on a single value has an entry for every document.
		for _, ix := range r.coll.indexes {
			if !ix.decl.List {
				return r.countEntries(access{ix: ix, ranges: []span{everything}}, -1)
			}
		}
	}
	for _, a := range r.access {
		if a.exact && a.distinct() {
			return r.countEntries(a, -1)
		}
	}
	n := int64(0)
	selected, _, err := r.selective(nil)
	if err != nil {
		return 0, err
	}
	if selected != nil {
		err = r.selectEach(*selected, r.counting(&n))
	} else {
		err = r.scan(r.counting(&n))
	}
	return n, err
}

// access holds the ranges of one index that a filter allows: a document that
// the filter accepts has an entry within one of them.
type access struct {
	ix     *index
	ranges []span // ascending, not overlapping
	// exact: every document with such an entry is accepted, so the filter need not
	// be evaluated.
	exact bool
}

// span is a range of encoded values, or of keys, [low, high).
type span struct{ low, high []byte }

// everything is the span of all entries, those of null included, everyKey that of all keys.
var (
	everything = span{nullValue, highValue}
	everyKey   = span{nil, []byte("\xff")}
)

// bounds are the ends of a range.
func (a access) bounds(s span) (from, to bound) {
	if a.ix.id == 0 { // collection.keys
		return bound{key: string(s.low)}, bound{key: string(s.high)}
	}
	return bound{value: s.low}, bound{value: s.high}
}

// point reports whether a span holds one value, or null alone.
func (s span) point() bool {
	return bytes.Equal(s.low, nullValue) && bytes.Equal(s.high, lowValue) || len(s.high) == len(s.low)+1 && s.high[len(s.low)] == 0 && bytes.Equal(s.high[:len(s.low)], s.low)
}

// distinct reports whether a document has at most one entry in the ranges.
func (a access) distinct() bool {
	return !a.ix.decl.List || len(a.ranges) == 1 && a.ranges[0].point()
}

// accessOf returns the ranges that a filter allows, for each index that it limits.
func (c *collection) accessOf(f driver.Filter) []access {
	conjuncts := flatten(nil, f)
	var out []access
	used := 0
	for _, f := range conjuncts {
		a, ok := c.accessOfOne(f)
		if !ok {
			continue
		}
		used++
		i := slices.IndexFunc(out, func(b access) bool { return b.ix == a.ix })
		switch {
		case i < 0:
			out = append(out, a)
		case a.ix.decl.List:
			// Different elements may satisfy the two conditions: use the ranges of
			// one of them; their intersection would exclude too much.
			out[i].exact = false
			used--
		default:
			out[i].ranges = intersect(out[i].ranges, a.ranges)
		}
	}
	for i := range out {
		out[i].exact = len(out) == 1 && used == len(conjuncts)
	}
	if keys, ok := check.Keys(f); ok {
		a := access{ix: c.keys}
		for _, r := range keys {
			a.ranges = append(a.ranges, span{[]byte(r.Low), []byte(cmp.Or(r.High, string(everyKey.high)))})
		}
		out = append(out, a)
	}
	return out
}

// flatten lists the conditions that must all hold.
func flatten(list []driver.Filter, f driver.Filter) []driver.Filter {
	and, ok := f.(driver.And)
	if !ok {
		return append(list, f)
	}
	for _, f := range and {
		list = flatten(list, f)
	}
	return list
}

func (c *collection) accessOfOne(f driver.Filter) (access, bool) {
	if or, ok := f.(driver.Or); ok {
		return c.accessOfAny(or)
	}
	if not, ok := f.(driver.Not); ok {
		a, ok := c.accessOfOne(not.Filter)
		if !ok || a.ix.decl.List { // another element may satisfy it
			return access{}, false
		}
		a.ranges = complement(a.ranges)
		return a, true
	}
	list := false
	var path []string
	if a, ok := f.(driver.Any); ok && a.Filter != nil && a.Field.Meta == driver.MetaNone {
		inner, ok := fieldOf(a.Filter)
		if !ok || inner.Meta != driver.MetaNone || len(inner.Path) > 0 {
			return access{}, false
		}
		list, path, f = true, a.Field.Path, a.Filter
	}
	field, ok := fieldOf(f)
	switch {
	case !ok:
		return access{}, false
	case field.Meta != driver.MetaNone:
		return access{}, false
	}
	if !list {
		path = field.Path
	}
	ix := c.index(path, field.Kind, list)
	if ix == nil {
		return access{}, false
	}
	return access{ix: ix, ranges: rangesOf(f, field.Kind)}, true
}

// accessOfAny returns the ranges of conditions of which one must hold, where all are about one index.
func (c *collection) accessOfAny(or driver.Or) (any access, ok bool) {
	for i, f := range or {
		a, ok := c.accessOfOne(f)
		if !ok || a.ix.decl.List || i > 0 && a.ix != any.ix { // other elements may satisfy the others
			return access{}, false
		}
		if i > 0 {
			a.ranges = complement(intersect(complement(any.ranges), complement(a.ranges)))
		}
		any = a
	}
	return any, len(or) > 0
}

// fieldOf returns the field of a condition that an index can answer.
func fieldOf(f driver.Filter) (driver.Field, bool) {
	switch f := f.(type) {
	case driver.Compare:
		return f.Field, true
	case driver.In:
		return f.Field, true
	case driver.Text:
		return f.Field, !f.Fold && (f.Op == driver.HasPrefix || f.Op == driver.Equals)
	case driver.Present:
		return f.Field, true // of no kind, or of objects, there is no index
	default:
		return driver.Field{}, false
	}
}

// rangesOf returns the values that satisfy a condition.
func rangesOf(f driver.Filter, kind driver.Kind) []span {
	switch f := f.(type) {
	case driver.Compare:
		value := encodeValue(f.Value, kind)
		switch f.Op {
		case driver.Eq:
			return []span{{value, successor(value)}}
		case driver.Lt:
			return []span{{lowValue, value}}
		case driver.Le:
			return []span{{lowValue, successor(value)}}
		case driver.Gt:
			return []span{{successor(value), highValue}}
		case driver.Ge:
			return []span{{value, highValue}}
		}
	case driver.In:
		var ranges []span
		for _, v := range f.Values {
			value := encodeValue(v, kind)
			ranges = append(ranges, span{value, successor(value)})
		}
		slices.SortFunc(ranges, func(a, b span) int { return bytes.Compare(a.low, b.low) })
		return slices.CompactFunc(ranges, func(a, b span) bool { return bytes.Equal(a.low, b.low) })
	case driver.Text:
		value := append([]byte{tagValue}, f.Value...)
		if f.Op == driver.Equals {
			return []span{{value, successor(value)}}
		}
		return []span{{value, prefixEnd(value)}}
	case driver.Present:
		return []span{{lowValue, highValue}}
	}
	return nil
}

// intersect returns what two lists of ranges have in common.
func intersect(a, b []span) []span {
	var out []span
	for i, k := 0, 0; i < len(a) && k < len(b); {
		s := span{low: maxBytes(a[i].low, b[k].low), high: minBytes(a[i].high, b[k].high)}
		if bytes.Compare(s.low, s.high) < 0 {
			out = append(out, s)
		}
		if bytes.Compare(a[i].high, b[k].high) < 0 {
			i++
		} else {
			k++
		}
	}
	return out
}

// complement returns what a list of ranges leaves out, null included.
func complement(ranges []span) []span {
	var out []span
	low := everything.low
	for _, s := range append(slices.Clip(ranges), span{low: everything.high, high: everything.high}) {
		if bytes.Compare(low, s.low) < 0 {
			out = append(out, span{low, s.low})
		}
		low = maxBytes(low, s.high)
	}
	return out
}

func maxBytes(a, b []byte) []byte {
	if bytes.Compare(a, b) > 0 {
		return a
	}
	return b
}

func minBytes(a, b []byte) []byte {
	if bytes.Compare(a, b) < 0 {
		return a
	}
	return b
}
