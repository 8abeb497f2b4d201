package mongostore

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/asof/asof/storage/driver"
)

// progress is how far the servers had got that answered last. A primary that was just
// elected may show less than the one before it had acknowledged; so every read waits
// until the server has got that far (afterClusterTime), where servers keep sessions.
type progress struct {
	kept bool

	mu      sync.Mutex
	time    *bson.Timestamp // of the last operation
	cluster bson.Raw        // what servers tell each other of it
}

func (p *progress) operation() *bson.Timestamp {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.time
}

// causal returns a context whose reads see all that was answered before, and what is to
// be called when they have ended. Its commands are made one after the other.
func (s *Store) causal(ctx context.Context) (context.Context, func()) {
	p := &s.progress
	if !p.kept || mongo.SessionFromContext(ctx) != nil {
		return ctx, func() {}
	}
	session, err := s.client.StartSession()
	if err != nil { // the client is closed, which the command says as well
		return ctx, func() {}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.time != nil {
		_, _ = session.AdvanceClusterTime(p.cluster), session.AdvanceOperationTime(p.time) // only of a session that has ended
	}
	return mongo.NewSessionContext(ctx, session), func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if at := session.OperationTime(); at != nil && (p.time == nil || at.After(*p.time)) {
			p.time, p.cluster = at, bytes.Clone(session.ClusterTime())
		}
		session.EndSession(context.WithoutCancel(ctx))
	}
}

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
	// snapshotAttempts bounds how often another snapshot is tried, with a pause
	// before each that grows by snapshotPause: where a collection or an index was
	// just made, none can be read until a majority has it.
	snapshotAttempts = 8
	snapshotPause    = 20 * time.Millisecond
)

func isSnapshotGone(err error) bool {
	var server mongo.ServerError
	return errors.As(err, &server) && (server.HasErrorCode(snapshotTooOld) || server.HasErrorCode(snapshotUnavailable))
}

// inSnapshot lets a function read as of one moment, where the server can. The
// function is called again, for another moment, when the server cannot read
// that one. It leaves no cursor open: servers keep what a snapshot needs for some
// minutes only.
func (s *Store) inSnapshot(ctx context.Context, read func(context.Context) error) error {
	if !s.snapshots {
		return read(ctx)
	}
	for attempt := 1; ; attempt++ {
		err := s.readSnapshot(ctx, read)
		switch {
		case !isSnapshotGone(err):
			return err
		case attempt == snapshotAttempts:
			return driver.Errorf(driver.CodeUnavailable, "the server has no snapshot to read from now: %w", err)
		}
		if pause(ctx, time.Duration(attempt)*snapshotPause); ctx.Err() != nil {
			return driver.Errorf(driver.CodeUnavailable, "the request ended before the server had a snapshot to read from: %w", err)
		}
		if s.progress.kept { // for a later time
			if err := s.clock.read(ctx); err != nil {
				return err
			}
		}
	}
}

func (s *Store) readSnapshot(ctx context.Context, read func(context.Context) error) error {
	o := options.Session().SetSnapshot(true)
	if at := s.progress.operation(); at != nil {
		o.SetSnapshotTime(*at)
	}
	session, err := s.client.StartSession(o)
	if err != nil {
		return err
	}
	defer session.EndSession(ctx)
	return read(mongo.NewSessionContext(ctx, session))
}

// closingTimeout bounds how long the server may take to forget what is left of
// an answer. It forgets by itself after some minutes.
const closingTimeout = 5 * time.Second

// closeCursor gives up what is left of an answer, which the server is told. Who
// asked does not wait for it when his time is up.
func closeCursor(ctx context.Context, cursor *mongo.Cursor) {
	if cursor.ID() == 0 {
		_ = cursor.Close(ctx) // nothing is left, and nothing is sent
		return
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closingTimeout)
	tell := func() {
		defer cancel()
		_ = cursor.Close(closing)
	}
	if ctx.Err() != nil {
		go tell()
		return
	}
	tell()
}

// pause waits, or until the context ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
