// Package condition makes conditions for engines of what clients ask lists for, and tells whether a
// document meets one as engines do.
package condition

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/fault"
	"github.com/asof/asof/storage/rawjson"
	"github.com/asof/asof/storage/record"
)

// Filter turns a where argument into a condition for the engine, and reads the documents that
// conditions on copied fields are about, through meeting: it returns the keys
// of documents that meet a condition, at most so many and one more if there are more; nil where
// there is no one instant to read at. Names are visited in order, so that errors do not depend on the
// order of a map.
func Filter(t *record.Type, where map[string]any, meeting func(t *record.Type, f driver.Filter, most int) ([]driver.Value, error)) (driver.Filter, error) {
	if len(where) == 0 {
		return nil, nil
	}
	b := builder{t: t, root: t.Object, meeting: meeting}
	f, err := b.object(t.Object, where, nil, "where", 1)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// Bounds of every filter.
const (
	maxDepth = 16   // nesting
	MaxSize  = 1000 // conditions and operands, also of other arguments
)

// builder bounds the depth and the size of what it builds.
type builder struct {
	t       *record.Type
	root    *record.ObjectType
	meeting func(t *record.Type, f driver.Filter, most int) ([]driver.Value, error)
	found   int // documents that copied fields are copied from
	size    int
	inList  bool // below an Any: paths start at the element
}

func (b *builder) grow(path string, n int) error {
	if b.size += n; b.size > MaxSize {
		return fault.BadInput("%s: the filter has more than %d conditions and values", path, MaxSize)
	}
	return nil
}

func (b *builder) object(o *record.ObjectType, where map[string]any, at []string, path string, depth int) (driver.Filter, error) {
	if depth > maxDepth {
		return nil, fault.BadInput("%s: the filter is nested more than %d deep", path, maxDepth)
	}
	return every(where, path, func(name string, v any, here string) (driver.Filter, error) {
		if err := b.grow(here, 1); err != nil {
			return nil, err
		}
		return b.entry(o, name, v, at, here, depth)
	})
}

// every is what a client's object says, each member in the order of their names: all of it holds.
func every(m map[string]any, path string, condition func(name string, v any, path string) (driver.Filter, error)) (driver.Filter, error) {
	var all driver.And
	for _, name := range slices.Sorted(maps.Keys(m)) {
		f, err := condition(name, m[name], path+"."+name)
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

func (b *builder) entry(o *record.ObjectType, name string, v any, at []string, path string, depth int) (driver.Filter, error) {
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

func (b *builder) several(o *record.ObjectType, name string, v any, at []string, path string, depth int) (driver.Filter, error) {
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

func (b *builder) meta(name string, v any, path string) (driver.Filter, bool, error) {
	if name != "key" && name != "versionInfo" {
		return nil, false, nil
	}
	m, err := asObject(path, v)
	if err != nil {
		return nil, true, err
	}
	if name == "key" {
		f, err := b.scalar(&keyField, Key, m, path)
		return f, true, err
	}
	f, err := every(m, path, func(name string, v any, here string) (driver.Filter, error) {
		info, ok := versionInfo[name]
		if !ok {
			return nil, fault.BadInput("%s: there is no condition of this name", here)
		}
		if err := b.grow(here, 1); err != nil {
			return nil, err
		}
		conditions, err := asObject(here, v)
		if err != nil {
			return nil, err
		}
		kind := info.field.DriverKind()
		if info.meta == driver.MetaOp {
			kind = driver.KindInt
		}
		return b.scalar(&info.field, driver.Field{Meta: info.meta, Kind: kind}, conditions, here)
	})
	return f, true, err
}

// field is the condition on one field of a document or a nested object.
func (b *builder) field(f *record.Field, m map[string]any, at []string, path string, depth int) (driver.Filter, error) {
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
func (b *builder) list(f *record.Field, target driver.Field, m map[string]any, path string, depth int) (driver.Filter, error) {
	return every(m, path, func(name string, v any, here string) (driver.Filter, error) {
		switch {
		case name == "isEmpty":
			return isEmpty(target, v, here)
		case f.Kind == record.KindObject:
			return b.someObject(f, target, name, v, here, depth)
		}
		return b.someValue(f, target, name, v, here)
	})
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
func (b *builder) someObject(f *record.Field, target driver.Field, name string, v any, path string, depth int) (driver.Filter, error) {
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
func (b *builder) someValue(f *record.Field, target driver.Field, name string, v any, path string) (driver.Filter, error) {
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
func (b *builder) operands(f *record.Field, v any, path string) ([]driver.Value, error) {
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
func (b *builder) operand(f *record.Field, v any, path string) (driver.Value, error) {
	if f.Kind != record.KindEnum || f.Enum != nil {
		return f.Operand(path, v)
	}
	s, _ := record.Text(v)
	op, ok := OpOf(s)
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

// MaxSources is the most documents to copy from that the conditions of a list, or one place in
// its order, may be about: their keys are held in memory, and each is looked for in an index.
const MaxSources = 10_000

// copied is the condition on a copied field: that the document's reference is to one of those
// that meet it; or, where null meets it, to none of those that do not, so that it holds for
// documents without a source, too.
func (b *builder) copied(c *record.Copy, m map[string]any, path string) (driver.Filter, error) {
	if b.meeting == nil {
		return nil, fault.BadInput("%s: it is copied from other documents, which are as of one instant only in lists: leave it out of subscriptions, and where a tag is given; a condition on %s is possible", path, c.From[0])
	}
	meets, err := b.scalar(c.Field, c.Target(), m, path)
	if err != nil {
		return nil, err
	}
	null := meets
	if c.Field.Default != nil {
		plain := *c.Field
		plain.Default = nil // it is that of a document which is there
		// An error would have been above.
		null, _ = (&builder{}).scalar(&plain, c.Target(), m, path)
	}
	negated := Holds(null, nil, []byte("{}"))
	if negated {
		meets = driver.Not{Filter: meets}
	}
	keys, err := b.meeting(c.Of, meets, MaxSources-b.found)
	if err != nil {
		return nil, err
	}
	if b.found += len(keys); b.found > MaxSources {
		return nil, fault.Errorf(fault.CodeQueryTooComplex, "%s: the conditions on copied fields are about more than %d documents: ask for fewer values, or for %s by key", path, MaxSources, c.From[0])
	}
	in := c.Refers(b.t, keys)
	if negated {
		return driver.Not{Filter: in}, nil
	}
	return in, nil
}

// operations are what clients call them; "" for what is not shown.
var operations = [...]string{
	driver.OpCreate: "CREATE", driver.OpUpdate: "UPDATE", driver.OpDelete: "DELETE",
	driver.OpRestore: "RESTORE", driver.OpImport: "IMPORT", driver.OpErase: "ERASE", driver.OpPruned: "",
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
	if !new(evaluation).meets(SortValue(f.DriverKind(), f, f.Default), cond) {
		return known
	}
	return driver.Or{known, driver.Not{Filter: readable(f, target)}}
}

// OperationName returns what clients call an operation.
func OperationName(op driver.Op) string {
	if int(op) >= len(operations) {
		return ""
	}
	return operations[op]
}

// OpOf is the inverse of OperationName; false for what is no name.
func OpOf(name string) (driver.Op, bool) {
	i := slices.Index(operations[:], name)
	return driver.Op(i), i > 0 && name != ""
}
