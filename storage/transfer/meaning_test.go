package transfer_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"
)

func jsonOf(v any) ([]byte, error) { return json.Marshal(v) }

// meanings decodes lines and writes them in one way, sorted.
func meanings(t *testing.T, text string) []string {
	t.Helper()
	var all []string
	for line := range strings.Lines(text) {
		var members map[string]any
		d := json.NewDecoder(strings.NewReader(line))
		d.UseNumber()
		if err := d.Decode(&members); err != nil {
			t.Fatal(err)
		}
		at, err := time.Parse(time.RFC3339Nano, members["at"].(string))
		if err != nil {
			t.Fatal(err)
		}
		members["at"] = at.UTC()
		for _, optional := range []string{"message", "source"} {
			if members[optional] == "" {
				delete(members, optional)
			}
		}
		members["data"] = asFloats(members["data"])
		out, err := json.Marshal(members)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(out))
	}
	slices.Sort(all)
	return all
}

// asFloats makes numbers that are written differently the same.
func asFloats(v any) any {
	switch v := v.(type) {
	case json.Number:
		if i, err := v.Int64(); err == nil {
			return i
		}
		f, _ := v.Float64()
		return f
	case []any:
		for i := range v {
			v[i] = asFloats(v[i])
		}
		return v
	case map[string]any:
		for name := range v {
			v[name] = asFloats(v[name])
		}
		return v
	default:
		return v
	}
}
