package condition

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"github.com/asof/asof/internal/scalar/literal"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/driver/check"
	"github.com/asof/asof/storage/fault"
	"github.com/asof/asof/storage/rawjson"
	"github.com/asof/asof/storage/record"
)

// Holds reports whether a version with data, or an element in it, meets a condition, as engines
// evaluate it. The version may be nil where the condition is one on data alone.
func Holds(f driver.Filter, v *driver.Version, data []byte) bool {
	return HoldsUntil(func() bool { return false }, f, v, data)
}

// HoldsUntil is Holds, but may return anything once over does.
func HoldsUntil(over func() bool, f driver.Filter, v *driver.Version, data []byte) bool {
	if over() {
		return false
	}
	fails := func(f driver.Filter) bool { return !HoldsUntil(over, f, v, data) }
	value := func(f driver.Field) driver.Value {
		if f.Meta != driver.MetaNone {
			return v.Meta(f.Meta)
		}
		return SortValue(f.Kind, &record.Field{Kind: record.KindDate}, rawjson.Find(data, f.Path))
	}
	switch f := f.(type) {
	case driver.And:
		return !slices.ContainsFunc(f, fails)
	case driver.Or:
		return slices.ContainsFunc(f, func(f driver.Filter) bool { return HoldsUntil(over, f, v, data) })
	case driver.Not:
		return fails(f.Filter)
	case driver.Present:
		raw := rawjson.Find(data, f.Field.Path)
		if f.Field.Kind == driver.KindObject {
			return len(raw) > 0 && raw[0] == '{'
		}
		return f.Field.Kind == 0 && !rawjson.IsNull(raw) || value(f.Field) != nil
	case driver.Compare:
		return meets(value(f.Field), f)
	case driver.In:
		return meets(value(f.Field), f)
	case driver.Text:
		return meets(value(f.Field), f)
	case driver.Any:
		found := false
		list := rawjson.Find(data, f.Field.Path)
		rawjson.Elements(list, func(start, end int) bool {
			found = f.Filter == nil || HoldsUntil(over, f.Filter, v, list[start:end])
			return !found && !over()
		})
		return found
	}
	return false
}

// meets reports whether a value meets a Compare, an In or a Text; nil does not.
func meets(value driver.Value, cond driver.Filter) bool {
	if value == nil {
		return false
	}
	switch c := cond.(type) {
	case driver.Compare:
		return check.Relates(compareValues(c.Field.Kind, value, c.Value), c.Op)
	case driver.In:
		return slices.ContainsFunc(c.Values, func(v driver.Value) bool { return compareValues(c.Field.Kind, value, v) == 0 })
	case driver.Text:
		s, _ := value.(string)
		want := c.Value
		if c.Fold {
			s, want = strings.ToLower(s), strings.ToLower(want)
		}
		return check.Matches(unsafe.Slice(unsafe.StringData(s), len(s)), []byte(want), c.Op) // without a copy of what may be long
	}
	return false
}

// ComparePositions compares places in an order as engines do: what has no value comes first
// where it is ascending.
func ComparePositions(orders []driver.Order, a, b *driver.Position) int {
	for i, o := range orders {
		x, y, n := a.Values[i], b.Values[i], 0
		switch {
		case x == nil && y == nil:
		case x == nil:
			n = -1
		case y == nil:
			n = 1
		default:
			n = compareValues(o.Field.Kind, x, y)
		}
		if o.Desc {
			n = -n
		}
		if n != 0 {
			return n
		}
	}
	return cmp.Compare(a.Key, b.Key)
}

// SortValue is the value by which an engine sorts; nil for what is not of the
// kind.
func SortValue(kind driver.Kind, f *record.Field, raw []byte) driver.Value {
	if len(raw) == 0 {
		return nil
	}
	switch kind {
	case driver.KindInt:
		if n, err := strconv.ParseInt(string(raw), 10, 64); err == nil {
			return n
		}
	case driver.KindFloat:
		if x, ok := record.ReadFloat(f, raw); ok {
			return x
		}
	case driver.KindBool:
		if b, ok := record.ReadBool(f, raw); ok {
			return b
		}
	case driver.KindInstant:
		s, ok := rawjson.Unquote(raw)
		if t, err := time.Parse(time.RFC3339, s); ok && err == nil {
			return driver.InstantOf(t) // engines sort by moments of all years, also such as cannot be read
		}
	case driver.KindDecimal:
		s, ok := rawjson.Unquote(raw)
		if !ok {
			s = string(raw)
		}
		if literal.IsDecimal(s) {
			return s
		}
	case driver.KindString:
		if s, ok := record.ReadText(&record.Field{Kind: record.KindString}, raw); ok {
			return s
		}
	default:
		if s, ok := record.ReadText(f, raw); ok {
			return s
		}
	}
	return nil
}

// compareValues compares two values of a kind.
func compareValues(kind driver.Kind, a, b driver.Value) int {
	switch x := a.(type) {
	case int64:
		y, _ := b.(int64)
		return cmp.Compare(x, y)
	case float64:
		y, _ := b.(float64)
		return cmp.Compare(x, y)
	case driver.Instant:
		y, _ := b.(driver.Instant)
		return cmp.Compare(x, y)
	case bool:
		y, _ := b.(bool)
		switch {
		case x == y:
			return 0
		case y:
			return -1
		}
		return 1
	case string:
		y, _ := b.(string)
		if kind == driver.KindDecimal {
			dx, _ := literal.ParseDecimal(x)
			dy, _ := literal.ParseDecimal(y)
			return dx.Compare(dy)
		}
		return cmp.Compare(x, y)
	}
	return 1
}

// Key is the key of a document.
var Key = driver.Field{Meta: driver.MetaKey, Kind: driver.KindString}

var compareOps = map[string]driver.CompareOp{
	"eq": driver.Eq, "lt": driver.Lt, "lte": driver.Le, "gt": driver.Gt, "gte": driver.Ge,
}

var textOps = map[string]struct {
	op   driver.TextOp
	fold bool
}{
	"contains": {driver.Contains, false}, "startsWith": {driver.HasPrefix, false}, "endsWith": {driver.HasSuffix, false},
	"containsFold": {driver.Contains, true}, "eqFold": {driver.Equals, true},
}

// maxContained is the length of a text to look for within others, in bytes: in the worst case
// looking takes the product of both lengths.
const maxContained = 1024

// scalar is the conditions on one value; all of them hold.
func (b *builder) scalar(f *record.Field, target driver.Field, m map[string]any, path string) (driver.Filter, error) {
	return every(m, path, func(name string, v any, here string) (driver.Filter, error) {
		if err := b.grow(here, 1); err != nil {
			return nil, err
		}
		return b.condition(f, target, name, v, here)
	})
}

func (b *builder) condition(f *record.Field, target driver.Field, name string, v any, path string) (driver.Filter, error) {
	if v == nil {
		return nil, nullOperand(f, path)
	}
	switch name {
	case "isNull":
		return IsNull(f, target, v, path)
	case "in", "notIn":
		values, err := b.operands(f, v, path)
		if err != nil {
			return nil, err
		}
		cond := OrDefault(f, target, driver.In{Field: target, Values: values})
		if name == "notIn" {
			return driver.Not{Filter: cond}, nil
		}
		return cond, nil
	}
	if f.Kind == record.KindJSON || f.Kind == record.KindObject {
		return nil, fault.BadInput("%s: there is no condition of this name; it has only isNull", path)
	}
	if text, ok := textOps[name]; ok && target.Kind == driver.KindString {
		value, err := b.operand(f, v, path)
		if err != nil {
			return nil, err
		}
		s, _ := value.(string)
		if text.op == driver.Contains && len(s) > maxContained {
			return nil, fault.BadInput("%s: a text to look for has at most %d bytes, this one has %d", path, maxContained, len(s))
		}
		return OrDefault(f, target, driver.Text{Field: target, Op: text.op, Value: s, Fold: text.fold}), nil
	}
	op, ok := compareOps[name]
	if name == "ne" {
		op, ok = driver.Eq, true
	}
	if !ok {
		return nil, fault.BadInput("%s: there is no condition of this name", path)
	}
	value, err := b.operand(f, v, path)
	if err != nil {
		return nil, err
	}
	cond := OrDefault(f, target, driver.Compare{Field: target, Op: op, Value: value})
	if name == "ne" {
		return driver.Not{Filter: cond}, nil
	}
	return cond, nil
}

// IsNull is the condition that a value is null, or that it is not.
func IsNull(f *record.Field, target driver.Field, v any, path string) (driver.Filter, error) {
	want, ok := v.(bool)
	switch {
	case !ok:
		return nil, record.WrongInput(path, v, "true or false")
	case target.Meta == driver.MetaMessage || target.Meta == driver.MetaGroup:
		// Empty ones read as null.
		empty := driver.Compare{Field: target, Op: driver.Eq, Value: ""}
		if want {
			return empty, nil
		}
		return driver.Not{Filter: empty}, nil
	case target.Meta != driver.MetaNone || f.Default != nil: // never null
		if want {
			return driver.Or{}, nil
		}
		return driver.And{}, nil
	case want:
		return driver.Not{Filter: readable(f, target)}, nil
	}
	return readable(f, target), nil
}

// A value that cannot be read counts as null. An engine holds that for values that
// are not of a field's kind. Some kinds have more values than can be read: bounds are
// the least and the greatest that can; nil where all can.
func bounds(f *record.Field) (least, greatest driver.Value) {
	switch f.Kind {
	case record.KindInt:
		return int64(math.MinInt32), int64(math.MaxInt32)
	case record.KindDateTime:
		return record.LeastInstant, record.GreatestInstant
	default:
		return nil, nil
	}
}

// readable holds where the field has a value that is not null and can be read.
func readable(f *record.Field, target driver.Field) driver.Filter {
	switch least, greatest := bounds(f); {
	case least != nil:
		return driver.And{
			driver.Compare{Field: target, Op: driver.Ge, Value: least},
			driver.Compare{Field: target, Op: driver.Le, Value: greatest},
		}
	case f.Kind == record.KindEnum:
		values := make([]driver.Value, len(f.Enum))
		for i, name := range f.Enum {
			values[i] = name
		}
		return driver.In{Field: target, Values: values}
	case f.Kind == record.KindObject, f.Kind == record.KindJSON:
		target.Kind = 0
		if f.Kind == record.KindObject {
			target.Kind = driver.KindObject
		}
		erased := driver.Field{Path: append(slices.Clone(target.Path), rawjson.ErasedMember)}
		return driver.And{driver.Present{Field: target}, driver.Not{Filter: driver.Present{Field: erased}}}
	}
	return driver.Present{Field: target}
}

// bounded takes the values that cannot be read out of a comparison. Those of enums
// need no bound: they are compared for equality with declared values only.
func bounded(f *record.Field, target driver.Field, cond driver.Filter) driver.Filter {
	c, ok := cond.(driver.Compare)
	least, greatest := bounds(f)
	if !ok || c.Op == driver.Eq || least == nil || target.Meta != driver.MetaNone {
		return cond
	}
	bound := driver.Compare{Field: target, Op: driver.Le, Value: greatest}
	if c.Op == driver.Lt || c.Op == driver.Le {
		bound = driver.Compare{Field: target, Op: driver.Ge, Value: least}
	}
	return driver.And{cond, bound}
}

// OrDefault adds to a condition that documents without a value that can be read meet
// it too, if the field's default does.
func OrDefault(f *record.Field, target driver.Field, cond driver.Filter) driver.Filter {
	known := bounded(f, target, cond)
	if !meets(SortValue(f.DriverKind(), f, f.Default), cond) {
		return known
	}
	return driver.Or{known, driver.Not{Filter: readable(f, target)}}
}
