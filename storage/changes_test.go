package storage_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/fault"
)

// members is a document with so many values, all of which are others in each version.
func members(version, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"%d-%05d":%d`, version, i, version)
	}
	return `{"name":"n","commit_history":{` + b.String()[1:] + `}}`
}

// allocated is how many bytes f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// What is refused for the number of its changes is refused before they are listed.
func TestChangesAreRefusedWhileTheyAreListed(t *testing.T) {
	for name, ask := range map[string]func(context.Context, *env, *storage.Document) error{
		"diff": func(ctx context.Context, e *env, d *storage.Document) error {
			_, err := e.store.Diff(ctx, d, storage.VersionRef{Version: ptr(1)}, nil)
			return err
		},
		"blame": func(ctx context.Context, e *env, d *storage.Document) error {
			_, err := e.store.Blame(ctx, d, nil)
			return err
		},
	} {
		var allocations []uint64
		for _, most := range []int{100, 1_000_000} {
			e := newEnv(t, storage.WithLimits(storage.Limits{Details: most}))
			for version := range 2 {
				e.load("software", "a", members(version, 20_000))
			}
			d, ctx := e.get("a").Document, e.begin()
			allocations = append(allocations, allocated(func() {
				if err := ask(ctx, e, d); (err != nil) != (most == 100) {
					t.Errorf("%s: %v", name, err)
				}
			}))
		}
		if refused, listed := allocations[0], allocations[1]; refused > listed/3 {
			t.Errorf("%s: %d bytes are allocated for a list that is refused, and %d for one that is not", name, refused, listed)
		}
	}
}

// A change that lies deep, or whose path is long as JSON, takes more to be told of, and counts more.
func TestDeepChangesCountMore(t *testing.T) {
	for value, refused := range map[string]bool{`%d`: false, `{"c":{"d":{"e":{"f":{"g":%d}}}}}`: true, `{"` + strings.Repeat("x", 60) + `":%d}`: true, `{"` + strings.Repeat(`\u0001`, 10) + `":%d}`: true} {
		e := newEnv(t, storage.WithLimits(storage.Limits{Details: 3}))
		for version := range 2 {
			inside := fmt.Sprintf(value, version)
			e.load("software", "a", fmt.Sprintf(`{"name":"a","commit_history":{"a":%s,"b":%s}}`, inside, inside))
		}
		_, err := e.store.Diff(e.begin(), e.get("a").Document, storage.VersionRef{Version: ptr(1)}, nil)
		if (err != nil) != refused {
			t.Errorf("two changes of %s: %v", value, err)
		}
	}
}

// What a blame explains knows its version, and does not keep the document that this left.
func TestBlameKeepsNoDocuments(t *testing.T) {
	e := newEnv(t)
	const versions, size = 30, 200_000
	for version := range versions {
		var months []string
		for month := range version + 1 {
			months = append(months, fmt.Sprintf(`"%d":1`, month))
		}
		e.load("software", "a", fmt.Sprintf(`{"name":%q,"commit_history":{%s}}`, strings.Repeat(strconv.Itoa(version%10), size), strings.Join(months, ",")))
	}
	d, ctx := e.get("a").Document, e.begin()
	blame := must(e.store.Blame(ctx, d, []string{"commitHistory"}))(t)
	heap := func() int64 {
		runtime.GC()
		var now runtime.MemStats
		runtime.ReadMemStats(&now)
		return int64(now.HeapAlloc)
	}
	with := heap()
	if len(blame) != versions+1 || blame[1].Version() != 1 {
		t.Fatalf("explained: %d, the first by version %d", len(blame), blame[1].Version())
	}
	if without := heap(); with-without > versions*size/2 {
		t.Errorf("a blame of %d versions keeps %d bytes", versions, with-without)
	}
}

// Who names a field many times names it once: a page of versions keeps the names.
func TestNamesOfFieldsAreKeptOnce(t *testing.T) {
	e := newEnv(t)
	e.load("software", "a", `{"name":"a"}`)
	d, ctx := e.get("a").Document, e.begin()
	names := slices.Repeat([]string{"name", "tags"}, 9_000)
	pages := make([]any, 50)
	heap := func() int64 {
		for i := range pages {
			pages[i] = must(e.projects.Versions(ctx, d, nil, nil, nil, names, ptr(0), nil, nil, nil))(t)
		}
		runtime.GC()
		var now runtime.MemStats
		runtime.ReadMemStats(&now)
		return int64(now.HeapAlloc)
	}
	heap()
	with := heap()
	clear(pages)
	runtime.GC()
	var without runtime.MemStats
	runtime.ReadMemStats(&without)
	if kept := with - int64(without.HeapAlloc); kept > int64(len(pages))*20_000 {
		t.Errorf("%d pages keep %d bytes", len(pages), kept)
	}
}

// A total of changes holds none of them, and a page those that it shows.
func TestChangelogHoldsWhatItShows(t *testing.T) {
	const n = 20_000
	e := newEnv(t)
	for version := range 2 {
		e.load("software", "a", members(version, n))
	}
	d, ctx := e.get("a").Document, e.begin()
	few := allocated(func() {
		page := must(e.store.DocumentChangelog(ctx, d, nil, nil, nil, nil, ptr(2), nil, nil, nil))(t)
		if len(page.Nodes) != 2 {
			t.Errorf("%d changes", len(page.Nodes))
		}
	})
	page := must(e.store.DocumentChangelog(ctx, d, nil, nil, nil, nil, ptr(1), nil, nil, nil))(t)
	all := allocated(func() {
		if total := must(page.TotalCount(ctx))(t); total != 2*n+2 {
			t.Errorf("%d changes", total)
		}
	})
	if all > 3*few {
		t.Errorf("%d bytes are allocated for two changes, and %d to count all", few, all)
	}
	last := allocated(func() {
		page := must(e.store.DocumentChangelog(ctx, d, nil, nil, nil, nil, nil, nil, ptr(2), nil))(t)
		if len(page.Nodes) != 2 || page.Nodes[1].Version() != 1 {
			t.Errorf("%d changes", len(page.Nodes))
		}
	})
	if last > all*5/4 {
		t.Errorf("%d bytes are allocated for the two oldest changes, and %d to count all", last, all)
	}
}

// Of versions of more than 2 MB since the expected version, only the newest are compared.
func TestFewLargeVersionsAreComparedForAConflict(t *testing.T) {
	const versions = 9
	e := newEnv(t)
	for i := range versions {
		e.load("software", "a", fmt.Sprintf(`{"name":"a","stargazers_count":%d,"description":%q}`, i, strings.Repeat("x", 600_000)))
	}
	ctx := e.begin()
	lost := must(e.projects.Update(ctx, storage.UpdateInput{Key: "a", ExpectedVersion: 1, Patch: object{"name": "c"}}))(t)
	since := must(lost.(*storage.Conflict[*project]).ChangesSince(ctx))(t)
	if len(since) != 4 || since[len(since)-1].Version() != versions {
		t.Errorf("%d changes: %v", len(since), lines(since))
	}
}

// Of many changes since the expected version, the newest are listed, in their order.
func TestTheNewestChangesSince(t *testing.T) {
	e := newEnv(t, storage.WithLimits(storage.Limits{Details: 100_000}))
	for version := range 3 {
		e.load("software", "a", members(version, 1_700))
	}
	e.update("ann", "a", 3, object{"name": "b"})
	var all []*storage.FieldChange
	ctx := e.begin()
	versions := must(e.projects.Versions(ctx, e.get("a").Document, nil, nil, nil, nil, nil, nil, nil, nil))(t)
	for _, edge := range []int{1, 0} { // the newest is the first
		all = append(all, must(versions.Edges[edge].Changes())(t)...)
	}
	lost := must(e.projects.Update(ctx, storage.UpdateInput{Key: "a", ExpectedVersion: 1, Patch: object{"name": "c"}}))(t)
	since := must(lost.(*storage.Conflict[*project]).ChangesSince(ctx))(t)
	if diff := cmp.Diff(lines(all[len(all)-1000:]), lines(since)); diff != "" {
		t.Error(diff)
	}
}

// What is told of in diffs and changes, and the versions of a page of history, count as memory of
// their operation, and are refused with it.
func TestDetailsTakeMemory(t *testing.T) {
	kept, most := 0, 1<<30
	e := newEnv(t, storage.WithMemory(func(_ context.Context, bytes int) error {
		if kept += bytes; kept > most {
			return errors.New("too much in memory")
		}
		return nil
	}))
	for version := range 2 {
		e.load("software", "a", members(version, 50))
	}
	diff := func() error {
		kept = 0
		_, err := e.store.Diff(e.begin(), e.get("a").Document, storage.VersionRef{Version: ptr(1)}, nil)
		return err
	}
	if err := diff(); err != nil || kept < 100*500 || kept > 100*1000 {
		t.Errorf("%d bytes for 100 changes: %v", kept, err)
	}
	versions := func() error {
		kept = 0
		_, err := e.store.Versions(e.begin(), e.get("a").Document, &storage.VersionsArgs{})
		return err
	}
	if err := versions(); err != nil || kept < 2*len(members(0, 50)) {
		t.Errorf("%d bytes for two versions: %v", kept, err)
	}
	// The changes of a difference have the documents that the versions left which made them.
	for version := range 4 {
		e.load("software", "long", fmt.Sprintf(`{"name":%q,"stargazers_count":%d}`, strings.Repeat(strconv.Itoa(version), 10_000), version))
	}
	attributed := func(from int) int {
		d := must(e.store.Diff(e.begin(), e.get("long").Document, storage.VersionRef{Version: &from}, nil))(t)
		kept = 0
		must(d.Changes())(t)
		return kept
	}
	if last, all := attributed(3), attributed(1); last != 0 || all < 10_000 || all > 30_000 {
		t.Errorf("%d bytes for the difference that one version made, %d for that of three", last, all)
	}
	blame := func() error {
		kept = 0
		_, err := e.store.Blame(e.begin(), e.get("deep").Document, nil)
		return err
	}
	e.load("software", "deep", fmt.Sprintf(`{"name":"n","commit_history":%s1%s}`, strings.Repeat(`{"":`, 25), strings.Repeat("}", 25)))
	if err := blame(); err != nil || kept < 25*100 || kept > 25*200 {
		t.Errorf("%d bytes for the blame of a value in 25 others: %v", kept, err)
	}
	most = 50 * 500
	wantError(t, diff(), fault.CodeQueryTooComplex, "too much in memory")
	most = len(members(0, 50))
	wantError(t, versions(), fault.CodeQueryTooComplex, "too much in memory")
}
