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
	for _, err := range s.Log(t.Context(), &driver.LogQuery{Fields: []string{}}) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	checkAll(t, s)
	return n
}

// A server is lost at every command of a load: what is there is sound, and loading the
// same again adds what is missing.
func TestLoadIsLost(t *testing.T) {
	t.Parallel()
	server := mongotest.NewServer(t)
	vs := loaded(3, 4)
	bounds := map[string]Bounds{"things": {Versions: 2}}
	outcomes := make(map[int]int)
	for _, answer := range []func() mongotest.Answer{mongotest.CutBefore, mongotest.CutAfter} {
		for last := int64(1); ; last++ {
			proxy, uri, name := server.Behind(t)
			direct, err := mongotest.WithDatabase(mongotest.URI(t), name)
			if err != nil {
				t.Fatal(err)
			}
			s := newServerOf(t, uri+"&retryReads=false", Options{Bounds: bounds})
			ctx, giveUp := context.WithCancel(t.Context())
			defer giveUp()
			var commands atomic.Int64
			proxy.Set(func(c mongotest.Command) mongotest.Answer {
				if !strings.HasPrefix(c.Collection(), "things") {
					return mongotest.Pass()
				}
				switch n := commands.Add(1); {
				case n < last:
					return mongotest.Pass()
				case n == last:
					return answer()
				default:
					giveUp()
					return mongotest.CutBefore()
				}
			})
			_, err = s.Load(ctx, vs)
			proxy.Set(nil)
			if err == nil && commands.Load() < last {
				if n := countVersions(t, s); n != len(vs) {
					t.Errorf("%d versions were loaded, of %d", n, len(vs))
				}
				break
			}
			if err != nil && driver.CodeOf(err) != driver.CodeUnavailable {
				t.Errorf("cut at command %d: %v", last, err)
			}
			kill(s)
			next := newServerOf(t, direct, Options{Bounds: bounds})
			there := countVersions(t, next)
			outcomes[there]++
			if err == nil && there < len(vs) {
				t.Errorf("cut at command %d: it was acknowledged, and %d of %d versions are there", last, there, len(vs))
			}
			r, err := loadAgain(t.Context(), next, vs)
			if err != nil || r.Skipped != int64(there) || r.Added != int64(len(vs)-there) {
				t.Errorf("cut at command %d, loading again, with %d versions there: %+v, %v", last, there, r, err)
			}
			if n := countVersions(t, next); n != len(vs) {
				t.Errorf("cut at command %d, loaded again: %d of %d versions are there", last, n, len(vs))
			}
		}
	}
	t.Logf("so many versions were there, so often: %v", outcomes)
	if outcomes[0] == 0 || len(outcomes) < 3 {
		t.Error("one of the outcomes never came about")
	}
}

// While a load makes documents, others create the same ones, on this server and
// on another: each of them is made once.
func TestLoadAmongCommits(t *testing.T) {
	t.Parallel()
	uri, _ := mongotest.NewServer(t).Database(t)
	servers := []*Store{newServerOf(t, uri, Options{}), newServerOf(t, uri, Options{})}
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
	t.Logf("%d loads, %d refused; %d documents created beside", loads, refused, created)
	for _, problem := range observe(t, servers, 4) {
		t.Error(problem)
	}
	checkAll(t, servers[0])
}

// The commands of a load are as large as they are meant to be, also where what
// searches look at is much larger than the data.
func TestLoadCommandsAreBounded(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name              string
		documents, digits int
		commands          int64
	}{
		{"several documents in one command", 8, 4_000, 4},
		{"one larger document in each", 2, 30_000, 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), hangs)
			defer cancel()
			proxy, uri, _ := mongotest.NewServer(t).Behind(t)
			s := newServerOf(t, uri, Options{timing: unhurried})
			var vs []driver.Version
			for i := range test.documents {
				data := append(append([]byte(`{"a":[1`), bytes.Repeat([]byte(",1"), test.digits)...), "]}"...)
				vs = append(vs, driver.Version{Collection: "things", Key: fmt.Sprint(i), RecordedAt: 10, Op: driver.OpImport, Author: "import", Data: data})
			}
			var updates atomic.Int64
			proxy.Set(func(c mongotest.Command) mongotest.Answer {
				if of("update")(c) {
					updates.Add(1)
					if c.Bytes > maxBulkBytes && test.commands < int64(test.documents) {
						t.Errorf("a command has %d bytes", c.Bytes)
					}
					if ms, _ := c.Body.Lookup("maxTimeMS").AsInt64OK(); ms <= 0 {
						t.Errorf("a command may take %d ms", ms)
					}
				}
				return mongotest.Pass()
			})
			if _, err := loadAgain(ctx, s, vs); err != nil {
				t.Fatal(err)
			}
			if n := updates.Load(); n != test.commands {
				t.Errorf("%d commands", n)
			}
		})
	}
}

// A load is stopped before an update, for longer than that lives, and goes on when others
// have read at later instants: the database refuses the update, and what is loaded after
// all has a later instant.
func TestFrozenLoad(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	proxy, behind, beside := pair(ctx, t, Options{})
	frozen, release := freeze(proxy, of("update"))
	defer release()
	done := make(chan error, 1)
	go func() {
		_, err := loadAgain(ctx, behind, loaded(3, 2))
		done <- err
	}()
	await(ctx, t, frozen)
	v, err := commitAgain(ctx, beside, write("first", "1", 0))
	if err != nil {
		t.Fatal(err)
	}
	now, err := beside.Now(ctx)
	if err != nil || now < v.RecordedAt {
		t.Fatalf("Now is %d, %v after a commit at %d", now, err, v.RecordedAt)
	}
	release()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if at, err := beside.Loaded(ctx); err != nil || at <= now {
		t.Errorf("the load is at %d, %v, and others read at %d before it was visible", at, err, now)
	}
	checkAll(t, beside)
}

// A part of a load may take as long as its life, and is sent once.
func TestSlowLoad(t *testing.T) {
	t.Parallel()
	ctx := bounded(t)
	proxy, uri, _ := mongotest.NewServer(t).Behind(t)
	s := newServerOf(t, uri, Options{timing: unending})
	var updates atomic.Int64
	proxy.Set(func(c mongotest.Command) mongotest.Answer {
		if of("update")(c) {
			updates.Add(1)
			pause(ctx, unending.life/20)
		}
		return mongotest.Pass()
	})
	if _, err := s.Load(ctx, loaded(3, 1)); err != nil || updates.Load() != 1 {
		t.Errorf("%d updates, %v", updates.Load(), err)
	}
}

// While a server loads, others commit.
func TestLoadHoldsUpNobody(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	proxy, behind, beside := pair(ctx, t, Options{timing: unending, Bounds: map[string]Bounds{"things": {Versions: 2}}})
	moves, release := make(chan struct{}), make(chan struct{})
	var first sync.Once
	proxy.Set(func(c mongotest.Command) mongotest.Answer {
		if c.Name == "insert" && c.Collection() == "things.history" {
			first.Do(func() { close(moves) })
			<-release
		}
		return mongotest.Pass()
	})
	end := sync.OnceFunc(func() { close(release) })
	defer end()
	done := make(chan error, 1)
	go func() {
		_, err := loadAgain(ctx, behind, loaded(3, 6))
		done <- err
	}()
	await(ctx, t, moves)
	for n := range int64(3) {
		if _, err := driver.CommitOne(ctx, beside, write("a", fmt.Sprint(n), n)); err != nil {
			t.Fatal(err)
		}
	}
	end()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	checkAll(t, beside)
}
