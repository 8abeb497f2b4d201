package sqlitestore

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/asof/asof/storage/driver"
)

// A catalogue's real history is loaded, and reads of the past give what was
// taken independently of it.
func TestCatalogue(t *testing.T) {
	dir := os.Getenv("ASOF_TESTDATA")
	if dir == "" {
		t.Skip("ASOF_TESTDATA is not set; it names the directory of catalog-small.ndjson.gz")
	}
	s, err := open(t.Context(), filepath.Join(t.TempDir(), "asof.db"), Options{Sync: SyncOff, Collections: []driver.Collection{
		{Name: "software", Indexes: []driver.Index{
			{Path: []string{"stargazers_count"}, Kind: driver.KindInt},
			{Path: []string{"name"}, Kind: driver.KindString},
			{Path: []string{"tags"}, Kind: driver.KindString, List: true},
		}},
		{Name: "tags"},
		{Name: "platforms"},
		{Name: "licenses"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	f, err := os.Open(filepath.Join(dir, "catalog-small.ndjson.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var vs []driver.Version
	scan(t, bufio.NewScanner(z), func(text []byte) {
		var in struct {
			Collection, ID, By, Message, Source, Op string
			At                                      time.Time
			Data                                    json.RawMessage
		}
		if err := json.Unmarshal(text, &in); err != nil {
			t.Fatal(err)
		}
		v := driver.Version{
			Collection: in.Collection, Key: in.ID, RecordedAt: driver.InstantOf(in.At), Op: driver.OpImport,
			Author: in.By, Message: in.Message, Group: in.Source, Deleted: in.Op == "delete",
		}
		if !v.Deleted {
			v.Data = in.Data
		}
		vs = append(vs, v)
	})
	start := time.Now()
	if result, err := s.Load(t.Context(), vs); err != nil || result.Added != int64(len(vs)) {
		t.Fatalf("Load: %+v, %v", result, err)
	}
	t.Logf("loaded %d versions in %v", len(vs), time.Since(start))
	if result, err := s.Load(t.Context(), vs); err != nil || result.Skipped != int64(len(vs)) {
		t.Fatalf("the second Load: %+v, %v", result, err)
	}
	if err := s.Check(t.Context(), func(problem string) { t.Error(problem) }); err != nil {
		t.Fatal(err)
	}
	truth, err := os.Open(filepath.Join(dir, "catalog-truth.ndjson"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = truth.Close() }()
	reads := 0
	scan(t, bufio.NewScanner(truth), func(text []byte) {
		var want struct {
			Collection, ID string
			AsOf           time.Time
			Exists         bool
			Version        int64
			Data           json.RawMessage
		}
		if err := json.Unmarshal(text, &want); err != nil {
			t.Fatal(err)
		}
		reads++
		got, err := s.Get(t.Context(), want.Collection, []driver.Ref{{Key: want.ID, At: driver.InstantOf(want.AsOf)}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		v := got[0]
		switch {
		case v == nil && want.Version == 0:
		case v == nil || v.Number != want.Version || v.Deleted == want.Exists:
			t.Errorf("%s as of %s: %+v, want version %d", want.ID, want.AsOf, v, want.Version)
		case want.Exists && !sameJSON(t, v.Data, want.Data):
			t.Errorf("%s as of %s: %s, want %s", want.ID, want.AsOf, v.Data, want.Data)
		}
	})
	if reads == 0 {
		t.Error("nothing was compared")
	}
}

func scan(t *testing.T, s *bufio.Scanner, f func(text []byte)) {
	t.Helper()
	s.Buffer(nil, 16<<20)
	for s.Scan() {
		f(s.Bytes())
	}
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
}

func sameJSON(t *testing.T, a, b []byte) bool {
	t.Helper()
	var normal [2][]byte
	for i, text := range [][]byte{a, b} {
		var v any
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		if err := d.Decode(&v); err != nil {
			t.Fatal(err)
		}
		var err error
		if normal[i], err = json.Marshal(v); err != nil {
			t.Fatal(err)
		}
	}
	return bytes.Equal(normal[0], normal[1])
}
