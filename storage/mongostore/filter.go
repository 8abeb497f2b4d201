package mongostore

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"

	"github.com/tidwall/gjson"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/asof/asof/storage/driver"
)

// A driver.Filter becomes a condition of MongoDB in two steps: plan takes
// out what says nothing (nested negations, lists of one,
// constants), so that its depth is that of what it says; compile writes it down
// for a place where versions are.

// always and never are filters that need no database.
type (
	always struct{ driver.Filter }
	never  struct{ driver.Filter }
)

// plan simplifies a filter. It refuses texts that the database cannot look for.
func plan(f driver.Filter) (driver.Filter, error) {
	switch f := f.(type) {
	case driver.And:
		return planList(f, true)
	case driver.Or:
		return planList(f, false)
	case driver.Not:
		inner, err := plan(f.Filter)
		if err != nil {
			return nil, err
		}
		return negate(inner), nil
	case driver.In:
		if len(f.Values) == 0 {
			return never{}, nil
		}
	case driver.Text:
		return f, checkText(f)
	case driver.Any:
		if f.Filter == nil {
			return f, nil
		}
		inner, err := plan(f.Filter)
		switch inner.(type) {
		case always:
			inner = nil
		case never:
			return never{}, err
		}
		return driver.Any{Field: f.Field, Filter: inner}, err
	}
	return f, nil
}

// planList is plan for the parts of an And, or of an Or.
func planList(list []driver.Filter, and bool) (driver.Filter, error) {
	var kept []driver.Filter
	for _, f := range list {
		f, err := plan(f)
		if err != nil {
			return nil, err
		}
		_, isAlways := f.(always)
		_, isNever := f.(never)
		switch {
		case isNever && and, isAlways && !and:
			return f, nil
		case !isNever && !isAlways:
			kept = append(kept, f)
		}
	}
	switch {
	case len(kept) == 1:
		return kept[0], nil
	case and && len(kept) == 0:
		return always{}, nil
	case and:
		return driver.And(kept), nil
	case len(kept) == 0:
		return never{}, nil
	default:
		return driver.Or(kept), nil
	}
}

func negate(f driver.Filter) driver.Filter {
	switch f := f.(type) {
	case always:
		return never{}
	case never:
		return always{}
	case driver.Not:
		return f.Filter
	default:
		return driver.Not{Filter: f}
	}
}

// place is where compiled conditions find versions.
type place struct {
	key    string // the field of the document's key
	prefix string // of a version's fields, with a dot
	search string // of the document's search form, with a dot
}

// at is the place of versions in a field; "" for the document itself.
func at(field string) place {
	switch field {
	case "":
		return place{key: "_id", search: "x."}
	case "vs":
		return place{key: "k", prefix: "vs.", search: "vs.x."}
	default:
		return place{key: "_id", prefix: field + ".", search: field + ".x."}
	}
}

// value is the search form of what a path leads to, without its reading.
func (p place) value(path []string) string {
	names := make([]string, len(path))
	for i, step := range path {
		names[i] = memberName(step)
	}
	return p.search + strings.Join(names, "."+readingObject+".")
}

// metaFields are the fields of a version that have what every one carries, but for the key.
var metaFields = [...]string{
	driver.MetaNumber: "v", driver.MetaRecordedAt: "at", driver.MetaAuthor: "by", driver.MetaOp: "op",
	driver.MetaMessage: "msg", driver.MetaGroup: "grp",
}

// field is where a field's value of its kind is.
func (p place) field(f driver.Field) string {
	switch f.Meta {
	case driver.MetaNone:
		return join(p.inside(f.Path), readings[f.Kind])
	case driver.MetaKey:
		return p.key
	default:
		return p.prefix + metaFields[f.Meta]
	}
}

// inside is value for a place that may be an element of a list, where the
// first step goes through the element's own object.
func (p place) inside(path []string) string {
	if p.search != "" || len(path) == 0 {
		return p.value(path)
	}
	return readingObject + "." + p.value(path)
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

var relations = [...]string{driver.Eq: "$eq", driver.Lt: "$lt", driver.Le: "$lte", driver.Gt: "$gt", driver.Ge: "$gte"}

// compile writes a planned filter as a condition on versions at a place.
func (p place) compile(f driver.Filter) bson.D {
	switch f := f.(type) {
	case nil, always:
		return bson.D{}
	case driver.And:
		return bson.D{{Key: "$and", Value: p.compileAll(f)}}
	case driver.Or:
		return bson.D{{Key: "$or", Value: p.compileAll(f)}}
	case driver.Not:
		return bson.D{{Key: "$nor", Value: bson.A{p.compile(f.Filter)}}}
	case driver.Compare:
		value := operand(f.Field.Kind, f.Value)
		return bson.D{{Key: p.field(f.Field), Value: bson.D{{Key: relations[f.Op], Value: value}}}}
	case driver.In:
		values := make(bson.A, len(f.Values))
		for i, v := range f.Values {
			values[i] = operand(f.Field.Kind, v)
		}
		return bson.D{{Key: p.field(f.Field), Value: bson.D{{Key: "$in", Value: values}}}}
	case driver.Text:
		return bson.D{{Key: p.field(f.Field), Value: textCondition(f)}}
	case driver.Present:
		if f.Field.Kind != 0 {
			return bson.D{{Key: p.field(f.Field), Value: exists(true)}}
		}
		return p.present(f.Field.Path)
	case driver.Any:
		list := join(p.inside(f.Field.Path), readingList)
		if f.Filter == nil {
			return bson.D{{Key: list + ".0", Value: exists(true)}}
		}
		return bson.D{{Key: list, Value: bson.D{{Key: "$elemMatch", Value: place{}.compile(f.Filter)}}}}
	}
	return bson.D{{Key: "$nor", Value: bson.A{bson.D{}}}} // never
}

func (p place) compileAll(list []driver.Filter) bson.A {
	conditions := make(bson.A, len(list))
	for i, f := range list {
		conditions[i] = p.compile(f)
	}
	return conditions
}

// present holds where a value has any reading. A missing or null member has no
// search form, but a null element has an empty one.
func (p place) present(path []string) bson.D {
	if len(path) > 0 {
		return bson.D{{Key: p.inside(path), Value: exists(true)}}
	}
	var readings bson.A
	for _, name := range []string{"s", "b", "i", "f", "m", readingObject, readingList, readingCut} {
		readings = append(readings, bson.D{{Key: name, Value: exists(true)}})
	}
	return bson.D{{Key: "$or", Value: readings}}
}

func exists(yes bool) bson.D { return bson.D{{Key: "$exists", Value: yes}} }

// textCondition is the condition on a string's search form. Beginnings are a
// range, which an index answers; the rest are regular expressions made of
// literals. They do without the server's own rules about case, which are not
// those of strings.ToLower: each letter becomes the set of letters that have
// it as their small one.
func textCondition(f driver.Text) bson.D {
	if !f.Fold {
		value := encodeString(f.Value)
		if f.Op == driver.Equals {
			return bson.D{{Key: "$eq", Value: value}}
		}
		if f.Op == driver.HasPrefix {
			return bson.D{{Key: "$gte", Value: value}, {Key: "$lt", Value: value + afterAll}}
		}
	}
	return bson.D{{Key: "$regex", Value: pattern(f)}}
}

// maxPattern is how long a regular expression MongoDB takes, in bytes.
const maxPattern = 32764

// checkText refuses what would become a longer one.
func checkText(f driver.Text) error {
	if !f.Fold && (f.Op == driver.Equals || f.Op == driver.HasPrefix) || len(f.Value) < maxPattern/longestFolded {
		return nil // none, or one that is certainly short enough
	}
	if n := len(pattern(f)); n > maxPattern {
		return invalidf("the text of a condition, of %d bytes, is too long for MongoDB: the pattern made of it has %d bytes, at most %d are possible; ask for a part of it", len(f.Value), n, maxPattern)
	}
	return nil
}

// longestFolded is more than what a byte of a text becomes in a pattern.
const longestFolded = 20

// pattern is the regular expression for a match that is no range.
func pattern(f driver.Text) string {
	var b strings.Builder
	if f.Op == driver.HasPrefix || f.Op == driver.Equals {
		b.WriteString(`\A`)
	}
	value := f.Value
	if f.Fold {
		value = strings.ToLower(value)
	}
	for _, r := range value {
		if f.Fold {
			writeFolded(&b, r)
		} else {
			writeLiteral(&b, r)
		}
	}
	if f.Op == driver.HasSuffix || f.Op == driver.Equals {
		b.WriteString(`\z`)
	}
	return b.String()
}

// writeLiteral writes what matches one character of a text and nothing else.
func writeLiteral(b *strings.Builder, r rune) {
	switch {
	case r < ' ' || r == 0x7f:
		b.WriteString(`\x`)
		if r < 16 {
			b.WriteByte('0')
		}
		b.WriteString(strconv.FormatInt(int64(r), 16))
	case r < 0x80 && !(r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'):
		b.WriteByte('\\')
		b.WriteRune(r)
	default:
		writeEncoded(b, r)
	}
}

// writeFolded writes what matches every character whose small form is this one.
func writeFolded(b *strings.Builder, small rune) {
	others := uppers()[small]
	if unicode.ToLower(small) == small {
		others = append([]rune{small}, others...)
	}
	switch len(others) {
	case 0:
		b.WriteString(`(?!)`) // nothing has this small form
	case 1:
		writeLiteral(b, others[0])
	default:
		if slices.Max(others) < firstEscaped { // each is one character
			b.WriteByte('[')
			for _, r := range others {
				b.WriteRune(r)
			}
			b.WriteByte(']')
			return
		}
		b.WriteString("(?:")
		for i, r := range others {
			if i > 0 {
				b.WriteByte('|')
			}
			writeLiteral(b, r)
		}
		b.WriteByte(')')
	}
}

// uppers maps each small letter to the others that unicode.ToLower takes to it.
var uppers = sync.OnceValue(func() map[rune][]rune {
	found := make(map[rune][]rune)
	for _, c := range unicode.CaseRanges {
		for r := rune(c.Lo); r <= rune(c.Hi); r++ {
			if small := unicode.ToLower(r); small != r {
				found[small] = append(found[small], r)
			}
		}
	}
	return found
})

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
	case a == b:
		return 0
	case a == nil:
		return -1
	case b == nil:
		return 1
	}
	switch a := a.(type) {
	case string:
		return strings.Compare(a, b.(string))
	case int64:
		return cmp.Compare(a, b.(int64))
	}
	if a == false {
		return -1
	}
	return 1
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
