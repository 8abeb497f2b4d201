package mongostore

import (
	"cmp"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/driver/check"
)

// A driver.Filter becomes a condition of MongoDB in three steps: plan checks
// it, and takes out what says nothing (nested negations, lists of one,
// constants), so that its depth is that of what it says; hoist moves
// conditions on the version itself out of conditions on list elements, where
// the database cannot see them; compile writes it down for a place where
// versions are.

// always and never are filters that need no database.
type (
	always struct{ driver.Filter }
	never  struct{ driver.Filter }
)

// plan checks and simplifies a filter. Inside an Any (element) paths start at
// the element.
func plan(f driver.Filter, element bool) (driver.Filter, error) {
	switch f := f.(type) {
	case driver.And:
		return planList(f, element, true)
	case driver.Or:
		return planList(f, element, false)
	case driver.Not:
		if f.Filter == nil {
			return nil, invalidf("a Not has no filter")
		}
		inner, err := plan(f.Filter, element)
		if err != nil {
			return nil, err
		}
		return negate(inner), nil
	case driver.Compare:
		if err := check.Compare(f, element); err != nil {
			return nil, err
		}
		return f, checkValue(f.Field.Kind, f.Value)
	case driver.In:
		return planIn(f, element)
	case driver.Text:
		return f, cmp.Or(check.Text(f, element), checkText(f))
	case driver.Present:
		if f.Field.Meta != driver.MetaNone {
			return always{}, check.Place(f.Field, element)
		}
		return f, check.Place(f.Field, element)
	case driver.Any:
		return planAny(f, element)
	default:
		return nil, invalidf("unknown filter %T", f)
	}
}

func planList(list []driver.Filter, element, and bool) (driver.Filter, error) {
	planned := make([]driver.Filter, len(list))
	for i, f := range list {
		if f == nil {
			return nil, invalidf("a filter in a list of filters is missing")
		}
		var err error
		if planned[i], err = plan(f, element); err != nil {
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

func planIn(f driver.In, element bool) (driver.Filter, error) {
	if err := check.Field(f.Field, element); err != nil {
		return nil, err
	}
	for _, v := range f.Values {
		if err := checkValue(f.Field.Kind, v); err != nil {
			return nil, err
		}
	}
	if len(f.Values) == 0 {
		return never{}, nil
	}
	return f, nil
}

func planAny(f driver.Any, element bool) (driver.Filter, error) {
	if err := check.Any(f, element); err != nil {
		return nil, err
	}
	if f.Filter == nil {
		return f, nil
	}
	inner, err := plan(f.Filter, true)
	if err != nil {
		return nil, err
	}
	return anyOf(f.Field, inner), nil
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
		deepest = len(f.Field.Path)
	case driver.Any:
		deepest = len(f.Field.Path) + 1
		if f.Filter != nil {
			deepest += depth(f.Filter)
		}
	}
	return deepest
}
