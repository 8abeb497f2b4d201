package driver

import (
	"context"
	"iter"
)

// WatchPosition is a place in what a watch tells. It is opaque, printable, and
// good for as long as the store is, also after the engine was closed and in
// another process; the empty one is before everything.
//
// Positions of one store compare as strings: of two that a watch yields, or
// one that goes on behind it, the later is the greater. Watches that have the
// same position have told the same. No other store takes it.
type WatchPosition string

// WatchQuery says where a watch begins and what it is about.
//
// The watch begins when its loop does. It goes on until its context ends or
// the engine is closed (then its last error has CodeUnavailable), until another
// error, or until the loop is left; it never ends by itself. Nothing is
// gathered for a loop that is slow: it is told what it asks for from what is
// stored, and costs the writers nothing. The loop may call the engine.
type WatchQuery struct {
	// Collections are what it is about; empty: all that the engine knows.
	Collections []string
	// After is the position to continue behind; empty: from the beginning, that
	// is, with everything that there is. Of collections that the watch of the
	// position was not about, at least what arrived after it is told.
	After WatchPosition
	// FromNow leaves out what was acknowledged before the watch began; After is
	// empty then.
	FromNow bool
}

// Arrival is one step of a watch. The first one has no version and tells where
// the watch begins: what is acknowledged from then on will be told. Later ones
// without a version may come at any time, where the position has moved past
// what the watch is not about.
//
// Versions that are in the store by one call of Load arrive then, whatever
// their times say: a watch is about the order of arrival, Log about that of
// RecordedAt. SupersededAt of a version is what was known at some time since
// it arrived.
type Arrival struct {
	Position WatchPosition // behind this arrival
	Version  *Version
}

// Watcher is the part of an Engine that tells what arrives.
type Watcher interface {
	// Watch tells of every version that arrives, by Commit or by Load, behind a
	// position: each once, those of a document in the order of their numbers.
	// CodeUnavailable: the context has ended, the engine was closed, or the
	// database cannot be reached. CodeInvalid: unknown collection, both After
	// and FromNow, a position that is malformed, of another store, or ahead of
	// this one. CodeNotFound: the position is older than what the database can
	// still tell from.
	Watch(ctx context.Context, q *WatchQuery) iter.Seq2[Arrival, error]
}
