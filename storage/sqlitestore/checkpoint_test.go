package sqlitestore

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/asof/asof/storage/driver"
)

// logSize is the length of the log in bytes.
func logSize(t testing.TB, s *Store) int64 {
	t.Helper()
	info, err := os.Stat(s.path + "-wal")
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// writes commits from several goroutines, and returns how long that took.
func writes(t testing.TB, s *Store, round string, count int) time.Duration {
	t.Helper()
	const writers = 16
	began := time.Now()
	var all sync.WaitGroup
	for i := range writers {
		all.Go(func() {
			for n := range count / writers {
				id := fmt.Sprintf("%s-%d-%d", round, i, n)
				if _, err := driver.CommitOne(t.Context(), s, &driver.Write{ID: id, Collection: benchCollection, Key: id, Op: driver.OpCreate, Data: benchData(i, n, n)}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	return time.Since(began)
}

// Writers do not wait for one who reads for long: with a snapshot that is held
// all the time they commit about as fast as without, and afterwards the log is cut.
func TestWritersDoNotWaitForReaders(t *testing.T) {
	s := benchStore(t, Options{Sync: SyncOff, softLog: 200})
	const count = 8000
	writes(t, s, "warm", count)
	free := writes(t, s, "free", count)
	c, err := s.readers.get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	held := writes(t, s, "held", count)
	s.readers.release(c)
	if held > 4*free {
		t.Errorf("%d commits took %v, and %v beside a reader", count, free, held)
	}
	grown := logSize(t, s)
	writes(t, s, "after", count)
	if size := logSize(t, s); size >= grown || size > 2*logBytes {
		t.Errorf("the log has %d bytes, and had %d with the reader", size, grown)
	}
}

// The log stays short though somebody always reads all there is.
func TestLogStaysShortUnderScans(t *testing.T) {
	s := benchStore(t, Options{Sync: SyncOff, softLog: 200, VersionCache: -1})
	const count = 1000
	writes(t, s, "before", count)
	at, err := s.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	scan := make(chan bool) // a scan has ended
	go func() {
		defer close(scan)
		q := &driver.Query{Collection: benchCollection, At: at, Filter: driver.Text{Field: driver.Field{Path: []string{"name"}, Kind: driver.KindString}, Op: driver.HasPrefix, Value: "P"}}
		for t.Context().Err() == nil {
			if found, err := s.Count(t.Context(), q); err != nil || found != count-count%16 {
				if t.Context().Err() == nil {
					t.Errorf("as of %s there are %d, %v", at, found, err)
				}
				return
			}
			select {
			case scan <- true:
			default:
			}
		}
	}()
	most := int64(0)
	for i := range 10 {
		writes(t, s, fmt.Sprint("beside", i), 400)
		for range 3 { // so that the scan had time to go on
			if !<-scan {
				return
			}
		}
		most = max(most, logSize(t, s))
	}
	if most > 40<<20 {
		t.Errorf("the log grew to %d bytes", most)
	}
	t.Logf("the log had up to %d bytes", most)
}

// The log does not grow with documents that have thousands of entries in indexes.
func TestLogUnderManyEntries(t *testing.T) {
	s := openThings(t, filepath.Join(t.TempDir(), "entries.db"), driver.Index{Path: []string{"tags"}, Kind: driver.KindString, List: true})
	random := rand.New(rand.NewPCG(1, 2))
	size := int64(0)
	for i := range 60 {
		var list strings.Builder
		for range 3_000 {
			fmt.Fprintf(&list, `,"%016x"`, random.Uint64()) // so that each is on a page of its own
		}
		w := driver.Write{ID: fmt.Sprint("w", i), Collection: "things", Key: fmt.Sprint(i), Op: driver.OpCreate, Data: []byte(`{"tags":[` + list.String()[1:] + `]}`)}
		if _, err := driver.CommitOne(t.Context(), s, &w); err != nil {
			t.Fatal(err)
		}
		size = max(size, logSize(t, s))
	}
	if size > 2*logBytes {
		t.Errorf("the log took %d MB", size>>20)
	}
}

// Nor does it grow with long documents, each of which is a few rows.
func TestLogUnderLongDocuments(t *testing.T) {
	path := filepath.Join(t.TempDir(), "long.db")
	s := openThings(t, path, driver.Index{Path: []string{"n"}, Kind: driver.KindInt})
	size := int64(0)
	for i := range 150 {
		writeLong(t, s, i)
		size = max(size, logSize(t, s))
	}
	if size > 2*logBytes {
		t.Errorf("the log took %d MB", size>>20)
	}
}

// writeLong updates a document of 900 KB.
func writeLong(t *testing.T, s *Store, version int) {
	t.Helper()
	w := driver.Write{
		ID: fmt.Sprint("w", version), Collection: "things", Key: "a", Op: driver.OpUpdate, Expected: int64(version),
		Data: fmt.Appendf(nil, `{"n":%d,"text":%q}`, version, strings.Repeat(fmt.Sprint(version%10), 900_000)),
	}
	if _, err := driver.CommitOne(t.Context(), s, &w); err != nil {
		t.Fatal(err)
	}
}

// What a killed process left in the log is copied when the store is opened, and not after a thousand writes.
func TestLogOfAKilledProcess(t *testing.T) {
	path, copied := filepath.Join(t.TempDir(), "killed.db"), filepath.Join(t.TempDir(), "copy.db")
	s := openThings(t, path, driver.Index{Path: []string{"n"}, Kind: driver.KindInt})
	s.opts.softLog = math.MaxInt64
	for i := range 30 {
		writeLong(t, s, i)
	}
	for _, suffix := range []string{"", "-wal"} {
		data, err := os.ReadFile(path + suffix)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(copied+suffix, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for opened := openThings(t, copied, driver.Index{Path: []string{"n"}, Kind: driver.KindInt}); !opened.checkpoints.most.Load(); runtime.Gosched() {
		if ctx.Err() != nil {
			t.Fatal("nothing was copied")
		}
	}
	if info, err := os.Stat(copied); err != nil || info.Size() < 30*900_000 {
		t.Errorf("the file has %d bytes: %v", info.Size(), err)
	}
}
