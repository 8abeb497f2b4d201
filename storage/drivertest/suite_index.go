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
	for round := range s.rounds(1) {
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
	at    driver.Instant // the end of what was loaded in order
	batch []driver.Version
}

func (h *indexHistory) run() {
	const documents = 90
	some := func(n int) int {
		if raced {
			return n / 4
		}
		return n
	}
	h.at = 1_000_000
	// In order, as an import does; at times many versions share an instant.
	for range some(14) {
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
	h.compare(some(60))
	// Back in time: documents that are loaded late, each over all that time,
	// over a short part of it, or with all of its versions together.
	for i := range some(60) {
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
	h.compare(some(60))
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
	h.compare(some(60))
	h.reopen(driver.Collection{Name: collection, Indexes: indexes(h.gen.shape)})
	h.compare(some(20))
	// Dropped and declared again: the history of the index is made anew.
	h.reopen(driver.Collection{Name: collection})
	h.reopen(driver.Collection{Name: collection, Indexes: indexes(h.gen.shape)})
	h.compare(some(60))
	h.compareEverything()
}

// small is a version with few values, so that each is in many documents.
func (h *indexHistory) small(key string, at driver.Instant) driver.Version {
	v := driver.Version{Collection: collection, Key: key, RecordedAt: at, Op: driver.OpImport}
	if v.Deleted = h.gen.chance(4); !v.Deleted {
		tags := fmt.Sprintf(`["t%d","t%d"]`, h.gen.IntN(6), h.gen.IntN(6))
		v.Data = fmt.Appendf(nil, `{"n":%d,"s":"v%d","u":%d,"tags":%s,"plain":%d}`,
			h.gen.IntN(8), h.gen.IntN(30), h.gen.IntN(1_000_000), tags, h.gen.IntN(8))
		if h.gen.chance(10) {
			v.Data = []byte(h.gen.document())
		}
	}
	return v
}

// testManyDocumentsByIndex has thousands of documents, many with equal values,
// so that an engine has good reason to answer the same question in different
// ways: along one index or another, group by group, or through everything.
func (s *suite) testManyDocumentsByIndex(t *testing.T) {
	for round := range s.rounds(1) {
		t.Run(fmt.Sprintf("seed %d.%d", s.seed, round), func(t *testing.T) {
			g := newGenerator(s.seed, 9500+round)
			g.shape = []member{
				{name: "n", kind: driver.KindInt, indexed: true},
				{name: "s", kind: driver.KindString, indexed: true},
				{name: "u", kind: driver.KindInt, indexed: true},
				{name: "tags", kind: driver.KindString, list: true, indexed: true},
				{name: "plain", kind: driver.KindInt},
			}
			h := &indexHistory{pair: s.pair(t, g, driver.Collection{Name: collection, Indexes: indexes(g.shape)}), at: 1_000_000}
			for i := range 2400 {
				h.at += driver.Instant(g.IntN(2))
				h.batch = append(h.batch, h.small(fmt.Sprintf("k%d", i), h.at))
			}
			for i := range 800 {
				h.at++
				h.batch = append(h.batch, h.small(fmt.Sprintf("k%d", i*3), h.at))
			}
			h.load(h.batch)
			h.compare(s.tries(250))
			// More references than a database may take as parameters of one statement.
			var refs []driver.Ref
			for _, n := range g.Perm(3000) {
				ref := driver.Ref{Key: fmt.Sprintf("k%d", n), At: g.instant()}
				if g.chance(40) {
					ref.Number = 1 + int64(g.IntN(2))
				}
				refs = append(refs, ref)
			}
			h.compareGet(append(refs, refs[:100]...))
		})
	}
}

// compare asks for indexed values at random instants.
func (h *indexHistory) compare(queries int) {
	h.Helper()
	g := h.gen
	for range queries {
		q := &driver.Query{
			Collection: collection, At: 1 + driver.Instant(g.Int64N(int64(h.at)+10)),
			Filter: h.condition(2), Order: h.orders(), Backward: g.chance(30),
		}
		switch {
		case g.chance(40):
			q.At = driver.Forever
		case g.chance(50):
			q.At = g.instant()
		}
		if g.chance(70) {
			q.Limit = 1 + g.IntN(20)
		}
		if g.chance(50) {
			all := h.want(&driver.Query{Collection: collection, At: q.At, Filter: q.Filter})
			if g.chance(70) {
				q.After = g.position(q.Order, all)
			}
			if g.chance(40) {
				q.Before = g.position(q.Order, all)
			}
		}
		h.compareQuery(q)
	}
}

// condition is what people ask for: values and ranges of indexed fields, and
// several of them at once.
func (h *indexHistory) condition(depth int) driver.Filter {
	g := h.gen
	n, u, str, plain := intField("n"), intField("u"), stringField("s"), intField("plain")
	tag := func() driver.Filter {
		return driver.Any{Field: field(0, "tags"), Filter: eq(stringField(), fmt.Sprintf("t%d", g.IntN(7)))}
	}
	small, large := func() int64 { return int64(g.IntN(9)) }, func() int64 { return int64(g.IntN(1_000_100)) }
	text := func() string { return fmt.Sprintf("v%d", g.IntN(31)) }
	compare := func(f driver.Field, value int64) driver.Filter {
		return driver.Compare{Field: f, Op: driver.CompareOp(1 + g.IntN(int(driver.Ge))), Value: value}
	}
	key := driver.Field{Meta: driver.MetaKey, Kind: driver.KindString}
	n1, u1 := small(), large()
	list := []driver.Filter{
		eq(n, n1),
		compare(n, n1),
		driver.And{
			driver.Compare{Field: n, Op: driver.Ge, Value: n1},
			driver.Compare{Field: n, Op: pick(g, []driver.CompareOp{driver.Lt, driver.Le}), Value: n1 + int64(g.IntN(4))},
		},
		driver.And{
			driver.Compare{Field: u, Op: driver.Gt, Value: u1},
			driver.Compare{Field: u, Op: driver.Lt, Value: u1 + int64(g.IntN(300_000))},
		},
		compare(u, u1),
		driver.In{Field: n, Values: []driver.Value{small(), small(), small()}},
		driver.In{Field: str, Values: []driver.Value{text(), "v7", "none", text()}},
		driver.Text{Field: str, Op: driver.HasPrefix, Value: pick(g, []string{"v1", "v", "", "v30", "w"})},
		driver.Text{Field: str, Op: driver.Equals, Value: text()},
		driver.Compare{Field: str, Op: driver.CompareOp(1 + g.IntN(int(driver.Ge))), Value: text()},
		tag(),
		driver.Any{Field: field(0, "tags"), Filter: driver.In{Field: stringField(), Values: []driver.Value{"t1", "t3", "none"}}},
		driver.Any{Field: field(0, "tags"), Filter: driver.Compare{Field: stringField(), Op: driver.Gt, Value: "t2"}},
		driver.And{tag(), tag()},
		driver.Not{Filter: tag()},
		driver.Not{Filter: driver.Present{Field: n}},
		compare(plain, small()),
		driver.Text{Field: key, Op: driver.HasPrefix, Value: fmt.Sprintf("k%d", g.IntN(10))},
		nil,
	}
	f := pick(g, list)
	if depth == 0 || f == nil || g.chance(40) {
		return f
	}
	other := h.condition(depth - 1)
	switch {
	case other == nil:
		return f
	case g.chance(80):
		return driver.And{f, other}
	default:
		return driver.Or{f, other}
	}
}

func (h *indexHistory) orders() []driver.Order {
	g := h.gen
	key := driver.Field{Meta: driver.MetaKey, Kind: driver.KindString}
	number := driver.Field{Meta: driver.MetaNumber, Kind: driver.KindInt}
	fields := []driver.Field{intField("n"), stringField("s"), intField("u"), intField("n"), intField("plain"), key, number}
	var list []driver.Order
	for range g.IntN(3) {
		list = append(list, driver.Order{Field: pick(g, fields), Desc: g.chance(50)})
	}
	return list
}
