package sqlitestore

import (
	"math"
	"slices"

	"github.com/asof/asof/storage/driver"
)

// How a page is found. The ways differ in what they read:
//
//   - ordered: an index in the order of the query, or the keys, and the document
//     of each entry until the page is full. Best where most documents pass the filter.
//   - selected: the entries that a condition allows, all their documents,
//     sorted. Best where these are few.
//   - scan: all documents in the order of the file, with the best of them kept.
//     Never more than a constant from what is possible without an index.
//
// The ways that stop early give up when they have looked at more documents
// than a scan could have in the same time, and the scan answers instead.

// ordered is the way along an index.
type ordered struct {
	access
	fixed  bool // the index holds one value in the ranges: the order is that of the keys
	narrow bool // the filter allows some keys only
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
	case selected != nil && (along == nil || r.cheaper(count)):
		return r.selectPage(*selected)
	case along != nil && (r.q.Limit > 0 || along.fixed || along.narrow):
		out, done, err := r.orderedPage(*along)
		if err != nil || done {
			return out, err
		}
	}
	return r.scanPage()
}

// alongKeys returns what has the order of the keys: an index of which the filter
// allows one value, or the keys themselves.
func (r *run) alongKeys() *ordered {
	keys := &ordered{access: access{ix: r.coll.keys, ranges: []span{everything}}}
	for _, a := range r.access {
		switch {
		case a.ix == r.coll.keys:
			keys.access, keys.narrow = a, true
		case len(a.ranges) == 1 && a.ranges[0].point():
			return &ordered{access: a, fixed: true}
		}
	}
	return keys
}

// alongIndex returns the index that has the query's order, if there is one.
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

// selective returns the index whose ranges hold the fewest entries, and how
// many, provided that reading all of them is worth thinking about.
func (r *run) selective(along *ordered) (*access, int64, error) {
	most := r.size/4 + 16
	if r.q.Limit > 0 && along != nil {
		// Beyond this it is cheaper to follow the order, see cheaper.
		most = int64(math.Sqrt(float64(r.q.Limit)*float64(r.size))) + 16
	}
	var best *access
	for i, a := range r.access {
		if along != nil && along.ix == a.ix && (along.exact || along.narrow || along.fixed && r.q.Limit > 0) {
			continue
		}
		n, err := r.countEntries(a.ix, a.ranges, most+1)
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
				return r.countEntries(ix, []span{everything}, 0)
			}
		}
	}
	for _, a := range r.access {
		if a.exact && a.distinct() {
			return r.countEntries(a.ix, a.ranges, 0)
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
