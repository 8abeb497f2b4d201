package mongostore

import (
	"cmp"

	"github.com/tidwall/gjson"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/asof/asof/storage/driver"
)

// sortBy is a query's order as a sort of the database. A repeated field decides
// nothing, nor does any field after the key, which is unique.
func (p place) sortBy(order []driver.Order, backward bool) bson.D {
	var spec bson.D
	named := make(map[string]bool)
	add := func(field string, desc bool) {
		if named[field] || named[p.key] {
			return
		}
		named[field] = true
		direction := int32(1)
		if desc != backward {
			direction = -1
		}
		spec = append(spec, bson.E{Key: field, Value: direction})
	}
	for _, o := range order {
		add(p.field(o.Field), o.Desc)
	}
	add(p.key, false)
	return spec
}

// beyond holds for versions strictly after a position in an order, or before it.
func (p place) beyond(order []driver.Order, at *driver.Position, after bool) bson.D {
	var cases bson.A
	var same bson.A // the conditions that everything so far is equal
	add := func(beyond bson.D) {
		if beyond != nil {
			cases = append(cases, bson.D{{Key: "$and", Value: append(append(bson.A{}, same...), beyond)}})
		}
	}
	for i, o := range order {
		field := p.field(o.Field)
		up := after != o.Desc // select greater values
		if at.Values[i] == nil {
			if up {
				add(bson.D{{Key: field, Value: exists(true)}})
			}
			same = append(same, bson.D{{Key: field, Value: exists(false)}})
			continue
		}
		value := operand(o.Field.Kind, at.Values[i])
		if up {
			add(bson.D{{Key: field, Value: bson.D{{Key: "$gt", Value: value}}}})
		} else {
			add(bson.D{{Key: "$or", Value: bson.A{
				bson.D{{Key: field, Value: bson.D{{Key: "$lt", Value: value}}}},
				bson.D{{Key: field, Value: exists(false)}},
			}}})
		}
		same = append(same, bson.D{{Key: field, Value: bson.D{{Key: "$eq", Value: value}}}})
	}
	relation := "$gt"
	if !after {
		relation = "$lt"
	}
	add(bson.D{{Key: p.key, Value: bson.D{{Key: relation, Value: encodeString(at.Key)}}}})
	if len(cases) == 1 {
		return cases[0].(bson.D)
	}
	return bson.D{{Key: "$or", Value: cases}}
}

// bound holds for versions after a position in an order, or before it, and also for
// all that have the same first value. Unlike beyond, it is one range of an index.
// It returns nil if all versions are in the range.
func (p place) bound(order []driver.Order, at *driver.Position, after bool) bson.D {
	if len(order) == 0 || at.Values[0] == nil {
		return nil
	}
	first := order[0]
	value := operand(first.Field.Kind, at.Values[0])
	if after != first.Desc {
		return bson.D{{Key: p.field(first.Field), Value: bson.D{{Key: "$gte", Value: value}}}}
	}
	// null is less than every value, and missing
	return bson.D{{Key: p.field(first.Field), Value: bson.D{{Key: "$not", Value: bson.D{{Key: "$gt", Value: value}}}}}}
}

// row is a version that was found, with the values that it is sorted by, in
// the form that the database compares; nil for null.
type row struct {
	version *driver.Version
	values  []any
}

func newRow(order []driver.Order, v *driver.Version) row {
	r := row{version: v}
	if len(order) > 0 {
		r.values = make([]any, len(order))
		root := gjson.ParseBytes(v.Data)
		for i, o := range order {
			r.values[i] = valueOf(o.Field, v, root)
		}
	}
	return r
}

// compareRows compares two rows by the order of a query.
func compareRows(order []driver.Order, a, b row) int {
	for i, o := range order {
		c := compareValues(a.values[i], b.values[i])
		if o.Desc {
			c = -c
		}
		if c != 0 {
			return c
		}
	}
	return cmp.Compare(a.version.Key, b.version.Key)
}

// compareValues orders two values of one kind; nil is before all.
func compareValues(a, b any) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return -1
	case b == nil:
		return 1
	}
	switch a := a.(type) {
	case string:
		return cmp.Compare(a, b.(string))
	case int64:
		return cmp.Compare(a, b.(int64))
	case bool:
		b := b.(bool)
		switch {
		case a == b:
			return 0
		case a:
			return 1
		}
	}
	return -1
}

// lookup follows a path of member names; lists are never entered. The result
// does not exist if the path does not.
func lookup(v gjson.Result, path []string) gjson.Result {
	for _, step := range path {
		if !v.IsObject() {
			return gjson.Result{}
		}
		var found gjson.Result
		v.ForEach(func(name, value gjson.Result) bool {
			if text(name) == step {
				found = value
			}
			return !found.Exists()
		})
		v = found
	}
	return v
}

// valueOf is a field's value in the form that the database compares; nil for null.
func valueOf(f driver.Field, v *driver.Version, at gjson.Result) any {
	if f.Meta != driver.MetaNone {
		return operand(f.Kind, v.Meta(f.Meta))
	}
	return readAs(f.Kind, lookup(at, f.Path))
}
