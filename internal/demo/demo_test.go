package demo_test

import (
	"bytes"
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/asof/asof/internal/demo"
	"github.com/asof/asof/internal/fixture/graph/model"
	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/drivertest"
	"github.com/asof/asof/storage/normal"
	"github.com/asof/asof/storage/record"
	"github.com/asof/asof/storage/transfer"
)

func versions(t *testing.T) []driver.Version {
	t.Helper()
	all, err := demo.Versions()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func newStore(t *testing.T) *storage.Store {
	t.Helper()
	clock := func() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }
	store, err := storage.New(drivertest.NewModel(clock, storage.CollectionsOf(model.Types)), model.Types)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// The catalogue is what the schema says, in normal form, and lies in 2025.
func TestVersionsAreValid(t *testing.T) {
	types := make(map[string]*record.Type)
	for _, typ := range model.Types {
		types[typ.Collection] = typ
	}
	from := driver.InstantOf(time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC))
	to := driver.InstantOf(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	before := make(map[string][]byte)
	for _, v := range versions(t) {
		if v.RecordedAt <= from || v.RecordedAt >= to {
			t.Errorf("%s %q is of %s", v.Collection, v.Key, v.RecordedAt)
		}
		from = v.RecordedAt
		id := v.Collection + "/" + v.Key
		if len(normal.Changed(before[id], v.Data)) == 0 {
			t.Errorf("%s of %s changes nothing", id, v.RecordedAt)
		}
		before[id] = v.Data
		if v.Deleted {
			continue
		}
		if undeclared, err := types[v.Collection].Validate(v.Data); err != nil || len(undeclared) > 0 {
			t.Errorf("%s %q of %s: %v, undeclared: %q", v.Collection, v.Key, v.RecordedAt, err, undeclared)
		}
		if n, err := normal.Object(v.Data); err != nil || !bytes.Equal(n, v.Data) {
			t.Errorf("%s %q of %s is not in normal form: %v", v.Collection, v.Key, v.RecordedAt, err)
		}
	}
}

// What the tour relies on: the story's moments are there.
func TestStory(t *testing.T) {
	operations := make(map[driver.Op]int)
	authors, groups := make(map[string]bool), make(map[string]int)
	documents := make(map[string]map[string]bool)
	for _, v := range versions(t) {
		operations[v.Op]++
		authors[v.Author] = true
		groups[v.Group]++
		if documents[v.Collection] == nil {
			documents[v.Collection] = make(map[string]bool)
		}
		documents[v.Collection][v.Key] = true
	}
	for collection, want := range map[string]int{"software": 40, "tags": 15, "licenses": 8, "platforms": 8} {
		if got := len(documents[collection]); got != want {
			t.Errorf("%d documents in %s, want %d", got, collection, want)
		}
	}
	if len(versions(t)) < 1900 {
		t.Errorf("only %d versions", len(versions(t)))
	}
	if operations[driver.OpRestore] != 3 || operations[driver.OpDelete] != 4 || len(authors) != 8 {
		t.Errorf("operations %v, authors %v", operations, authors)
	}
	if groups["stars-2025-w25"] < 25 || groups["reading"] != 5 {
		t.Errorf("groups %v", groups)
	}

	type project struct {
		Name        string
		Description string
		Licenses    []string
		Tags        []string
		Current     struct{ Tag string } `json:"current_release"`
	}
	tests := []struct {
		key, at string
		want    func(*project) bool // nil: does not exist then
	}{
		{"lanternfish", "2025-01-01T08:59:59Z", nil},
		{"lanternfish", "2025-06-14T11:45:00Z", func(p *project) bool { return len(p.Tags) == 0 && p.Description[:6] == "DO NOT" }},
		{"lanternfish", "2025-06-14T12:00:00Z", func(p *project) bool { return cmp.Equal(p.Tags, []string{"photos", "files"}) }},
		{"lanternfish", "2025-10-01T00:00:00Z", func(p *project) bool { return cmp.Equal(p.Licenses, []string{"Lantern-SAL-1.0"}) }},
		{"lanternfish", "2025-12-31T00:00:00Z", func(p *project) bool {
			return p.Name == "Lanternfish Photos" && cmp.Equal(p.Licenses, []string{"AGPL-3.0"}) && p.Current.Tag == "v3.1.0"
		}},
		{"pebblechat", "2025-03-02T00:00:00Z", func(p *project) bool { return cmp.Equal(p.Licenses, []string{"MIT"}) }},
		{"pebblechat", "2025-06-01T00:00:00Z", nil},
		{"pebblechat", "2025-09-01T00:00:00Z", func(p *project) bool { return cmp.Equal(p.Licenses, []string{"AGPL-3.0"}) }},
		{"pencil-margin", "2025-05-20T00:00:00Z", func(p *project) bool { return cmp.Equal(p.Tags, []string{"notes", "bookmarks"}) }},
		{"openfish", "2025-12-31T00:00:00Z", func(p *project) bool { return cmp.Equal(p.Tags, []string{"photos"}) }},
	}
	store := newStore(t)
	if filled, err := demo.Filled(t.Context(), store.Engine()); err != nil || filled {
		t.Errorf("filled before: %v, %v", filled, err)
	}
	if filled, err := demo.Fill(t.Context(), store); err != nil || !filled {
		t.Fatalf("filled: %v, %v", filled, err)
	}
	for _, test := range tests {
		t.Run(test.key+"@"+test.at, func(t *testing.T) {
			at, err := time.Parse(time.RFC3339, test.at)
			if err != nil {
				t.Fatal(err)
			}
			got, err := store.Engine().Get(t.Context(), "software", []driver.Ref{{Key: test.key, At: driver.InstantOf(at)}}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if exists := got[0] != nil && !got[0].Deleted; exists != (test.want != nil) {
				t.Fatalf("exists: %v", exists)
			} else if !exists {
				return
			}
			var p project
			if err := json.Unmarshal(got[0].Data, &p); err != nil {
				t.Fatal(err)
			}
			if !test.want(&p) {
				t.Errorf("is %+v", p)
			}
		})
	}
}

func TestFillOnlyAnEmptyStore(t *testing.T) {
	store := newStore(t)
	if filled, err := demo.Filled(t.Context(), store.Engine()); err != nil || filled {
		t.Errorf("filled before: %v, %v", filled, err)
	}
	if filled, err := demo.Fill(t.Context(), store); err != nil || !filled {
		t.Fatalf("filled: %v, %v", filled, err)
	}
	count := func() int64 {
		stats, err := store.Engine().Stats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return stats.Versions
	}
	if got, want := count(), int64(len(versions(t))); got != want {
		t.Errorf("%d versions are there, want %d", got, want)
	}
	if filled, err := demo.Fill(t.Context(), store); err != nil || filled {
		t.Errorf("filled again: %v, %v", filled, err)
	}
	// It is data like any other.
	var out bytes.Buffer
	if _, err := transfer.Export(t.Context(), store, &out, transfer.ExportOptions{}); err != nil {
		t.Fatal(err)
	}
	other := newStore(t)
	report, err := transfer.Import(context.WithoutCancel(t.Context()), other, &out, transfer.ImportOptions{})
	for _, s := range []*storage.Store{store, other} {
		if filled, err := demo.Filled(t.Context(), s.Engine()); err != nil || !filled {
			t.Errorf("not filled: %v, %v", filled, err)
		}
	}
	if err != nil || report.Added != count() || len(report.Remarks) != 0 {
		t.Errorf("exported and imported: %+v, %v", report, err)
	}
}
