package transfer_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/klauspost/compress/zstd"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/asof/asof/internal/fixture/graph/model"
	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/sqlitestore"
	"github.com/asof/asof/storage/transfer"
)

// batchVersions is how much both sides of BenchmarkImport commit at once.
const batchVersions = 8192

// fullCatalogue returns the compressed events of the large real catalogue.
func fullCatalogue(tb testing.TB) []byte {
	dir := os.Getenv("ASOF_TESTDATA")
	if dir == "" {
		tb.Skip("ASOF_TESTDATA is not set: it names the directory that holds catalog-full.ndjson.zst")
	}
	data, err := os.ReadFile(filepath.Join(dir, "catalog-full.ndjson.zst"))
	if err != nil {
		tb.Skip(err)
	}
	return data
}

// BenchmarkImport compares an import with a bare loop that decompresses and
// parses the same bytes and inserts each line into one table. Run both in one
// go, once each:
//
//	ASOF_TESTDATA=… go test -run - -bench Import -benchtime 1x ./storage/transfer
func BenchmarkImport(b *testing.B) {
	events := fullCatalogue(b)
	b.Run("bare", func(b *testing.B) {
		for b.Loop() {
			if err := bareImport(bytes.NewReader(events), filepath.Join(b.TempDir(), "bare.db")); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("import", func(b *testing.B) {
		for b.Loop() {
			store := openCatalogue(b, filepath.Join(b.TempDir(), "catalogue.db"))
			report, err := transfer.Import(b.Context(), store, bytes.NewReader(events), transfer.ImportOptions{BatchVersions: batchVersions})
			if err != nil || report.Added == 0 {
				b.Fatalf("%d added, %v", report.Added, err)
			}
			if err := store.Engine().Close(); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// openCatalogue opens a store of the types of the catalogue.
func openCatalogue(b *testing.B, path string) *storage.Store {
	engine, err := sqlitestore.Open(b.Context(), path, sqlitestore.Options{Collections: storage.CollectionsOf(model.Types)})
	if err != nil {
		b.Fatal(err)
	}
	store, err := storage.New(engine, model.Types)
	if err != nil {
		b.Fatal(err)
	}
	return store
}

// bareImport is the least that a program on the same driver can do.
func bareImport(r io.Reader, path string) error {
	z, err := zstd.NewReader(r)
	if err != nil {
		return err
	}
	defer z.Close()
	conn, err := sqlite.OpenConn(path)
	if err != nil {
		return err
	}
	for _, sql := range []string{
		"PRAGMA journal_mode=WAL",
		"PRAGMA synchronous=FULL",
		"CREATE TABLE lines (id INTEGER PRIMARY KEY, collection TEXT, key TEXT, at TEXT, by TEXT, message TEXT, source TEXT, op TEXT, data BLOB)",
		"BEGIN",
	} {
		if err := sqlitex.ExecuteTransient(conn, sql, nil); err != nil {
			return errors.Join(err, conn.Close())
		}
	}
	if err := bareLoop(bufio.NewReaderSize(z, 1<<20), conn); err != nil {
		return errors.Join(err, conn.Close())
	}
	return conn.Close()
}

func bareLoop(r *bufio.Reader, conn *sqlite.Conn) error {
	insert, err := conn.Prepare("INSERT INTO lines (collection, key, at, by, message, source, op, data) VALUES (?,?,?,?,?,?,?,?)")
	if err != nil {
		return err
	}
	for n := 1; ; n++ {
		line, err := r.ReadSlice('\n')
		if errors.Is(err, io.EOF) {
			return sqlitex.ExecuteTransient(conn, "COMMIT", nil)
		} else if err != nil {
			return err
		}
		var v struct {
			Collection, ID, At, By, Message, Source, Op string
			Data                                        json.RawMessage
		}
		if err := json.Unmarshal(line, &v); err != nil {
			return err
		}
		for i, s := range []string{v.Collection, v.ID, v.At, v.By, v.Message, v.Source, v.Op} {
			insert.BindText(i+1, s)
		}
		insert.BindBytes(8, v.Data)
		if _, err := insert.Step(); err != nil {
			return err
		}
		if err := insert.Reset(); err != nil {
			return err
		}
		if n%batchVersions == 0 {
			if err := sqlitex.ExecuteTransient(conn, "COMMIT", nil); err != nil {
				return err
			}
			if err := sqlitex.ExecuteTransient(conn, "BEGIN", nil); err != nil {
				return err
			}
		}
	}
}
