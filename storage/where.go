package storage

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"unsafe"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/driver/check"
	"github.com/asof/asof/storage/fault"
	"github.com/asof/asof/storage/rawjson"
	"github.com/asof/asof/storage/record"
)

// filterOf turns a where argument into a condition for the engine, and reads the documents that
// conditions on copied fields are about, through meeting, which is Store.meeting at an instant,
// and nil where there is none. Names are visited in order, so that errors do not depend on the
// order of a map.
func filterOf(t *record.Type, where map[string]any, meeting func(t *record.Type, f driver.Filter, most int) ([]driver.Value, error)) (driver.Filter, error) {
	if len(where) == 0 {
		return nil, nil
	}
	b := filterBuilder{t: t, root: t.Object(), meeting: meeting}
	f, err := b.object(t.Object(), where, nil, "where", 1)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// Bounds of every filter.
const (
	maxFilterDepth = 16   // nesting
	maxFilterSize  = 1000 // conditions and operands
)

// filterBuilder bounds the depth and the size of what it builds.
type filterBuilder struct {
	t       *record.Type
	root    *record.ObjectType
	meeting func(t *record.Type, f driver.Filter, most int) ([]driver.Value, error)
	found   int // documents that copied fields are copied from
	size    int
	inList  bool // below an Any: paths start at the element
}

func (b *filterBuilder) grow(path string, n int) error {
	if b.size += n; b.size > maxFilterSize {
		return fault.BadInput("%s: the filter has more than %d conditions and values", path, maxFilterSize)
	}
	return nil
}

func (b *filterBuilder) object(o *record.ObjectType, where map[string]any, at []string, path string, depth int) (driver.Filter, error) {
	if depth > maxFilterDepth {
		return nil, fault.BadInput("%s: the filter is nested more than %d deep", path, maxFilterDepth)
	}
	var all driver.And
	for _, name := range slices.Sorted(maps.Keys(where)) {
		v, here := where[name], path+"."+name
		if err := b.grow(here, 1); err != nil {
			return nil, err
		}
		f, err := b.entry(o, name, v, at, here, depth)
		if err != nil {
			return nil, err
		}
		all = append(all, f)
	}
	if len(all) == 1 {
		return all[0], nil
	}
	return all, nil
}

func (b *filterBuilder) entry(o *record.ObjectType, name string, v any, at []string, path string, depth int) (driver.Filter, error) {
	if v == nil {
		return nil, fault.BadInput("%s: null is not a filter; leave it out, or ask for missing values with isNull: true", path)
	}
	switch name {
	case "and", "or":
		return b.several(o, name, v, at, path, depth)
	case "not":
		m, err := asObject(path, v)
		if err != nil {
			return nil, err
		}
		f, err := b.object(o, m, at, path, depth+1)
		return driver.Not{Filter: f}, err
	}
	if o == b.root && !b.inList {
		if f, ok, err := b.meta(name, v, path); ok || err != nil {
			return f, err
		}
		if c := b.t.Copy(name); c != nil {
			m, err := asObject(path, v)
			if err != nil {
				return nil, err
			}
			return b.copied(c, m, path)
		}
	}
	f := o.Field(name)
	switch {
	case f == nil && b.t.Drafts == b.t && len(at) == 1: // of the document in a draft
		return nil, fault.BadInput("%s: a draft is found by its documentKey and by what it stores, and has no %s", path, name)
	case f == nil:
		return nil, fault.BadInput("%s: %s has no field %q", path, o.Name, name)
	}
	m, err := asObject(path, v)
	if err != nil {
		return nil, err
	}
	return b.field(f, m, append(slices.Clone(at), f.Stored), path, depth)
}

func (b *filterBuilder) several(o *record.ObjectType, name string, v any, at []string, path string, depth int) (driver.Filter, error) {
	var parts []driver.Filter
	for i, elem := range record.AsList(v) {
		here := fmt.Sprintf("%s[%d]", path, i)
		if err := b.grow(here, 1); err != nil {
			return nil, err
		}
		m, err := asObject(here, elem)
		if err != nil {
			return nil, err
		}
		f, err := b.object(o, m, at, here, depth+1)
		if err != nil {
			return nil, err
		}
		parts = append(parts, f)
	}
	if name == "and" {
		return driver.And(parts), nil
	}
	return driver.Or(parts), nil
}

func asObject(path string, v any) (map[string]any, error) {
	if m, ok := v.(map[string]any); ok {
		return m, nil
	}
	return nil, record.WrongInput(path, v, "an object")
}

// versionInfo are the conditions on what every version carries.
var versionInfo = map[string]struct {
	meta  driver.Meta
	field record.Field
}{
	"number":      {driver.MetaNumber, record.Field{Name: "number", Kind: record.KindInt}},
	"recordedAt":  {driver.MetaRecordedAt, record.Field{Name: "recordedAt", Kind: record.KindDateTime}},
	"author":      {driver.MetaAuthor, record.Field{Name: "author", Kind: record.KindID}},
	"message":     {driver.MetaMessage, record.Field{Name: "message", Kind: record.KindString}},
	"changeGroup": {driver.MetaGroup, record.Field{Name: "changeGroup", Kind: record.KindID}},
	"operation":   {driver.MetaOp, record.Field{Name: "operation", Kind: record.KindEnum}},
}

var keyField = record.Field{Name: "key", Kind: record.KindID}

func (b *filterBuilder) meta(name string, v any, path string) (driver.Filter, bool, error) {
	if name != "key" && name != "versionInfo" {
		return nil, false, nil
	}
	m, err := asObject(path, v)
	if err != nil {
		return nil, true, err
	}
	if name == "key" {
		f, err := b.scalar(&keyField, metaKey, m, path)
		return f, true, err
	}
	var all driver.And
	for _, name := range slices.Sorted(maps.Keys(m)) {
		here := path + "." + name
		info, ok := versionInfo[name]
		if !ok {
			return nil, true, fault.BadInput("%s: there is no condition of this name", here)
		}
		if err := b.grow(here, 1); err != nil {
			return nil, true, err
		}
		conditions, err := asObject(here, m[name])
		if err != nil {
			return nil, true, err
		}
		kind := info.field.DriverKind()
		if info.meta == driver.MetaOp {
			kind = driver.KindInt
		}
		f, err := b.scalar(&info.field, driver.Field{Meta: info.meta, Kind: kind}, conditions, here)
		if err != nil {
			return nil, true, err
		}
		all = append(all, f)
	}
	return all, true, nil
}

// field is the condition on one field of a document or a nested object.
func (b *filterBuilder) field(f *record.Field, m map[string]any, at []string, path string, depth int) (driver.Filter, error) {
	target := driver.Field{Path: at, Kind: f.DriverKind()}
	switch {
	case f.List:
		return b.list(f, target, m, path, depth)
	case f.Kind == record.KindObject:
		isNull, asked := m["isNull"]
		rest := m
		if asked && f.Object.Field("isNull") == nil {
			rest = maps.Clone(m)
			delete(rest, "isNull")
		} else {
			asked = false
		}
		nested, err := b.object(f.Object, rest, at, path, depth+1)
		if err != nil || !asked {
			return nested, err
		}
		null, err := b.scalar(f, target, map[string]any{"isNull": isNull}, path)
		return driver.And{null, nested}, err
	default:
		return b.scalar(f, target, m, path)
	}
}

// list is the conditions on a list, all of which hold.
func (b *filterBuilder) list(f *record.Field, target driver.Field, m map[string]any, path string, depth int) (driver.Filter, error) {
	var all driver.And
	for _, name := range slices.Sorted(maps.Keys(m)) {
		here := path + "." + name
		var cond driver.Filter
		var err error
		switch {
		case name == "isEmpty":
			cond, err = isEmpty(target, m[name], here)
		case f.Kind == record.KindObject:
			cond, err = b.someObject(f, target, name, m[name], here, depth)
		default:
			cond, err = b.someValue(f, target, name, m[name], here)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, cond)
	}
	return all, nil
}

func isEmpty(target driver.Field, v any, path string) (driver.Filter, error) {
	want, ok := v.(bool)
	if !ok {
		return nil, record.WrongInput(path, v, "true or false")
	}
	some := driver.Any{Field: target}
	if want {
		return driver.Not{Filter: some}, nil
	}
	return some, nil
}

// someObject is a condition on the objects of a list.
func (b *filterBuilder) someObject(f *record.Field, target driver.Field, name string, v any, path string, depth int) (driver.Filter, error) {
	nested, err := asObject(path, v)
	if err != nil {
		return nil, err
	}
	outer := b.inList
	b.inList = true
	inner, err := b.object(f.Object, nested, nil, path, depth+1)
	b.inList = outer
	if err != nil {
		return nil, err
	}
	switch name {
	case "some":
		return driver.Any{Field: target, Filter: inner}, nil
	case "none":
		return driver.Not{Filter: driver.Any{Field: target, Filter: inner}}, nil
	case "every":
		return driver.Not{Filter: driver.Any{Field: target, Filter: driver.Not{Filter: inner}}}, nil
	default:
		return nil, fault.BadInput("%s: there is no condition of this name; a list of objects has some, none, every and isEmpty", path)
	}
}

// someValue is a condition on the elements of a list of scalars or references.
func (b *filterBuilder) someValue(f *record.Field, target driver.Field, name string, v any, path string) (driver.Filter, error) {
	values, err := b.operands(f, v, path)
	if err != nil {
		return nil, err
	}
	element := driver.Field{Kind: target.Kind}
	has := func(vs ...driver.Value) driver.Filter {
		if len(vs) == 1 {
			return driver.Any{Field: target, Filter: driver.Compare{Field: element, Op: driver.Eq, Value: vs[0]}}
		}
		return driver.Any{Field: target, Filter: driver.In{Field: element, Values: vs}}
	}
	switch name {
	case "has":
		if len(values) != 1 {
			return nil, fault.BadInput("%s: expected one value, got %d", path, len(values))
		}
		return has(values...), nil
	case "hasAny":
		return has(values...), nil
	case "hasNone":
		return driver.Not{Filter: has(values...)}, nil
	case "hasAll":
		var all driver.And
		for _, v := range values {
			all = append(all, has(v))
		}
		return all, nil
	default:
		return nil, fault.BadInput("%s: there is no condition of this name; a list has has, hasAny, hasAll, hasNone and isEmpty", path)
	}
}

// operands converts the values of in, hasAny and the like.
func (b *filterBuilder) operands(f *record.Field, v any, path string) ([]driver.Value, error) {
	if v == nil {
		return nil, nullOperand(f, path)
	}
	list := record.AsList(v)
	if err := b.grow(path, len(list)); err != nil {
		return nil, err
	}
	values := make([]driver.Value, len(list))
	for i, elem := range list {
		here := path
		if _, many := v.([]any); many {
			here = fmt.Sprintf("%s[%d]", path, i)
		}
		if elem == nil {
			return nil, nullOperand(f, here)
		}
		var err error
		if values[i], err = b.operand(f, elem, here); err != nil {
			return nil, err
		}
	}
	return values, nil
}

// operand converts one value that is not null. Operations are stored as numbers.
func (b *filterBuilder) operand(f *record.Field, v any, path string) (driver.Value, error) {
	if f.Kind != record.KindEnum || f.Enum != nil {
		return f.Operand(path, v)
	}
	s, _ := record.Text(v)
	op, ok := opOf(s)
	if !ok {
		return nil, record.WrongInput(path, v, "one of [CREATE UPDATE DELETE RESTORE IMPORT ERASE]")
	}
	return int64(op), nil
}

// nullOperand says what there is in place of a comparison with null.
func nullOperand(f *record.Field, path string) error {
	instead := "ask for missing values with isNull: true"
	switch {
	case f.List:
		instead = "ask for lists without elements with isEmpty: true"
	case f.Kind == record.KindEnum && f.Enum == nil: // that of versionInfo
		instead = "every version has an operation"
	}
	return fault.BadInput("%s: null cannot be compared with; %s", path, instead)
}

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
func (b *filterBuilder) scalar(f *record.Field, target driver.Field, m map[string]any, path string) (driver.Filter, error) {
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

func (b *filterBuilder) condition(f *record.Field, target driver.Field, name string, v any, path string) (driver.Filter, error) {
	if v == nil {
		return nil, nullOperand(f, path)
	}
	switch name {
	case "isNull":
		return isNull(f, target, v, path)
	case "in", "notIn":
		values, err := b.operands(f, v, path)
		if err != nil {
			return nil, err
		}
		cond := orDefault(f, target, driver.In{Field: target, Values: values})
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
		return orDefault(f, target, driver.Text{Field: target, Op: text.op, Value: s, Fold: text.fold}), nil
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
	cond := orDefault(f, target, driver.Compare{Field: target, Op: op, Value: value})
	if name == "ne" {
		return driver.Not{Filter: cond}, nil
	}
	return cond, nil
}

func isNull(f *record.Field, target driver.Field, v any, path string) (driver.Filter, error) {
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

// orDefault adds to a condition that documents without a value that can be read meet
// it too, if the field's default does.
func orDefault(f *record.Field, target driver.Field, cond driver.Filter) driver.Filter {
	known := bounded(f, target, cond)
	if !meets(sortValue(f.DriverKind(), f, f.Default), cond) {
		return known
	}
	return driver.Or{known, driver.Not{Filter: readable(f, target)}}
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
