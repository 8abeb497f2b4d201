package mongostore

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/asof/asof/storage/driver"
)

// Store is an engine over a database of MongoDB, behind a guard (see check.Guard).
type Store struct {
	client  *mongo.Client
	dialer  *dialer // what client has, once the store is open
	db      *mongo.Database
	meta    *mongo.Collection
	clock   *clock
	logger  *slog.Logger
	timeout time.Duration
	// majorities: what was carried out is not what a majority has.
	majorities bool
	// snapshots: the server can answer several commands as of one moment.
	snapshots bool
	progress  progress
	heads     *heads
	writes    sync.Map // *outcome of writes on their way, by collection and ID
	// collections has every collection that is declared now or was before.
	collections map[string]*collection
	// life ends when the store gives up what is still running.
	life    context.Context
	giveUp  context.CancelFunc
	running sync.WaitGroup // writes, also those whose callers have given up
}

// collection is one of documents, with its overflow.
type collection struct {
	name          string
	main, history *mongo.Collection
	store         *Store
	bounds        Bounds
	latest        atomic.Int64 // the last instant of a version that changedSince has seen
}

// bounded returns the context of a call, which ends at last when the store's timeout is
// over, and what is to be called when the call has ended.
func (s *Store) bounded(ctx context.Context) (context.Context, func()) {
	cancel := context.CancelFunc(func() {})
	if _, bounded := ctx.Deadline(); !bounded {
		ctx, cancel = context.WithTimeout(ctx, s.timeout)
	}
	ctx, done := s.causal(ctx)
	return ctx, func() { done(); cancel() }
}

// Now implements driver.Engine.
func (s *Store) Now(ctx context.Context) (driver.Instant, error) {
	ctx, done := s.bounded(ctx)
	defer done()
	return s.clock.instant(ctx)
}

// Loaded implements driver.Engine.
func (s *Store) Loaded(ctx context.Context) (driver.Instant, error) {
	ctx, done := s.bounded(ctx)
	defer done()
	var stored struct {
		Loaded int64 `bson:"loaded"`
	}
	err := s.meta.FindOne(ctx, bson.D{{Key: "_id", Value: storeID}}).Decode(&stored)
	return driver.Instant(stored.Loaded), wrap(err, "reading when the last load was")
}

// Settle implements driver.Engine.
func (s *Store) Settle(ctx context.Context, at driver.Instant) error {
	ctx, done := s.bounded(ctx)
	defer done()
	return s.clock.settle(ctx, at)
}

// Ping implements driver.Engine. It finds out whether documents can be read and
// written, with two commands. A server that cannot agree with others on the time cannot
// answer as it should, and returns why.
func (s *Store) Ping(ctx context.Context) error {
	ctx, done := s.bounded(ctx)
	defer done()
	if err := s.clock.check(); err != nil {
		return err
	}
	return wrap(s.ping(ctx), "asking the server whether it answers")
}

// Stats implements driver.Engine. Bytes is what the database takes on disk, or
// where the server does not tell, the size of its documents.
func (s *Store) Stats(ctx context.Context) (driver.Stats, error) {
	ctx, done := s.bounded(ctx)
	defer done()
	var stats driver.Stats
	for _, name := range slices.Sorted(maps.Keys(s.collections)) {
		c, sum := s.collections[name], driver.CollectionStats{Name: name}
		// Numbers have no gaps, so a document's last number counts its versions. All
		// that is asked for is in an index, so that no document is read.
		cursor, err := c.main.Aggregate(ctx, bson.A{
			bson.D{{Key: "$match", Value: bson.D{{Key: "current.at", Value: bson.D{{Key: "$gt", Value: int64(0)}}}}}},
			bson.D{{Key: "$project", Value: bson.D{{Key: "_id", Value: 0}, {Key: "current.v", Value: 1}, {Key: "current.del", Value: 1}}}},
			bson.D{{Key: "$group", Value: bson.D{
				{Key: "_id", Value: "$current.del"},
				{Key: "documents", Value: bson.D{{Key: "$sum", Value: 1}}},
				{Key: "versions", Value: bson.D{{Key: "$sum", Value: "$current.v"}}},
			}}},
		})
		if err != nil {
			return driver.Stats{}, wrap(err, "counting in "+c.name)
		}
		var groups []struct {
			Deleted   bool  `bson:"_id"`
			Documents int64 `bson:"documents"`
			Versions  int64 `bson:"versions"`
		}
		if err := cursor.All(ctx, &groups); err != nil {
			return driver.Stats{}, wrap(err, "counting in "+c.name)
		}
		for _, g := range groups {
			sum.Versions += g.Versions
			if !g.Deleted {
				sum.Documents += g.Documents
			}
		}
		stats.Add(sum)
	}
	var size struct {
		Storage float64 `bson:"storageSize"`
		Index   float64 `bson:"indexSize"`
		Data    float64 `bson:"dataSize"`
	}
	if err := s.db.RunCommand(ctx, bson.D{{Key: "dbStats", Value: 1}}).Decode(&size); err != nil {
		return driver.Stats{}, wrap(err, "asking for the size of the database")
	}
	stats.Bytes = int64(size.Storage + size.Index)
	if stats.Bytes == 0 {
		stats.Bytes = int64(size.Data)
	}
	return stats, nil
}

// closeTimeout is how long Close waits for writes whose callers have given up.
const closeTimeout = 10 * time.Second

// Close implements driver.Engine. It notes the latest instant that anyone was given, so
// that the next opening does not go behind it.
func (s *Store) Close() error {
	finished := make(chan struct{})
	go func() { s.running.Wait(); close(finished) }()
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	select {
	case <-finished:
	case <-ctx.Done():
	}
	s.giveUp()
	leaving, cancel := context.WithTimeout(ctx, closingTimeout)
	defer cancel()
	return errors.Join(wrap(s.clock.leave(leaving), "closing the store"), wrap(s.client.Disconnect(ctx), "closing the store"))
}
