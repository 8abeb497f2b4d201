package storage_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/record"
)

func blamed(t *testing.T, e *env, fields ...string) (out []string) {
	t.Helper()
	for _, b := range must(e.store.Blame(e.begin(), e.get("a").Document, fields))(t) {
		out = append(out, fmt.Sprintf("%s v%d %v", b.Path, b.Version(), b.AtOrBefore()))
	}
	return out
}

// gap is a store of n versions of a document, of which the first is kept by a tag and the last as they are given.
func gap(t *testing.T, n, keep int, data func(i int) string) *env {
	t.Helper()
	e := newEnvOf(t, keepTypes(&record.Keep{Versions: keep}), nil)
	for i := range n {
		e.load("software", "a", data(i))
		if i == 0 {
			if err := e.tag("a", 1, "kept"); err != nil {
				t.Fatal(err)
			}
		}
	}
	e.clock.advance(2 * record.Grace)
	if got := pruneAll(t, e, false); got != n-keep-1 {
		t.Fatalf("%d were pruned", got)
	}
	return e
}

// Name is A in the first, B in the second, A again from then on: 3 has set it, which was pruned.
func TestBlameBehindAGap(t *testing.T) {
	for _, c := range []struct{ n, keep int }{{12, 3}, {200, 100}} {
		e := gap(t, c.n, c.keep, func(i int) string {
			return fmt.Sprintf(`{"name":%q,"tags":[],"stargazers_count":%d}`, map[bool]string{true: "B"}[i == 1]+"A", i)
		})
		first := c.n - c.keep + 1
		name := fmt.Sprintf("/name v%d true", first)
		if got := blamed(t, e, "name"); !slices.Equal(got, []string{name}) {
			t.Errorf("%v: the name alone: %v, want %s", c, got, name)
		}
		if got := blamed(t, e); !slices.Contains(got, name) {
			t.Errorf("%v: all: %v, want %s", c, got, name)
		}
	}
}

// What only versions can have changed that were pruned is of the first that is left, not of one outside the difference.
func TestDiffOverAGap(t *testing.T) {
	for _, n := range []int{12, 200} {
		e := gap(t, n, n/2, func(i int) string {
			stars := i
			if n == 12 {
				stars %= 2
			}
			return fmt.Sprintf(`{"name":%q,"tags":[],"stargazers_count":%d}`, map[bool]string{true: "A", false: "B"}[i == 0], stars)
		})
		for _, to := range []int{n/2 + 3, n - 3} {
			df := must(e.store.Diff(e.begin(), e.get("a").Document, storage.VersionRef{Version: ptr(1)}, &storage.VersionRef{Version: ptr(to)}))(t)
			for _, c := range must(df.Changes())(t) {
				if c.Path == "/name" && c.Version() != n/2+1 {
					t.Errorf("of 1 to %d, %s is of %d, want %d", to, c.Path, c.Version(), n/2+1)
				}
			}
		}
	}
}

// A version that may not be read is a deletion to who asks, which has removed all.
func TestDiffToWhatIsHidden(t *testing.T) {
	types := fixtureTypes()
	types[0].Auth = record.Auth{Rows: `description = $sub`}
	e := newEnvOf(t, types, nil)
	for _, data := range []string{`"A","description":"ada"`, `"B","description":"ada"`, `"B","description":"bob"`, `"C","description":"bob"`} {
		e.load("software", "p", fmt.Sprintf(`{"tags":[],"name":%s}`, data))
	}
	ctx := e.by("ada", nil)
	p := must(e.projects.Get(ctx, "p", nil, ptr(1)))(t)
	df := must(e.store.Diff(ctx, p.Document, storage.VersionRef{Version: ptr(1)}, &storage.VersionRef{Version: ptr(3)}))(t)
	for _, c := range must(df.Changes())(t) {
		if c.Version() != 3 {
			t.Errorf("%v was removed by %d, want 3", lines([]*storage.FieldChange{c}), c.Version())
		}
	}
}

// A migration makes a member of a version that has none: it is of the version that created the document again.
func TestBlameOfWhatAMigrationMakes(t *testing.T) {
	e := newEnv(t)
	for _, data := range []string{`{}`, ``, `{}`, `{"description":"d"}`} {
		e.load("software", "a", data)
	}
	for i := range 100 {
		e.load("software", "a", fmt.Sprintf(`{"description":"d","checkedAt":"x%d"}`, i))
	}
	hook := func(old json.RawMessage, _ uint32) (json.RawMessage, error) {
		var m map[string]any
		if err := json.Unmarshal(old, &m); err != nil {
			return nil, err
		}
		m["name"] = "made"
		return json.Marshal(m)
	}
	store := must(storage.New(e.engine, fixtureTypes(), storage.WithMigrations(map[string]storage.Migration{"Project": hook})))(t)
	for _, fields := range [][]string{nil, {"name"}} {
		d := must(store.Document(e.begin(), store.Types()[0], "a", nil, nil, nil))(t)
		for _, b := range must(store.Blame(e.begin(), d, fields))(t) {
			if b.Path == "/name" && b.Version() != 3 {
				t.Errorf("%v: %s is of %d, want 3", fields, b.Path, b.Version())
			}
		}
	}
}

// A document's changelog and that of all tell the same.
func TestChangelogsOfWhatIsPrunedAndHidden(t *testing.T) {
	types := keepTypes(&record.Keep{Versions: 2})
	types[0].Auth = record.Auth{Rows: `description = $sub`}
	e := newEnvOf(t, types, nil)
	for i, who := range []string{"ada", "bob", "bob", "bob", "bob", "bob"} {
		e.load("software", "p", fmt.Sprintf(`{"tags":[],"name":"n%d","description":%q}`, i, who))
		if i == 0 {
			must(e.projects.TagVersion(e.by("ada", nil), storage.TagVersionInput{Key: "p", Version: 1, Name: "x"}))(t)
		}
	}
	e.clock.advance(2 * record.Grace)
	pruneAll(t, e, false)
	ctx := e.by("ada", nil)
	p := must(e.projects.Get(ctx, "p", nil, ptr(1)))(t)
	one := must(e.store.DocumentChangelog(ctx, p.Document, nil, nil, nil, nil, ptr(100), nil, nil, nil))(t)
	all := must(e.store.Changelog(ctx, nil, ptr(100), nil, nil, nil))(t)
	if diff := cmp.Diff(lines(all.Nodes), lines(one.Nodes)); diff != "" {
		t.Errorf("-all +one:\n%s", diff)
	}
}

// An error of a commit says from which instant on the past is complete, as that of one change does.
func TestEarliestOfACommit(t *testing.T) {
	e := newEnvOf(t, keepTypes(&record.Keep{Versions: 2}), nil)
	for i := range 5 {
		e.load("software", "a", fmt.Sprintf(`{"name":"%d","tags":[]}`, i))
	}
	e.clock.advance(2 * record.Grace)
	pruneAll(t, e, false)
	in := storage.RestoreInput{Key: "a", ExpectedVersion: 5, To: &storage.VersionRef{Version: ptr(1)}}
	_, alone := e.projects.Restore(e.as("ann"), in)
	_, committed := e.commit(e.as("ann"), e.change("Project", &in))
	if a, c := earliestOf(t, alone), earliestOf(t, committed); a == 0 || a != c {
		t.Errorf("alone %s, in a commit %s", a, c)
	}
}

// The messages of the versions that explain something count as memory.
func TestBlameCountsMessages(t *testing.T) {
	kept := 0
	e := newEnvOf(t, fixtureTypes(), nil, storage.WithMemory(func(_ context.Context, bytes int) error { kept += bytes; return nil }))
	e.create("a", object{"name": "n", "tags": []any{}})
	const versions, message = 30, 16 << 10
	months := map[string]any{}
	for i := range versions {
		months[fmt.Sprint("m", i)] = i
		must(e.projects.Update(e.as("ann"), storage.UpdateInput{
			Key: "a", ExpectedVersion: i + 1, Patch: object{"commitHistory": months}, Message: ptr(strings.Repeat("x", message)),
		}))(t)
	}
	d, ctx := e.get("a").Document, e.begin()
	kept = 0
	must(e.store.Blame(ctx, d, []string{"commitHistory"}))(t)
	if kept < versions*message || kept > 2*versions*message {
		t.Errorf("%d bytes are counted for %d messages of %d", kept, versions, message)
	}
}
