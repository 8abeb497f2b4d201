package condition

import (
	"bytes"
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"github.com/asof/asof/internal/scalar/literal"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/driver/check"
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
	return (&evaluation{over: over, version: v}).holds(f, data)
}

// evaluation is of the conditions on one version. What is long is decoded once, not for each of them.
type evaluation struct {
	over    func() bool
	version *driver.Version
	texts   map[*byte]string // by where they begin: decoded, with their quote; in small letters, without
}

func (e *evaluation) holds(f driver.Filter, data []byte) bool {
	if e.over() {
		return false
	}
	holds := func(f driver.Filter) bool { return e.holds(f, data) }
	fails := func(f driver.Filter) bool { return !holds(f) }
	value := func(f driver.Field) driver.Value {
		if f.Meta != driver.MetaNone {
			return e.version.Meta(f.Meta)
		}
		raw := rawjson.Find(data, f.Path)
		if f.Kind == driver.KindString && len(raw) > longText && raw[0] == '"' {
			return e.text(raw)
		}
		return SortValue(f.Kind, &record.Field{Kind: record.KindDate}, raw)
	}
	switch f := f.(type) {
	case driver.And:
		return !slices.ContainsFunc(f, fails)
	case driver.Or:
		return slices.ContainsFunc(f, holds)
	case driver.Not:
		return fails(f.Filter)
	case driver.Present:
		raw := rawjson.Find(data, f.Field.Path)
		if f.Field.Kind == driver.KindObject {
			return len(raw) > 0 && raw[0] == '{'
		}
		return f.Field.Kind == 0 && !rawjson.IsNull(raw) || value(f.Field) != nil
	case driver.Compare:
		return e.meets(value(f.Field), f)
	case driver.In:
		return e.meets(value(f.Field), f)
	case driver.Text:
		return e.meets(value(f.Field), f)
	case driver.Any:
		found := false
		list := rawjson.Find(data, f.Field.Path)
		rawjson.Elements(list, func(start, end int) bool {
			found = f.Filter == nil || e.holds(f.Filter, list[start:end])
			return !found && !e.over()
		})
		return found
	}
	return false
}

// longText is the length from which on a text is kept when it was decoded, or put into small letters.
const longText = 1 << 10

// text is a string of JSON, which is not copied where it stands for itself.
func (e *evaluation) text(raw []byte) driver.Value {
	if bytes.IndexByte(raw, '\\') < 0 {
		return rawjson.View(raw[1 : len(raw)-1])
	}
	return e.once(&raw[0], func() string {
		s, _ := rawjson.Unquote(raw)
		return s
	})
}

// once returns what is kept of a text, and else makes it.
func (e *evaluation) once(at *byte, read func() string) string {
	s, ok := e.texts[at]
	if !ok {
		if e.texts == nil {
			e.texts = map[*byte]string{}
		}
		s = read()
		e.texts[at] = s
	}
	return s
}

// meets reports whether a value meets a Compare, an In or a Text; nil does not.
func (e *evaluation) meets(value driver.Value, cond driver.Filter) bool {
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
			want = strings.ToLower(want)
			if lower := func() string { return strings.ToLower(s) }; len(s) > longText {
				s = e.once(unsafe.StringData(s), lower)
			} else {
				s = lower()
			}
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
