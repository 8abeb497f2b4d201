package mongostore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	wire "go.mongodb.org/mongo-driver/v2/x/mongo/driver"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/mongostore/mongotest"
)

// newer is a collection that not all servers know.
const newer = "newer"

// two is a load of two documents.
func two(round int, second string) []driver.Version {
	return []driver.Version{
		{Collection: "things", Key: fmt.Sprintf("l%d", round), RecordedAt: 10, Op: driver.OpImport, Author: "import", Data: []byte(`{}`)},
		{Collection: second, Key: fmt.Sprintf("m%d", round), RecordedAt: 11, Op: driver.OpImport, Author: "import", Data: []byte(`{}`)},
	}
}

// dieLoading lets a server load, and leaves it as one that was killed when some
// of the versions were there. meanwhile is called before the end.
func dieLoading(ctx context.Context, t *testing.T, dying *Store, vs []driver.Version, written int, meanwhile func()) {
	t.Helper()
	if _, err := again(ctx, func(ctx context.Context) (*journal, error) {
		l := dying.newLoading(driver.Forever)
		var err error
		if l.life, err = dying.fleet.exclude(ctx); err != nil {
			return nil, err
		}
		_, _, err = l.plan(ctx, vs)
		var j *journal
		if err == nil {
			j, err = dying.newJournal(l)
		}
		if err == nil {
			err = j.insert(ctx, 0)
		}
		if err == nil {
			err = dying.addLoaded(ctx, vs[:written], l.life)
		}
		if err != nil {
			dying.fleet.include()
		}
		return j, err
	}); err != nil {
		t.Fatal(err)
	}
	meanwhile()
	kill(dying)
}

// checkLoaded checks that the versions of a load are there, and no load is left.
func checkLoaded(ctx context.Context, t *testing.T, s *Store, vs []driver.Version) {
	t.Helper()
	for _, v := range vs {
		var found struct {
			Prev    []bson.Raw `bson:"prev"`
			Current struct {
				By string `bson:"by"`
			} `bson:"current"`
		}
		err := s.db.Collection(v.Collection).FindOne(ctx, byKey(v.Key)).Decode(&found)
		if err != nil || found.Current.By != v.Author || len(found.Prev) > 0 {
			t.Errorf("%s %s is %+v, %v", v.Collection, v.Key, found, err)
		}
	}
	if left, err := s.journal().CountDocuments(ctx, bson.D{}); err != nil || left != 0 {
		t.Errorf("%d parts of loads are left, %v", left, err)
	}
}

// A server that loads and goes at once holds off nobody's commits.
func TestLoaderLeaves(t *testing.T) {
	t.Parallel()
	uri, _ := mongotest.NewServer(t).Database(t)
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	stay := []*Store{newFleetServer(t, uri, Options{}), newFleetServer(t, uri, Options{})}
	for round := range 3 {
		loader := newFleetServer(t, uri, Options{})
		if _, err := loadAgain(ctx, loader, two(round, "things")); err != nil {
			t.Fatal(err)
		}
		if err := loader.Close(); err != nil {
			t.Fatal(err)
		}
		for n, s := range stay {
			id := fmt.Sprintf("c%d.%d", round, n)
			if _, err := commitAgain(ctx, s, write(id, id, 0)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// What was loaded is there for who asks any server afterwards.
func TestLoadIsSeenEverywhere(t *testing.T) {
	t.Parallel()
	uri, _ := mongotest.NewServer(t).Database(t)
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	loader, other := newFleetServer(t, uri, Options{}), newFleetServer(t, uri, Options{})
	until(ctx, t, loader, func(c *clock) bool { return c.mode == shared })
	for round := range 20 {
		vs := two(round, "things")[:1+round%2]
		if _, err := loadAgain(ctx, loader, vs); err != nil {
			t.Fatal(err)
		}
		now, err := other.Now(ctx)
		if err != nil {
			t.Fatal(err)
		}
		h, err := other.collections["things"].readHead(ctx, vs[0].Key)
		if err != nil || h.loaded == 0 || h.loaded > now {
			t.Fatalf("load %d arrived at %v, %v; on another server it was %d afterwards", round, h, err, now)
		}
	}
}

// What was there already when it was loaded again is there for who asks afterwards,
// also where the load that added it ended without an answer.
func TestLoadAgainIsSeen(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	proxy, behind, beside := pair(ctx, t, Options{})
	inserted := make(chan struct{})
	insert := sync.OnceFunc(func() { close(inserted) })
	proxy.Set(func(c mongotest.Command) mongotest.Answer {
		if of("insert")(c) {
			insert()
			return mongotest.CutAfter()
		}
		return mongotest.Pass()
	})
	vs := two(0, "things")[:1]
	if err := <-loadUntil(ctx, behind, vs, inserted); err == nil {
		t.Fatal("the first load had an answer")
	}
	if r, err := loadAgain(ctx, beside, vs); err != nil || r.Skipped != 1 {
		t.Fatalf("loaded again: %+v, %v", r, err)
	}
	h, err := beside.collections["things"].readHead(ctx, vs[0].Key)
	if err != nil {
		t.Fatal(err)
	}
	if now, err := beside.Now(ctx); err != nil || now < h.loaded {
		t.Errorf("it arrived at %d; afterwards it was %d, %v", h.loaded, now, err)
	}
}

// A loader that is not among the servers is taken for dead.
func TestLoaderIsGone(t *testing.T) {
	uri, _ := mongotest.NewServer(t).Database(t)
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	servers := []*Store{newFleetServer(t, uri, Options{}), newFleetServer(t, uri, Options{})}
	if _, err := servers[0].meta.UpdateOne(ctx, bson.D{{Key: "_id", Value: clockID}},
		bson.D{{Key: "$set", Value: bson.D{{Key: "loader", Value: "gone"}}}}); err != nil {
		t.Fatal(err)
	}
	for n, s := range servers {
		if _, err := commitAgain(ctx, s, write(fmt.Sprint(n), fmt.Sprint(n), 0)); err != nil {
			t.Error(err)
		}
	}
}

// A server that has loads of others to complete does not go as if it had none.
func TestHeirLeaves(t *testing.T) {
	c := newClock(time.Now, func() time.Duration { return 0 }, 1)
	if _, clear := c.handedOut(); !clear {
		t.Error("a clock without commits leaves something")
	}
	c.debts = 1
	if _, clear := c.handedOut(); clear {
		t.Error("a load that is not completed is nothing")
	}
}

// Commits that waited for the load of a server come after it also where that
// server died, and another one completes it.
func TestCommitsWaitForHeir(t *testing.T) {
	t.Parallel()
	uri, _ := mongotest.NewServer(t).Database(t)
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	heir := newFleetServer(t, uri, Options{})
	dying := newFleetServer(t, uri, Options{})
	until(ctx, t, heir, func(c *clock) bool { return c.mode == shared })
	vs := two(0, "things")
	committed := make(chan error, 1)
	dieLoading(ctx, t, dying, vs, 1, func() {
		go func() {
			_, err := commitAgain(ctx, heir, write(vs[1].Key, "c", 0))
			committed <- err
		}()
		for asked := false; !asked && ctx.Err() == nil; {
			heir.clock.mu.Lock()
			asked = len(heir.clock.waiting) > 0
			heir.clock.mu.Unlock()
		}
	})
	var conflict *driver.ConflictError
	if err := <-committed; !errors.As(err, &conflict) {
		t.Errorf("a commit beside the load of the same document: %v", err)
	}
	checkLoaded(ctx, t, heir, vs)
}

// A load is completed by a server that does not know one of its collections.
func TestHeirWithoutCollection(t *testing.T) {
	uri, _ := mongotest.NewServer(t).Database(t)
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	heir := newFleetServer(t, uri, Options{})
	dying := newFleetServer(t, uri, Options{Collections: []driver.Collection{{Name: "things"}, {Name: newer}}})
	vs := two(0, newer)
	dieLoading(ctx, t, dying, vs, 1, func() {})
	if _, err := commitAgain(ctx, heir, write("c", "c", 0)); err != nil {
		t.Error(err)
	}
	checkLoaded(ctx, t, heir, vs)
	if _, err := loadAgain(ctx, heir, two(1, newer)); driver.CodeOf(err) != driver.CodeInvalid {
		t.Errorf("a load into a collection that is not known: %v", err)
	}
}

// A load with a document that MongoDB cannot take changes nothing, and holds
// nothing off.
func TestLoadTooLarge(t *testing.T) {
	t.Parallel()
	uri, _ := mongotest.NewServer(t).Database(t)
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	s := newFleetServer(t, uri, Options{})
	vs := two(0, "things")
	vs[1].Data = append(append([]byte(`{"a":[1`), bytes.Repeat([]byte(",1"), 500_000)...), "]}"...)
	for _, load := range [][]driver.Version{vs, vs[1:]} {
		_, err := loadAgain(ctx, s, load)
		var refused *driver.LoadError
		if !errors.As(err, &refused) || refused.Index != len(load)-1 || driver.CodeOf(err) != driver.CodeInvalid {
			t.Errorf("a load of %d versions: %v", len(load), err)
		}
	}
	if n := countVersions(t, s); n != 0 {
		t.Errorf("%d versions are there", n)
	}
	checkLoaded(ctx, t, s, nil)
	if _, err := commitAgain(ctx, s, write("c", "c", 0)); err != nil {
		t.Error(err)
	}
}

// What fails however often it is tried is told from what does not.
func TestHopeless(t *testing.T) {
	tests := []struct {
		name string
		err  error
		want bool
	}{
		{"too large for the driver", fmt.Errorf("writing: %w", wire.ErrDocumentTooLarge), true},
		{"too large for the server", mongo.BulkWriteException{WriteErrors: []mongo.BulkWriteError{{WriteError: mongo.WriteError{Code: 10334}}}}, true},
		{"it does not fit", &driver.LoadError{Err: errors.New("another version")}, true},
		{"the time was up", context.DeadlineExceeded, false},
		{"what another try finds", driver.Errorf(driver.CodeUnavailable, "load it again"), false},
		{"kept out by a validator", mongo.BulkWriteException{WriteErrors: []mongo.BulkWriteError{{WriteError: mongo.WriteError{Code: 121}}}}, true},
		{"kept out by an index", mongo.WriteException{WriteErrors: []mongo.WriteError{{Code: 11000, Message: "E11000 duplicate key error index: by_1 dup key"}}}, true},
		{"there already", mongo.WriteException{WriteErrors: []mongo.WriteError{{Code: 11000, Message: "E11000 duplicate key error index: _id_ dup key"}}}, false},
		{"a fault", errors.New("a fault"), false},
	}
	s := &Store{timeout: time.Minute}
	for _, test := range tests {
		if got := s.hopeless(test.err, time.Second); got != test.want {
			t.Errorf("%s: %t", test.name, got)
		}
	}
	if !s.hopeless(errors.New("a fault"), time.Hour) {
		t.Error("a fault is tried for ever")
	}
}

// A load that waits for its turn ends with its store.
func TestWaitingLoadEndsWithStore(t *testing.T) {
	uri, _ := mongotest.NewServer(t).Database(t)
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	s := newFleetServer(t, uri, Options{beat: beatEvery})
	wait := func(more int) {
		s.clock.mu.Lock()
		defer s.clock.mu.Unlock()
		s.clock.held += more
		s.clock.broadcast()
	}
	wait(1)
	defer wait(-1)
	s.giveUp()
	if _, err := s.Load(ctx, two(0, "things")); driver.CodeOf(err) != driver.CodeUnavailable || ctx.Err() != nil {
		t.Errorf("it ended with %v, when the time was up: %t", err, ctx.Err() != nil)
	}
}
