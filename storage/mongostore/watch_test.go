package mongostore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/mongostore/mongotest"
)

// seenVersion is a version that a watch told, with the position behind it.
type seenVersion struct {
	position driver.WatchPosition
	key      string
	number   int64
}

// watchUntil follows a watch until a version of a key arrives, or it has told so
// many (0: no limit).
func watchUntil(ctx context.Context, s *Store, q driver.WatchQuery, key string, most int) (seen []seenVersion, err error) {
	for a, err := range s.Watch(ctx, &q) {
		if err != nil {
			return seen, err
		}
		if a.Version == nil {
			continue
		}
		seen = append(seen, seenVersion{a.Position, a.Version.Key, a.Version.Number})
		if a.Version.Key == key || len(seen) == most {
			break
		}
	}
	return seen, nil
}

// wholeStory says what is wrong with what a watch from the beginning told: each
// version must be there once, in the order of the numbers of its document.
func wholeStory(seen []seenVersion, want map[string]int64) (problems []string) {
	got := make(map[string]int64)
	for _, v := range seen {
		if got[v.key]++; got[v.key] != v.number {
			problems = append(problems, fmt.Sprintf("%s: version %d came as number %d", v.key, v.number, got[v.key]))
			got[v.key] = v.number
		}
	}
	for key, n := range want {
		if got[key] != n {
			problems = append(problems, fmt.Sprintf("%s: %d versions came, there are %d", key, got[key], n))
		}
	}
	return problems
}

// Watches that move from server to server, all of which write and load, whose
// clocks differ, and one of which is killed, are told everything once.
func TestWatchOfSeveralServers(t *testing.T) {
	t.Parallel()
	server := mongotest.NewServer(t)
	uri, _ := server.Database(t)
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	var servers []*Store
	for _, skew := range skews {
		servers = append(servers, newServerOf(t, uri, Options{Clock: offBy(skew), timing: unending, Bounds: map[string]Bounds{"things": {Versions: 4}}}))
	}
	const last = "~last"
	var mu sync.Mutex
	var stories [][]seenVersion
	var watches, writers sync.WaitGroup
	for n := range 9 {
		watches.Go(func() {
			random := rand.New(rand.NewPCG(7, uint64(n)))
			var seen []seenVersion
			for len(seen) == 0 || seen[len(seen)-1].key != last {
				q := driver.WatchQuery{}
				if len(seen) > 0 {
					q.After = seen[len(seen)-1].position
				}
				more, err := watchUntil(ctx, servers[random.IntN(2)], q, last, 1+random.IntN(60))
				if err != nil {
					t.Errorf("watch %d, behind %d versions: %v", n, len(seen), err)
					return
				}
				seen = append(seen, more...)
			}
			mu.Lock()
			defer mu.Unlock()
			stories = append(stories, seen)
		})
	}
	for n, s := range servers {
		for client := range 2 {
			writers.Go(func() {
				for i := range int64(40) {
					id := fmt.Sprintf("%d.%d.%d", n, client, i)
					if _, err := commitAgain(ctx, s, write(fmt.Sprint("k", n, client), id, i)); err != nil {
						t.Errorf("Commit: %v", err)
						return
					}
					if i%8 != 0 {
						continue
					}
					load := []driver.Version{
						{Collection: "things", Key: "l" + id, RecordedAt: 10, Op: driver.OpImport, Data: []byte(`{}`)},
						{Collection: "things", Key: "l" + id, RecordedAt: driver.Instant(11 + i), Op: driver.OpImport, Data: []byte(`{}`)},
					}
					if _, err := loadAgain(ctx, s, load); err != nil {
						t.Errorf("Load: %v", err)
						return
					}
				}
			})
		}
	}
	writers.Wait()
	kill(servers[2])
	if _, err := commitAgain(ctx, servers[0], write(last, last, 0)); err != nil {
		t.Fatal(err)
	}
	watches.Wait()
	want := make(map[string]int64)
	for e, err := range servers[0].Log(ctx, &driver.LogQuery{NoData: true}) {
		if err != nil {
			t.Fatal(err)
		}
		want[e.Version.Key] = max(want[e.Version.Key], e.Version.Number)
	}
	for _, seen := range stories {
		if problems := wholeStory(seen, want); len(problems) > 0 {
			t.Errorf("%d versions came; %.1000q", len(seen), problems)
		}
	}
}

// patient makes the watches of a store sleep until they are woken.
func patient(s *Store) *Store {
	s.waker.patience = time.Hour
	return s
}

// Commits and loads of the same server wake a watch on any server of MongoDB.
func TestWatchIsWokenByItsServer(t *testing.T) {
	server := mongotest.NewServer(t)
	uri, _ := server.Database(t)
	s := patient(newServerOf(t, uri, Options{}))
	testWoken(t, s, s)
}

// Those of other servers do so by a change stream.
func TestWatchIsWokenByChangeStreams(t *testing.T) {
	server := mongotest.NewServer(t)
	server.NeedsChangeStreams(t)
	uri, _ := server.Database(t)
	testWoken(t, patient(newServerOf(t, uri, Options{})), newServerOf(t, uri, Options{}))
}

// testWoken writes on one store and watches on another.
func testWoken(t *testing.T, watching, writing *Store) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	next := make(chan string)
	done := make(chan error, 1)
	go func() {
		defer close(next)
		for a, err := range watching.Watch(ctx, &driver.WatchQuery{FromNow: true}) {
			if err != nil {
				done <- err
				return
			}
			key := ""
			if a.Version != nil {
				key = a.Version.Key
			}
			select {
			case next <- key:
			case <-ctx.Done():
			}
		}
	}()
	<-next // it has begun
	for i := range 12 {
		key := fmt.Sprint("k", i)
		var err error
		if i%3 == 2 {
			_, err = loadAgain(ctx, writing, []driver.Version{{Collection: "things", Key: key, RecordedAt: 5, Op: driver.OpImport, Data: []byte(`{}`)}})
		} else {
			_, err = commitAgain(ctx, writing, write(key, key, 0))
		}
		if err != nil {
			t.Fatal(err)
		}
		for got := range next {
			if got == key {
				break
			}
		}
		if ctx.Err() != nil {
			t.Fatalf("%s never came: %v", key, <-done)
		}
	}
}

// Positions of every kind are read as they were written, and compare as they
// follow on each other; what is not whole is refused.
func TestWatchPositions(t *testing.T) {
	id := []byte("0123456789abcdef")
	places := []watchPlace{
		{store: id},
		{store: id, from: 1},
		{store: id, from: 1, to: 9, collection: "a", key: "", number: 1},
		{store: id, from: 1, to: 9, collection: "a", key: "x", number: 1},
		{store: id, from: 1, to: 9, collection: "a", key: "x", number: 300},
		{store: id, from: 1, to: 9, collection: "a", key: "x\x00", number: 1},
		{store: id, from: 1, to: 9, collection: "a", key: "x\x00\xff", number: 1},
		{store: id, from: 1, to: 9, collection: "a", key: "x\x01", number: 1},
		{store: id, from: 1, to: 9, collection: "a", key: "xa", number: 1},
		{store: id, from: 1, to: 9, collection: "ab", key: "é", number: 1},
		{store: id, from: 9},
		{store: id, from: 10, to: 11, collection: "a", key: "x", number: 1},
	}
	var positions []driver.WatchPosition
	for _, p := range places {
		position := p.encode()
		positions = append(positions, position)
		read := watchPlace{store: id}
		if err := read.decode(position); err != nil {
			t.Errorf("%+v: %v", p, err)
		}
		if again := read.encode(); again != position || read.key != p.key || read.number != p.number || read.to != p.to {
			t.Errorf("%+v is read as %+v", p, read)
		}
		for n := range len(position) {
			cut := watchPlace{store: id}
			if err := cut.decode(position[:n]); err == nil && (cut.to != 0 || cut.from != p.from) {
				t.Errorf("%+v, cut to %d characters, is %+v", p, n, cut)
			}
		}
	}
	if !slices.IsSorted(positions) {
		t.Error("positions are not in order")
	}
}

// A document of another program is passed over, and one of asof's whose versions
// are broken is an error, not a gap.
func TestWatchAmongForeignDocuments(t *testing.T) {
	server := mongotest.NewServer(t)
	uri, name := server.Database(t)
	s := newServerOf(t, uri, Options{})
	ctx := t.Context()
	main := server.Client.Database(name).Collection("things")
	for _, foreign := range []any{map[string]any{"_id": "a", "name": "plain"}, map[string]any{"_id": 7, "name": "a number"}} {
		if _, err := main.InsertOne(ctx, foreign); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := commitAgain(ctx, s, write("ours", "1", 0)); err != nil {
		t.Fatal(err)
	}
	seen, err := watchUntil(ctx, s, driver.WatchQuery{}, "ours", 0)
	if err != nil || len(seen) != 1 {
		t.Errorf("%v, %v", seen, err)
	}
	if _, err := main.InsertOne(ctx, map[string]any{"_id": "b", "current": map[string]any{"v": "one"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := watchUntil(ctx, s, driver.WatchQuery{}, "ours", 0); driver.CodeOf(err) != driver.CodeInternal {
		t.Errorf("a broken document: %v", err)
	}
}

// More documents of another program than are read at once, before those of asof
// and behind them.
func TestWatchAmongManyForeignDocuments(t *testing.T) {
	server := mongotest.NewServer(t)
	uri, name := server.Database(t)
	s := newServerOf(t, uri, Options{})
	ctx := t.Context()
	var foreign []any
	for _, prefix := range []string{"a", "n", "z😀", "z\uD7FE"} {
		for n := range 2*roundDocuments + 1 {
			foreign = append(foreign, map[string]any{"_id": fmt.Sprintf("%s%03d", prefix, n), "name": "plain"})
		}
	}
	if _, err := server.Client.Database(name).Collection("things").InsertMany(ctx, foreign); err != nil {
		t.Fatal(err)
	}
	want := map[string]int64{"m": 1, "o": 1, "z\uE000": 1, "zé": 1}
	for key := range want {
		if _, err := commitAgain(ctx, s, write(key, key, 0)); err != nil {
			t.Fatal(err)
		}
	}
	seen, err := watchUntil(ctx, s, driver.WatchQuery{}, "z\uE000", 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range wholeStory(seen, want) {
		t.Error(problem)
	}
}

// A round of a position that is ahead of now says nothing about where the watches
// that are behind it can go on.
func TestRoundsAheadOfNow(t *testing.T) {
	const now, future = 100, 1000
	ahead := &sharedRound{from: future, done: make(chan struct{})}
	ended := &sharedRound{from: 50, to: now}
	tests := []struct {
		name   string
		rounds []*sharedRound
		from   driver.Instant
		round  *sharedRound
		join   driver.Instant
	}{
		{"it is the only one", []*sharedRound{ahead}, now, ahead, 0},
		{"behind what ended", []*sharedRound{ended, ahead}, now, ahead, 0},
		{"where one ended that is kept", []*sharedRound{ended, ahead}, 50, ended, 0},
		{"within what ended", []*sharedRound{ended, ahead}, 60, nil, now},
		{"before all", []*sharedRound{ended, ahead}, 10, nil, now},
		{"further ahead", []*sharedRound{ended, ahead}, future + 1, ahead, 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			h := &sharing{rounds: test.rounds}
			if round, join := h.at(nil, test.from); round != test.round || join != test.join {
				t.Errorf("%+v, %d; want %+v, %d", round, join, test.round, test.join)
			}
		})
	}
}
