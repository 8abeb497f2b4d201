package mongostore

import (
	"context"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/mongostore/mongotest"
)

// Watches have one change stream together, however many collections there are,
// and another one when the server has ended it.
func TestWatchesHaveOneStream(t *testing.T) {
	server := mongotest.NewServer(t)
	server.NeedsChangeStreams(t)
	proxy, uri, _ := server.Behind(t)
	s := patient(newServerOf(t, uri, Options{Collections: []driver.Collection{{Name: "things"}, {Name: "others"}, {Name: "more"}}}))
	opened, asked := make(chan struct{}, 100), make(chan struct{}, 100)
	ends := make(chan struct{}, 1) // the next answer of a stream ends it
	proxy.Set(func(c mongotest.Command) mongotest.Answer {
		if first, _ := c.Body.Lookup("pipeline", "0", "$changeStream").DocumentOK(); c.Name == "aggregate" && first != nil {
			opened <- struct{}{}
		}
		if c.Name != "getMore" {
			return mongotest.Pass()
		}
		select {
		case asked <- struct{}{}:
		default:
		}
		select {
		case <-ends:
			return mongotest.Reply(bson.D{
				{Key: "ok", Value: 1},
				{Key: "cursor", Value: bson.D{{Key: "id", Value: int64(0)}, {Key: "ns", Value: c.Collection()}, {Key: "nextBatch", Value: bson.A{}}}},
			})
		default:
			return mongotest.Pass()
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	begun, finished := make(chan struct{}, 2), make(chan error, 2)
	for range cap(begun) {
		go func() {
			var last error
			for a, err := range s.Watch(ctx, &driver.WatchQuery{FromNow: true}) {
				if last = err; err == nil && a.Version == nil {
					select {
					case begun <- struct{}{}:
					default:
					}
				}
			}
			finished <- last
		}()
	}
	wait := func(what string, c <-chan struct{}) {
		t.Helper()
		select {
		case <-c:
		case <-ctx.Done():
			t.Fatalf("%s: not within the time", what)
		}
	}
	for range cap(begun) {
		wait("a watch begins", begun)
	}
	wait("the stream is opened", opened)
	wait("the stream is read", asked)
	if len(opened) > 0 {
		t.Errorf("%d streams more than one", len(opened))
	}
	ends <- struct{}{}
	wait("the stream is opened again", opened)
	cancel()
	for range cap(begun) {
		if err := <-finished; driver.CodeOf(err) != driver.CodeUnavailable {
			t.Errorf("a watch whose time was up ended with %v", err)
		}
	}
}

// What watches share is forgotten with the last of them, also where that ends
// while a round is being read.
func TestSharedRoundsAreForgotten(t *testing.T) {
	uri, _ := mongotest.NewServer(t).Database(t)
	s := newServerOf(t, uri, Options{})
	if _, err := commitAgain(t.Context(), s, write("k", "k", 0)); err != nil {
		t.Fatal(err)
	}
	h := &s.sharing
	for _, watches := range []int{1, 0} {
		r := &sharedRound{done: make(chan struct{})}
		h.rounds = []*sharedRound{r}
		s.waker.watches = watches
		h.forget() // the last watch left, or none did: it is being read
		h.make(s, r)
		if r.err != nil || len(r.versions) != 1 {
			t.Fatalf("the round has %d versions, %v", len(r.versions), r.err)
		}
		if len(h.rounds) != watches || h.versions != watches {
			t.Errorf("with %d watches, %d rounds of %d versions are kept", watches, len(h.rounds), h.versions)
		}
		h.forget()
	}
}
