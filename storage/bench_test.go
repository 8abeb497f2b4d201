package storage_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/record"
	"github.com/asof/asof/storage/sqlitestore"
)

// benchVersions is the length of the history that the benchmarks look at.
const benchVersions = 1400

func benchDocument(i, stars int) string {
	var months strings.Builder
	for m := range 36 {
		fmt.Fprintf(&months, `,"%d-%02d":%d`, 2020+(m+i/40)/12, (m+i/40)%12+1, m*7%50)
	}
	return fmt.Sprintf(`{"name":"Project %d","website_url":"https://example.org/%d","description":"Complete, reliable, secure and self-hosted, version %d.",`+
		`"tags":["a","b","c%d"],"stargazers_count":%d,"updated_at":"2026-01-%02d","archived":false,"current_release":{"tag":"v1.%d","published_at":"2025-12-01"},"commit_history":{%s}}`,
		i, i, i/100, i/300, stars, i%28+1, i/50, months.String()[1:])
}

type bench struct {
	store    *storage.Store
	projects *storage.Collection[*project]
	ctx      context.Context
}

// newBenchStore opens an embedded store for a benchmark.
func newBenchStore(b testing.TB, types []*record.Type, sync sqlitestore.Sync) *storage.Store {
	b.Helper()
	engine, err := sqlitestore.Open(b.Context(), filepath.Join(b.TempDir(), "bench.db"), sqlitestore.Options{Collections: storage.CollectionsOf(types), Sync: sync})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := engine.Close(); err != nil {
			b.Error(err)
		}
	})
	store, err := storage.New(engine, types)
	if err != nil {
		b.Fatal(err)
	}
	return store
}

// newBench fills an embedded store: one document with a long history, and 2,000
// with one version.
func newBench(b testing.TB) *bench {
	b.Helper()
	types := fixtureTypes()
	store := newBenchStore(b, types, sqlitestore.SyncOff)
	at := driver.InstantOf(time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC))
	var vs []driver.Version
	add := func(key, data string) {
		at += 1000
		vs = append(vs, driver.Version{Collection: "software", Key: key, RecordedAt: at, Author: "ann", Data: []byte(data)})
	}
	for i := range benchVersions {
		add("long", benchDocument(i, i))
	}
	for i := range 2000 {
		add(fmt.Sprintf("k%04d", i), benchDocument(i, i*7919%2000))
	}
	if _, err := store.Load(b.Context(), vs); err != nil {
		b.Fatal(err)
	}
	ctx, err := store.Begin(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	return &bench{store, storage.NewCollection(store, types[0], func(d *storage.Document) *project { return &project{d} }), ctx}
}

func BenchmarkFields(b *testing.B) {
	e := newBench(b)
	v, err := e.store.Engine().Get(b.Context(), "software", []driver.Ref{{Key: "long", Number: 1}}, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(v[0].Data)))
	for b.Loop() {
		docs, err := e.projects.Get(e.ctx, "long", nil, nil)
		if err != nil {
			b.Fatal(err)
		}
		for range 20 { // reading is paid for once by the index
			_, err1 := docs.String(fName)
			_, err2 := docs.OptString(fDescription)
			_, err3 := docs.OptInt(fStars)
			_, err4 := docs.OptString(fUpdatedAt)
			_, err5 := docs.Bool(fArchived)
			if err1 != nil || err2 != nil || err3 != nil || err4 != nil || err5 != nil {
				b.Fatal(err1, err2, err3, err4, err5)
			}
		}
	}
}

func BenchmarkPointRead(b *testing.B) {
	e := newBench(b)
	past := driver.InstantOf(time.Date(2024, 1, 1, 0, 0, 0, 700_000_000, time.UTC))
	for name, args := range map[string]struct {
		asOf    *driver.Instant
		version *int
	}{"current": {nil, nil}, "asOf": {&past, nil}, "version": {nil, ptr(700)}} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				d, err := e.projects.Get(e.ctx, "long", args.asOf, args.version)
				if err != nil || d == nil {
					b.Fatal(d, err)
				}
				if _, err := d.String(fName); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkPage(b *testing.B) {
	e := newBench(b)
	where := object{"stars": object{"gte": 100}, "archived": object{"eq": false}}
	order := []*storage.OrderInput{{Field: "stars", Direction: storage.Desc}}
	b.ReportAllocs()
	for b.Loop() {
		conn, err := e.projects.Page(e.ctx, where, order, ptr(50), nil, nil, nil, nil, nil)
		if err != nil || len(conn.Nodes) != 50 {
			b.Fatal(err)
		}
		for _, n := range conn.Nodes {
			if _, err := n.String(fName); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// BenchmarkHistory reads a whole history of 1,400 versions.
func BenchmarkHistory(b *testing.B) {
	e := newBench(b)
	h, err := e.projects.History(e.ctx, "long")
	if err != nil {
		b.Fatal(err)
	}
	b.Run("changelog", func(b *testing.B) {
		for b.Loop() {
			conn, err := e.store.DocumentChangelog(e.ctx, h.Document, nil, nil, nil, nil, ptr(20), nil, nil, nil)
			if err != nil {
				b.Fatal(err)
			}
			if n, err := conn.TotalCount(e.ctx); err != nil || n < benchVersions {
				b.Fatal(n, err)
			}
		}
	})
	b.Run("changelog page", func(b *testing.B) {
		for b.Loop() {
			if _, err := e.store.DocumentChangelog(e.ctx, h.Document, nil, nil, nil, nil, ptr(20), nil, nil, nil); err != nil {
				b.Fatal(err)
			}
		}
	})
	// An operation may tell of so many values.
	blame := func(b *testing.B, fields []string) []*storage.FieldBlame {
		ctx, err := e.store.Begin(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		blame, err := e.store.Blame(ctx, h.Document, fields)
		if err != nil {
			b.Fatal(err)
		}
		return blame
	}
	b.Run("blame", func(b *testing.B) {
		for b.Loop() {
			if found := blame(b, nil); len(found) < 10 {
				b.Fatal(found)
			}
		}
	})
	b.Run("blame of one field", func(b *testing.B) {
		for b.Loop() {
			if found := blame(b, []string{"stars"}); len(found) != 1 {
				b.Fatal(found)
			}
		}
	})
}

func BenchmarkUpdate(b *testing.B) {
	e := newBench(b)
	d, err := e.projects.Get(e.ctx, "long", nil, nil)
	if err != nil {
		b.Fatal(err)
	}
	version := d.Version()
	b.ReportAllocs()
	for b.Loop() {
		res, err := e.projects.Update(e.ctx, storage.UpdateInput{Key: "long", ExpectedVersion: version, Patch: object{"stars": version}})
		if err != nil {
			b.Fatal(err)
		}
		s, ok := res.(*storage.Success[*project])
		if !ok {
			b.Fatalf("%+v", res)
		}
		version = s.Version
	}
}

func BenchmarkValidate(b *testing.B) {
	t := fixtureTypes()[0]
	data := []byte(benchDocument(1, 1))
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := t.Validate(data); err != nil {
			b.Fatal(err)
		}
	}
}

// benchTogether makes documents in commits of several, or one by one, with a sync for each
// as in production.
func benchTogether(tb testing.TB, documents, together int) time.Duration {
	tb.Helper()
	types := fixtureTypes()
	engine, err := sqlitestore.Open(tb.Context(), filepath.Join(tb.TempDir(), "together.db"), sqlitestore.Options{Collections: storage.CollectionsOf(types)})
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = engine.Close() }()
	store, err := storage.New(engine, types)
	if err != nil {
		tb.Fatal(err)
	}
	began := time.Now()
	for first := 0; first < documents; first += together {
		in := storage.CommitInput[given]{Changes: make([]given, together)}
		for i := range in.Changes {
			in.Changes[i] = given{{Type: types[1], Input: &storage.CreateInput{Key: fmt.Sprint(first + i), Data: object{"name": "T"}}}}
		}
		result, err := storage.Commit(tb.Context(), store, in)
		if err != nil || len(result.(*storage.CommitSuccess).Results) != together {
			tb.Fatal(result, err)
		}
	}
	return time.Since(began)
}

func BenchmarkCommit(b *testing.B) {
	for _, together := range []int{1, 100} {
		b.Run(fmt.Sprint(together), func(b *testing.B) { benchTogether(b, b.N*together, together) })
	}
}

// A commit of a hundred documents takes much less than a hundred of one, one at a time.
func TestCommitOfManyIsCheaper(t *testing.T) {
	const documents, most = 400, 0.3
	var ratio float64
	for range 3 { // others may have the machine for a while
		if ratio = float64(benchTogether(t, documents, 100)) / float64(benchTogether(t, documents, 1)); ratio <= most {
			t.Logf("%.2f of the time", ratio)
			return
		}
	}
	t.Errorf("%d documents in commits of 100 take %.2f of the time of one at a time, want at most %.2f", documents, ratio, most)
}
