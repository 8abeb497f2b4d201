package mongostore

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// indexKeys are the indexes of collections, by the name of the collection, each as
// its fields, with a minus where they descend.
type indexKeys map[string][]string

// indexKeysOf are those that a collection and its overflow are declared with.
func indexKeysOf(t *testing.T, c *collection, main, history []mongo.IndexModel) indexKeys {
	t.Helper()
	of := func(models []mongo.IndexModel, more ...string) (list []string) {
		for _, keys := range append(more, keysOf(t, models)...) {
			list = append(list, strings.TrimSuffix(keys, " sparse"))
		}
		return list
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
