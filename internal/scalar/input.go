package scalar

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"reflect"

	"github.com/99designs/gqlgen/graphql"

	"github.com/asof/asof/internal/scalar/literal"
)

// MarshalInput writes an input object; it is there for the generator, which
// asks for functions in pairs.
func MarshalInput(v map[string]any) graphql.Marshaler {
	return graphql.WriterFunc(func(w io.Writer) {
		b, err := json.Marshal(v)
		if err != nil {
			b = []byte("null")
		}
		_, _ = w.Write(b) // the writer is a buffer
	})
}

// UnmarshalInput reads an input object whose fields package storage looks at
// with the metadata of the type: filters, data and patches. Its names, the
// nulls in it and its built-in scalars have been validated; a missing field and
// a null one stay different. Lists are always []any.
func UnmarshalInput(v any) (map[string]any, error) {
	m, ok := v.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("an input object is needed here, not %s", literal.Show(v))
	}
	return normalMap(m), nil
}

// normalMap turns lists of other types than []any, which validating variables
// leaves where a single value stands for a list, into []any. It copies nothing
// where there are none.
func normalMap(m map[string]any) map[string]any {
	out, copied := m, false
	for k, v := range m {
		n, changed := normal(v)
		if !changed {
			continue
		}
		if !copied {
			out, copied = make(map[string]any, len(m)), true
			maps.Copy(out, m)
		}
		out[k] = n
	}
	return out
}

func normal(v any) (normalised any, changed bool) {
	switch v := v.(type) {
	case nil, bool, string, json.Number, int64, float64, int:
		return v, false
	case map[string]any:
		n := normalMap(v)
		return n, reflect.ValueOf(n).Pointer() != reflect.ValueOf(v).Pointer()
	case []any:
		return normalList(v)
	}
	rv := reflect.ValueOf(v)
	if rv.Kind() != reflect.Slice {
		return v, false
	}
	list := make([]any, rv.Len())
	for i := range list {
		list[i], _ = normal(rv.Index(i).Interface())
	}
	return list, true
}

func normalList(v []any) (normalised any, changed bool) {
	out := v
	for i := range v {
		n, elemChanged := normal(v[i])
		if !elemChanged {
			continue
		}
		if !changed {
			out, changed = append([]any(nil), v...), true
		}
		out[i] = n
	}
	return out, changed
}
