package sqlitestore

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
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
		defer s.readers.release(c)
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

// BenchmarkBeside compares reads with the bare statements that find the same on
// the same file, prepared, without a filter, an order within equal values, or a
// version made of what they find: what SQLite itself takes. The engine runs with
// versions kept in memory, and without.
func BenchmarkBeside(b *testing.B) {
	const docs, versions = 2000, 100_000
	past := benchStart + driver.Instant(versions/2*1000)
	q := driver.Query{Collection: benchCollection, Order: []driver.Order{{Field: driver.Field{Path: []string{"stars"}, Kind: driver.KindInt}, Desc: true}}, Limit: 50}
	for _, kept := range []int{0, -1} {
		s := benchStore(b, Options{Sync: SyncOff, VersionCache: kept})
		benchLoad(b, s, benchVersions(docs, versions))
		if _, err := s.Query(context.Background(), &q); err != nil { // what a load leaves to do is done
			b.Fatal(err)
		}
		name := "engine"
		if kept < 0 {
			name = "engine, nothing kept"
		}
		for _, at := range []struct {
			name string
			at   driver.Instant
		}{{"current", driver.Forever}, {"asOf", past}} {
			b.Run("point/"+at.name+"/"+name, func(b *testing.B) {
				i := 0
				for b.Loop() {
					i++
					ref := driver.Ref{Key: benchKey(i * 7 % docs), At: at.at}
					if got, err := s.Get(context.Background(), benchCollection, []driver.Ref{ref}, nil); err != nil || got[0] == nil {
						b.Fatal(got, err)
					}
				}
			})
			b.Run("page/"+at.name+"/"+name, func(b *testing.B) {
				q := q
				q.At = at.at
				for b.Loop() {
					if got, err := s.Query(context.Background(), &q); err != nil || len(got) != 50 {
						b.Fatal(len(got), err)
					}
				}
			})
		}
		if kept < 0 {
			benchBare(b, s, docs, past)
		}
	}
}

func benchBare(b *testing.B, s *Store, docs int, past driver.Instant) {
	c, err := s.readers.get(context.Background())
	if err != nil {
		b.Fatal(err)
	}
	defer s.readers.release(c)
	coll := s.byName[benchCollection]
	// look runs a statement that finds one row, and looks at its document.
	look := func(query string, args ...any) int {
		st, err := c.Prepare(query)
		if err != nil {
			b.Fatal(err)
		}
		for i, a := range args {
			if text, ok := a.(string); ok {
				st.BindText(i+1, text)
			} else {
				st.BindInt64(i+1, a.(int64))
			}
		}
		row, err := st.Step()
		if !row || err != nil {
			b.Fatal(row, err)
		}
		n := len(c.raw(st, colData))
		if err := finish(st, nil); err != nil {
			b.Fatal(err)
		}
		return n
	}
	b.Run("point/current/bare", func(b *testing.B) {
		i := 0
		for b.Loop() {
			i++
			look(sqlDocumentByKey, coll.id, benchKey(i*7%docs))
		}
	})
	b.Run("point/asOf/bare", func(b *testing.B) {
		i := 0
		for b.Loop() {
			i++
			look(sqlVersionAt, int64(docOf(coll.id, int64(i*7%docs)+1)), int64(past))
		}
	})
	for _, at := range []struct {
		name string
		at   driver.Instant
	}{{"current", driver.Forever}, {"asOf", past}} {
		b.Run("page/"+at.name+"/bare", func(b *testing.B) {
			r := s.newRun(context.Background(), &driver.Query{Collection: benchCollection, At: at.at})
			r.c = c
			err := r.begin()
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				n := 0
				if err := r.walk(coll.indexes[0], bound{value: everything.low}, bound{value: everything.high}, true, func(e indexEntry) (bool, error) {
					if at.at == driver.Forever {
						look(sqlDocumentByID, int64(e.doc))
					} else {
						look(sqlVersionAt, int64(e.doc), int64(at.at))
					}
					n++
					return n < 50, nil
				}); err != nil || n < 50 {
					b.Fatal(n, err)
				}
			}
		})
	}
}

// BenchmarkLog reads a log of 20,000 versions, of which a condition selects one
// in a hundred, or most, both as the engine does it and with the caller
// leaving out what it does not want.
func BenchmarkLog(b *testing.B) {
	for _, pad := range []int{0, 8 << 10} {
		s := benchStore(b, Options{Sync: SyncOff})
		vs := benchVersions(500, 20_000)
		for i := range vs {
			if i%100 == 0 {
				vs[i].Group = "rare"
			}
			vs[i].Data = fmt.Appendf(nil, `{"pad":"%0*d",%s`, pad, i, vs[i].Data[1:])
		}
		benchLoad(b, s, vs)
		for _, group := range []string{"rare", "g"} {
			for _, filtered := range []bool{true, false} {
				b.Run(fmt.Sprintf("bytes=%d/group=%s/engine=%t", len(vs[0].Data), group, filtered), func(b *testing.B) {
					b.ReportAllocs()
					for b.Loop() {
						q := driver.LogQuery{Collections: []string{benchCollection}, Backward: true}
						if filtered {
							q.Hints.Groups = []string{group}
						}
						n := 0
						for v, err := range s.Log(b.Context(), &q) {
							if err != nil {
								b.Fatal(err)
							}
							if v.Group == group {
								n++
							}
						}
						if rare := len(vs) / 100; n != rare && n != len(vs)-rare {
							b.Fatal(n)
						}
					}
				})
			}
		}
	}
}

// line is a version in the form in which it is imported.
type line struct {
	ID   string          `json:"id"`
	At   int64           `json:"at"`
	By   string          `json:"by"`
	Data json.RawMessage `json:"data"`
}

// BenchmarkLoad measures a bulk load against the bare loop: decompress, parse,
// insert the same bytes in one table, in transactions of the same size. The
// ratio is reported as x-bare.
func BenchmarkLoad(b *testing.B) {
	const docs, versions, batch = 2000, 60_000, 30_000
	var file bytes.Buffer
	z, err := zstd.NewWriter(&file)
	if err != nil {
		b.Fatal(err)
	}
	enc := json.NewEncoder(z)
	for _, v := range benchVersions(docs, versions) {
		if err := enc.Encode(line{ID: v.Key, At: int64(v.RecordedAt), By: v.Author, Data: v.Data}); err != nil {
			b.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		b.Fatal(err)
	}
	var bare, engine time.Duration
	for i := 0; b.Loop(); i++ {
		start := time.Now()
		bareLoad(b, filepath.Join(b.TempDir(), fmt.Sprintf("bare%d.db", i)), file.Bytes(), batch)
		middle := time.Now()
		engineLoad(b, filepath.Join(b.TempDir(), fmt.Sprintf("engine%d.db", i)), file.Bytes(), batch)
		bare += middle.Sub(start)
		engine += time.Since(middle)
	}
	b.ReportMetric(float64(bare.Microseconds())/float64(b.N*versions), "bare-µs/version")
	b.ReportMetric(float64(engine.Microseconds())/float64(b.N*versions), "engine-µs/version")
	b.ReportMetric(float64(engine)/float64(bare), "x-bare")
}

// lines calls f for each line of a compressed file.
func lines(b *testing.B, file []byte, f func(l *line)) {
	b.Helper()
	z, err := zstd.NewReader(bytes.NewReader(file))
	if err != nil {
		b.Fatal(err)
	}
	defer z.Close()
	scanner := bufio.NewScanner(z)
	for scanner.Scan() {
		var l line
		if err := json.Unmarshal(scanner.Bytes(), &l); err != nil {
			b.Fatal(err)
		}
		f(&l)
	}
	if err := scanner.Err(); err != nil {
		b.Fatal(err)
	}
}

func bareLoad(b *testing.B, path string, file []byte, batch int) {
	b.Helper()
	c, err := sqlite.OpenConn(path)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	run := func(query string) {
		if err := sqlitex.Execute(c, query, nil); err != nil {
			b.Fatal(err)
		}
	}
	run("PRAGMA synchronous = FULL")
	run("CREATE TABLE t(id INTEGER PRIMARY KEY, key TEXT, at INTEGER, author TEXT, data BLOB)")
	n := 0
	run("BEGIN")
	lines(b, file, func(l *line) {
		s := c.Prep("INSERT INTO t(key, at, author, data) VALUES(?1, ?2, ?3, ?4)")
		s.BindText(1, l.ID)
		s.BindInt64(2, l.At)
		s.BindText(3, l.By)
		s.BindBytes(4, l.Data)
		if _, err := s.Step(); err != nil {
			b.Fatal(err)
		}
		if n++; n%batch == 0 {
			run("COMMIT")
			run("BEGIN")
		}
	})
	run("COMMIT")
}

func engineLoad(b *testing.B, path string, file []byte, batch int) {
	b.Helper()
	s, err := Open(context.Background(), path, Options{Collections: benchDeclared()})
	if err != nil {
		b.Fatal(err)
	}
	vs := make([]driver.Version, 0, batch)
	flush := func() {
		if _, err := s.Load(context.Background(), vs); err != nil {
			b.Fatal(err)
		}
		vs = vs[:0]
	}
	lines(b, file, func(l *line) {
		vs = append(vs, driver.Version{
			Collection: benchCollection, Key: l.ID, RecordedAt: driver.Instant(l.At), Op: driver.OpImport, Author: l.By, Data: l.Data,
		})
		if len(vs) == batch {
			flush()
		}
	})
	flush()
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
}
