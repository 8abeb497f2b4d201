package sqlitestore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/asof/asof/storage/driver"
)

// The benchmarks work on documents like those of a catalogue: about 600
// bytes, with three indexed fields.
const benchCollection = "software"

func benchDeclared() []driver.Collection {
	return []driver.Collection{{Name: benchCollection, Indexes: []driver.Index{
		{Path: []string{"stars"}, Kind: driver.KindInt},
		{Path: []string{"licence"}, Kind: driver.KindString},
		{Path: []string{"tags"}, Kind: driver.KindString, List: true},
	}}}
}

const benchDescription = "A self-hosted application that does one thing, described at the length that such descriptions have in a catalogue, " +
	"which is a sentence or two with some details of the protocols that it speaks and of the systems that it runs on."

func benchData(doc, version int, stars int) []byte {
	return fmt.Appendf(nil, `{"name":"Project %d","description":"%s","website_url":"https://project-%d.example.org/","source_code_url":"https://git.example.org/project-%d",`+
		`"licence":"L%d","platforms":["Go","Docker"],"tags":["T%d","T%d"],"stars":%d,"archived":%t,"updated_at":"2024-%02d-%02d","current_release":{"tag":"v1.%d.0","published_at":"2024-01-02"},"commit_history":{"2024-01":%d,"2024-02":%d}}`,
		doc, benchDescription, doc, doc, doc%200, doc%83, doc%97, stars, doc%11 == 0, version%12+1, version%28+1, version, version, doc)
}

func benchStore(b testing.TB, opts Options) *Store {
	b.Helper()
	if opts.Collections == nil {
		opts.Collections = benchDeclared()
	}
	s, err := open(context.Background(), filepath.Join(b.TempDir(), "bench.db"), opts)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := s.Close(); err != nil {
			b.Error(err)
		}
	})
	return s
}

func benchKey(doc int) string { return fmt.Sprintf("project-%05d", doc) }

var benchStart = driver.InstantOf(time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC))

// benchVersions returns versions of documents in the order of time: each
// changes the stars of one of them.
func benchVersions(docs, versions int) []driver.Version {
	rng := rand.New(rand.NewPCG(1, 2))
	out := make([]driver.Version, 0, versions)
	count := make([]int, docs)
	for i := range versions {
		doc := i
		if i >= docs {
			doc = rng.IntN(docs)
		}
		count[doc]++
		out = append(out, driver.Version{
			Collection: benchCollection, Key: benchKey(doc), RecordedAt: benchStart + driver.Instant(i)*1000,
			Op: driver.OpImport, Author: "ann", Message: "update", Group: "g", Changed: []string{"stars"},
			Data: benchData(doc, count[doc], rng.IntN(50_000)),
		})
	}
	return out
}

func benchLoad(b testing.TB, s driver.Engine, vs []driver.Version) {
	b.Helper()
	for len(vs) > 0 {
		n := min(len(vs), 10_000)
		if _, err := s.Load(context.Background(), vs[:n]); err != nil {
			b.Fatal(err)
		}
		vs = vs[n:]
	}
}

func BenchmarkGet(b *testing.B) {
	s := benchStore(b, Options{Sync: SyncOff}).guarded()
	benchLoad(b, s, benchVersions(2000, 20_000))
	for _, versions := range []int{10, 100_000} {
		key := fmt.Sprintf("grown-%d", versions)
		var vs []driver.Version
		for i := range versions {
			vs = append(vs, driver.Version{
				Collection: benchCollection, Key: key, RecordedAt: benchStart + driver.Instant(i), Op: driver.OpImport, Data: benchData(i%7, i, i%50),
			})
		}
		benchLoad(b, s, vs)
		for _, test := range []struct {
			name string
			ref  func(i int) driver.Ref
		}{
			{"current", func(int) driver.Ref { return driver.Ref{Key: key, At: driver.Forever} }},
			{"asOf", func(i int) driver.Ref { return driver.Ref{Key: key, At: benchStart + driver.Instant(i*7919%versions)} }},
			{"version", func(i int) driver.Ref { return driver.Ref{Key: key, Number: int64(i*7919%versions) + 1} }},
		} {
			b.Run(fmt.Sprintf("%s/versions=%d", test.name, versions), func(b *testing.B) {
				b.ReportAllocs()
				i := 0
				for b.Loop() {
					i++
					got, err := s.Get(context.Background(), benchCollection, []driver.Ref{test.ref(i)}, nil)
					if err != nil || got[0] == nil {
						b.Fatal(got, err)
					}
				}
			})
		}
	}
}

func BenchmarkPage(b *testing.B) {
	s := benchStore(b, Options{Sync: SyncOff}).guarded()
	const docs, versions = 2000, 100_000
	benchLoad(b, s, benchVersions(docs, versions))
	stars := driver.Field{Path: []string{"stars"}, Kind: driver.KindInt}
	licence := driver.Field{Path: []string{"licence"}, Kind: driver.KindString}
	key := driver.Field{Meta: driver.MetaKey, Kind: driver.KindString}
	archived := driver.Field{Path: []string{"archived"}, Kind: driver.KindBool}
	tags := driver.Field{Path: []string{"tags"}, Kind: driver.KindString}
	for _, at := range []struct {
		name string
		at   driver.Instant
	}{
		{"current", driver.Forever},
		{"asOf", benchStart + versions/2*1000},
	} {
		for _, test := range []struct {
			name string
			q    driver.Query
		}{
			{"byKey", driver.Query{}},
			{"byIndex", driver.Query{Order: []driver.Order{{Field: stars}}}},
			{"byIndexDescending", driver.Query{Order: []driver.Order{{Field: stars, Desc: true}}}},
			{"range", driver.Query{Filter: driver.Compare{Field: stars, Op: driver.Ge, Value: int64(25_000)}, Order: []driver.Order{{Field: stars}}}},
			{"equal", driver.Query{Filter: driver.Compare{Field: licence, Op: driver.Eq, Value: "L7"}, Order: []driver.Order{{Field: stars, Desc: true}}}},
			{"tag", driver.Query{Filter: driver.Any{Field: tags, Filter: driver.Compare{Field: driver.Field{Kind: driver.KindString}, Op: driver.Eq, Value: "T3"}}}},
			{"keyIn", driver.Query{Filter: driver.In{Field: key, Values: []driver.Value{benchKey(1), benchKey(70), benchKey(700), benchKey(1500)}}}},
			{"keyStart", driver.Query{Filter: driver.Text{Field: key, Op: driver.HasPrefix, Value: benchKey(100)[:len(benchKey(100))-1]}, Order: []driver.Order{{Field: stars}}}},
			{"residual", driver.Query{Filter: driver.Compare{Field: archived, Op: driver.Eq, Value: false}, Order: []driver.Order{{Field: stars, Desc: true}}}},
		} {
			b.Run(test.name+"/"+at.name, func(b *testing.B) {
				b.ReportAllocs()
				q := test.q
				q.Collection, q.At, q.Limit = benchCollection, at.at, 50
				for b.Loop() {
					if got, err := s.Query(context.Background(), &q); err != nil || len(got) < 4 {
						b.Fatal(len(got), err)
					}
				}
			})
		}
	}
}

// BenchmarkScan compares an unindexed filter with the bare SQL scan that has
// the same predicate, on the same file.
func BenchmarkScan(b *testing.B) {
	s := benchStore(b, Options{Sync: SyncOff})
	benchLoad(b, s, benchVersions(2000, 20_000))
	name := driver.Field{Path: []string{"current_release", "tag"}, Kind: driver.KindString}
	q := driver.Query{Collection: benchCollection, At: driver.Forever, Limit: 50, Filter: driver.Compare{Field: name, Op: driver.Eq, Value: "v1.27.0"}}
	b.Run("engine", func(b *testing.B) {
		for b.Loop() {
			if _, err := s.Query(context.Background(), &q); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("bare", func(b *testing.B) {
		c, err := s.readers.get(context.Background())
		if err != nil {
			b.Fatal(err)
		}
		defer s.readers.put(c)
		for b.Loop() {
			if err := sqlitex.Execute(c.Conn, `SELECT key, data FROM documents WHERE json_extract(data, '$.current_release.tag') = 'v1.27.0' LIMIT 50`,
				&sqlitex.ExecOptions{ResultFunc: func(*sqlite.Stmt) error { return nil }}); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkCommit(b *testing.B) {
	for _, mode := range []struct {
		name string
		sync Sync
	}{{"fsync", SyncFull}, {"nosync", SyncOff}} {
		b.Run(mode.name+"/clients=32", func(b *testing.B) {
			s := benchStore(b, Options{Sync: mode.sync}).guarded()
			const clients = 32
			var number [clients]int64
			var next, ids atomic.Int64
			b.SetParallelism((clients + 1) / 2)
			b.RunParallel(func(pb *testing.PB) {
				me := int(next.Add(1) - 1)
				for pb.Next() {
					_, err := driver.CommitOne(context.Background(), s, &driver.Write{
						ID: fmt.Sprintf("%036d", ids.Add(1)), Collection: benchCollection, Key: benchKey(me), Expected: number[me], Op: driver.OpUpdate,
						Author: "ann", Changed: []string{"stars"}, Data: benchData(me, int(number[me]), int(number[me])%50_000),
					})
					if err != nil {
						b.Error(err)
						return
					}
					number[me]++
				}
			})
		})
	}
	s := benchStore(b, Options{Sync: SyncOff}).guarded()
	for _, versions := range []int{10, 10_000} {
		b.Run(fmt.Sprintf("history=%d", versions), func(b *testing.B) {
			key, n, id := fmt.Sprintf("h%d-%d", versions, b.N), int64(0), 0
			vs := make([]driver.Version, versions)
			for i := range vs {
				vs[i] = driver.Version{Collection: benchCollection, Key: key, RecordedAt: benchStart + driver.Instant(i), Op: driver.OpImport, Data: benchData(1, i, i)}
			}
			benchLoad(b, s, vs)
			n = int64(versions)
			for b.Loop() {
				id++
				if _, err := driver.CommitOne(context.Background(), s, &driver.Write{
					ID: fmt.Sprintf("%s-%d", key, id), Collection: benchCollection, Key: key, Expected: n, Op: driver.OpUpdate, Data: benchData(1, id, id%50),
				}); err != nil {
					b.Fatal(err)
				}
				n++
			}
		})
	}
}
