package sqlitestore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/asof/asof/storage/driver"
)

// A query that takes new snapshots answers as in one: whatever is committed meanwhile does
// not show, and of what is loaded meanwhile, no document shows twice, or not at all.
func TestQueriesInManySnapshots(t *testing.T) {
	const docs, loaded = 60, 20
	s := benchStore(t, Options{Sync: SyncOff, epochSlack: 2, Collections: benchDeclared()})
	rng := rand.New(rand.NewPCG(1, 2))
	data := func() []byte { return fmt.Appendf(nil, `{"stars":%d,"name":"x"}`, rng.IntN(20)) }
	var first []driver.Version
	for i := range loaded {
		first = append(first, driver.Version{Collection: benchCollection, Key: fmt.Sprintf("l%02d", i), RecordedAt: benchStart, Op: driver.OpImport, Data: data()})
	}
	benchLoad(t, s, first)
	var last [docs]int64
	commit := func(i int) {
		w := &driver.Write{ID: fmt.Sprint(i, ".", last[i]), Collection: benchCollection, Key: fmt.Sprintf("k%02d", i), Expected: last[i], Op: driver.OpUpdate, Data: data()}
		if _, err := driver.CommitOne(context.Background(), s, w); err != nil {
			t.Error(err)
		}
		last[i]++
	}
	for i := range docs {
		commit(i)
	}
	stars := driver.Field{Path: []string{"stars"}, Kind: driver.KindInt}
	key := driver.Field{Meta: driver.MetaKey, Kind: driver.KindString}
	commits := driver.Text{Field: key, Op: driver.HasPrefix, Value: "k"}
	ways := map[string]driver.Query{
		"scan":          {Order: []driver.Order{{Field: driver.Field{Path: []string{"name"}, Kind: driver.KindString}}}},
		"keys":          {Limit: 1000},
		"keys, back":    {Limit: 1000, Backward: true},
		"index":         {Limit: 1000, Order: []driver.Order{{Field: stars}}},
		"index, groups": {Limit: 1000, Order: []driver.Order{{Field: stars, Desc: true}, {Field: key, Desc: false}}},
		"index, back":   {Limit: 1000, Order: []driver.Order{{Field: stars}}, Backward: true},
		"selected":      {Filter: driver.Compare{Field: stars, Op: driver.Ge, Value: int64(0)}, Order: []driver.Order{{Field: driver.Field{Path: []string{"name"}, Kind: driver.KindString}}}},
	}
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() {
		at := benchStart
		for n := 0; ctx.Err() == nil; n++ {
			s.readers.ask()
			commit(rng.IntN(docs))
			if n%10 == 0 {
				at++
				benchLoad(t, s, []driver.Version{{Collection: benchCollection, Key: fmt.Sprintf("l%02d", rng.IntN(loaded)), RecordedAt: at, Op: driver.OpImport, Data: data()}})
			}
		}
	})
	for range 20 {
		at, err := s.Now(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range []driver.Instant{at, driver.Forever} {
			for name, q := range ways {
				q.Collection, q.At = benchCollection, at
				vs, err := s.Query(t.Context(), &q)
				if err != nil || len(vs) != docs+loaded {
					t.Errorf("%s: %d documents, %v; want %d", name, len(vs), err, docs+loaded)
				}
				seen := map[string]bool{}
				for _, v := range vs {
					if seen[v.Key] {
						t.Errorf("%s: %q is there twice", name, v.Key)
					}
					seen[v.Key] = true
				}
				if at == driver.Forever {
					continue
				}
				q.Filter = driver.And{commits}
				var answers [2]string
				for i := range answers {
					vs, err := s.Query(t.Context(), &q)
					n, counted := s.Count(t.Context(), &q)
					if err != nil || counted != nil || n != docs {
						t.Errorf("%s: counted %d, %v, %v; want %d", name, n, err, counted, docs)
					}
					var b strings.Builder
					for _, v := range vs {
						_, _ = fmt.Fprintf(&b, "%s@%d %s\n", v.Key, v.Number, v.Data)
					}
					answers[i] = b.String()
				}
				if answers[0] != answers[1] {
					t.Errorf("%s, as of %s:\n%s\nthen\n%s", name, at, answers[0], answers[1])
				}
			}
		}
	}
	stop()
	all.Wait()
	if err := s.Check(t.Context(), func(problem string) { t.Error(problem) }); err != nil {
		t.Error(err)
	}
}

// While a transaction is being committed some readers may see it already. Then no
// reader sees less any more, whatever snapshot its connection has.
func TestReadsDuringACommit(t *testing.T) {
	for kept := range 2 {
		var during func()
		s, err := open(t.Context(), filepath.Join(t.TempDir(), "asof.db"), Options{
			Collections: benchDeclared(), Sync: SyncOff, readers: 2,
			afterCommit: func() error {
				if during != nil {
					during()
				}
				return nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		coll := s.byName[benchCollection]
		commit := func(expected int64) {
			t.Helper()
			w := &driver.Write{
				ID: fmt.Sprint(expected), Collection: benchCollection, Key: "a", Expected: expected, Op: driver.OpUpdate, Data: fmt.Appendf(nil, `{"stars":%d}`, expected),
			}
			if _, err := driver.CommitOne(t.Context(), s, w); err != nil {
				t.Fatal(err)
			}
		}
		conns := func() [2]*conn {
			t.Helper()
			var both [2]*conn
			for i := range both {
				if both[i], err = s.readers.get(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			return both
		}
		read := func(c *conn) int64 {
			t.Helper()
			v, err := c.get(coll, driver.Ref{Key: "a", At: driver.Forever}, nil)
			if err != nil || v == nil {
				t.Fatal(v, err)
			}
			return v.Number
		}
		commit(0)
		both := conns()
		for i, c := range both {
			if n := read(c); n != 1 {
				t.Fatalf("version %d", n)
			}
			if i != kept {
				c.endSnapshot()
			}
			s.readers.release(c)
		}
		during = func() {
			both := conns()
			if first, second := read(both[0]), read(both[1]); first != second {
				t.Errorf("while the second version is being committed one reader sees version %d and the next one %d", first, second)
			}
			for _, c := range both {
				s.readers.release(c)
			}
		}
		commit(1)
		during = nil
		for _, c := range conns() {
			if n := read(c); n != 2 {
				t.Errorf("then version %d", n)
			}
			s.readers.release(c)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
