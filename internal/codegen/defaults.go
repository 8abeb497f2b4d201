package codegen

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/vektah/gqlparser/v2/ast"

	"github.com/asof/asof/internal/scalar/literal"
)

// fieldDefault checks @default(value:) against the field's type and keeps it
// as JSON.
func (r *reader) fieldDefault(def *ast.Definition, f *Field, v *ast.Value) {
	where := def.Name + "." + f.Name
	switch f.Kind {
	case kindRef:
		r.problems.add(v.Position, "%s: references cannot have a @default", where)
		return
	case kindObject:
		r.problems.add(v.Position, "%s: nested types cannot have a @default; give one to the fields of %s", where, f.TypeName())
		return
	default: // of any other kind there are literals
	}
	text, problem := defaultJSON(f, v)
	if problem != "" {
		r.problems.add(v.Position, "%s: @default(value:) does not fit %s: %s", where, f.Type(), problem)
		return
	}
	f.Default = text
}

// defaultJSON renders the literal as JSON, or says why it does not fit.
func defaultJSON(f *Field, v *ast.Value) (text, problem string) {
	if !f.List {
		return scalarJSON(f, v)
	}
	if v.Kind != ast.ListValue {
		return "", fmt.Sprintf("%s is not a list", v)
	}
	elems := make([]string, len(v.Children))
	for i, c := range v.Children {
		if c.Value.Kind == ast.NullValue {
			if f.ElemNonNull {
				return "", "its elements cannot be null"
			}
			elems[i] = "null"
			continue
		}
		if elems[i], problem = scalarJSON(f, c.Value); problem != "" {
			return "", problem
		}
	}
	return "[" + strings.Join(elems, ",") + "]", ""
}

func scalarJSON(f *Field, v *ast.Value) (text, problem string) {
	isText := v.Kind == ast.StringValue || v.Kind == ast.BlockValue
	mismatch := fmt.Sprintf("%s is not %s", v, article(f.TypeName()))
	switch f.Kind {
	case kindString, kindID:
		if !isText {
			return "", mismatch
		}
		return quote(v.Raw), ""
	case kindInt:
		n, err := strconv.ParseInt(v.Raw, 10, 32)
		if v.Kind != ast.IntValue || err != nil {
			return "", mismatch + " of 32 bits"
		}
		return strconv.FormatInt(n, 10), ""
	case kindFloat:
		n, err := strconv.ParseFloat(v.Raw, 64)
		if v.Kind != ast.IntValue && v.Kind != ast.FloatValue || err != nil || math.IsInf(n, 0) {
			return "", mismatch
		}
		return v.Raw, ""
	case kindBoolean:
		if v.Kind != ast.BooleanValue {
			return "", mismatch
		}
		return v.Raw, ""
	case kindEnum:
		for _, e := range f.Enum.Values {
			if v.Kind == ast.EnumValue && v.Raw == e.Name {
				return quote(v.Raw), ""
			}
		}
		return "", mismatch + "; " + enumNames(f.Enum)
	case kindDateTime, kindDate, kindDecimal:
		if !isText {
			return "", mismatch + ", which is written in quotes"
		}
		return specialJSON(f.Kind, v.Raw)
	case kindJSON:
		value, err := v.Value(nil)
		if err != nil {
			return "", err.Error()
		}
		b, err := json.Marshal(value)
		if err != nil {
			return "", err.Error()
		}
		return string(b), ""
	default: // kindObject and kindRef have no defaults
		return "", mismatch
	}
}

// specialJSON renders the scalars that GraphQL lacks, in their normal form.
func specialJSON(kind Kind, raw string) (text, problem string) {
	var err error
	switch kind {
	case kindDateTime:
		t, e := literal.DateTime(raw)
		raw, err = t.Format("2006-01-02T15:04:05.999999Z07:00"), e
	case kindDate:
		_, err = literal.Date(raw)
	default:
		_, err = literal.Decimal(raw)
	}
	if err != nil {
		return "", err.Error()
	}
	return quote(raw), ""
}

func enumNames(e *Enum) string {
	names := make([]string, len(e.Values))
	for i, v := range e.Values {
		names[i] = v.Name
	}
	return "its values are " + strings.Join(names, ", ")
}

// article puts "a" or "an" before a type's name.
func article(name string) string {
	lower := strings.ToLower(name)
	begins := func(with string) bool { return strings.HasPrefix(lower, with) }
	vowel := strings.ContainsAny(lower[:1], "aeiou")
	switch {
	case slices.ContainsFunc([]string{"unin", "unim"}, begins), slices.ContainsFunc([]string{"heir", "hono", "hour"}, begins):
		vowel = true
	case slices.ContainsFunc([]string{"eu", "one", "ubi", "uni", "us", "uti"}, begins): // spoken with a consonant
		vowel = false
	}
	if vowel {
		return "an " + name
	}
	return "a " + name
}
