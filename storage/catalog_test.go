package storage_test

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/diff"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/normal"
	"github.com/asof/asof/storage/record"
	"github.com/asof/asof/storage/sqlitestore"
)

// readLines decodes a file of JSON lines, which may be compressed.
func readLines[T any](t *testing.T, path string) []T {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	var r io.Reader = f
	if strings.HasSuffix(path, ".gz") {
		if r, err = gzip.NewReader(f); err != nil {
			t.Fatal(err)
		}
	}
	var out []T
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var v T
		if err := json.Unmarshal(lines.Bytes(), &v); err != nil {
			t.Fatal(err)
		}
		out = append(out, v)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

type event struct {
	Collection, ID, By, Message, Source, Op string
	At                                      time.Time
	Data                                    json.RawMessage
}

// TestRealHistories loads real histories and compares reads at instants and
// changelogs of fields with what was derived from their sources independently.
func TestRealHistories(t *testing.T) {
	dir := os.Getenv("ASOF_TESTDATA")
	if dir == "" {
		t.Skip("ASOF_TESTDATA is not set: it names the directory with the real histories")
	}
	for name, files := range map[string][3]string{
		"catalog": {"catalog-small.ndjson.gz", "catalog-truth.ndjson", "catalog-changelog.ndjson"},
		"zones":   {"zones/zones.ndjson.gz", "zones/zones-truth.ndjson", "zones/zones-changelog.ndjson"},
	} {
		t.Run(name, func(t *testing.T) {
			events := readLines[event](t, filepath.Join(dir, files[0]))
			s := openHistories(t, events)
			checkTruth(t, s, filepath.Join(dir, files[1]))
			checkChangelogs(t, s, filepath.Join(dir, files[2]))
		})
	}
}

// openHistories loads the events into an embedded store whose types have a JSON
// field for every member that occurs.
func openHistories(t *testing.T, events []event) *storage.Store {
	t.Helper()
	var types []*record.Type
	byCollection := map[string]*record.Type{}
	seen := map[string]bool{}
	var vs []driver.Version
	for _, e := range events {
		typ := byCollection[e.Collection]
		if typ == nil {
			typ = &record.Type{Name: e.Collection, Collection: e.Collection}
			byCollection[e.Collection] = typ
			types = append(types, typ)
		}
		v := driver.Version{Collection: e.Collection, Key: e.ID, RecordedAt: driver.InstantOf(e.At), Author: e.By, Message: e.Message, Group: e.Source, Deleted: e.Op == "delete"}
		if !v.Deleted {
			data, err := normal.Object(e.Data)
			if err != nil {
				t.Fatal(err)
			}
			v.Data = data
			for _, m := range diff.Members(data) {
				if id := e.Collection + "/" + m.Name; !seen[id] {
					seen[id] = true
					typ.Fields = append(typ.Fields, record.Field{Name: m.Name + "_", Stored: m.Name, Kind: record.KindJSON})
				}
			}
		}
		vs = append(vs, v)
	}
	engine, err := sqlitestore.Open(t.Context(), filepath.Join(t.TempDir(), "real.db"), sqlitestore.Options{
		Collections: storage.CollectionsOf(types), Sync: sqlitestore.SyncOff,
		Clock: func() time.Time { return time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC) }, // the files ask for states far in the future
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := engine.Close(); err != nil {
			t.Error(err)
		}
	})
	s, err := storage.New(engine, types)
	if err != nil {
		t.Fatal(err)
	}
	for len(vs) > 0 {
		n := min(len(vs), 5000)
		if _, err := s.Load(t.Context(), vs[:n]); err != nil {
			t.Fatal(err)
		}
		vs = vs[n:]
	}
	return s
}

func documents(s *storage.Store, collection string) *storage.Collection[*project] {
	return storage.NewCollection(s, s.ByCollection()[collection], func(d *storage.Document) *project { return &project{d} })
}

func checkTruth(t *testing.T, s *storage.Store, path string) {
	t.Helper()
	for _, line := range readLines[struct {
		Collection, ID string
		AsOf           time.Time
		Exists         bool
		Version        int
		Data           json.RawMessage
	}](t, path) {
		at := driver.InstantOf(line.AsOf)
		d := must(documents(s, line.Collection).Get(t.Context(), line.ID, &at, nil))(t)
		if (d != nil) != line.Exists {
			t.Errorf("%s as of %s exists: %v", line.ID, at, d != nil)
			continue
		}
		if d == nil {
			continue
		}
		ref := storage.VersionRef{AsOf: &at}
		got := must(s.Diff(t.Context(), d.Document, ref, &ref))(t)
		want := must(normal.Object(line.Data))(t)
		var renamed []byte
		for _, m := range diff.Members(want) {
			renamed = append(append(renamed, `,"`+m.Name+`_":`...), m.Value...)
		}
		if d.Version() != line.Version || !normal.Equal([]byte("{"+strings.TrimPrefix(string(renamed), ",")+"}"), got.After()) {
			t.Errorf("%s as of %s is version %d, not %d: %s", line.ID, at, d.Version(), line.Version, got.After())
		}
	}
}

func checkChangelogs(t *testing.T, s *storage.Store, path string) {
	t.Helper()
	for _, line := range readLines[struct {
		Collection, ID string
		Path           []string
		Versions       int
		Changes        []struct {
			Version  int
			At       time.Time
			By       string
			From, To json.RawMessage
		}
	}](t, path) {
		h := must(documents(s, line.Collection).History(t.Context(), line.ID))(t)
		prefix := diff.Join("", line.Path[0]+"_")
		for _, name := range line.Path[1:] {
			prefix = diff.Join(prefix, name)
		}
		var want []string
		for _, c := range line.Changes {
			want = append(want, driver.InstantOf(c.At).String()+" "+c.By)
		}
		var got []string
		last := 0
		var before *string
		for {
			conn := must(s.DocumentChangelog(t.Context(), h.Document, []string{line.Path[0] + "_"}, nil, nil, nil, nil, nil, ptr(100), before))(t)
			for i := range conn.Nodes {
				c := conn.Nodes[len(conn.Nodes)-1-i]
				// A change of the path, of something inside it, or of something around it that holds it.
				inside := c.Path == prefix || strings.HasPrefix(c.Path, prefix+"/")
				around := strings.HasPrefix(prefix, c.Path+"/") && (holds(c.OldValue, strings.TrimPrefix(prefix, c.Path)) || holds(c.NewValue, strings.TrimPrefix(prefix, c.Path)))
				if (inside || around) && c.Version() != last {
					last = c.Version()
					got = append(got, c.ChangedAt().String()+" "+c.ChangedBy().ID)
				}
			}
			if before = conn.PageInfo.StartCursor(); !conn.PageInfo.HasPreviousPage {
				break
			}
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s %s: %s", line.ID, prefix, d)
		}
		if h.Version() != line.Versions {
			t.Errorf("%s has %d versions, not %d", line.ID, h.Version(), line.Versions)
		}
	}
}

// holds reports whether a value has something at a path of member names.
func holds(raw json.RawMessage, path string) bool {
	names, _ := diff.Split(path)
	for _, name := range names {
		var found []byte
		for _, m := range diff.Members(raw) {
			if m.Name == name {
				found = m.Value
			}
		}
		if raw = found; raw == nil {
			return false
		}
	}
	return raw != nil
}
