package drivertest

import (
	"bytes"
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/driver/check"
)

// member is one that random documents may have: a value of a kind, a list of
// them, an object with members, or a list of such objects.
type member struct {
	name    string
	kind    driver.Kind // 0: an object
	list    bool
	members []member
	indexed bool
}

// shape says which members random documents have. Each kind is there indexed
// and not, because an engine answers the two in different ways.
func shape() []member {
	inner := []member{
		{name: "s", kind: driver.KindString, indexed: true},
		{name: "n", kind: driver.KindInt},
		{name: "tags", kind: driver.KindString, list: true},
		{name: "o", members: []member{{name: "n", kind: driver.KindInt}}},
	}
	var list []member
	for i, kind := range []driver.Kind{
		driver.KindString, driver.KindInt, driver.KindFloat, driver.KindBool, driver.KindInstant, driver.KindDate, driver.KindDecimal,
	} {
		letter := "snxbtdm"[i : i+1]
		list = append(list,
			member{name: letter, kind: kind, indexed: true},
			member{name: letter + ".plain", kind: kind},
		)
	}
	return append(list,
		member{name: "tags", kind: driver.KindString, list: true, indexed: true},
		member{name: "plain tags", kind: driver.KindString, list: true},
		member{name: "nums", kind: driver.KindInt, list: true, indexed: true},
		member{name: "xs", kind: driver.KindFloat, list: true},
		member{name: "ds", kind: driver.KindDecimal, list: true},
		member{name: "o", members: inner},
		member{name: "items", list: true, members: inner},
	)
}

// indexes returns the declared indexes of a shape.
func indexes(members []member, path ...string) []driver.Index {
	var list []driver.Index
	for _, m := range members {
		at := append(slices.Clone(path), m.name)
		switch {
		case m.indexed:
			list = append(list, driver.Index{Path: at, Kind: m.kind, List: m.list})
		case m.kind == 0 && !m.list:
			list = append(list, indexes(m.members, at...)...)
		}
	}
	return list
}

// generator makes random documents and queries.
type generator struct {
	*rand.Rand
	pools *pools
	shape []member
	// What the documents in the store have, for conditions on versions.
	keys    []string
	times   []driver.Instant
	authors []string
}

func newGenerator(seed, stream uint64) *generator {
	return &generator{Rand: rand.New(rand.NewPCG(seed, stream)), pools: newPools(), shape: shape(), authors: []string{"", "ann", "bob", "Éve"}}
}

func pick[T any](g *generator, list []T) T { return list[g.IntN(len(list))] }

// chance is true in percent of all cases.
func (g *generator) chance(percent int) bool { return g.IntN(100) < percent }

// document returns a random JSON object in normal form.
func (g *generator) document() string { return g.object(g.shape) }

func (g *generator) object(members []member) string {
	var parts []string
	for _, i := range g.Perm(len(members)) {
		if !g.chance(25) {
			parts = append(parts, quoted(members[i].name)+":"+g.value(members[i]))
		}
	}
	return "{" + strings.Join(parts, ",") + "}"
}

func (g *generator) value(m member) string {
	if g.chance(12) {
		return pick(g, g.pools.others)
	}
	if m.list {
		m.list = false
		var elements []string
		for range g.IntN(4) {
			elements = append(elements, g.value(m))
		}
		return "[" + strings.Join(elements, ",") + "]"
	}
	if m.kind == 0 {
		return g.object(m.members)
	}
	return g.scalar(m.kind)
}

// scalar mostly takes one of the first of a pool, so that values repeat.
func (g *generator) scalar(kind driver.Kind) string {
	pool := g.pools.of(kind)
	if g.chance(50) {
		pool = pool[:min(len(pool), 6)]
	}
	return pick(g, pool)
}

// operand returns a random value of a kind.
func (g *generator) operand(kind driver.Kind) driver.Value {
	for {
		value, err := decode([]byte(g.scalar(kind)))
		if err != nil {
			panic(err) // the pools hold JSON
		}
		if v := typed(kind, value); v != nil {
			if kind == driver.KindDecimal {
				if n, ok := value.(json.Number); ok {
					return n.String()
				}
				return value
			}
			return v
		}
	}
}

// place is a field that a condition may be about, with what is there.
type place struct {
	field  driver.Field
	member member
}

// places lists all fields of an object that are not inside lists.
func places(members []member, path ...string) []place {
	var list []place
	for _, m := range members {
		at := append(slices.Clone(path), m.name)
		list = append(list, place{driver.Field{Path: at, Kind: m.kind}, m})
		if m.kind == 0 && !m.list {
			list = append(list, places(m.members, at...)...)
		}
	}
	return list
}

var metas = [...]driver.Meta{
	driver.MetaKey, driver.MetaNumber, driver.MetaRecordedAt, driver.MetaAuthor, driver.MetaOp, driver.MetaMessage, driver.MetaGroup,
}

// filter returns a random condition on an object with these members, or, where
// element is set, on such an element of a list.
func (g *generator) filter(depth int, members []member, element *member) driver.Filter {
	if depth > 0 && g.chance(45) {
		switch g.IntN(5) {
		case 0, 1:
			return driver.And(g.filters(depth-1, members, element))
		case 2, 3:
			return driver.Or(g.filters(depth-1, members, element))
		default:
			return driver.Not{Filter: g.filter(depth-1, members, element)}
		}
	}
	if element == nil && g.chance(12) {
		return g.metaCondition()
	}
	all := places(members)
	if element != nil && (element.kind != 0 || g.chance(10)) {
		all = append(all, place{driver.Field{Kind: element.kind}, *element})
	}
	return g.condition(depth, pick(g, all))
}

func (g *generator) filters(depth int, members []member, element *member) []driver.Filter {
	list := make([]driver.Filter, g.IntN(4))
	for i := range list {
		list[i] = g.filter(depth, members, element)
	}
	return list
}

func (g *generator) condition(depth int, p place) driver.Filter {
	field, m := p.field, p.member
	if g.chance(4) && len(field.Path) > 0 {
		// A step further than there is.
		field.Path = append(slices.Clone(field.Path), "s")
	}
	if g.chance(12) {
		switch { // of its kind, of any, or of another
		case g.chance(25):
			field.Kind = 0
		case field.Kind == 0:
			field.Kind = driver.KindObject
		case g.chance(25):
			field.Kind = driver.Kind(1 + g.IntN(int(driver.KindObject)))
		}
		return driver.Present{Field: field}
	}
	if m.list && g.chance(90) || g.chance(3) {
		element := m
		element.list = false
		field.Kind = 0
		if g.chance(15) {
			return driver.Any{Field: field}
		}
		return driver.Any{Field: field, Filter: g.filter(max(depth-1, 0), element.members, &element)}
	}
	if field.Kind == 0 || g.chance(8) {
		field.Kind = driver.Kind(1 + g.IntN(int(driver.KindDecimal)))
	}
	return g.comparison(field, func() driver.Value { return g.operand(field.Kind) })
}

func (g *generator) comparison(field driver.Field, operand func() driver.Value) driver.Filter {
	if field.Kind == driver.KindString && g.chance(40) {
		value := operand().(string)
		if n := len(value); n > 1 && n < 10 && g.chance(30) {
			value = strings.ToValidUTF8(value[g.IntN(n):], "")
		}
		return driver.Text{Field: field, Op: driver.TextOp(1 + g.IntN(int(driver.Equals))), Value: value, Fold: g.chance(50)}
	}
	if g.chance(25) {
		values := make([]driver.Value, g.IntN(4))
		for i := range values {
			values[i] = operand()
		}
		return driver.In{Field: field, Values: values}
	}
	return driver.Compare{Field: field, Op: driver.CompareOp(1 + g.IntN(int(driver.Ge))), Value: operand()}
}

func (g *generator) metaCondition() driver.Filter {
	meta := pick(g, metas[:])
	field := driver.Field{Meta: meta, Kind: check.MetaKind(meta)}
	return g.comparison(field, func() driver.Value { return g.metaValue(meta) })
}

func (g *generator) metaValue(meta driver.Meta) driver.Value {
	switch meta {
	case driver.MetaKey:
		if len(g.keys) > 0 && g.chance(90) {
			return pick(g, g.keys)
		}
		return "k"
	case driver.MetaNumber:
		return int64(g.IntN(6))
	case driver.MetaOp:
		return int64(g.IntN(int(driver.OpImport) + 2))
	case driver.MetaRecordedAt:
		return g.instant()
	default:
		return pick(g, g.authors)
	}
}

// instant returns the time of a version, or one next to it, or any.
func (g *generator) instant() driver.Instant {
	if len(g.times) == 0 || g.chance(5) {
		return pick(g, []driver.Instant{0, 1, driver.Forever, driver.Forever - 1, math.MinInt64, -5})
	}
	return pick(g, g.times) + driver.Instant(g.IntN(3)-1)
}

// order returns up to three random sort fields.
func (g *generator) order() []driver.Order {
	var scalars []place
	for _, p := range places(g.shape) {
		if p.field.Kind != 0 && !p.member.list || g.chance(5) {
			scalars = append(scalars, p)
		}
	}
	var list []driver.Order
	for range g.IntN(4) {
		field := pick(g, scalars).field
		if g.chance(20) {
			meta := pick(g, metas[:])
			field = driver.Field{Meta: meta, Kind: check.MetaKind(meta)}
		}
		if field.Kind == 0 || field.Meta == driver.MetaNone && g.chance(10) {
			field.Kind = driver.Kind(1 + g.IntN(int(driver.KindDecimal)))
		}
		list = append(list, driver.Order{Field: field, Desc: g.chance(50)})
	}
	return list
}

// position returns a place in an order: that of a document, or a made-up one.
func (g *generator) position(order []driver.Order, among []*driver.Version) *driver.Position {
	if len(among) > 0 && g.chance(75) {
		return positionIn(order, pick(g, among))
	}
	p := &driver.Position{Key: "k", Values: make([]driver.Value, len(order))}
	if len(g.keys) > 0 {
		p.Key = pick(g, g.keys)
	}
	for i, o := range order {
		switch {
		case o.Field.Meta == driver.MetaKey:
			p.Values[i] = p.Key
		case g.chance(20):
		case o.Field.Meta != driver.MetaNone:
			p.Values[i] = g.metaValue(o.Field.Meta)
		default:
			p.Values[i] = g.operand(o.Field.Kind)
		}
	}
	// Behind the key there is one document at most, whose values these are.
	if i := slices.IndexFunc(order, func(o driver.Order) bool { return o.Field.Meta == driver.MetaKey }); i >= 0 {
		if j := slices.IndexFunc(among, func(v *driver.Version) bool { return v.Key == p.Key }); j >= 0 {
			copy(p.Values[i:], positionIn(order, among[j]).Values[i:])
		}
	}
	return p
}

// positionIn is where a version stands in an order, as a caller finds out.
func positionIn(order []driver.Order, v *driver.Version) *driver.Position {
	p := &driver.Position{Key: v.Key, Values: make([]driver.Value, len(order))}
	root, err := decode(v.Data)
	if err != nil {
		panic(err) // the version was found by decoding it
	}
	for i, o := range order {
		value := valueOf(o.Field, v, root)
		if value != nil && o.Field.Kind == driver.KindDecimal {
			switch raw := lookup(root, o.Field.Path).(type) {
			case json.Number:
				value = raw.String()
			case string:
				value = raw
			}
		}
		p.Values[i] = value
	}
	return p
}

// quoted writes a JSON string in normal form.
func quoted(s string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		panic(err) // a string is always encoded
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// pools has, for each kind, JSON texts of values that are of the kind or just
// not, small enough that random documents and conditions often meet.
type pools struct {
	strings, ints, floats, bools, instants, dates, decimals, others []string
}

func newPools() *pools {
	texts := func(list ...string) []string {
		for i, s := range list {
			list[i] = quoted(s)
		}
		return list
	}
	return &pools{
		strings: texts("", "a", "A", "ab", "aB", "abc", "b", "a%b", "a_b", "%", "_", "a*b", "*", "?", "[a]", "[^a]", "\\", "\\%", "a\\b", "'", "''", "\"",
			"$", "^a", "a.c", "(", "é", "É", "e\u0301", "İ", "i", "I", "ı", "ß", "ẞ", "ss", "Σ", "σ", "ς", "K", "k", "日本", "日", "🎉", "\uffff", "\U00010000",
			"\x00", "a\x00", "a\x00b", "\x01", "\x7f", " ", " a", "a ", "\n", "\u2028", "<b>&", "null", "true", "1", "1.0", "[]", "{}",
			"2024-03-01", "2024-03-01T12:00:00Z", strings.Repeat("a", 4000), strings.Repeat("a", 4000)+"b"),
		ints: []string{
			"0", "1", "-1", "2", "3", "9", "10", "100", "9007199254740992", "9007199254740993", "-9007199254740993",
			"9223372036854775807", "-9223372036854775808", "9223372036854775808", "-9223372036854775809", "1.5", "1e+300", "0.1",
		},
		floats: []string{
			"0", "1", "-1", "0.1", "0.2", "0.30000000000000004", "0.3", "1.5", "-2.25", "1e-7", "1e+21", "1e+300", "5e-324",
			"9007199254740992", "9007199254740993", "9223372036854775807", "9223372036854775808", "1.7976931348623157e+308",
			"0.1000000000000000055511151231257827",
		},
		bools: []string{"true", "false", "true", "false", "0", "1"},
		instants: texts("2024-03-01T12:00:00Z", "2024-03-01T12:00:00.5Z", "2024-03-01T12:00:00.50Z", "2024-03-01T12:00:00.500000999Z", "2024-03-01T14:00:00+02:00",
			"2024-03-01T12:00:00.000001Z", "2024-03-01T11:59:59.999999999Z", "1969-12-31T23:59:59.9999999Z", "1970-01-01T00:00:00Z", "0001-01-01T00:00:00Z",
			"9999-12-31T23:59:59.999999Z", "2024-02-29T00:00:00-23:59", "2023-02-29T00:00:00Z", "2024-03-01T24:00:00Z", "2024-03-01T12:00:00",
			"2024-03-01", "2024-03-01 12:00:00Z", "2024-03-01T12:00:00,5Z", "2024-03-01T2:00:00Z", "2024-03-01T12:00:60Z", "", "now"),
		dates: texts("2024-03-01", "2024-02-29", "2023-12-31", "0001-01-01", "9999-12-31", "2023-02-29", "2024-13-01", "2024-3-1", "2024-03-01T00:00:00Z",
			"20240301", "2024-03-01 ", "", "a"),
		decimals: append(texts("1", "1.0", "1.50", "1.5", "-0", "0", "0.0", "1e3", "1000", "1E-2", "0.01", "-1.5", "12345678901234567890.123456789",
			"12345678901234567890.123456788", "12345678901234567890", "1e100", "abc", "", "1.", ".5", "+1", " 1", "01", "NaN", "Infinity", "0x1", "1_0", "-"),
			"1", "1.5", "0", "12345678901234567890", "1000", "0.01", "-1.5", "1e+100"),
		others: []string{"null", "true", "0", `""`, `"a"`, "[]", "[1]", `["a"]`, "{}", `{"s":"a"}`, `{"n":1}`, "[[]]", "[null]"},
	}
}

func (p *pools) of(kind driver.Kind) []string {
	switch kind {
	case driver.KindString:
		return p.strings
	case driver.KindInt:
		return p.ints
	case driver.KindFloat:
		return p.floats
	case driver.KindBool:
		return p.bools
	case driver.KindInstant:
		return p.instants
	case driver.KindDate:
		return p.dates
	default:
		return p.decimals
	}
}
