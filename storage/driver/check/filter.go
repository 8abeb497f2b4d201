package check

import (
	"bytes"

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

// Place refuses a field that leads nowhere. Inside an Any (element) a path
// starts at the element, and may be empty.
func Place(f driver.Field, element bool) error {
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

// Field refuses a field that cannot be compared: one without a place, or
// without a kind.
func Field(f driver.Field, element bool) error {
	if err := Place(f, element); err != nil {
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

// Present refuses a field that leads nowhere, and a kind that is none.
func Present(f driver.Present, element bool) error {
	if f.Field.Kind > driver.KindObject {
		return invalidf("%d is not a kind of field %q", f.Field.Kind, f.Field.Path)
	}
	return Place(f.Field, element)
}

// Compare refuses a comparison of a field that cannot be compared, or by an
// unknown relation. Its value is not looked at.
func Compare(f driver.Compare, element bool) error {
	if f.Op < driver.Eq || f.Op > driver.Ge {
		return invalidf("unknown comparison %d", f.Op)
	}
	return Field(f.Field, element)
}

// Text refuses a text match of another kind of field, or by an unknown match.
func Text(f driver.Text, element bool) error {
	if err := Field(f.Field, element); err != nil {
		return err
	}
	switch {
	case f.Field.Kind != driver.KindString:
		return invalidf("a text match needs a field of strings, not of kind %d", f.Field.Kind)
	case f.Op < driver.Contains || f.Op > driver.Equals:
		return invalidf("unknown text match %d", f.Op)
	}
	return nil
}

// Any refuses a list that cannot be one.
func Any(f driver.Any, element bool) error {
	if f.Field.Meta != driver.MetaNone {
		return invalidf("a field that versions carry is not a list")
	}
	return Place(f.Field, element)
}

// Position refuses a place in another order. Its values are not looked at.
func Position(p *driver.Position, order []driver.Order) error {
	if p != nil && len(p.Values) != len(order) {
		return invalidf("a position of %d values in an order of %d fields", len(p.Values), len(order))
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
