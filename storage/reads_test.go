package storage_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/asof/asof/storage"
)

// What reads the same is the same, however it is stored: writing it makes no
// version.
func TestWhatReadsTheSameIsNotWritten(t *testing.T) {
	e := newEnv(t)
	e.load("software", "b", `{"name":"B","plan":null,"price":1.50,"checkedAt":"2026-01-01T01:00:00+01:00","releases":[{"tag":"v1","undeclared":1},{}],"current_release":{"tag":"v1"}}`)
	e.load("software", "c", `{"name":"C","archived":null,"notes":1}`)
	for key, patches := range map[string][]object{
		"b": {
			{"tags": []any{}},
			{"archived": false},
			{"archived": nil},
			{"plan": nil},
			{"price": "1.5"},
			{"checkedAt": "2026-01-01T00:00:00Z"},
			{"releases": []any{object{"tag": "v1", "notes": []any{}}, object{"notes": []any{}, "tag": nil}}},
			{"currentRelease": object{"notes": []any{}}},
		},
		"c": {{"archived": false}, {"archived": nil}, {"releases": []any{}}, {"releases": nil}},
	} {
		for _, patch := range patches {
			s := asSuccess(t, must(e.projects.Update(e.begin(), storage.UpdateInput{Key: key, ExpectedVersion: 1, Patch: patch}))(t), nil)
			if s.Changed || s.Version != 1 {
				t.Errorf("%s, %v: %v", key, patch, lines(must(s.Changes())(t)))
			}
		}
	}
}

// What reads differently, or could not be read, is another value.
func TestWhatReadsDifferentlyIsWritten(t *testing.T) {
	e := newEnv(t)
	e.load("software", "d", `{"name":"D","stargazers_count":"many","tags":null,"releases":null,"price":1.5}`)
	for i, tt := range []struct {
		patch object
		want  string
	}{
		{object{"stars": nil}, `REMOVE /stars "many"`},
		{object{"tags": []any{}}, `REPLACE /tags null -> []`},
		{object{"releases": []any{}}, `REPLACE /releases null -> []`},
		{object{"price": "1.50"}, `REPLACE /price 1.5 -> "1.50"`},
		{object{"archived": true}, `ADD /archived -> true`},
		{object{"archived": nil}, `REPLACE /archived true -> false`},
		{object{"currentRelease": object{}}, `ADD /currentRelease -> {}`},
	} {
		s := e.update("ann", "d", i+1, tt.patch)
		if diff := cmp.Diff([]string{tt.want}, lines(must(s.Changes())(t))); diff != "" {
			t.Errorf("%v: %s", tt.patch, diff)
		}
	}
}
