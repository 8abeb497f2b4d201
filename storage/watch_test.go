package storage_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/asof/asof/storage"
)

// watched follows a watch until it has told so many versions, and describes them.
func (e *env) watched(q storage.WatchQuery, n int) (told, positions []string) {
	e.t.Helper()
	ctx, cancel := context.WithCancel(e.t.Context())
	defer cancel()
	for event, err := range e.store.Watch(ctx, q) {
		if err != nil {
			e.t.Fatalf("after %q: %v", told, err)
		}
		positions = append(positions, event.Position)
		if a := event.Arrived; a != nil {
			id := "deleted"
			if d := a.Document(); d != nil {
				id = d.ID()
			}
			changes := must(a.Changes(e.t.Context()))(e.t)
			info := a.VersionInfo()
			told = append(told, fmt.Sprintf("%s %s@%d %s %s by %s: %s", a.Type().Name, a.Key(), info.Number(), info.Operation(), id, info.Author().ID, strings.Join(lines(changes), ", ")))
		}
		if len(told) == n {
			break
		}
	}
	return told, positions
}

func TestWatch(t *testing.T) {
	e := newEnv(t)
	e.create("a", map[string]any{"name": "A", "tags": []any{"x"}})
	e.update("bob", "a", 1, map[string]any{"name": "B"})
	if _, err := e.projects.Delete(e.as("eve"), storage.DeleteInput{Key: "a", ExpectedVersion: 2}); err != nil {
		t.Fatal(err)
	}
	e.load("tags", "x", `{"name":"X","unknown":1}`)
	want := []string{
		`Project a@1 CREATE Project:a@1 by ann: ADD /name -> "A", ADD /tags -> ["x"], ADD /archived -> false`,
		`Project a@2 UPDATE Project:a@2 by bob: REPLACE /name "A" -> "B"`,
		`Project a@3 DELETE deleted by eve: REMOVE /name "B", REMOVE /tags ["x"], REMOVE /archived false`,
		`Tag x@1 IMPORT Tag:x@1 by importer: ADD /name -> "X"`,
	}
	all, positions := e.watched(storage.WatchQuery{}, 4)
	if diff := cmp.Diff(want, all); diff != "" {
		t.Errorf("all (-want +got):\n%s", diff)
	}
	for i := range positions[1:] {
		if positions[i] >= positions[i+1] {
			t.Errorf("the position %q is followed by %q", positions[i], positions[i+1])
		}
	}
	for i := range want[1:] {
		got, _ := e.watched(storage.WatchQuery{After: positions[i]}, len(want)-i)
		if diff := cmp.Diff(want[i:], got); diff != "" {
			t.Errorf("behind event %d (-want +got):\n%s", i, diff)
		}
	}
	if got, _ := e.watched(storage.WatchQuery{Types: []string{"Tag"}}, 1); got[0] != want[3] {
		t.Errorf("of tags: %q", got)
	}
	// From now, with what is committed in the loop.
	var got []string
	for event, err := range e.store.Watch(t.Context(), storage.WatchQuery{FromNow: true}) {
		if err != nil {
			t.Fatal(err)
		}
		if event.Arrived == nil {
			if len(got) == 0 {
				e.create("b", map[string]any{"name": "B", "tags": []any{}})
			}
			continue
		}
		if got = append(got, event.Arrived.Key()); len(got) == 1 {
			break
		}
	}
	if got[0] != "b" {
		t.Errorf("from now: %q", got)
	}
}

func TestWatchRefuses(t *testing.T) {
	e, other := newEnv(t), newEnv(t)
	other.create("a", map[string]any{"name": "A", "tags": []any{}})
	_, theirs := other.watched(storage.WatchQuery{}, 1)
	first := func(ctx context.Context, q storage.WatchQuery) error {
		for _, err := range e.store.Watch(ctx, q) {
			return err
		}
		return nil
	}
	wantError(t, first(t.Context(), storage.WatchQuery{Types: []string{"Nothing"}}), storage.CodeBadUserInput, `there is no type "Nothing"`)
	wantError(t, first(t.Context(), storage.WatchQuery{After: theirs[0]}), storage.CodeBadUserInput, "another store")
	wantError(t, first(t.Context(), storage.WatchQuery{After: theirs[0], FromNow: true}), storage.CodeBadUserInput)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	wantError(t, first(ctx, storage.WatchQuery{}), storage.CodeUnavailable)
}
