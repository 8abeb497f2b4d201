package mongostore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

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
