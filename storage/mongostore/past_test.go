package mongostore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/mongostore/mongotest"
)

// Conditions on keys bound what is read by the index of keys, wherever the version is, and
// so does a place in the order of keys. A page in that order ends where it is full.
func TestKeysNarrow(t *testing.T) {
	key := driver.Field{Meta: driver.MetaKey, Kind: driver.KindString}
	stars := driver.Compare{Field: driver.Field{Path: []string{"stars"}, Kind: driver.KindInt}, Op: driver.Ge, Value: int64(3)}
	begins := driver.Text{Field: key, Op: driver.HasPrefix, Value: "g"}
	is := driver.Compare{Field: key, Op: driver.Eq, Value: "go"}
	for _, c := range []struct {
		name   string
		q      driver.Query
		narrow bool
	}{
		{"a key", driver.Query{Filter: is}, true},
		{"some", driver.Query{Filter: driver.In{Field: key, Values: []driver.Value{"a", "go"}}}, true},
		{"a beginning", driver.Query{Filter: begins}, true},
		{"after", driver.Query{Filter: driver.Compare{Field: key, Op: driver.Gt, Value: "go"}}, true},
		{"a beginning and a value", driver.Query{Filter: driver.And{stars, begins}, Order: []driver.Order{{Field: stars.Field}}}, true},
		{"one of two", driver.Query{Filter: driver.Or{is, begins}}, true},
		{"the next page", driver.Query{After: &driver.Position{Key: "go"}}, true},
		{"the page before, descending", driver.Query{
			Order: []driver.Order{{Field: key, Desc: true}}, Before: &driver.Position{Values: []driver.Value{"go"}, Key: "go"}, Backward: true,
		}, true},
		{"a key or a value", driver.Query{Filter: driver.Or{is, stars}}, false},
		{"all but a key", driver.Query{Filter: driver.Not{Filter: is}}, false},
		{"a value", driver.Query{Filter: stars}, false},
	} {
		c.q.At, c.q.Limit = 5, 10
		p, err := planQuery(&c.q)
		if err != nil {
			t.Fatal(err)
		}
		keys := indexKeys{"main": {"_id"}, "history": {"k from to"}}
		for _, command := range []bson.D{
			{{Key: "find", Value: "main"}, {Key: "filter", Value: p.currentFilter()}},
			{{Key: "aggregate", Value: "main"}, {Key: "pipeline", Value: p.pastPipeline("prev")}},
			{{Key: "aggregate", Value: "history"}, {Key: "pipeline", Value: p.pastPipeline("vs")}},
		} {
			if by := keys.narrowedBy(command); (by != nil) != c.narrow {
				t.Errorf("%s: bounded by %q:\n%v", c.name, by, command)
			}
			stages, _ := memberOf(command, "pipeline").(bson.A)
			ends := len(stages) > 2 && memberOf(stages[2].(bson.D), "$limit") != nil
			if stages != nil && ends != p.sortedByKey() {
				t.Errorf("%s: ends where it is full: %t\n%v", c.name, ends, stages)
			}
		}
	}
}

// A total of the past counts a version once that is in a document and in a run, which
// a commit left behind that lost; conditions on keys and values hold in all places.
func TestTotalsOfThePast(t *testing.T) {
	ctx, s := t.Context(), openOverflowing(t, Bounds{Versions: 16})
	const documents, versions = 5, 20
	var all []driver.Version
	for d := range documents {
		for v := range versions {
			all = append(all, driver.Version{
				Collection: "tools", Key: fmt.Sprint("k", d), RecordedAt: driver.Instant(100 + 10*v + d), Op: driver.OpImport, Data: fmt.Appendf(nil, `{"n":%d}`, v),
			})
		}
	}
	if _, err := loadAgain(ctx, s, all); err != nil {
		t.Fatal(err)
	}
	c := s.collections["tools"]
	h, err := c.readHead(ctx, "k3")
	if err != nil {
		t.Fatal(err)
	}
	prev, still, err := c.readPrev(ctx, h)
	if err != nil || !still || len(prev) < 3 { // so that some of them are before an instant and some are not
		t.Fatal(len(prev), still, err)
	}
	if _, err := c.overflow(ctx, c.bounds, "k3", prev, len(prev), true); err != nil {
		t.Fatal(err)
	}
	key := driver.Field{Meta: driver.MetaKey, Kind: driver.KindString}
	large := driver.Compare{Field: driver.Field{Path: []string{"n"}, Kind: driver.KindInt}, Op: driver.Ge, Value: int64(4)}
	third := driver.Compare{Field: key, Op: driver.Eq, Value: "k3"}
	for _, c := range []struct {
		name   string
		filter driver.Filter
		holds  func(d, v int) bool
	}{
		{"all", nil, func(int, int) bool { return true }},
		{"by a value", large, func(_, v int) bool { return v >= 4 }},
		{"by a key", third, func(d, _ int) bool { return d == 3 }},
		{"by either", driver.Or{third, large}, func(d, v int) bool { return d == 3 || v >= 4 }},
		{"by neither", driver.Not{Filter: driver.Or{third, large}}, func(d, v int) bool { return d != 3 && v < 4 }},
		{"by both", driver.And{large, driver.Or{driver.Not{Filter: third}, driver.Not{Filter: large}}}, func(d, v int) bool { return d != 3 && v >= 4 }},
	} {
		for at := driver.Instant(99); at < 100+10*versions; at++ {
			q := &driver.Query{Collection: "tools", At: at, Filter: c.filter}
			found, err := s.Query(ctx, q)
			if err != nil {
				t.Fatal(err)
			}
			want := int64(0)
			for d := range documents {
				for v := range versions {
					if first := driver.Instant(100 + 10*v + d); first <= at && (at < first+10 || v == versions-1) && c.holds(d, v) {
						want++
					}
				}
			}
			total, err := s.Count(ctx, q)
			if err != nil || total != want || int64(len(found)) != want {
				t.Errorf("%s at %d: %d in all (%v), %d found, want %d", c.name, at, total, err, len(found), want)
			}
		}
	}
}

// While a total of the past is counted, the version that counts moves to the overflow: it
// is counted once.
func TestTotalsWhileVersionsMove(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	proxy, uri, name := mongotest.NewServer(t).Behind(t)
	direct, err := mongotest.WithDatabase(mongotest.URI(t), name)
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Bounds: map[string]Bounds{"things": {Versions: 2}}}
	counting, writing := newServerOf(t, uri, o), newServerOf(t, direct, o)
	var at driver.Instant
	number := int64(0)
	more := func(n int) {
		for range n {
			v, err := commitAgain(ctx, writing, write("a", fmt.Sprint(number), number))
			if err != nil {
				t.Error(err)
				return
			}
			if number++; at == 0 {
				at = v.RecordedAt
			}
		}
	}
	more(3) // the first one is in prev
	var counts atomic.Int64
	proxy.Set(func(c mongotest.Command) mongotest.Answer {
		if c.Name == "aggregate" && strings.HasPrefix(c.Collection(), "things") && slices.Contains([]int64{2, 3}, counts.Add(1)) {
			more(3)
		}
		return mongotest.Pass()
	})
	for range 2 {
		if n, err := counting.Count(ctx, &driver.Query{Collection: "things", At: at}); err != nil || n != 1 {
			t.Errorf("%d in all (%v), want 1", n, err)
		}
	}
	if counts.Load() < 4 {
		t.Error("nothing moved meanwhile")
	}
}
