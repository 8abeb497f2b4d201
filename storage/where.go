package storage

import (
	"fmt"
	"maps"
	"slices"

	"github.com/asof/asof/storage/driver"
)

// filter turns a where argument into a condition for the engine. Names are
// visited in order, so that errors do not depend on the order of a map.
func (s *Store) filter(t *Type, where map[string]any) (driver.Filter, error) {
	if len(where) == 0 {
		return nil, nil
	}
	b := filterBuilder{limits: s.limits, root: t.object}
	f, err := b.object(t.object, where, nil, "where", 1)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// filterBuilder bounds the depth and the size of what it builds.
type filterBuilder struct {
	limits Limits
	root   *ObjectType
	size   int
	inList bool // below an Any: paths start at the element
}

func (b *filterBuilder) grow(path string, n int) error {
	if b.size += n; b.size > b.limits.FilterSize {
		return badInput("%s: the filter has more than %d conditions and values", path, b.limits.FilterSize)
	}
	return nil
}

func (b *filterBuilder) object(o *ObjectType, where map[string]any, at []string, path string, depth int) (driver.Filter, error) {
	if depth > b.limits.FilterDepth {
		return nil, badInput("%s: the filter is nested more than %d deep", path, b.limits.FilterDepth)
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

func (b *filterBuilder) entry(o *ObjectType, name string, v any, at []string, path string, depth int) (driver.Filter, error) {
	if v == nil {
		return nil, badInput("%s: null is not a filter; leave it out, or ask for missing values with isNull: true", path)
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
	}
	f := o.field(name)
	if f == nil {
		return nil, badInput("%s: %s has no field %q", path, o.Name, name)
	}
	m, err := asObject(path, v)
	if err != nil {
		return nil, err
	}
	return b.field(f, m, append(slices.Clone(at), f.Stored), path, depth)
}

func (b *filterBuilder) several(o *ObjectType, name string, v any, at []string, path string, depth int) (driver.Filter, error) {
	var parts []driver.Filter
	for i, elem := range asList(v) {
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
	return nil, wrongInput(path, v, "an object")
}

// versionInfo are the conditions on what every version carries.
var versionInfo = map[string]struct {
	meta  driver.Meta
	field Field
}{
	"number":      {driver.MetaNumber, Field{Name: "number", Kind: KindInt}},
	"recordedAt":  {driver.MetaRecordedAt, Field{Name: "recordedAt", Kind: KindDateTime}},
	"author":      {driver.MetaAuthor, Field{Name: "author", Kind: KindID}},
	"message":     {driver.MetaMessage, Field{Name: "message", Kind: KindString}},
	"changeGroup": {driver.MetaGroup, Field{Name: "changeGroup", Kind: KindID}},
	"operation":   {driver.MetaOp, Field{Name: "operation", Kind: KindEnum}},
}

var keyField = Field{Name: "key", Kind: KindID}

func (b *filterBuilder) meta(name string, v any, path string) (driver.Filter, bool, error) {
	if name != "key" && name != "versionInfo" {
		return nil, false, nil
	}
	m, err := asObject(path, v)
	if err != nil {
		return nil, true, err
	}
	if name == "key" {
		f, err := b.scalar(&keyField, driver.Field{Meta: driver.MetaKey, Kind: driver.KindString}, m, path)
		return f, true, err
	}
	var all driver.And
	for _, name := range slices.Sorted(maps.Keys(m)) {
		here := path + "." + name
		info, ok := versionInfo[name]
		if !ok {
			return nil, true, badInput("%s: there is no condition of this name", here)
		}
		if err := b.grow(here, 1); err != nil {
			return nil, true, err
		}
		conditions, err := asObject(here, m[name])
		if err != nil {
			return nil, true, err
		}
		kind := info.field.driverKind()
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
func (b *filterBuilder) field(f *Field, m map[string]any, at []string, path string, depth int) (driver.Filter, error) {
	target := driver.Field{Path: at, Kind: f.driverKind()}
	switch {
	case f.List && f.Kind == KindObject:
		return b.objectList(f, target, m, path, depth)
	case f.List:
		return b.scalarList(f, target, m, path)
	case f.Kind == KindObject:
		isNull, asked := m["isNull"]
		rest := m
		if _, own := f.Object.byName["isNull"]; asked && !own {
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

func (b *filterBuilder) objectList(f *Field, target driver.Field, m map[string]any, path string, depth int) (driver.Filter, error) {
	var all driver.And
	for _, name := range slices.Sorted(maps.Keys(m)) {
		here := path + "." + name
		if name == "isEmpty" {
			cond, err := isEmpty(target, m[name], here)
			if err != nil {
				return nil, err
			}
			all = append(all, cond)
			continue
		}
		nested, err := asObject(here, m[name])
		if err != nil {
			return nil, err
		}
		outer := b.inList
		b.inList = true
		inner, err := b.object(f.Object, nested, nil, here, depth+1)
		b.inList = outer
		if err != nil {
			return nil, err
		}
		switch name {
		case "some":
			all = append(all, driver.Any{Field: target, Filter: inner})
		case "none":
			all = append(all, driver.Not{Filter: driver.Any{Field: target, Filter: inner}})
		case "every":
			all = append(all, driver.Not{Filter: driver.Any{Field: target, Filter: driver.Not{Filter: inner}}})
		default:
			return nil, badInput("%s: there is no condition of this name; a list of objects has some, none, every and isEmpty", here)
		}
	}
	return all, nil
}

func isEmpty(target driver.Field, v any, path string) (driver.Filter, error) {
	want, ok := v.(bool)
	if !ok {
		return nil, wrongInput(path, v, "true or false")
	}
	some := driver.Any{Field: target}
	if want {
		return driver.Not{Filter: some}, nil
	}
	return some, nil
}

// scalarList is the condition on a list of scalars or references.
func (b *filterBuilder) scalarList(f *Field, target driver.Field, m map[string]any, path string) (driver.Filter, error) {
	element := driver.Field{Kind: target.Kind}
	var all driver.And
	for _, name := range slices.Sorted(maps.Keys(m)) {
		here := path + "." + name
		if name == "isEmpty" {
			cond, err := isEmpty(target, m[name], here)
			if err != nil {
				return nil, err
			}
			all = append(all, cond)
			continue
		}
		values, err := b.operands(f, m[name], here)
		if err != nil {
			return nil, err
		}
		has := func(vs ...driver.Value) driver.Filter {
			if len(vs) == 1 {
				return driver.Any{Field: target, Filter: driver.Compare{Field: element, Op: driver.Eq, Value: vs[0]}}
			}
			return driver.Any{Field: target, Filter: driver.In{Field: element, Values: vs}}
		}
		switch name {
		case "has":
			if len(values) != 1 {
				return nil, badInput("%s: expected one value, got %d", here, len(values))
			}
			all = append(all, has(values...))
		case "hasAny":
			all = append(all, has(values...))
		case "hasNone":
			all = append(all, driver.Not{Filter: has(values...)})
		case "hasAll":
			for _, v := range values {
				all = append(all, has(v))
			}
		default:
			return nil, badInput("%s: there is no condition of this name; a list has has, hasAny, hasAll, hasNone and isEmpty", here)
		}
	}
	return all, nil
}

// operands converts the values of in, hasAny and the like.
func (b *filterBuilder) operands(f *Field, v any, path string) ([]driver.Value, error) {
	if v == nil {
		return nil, nullOperand(f, path)
	}
	list := asList(v)
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
func (b *filterBuilder) operand(f *Field, v any, path string) (driver.Value, error) {
	if f.Kind != KindEnum || f.Enum != nil {
		return f.operand(path, v)
	}
	s, _ := text(v)
	op, ok := opOf(Operation(s))
	if !ok {
		return nil, wrongInput(path, v, "one of [CREATE UPDATE DELETE RESTORE IMPORT]")
	}
	return int64(op), nil
}

// nullOperand says what there is in place of a comparison with null.
func nullOperand(f *Field, path string) error {
	instead := "ask for missing values with isNull: true"
	switch {
	case f.List:
		instead = "ask for lists without elements with isEmpty: true"
	case f.Kind == KindEnum && f.Enum == nil: // that of versionInfo
		instead = "every version has an operation"
	}
	return badInput("%s: null cannot be compared with; %s", path, instead)
}
