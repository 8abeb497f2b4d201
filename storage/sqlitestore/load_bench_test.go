package sqlitestore

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/asof/asof/storage/driver"
)

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
