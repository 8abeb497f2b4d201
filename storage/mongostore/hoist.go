package mongostore

import (
	"slices"

	"github.com/asof/asof/storage/driver"
)

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
