package mongostore

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/asof/asof/storage/driver"
)

// A driver.Filter becomes a condition of MongoDB in three steps: plan takes
// out what says nothing (nested negations, lists of one,
// constants), so that its depth is that of what it says; hoist moves
// conditions on the version itself out of conditions on list elements, where
// the database cannot see them; compile writes it down for a place where
// versions are.

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
	case driver.Present:
		if f.Field.Meta != driver.MetaNone {
			return always{}, nil
		}
	case driver.Any:
		if f.Filter == nil {
			return f, nil
		}
		inner, err := plan(f.Filter)
		if err != nil {
			return nil, err
		}
		return anyOf(f.Field, inner), nil
	}
	return f, nil
}

func planList(list []driver.Filter, and bool) (driver.Filter, error) {
	planned := make([]driver.Filter, len(list))
	for i, f := range list {
		var err error
		if planned[i], err = plan(f); err != nil {
			return nil, err
		}
	}
	return combine(planned, and, nil), nil
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

func anyOf(field driver.Field, inner driver.Filter) driver.Filter {
	switch inner.(type) {
	case always:
		return driver.Any{Field: field}
	case never:
		return never{}
	default:
		return driver.Any{Field: field, Filter: inner}
	}
}

// combine joins filters that are simple already, each changed by a function.
func combine(list []driver.Filter, and bool, change func(driver.Filter) driver.Filter) driver.Filter {
	var kept []driver.Filter
	for _, f := range list {
		if change != nil {
			f = change(f)
		}
		_, isAlways := f.(always)
		_, isNever := f.(never)
		switch {
		case isNever && and, isAlways && !and:
			return f
		case !isNever && !isAlways:
			kept = append(kept, f)
		}
	}
	switch {
	case len(kept) == 1:
		return kept[0]
	case and && len(kept) == 0:
		return always{}
	case and:
		return driver.And(kept)
	case len(kept) == 0:
		return never{}
	default:
		return driver.Or(kept)
	}
}

// depth is how many levels of a document a filter looks at.
func depth(f driver.Filter) int {
	deepest := 0
	switch f := f.(type) {
	case driver.And:
		for _, g := range f {
			deepest = max(deepest, depth(g))
		}
	case driver.Or:
		for _, g := range f {
			deepest = max(deepest, depth(g))
		}
	case driver.Not:
		deepest = depth(f.Filter)
	case driver.Compare:
		deepest = len(f.Field.Path)
	case driver.In:
		deepest = len(f.Field.Path)
	case driver.Text:
		deepest = len(f.Field.Path)
	case driver.Present:
		if deepest = len(f.Field.Path); f.Field.Kind == driver.KindObject {
			deepest++
		}
	case driver.Any:
		deepest = len(f.Field.Path) + 1
		if f.Filter != nil {
			deepest += depth(f.Filter)
		}
	}
	return deepest
}

// hoist takes conditions on the version out of an Any: where c is one of them,
// Any(f) is c and Any(f with c true), or not c and Any(f with c false).
func hoist(f driver.Filter) driver.Filter {
	switch f := f.(type) {
	case driver.And:
		return combine(f, true, hoist)
	case driver.Or:
		return combine(f, false, hoist)
	case driver.Not:
		return negate(hoist(f.Filter))
	case driver.Any:
		c := metaCondition(f.Filter)
		if c == nil {
			return f
		}
		whether := func(known driver.Filter) driver.Filter {
			return hoist(anyOf(f.Field, replace(f.Filter, c, known)))
		}
		return combine([]driver.Filter{
			combine([]driver.Filter{c, whether(always{})}, true, nil),
			combine([]driver.Filter{driver.Not{Filter: c}, whether(never{})}, true, nil),
		}, false, nil)
	default:
		return f
	}
}

// metaCondition finds a condition on the version inside a filter on elements.
func metaCondition(f driver.Filter) driver.Filter {
	switch f := f.(type) {
	case driver.And:
		return firstMeta(f)
	case driver.Or:
		return firstMeta(f)
	case driver.Not:
		return metaCondition(f.Filter)
	case driver.Any:
		return metaCondition(f.Filter)
	case driver.Compare:
		if f.Field.Meta != driver.MetaNone {
			return f
		}
	case driver.In:
		if f.Field.Meta != driver.MetaNone {
			return f
		}
	case driver.Text:
		if f.Field.Meta != driver.MetaNone {
			return f
		}
	}
	return nil
}

func firstMeta(list []driver.Filter) driver.Filter {
	for _, f := range list {
		if c := metaCondition(f); c != nil {
			return c
		}
	}
	return nil
}

// replace puts a constant in the place of a condition.
func replace(f, c, known driver.Filter) driver.Filter {
	with := func(f driver.Filter) driver.Filter { return replace(f, c, known) }
	switch f := f.(type) {
	case driver.And:
		return combine(f, true, with)
	case driver.Or:
		return combine(f, false, with)
	case driver.Not:
		return negate(with(f.Filter))
	case driver.Any:
		if f.Filter == nil {
			return f
		}
		return anyOf(f.Field, with(f.Filter))
	default:
		if sameCondition(f, c) {
			return known
		}
		return f
	}
}

func sameCondition(a, b driver.Filter) bool {
	switch a := a.(type) {
	case driver.Compare:
		b, ok := b.(driver.Compare)
		return ok && a.Field.Meta == b.Field.Meta && a.Field.Meta != driver.MetaNone && a.Op == b.Op && a.Value == b.Value
	case driver.In:
		b, ok := b.(driver.In)
		return ok && a.Field.Meta == b.Field.Meta && a.Field.Meta != driver.MetaNone && slices.Equal(a.Values, b.Values)
	case driver.Text:
		b, ok := b.(driver.Text)
		return ok && a.Field.Meta == b.Field.Meta && a.Field.Meta != driver.MetaNone && a.Op == b.Op && a.Value == b.Value && a.Fold == b.Fold
	}
	return false
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

// field is where a field's value of its kind is.
func (p place) field(f driver.Field) string {
	switch f.Meta {
	case driver.MetaKey:
		return p.key
	case driver.MetaNumber:
		return p.prefix + "v"
	case driver.MetaRecordedAt:
		return p.prefix + "at"
	case driver.MetaAuthor:
		return p.prefix + "by"
	case driver.MetaOp:
		return p.prefix + "op"
	case driver.MetaMessage:
		return p.prefix + "msg"
	case driver.MetaGroup:
		return p.prefix + "grp"
	case driver.MetaNone:
	}
	return join(p.inside(f.Path), reading(f.Kind))
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
