package drivertest

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/asof/asof/storage/driver"
)

// testLongIndexHistories has tens of thousands of changes of a few indexes, so
// that an engine that divides the history of an index by time has to divide it
// often: going forward, and again where versions are loaded into what was
// divided already.
func (s *suite) testLongIndexHistories(t *testing.T) {
	for round := range uint64(s.scale) {
		t.Run(fmt.Sprintf("seed %d.%d", s.seed, round), func(t *testing.T) {
			g := newGenerator(s.seed, 9000+round)
			g.shape = []member{
				{name: "n", kind: driver.KindInt, indexed: true},
				{name: "s", kind: driver.KindString, indexed: true},
				{name: "tags", kind: driver.KindString, list: true, indexed: true},
				{name: "plain", kind: driver.KindInt},
			}
			h := &indexHistory{pair: s.pair(t, g, driver.Collection{Name: collection, Indexes: indexes(g.shape)})}
			h.run()
		})
	}
}

// indexHistory loads a long history in several ways.
type indexHistory struct {
	*pair
	at driver.Instant // the end of what was loaded in order
}

func (h *indexHistory) run() {
	const documents = 90
	h.at = 1_000_000
	// In order, as an import does; at times many versions share an instant.
	for range 14 {
		var vs []driver.Version
		for range 500 {
			if h.gen.chance(60) {
				h.at += driver.Instant(1 + h.gen.IntN(3))
			}
			key := fmt.Sprintf("k%d", h.gen.IntN(documents))
			if !slices.ContainsFunc(vs, func(v driver.Version) bool { return v.Key == key && v.RecordedAt == h.at }) {
				vs = append(vs, h.small(key, h.at))
			}
		}
		h.at++
		h.load(vs)
	}
	h.compare(60)
	// Back in time: documents that are loaded late, each over all that time,
	// over a short part of it, or with all of its versions together.
	for i := range 60 {
		key := fmt.Sprintf("late%d", i)
		span := pick(h.gen, []driver.Instant{h.at, h.at / 20, 200})
		from := 1 + driver.Instant(h.gen.Int64N(int64(h.at-span)+1))
		var vs []driver.Version
		for range 90 {
			vs = append(vs, h.small(key, from+driver.Instant(h.gen.Int64N(int64(span)))))
		}
		slices.SortFunc(vs, func(a, b driver.Version) int { return cmp.Compare(a.RecordedAt, b.RecordedAt) })
		vs = slices.CompactFunc(vs, func(a, b driver.Version) bool { return a.RecordedAt == b.RecordedAt })
		if i%3 == 0 {
			// In two loads: the second begins where an entry was still going on.
			h.load(vs[:len(vs)/2])
			vs = vs[len(vs)/2:]
		}
		h.load(vs)
	}
	h.compare(60)
	// Forward again, by commits.
	for range 300 {
		key := fmt.Sprintf("k%d", h.gen.IntN(documents))
		last := h.model.last(collection, key)
		v := h.small(key, 0)
		h.mirror(h.commit(&driver.Write{
			ID: h.id(), Collection: collection, Key: key, Expected: numberOf(last), Op: driver.OpUpdate, Deleted: v.Deleted, Data: v.Data,
		}))
		h.clock.move(time.Microsecond)
	}
	h.compare(60)
	h.reopen(driver.Collection{Name: collection, Indexes: indexes(h.gen.shape)})
	h.compare(20)
	// Dropped and declared again: the history of the index is made anew.
	h.reopen(driver.Collection{Name: collection})
	h.reopen(driver.Collection{Name: collection, Indexes: indexes(h.gen.shape)})
	h.compare(60)
	h.compareEverything()
}

// small is a version with few values, so that each is in many documents.
func (h *indexHistory) small(key string, at driver.Instant) driver.Version {
	v := driver.Version{Collection: collection, Key: key, RecordedAt: at, Op: driver.OpImport}
	if v.Deleted = h.gen.chance(4); !v.Deleted {
		tags := fmt.Sprintf(`["t%d","t%d"]`, h.gen.IntN(6), h.gen.IntN(6))
		v.Data = fmt.Appendf(nil, `{"n":%d,"s":"v%d","tags":%s,"plain":%d}`, h.gen.IntN(8), h.gen.IntN(30), tags, h.gen.IntN(8))
		if h.gen.chance(10) {
			v.Data = []byte(h.gen.document())
		}
	}
	return v
}

// compare asks for indexed values at random instants.
func (h *indexHistory) compare(queries int) {
	h.Helper()
	g := h.gen
	n, str, tags := intField("n"), stringField("s"), field(0, "tags")
	for range queries {
		q := &driver.Query{Collection: collection, At: 1 + driver.Instant(g.Int64N(int64(h.at)+10)), Backward: g.chance(30)}
		if g.chance(50) {
			q.At = g.instant()
		}
		value := int64(g.IntN(9))
		tag := driver.Any{Field: tags, Filter: eq(stringField(), fmt.Sprintf("t%d", g.IntN(7)))}
		q.Filter = pick(g, []driver.Filter{
			eq(n, value),
			driver.Compare{Field: n, Op: driver.CompareOp(1 + g.IntN(int(driver.Ge))), Value: value},
			driver.In{Field: str, Values: []driver.Value{fmt.Sprintf("v%d", g.IntN(30)), "v7", "none"}},
			driver.Text{Field: str, Op: driver.HasPrefix, Value: "v1"},
			tag,
			driver.And{eq(n, value), tag},
			driver.And{tag, driver.Compare{Field: intField("plain"), Op: driver.Lt, Value: value}},
			driver.Or{eq(n, value), eq(str, "v3")},
			driver.Not{Filter: driver.Present{Field: n}},
			nil,
		})
		if g.chance(60) {
			q.Order = []driver.Order{{Field: pick(g, []driver.Field{n, str}), Desc: g.chance(50)}}
		}
		if g.chance(60) {
			q.Limit = 1 + g.IntN(20)
		}
		if g.chance(30) {
			q.After = g.position(q.Order, h.want(&driver.Query{Collection: collection, At: q.At}))
		}
		h.compareQuery(q)
	}
}
