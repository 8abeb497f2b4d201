package check

import (
	"bytes"
	"math"

	"github.com/asof/asof/internal/scalar/literal"
	"github.com/asof/asof/storage/driver"
)

// MetaKind is the kind of a value that versions carry; 0 for other values.
func MetaKind(m driver.Meta) driver.Kind {
	switch m {
	case driver.MetaKey, driver.MetaAuthor, driver.MetaMessage, driver.MetaGroup:
		return driver.KindString
	case driver.MetaNumber, driver.MetaOp:
		return driver.KindInt
	case driver.MetaRecordedAt:
		return driver.KindInstant
	case driver.MetaNone:
	}
	return 0
}

// query refuses a malformed query, see driver.Engine.Query. Its collection must be
// known.
func query(q *driver.Query) error {
	if err := limit(q.Limit); err != nil {
		return err
	}
	for _, o := range q.Order {
		if err := field(o.Field, false); err != nil {
			return err
		}
	}
	for _, p := range [...]*driver.Position{q.After, q.Before} {
		if err := position(p, q.Order); err != nil {
			return err
		}
	}
	if q.Filter == nil {
		return nil
	}
	return filter(q.Filter, false)
}

// position refuses a place in another order.
func position(p *driver.Position, order []driver.Order) error {
	if p == nil {
		return nil
	}
	if len(p.Values) != len(order) {
		return invalidf("a position of %d values in an order of %d fields", len(p.Values), len(order))
	}
	for i, o := range order {
		if p.Values[i] == nil {
			continue
		}
		if err := value(p.Values[i], o.Field.Kind); err != nil {
			return err
		}
	}
	return nil
}

// filter refuses a malformed filter. Inside an Any (element) paths start at the
// element, and may be empty.
func filter(f driver.Filter, element bool) error {
	switch f := f.(type) {
	case driver.And:
		return filters(f, element)
	case driver.Or:
		return filters(f, element)
	case driver.Not:
		return filter(f.Filter, element)
	case driver.Compare:
		if f.Op < driver.Eq || f.Op > driver.Ge {
			return invalidf("unknown comparison %d", f.Op)
		}
		if err := field(f.Field, element); err != nil {
			return err
		}
		return value(f.Value, f.Field.Kind)
	case driver.In:
		if err := field(f.Field, element); err != nil {
			return err
		}
		for _, v := range f.Values {
			if err := value(v, f.Field.Kind); err != nil {
				return err
			}
		}
		return nil
	case driver.Text:
		if err := field(f.Field, element); err != nil {
			return err
		}
		switch {
		case f.Field.Kind != driver.KindString:
			return invalidf("a text match needs a field of strings, not of kind %d", f.Field.Kind)
		case f.Op < driver.Contains || f.Op > driver.Equals:
			return invalidf("unknown text match %d", f.Op)
		}
		return nil
	case driver.Present:
		if f.Field.Kind > driver.KindObject {
			return invalidf("%d is not a kind of field %q", f.Field.Kind, f.Field.Path)
		}
		return place(f.Field, element)
	case driver.Any:
		if f.Field.Meta != driver.MetaNone {
			return invalidf("a field that versions carry is not a list")
		}
		if err := place(f.Field, element); err != nil || f.Filter == nil {
			return err
		}
		return filter(f.Filter, true)
	case nil:
		return invalidf("a filter inside another is missing")
	default:
		return invalidf("unknown filter %T", f)
	}
}

func filters(list []driver.Filter, element bool) error {
	for _, f := range list {
		if err := filter(f, element); err != nil {
			return err
		}
	}
	return nil
}

// place refuses a field that leads nowhere.
func place(f driver.Field, element bool) error {
	switch {
	case f.Meta != driver.MetaNone && MetaKind(f.Meta) == 0:
		return invalidf("%d is not a field that versions carry", f.Meta)
	case f.Meta != driver.MetaNone && len(f.Path) > 0:
		return invalidf("a field that versions carry has no path, got %q", f.Path)
	case f.Meta == driver.MetaNone && len(f.Path) == 0 && !element:
		return invalidf("a field has no path")
	}
	return nil
}

// field refuses a field that cannot be compared: one without a place, or without a
// kind.
func field(f driver.Field, element bool) error {
	if err := place(f, element); err != nil {
		return err
	}
	switch {
	case f.Kind < driver.KindString || f.Kind > driver.KindDecimal:
		return invalidf("%d is not a kind of field %q", f.Kind, f.Path)
	case f.Meta != driver.MetaNone && f.Kind != MetaKind(f.Meta):
		return invalidf("a field that versions carry (%d) is of kind %d, not %d", f.Meta, MetaKind(f.Meta), f.Kind)
	}
	return nil
}

// value refuses a value that is not of a kind.
func value(v driver.Value, kind driver.Kind) error {
	ok := false
	switch v := v.(type) {
	case string:
		ok = kind == driver.KindString || kind == driver.KindDate && literal.IsDate(v) || kind == driver.KindDecimal && literal.IsDecimal(v)
	case int64:
		ok = kind == driver.KindInt
	case float64:
		ok = kind == driver.KindFloat && !math.IsNaN(v) && !math.IsInf(v, 0)
	case bool:
		ok = kind == driver.KindBool
	case driver.Instant:
		ok = kind == driver.KindInstant
	}
	if !ok {
		return invalidf("%v (%T) is not a value of kind %d", v, v, kind)
	}
	return nil
}

// Relates reports whether two values relate, of which cmp.Compare or the like
// said in which order they are.
func Relates(order int, op driver.CompareOp) bool {
	switch op {
	case driver.Eq:
		return order == 0
	case driver.Lt:
		return order < 0
	case driver.Le:
		return order <= 0
	case driver.Gt:
		return order > 0
	default:
		return order >= 0
	}
}

// Matches reports whether a text matches another, both folded where case is
// ignored.
func Matches(text, other []byte, op driver.TextOp) bool {
	switch op {
	case driver.Contains:
		return bytes.Contains(text, other)
	case driver.HasPrefix:
		return bytes.HasPrefix(text, other)
	case driver.HasSuffix:
		return bytes.HasSuffix(text, other)
	default:
		return bytes.Equal(text, other)
	}
}
