package mongostore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/mongostore/mongotest"
)

// indexKeys are the indexes of collections, by the name of the collection, each as
// its fields, with a minus where they descend.
type indexKeys map[string][]string

// indexKeysOf are those that a collection and its overflow are declared with.
func indexKeysOf(t *testing.T, c *collection, main, history []mongo.IndexModel) indexKeys {
	t.Helper()
	of := func(models []mongo.IndexModel, more ...string) []string {
		return append(more, keysOf(t, models)...)
	}
	return indexKeys{c.main.Name(): of(main, "_id"), c.history.Name(): of(history, "_id")}
}

// narrowedBy lists the indexes that bound what a command reads: those whose first
// field its first stage compares with something. Several: the server chooses. None:
// it reads the whole collection, or nothing, as an insert does.
func (keys indexKeys) narrowedBy(command bson.D) (found []string) {
	of := keys[fmt.Sprint(command[0].Value)]
	for _, fields := range alternatives(command) {
		n := 0
		for _, index := range of {
			if first, _, _ := strings.Cut(index, " "); slices.Contains(fields, strings.TrimPrefix(first, "-")) {
				n++
				if !slices.Contains(found, index) {
					found = append(found, index)
				}
			}
		}
		if n == 0 {
			return nil // one alternative that reads all
		}
	}
	return found
}

// alternatives are the fields that a command's first stage compares, see
// comparedFields.
func alternatives(command bson.D) (list [][]string) {
	switch command[0].Key {
	case "find":
		return comparedFields(memberOf(command, "filter"))
	case "aggregate":
		stages, _ := memberOf(command, "pipeline").(bson.A)
		return comparedFields(memberOf(stages[0].(bson.D), "$match"))
	case "update", "delete":
		for _, one := range memberOf(command, command[0].Key+"s").(bson.A) {
			list = append(list, comparedFields(memberOf(one.(bson.D), "q"))...)
		}
	}
	return list
}

// orderedBy is the index that has the order of a page, if the page ends where it is
// full, since nothing else is asked of the documents than how they are in that order,
// and that they are live; "": none.
func (keys indexKeys) orderedBy(command bson.D) string {
	sort, _ := memberOf(command, "sort").(bson.D)
	if command[0].Key != "find" || len(sort) == 0 || memberOf(command, "limit") == nil {
		return ""
	}
	for _, field := range namedFields(memberOf(command, "filter")) {
		if field != "current.del" && field != "current.at" && !slices.ContainsFunc(sort, func(s bson.E) bool { return s.Key == field }) {
			return ""
		}
	}
	for _, index := range keys[fmt.Sprint(command[0].Value)] {
		if orders(index, sort) {
			return index
		}
	}
	return ""
}

// namedFields are all fields that a condition names.
func namedFields(condition any) (fields []string) {
	d, _ := condition.(bson.D)
	for _, e := range d {
		if !strings.HasPrefix(e.Key, "$") {
			fields = append(fields, e.Key)
			continue
		}
		list, _ := e.Value.(bson.A)
		for _, c := range list {
			fields = append(fields, namedFields(c)...)
		}
	}
	return fields
}

func memberOf(d bson.D, name string) any {
	for _, e := range d {
		if e.Key == name {
			return e.Value
		}
	}
	return nil
}

// orders reports whether an index, read from one end or the other, has an order.
func orders(index string, sort bson.D) bool {
	fields := strings.Fields(index)
	if len(fields) < len(sort) {
		return false
	}
	var turned bool
	for i, s := range sort {
		name, descends := strings.CutPrefix(fields[i], "-")
		turn := descends == (fmt.Sprint(s.Value) == "1")
		if name != s.Key || i > 0 && turn != turned {
			return false
		}
		turned = turn
	}
	return true
}

// comparedFields are the fields that a condition compares in such a way that an
// index on them bounds what is read; for each of several alternatives.
func comparedFields(condition any) [][]string {
	d, _ := condition.(bson.D)
	all := [][]string{nil}
	both := func(more [][]string) {
		var product [][]string
		for _, a := range all {
			for _, b := range more {
				product = append(product, slices.Concat(a, b))
			}
		}
		all = product
	}
	for _, e := range d {
		switch list, _ := e.Value.(bson.A); {
		case e.Key == "$and":
			for _, c := range list {
				both(comparedFields(c))
			}
		case e.Key == "$or":
			var alternatives [][]string
			for _, c := range list {
				alternatives = append(alternatives, comparedFields(c)...)
			}
			both(alternatives)
		case strings.HasPrefix(e.Key, "$"):
		default:
			both([][]string{comparedValue(e.Key, e.Value)})
		}
	}
	return all
}

// comparedValue is comparedFields for the condition on one field.
func comparedValue(field string, value any) []string {
	operators, ok := value.(bson.D)
	if !ok || len(operators) == 0 || !strings.HasPrefix(operators[0].Key, "$") {
		return []string{field} // a value
	}
	var found []string
	for _, o := range operators {
		switch o.Key {
		case "$lt", "$lte":
			// Nearly all is before an instant that is asked about.
			if field != "at" && !strings.HasSuffix(field, ".at") {
				found = append(found, field)
			}
		case "$eq", "$in", "$gt", "$gte":
			found = append(found, field)
		case "$elemMatch":
			// Of alternatives inside an element, no field is in all of them.
			for _, inner := range comparedFields(o.Value)[:1] {
				for _, name := range inner {
					found = append(found, field+"."+name)
				}
			}
		}
	}
	return found
}

// What bounds what is read, and what does not.
func TestNarrowedBy(t *testing.T) {
	keys := indexKeys{"c": {"_id", "a b", "a -b", "l.x", "current.at"}}
	find := func(filter bson.D, more ...bson.E) bson.D {
		return append(bson.D{{Key: "find", Value: "c"}, {Key: "filter", Value: filter}}, more...)
	}
	is := func(field string, value any) bson.D { return bson.D{{Key: field, Value: value}} }
	for _, c := range []struct {
		name    string
		command bson.D
		want    []string
	}{
		{"a value", find(is("_id", "k")), []string{"_id"}},
		{"a range", find(is("a", is("$gte", 1))), []string{"a b", "a -b"}},
		{"before an instant", find(is("current.at", is("$lte", 1))), nil},
		{"the second field", find(is("b", 1)), nil},
		{"a pattern", find(is("a", is("$regex", "x"))), nil},
		{"what is not", find(is("a", is("$not", is("$gt", 1)))), nil},
		{"what is there", find(is("a", is("$exists", true))), nil},
		{"an element", find(is("l", is("$elemMatch", is("$and", bson.A{is("x", 1)})))), []string{"l.x"}},
		{"one of two", find(is("$or", bson.A{is("_id", 1), is("l.x", 1)})), []string{"_id", "l.x"}},
		{"one of two without an index", find(is("$or", bson.A{is("_id", 1), is("y", 1)})), nil},
		{"both, of which one has an index", find(is("$and", bson.A{is("_id", 1), is("y", 1)})), []string{"_id"}},
		{"nothing", find(bson.D{}), nil},
		{"an aggregation", bson.D{{Key: "aggregate", Value: "c"}, {Key: "pipeline", Value: bson.A{is("$match", is("l.x", 1))}}}, []string{"l.x"}},
		{"one that matches later", bson.D{{Key: "aggregate", Value: "c"}, {Key: "pipeline", Value: bson.A{is("$unwind", "$l"), is("$match", is("l.x", 1))}}}, nil},
		{"an update", bson.D{{Key: "update", Value: "c"}, {Key: "updates", Value: bson.A{is("q", is("_id", 1))}}}, []string{"_id"}},
		{"two updates, one of which reads all", bson.D{{Key: "update", Value: "c"}, {Key: "updates", Value: bson.A{is("q", is("_id", 1)), is("q", is("y", 1))}}}, nil},
		{"a deletion", bson.D{{Key: "delete", Value: "c"}, {Key: "deletes", Value: bson.A{is("q", is("_id", 1))}}}, []string{"_id"}},
		{"an insert", bson.D{{Key: "insert", Value: "c"}}, nil},
	} {
		if diff := cmp.Diff(c.want, keys.narrowedBy(c.command)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

// What has the order of a page.
func TestOrderedBy(t *testing.T) {
	keys := indexKeys{"c": {"_id", "a b", "a -b"}}
	page := func(filter bson.D, b int32) bson.D {
		return bson.D{
			{Key: "find", Value: "c"},
			{Key: "filter", Value: filter},
			{Key: "sort", Value: bson.D{{Key: "a", Value: int32(-1)}, {Key: "b", Value: b}}},
			{Key: "limit", Value: int64(10)},
		}
	}
	live := bson.D{{Key: "$and", Value: bson.A{bson.D{{Key: "current.del", Value: false}}, bson.D{{Key: "a", Value: bson.D{{Key: "$not", Value: 1}}}}}}}
	for _, c := range []struct {
		name    string
		command bson.D
		want    string
	}{
		{"its order", page(nil, 1), "a -b"},
		{"its reverse", page(nil, -1), "a b"},
		{"of what is live, from a place on", page(live, -1), "a b"},
		{"of what else is asked", page(bson.D{{Key: "y", Value: 1}}, 1), ""},
		{"no page", page(nil, 1)[:3], ""},
		{"another order", bson.D{{Key: "find", Value: "c"}, {Key: "sort", Value: bson.D{{Key: "b", Value: int32(1)}}}, {Key: "limit", Value: int64(1)}}, ""},
		{"no order", bson.D{{Key: "find", Value: "c"}, {Key: "limit", Value: int64(1)}}, ""},
	} {
		if got := keys.orderedBy(c.command); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

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
	if _, err := c.overflow(ctx, c.bounds, "k3", prev, len(prev)); err != nil {
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

// Of a page that is refused for its size no more is read than shows that, wherever its
// versions are.
func TestPageStopsAtBytes(t *testing.T) {
	ctx, s := t.Context(), openOverflowing(t, Bounds{})
	data := fmt.Appendf(nil, `{"s":%q}`, strings.Repeat("x", 1000))
	for i := range 20 {
		if _, err := driver.CommitOne(ctx, s, &driver.Write{ID: fmt.Sprint("a", i), Collection: "tools", Key: fmt.Sprintf("k%02d", i), Op: driver.OpCreate, Author: "ann", Data: data}); err != nil {
			t.Fatal(err)
		}
	}
	then, err := s.Now(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 10 { // every other one is in the past
		if _, err := driver.CommitOne(ctx, s, &driver.Write{ID: fmt.Sprint("b", i), Collection: "tools", Key: fmt.Sprintf("k%02d", 2*i), Expected: 1, Op: driver.OpUpdate, Author: "ann", Data: []byte(`{}`)}); err != nil {
			t.Fatal(err)
		}
	}
	for _, backward := range []bool{false, true} {
		q := &driver.Query{Collection: "tools", At: then, Limit: 20, Backward: backward, Bytes: 3 * int64(len(data))}
		got, err := s.Query(ctx, q)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(got); n < 4 || n > 8 {
			t.Errorf("backward %t: %d versions of %d bytes each, where more than 3 are too much", backward, n, len(data))
		}
	}
}
