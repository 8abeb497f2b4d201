package mongostore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/mongostore/mongotest"
)

// unseal takes the seals out of a document, as a server of format 1 writes it: all, or, as
// such a server that still runs, those of the last two versions.
func unseal(ctx context.Context, t *testing.T, c *collection, key string, all bool) {
	t.Helper()
	without := func(v bson.RawValue) (versions []superseded) {
		records, err := c.list(key, v)
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range records {
			if all || i == len(records)-1 {
				r.Seal = nil
			}
			versions = append(versions, supersede(r, r.SupersededAt))
		}
		return versions
	}
	raw, err := c.main.FindOne(ctx, byKey(key)).Raw()
	if err != nil {
		t.Fatal(err)
	}
	h, err := c.decodeHead(key, raw)
	if err != nil {
		t.Fatal(err)
	}
	h.Seal = nil
	set := bson.D{{Key: "current", Value: embedded(encodeVersion(&h.record))}}
	if prev := without(raw.Lookup("prev")); len(prev) > 0 {
		set = append(set, bson.E{Key: "prev", Value: raws(prev)}, bson.E{Key: "size", Value: sizeOf(prev)})
	}
	if _, err := c.main.UpdateOne(ctx, byKey(key), bson.D{{Key: "$set", Value: set}}); err != nil {
		t.Fatal(err)
	}
	cursor, err := c.history.Find(ctx, bson.D{{Key: "k", Value: key}})
	if err := each(ctx, cursor, err, func(run bson.Raw) error {
		if !all {
			return nil
		}
		versions := without(run.Lookup("vs"))
		_, err := c.history.ReplaceOne(ctx, byRun(key, versions[0].number), runOf(key, versions))
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

const unsealedDocuments = 6

// unsealedStore is a store of format 1, with documents of 1 to 31 versions.
func unsealedStore(t *testing.T, uri string) {
	t.Helper()
	s := newServerOf(t, uri, Options{Bounds: map[string]Bounds{"things": {Versions: 4}}})
	c := s.collections["things"]
	for i := range unsealedDocuments {
		key := fmt.Sprint("k", i)
		for n := range 1 + 6*i {
			if _, err := commitAgain(t.Context(), s, write(key, fmt.Sprint(n), int64(n))); err != nil {
				t.Fatal(err)
			}
		}
		unseal(t.Context(), t, c, key, true)
	}
	if err := errors.Join(s.clock.leave(t.Context()), change(storeID, bson.D{{Key: "format", Value: int64(1)}})(t.Context(), s)); err != nil {
		t.Fatal(err)
	}
	if problems := checkSays(t.Context(), t, s); len(problems) == 0 {
		t.Fatal("a store without seals is called sound")
	}
}

// A store of format 1 is sealed when it is opened, also where that was ended on the way.
func TestSealsOlderStores(t *testing.T) {
	t.Parallel()
	proxy, uri, _ := mongotest.NewServer(t).Behind(t)
	unsealedStore(t, uri)
	cuts := 0
	for open := false; !open; cuts++ {
		var writes atomic.Int64
		proxy.Set(func(c mongotest.Command) mongotest.Answer {
			if c.Name == "update" && strings.HasPrefix(c.Collection(), "things") && writes.Add(1) > 2 {
				return mongotest.Reply(mongotest.Failure(11600, "InterruptedAtShutdown", "it ends"))
			}
			return mongotest.Pass()
		})
		s, err := openURI(t.Context(), uri, Options{Collections: []driver.Collection{{Name: "things"}}, Timeout: hangs})
		if open = err == nil; open {
			_ = s.Close()
		} else if driver.CodeOf(err) != driver.CodeUnavailable || cuts > 100 {
			t.Fatal(err)
		}
		proxy.Set(nil)
	}
	if cuts < unsealedDocuments {
		t.Errorf("opened after it was cut %d times, which shows nothing", cuts)
	}
	sealedBy(t, uri, 1)
}

func TestServersSealTogether(t *testing.T) {
	t.Parallel()
	uri, _ := mongotest.NewServer(t).Database(t)
	unsealedStore(t, uri)
	sealedBy(t, uri, 3)
}

// sealedBy opens a store, by several servers at once, and checks that it is sealed.
func sealedBy(t *testing.T, uri string, n int) {
	t.Helper()
	servers := make([]*Store, n)
	var opening sync.WaitGroup
	for i := range servers {
		opening.Go(func() { servers[i] = newServerOf(t, uri, Options{}) })
	}
	opening.Wait()
	s := servers[0]
	if problems := checkSays(t.Context(), t, s); len(problems) > 0 {
		t.Errorf("Check: %q", problems)
	}
	if stored, err := s.stored(t.Context()); err != nil || stored.Format != format || stored.Unsealed {
		t.Errorf("the store says %+v, %v", stored, err)
	}
}

// What an older server that still runs has written over is sealed by whoever writes next.
func TestSealsBesideAnOlderServer(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	uri, _ := mongotest.NewServer(t).Database(t)
	s := newServerOf(t, uri, Options{})
	c := s.collections["things"]
	for n := range 3 {
		if _, err := commitAgain(ctx, s, write("a", fmt.Sprint(n), int64(n))); err != nil {
			t.Fatal(err)
		}
	}
	for _, next := range []func(number int64) error{
		func(n int64) error {
			_, err := commitAgain(ctx, s, write("a", "next", n))
			return err
		},
		func(n int64) error {
			at, err := s.Now(ctx)
			if err != nil {
				return err
			}
			_, err = s.Load(ctx, []driver.Version{{Collection: "things", Key: "a", Number: n + 1, RecordedAt: at, Op: driver.OpImport, Data: []byte(`{}`)}})
			return err
		},
	} {
		unseal(ctx, t, c, "a", false)
		c.forget("a") // it was written by another server
		if problems := checkSays(ctx, t, s); len(problems) == 0 || !strings.Contains(problems[0], "has no seal") {
			t.Fatalf("Check: %q", problems)
		}
		h, err := c.get(ctx, []driver.Ref{{Key: "a", At: driver.Forever}})
		if err != nil {
			t.Fatal(err)
		}
		if err := next(h[0].Number); err != nil {
			t.Fatal(err)
		}
		if problems := checkSays(ctx, t, s); len(problems) > 0 {
			t.Errorf("Check: %q", problems)
		}
	}
}

// A single bit that is another one, in any member of a version that reads depend on, is found:
// of the current version, of one beside it and of one in a run.
func TestFlippedBitsAreFound(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	uri, _ := mongotest.NewServer(t).Database(t)
	s := newServerOf(t, uri, Options{Bounds: map[string]Bounds{"things": {Versions: 4}}})
	c := s.collections["things"]
	for n := range 9 {
		w := write("a", fmt.Sprint(n), int64(n))
		w.Author, w.Message, w.Group, w.Changed, w.Data = "ann", "first", "g", []string{"n"}, []byte(`{"n":"text"}`)
		if _, err := commitAgain(ctx, s, w); err != nil {
			t.Fatal(err)
		}
	}
	random := rand.New(rand.NewPCG(1, 3))
	flipped := func(v bson.RawValue) bson.RawValue {
		v.Value = bytes.Clone(v.Value)
		from, to := 0, len(v.Value)
		switch v.Type { //nolint:exhaustive // the others are no members of versions
		case bson.TypeString:
			from, to = 4, to-1 // between the length and the end
		case bson.TypeBinary:
			from = 5
		case bson.TypeArray: // of a text: its last letter
			from, to = to-3, to-2
		case bson.TypeEmbeddedDocument: // that ends with one with a text
			from, to = to-4, to-3
		case bson.TypeBoolean:
			v.Value[0] ^= 1
			return v
		}
		v.Value[from+random.IntN(to-from)] ^= 1 << random.IntN(7)
		return v
	}
	flips := 0
	for _, place := range []struct {
		source *mongo.Collection
		list   string
	}{{c.main, "current"}, {c.main, "prev.0"}, {c.history, "vs.0"}} {
		raw, err := place.source.FindOne(ctx, bson.D{}).Raw()
		if err != nil {
			t.Fatal(err)
		}
		version, _ := raw.Lookup(strings.Split(place.list, ".")...).DocumentOK()
		elements, err := version.Elements()
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range elements {
			if e.Key() == "id" { // of the write, by which a repeated one is known
				continue
			}
			set := func(v bson.RawValue) {
				t.Helper()
				if _, err := place.source.UpdateOne(ctx, bson.D{{Key: "_id", Value: raw.Lookup("_id")}}, bson.D{{Key: "$set", Value: bson.D{{Key: place.list + "." + e.Key(), Value: v}}}}); err != nil {
					t.Fatal(err)
				}
			}
			set(flipped(e.Value()))
			if problems := checkSays(ctx, t, s); len(problems) == 0 {
				t.Errorf("nothing is wrong after a bit of %s.%s was changed", place.list, e.Key())
			}
			set(e.Value())
			flips++
		}
	}
	if problems := checkSays(ctx, t, s); len(problems) > 0 || flips < 30 {
		t.Errorf("after %d flips that were undone: %q", flips, problems)
	}
}
