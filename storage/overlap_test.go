package storage_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/drivertest"
	"github.com/asof/asof/storage/fault"
	"github.com/asof/asof/storage/record"
)

// A patch overlaps with what anybody changed since, also where somebody put
// back what was there.
func TestWhatOverlaps(t *testing.T) {
	start := `{"name":"A","tags":["x"],"stargazers_count":1,"current_release":{"tag":"v1","published_at":"2026-01-01","secret":1},"commit_history":{"a":1}}`
	tests := []struct {
		name  string
		steps []string // what others write, replacing the document; "" deletes
		patch object
		want  []string // none: it can be merged
	}{
		{"another field", []string{`{"name":"B"}`}, object{"stars": 2}, nil},
		{"the same field", []string{`{"name":"B"}`}, object{"name": "C", "stars": 2}, []string{"/name"}},
		{"there and back", []string{`{"name":"B"}`, `{"name":"A"}`}, object{"name": "C", "stars": 2}, []string{"/name"}},
		{"there and back, the same value", []string{`{"name":"B"}`, `{"name":"A"}`}, object{"name": "A"}, nil},
		{
			"in an object",
			[]string{`{"current_release":{"tag":"v2","published_at":"2026-01-01"}}`, `{"current_release":{"tag":"v1","published_at":"2026-01-01"}}`},
			object{"currentRelease": object{"tag": "v3", "publishedAt": "2026-01-02"}},
			[]string{"/currentRelease/tag"},
		},
		{
			"in another part of it",
			[]string{`{"current_release":{"tag":"v2","published_at":"2026-01-01"}}`, `{"current_release":{"tag":"v1","published_at":"2026-01-01"}}`},
			object{"currentRelease": object{"publishedAt": "2026-01-02"}},
			nil,
		},
		{
			"what is not declared",
			[]string{`{"current_release":{"tag":"v1","published_at":"2026-01-01","secret":2}}`, `{"current_release":{"tag":"v1","published_at":"2026-01-01","secret":3}}`},
			object{"currentRelease": nil},
			nil,
		},
		{"a JSON value", []string{`{"commit_history":{"a":2}}`, `{"commit_history":{"a":1}}`}, object{"commitHistory": object{"b": 1}}, []string{"/commitHistory"}},
		{"a list emptied and filled", []string{`{"tags":[]}`, `{"tags":["x"]}`}, object{"tags": []any{"y"}}, []string{"/tags"}},
		{"what is missing and what is empty", []string{`{"releases":[{}]}`, `{"releases":null}`}, object{"archived": false}, nil},
		{"deleted and created again", []string{"", `{"stargazers_count":1}`}, object{"name": "C", "stars": 1}, []string{"/name", "/stars"}},
		{"another document of this key", []string{"", `{"name":"A"}`}, object{}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := newEnv(t)
			e.load("software", "a", start)
			again := false
			for _, step := range tt.steps {
				if step != "" {
					step = merged(t, start, step)
				} else {
					again = true
				}
				e.load("software", "a", step)
			}
			in := storage.UpdateInput{Key: "a", ExpectedVersion: 1, Patch: tt.patch}
			c := asConflict(t, must(e.projects.Update(e.begin(), in))(t), nil)
			if diff := cmp.Diff(append([]string{}, tt.want...), c.OverlappingPaths); diff != "" {
				t.Error(diff)
			}
			mergeable := len(tt.want) == 0 && !again
			if c.Mergeable != mergeable || strings.Contains(c.Message, "deleted and created again") != again {
				t.Errorf("%+v", c)
			}
			in.OnConflict = ptr(storage.Merge)
			if s, ok := must(e.projects.Update(e.begin(), in))(t).(*storage.Success[*project]); ok != mergeable || ok && !s.Merged {
				t.Errorf("merged: %t, want %t", ok, mergeable)
			}
		})
	}
}

// merged is a document with other values of some members.
func merged(t *testing.T, doc, members string) string {
	t.Helper()
	var all map[string]json.RawMessage
	for _, text := range []string{doc, members} {
		if err := json.Unmarshal([]byte(text), &all); err != nil {
			t.Fatal(err)
		}
	}
	return string(must(json.Marshal(all))(t))
}

// What is behind more versions than are compared counts as changed.
func TestOverlapIsBounded(t *testing.T) {
	e := newEnv(t)
	e.load("software", "a", `{"name":"A","current_release":{"tag":"v1"}}`)
	for i := range 1001 {
		e.load("software", "a", `{"name":"A","current_release":{"tag":"v1","published_at":"`+[]string{"2026-01-01", "2026-01-02"}[i%2]+`"}}`)
	}
	c := asConflict(t, must(e.projects.Update(e.begin(), storage.UpdateInput{
		Key: "a", ExpectedVersion: 1, Patch: object{"name": "B", "currentRelease": object{"tag": "v2"}},
	}))(t), nil)
	if diff := cmp.Diff([]string{"/currentRelease/tag"}, c.OverlappingPaths); diff != "" {
		t.Error(diff)
	}
	c = asConflict(t, must(e.projects.Update(e.begin(), storage.UpdateInput{
		Key: "a", ExpectedVersion: 3, Patch: object{"name": "B", "currentRelease": object{"tag": "v2"}},
	}))(t), nil)
	if !c.Mergeable {
		t.Errorf("%+v", c)
	}
	if since := must(c.ChangesSince(e.begin()))(t); len(since) != 999 {
		t.Errorf("%d changes", len(since))
	}
}

// Where there are many versions in between, nobody looks at all of them.
func TestOverlapOfManyVersions(t *testing.T) {
	e := newEnv(t, storage.WithLimits(storage.Limits{Details: 4}))
	for i := range 6 {
		e.load("software", "a", fmt.Sprintf(`{"name":"A","stars":%d}`, i))
	}
	for expected, mergeable := range map[int]bool{1: false, 2: true} {
		c := asConflict(t, must(e.projects.Update(e.begin(), storage.UpdateInput{Key: "a", ExpectedVersion: expected, Patch: object{"name": "B"}}))(t), nil)
		if c.Mergeable != mergeable || (len(c.OverlappingPaths) == 0) != mergeable {
			t.Errorf("of version %d: %+v", expected, c)
		}
	}
}

// Who writes after a deletion is told how to go on: its number is the expected
// one, so that trying again would not help.
func TestConflictWithADeletion(t *testing.T) {
	e := newEnv(t)
	e.load("software", "a", `{"name":"A"}`)
	e.load("software", "a", ``)
	for name, res := range map[string]any{
		"update": must(e.projects.Update(e.begin(), storage.UpdateInput{Key: "a", ExpectedVersion: 2, Patch: object{}}))(t),
		"delete": must(e.projects.Delete(e.begin(), storage.DeleteInput{Key: "a", ExpectedVersion: 2}))(t),
	} {
		c := asConflict(t, res, nil)
		if c.ExpectedVersion != 2 || c.ActualVersion != 2 || !strings.Contains(c.Message, `is deleted`) ||
			!strings.Contains(c.Message, "restoreProject and expectedVersion 2, or create it again with createProject") {
			t.Errorf("%s: %+v", name, c)
		}
	}
}

// A patch that was right for what its author saw is a conflict also where the
// document has become one that it does not fit.
func TestConflictWithAnotherShape(t *testing.T) {
	release := &record.ObjectType{Name: "Release", Fields: []record.Field{
		{Name: "tag", Kind: record.KindString, NonNull: true},
		{Name: "notes", Kind: record.KindString},
	}}
	types := []*record.Type{{Name: "Thing", Singular: "thing", Plural: "things", Collection: "things", Fields: []record.Field{
		{Name: "release", Kind: record.KindObject, Object: release},
	}}}
	clock := &clock{now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	store, err := storage.New(drivertest.NewModel(clock.Now, storage.CollectionsOf(types)), types)
	if err != nil {
		t.Fatal(err)
	}
	type thing struct{ *storage.Document }
	things := storage.NewCollection(store, types[0], func(d *storage.Document) *thing { return &thing{d} })
	if _, err := things.Create(t.Context(), storage.CreateInput{Key: "k", Data: object{"release": object{"tag": "1"}}}); err != nil {
		t.Fatal(err)
	}
	clock.advance(time.Second)
	update := func(policy storage.ConflictPolicy, patch object) any {
		t.Helper()
		res, err := things.Update(t.Context(), storage.UpdateInput{Key: "k", ExpectedVersion: 1, Patch: patch, OnConflict: &policy})
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	update(storage.Reject, object{"release": nil})
	for _, policy := range []storage.ConflictPolicy{storage.Reject, storage.Merge} {
		c, ok := update(policy, object{"release": object{"notes": "n"}}).(*storage.Conflict[*thing])
		if !ok || c.Mergeable || c.ActualVersion != 2 || !slices.Equal(c.OverlappingPaths, []string{"/release/notes"}) {
			t.Errorf("%v: %+v", policy, c)
		}
	}
	_, err = things.Update(t.Context(), storage.UpdateInput{Key: "k", ExpectedVersion: 1, Patch: object{"release": object{"notes": 1}}})
	wantError(t, err, fault.CodeBadUserInput, "input.patch.release.notes")
}
