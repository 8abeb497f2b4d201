package storage

import (
	"encoding/json"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/record"
)

func one[T any](o *Object, i int, read func(*record.Field, []byte) (T, bool)) (T, error) {
	var zero T
	raw := o.value(i)
	if raw == nil {
		return zero, o.missing(i)
	}
	v, ok := read(&o.typ.Fields[i], raw)
	if !ok {
		return zero, o.mistyped(i, raw)
	}
	return v, nil
}

func opt[T any](o *Object, i int, read func(*record.Field, []byte) (T, bool)) (*T, error) {
	raw := o.value(i)
	if raw == nil {
		return nil, o.absent(i)
	}
	v, ok := read(&o.typ.Fields[i], raw)
	if !ok {
		return nil, o.mistyped(i, raw)
	}
	return &v, nil
}

// list reads a list, with the zero value in place of null. It is nil where the field reads as null.
func list[T any](o *Object, i int, read func(raw []byte) (T, error)) ([]T, error) {
	out := []T{}
	isList, err := o.elements(i, func(raw []byte) (err error) {
		var v T
		if raw != nil {
			v, err = read(raw)
		}
		out = append(out, v)
		return err
	})
	if err != nil || !isList {
		return nil, err
	}
	return out, nil
}

func values[T any](o *Object, i int, read func(*record.Field, []byte) (T, bool)) ([]T, error) {
	return list(o, i, func(raw []byte) (T, error) {
		v, ok := read(&o.typ.Fields[i], raw)
		if !ok {
			return v, o.mistyped(i, raw)
		}
		return v, nil
	})
}

func optValues[T any](o *Object, i int, read func(*record.Field, []byte) (T, bool)) ([]*T, error) {
	return values(o, i, func(f *record.Field, raw []byte) (*T, bool) {
		v, ok := read(f, raw)
		return &v, ok
	})
}

// String reads a non-null String, ID, Date, Decimal, Enum or Ref.
func (o *Object) String(i int) (string, error) { return one(o, i, record.ViewText) }

// OptString reads a nullable String, ID, Date, Decimal, Enum or Ref.
func (o *Object) OptString(i int) (*string, error) { return opt(o, i, record.ViewText) }

// Strings reads a list of such values; its elements are not null.
func (o *Object) Strings(i int) ([]string, error) { return values(o, i, record.ViewText) }

// OptStrings reads a list of such values with nullable elements.
func (o *Object) OptStrings(i int) ([]*string, error) { return optValues(o, i, record.ViewText) }

// Int reads a non-null Int.
func (o *Object) Int(i int) (int, error) { return one(o, i, record.ReadInt) }

// OptInt reads a nullable Int.
func (o *Object) OptInt(i int) (*int, error) { return opt(o, i, record.ReadInt) }

// Ints reads a list of Int; its elements are not null.
func (o *Object) Ints(i int) ([]int, error) { return values(o, i, record.ReadInt) }

// OptInts reads a list of nullable Int.
func (o *Object) OptInts(i int) ([]*int, error) { return optValues(o, i, record.ReadInt) }

// Float reads a non-null Float.
func (o *Object) Float(i int) (float64, error) { return one(o, i, record.ReadFloat) }

// OptFloat reads a nullable Float.
func (o *Object) OptFloat(i int) (*float64, error) { return opt(o, i, record.ReadFloat) }

// Floats reads a list of Float; its elements are not null.
func (o *Object) Floats(i int) ([]float64, error) { return values(o, i, record.ReadFloat) }

// OptFloats reads a list of nullable Float.
func (o *Object) OptFloats(i int) ([]*float64, error) { return optValues(o, i, record.ReadFloat) }

// Bool reads a non-null Boolean.
func (o *Object) Bool(i int) (bool, error) { return one(o, i, record.ReadBool) }

// OptBool reads a nullable Boolean.
func (o *Object) OptBool(i int) (*bool, error) { return opt(o, i, record.ReadBool) }

// Bools reads a list of Boolean; its elements are not null.
func (o *Object) Bools(i int) ([]bool, error) { return values(o, i, record.ReadBool) }

// OptBools reads a list of nullable Boolean.
func (o *Object) OptBools(i int) ([]*bool, error) { return optValues(o, i, record.ReadBool) }

// Instant reads a non-null DateTime.
func (o *Object) Instant(i int) (driver.Instant, error) { return one(o, i, record.ReadInstant) }

// OptInstant reads a nullable DateTime.
func (o *Object) OptInstant(i int) (*driver.Instant, error) { return opt(o, i, record.ReadInstant) }

// Instants reads a list of DateTime; its elements are not null.
func (o *Object) Instants(i int) ([]driver.Instant, error) { return values(o, i, record.ReadInstant) }

// OptInstants reads a list of nullable DateTime.
func (o *Object) OptInstants(i int) ([]*driver.Instant, error) {
	return optValues(o, i, record.ReadInstant)
}

// JSON reads a JSON value; nil for null where the field is nullable.
func (o *Object) JSON(i int) (json.RawMessage, error) {
	raw := o.value(i)
	if raw == nil {
		return nil, o.absent(i)
	}
	return json.RawMessage(raw), nil
}

// JSONs reads a list of JSON values; nil elements are null.
func (o *Object) JSONs(i int) ([]json.RawMessage, error) {
	return list(o, i, func(raw []byte) (json.RawMessage, error) { return raw, nil })
}

// RefKey reads the key that a single reference holds; nil for null.
func (o *Object) RefKey(i int) (*string, error) { return opt(o, i, record.ReadText) }

// RefKeys reads the keys that a list of references holds.
func (o *Object) RefKeys(i int) ([]string, error) { return values(o, i, record.ReadText) }
