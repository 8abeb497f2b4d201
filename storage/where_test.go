package storage_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/asof/asof/storage"
)

// What cannot be read counts as null: every condition finds it where it finds null.
func TestWhatCannotBeReadIsNullInFilters(t *testing.T) {
	e := newEnv(t)
	const null, full = "null", "full"
	e.load("software", null, `{"name":null,"website_url":null,"tags":null,"license":null,"stargazers_count":null,"archived":null,"updated_at":null,"checkedAt":null,"price":null,"plan":null,"current_release":null,"releases":null,"rating":null}`)
	e.load("software", full, `{"name":"n","website_url":"w","tags":["x"],"license":"x","stargazers_count":5,"archived":true,"updated_at":"2026-01-05","checkedAt":"2026-01-01T00:00:00Z","price":"1.50","plan":"FREE","current_release":{"tag":"v1"},"releases":[{"tag":"v1"}],"rating":0.5}`)
	compared := []string{"eq", "ne", "lt", "lte", "gt", "gte"}
	fields := []struct {
		name, stored string
		unreadable   []string
		// extreme ones are of the engine's kind: they are sorted as what they are.
		extreme    []string
		conditions []string
		operands   []any
	}{
		{"name", "name", []string{`5`, `true`, `["n"]`, `{"n":"n"}`}, nil, append(compared, "contains", "startsWith", "endsWith", "containsFold", "eqFold"), []any{"n", ""}},
		{"license", "license", []string{`5`, `["x"]`}, nil, []string{"eq", "ne"}, []any{"x", "5"}},
		{"stars", "stargazers_count", []string{`"5"`, `1.5`, `[5]`, `1e400`, `92233720368547758080`}, []string{`2147483648`, `-2147483649`}, compared, []any{0, 5, 1<<31 - 1, -1 << 31}},
		{"archived", "archived", []string{`1`, `"true"`, `[true]`}, nil, []string{"eq", "ne"}, []any{true, false}},
		{"updatedAt", "updated_at", []string{`"2026-02-30"`, `"yesterday"`, `20260105`, `["2026-01-05"]`}, nil, compared, []any{"2026-01-05", "0001-01-01"}},
		{"checkedAt", "checkedAt", []string{`"2026-01-01"`, `"noon"`, `0`}, []string{`"0000-01-01T00:00:00+01:00"`, `"9999-12-31T23:59:59-01:00"`}, compared, []any{"2026-01-01T00:00:00Z", "9999-12-31T23:59:59Z"}},
		{"price", "price", []string{`"1,50"`, `true`, `"1e10000"`, `[1.5]`}, nil, compared, []any{"1.5", "0"}},
		{"plan", "plan", []string{`1`, `["FREE"]`}, []string{`"NONE"`, `""`}, []string{"eq", "ne"}, []any{"FREE", "PAID"}},
		{"rating", "rating", []string{`"0.5"`, `1e400`, `-1e400`, `[0.5]`}, nil, compared, []any{0.5, 0}},
	}
	load := func(field, stored string, values []string) (keys []string) {
		for _, value := range values {
			key := field + " " + value
			e.load("software", key, `{"`+stored+`":`+value+`}`)
			keys = append(keys, key)
		}
		return keys
	}
	unreadable, extreme := map[string][]string{}, map[string][]string{}
	for _, f := range fields {
		unreadable[f.name], extreme[f.name] = load(f.name, f.stored, f.unreadable), load(f.name, f.stored, f.extreme)
	}
	objects := load("currentRelease", "current_release", []string{`"v1"`, `5`, `[{"tag":"v1"}]`})
	// The null of a list is an empty one.
	lists := slices.Concat(load("tags", "tags", []string{`"x"`, `5`, `{"x":"x"}`}), load("releases", "releases", []string{`"v1"`, `{"tag":"v1"}`}))

	e.tagAll("t", keysOf(must(e.projects.Page(e.begin(), nil, nil, ptr(100), nil, nil, nil, nil, nil))(t).Nodes))
	ctx, most := e.begin(), 100
	same := func(where object, keys []string) {
		t.Helper()
		raw, _ := json.Marshal(where)
		conn := must(e.projects.Page(ctx, where, nil, &most, nil, nil, nil, nil, nil))(t)
		found := keysOf(conn.Nodes)
		for _, key := range keys {
			if slices.Contains(found, key) != slices.Contains(found, null) {
				t.Errorf("%s: found %q: %t, null: %t", raw, key, slices.Contains(found, key), slices.Contains(found, null))
			}
		}
		if n := must(conn.TotalCount(ctx))(t); n != len(found) {
			t.Errorf("%s: counted %d of %d", raw, n, len(found))
		}
		if tagged := e.byTag(ctx, "t", where, nil); !slices.Equal(tagged, found) {
			t.Errorf("%s: found %q by the tag, not %q", raw, tagged, found)
		}
	}
	both := func(where object, keys []string) {
		t.Helper()
		same(where, keys)
		same(object{"not": where}, keys)
	}
	for _, f := range fields {
		keys := slices.Concat(unreadable[f.name], extreme[f.name])
		for _, want := range []bool{true, false} {
			both(object{f.name: object{"isNull": want}}, keys)
		}
		for _, operand := range f.operands {
			for _, condition := range f.conditions {
				both(object{f.name: object{condition: operand}}, keys)
			}
			for _, condition := range []string{"in", "notIn"} {
				both(object{f.name: object{condition: []any{operand}}}, keys)
			}
		}
	}
	for _, where := range []object{
		{"isNull": true},
		{"isNull": false},
		{"tag": object{"eq": "v1"}},
		{"tag": object{"isNull": true}},
	} {
		both(object{"currentRelease": where}, objects)
	}
	both(object{"tags": object{"has": "x"}}, lists)
	both(object{"tags": object{"hasNone": []any{"x"}}}, lists)
	both(object{"tags": object{"isEmpty": true}}, lists)
	for _, quantifier := range []string{"some", "none", "every"} {
		both(object{"releases": object{quantifier: object{"tag": object{"eq": "v1"}}}}, lists)
	}
	both(object{"releases": object{"isEmpty": true}}, lists)

	// They sort as null, too; a page begins again behind each.
	for _, f := range fields {
		first := 1
		order := []*storage.OrderInput{{Field: f.name}}
		var got []string
		for after := (*string)(nil); ; {
			conn := must(e.projects.Page(e.begin(), nil, order, &first, after, nil, nil, nil, nil))(t)
			got = append(got, keysOf(conn.Nodes)...)
			if after = conn.PageInfo.EndCursor(); !conn.PageInfo.HasNextPage || len(got) > 100 {
				break
			}
		}
		all := len(keysOf(must(e.projects.Page(ctx, nil, nil, &most, nil, nil, nil, nil, nil))(t).Nodes))
		if len(got) != all || len(slices.Compact(slices.Sorted(slices.Values(got)))) != all {
			t.Errorf("by %s: pages have %d documents of %d: %q", f.name, len(got), all, got)
		}
		valued := slices.Concat(extreme[f.name], []string{full})
		nulls := slices.DeleteFunc(slices.Clone(got), func(key string) bool { return slices.Contains(valued, key) })
		if fmt.Sprint(got[:len(nulls)]) != fmt.Sprint(slices.Sorted(slices.Values(nulls))) {
			t.Errorf("by %s: %q", f.name, got)
		}
	}
}

func TestLongTextsAreNotLookedFor(t *testing.T) {
	e := newEnv(t)
	for _, name := range []string{"contains", "containsFold", "startsWith"} {
		for _, length := range []int{1024, 1025} {
			_, err := e.projects.Page(e.begin(), object{"name": object{name: strings.Repeat("x", length)}}, nil, nil, nil, nil, nil, nil, nil)
			if want := length > 1024 && name != "startsWith"; (err != nil) != want {
				t.Errorf("%s of %d bytes: %v", name, length, err)
			}
		}
	}
}
