package condition

import (
	"maps"
	"math"
	"slices"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/fault"
	"github.com/asof/asof/storage/rawjson"
	"github.com/asof/asof/storage/record"
)

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
	var all driver.And
	for _, name := range slices.Sorted(maps.Keys(m)) {
		here := path + "." + name
		if err := b.grow(here, 1); err != nil {
			return nil, err
		}
		cond, err := b.condition(f, target, name, m[name], here)
		if err != nil {
			return nil, err
		}
		all = append(all, cond)
	}
	if len(all) == 1 {
		return all[0], nil
	}
	return all, nil
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
