package record

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/asof/asof/internal/scalar/literal"
	"github.com/asof/asof/storage/diff"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/fault"
	"github.com/asof/asof/storage/normal"
	"github.com/asof/asof/storage/rawjson"
)

// Patch applies a patch to an object in normal form, as Store.patched of package storage says; a nil doc stands for
// one that is made now. It also returns the stored names of the members that differ then, sorted. The path is for
// errors.
func Patch(o *ObjectType, doc []byte, patch map[string]any, path string) (out []byte, changed []string, err error) {
	for _, name := range slices.Sorted(maps.Keys(patch)) {
		if o.Field(name) == nil {
			return nil, nil, fault.BadInput("%s: %s has no field %s", path, o.Name, fault.QuoteShort(name))
		}
	}
	const room = 256 // for what is added
	out = append(make([]byte, 0, len(doc)+room), '{')
	seen := make([]bool, len(o.Fields))
	put := func(i int, name, old []byte) { // the name as it is written
		is := old
		if i >= 0 {
			var differs bool
			if is, differs, err = o.Fields[i].patched(old, patch, doc == nil, path); differs {
				changed = append(changed, o.Fields[i].Stored)
			}
			seen[i] = true
		}
		if is == nil {
			return
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(append(out, name...), ':'), is...)
	}
	next := 0
	rawjson.Members(doc, func(name []byte, start, end int) bool {
		i := o.place(name, next)
		next = max(next, i+1)
		put(i, doc[start-len(`"":`)-len(name):start-len(":")], doc[start:end:end])
		return err == nil
	})
	var name []byte
	for i := 0; i < len(seen) && err == nil; i++ {
		if !seen[i] {
			name = rawjson.AppendString(name[:0], o.Fields[i].Stored)
			put(i, name, nil)
		}
	}
	slices.Sort(changed)
	return append(out, '}'), changed, err
}

// patched returns what a field is after a patch of its object, and whether that differs from what it was; nil: it has
// no member. Made says that the object is made now.
func (f *Field) patched(old []byte, patch map[string]any, made bool, path string) (is []byte, differs bool, err error) {
	v, given := patch[f.Name]
	switch {
	case !given && !made:
		return old, false, nil
	case v == nil && f.NonNull && f.Default == nil && given:
		return nil, false, fault.BadInput("%s.%s: null cannot be stored: the field is declared %s", path, f.Name, f.TypeName(true))
	case v == nil && f.NonNull && f.Default == nil && !f.List:
		return nil, false, fault.BadInput("%s.%s: the field is required: it is declared %s", path, f.Name, f.TypeName(true))
	case v == nil:
		is = f.Default
	default:
		if is, err = f.patchValue(old, v, path+"."+f.Name); err != nil {
			return nil, false, err
		}
	}
	// What is null already stays as it is, and so does what would read as it does now.
	if is == nil && rawjson.IsNull(old) || !made && f.sameEffect(old, is) {
		return old, false, nil
	}
	return is, true, nil
}

// patchValue returns the stored form of a field's new value.
func (f *Field) patchValue(old []byte, v any, path string) ([]byte, error) {
	if raw, ok := v.(Stored); ok {
		return raw, nil
	}
	switch {
	case f.List:
		return f.encodeList(v, path)
	case f.Kind == KindObject:
		m, ok := v.(map[string]any)
		if !ok {
			return nil, WrongInput(path, v, "an object")
		}
		if len(old) == 0 || old[0] != '{' {
			old = nil
		}
		is, _, err := Patch(f.Object, old, m, path)
		return is, err
	}
	return f.encode(path, v)
}

func (f *Field) encodeList(v any, path string) ([]byte, error) {
	out := []byte{'['}
	for i, elem := range AsList(v) {
		here := fmt.Sprintf("%s[%d]", path, i)
		if i > 0 {
			out = append(out, ',')
		}
		var raw []byte
		var err error
		switch {
		case elem == nil && (f.ElemNonNull || f.Kind == KindRef):
			err = fault.BadInput("%s: null cannot be an element: the field is declared %s", here, f.TypeName(true))
		case elem == nil:
			raw = []byte("null")
		case f.Kind == KindObject:
			m, ok := elem.(map[string]any)
			if !ok {
				return nil, WrongInput(here, elem, "an object")
			}
			raw, _, err = Patch(f.Object, nil, m, here)
		default:
			raw, err = f.encode(here, elem)
		}
		if err != nil {
			return nil, err
		}
		out = append(out, raw...)
	}
	return append(out, ']'), nil
}

// PatchPaths lists the JSON Pointers of the values that a patch sets, sorted.
func PatchPaths(o *ObjectType, patch map[string]any, path string) []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(patch)) {
		f := o.Field(name)
		if f == nil {
			continue
		}
		here := diff.Join(path, name)
		if nested, ok := patch[name].(map[string]any); ok && f.Kind == KindObject && !f.List && len(nested) > 0 {
			out = append(out, PatchPaths(f.Object, nested, here)...)
			continue
		}
		out = append(out, here)
	}
	return out
}

// Stored is a value of an input in stored form.
type Stored []byte

// PatchTo returns the patch that leads from one state of an object to another. It names what
// reads differently, and nothing else.
func (o *ObjectType) PatchTo(from, to []byte) map[string]any {
	patch := map[string]any{}
	before, after := Index(o, from), Index(o, to)
	for i := range o.Fields {
		f := &o.Fields[i]
		a, b := before[i].At(from), after[i].At(to)
		switch {
		case f.sameEffect(a, b):
		case rawjson.IsNull(b) && f.List && f.NonNull:
			patch[f.Name] = Stored("[]")
		case rawjson.IsNull(b):
			patch[f.Name] = nil
		case f.Kind == KindObject && !f.List && len(a) > 0 && a[0] == '{' && b[0] == '{':
			patch[f.Name] = f.Object.PatchTo(a, b)
		default:
			patch[f.Name] = Stored(b)
		}
	}
	return patch
}

// sameEffect reports whether a field reads the same with either stored value; nil
// is a missing one. What cannot be read is like nothing else.
func (f *Field) sameEffect(a, b []byte) bool {
	if a != nil && normal.Equal(a, b) {
		return true
	}
	x, ok := f.reads(a)
	if !ok {
		return false
	}
	y, ok := f.reads(b)
	return ok && normal.Equal(x, y)
}

// reads returns what a reader sees of a stored value, in one form for all the
// ways in which it can be stored: a missing list is empty, null and missing
// values are defaults, and members that the type does not declare are not there.
// It returns false for what cannot be read.
func (f *Field) reads(raw []byte) (value []byte, ok bool) {
	missing := raw == nil
	if rawjson.IsNull(raw) {
		raw = f.Default
	}
	switch {
	case raw == nil && f.List && missing:
		return []byte("[]"), true
	case raw == nil:
		return []byte("null"), true
	case !f.List:
		return f.readsOne(raw)
	}
	out := []byte{'['}
	ok = true
	isList := rawjson.Elements(raw, func(start, end int) bool {
		elem := raw[start:end]
		if !rawjson.IsNull(elem) {
			elem, ok = f.readsOne(elem)
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(out, elem...)
		return ok
	})
	return append(out, ']'), ok && isList
}

// readsOne is reads for a value that is not null, or for an element of a list.
func (f *Field) readsOne(raw []byte) (value []byte, ok bool) {
	if f.Kind != KindObject {
		return RawScalar(f, raw)
	}
	if raw[0] != '{' {
		return nil, false
	}
	at := Index(f.Object, raw)
	out := []byte{'{'}
	for i := range f.Object.Fields {
		inner := &f.Object.Fields[i]
		value, ok := inner.reads(at[i].At(raw))
		if !ok {
			return nil, false
		}
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(rawjson.AppendString(out, inner.Name), ':'), value...)
	}
	return append(out, '}'), true
}

// encode returns the stored form of one value that is not null (of an element,
// for a list). The path is for errors.
func (f *Field) encode(path string, v any) ([]byte, error) {
	if f.Kind == KindJSON {
		return jsonInput(path, v)
	}
	value, err := f.Operand(path, v)
	if err != nil {
		return nil, err
	}
	switch x := value.(type) {
	case int64:
		return strconv.AppendInt(nil, x, 10), nil
	case float64:
		raw, err := json.Marshal(x)
		if err != nil { // floats from clients are finite
			return nil, err
		}
		return normal.Value(raw)
	case bool:
		return strconv.AppendBool(nil, x), nil
	case driver.Instant:
		return rawjson.AppendString(nil, x.String()), nil
	}
	s, _ := value.(string)
	if f.Kind == KindRef {
		if why := driver.KeyProblem(s); why != "" {
			return nil, fault.BadInput("%s: %s cannot be the key of a %s: it %s", path, fault.QuoteShort(s), f.Ref, why)
		}
	}
	return rawjson.AppendString(nil, s), nil
}

// Operand returns the value that a filter compares the field with.
func (f *Field) Operand(path string, v any) (driver.Value, error) {
	var value driver.Value
	var err error
	s, isText := Text(v)
	if isText {
		v = s
	}
	switch f.Kind {
	case KindInt:
		var n int
		n, err = literal.Int(v)
		value = int64(n)
	case KindFloat:
		value, err = literal.Float(v)
	case KindBoolean:
		b, ok := v.(bool)
		if !ok {
			return nil, WrongInput(path, v, "true or false")
		}
		return b, nil
	case KindDateTime:
		var at time.Time
		at, err = literal.DateTime(v)
		value = driver.InstantOf(at)
	case KindDate:
		value, err = literal.Date(v)
	case KindDecimal:
		value, err = literal.Decimal(v)
	case KindEnum:
		if !isText || !slices.Contains(f.Enum, s) {
			return nil, WrongInput(path, v, fmt.Sprintf("one of %v", f.Enum))
		}
		return s, nil
	default:
		if f.Kind == KindString && !isText {
			return nil, WrongInput(path, v, "a string")
		}
		if s, err = literal.ID(v); !utf8.ValidString(s) {
			return nil, fault.BadInput("%s: the text is not valid UTF-8", path)
		}
		value = s
	}
	if err != nil {
		return nil, fault.BadInput("%s: %v", path, err)
	}
	return value, nil
}

// Text returns the text that a value of an input is; false for one that is none.
func Text(v any) (string, bool) {
	switch s := v.(type) {
	case string:
		return s, true
	case *string:
		if s != nil {
			return *s, true
		}
	case fmt.Stringer:
		if _, number := v.(json.Number); !number {
			return s.String(), true
		}
	}
	return "", false
}

func jsonInput(path string, v any) ([]byte, error) {
	raw, ok := v.(json.RawMessage)
	if !ok {
		var err error
		if raw, err = json.Marshal(v); err != nil {
			return nil, fault.BadInput("%s: the value cannot be written as JSON: %v", path, err)
		}
	}
	out, err := normal.Value(raw)
	if err != nil {
		return nil, fault.BadInput("%s: %v", path, err)
	}
	if _, reserved := rawjson.HideErased(out); reserved {
		return nil, fault.BadInput("%s: a member \"asof:erased\" says that a value was erased, and cannot be written", path)
	}
	if n := outOfRange(out); n != nil {
		return nil, fault.BadInput("%s: %s is too large; the largest is about 1.8e308: write it in quotes", path, Sample(n))
	}
	return out, nil
}

// outOfRange returns the first number in a JSON value that is larger than a 64-bit float can
// be; nil for none.
func outOfRange(raw []byte) []byte {
	for i := 0; i >= 0 && i < len(raw); i++ {
		switch c := raw[i]; {
		case c == '"':
			i = rawjson.End(raw, i) - 1
		case c == '-' || '0' <= c && c <= '9':
			number := raw[i:rawjson.End(raw, i)]
			const always = 18 // bytes without an exponent are in range
			if (len(number) > always || bytes.ContainsAny(number, "eE")) && !literal.InRange(number) {
				return number
			}
			i += len(number) - 1
		}
	}
	return nil
}

// WrongInput returns the error of a value of another kind than what is wanted.
func WrongInput(path string, v any, want string) error {
	return fault.BadInput("%s: expected %s, got %s", path, want, literal.Show(v))
}

// AsList returns the elements of a list input; a single value is a list of one,
// as GraphQL coerces it.
func AsList(v any) []any {
	switch l := v.(type) {
	case []any:
		return l
	case []string:
		out := make([]any, len(l))
		for i, s := range l {
			out[i] = s
		}
		return out
	case []map[string]any:
		out := make([]any, len(l))
		for i, m := range l {
			out[i] = m
		}
		return out
	}
	return []any{v}
}
