package storage_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/fault"
)

// A list of fields without elements asks for nothing, in every history; no list
// asks for everything.
func TestHistoriesOfNoFields(t *testing.T) {
	e := newEnv(t)
	e.create("a", object{"name": "a"})
	ctx, d := e.begin(), e.get("a")
	for _, tt := range []struct {
		fields                     []string
		versions, changes, reasons int
	}{{nil, 1, 2, 2}, {[]string{}, 0, 0, 0}, {[]string{"name"}, 1, 1, 1}} {
		versions := must(e.projects.Versions(ctx, d.Document, nil, nil, nil, tt.fields, nil, nil, nil, nil))(t)
		changes := must(e.store.DocumentChangelog(ctx, d.Document, tt.fields, nil, nil, nil, nil, nil, nil, nil))(t)
		reasons := must(e.store.Blame(ctx, d.Document, tt.fields))(t)
		if len(versions.Nodes) != tt.versions || must(versions.TotalCount(ctx))(t) != tt.versions ||
			len(changes.Nodes) != tt.changes || must(changes.TotalCount(ctx))(t) != tt.changes || len(reasons) != tt.reasons || reasons == nil {
			t.Errorf("%v: %d versions, %d changes, %d values explained", tt.fields, len(versions.Nodes), len(changes.Nodes), len(reasons))
		}
	}
}

// A pinned document's diff is about what was there then, by number and by instant.
func TestDiffOfAPinnedReadShowsNothingLater(t *testing.T) {
	e := newEnv(t)
	at := e.load("software", "a", `{"name":"one"}`)
	later := e.clock.advance(time.Second)
	ask := func(ref storage.VersionRef) []string {
		t.Helper()
		ctx := e.begin()
		d := must(e.projects.Get(ctx, "a", &at, nil))(t)
		var said []string
		for _, args := range []struct {
			from storage.VersionRef
			to   *storage.VersionRef
		}{{ref, nil}, {storage.VersionRef{Version: ptr(1)}, &ref}} {
			got, err := e.store.Diff(ctx, d.Document, args.from, args.to)
			if err != nil {
				said = append(said, err.Error())
			} else {
				said = append(said, string(got.Before())+string(got.After()))
			}
		}
		return said
	}
	refs := map[string]storage.VersionRef{"version": {Version: ptr(2)}, "asOf": {AsOf: &later}}
	before := map[string][]string{}
	for name, ref := range refs {
		before[name] = ask(ref)
	}
	e.update("ann", "a", 1, object{"name": "two"})
	for name, ref := range refs {
		if diff := cmp.Diff(before[name], ask(ref)); diff != "" {
			t.Errorf("%s: a later write changed the answer: %s", name, diff)
		}
	}
	d := must(e.projects.Get(e.begin(), "a", &at, nil))(t)
	_, err := e.store.Diff(e.begin(), d.Document, storage.VersionRef{AsOf: &later}, nil)
	wantError(t, err, fault.CodeAsOfInFuture, "read the document at a later moment")
}
