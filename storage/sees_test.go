package storage_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/fault"
)

// What follows in a request sees what came before, also what another request
// wrote meanwhile, where it expects that as the current version.
func TestRestoreSeesWhatTheRequestWrote(t *testing.T) {
	e := newEnv(t)
	e.create("a", object{"name": "A"})
	ctx := e.begin()
	res, err := e.projects.Update(ctx, storage.UpdateInput{Key: "a", ExpectedVersion: 1, Patch: object{"name": "B"}})
	asSuccess(t, res, err)
	_, err = e.projects.Restore(ctx, storage.RestoreInput{Key: "a", ExpectedVersion: 2, To: &storage.VersionRef{Version: ptr(9)}})
	wantError(t, err, fault.CodeVersionNotFound, "its versions are 1 to 2")

	ctx = e.begin()
	e.update("bob", "a", 2, object{"name": "C"}) // in a request of its own
	_, err = e.projects.Restore(ctx, storage.RestoreInput{Key: "a", ExpectedVersion: 3, To: &storage.VersionRef{Version: ptr(9)}})
	wantError(t, err, fault.CodeVersionNotFound, "its versions are 1 to 3")
	res, err = e.projects.Restore(ctx, storage.RestoreInput{Key: "a", ExpectedVersion: 3, To: &storage.VersionRef{Version: ptr(3)}})
	if s := asSuccess(t, res, err); s.Changed || s.Version != 3 {
		t.Errorf("restoring what is there: %+v", s)
	}
}

func TestTimesInTheWrongOrderAreRefused(t *testing.T) {
	e := newEnv(t)
	from := e.load("software", "a", `{"name":"A"}`)
	to := from - 1
	ctx := e.begin()
	d := must(e.projects.Get(ctx, "a", nil, nil))(t)
	_, err := e.store.DocumentChangelog(ctx, d.Document, nil, nil, &from, &to, nil, nil, nil, nil)
	wantError(t, err, fault.CodeBadUserInput, "from: 2026-01-01T00:00:01Z is after to, 2026-01-01T00:00:00.999999Z")
	_, err = e.projects.Versions(ctx, d.Document, &from, &to, nil, nil, nil, nil, nil, nil)
	wantError(t, err, fault.CodeBadUserInput, "from: ", "is after to")
	_, err = e.store.Changelog(ctx, &storage.ChangelogWhere{From: &from, To: &to}, nil, nil, nil, nil)
	wantError(t, err, fault.CodeBadUserInput, "where.from: ", "is after to")
	conn := must(e.store.Changelog(ctx, &storage.ChangelogWhere{From: &from, To: &from}, nil, nil, nil, nil))(t)
	if len(conn.Nodes) != 0 {
		t.Errorf("nothing lies between a moment and itself, not %v", lines(conn.Nodes))
	}
}

// A page after the first is of the first one's instant. Its documents have the
// ids of current ones as long as they are.
func TestIDsOfLaterPages(t *testing.T) {
	e := newEnv(t)
	for _, key := range []string{"a", "b", "c", "d"} {
		e.load("software", key, `{"name":"n","tags":["x"]}`)
	}
	first := must(e.projects.Page(e.begin(), nil, nil, ptr(1), nil, nil, nil, nil, nil))(t)
	e.update("bob", "a", 1, object{"name": "m"})
	e.update("bob", "c", 1, object{"name": "m"})
	second := must(e.projects.Page(e.begin(), nil, nil, ptr(3), first.PageInfo.EndCursor(), nil, nil, nil, nil))(t)
	var got []string
	for _, n := range second.Nodes {
		got = append(got, n.ID())
	}
	if diff := cmp.Diff([]string{"Project:b", "Project:c@1", "Project:d"}, got); diff != "" {
		t.Error(diff)
	}
}
