package mongostore

import (
	"context"
	"errors"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/asof/asof/storage/driver"
)

// A scan on MongoDB is no snapshot: it yields to writes, and a document whose
// place in the index changes meanwhile may be met twice, or not at all. So
// scans are made in a snapshot session where the server has them (replica sets
// and sharded clusters, since MongoDB 5.0). Servers that keep nothing of the
// kind answer each command at once.

// snapshotWire is the version of the protocol that has snapshot sessions.
const snapshotWire = 13

// snapshots reports whether the server reads in snapshots.
func (h *hello) snapshots() bool { return h.replicated() && h.MaxWireVersion >= snapshotWire }

// Codes of errors that say that a snapshot cannot be read, or no longer.
const (
	snapshotTooOld      = 239
	snapshotUnavailable = 246
	// snapshotAttempts bounds how often another snapshot is tried: one cannot be
	// read while a collection or an index was just made.
	snapshotAttempts = 5
)

func isSnapshotGone(err error) bool {
	var server mongo.ServerError
	return errors.As(err, &server) && (server.HasErrorCode(snapshotTooOld) || server.HasErrorCode(snapshotUnavailable))
}

// inSnapshot lets a function read as of one moment, where the server can. The
// function is called again, for another moment, when the server cannot read
// that one.
func (s *Store) inSnapshot(ctx context.Context, read func(context.Context) error) error {
	end, err := s.openSnapshot(ctx, read)
	end()
	return err
}

// openSnapshot is inSnapshot for those who leave cursors open. They call end
// when they have closed them; never nil.
func (s *Store) openSnapshot(ctx context.Context, read func(context.Context) error) (end func(), err error) {
	end = func() {}
	if !s.snapshots {
		return end, read(ctx)
	}
	for attempt := 1; ; attempt++ {
		session, err := s.client.StartSession(options.Session().SetSnapshot(true))
		if err != nil {
			return end, err
		}
		err = read(mongo.NewSessionContext(ctx, session))
		if err == nil {
			return func() { session.EndSession(ctx) }, nil
		}
		session.EndSession(ctx)
		if !isSnapshotGone(err) {
			return end, err
		}
		if attempt == snapshotAttempts {
			return end, driver.Errorf(driver.CodeUnavailable, "the server has no snapshot to read from now: %w", err)
		}
	}
}
