package mongostore

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/mongostore/mongotest"
)

// obstacles keep one document of a load out, and say of what the reason tells.
func obstacles() []obstacle {
	return []obstacle{
		{"a unique index of another program", "drop it", func(ctx context.Context, t *testing.T, s *Store, _ *mongotest.Proxy) (remove func()) {
			t.Helper()
			things := s.db.Collection("things").Indexes()
			name, err := things.CreateOne(ctx, mongo.IndexModel{Keys: bson.D{{Key: "current.by", Value: 1}}, Options: options.Index().SetUnique(true)})
			if err != nil {
				t.Fatal(err)
			}
			return func() {
				if err := things.DropOne(ctx, name); err != nil {
					t.Fatal(err)
				}
			}
		}},
		// The server that the tests run on may know no validators.
		{"a validator of another program", "Document failed validation", func(_ context.Context, _ *testing.T, _ *Store, proxy *mongotest.Proxy) (remove func()) {
			return answering(proxy, bson.D{{Key: "ok", Value: 1.0}, {Key: "n", Value: int32(0)}, {Key: "writeErrors", Value: bson.A{
				bson.D{{Key: "index", Value: int32(0)}, {Key: "code", Value: int32(documentRefused)}, {Key: "errmsg", Value: "Document failed validation"}},
			}}})
		}},
		{"an error that is not known", "as yet unknown", func(_ context.Context, _ *testing.T, _ *Store, proxy *mongotest.Proxy) (remove func()) {
			return answering(proxy, mongotest.Failure(99999, "SomethingNew", "as yet unknown"))
		}},
	}
}

type obstacle struct {
	name, says string
	put        func(ctx context.Context, t *testing.T, s *Store, proxy *mongotest.Proxy) (remove func())
}

// answering answers what inserts the documents of a load.
func answering(proxy *mongotest.Proxy, reply bson.D) (end func()) {
	proxy.Set(func(c mongotest.Command) mongotest.Answer {
		if ordered, ok := c.Body.Lookup("ordered").BooleanOK(); of("insert")(c) && ok && !ordered {
			return mongotest.Reply(reply)
		}
		return mongotest.Pass()
	})
	return func() { proxy.Set(nil) }
}

// checkKept checks that a load was given up, and says why: one, or more where it was
// loaded again.
func checkKept(ctx context.Context, t *testing.T, s *Store, says string) {
	t.Helper()
	var problems []string
	if err := s.checkJournal(ctx, func(problem string) { problems = append(problems, problem) }); err != nil {
		t.Fatal(err)
	}
	if len(problems) == 0 || slices.ContainsFunc(problems, func(problem string) bool { return !strings.Contains(problem, says) }) {
		t.Errorf("check reports %q; want a load, and that %s", problems, says)
	}
}

// A load that another program's index or validator keeps out, or that fails in a
// way that nobody knows, ends and lets others commit. When nothing is in the way
// any more it is completed, by loading it again or by opening the store.
func TestLoadKeptOut(t *testing.T) {
	for _, again := range []bool{true, false} {
		for _, o := range obstacles() {
			t.Run(o.name, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), hangs)
				defer cancel()
				proxy, behind, beside := pair(ctx, t, Options{Timeout: 2 * time.Second})
				vs := two(0, "things")
				remove := o.put(ctx, t, behind, proxy)
				_, err := loadAgain(ctx, behind, vs)
				if driver.CodeOf(err) != driver.CodeInternal || !strings.Contains(err.Error(), o.says) || !strings.Contains(err.Error(), "given up") {
					t.Errorf("Load: %v (%q)", err, driver.CodeOf(err))
				}
				if _, err := commitAgain(ctx, beside, write("b", "b", 0)); err != nil {
					t.Fatal(err)
				}
				checkKept(ctx, t, beside, o.says)
				remove()
				if again {
					if _, err := loadAgain(ctx, behind, vs); err != nil {
						t.Fatalf("loaded again: %v", err)
					}
				}
				checkLoaded(ctx, t, newFleetServer(t, mongoURI(t, beside), Options{}), vs)
			})
		}
	}
}

// What a dead server was loading, and is kept out, holds up nobody for long.
func TestHeirGivesUp(t *testing.T) {
	for _, o := range obstacles() {
		t.Run(o.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), hangs)
			defer cancel()
			proxy, uri, name := mongotest.NewServer(t).Behind(t)
			direct, err := mongotest.WithDatabase(mongotest.URI(t), name)
			if err != nil {
				t.Fatal(err)
			}
			vs := two(0, "things")
			dying := newFleetServer(t, direct, Options{})
			var log bytes.Buffer
			remove := o.put(ctx, t, dying, proxy)
			dieLoading(ctx, t, dying, vs, 0, func() {})
			heir := newFleetServer(t, uri, Options{Timeout: 2 * time.Second, Logger: slog.New(slog.NewTextHandler(&log, nil))})
			if _, err := commitAgain(ctx, heir, write("b", "b", 0)); err != nil {
				t.Fatal(err)
			}
			checkKept(ctx, t, heir, o.says)
			if text := log.String(); !strings.Contains(text, "level=ERROR") || !strings.Contains(text, "Remove what is in the way") {
				t.Errorf("log: %s", text)
			}
			// Opening a store while it is still kept out changes nothing.
			checkKept(ctx, t, newFleetServer(t, uri, Options{Timeout: 2 * time.Second}), o.says)
			remove()
			checkLoaded(ctx, t, newFleetServer(t, direct, Options{}), vs)
		})
	}
}

// What was given up is completed by opening the store also where the database does not
// answer for a moment.
func TestKeptLoadIsTriedOn(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	proxy, uri, _ := mongotest.NewServer(t).Behind(t)
	uri += "&retryWrites=false"
	before := newFleetServer(t, uri, Options{})
	vs := two(0, "things")
	o := obstacles()[1]
	remove := o.put(ctx, t, before, proxy)
	if _, err := loadAgain(ctx, before, vs); driver.CodeOf(err) != driver.CodeInternal {
		t.Fatalf("what is kept out was loaded: %v", err)
	}
	checkKept(ctx, t, before, o.says)
	remove()
	var inserts atomic.Int32
	proxy.Set(func(c mongotest.Command) mongotest.Answer {
		if of("insert")(c) && inserts.Add(1) == 1 {
			return mongotest.CutBefore()
		}
		return mongotest.Pass()
	})
	checkLoaded(ctx, t, newFleetServer(t, uri, Options{}), vs)
}

// mongoURI is where a store is, without a proxy.
func mongoURI(t *testing.T, s *Store) string {
	t.Helper()
	uri, err := mongotest.WithDatabase(mongotest.URI(t), s.db.Name())
	if err != nil {
		t.Fatal(err)
	}
	return uri
}
