package mongostore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/mongostore/mongotest"
)

func TestSnapshotIsTriedAgain(t *testing.T) {
	uri, _ := mongotest.NewServer(t).Database(t)
	s := newServerOf(t, uri, Options{})
	s.snapshots = true
	gone := mongo.CommandError{Code: snapshotUnavailable}
	for _, c := range []struct {
		fails int
		err   error
		calls int
		code  driver.Code
	}{
		{0, nil, 1, ""},
		{2, gone, 3, ""},
		{2, mongo.CommandError{Code: snapshotTooOld}, 3, ""},
		{snapshotAttempts, gone, snapshotAttempts, driver.CodeUnavailable},
		{1, errors.New("something else"), 1, driver.CodeInternal},
	} {
		calls := 0
		err := s.inSnapshot(t.Context(), func(ctx context.Context) error {
			if mongo.SessionFromContext(ctx) == nil {
				t.Error("the read has no session")
			}
			if calls++; calls <= c.fails {
				return c.err
			}
			return nil
		})
		if calls != c.calls || driver.CodeOf(err) != c.code {
			t.Errorf("%v %d times: %d calls, %v", c.err, c.fails, calls, err)
		}
	}
}

// Nobody waits for a snapshot longer than he has time.
func TestSnapshotWaitEnds(t *testing.T) {
	uri, _ := mongotest.NewServer(t).Database(t)
	s := newServerOf(t, uri, Options{})
	s.snapshots = true
	ctx, cancel := context.WithCancel(t.Context())
	calls := 0
	err := s.inSnapshot(ctx, func(context.Context) error {
		calls++
		cancel()
		return mongo.CommandError{Code: snapshotUnavailable}
	})
	if calls != 1 || driver.CodeOf(err) != driver.CodeUnavailable || !isSnapshotGone(err) {
		t.Errorf("%d calls, %v", calls, err)
	}
}

// Documents move in the index by which they are scanned, from its end to its
// beginning and back: each is met once.
func TestScansAreSnapshots(t *testing.T) {
	server := mongotest.NewServer(t)
	uri, _ := server.Database(t)
	s := newServerOf(t, uri, Options{})
	mongotest.Needs(t, "snapshot reads", func() error {
		if !s.snapshots {
			return errors.New("it is no member of a replica set of MongoDB 5.0 or newer")
		}
		return nil
	})
	const documents, writers, rounds = 2000, 4, 20
	stars := driver.Field{Path: []string{"stars"}, Kind: driver.KindInt}
	if err := s.collections["things"].declare(t.Context(), []driver.Index{{Path: stars.Path, Kind: stars.Kind}}); err != nil {
		t.Fatal(err)
	}
	var vs []driver.Version
	for d := range documents {
		vs = append(vs, driver.Version{
			Collection: "things", Key: fmt.Sprintf("k%d", d), RecordedAt: 1_000_000, Op: driver.OpImport, Data: fmt.Appendf(nil, `{"stars":%d}`, d),
		})
	}
	if _, err := loadAgain(t.Context(), s, vs); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var done sync.WaitGroup
	for writer := range writers {
		done.Go(func() {
			for n := int64(1); ctx.Err() == nil; n++ {
				for d := writer; d < documents && ctx.Err() == nil; d += writers {
					w := write(fmt.Sprintf("k%d", d), fmt.Sprintf("%d.%d", d, n), n)
					w.Data = fmt.Appendf(nil, `{"stars":%d}`, (int64(d)+n*documents/2)%documents)
					if _, err := commitAgain(t.Context(), s, w); err != nil {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	for range rounds {
		at, err := s.Now(ctx)
		if err != nil {
			t.Fatal(err)
		}
		q := &driver.Query{Collection: "things", At: at, Filter: driver.Compare{Field: stars, Op: driver.Ge, Value: int64(0)}, Order: []driver.Order{{Field: stars}}}
		found, err := s.Query(ctx, q)
		if err != nil || len(found) != documents {
			t.Errorf("Query: %d documents of %d, %v", len(found), documents, err)
		}
		if n, err := s.Count(ctx, q); err != nil || n != documents {
			t.Errorf("Count: %d documents of %d, %v", n, documents, err)
		}
	}
	n := 0
	for _, err := range s.Log(ctx, &driver.LogQuery{To: 1_000_001, Fields: []string{}}) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n != documents {
		t.Errorf("Log: %d versions of %d", n, documents)
	}
	stop()
	done.Wait()
}

// poseAsPrimary lets a server pose as the primary of a replica set, with sessions and a time of
// operations that goes on with each command.
func poseAsPrimary(proxy *mongotest.Proxy, answer func(mongotest.Command) mongotest.Answer) {
	var operations atomic.Uint32
	proxy.Set(func(c mongotest.Command) mongotest.Answer {
		a := answer(c)
		if a.Passes() {
			return mongotest.Rewrite(func(reply bson.Raw) bson.D {
				at := bson.Timestamp{T: 100, I: operations.Add(1)}
				var d bson.D
				if err := bson.Unmarshal(reply, &d); err != nil {
					return bson.D{{Key: "ok", Value: 0.0}, {Key: "errmsg", Value: err.Error()}}
				}
				if c.Hello() {
					d = append(d, bson.E{Key: "setName", Value: "rs0"}, bson.E{Key: "isWritablePrimary", Value: true}, bson.E{Key: "me", Value: proxy.Addr()},
						bson.E{Key: "hosts", Value: bson.A{proxy.Addr()}}, bson.E{Key: "logicalSessionTimeoutMinutes", Value: int32(30)})
				}
				return append(d, bson.E{Key: "operationTime", Value: at}, bson.E{Key: "$clusterTime", Value: bson.D{{Key: "clusterTime", Value: at}}})
			})
		}
		return a
	})
}

// Every read waits until the server has got as far as the last answer said that one had:
// a primary that was just elected does not show less than was acknowledged.
func TestReadsAreCausal(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	proxy, uri, _ := mongotest.NewServer(t).Behind(t)
	var mu sync.Mutex
	var last, without int
	seen := make(map[string]bson.Timestamp)
	poseAsPrimary(proxy, func(c mongotest.Command) mongotest.Answer {
		if !strings.HasPrefix(c.Collection(), "things") || c.Name != "find" && c.Name != "aggregate" {
			return mongotest.Pass()
		}
		mu.Lock()
		defer mu.Unlock()
		last++
		var at bson.Timestamp
		var ok bool
		for _, field := range []string{"afterClusterTime", "atClusterTime"} {
			if at.T, at.I, ok = c.Body.Lookup("readConcern", field).TimestampOK(); ok {
				break
			}
		}
		if !ok {
			without++
		}
		seen[c.Name] = at
		return mongotest.Pass()
	})
	s := newServerOf(t, uri, Options{timing: unhurried})
	if !s.progress.kept {
		t.Fatal("the server is not taken for one with sessions")
	}
	if _, err := driver.CommitOne(ctx, s, write("a", "1", 0)); err != nil {
		t.Fatal(err)
	}
	acknowledged := s.progress.operation()
	mu.Lock()
	last, without = 0, 0
	mu.Unlock()
	if _, err := s.Get(ctx, "things", []driver.Ref{{Key: "a", At: driver.Forever}}, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Query(ctx, &driver.Query{Collection: "things", At: driver.Forever}); err != nil {
		t.Fatal(err)
	}
	for _, err := range s.Log(ctx, &driver.LogQuery{}) {
		if err != nil {
			t.Fatal(err)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if last == 0 || without > 0 {
		t.Errorf("%d of %d reads wait for nothing", without, last)
	}
	for name, at := range seen {
		if at.Before(*acknowledged) {
			t.Errorf("a %s waits for %v, and a commit was acknowledged at %v", name, at, acknowledged)
		}
	}
}
