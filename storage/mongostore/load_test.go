package mongostore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/mongostore/mongotest"
)

// loaded is a load of several documents in two collections, with several
// versions each.
func loaded(documents, versions int) []driver.Version {
	var vs []driver.Version
	for n := range versions {
		for d := range documents {
			vs = append(vs, driver.Version{
				Collection: []string{"things", "thingsToo"}[d%2], Key: fmt.Sprintf("k%d", d), RecordedAt: driver.Instant(1_000_000 * (n + 1)), Op: driver.OpImport,
				Author: "import", Changed: []string{"n"}, Data: fmt.Appendf(nil, `{"n":%d}`, n),
			})
		}
	}
	return vs
}

// countVersions says how many versions there are, and what is wrong with them.
func countVersions(t *testing.T, s *Store) int {
	t.Helper()
	n := 0
	for _, err := range s.Log(t.Context(), &driver.LogQuery{NoData: true}) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if err := s.Check(t.Context(), func(problem string) { t.Errorf("Check: %s", problem) }); err != nil {
		t.Fatal(err)
	}
	return n
}

// A server is lost at every command of a load: all of it is there for the next
// one, or nothing, and repeating it completes it.
func TestLoadIsWhole(t *testing.T) {
	t.Parallel()
	server := mongotest.NewServer(t)
	vs := loaded(3, 4)
	bounds := map[string]Bounds{"things": {Versions: 2}}
	whole, none := 0, 0
	for _, answer := range []func() mongotest.Answer{mongotest.CutBefore, mongotest.CutAfter} {
		for last := int64(1); ; last++ {
			proxy, uri, name := server.Behind(t)
			direct, err := mongotest.WithDatabase(mongotest.URI(t), name)
			if err != nil {
				t.Fatal(err)
			}
			s := newFleetServer(t, uri+"&retryWrites=false&retryReads=false", Options{Bounds: bounds})
			// Its caller waits until some commands have failed.
			const enough = 4
			ctx, giveUp := context.WithCancel(t.Context())
			defer giveUp()
			var commands, failed atomic.Int64
			proxy.Set(func(c mongotest.Command) mongotest.Answer {
				name := c.Collection()
				if name == metaName && commands.Load() < last || !strings.HasPrefix(name, "things") && name != journalName && name != metaName {
					return mongotest.Pass()
				}
				n := commands.Load()
				if name != metaName {
					n = commands.Add(1)
				}
				switch {
				case n < last:
					return mongotest.Pass()
				case n == last && name != metaName:
					return answer()
				default:
					if failed.Add(1) == enough {
						giveUp()
					}
					return mongotest.CutBefore()
				}
			})
			_, err = s.Load(ctx, vs)
			if err == nil {
				proxy.Set(nil)
				if n := countVersions(t, s); n != len(vs) {
					t.Errorf("%d versions were loaded, of %d", n, len(vs))
				}
				break
			}
			if driver.CodeOf(err) != driver.CodeUnavailable {
				t.Errorf("cut at command %d: %v", last, err)
			}
			kill(s)
			s.giveUp()
			next := newFleetServer(t, direct, Options{Bounds: bounds})
			switch n := countVersions(t, next); n {
			case 0:
				none++
			case len(vs):
				whole++
			default:
				t.Errorf("cut at command %d: %d of %d versions are there", last, n, len(vs))
			}
			if left, err := next.journal().CountDocuments(t.Context(), bson.D{}); err != nil || left != 0 {
				t.Errorf("cut at command %d: %d parts of loads are left, %v", last, left, err)
			}
			if _, err := loadAgain(t.Context(), next, vs); err != nil {
				t.Errorf("cut at command %d, loading again: %v", last, err)
			}
			if n := countVersions(t, next); n != len(vs) {
				t.Errorf("cut at command %d, loaded again: %d of %d versions are there", last, n, len(vs))
			}
		}
	}
	t.Logf("all was there %d times, nothing %d times", whole, none)
	if whole == 0 || none == 0 {
		t.Error("one of the outcomes never came about")
	}
}

// While a load makes documents, others create the same ones, on this server and
// on another: it happens as a whole before each of them, or not at all.
func TestLoadAmongCommits(t *testing.T) {
	t.Parallel()
	uri, _ := mongotest.NewServer(t).Database(t)
	servers := []*Store{newFleetServer(t, uri, Options{}), newFleetServer(t, uri, Options{})}
	ctx := t.Context()
	const documents, rounds = 6, 12
	loads, refused, created := 0, 0, 0
	for round := range rounds {
		var done sync.WaitGroup
		var made atomic.Int64
		for n, s := range servers {
			done.Go(func() {
				_, err := commitAgain(ctx, s, write(fmt.Sprintf("k%d.%d", round, n), fmt.Sprintf("%d.%d", n, round), 0))
				var conflict *driver.ConflictError
				switch {
				case err == nil:
					made.Add(1)
				case !errors.As(err, &conflict):
					t.Error(err)
				}
			})
		}
		vs := loaded(documents, 1)
		for i := range vs {
			vs[i].Collection, vs[i].Key, vs[i].Author = "things", fmt.Sprintf("k%d.%d", round, i), fmt.Sprintf("load %d", round)
		}
		_, err := loadAgain(ctx, servers[round%len(servers)], vs)
		switch driver.CodeOf(err) {
		case "":
			loads++
		case driver.CodeInvalid:
			refused++
		default:
			t.Error(err)
		}
		done.Wait()
		created += int(made.Load())
		if err == nil == (made.Load() > 0) {
			t.Errorf("round %d: the load says %v, and %d documents were created beside it", round, err, made.Load())
		}
	}
	found := make(map[string]int)
	for e, err := range servers[0].Log(ctx, &driver.LogQuery{}) {
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(e.Version.Author, "load") {
			found[e.Version.Author]++
		}
	}
	for author, n := range found {
		if n != documents {
			t.Errorf("%s: %d of %d documents have it", author, n, documents)
		}
	}
	if len(found) != loads {
		t.Errorf("%d loads are there, %d were acknowledged", len(found), loads)
	}
	t.Logf("%d loads, %d refused; %d documents created beside", loads, refused, created)
	for _, problem := range observeFleet(t, servers, 4) {
		t.Error(problem)
	}
}

// The commands of a load are as large as they are meant to be, also where what
// searches look at is much larger than the data, and are to be carried out within the
// lease, but for those of one document that is larger.
func TestLoadCommandsAreBounded(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name              string
		documents, digits int
		commands          int64
		leased            bool
	}{
		{"several documents in one command", 8, 4_000, 4, true},
		{"one larger document in each", 2, 30_000, 2, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), hangs)
			defer cancel()
			proxy, uri, _ := mongotest.NewServer(t).Behind(t)
			s := newFleetServer(t, uri, Options{beat: slowBeat, Timeout: 10 * leaseBeats * slowBeat})
			var vs []driver.Version
			for i := range test.documents {
				data := append(append([]byte(`{"a":[1`), bytes.Repeat([]byte(",1"), test.digits)...), "]}"...)
				vs = append(vs, driver.Version{Collection: "things", Key: fmt.Sprint(i), RecordedAt: 10, Op: driver.OpImport, Author: "import", Data: data})
			}
			size := len(encodeVersion(&record{Version: vs[0]}))
			if each := int64(test.documents) / test.commands; test.leased && (int64(size)*each > maxBulkBytes || int64(size)*(each+1) <= maxBulkBytes) || !test.leased && size <= maxBulkBytes {
				t.Fatalf("a version has %d bytes; meant are %d commands", size, test.commands)
			}
			var inserts atomic.Int64
			proxy.Set(func(c mongotest.Command) mongotest.Answer {
				if of("insert")(c) {
					inserts.Add(1)
					ms, _ := c.Body.Lookup("maxTimeMS").AsInt64OK()
					if within := ms > 0 && ms <= s.clock.term.Milliseconds(); within != test.leased {
						t.Errorf("a command may take %d ms", ms)
					}
				}
				return mongotest.Pass()
			})
			if _, err := loadAgain(ctx, s, vs); err != nil {
				t.Fatal(err)
			}
			if n := inserts.Load(); n != test.commands {
				t.Errorf("%d commands", n)
			}
		})
	}
}

// A database that needs longer for a command of a load than a lease lasts gets less
// at once, and more again when it is quicker.
func TestLoadLearnsItsSize(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	proxy, uri, _ := mongotest.NewServer(t).Behind(t)
	s := newFleetServer(t, uri, Options{beat: beatEvery / 5})
	const documents, most = 64, 15
	vs := make([]driver.Version, documents)
	for i := range vs {
		vs[i] = driver.Version{Collection: "things", Key: fmt.Sprint(i), RecordedAt: 10, Op: driver.OpImport, Author: "import", Data: fmt.Appendf(nil, `{"text":"%010000d"}`, i)}
	}
	proxy.Set(func(c mongotest.Command) mongotest.Answer {
		if of("insert")(c) && c.Bytes > most*len(encodeVersion(&record{Version: vs[0]})) {
			pause(ctx, 2*s.clock.term)
		}
		return mongotest.Pass()
	})
	if r, err := loadAgain(ctx, s, vs); err != nil || r.Added+r.Skipped != documents {
		t.Fatal(r, err)
	}
	small := s.bulkSize.get()
	if small >= maxBulkBytes {
		t.Errorf("%d bytes at once, where that is too slow", small)
	}
	proxy.Set(nil)
	for n := small; n <= small && ctx.Err() == nil; n = s.bulkSize.get() { // as soon as the machine is quick enough
		for i := range vs {
			vs[i].Key += " more"
		}
		if _, err := loadAgain(ctx, s, vs); err != nil {
			t.Fatal(err)
		}
	}
	if ctx.Err() != nil {
		t.Errorf("it stays at %d bytes at once", small)
	}
	checkAll(t, s)
}

// The lease of a load of one document ends, before anything of it was sent: it is
// written under the next one.
func TestLoadOfOneOutlivesLease(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	proxy, uri, _ := mongotest.NewServer(t).Behind(t)
	const begin, later = 1_000_000, 1_000_100
	var elapsed, now atomic.Int64
	now.Store(begin)
	s := newFleetServer(t, uri, Options{
		beat: beatEvery, Bounds: map[string]Bounds{"things": {Versions: 1}}, Clock: func() time.Time { return time.UnixMicro(now.Load()) },
		elapsed: func() time.Duration { return time.Duration(elapsed.Load()) },
	})
	for n := range int64(2) { // so that what is there is read when the load has its time
		if _, err := commitAgain(ctx, s, write("a", fmt.Sprint(n), n)); err != nil {
			t.Fatal(err)
		}
	}
	var finds atomic.Int64
	proxy.Set(func(c mongotest.Command) mongotest.Answer {
		if of("find")(c) {
			if finds.Add(1) == 2 { // the first one is to plan it
				elapsed.Add(int64(2 * leaseBeats * beatEvery))
			}
		}
		return mongotest.Pass()
	})
	now.Store(later)
	vs := []driver.Version{{Collection: "things", Key: "a", RecordedAt: later, Op: driver.OpImport, Author: "import", Data: []byte(`{"n":1}`)}}
	r, err := s.Load(ctx, vs)
	for driver.CodeOf(err) == driver.CodeUnavailable && !strings.Contains(err.Error(), errNotNow().Error()) && ctx.Err() == nil {
		r, err = s.Load(ctx, vs) // what was sent had no answer, where the machine is slow
	}
	if err != nil || r.Added+r.Skipped != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	if n := finds.Load(); n < 2 {
		t.Errorf("%d reads: the lease did not end", n)
	}
	checkAll(t, s)
}
