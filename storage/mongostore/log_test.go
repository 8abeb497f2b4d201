package mongostore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/mongostore/mongotest"
)

// A log that is read while versions are loaded leaves out none that was there when
// it began, wherever what was loaded has moved them.
func TestLogBesideLoad(t *testing.T) {
	t.Parallel()
	const documents, last, one = logPart + 200, "k1199", driver.Instant(10)
	load := func(ctx context.Context, s *Store, versions ...driver.Instant) error {
		var vs []driver.Version
		for _, at := range versions {
			vs = append(vs, driver.Version{
				Collection: "things", Key: last, RecordedAt: at, Op: driver.OpImport, Author: "import", Data: fmt.Appendf(nil, `{"a":%d}`, at),
			})
		}
		_, err := loadAgain(ctx, s, vs)
		return err
	}
	const late = one + 2*documents
	many := make([]driver.Instant, 6)
	for i := range many {
		many[i] = late + driver.Instant(i)
	}
	commit := func(ctx context.Context, s *Store, from, to int64) error {
		for n := from; n < to; n++ {
			if _, err := commitAgain(ctx, s, write(last, fmt.Sprint(n), n)); err != nil {
				return err
			}
		}
		return nil
	}
	for _, test := range []struct {
		name      string
		meanwhile func(context.Context, *Store) error
	}{
		{"one version", func(ctx context.Context, s *Store) error { return load(ctx, s, late) }},
		{"so many that they move on", func(ctx context.Context, s *Store) error { return load(ctx, s, many...) }},
		{"one, and a commit after it", func(ctx context.Context, s *Store) error {
			if err := load(ctx, s, late); err != nil {
				return err
			}
			return commit(ctx, s, 2, 3)
		}},
		{"one, and so many commits that it moves on", func(ctx context.Context, s *Store) error {
			if err := load(ctx, s, late); err != nil {
				return err
			}
			return commit(ctx, s, 2, 9)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			uri, _ := mongotest.NewServer(t).Database(t)
			ctx, cancel := context.WithTimeout(t.Context(), hangs)
			defer cancel()
			s := newServerOf(t, uri, Options{timing: unhurried, Bounds: map[string]Bounds{"things": {Versions: 3}}})
			var vs []driver.Version
			for i := range documents {
				vs = append(vs, driver.Version{
					Collection: "things", Key: fmt.Sprintf("k%04d", i), RecordedAt: one + driver.Instant(i), Op: driver.OpImport, Author: "import", Data: []byte(`{}`),
				})
			}
			if _, err := loadAgain(ctx, s, vs); err != nil {
				t.Fatal(err)
			}
			told := make(map[string]int)
			began := false
			var before driver.LogPosition
			for v, err := range s.Log(ctx, &driver.LogQuery{}) {
				if err != nil {
					t.Fatal(err)
				}
				if !began {
					began = true
					if err := test.meanwhile(ctx, s); err != nil {
						t.Fatal(err)
					}
				}
				if here := (driver.LogPosition{At: v.RecordedAt, Collection: v.Collection, Key: v.Key, Number: v.Number}); here.Compare(before) <= 0 {
					t.Errorf("%v comes after %v", here, before)
				} else {
					before = here
				}
				told[fmt.Sprint(v.Key, "@", v.Number)]++
				if v.Op != driver.OpImport {
					t.Errorf("%s@%d is in the log, which began before it", v.Key, v.Number)
				}
			}
			for i := range documents {
				if name := fmt.Sprintf("k%04d@1", i); told[name] != 1 {
					t.Errorf("%s is in the log %d times", name, told[name])
				}
			}
		})
	}
}

// A long history is read with few commands: with more runs each time.
func TestLongHistoryTakesFewCommands(t *testing.T) {
	const versions, run = 2000, 4 // some 500 runs
	var sent recorder
	s := openRecorded(t, Bounds{Versions: run}, &sent)
	if _, err := loadAgain(t.Context(), s, imported("go", 0, versions)); err != nil {
		t.Fatal(err)
	}
	const (
		withData = 2 + 4 + 6 // the document and 4 runs, then 8, 16, 32, 64, and 64 each time
		without  = 2 + 7     // the same until 512
	)
	for _, c := range []struct {
		query driver.LogQuery
		most  int
	}{
		{driver.LogQuery{Backward: true}, withData},
		{driver.LogQuery{}, withData},
		{driver.LogQuery{Fields: []string{}}, without},
	} {
		t.Run(fmt.Sprintf("backward %t, no data %t", c.query.Backward, noData(&c.query)), func(t *testing.T) {
			c.query.Collections, c.query.Keys = []string{"tools"}, []string{"go"}
			sent.take()
			n := int64(0)
			for v, err := range s.Log(t.Context(), &c.query) {
				if err != nil {
					t.Fatal(err)
				}
				n++
				want := n
				if c.query.Backward {
					want = versions + 1 - n
				}
				if v.Number != want {
					t.Fatalf("version %d comes in the place of %d", v.Number, want)
				}
			}
			commands := sent.take()
			if n != versions || len(commands) > c.most {
				t.Errorf("%d versions, with %d commands, want at most %d", n, len(commands), c.most)
			}
		})
	}
}

// cursorGone says that there is no such cursor any more.
func cursorGone() mongotest.Answer {
	return mongotest.Reply(mongotest.Failure(43, "CursorNotFound", "cursor id 1 not found"))
}

// cutShort leaves so much of the answer of an aggregation, and says that there is more.
func cutShort(most int) mongotest.Answer {
	return mongotest.Rewrite(func(reply bson.Raw) bson.D {
		const unknown = int64(77) // a cursor
		cursor := reply.Lookup("cursor").Document()
		id, _ := cursor.Lookup("id").AsInt64OK()
		batch, err := cursor.Lookup("firstBatch").Array().Values()
		if err == nil && len(batch) > most {
			batch, id = batch[:most], unknown
		}
		return bson.D{{Key: "ok", Value: 1.0}, {Key: "cursor", Value: bson.D{
			{Key: "id", Value: id}, {Key: "ns", Value: cursor.Lookup("ns")}, {Key: "firstBatch", Value: batch},
		}}}
	})
}

// A log whose cursors the server gives up on the way, as it does where nobody asks
// for long, tells all there is, once; one that never answers is an error.
func TestLogOutlivesItsCursors(t *testing.T) {
	t.Parallel()
	proxy, uri, _ := mongotest.NewServer(t).Behind(t)
	s := newServerOf(t, uri, Options{Bounds: map[string]Bounds{"things": {Versions: 40}}})
	const documents, versions = 10, 130 // several answers of 101 versions from prev, and from the overflow
	var vs []driver.Version
	for v := range versions {
		for d := range documents {
			vs = append(vs, driver.Version{
				Collection: "things", Key: fmt.Sprint("k", d), RecordedAt: driver.Instant(1 + v), Op: driver.OpImport, Data: fmt.Appendf(nil, `{"n":%d}`, v),
			})
		}
	}
	if _, err := loadAgain(t.Context(), s, vs); err != nil {
		t.Fatal(err)
	}
	for _, backward := range []bool{false, true} {
		var mu sync.Mutex
		lost := 0
		proxy.Set(func(c mongotest.Command) mongotest.Answer {
			switch {
			case c.Name == "getMore":
				mu.Lock()
				defer mu.Unlock()
				lost++
				return cursorGone()
			case c.Name == "aggregate" && strings.HasPrefix(c.Collection(), "things"):
				return cutShort(97)
			}
			return mongotest.Pass()
		})
		told := make(map[string]int)
		var last driver.LogPosition
		n := 0
		for v, err := range s.Log(t.Context(), &driver.LogQuery{Backward: backward}) {
			if err != nil {
				t.Fatal(err)
			}
			p := driver.LogPosition{At: v.RecordedAt, Collection: v.Collection, Key: v.Key, Number: v.Number}
			if n++; n > 1 && (last.Compare(p) < 0) == backward {
				t.Fatalf("%+v is told behind %+v", p, last)
			}
			last = p
			told[fmt.Sprint(v.Key, "@", v.Number)]++
		}
		if n != len(vs) || len(told) != len(vs) || lost < 5 {
			t.Errorf("%d versions were told, %d different ones, want %d; %d cursors were lost", n, len(told), len(vs), lost)
		}
	}
	// One that does not get on.
	proxy.Set(func(c mongotest.Command) mongotest.Answer {
		switch {
		case c.Name == "getMore":
			return cursorGone()
		case c.Name == "aggregate" && strings.HasPrefix(c.Collection(), "things"):
			return cutShort(0)
		}
		return mongotest.Pass()
	})
	var last error
	for _, err := range s.Log(t.Context(), &driver.LogQuery{}) {
		last = err
	}
	proxy.Set(nil)
	if driver.CodeOf(last) != driver.CodeUnavailable || !strings.Contains(last.Error(), "try again") {
		t.Errorf("%v (%q)", last, driver.CodeOf(last))
	}
}

// A log that loses its cursor on prev, while commits move what it had not told yet from
// there to the overflow, tells that too, once and in order.
func TestLogFollowsWhatMovesMeanwhile(t *testing.T) {
	const versions, few, commits = 30, 5, 12
	for _, backward := range []bool{false, true} {
		t.Run(fmt.Sprintf("backward %t", backward), func(t *testing.T) {
			proxy, uri, _ := mongotest.NewServer(t).Behind(t)
			s := newServerOf(t, uri, Options{Bounds: map[string]Bounds{"things": {Versions: 40}}})
			var vs []driver.Version
			for v := range versions {
				vs = append(vs, driver.Version{
					Collection: "things", Key: "a", RecordedAt: driver.Instant(1 + v), Op: driver.OpImport, Data: fmt.Appendf(nil, `{"n":%d}`, v),
				})
			}
			if _, err := loadAgain(t.Context(), s, vs); err != nil {
				t.Fatal(err)
			}
			var lost atomic.Int64
			proxy.Set(func(c mongotest.Command) mongotest.Answer {
				switch {
				case c.Name == "getMore":
					lost.Add(1)
					return cursorGone()
				case c.Name == "aggregate" && c.Collection() == "things":
					return cutShort(few)
				}
				return mongotest.Pass()
			})
			var told, want []int64
			for v := range int64(versions) {
				want = append(want, v+1)
			}
			if backward {
				slices.Reverse(want)
			}
			for e, err := range s.Log(t.Context(), &driver.LogQuery{Backward: backward}) {
				if err != nil {
					t.Fatal(err)
				}
				if told = append(told, e.Number); len(told) != few-2 {
					continue
				}
				for i := range commits {
					if _, err := commitAgain(t.Context(), s, write("a", fmt.Sprint("w", i), int64(versions+i))); err != nil {
						t.Fatal(err)
					}
				}
			}
			if !slices.Equal(told, want) || lost.Load() == 0 {
				t.Errorf("%d versions were told, %v; %d cursors were lost", len(told), told, lost.Load())
			}
		})
	}
}

// Few of the current versions are in memory before the first one is used, where they are large, and the log has
// all versions, in order, wherever they are.
func TestLogOfLargeVersions(t *testing.T) {
	const documents, large = 80, 300 << 10
	ctx, sent := bounded(t), &recorder{}
	s := openRecorded(t, Bounds{Versions: 1, Bytes: 1}, sent)
	var vs []driver.Version
	past := int64(0) // versions; a server may return them at once
	for i := range documents {
		for n := range 3 {
			data := fmt.Appendf(nil, `{"a":"%s"}`, strings.Repeat("a", large*(i%3+1)/3))
			at := driver.Instant(1000 + 10*(i*7%documents) + n)
			vs = append(vs, driver.Version{Collection: "tools", Key: fmt.Sprint("k", i), RecordedAt: at, Op: driver.OpImport, Data: data})
			if i%4 != 0 {
				break // no history
			}
			past += int64(min(n, 1))
		}
	}
	if _, err := loadAgain(ctx, s, vs); err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(vs, func(a, b driver.Version) int { return int(a.RecordedAt - b.RecordedAt) })
	for _, backward := range []bool{false, true} {
		if backward {
			slices.Reverse(vs)
		}
		for _, limit := range []int{0, documents / 2} {
			want := vs
			if limit > 0 {
				want = vs[:limit]
			}
			sent.returned.Store(0)
			n := 0
			for v, err := range s.Log(ctx, &driver.LogQuery{Backward: backward, Limit: limit}) {
				if err != nil {
					t.Fatal(err)
				}
				if read := sent.returned.Load() - past; n == 0 && read > documents/2 {
					t.Errorf("%d current versions were read for the first one of the log (backward %t, limit %d)", read, backward, limit)
				}
				if n == len(want) || v.RecordedAt != want[n].RecordedAt || v.Key != want[n].Key {
					t.Fatalf("version %d of the log (backward %t, limit %d) is %v", n, backward, limit, v.Position())
				}
				n++
			}
			if n != len(want) {
				t.Errorf("the log (backward %t, limit %d) has %d versions, want %d", backward, limit, n, len(want))
			}
		}
	}
}
