package sqlitestore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"zombiezen.com/go/sqlite"

	"github.com/asof/asof/storage/driver"
)

// Reads of the current state do not touch the history: they work while a
// connection refuses every access to its tables.
func TestCurrentReadsDoNotTouchHistory(t *testing.T) {
	s := benchStore(t, Options{readers: 1})
	benchLoad(t, s, benchVersions(200, 2000))
	now, err := s.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c, err := s.readers.get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := c.SetAuthorizer(sqlite.AuthorizeFunc(func(a sqlite.Action) sqlite.AuthResult {
		if table := a.Table(); table == "versions" || table == "past" || table == "epochs" {
			return sqlite.AuthResultDeny
		}
		return sqlite.AuthResultOK
	})); err != nil {
		t.Fatal(err)
	}
	s.readers.release(c)
	got, err := s.Get(t.Context(), benchCollection, []driver.Ref{{Key: benchKey(7), At: now}, {Key: benchKey(8), At: now}, {Key: "none", At: now}}, nil)
	if err != nil || got[0] == nil || got[2] != nil {
		t.Errorf("Get: %v, %v", got, err)
	}
	stars := driver.Field{Path: []string{"stars"}, Kind: driver.KindInt}
	licence := driver.Compare{Field: driver.Field{Path: []string{"licence"}, Kind: driver.KindString}, Op: driver.Eq, Value: "L7"}
	archived := driver.Compare{Field: driver.Field{Path: []string{"archived"}, Kind: driver.KindBool}, Op: driver.Eq, Value: true}
	for _, q := range []driver.Query{
		{},
		{Order: []driver.Order{{Field: stars, Desc: true}}, Limit: 10},
		{Filter: licence},
		{Filter: archived, Order: []driver.Order{{Field: stars}}},
	} {
		q.Collection, q.At = benchCollection, now
		if vs, err := s.Query(t.Context(), &q); err != nil || len(vs) == 0 {
			t.Errorf("Query %+v: %d, %v", q, len(vs), err)
		}
		if n, err := s.Count(t.Context(), &q); err != nil || n == 0 {
			t.Errorf("Count %+v: %d, %v", q, n, err)
		}
	}
	// The test would notice: a read of the past does need them.
	if _, err := s.Get(t.Context(), benchCollection, []driver.Ref{{Key: benchKey(7), Number: 1}}, nil); err == nil {
		t.Error("a read of the past did not touch the history")
	}
}

// An indexed page as of a past instant passes over a bounded number of
// entries, however many changes there were before and after.
func TestPastPagesReadFewEntries(t *testing.T) {
	const docs = 100
	stars := driver.Field{Path: []string{"stars"}, Kind: driver.KindInt}
	for _, versions := range []int{2000, 20_000} {
		s := benchStore(t, Options{Sync: SyncOff, epochSlack: docs})
		vs := benchVersions(docs, versions)
		benchLoad(t, s, vs)
		if err := s.writer.submit(&request{ctx: t.Context(), run: func() error {
			for s.writer.cutOversized() {
				continue
			}
			return nil
		}}); err != nil {
			t.Fatal(err)
		}
		if err := s.Check(t.Context(), func(problem string) { t.Error(problem) }); err != nil {
			t.Error(err)
		}
		worst := int64(0)
		for i := docs; i < versions; i += versions / 40 {
			q := &driver.Query{Collection: benchCollection, At: vs[i].RecordedAt, Order: []driver.Order{{Field: stars}}}
			r := s.newRun(t.Context(), q)
			if err := s.read(t.Context(), func(c *conn) error {
				r.c = c
				if err := r.begin(); err != nil {
					return err
				}
				ix := s.byName[benchCollection].indexes[0]
				epoch, open, err := r.epoch(ix)
				if err != nil {
					return err
				}
				n, err := r.countEntries(access{ix: ix, ranges: []span{everything}}, -1)
				if err != nil || n != docs {
					t.Errorf("%d entries at %s, %v; want %d", n, q.At, err, docs)
				}
				passed, err := c.integer(`SELECT count(*) + (SELECT count(*) FROM entries WHERE idx = ?2 AND ?3) FROM past WHERE epoch = ?1`, epoch, ix.id, open)
				if err != nil {
					return err
				}
				worst = max(worst, passed)
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		// The live entries now, those at the end of the epoch, and twice as many
		// that ended in it.
		if most := int64(4 * docs); worst > most {
			t.Errorf("%d versions: a read may pass over %d entries, want at most %d", versions, worst, most)
		}
		t.Logf("%d versions: at most %d entries", versions, worst)
	}
}

// The same with one commit for each transaction, where epochs are cut in time.
func TestPastPagesOfCommitsReadFewEntries(t *testing.T) {
	const docs, commits, slack = 20, 1500, 40
	s := benchStore(t, Options{Sync: SyncOff, epochSlack: slack})
	numbers := make([]int64, docs)
	for i := range commits {
		d := i % docs
		if _, err := driver.CommitOne(context.Background(), s, &driver.Write{
			ID: fmt.Sprint(i), Collection: benchCollection, Key: benchKey(d), Expected: numbers[d], Op: driver.OpUpdate, Data: benchData(d, i, i),
		}); err != nil {
			t.Fatal(err)
		}
		numbers[d]++
	}
	c, err := s.readers.get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer s.readers.release(c)
	epochs, err := c.readEpochs(s.byName[benchCollection].indexes[0].id)
	if err != nil {
		t.Fatal(err)
	}
	if len(epochs) < commits/slack/2 {
		t.Errorf("%d epochs of %d changes", len(epochs), commits)
	}
	for _, e := range epochs {
		if n, err := c.integer(`SELECT count(*) FROM past WHERE epoch = ?1`, e.id); err != nil || n > slack+1+docs {
			t.Errorf("epoch of %s holds %d entries, %v; want at most %d", driver.Instant(e.start), n, err, slack+1+docs)
		}
	}
	if total, err := c.integer(`SELECT count(*) FROM past`); err != nil || total > 3*commits {
		t.Errorf("%d past entries for %d changes, %v", total, commits, err)
	}
}

// Before an epoch of many entries is cut, each commit copies few of them, of all indexes together, and
// fewer where they are long. What is copied is not seen twice, is rewritten with the rest, and is not
// copied again after the store was closed.
func TestCutsAreSpreadOverCommits(t *testing.T) {
	for _, long := range []int{0, 500} {
		t.Run(fmt.Sprint(long), func(t *testing.T) { cutsAreSpreadOverCommits(t, long) })
	}
}

func cutsAreSpreadOverCommits(t *testing.T, long int) {
	const docs, step, rounds = 200, 30, 5
	keyOf := func(d int) string { return benchKey(d) + strings.Repeat("k", long) }
	path := filepath.Join(t.TempDir(), "asof.db")
	reopen := func() *Store {
		s, err := open(t.Context(), path, Options{Collections: benchDeclared(), Sync: SyncOff, epochSlack: 2, copyStep: step})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := reopen()
	stars := driver.Field{Path: []string{"stars"}, Kind: driver.KindInt}
	had, copied, before := int64(0), false, driver.Instant(0)
	for i := range rounds * docs {
		d, number := i%docs, int64(i/docs)
		v, err := driver.CommitOne(t.Context(), s, &driver.Write{
			ID: fmt.Sprint(i), Collection: benchCollection, Key: keyOf(d), Expected: number, Op: driver.OpUpdate, Data: benchData(d, i, i),
		})
		if err != nil {
			t.Fatal(err)
		}
		if number == 0 {
			before = v.RecordedAt // all are there
			continue
		}
		c, err := s.readers.get(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		has, err := c.integer(`SELECT count(*) FROM past`)
		s.readers.release(c)
		indexes := int64(len(s.byName[benchCollection].indexes))
		if most := step/sizeOf(0, long) + 1 + 2*indexes; err != nil || has > had+most {
			t.Fatalf("a commit added %d entries of the past, %v; want at most %d", has-had, err, most)
		}
		had = has
		if ix := s.byName[benchCollection].indexes[0]; !ix.copying || ix.epochs[len(ix.epochs)-1].base < docs/2 || copied {
			continue
		}
		copied = true // from here on
		if err := s.Rewrite(t.Context(), benchCollection, keyOf(docs-1), []driver.Version{{Number: number - 1, Op: driver.OpUpdate, Data: benchData(docs-1, 7, 7)}}); err != nil {
			t.Error(err)
		}
		for range 2 {
			if found, err := s.Query(t.Context(), &driver.Query{Collection: benchCollection, At: before, Order: []driver.Order{{Field: stars}}}); err != nil || len(found) != docs {
				t.Errorf("%d documents while entries are copied, %v; want %d", len(found), err, docs)
			}
			checkThings(t, s)
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			s = reopen()
		}
	}
	checkThings(t, s)
	if epochs := len(s.byName[benchCollection].indexes[0].epochs); !copied || epochs < rounds/2 {
		t.Errorf("%d epochs; copying was seen: %v", epochs, copied)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// Rewriting reads no version of a long history but those beside: the others are not even there. A test of
// all against all follows, in which values go on beyond what is read, over many epochs and to the end.
func TestRewriteReadsItsNeighboursOnly(t *testing.T) {
	s := openThings(t, filepath.Join(t.TempDir(), "asof.db"), driver.Index{Path: []string{"n"}, Kind: driver.KindInt})
	loadThings(t, s, "a", 9, `{"n":7}`)
	sql := func(queries ...string) {
		t.Helper()
		if err := s.writer.submit(&request{ctx: t.Context(), run: func() error {
			for _, query := range queries {
				if err := s.writer.exec(query); err != nil {
					return err
				}
			}
			return nil
		}}); err != nil {
			t.Fatal(err)
		}
	}
	const far = ` WHERE (id & 67108863) NOT BETWEEN 4 AND 7`
	sql(`CREATE TABLE elsewhere AS SELECT * FROM versions`+far, `DELETE FROM versions`+far)
	err := s.Rewrite(t.Context(), "things", "a", []driver.Version{{Number: 6, Op: driver.OpUpdate, Data: []byte(`{"n":8}`)}, {Number: 5, Op: driver.OpPruned, Deleted: true}})
	sql(`INSERT INTO versions SELECT * FROM elsewhere`, `DROP TABLE elsewhere`)
	if err != nil {
		t.Error(err)
	}
	checkThings(t, s)
}

func TestRewriteKeepsIndexes(t *testing.T) {
	const versions = 120
	for seed := range uint64(8) {
		random := rand.New(rand.NewPCG(seed, 0))
		s, err := open(t.Context(), filepath.Join(t.TempDir(), "asof.db"), Options{
			Collections: []driver.Collection{{Name: "things", Indexes: []driver.Index{
				{Path: []string{"n"}, Kind: driver.KindInt}, {Path: []string{"tags"}, Kind: driver.KindString, List: true},
			}}},
			Sync: SyncOff, epochSlack: 5, copyStep: int64(seed % 2),
		})
		if err != nil {
			t.Fatal(err)
		}
		data := func() []byte {
			return [][]byte{[]byte(`{"n":1,"tags":["a"]}`), []byte(`{"n":1,"tags":["a","b"]}`), []byte(`{"n":2,"tags":["b"]}`), []byte(`{}`), nil}[random.IntN(5)]
		}
		last := []byte(`{}`)
		for n := range int64(versions) {
			if d := data(); random.IntN(4) == 0 && (d != nil || last != nil) {
				last = d
			}
			w := &driver.Write{ID: fmt.Sprint(n), Collection: "things", Key: "a", Expected: n, Op: driver.OpUpdate, Deleted: last == nil, Data: last}
			if _, err := driver.CommitOne(t.Context(), s, w); err != nil {
				t.Fatal(err)
			}
		}
		for range 30 {
			var vs []driver.Version
			first := 1 + random.IntN(versions-1)
			for n := first; n < min(first+1+random.IntN(20), versions); n += 1 + random.IntN(2) {
				v := driver.Version{Number: int64(n), Op: driver.OpUpdate, Data: data()}
				v.Deleted = v.Data == nil
				vs = append(vs, v)
			}
			if err := s.Rewrite(t.Context(), "things", "a", vs); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			checkThings(t, s)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

func checkThings(t *testing.T, s *Store) {
	t.Helper()
	if err := s.Check(t.Context(), func(problem string) { t.Error(problem) }); err != nil {
		t.Error(err)
	}
}
