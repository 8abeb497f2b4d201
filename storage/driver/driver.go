// Package driver says what a storage engine must do. It holds the types that
// cross the boundary between package storage, which owns everything temporal
// that does not need a database, and an engine, which owns the bytes.
//
// Design principles:
//
//   - Small enough to read in one sitting; no behaviour beyond trivial helpers.
//   - An engine never interprets a document beyond the paths that filters,
//     orders and indexes name. Documents are JSON objects in normal form.
//   - Every comparison that decides a write is made by the database, in the
//     same atomic step as the write.
//   - Versions are immutable. A delete is a version (a tombstone).
//   - Errors carry one of the five codes of this package. A method's comment
//     names the codes that it may return; package contract enforces it.
package driver

import (
	"cmp"
	"context"
	"iter"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"
)

// Engine keeps the versions of documents. Its methods may be called from any
// number of goroutines.
//
// What all engines refuse alike (calls after Close, contexts that have ended, unknown
// collections, what no version could hold) is refused in front of them, by check.Guard, which
// an engine's Open puts there. Its own methods get none of it. What is asked of them is
// well-formed: package storage makes it of what clients ask, and looks at that.
//
// Every method returns CodeUnavailable when the database cannot be reached or
// the context has ended, and CodeInternal for what should not happen (corrupt
// data, a bug); further codes are named with each method.
type Engine interface {
	// Now returns an instant that is safe to read at: everything committed up
	// to it is visible to every later read, and no later commit will get a
	// time at or before it. It never goes back, and is never before a commit
	// that was acknowledged (a client reads its own writes), even when the
	// clock goes back, or the data was closed and opened again. It may be the
	// last commit, or later. Load is the exception: it adds to the past.
	Now(ctx context.Context) (Instant, error)

	// Settle waits until reads at the given instant are repeatable: until no
	// commit in flight can get a time at or before it. It returns CodeInvalid
	// when the instant is later than the engine's clock.
	Settle(ctx context.Context, at Instant) error

	// Get returns one version for each reference, in the order of the
	// references (which may repeat); nil where the document did not exist yet
	// at that instant or has no such version. A tombstone is returned as a
	// version with Deleted set. Current reads (instants at or after the
	// document's last commit, also Forever) do not touch the history. Fields
	// are the stored top-level names that the caller will look at, as in Query.
	// CodeInvalid: unknown collection.
	Get(ctx context.Context, collection string, refs []Ref, fields []string) ([]*Version, error)

	// Query returns the live documents of a collection as they were at an
	// instant. The version of each document is chosen first; then filter,
	// order and page apply to those versions.
	// CodeInvalid: unknown collection, or a filter that the database does not take.
	Query(ctx context.Context, q *Query) ([]*Version, error)

	// Count returns how many documents Query would return without its page
	// (After, Before, Limit and Backward are ignored).
	Count(ctx context.Context, q *Query) (int64, error)

	// Log reads versions in the order in which they were committed:
	// (RecordedAt, Collection, Key, Number), or the reverse of that. The loop may
	// take its time, and may call the engine. Iteration ends after the first
	// error.
	// CodeInvalid: unknown collection.
	Log(ctx context.Context, q *LogQuery) iter.Seq2[*Version, error]

	// Commit makes one new version for each write, all of them or none, if of each
	// document the expected version is current. The engine chooses one RecordedAt
	// for all (greater than that of every version of the documents, and of every
	// instant that Now returned) and returns the committed versions, durable, in
	// the order of the writes, sealed; nil for those that only compare. Writes whose IDs were
	// committed before return those versions again, whatever is current now; an ID may be
	// forgotten a day after.
	// CodeConflict (as *ConflictError, which names every write that lost): another
	// version is current; nothing was written. CodeInvalid: IDs of which only some
	// were committed before, unknown collection, what no version could hold (a Key that is empty
	// or not UTF-8, an unknown Op, Data that is not an object, or is there though Deleted is set).
	// At least one makes a version, there are no more than the engine takes (see Batcher)
	// and no more bytes than MaxCommitBytes, and no document and no ID is there twice.
	Commit(ctx context.Context, ws []Write) ([]*Version, error)

	// Load adds versions that were recorded elsewhere, with their own times,
	// in the order given; Number 0 stands for the next one, and SupersededAt
	// is ignored. A version that is already there is skipped: same document,
	// same RecordedAt, same Number if it is given, and the same Deleted,
	// Author, Message, Group and Data.
	//
	// When Load has returned without an error, all is durable. A load that is
	// refused (CodeInvalid) adds nothing. One that fails otherwise may have added
	// some: of each document the first of its versions. The same load, made again,
	// adds what is missing, and nothing twice. Readers see a document that is being
	// loaded with as many of its versions as are there, in order, each whole.
	// A pruned version is like any other with its time and number.
	// CodeInvalid (as *LoadError): not after the document's last version, a
	// number that is not the next, in the future (later than the engine's clock),
	// at or before 1970, unlike the one that is there, a Seal that does not hold (see
	// seal.Verify), unknown collection, or malformed as for Commit.
	Load(ctx context.Context, vs []Version) (LoadResult, error)

	// Rewrite replaces what earlier versions of a document say: the only way in which a
	// stored version changes, for retention and erasure. Of the versions given, Number
	// names which; Op, Deleted, Author, Message, Group, Changed and Data take the place
	// of what is stored, all of them or, where it fails, perhaps some: the same call,
	// made again, completes them. Number, RecordedAt and the write's ID stay, so that
	// all that reads by number or instant finds them, and the seal becomes that of what
	// is left (see seal.Rewritten). One that is given with the Seal that it was read
	// with, and was rewritten since, stays as it is. When it has returned, nothing reads
	// what was there before, but what this engine's other processes have in memory.
	// CodeInvalid: no such document or version, the document's last version, a number
	// twice, unknown collection, or malformed as for Load.
	Rewrite(ctx context.Context, collection, key string, vs []Version) error

	// Loaded returns the instant of the last Load that added versions, 0 where there
	// was none. A load has an instant as a commit has: greater than every one that
	// Now returned before it began, and Now does not come to it before all that it
	// added is visible. So who follows the log learns that the past has changed.
	Loaded(ctx context.Context) (Instant, error)

	// Stats says how much the engine holds; cheap enough for a metrics page.
	Stats(ctx context.Context) (Stats, error)

	// Ping checks that the engine can answer.
	Ping(ctx context.Context) error

	// Check reads everything and reports what breaks the engine's invariants,
	// one line each; nil means that all is well.
	Check(ctx context.Context, report func(problem string)) error

	// Close releases the database when the calls that run have ended, or have not for
	// half a minute. Every later call returns CodeUnavailable, except Close, which does
	// nothing.
	Close() error
}

// Bounds of one Commit.
const (
	MaxWrites      = 1000
	MaxCommitBytes = 64 << 20 // of the Data of several writes together
)

// Batcher is an Engine that takes fewer writes in one Commit than MaxWrites.
type Batcher interface {
	// MaxWrites is the largest number of writes, at least 1.
	MaxWrites() int
}

// Distant is an Engine whose database is reached over a network.
type Distant interface{ Distant() }

// Rememberer is an Engine for which it is worth while not to ask its database for
// what a write is based on.
type Rememberer interface {
	// Remembered returns the version of a document with a number, where the engine
	// knows it, without asking, as the last one that it saw; else nil. Another one
	// may have followed since, or it may not be acknowledged yet: it is good only as
	// what a Write with this number as Expected is made from, since Commit compares.
	// The context is that of the operation that reads it.
	Remembered(ctx context.Context, collection, key string, number int64) (*Version, error)
}

// Compacter is an Engine that keeps the space of what was rewritten until it is asked to
// give it back.
type Compacter interface {
	// Compact gives back space, and leaves nothing in any file of what was rewritten. It
	// may take as long, and as much space, as the whole store.
	Compact(ctx context.Context) error
}

// CommitOne commits one write.
func CommitOne(ctx context.Context, e Engine, w *Write) (*Version, error) {
	vs, err := e.Commit(ctx, []Write{*w})
	if err != nil {
		return nil, err
	}
	return vs[0], nil
}

// As finds the interface, or the type, T of an engine, also where the engine is wrapped
// by others, which have a method Unwrap() Engine; false where it has none.
func As[T any](e Engine) (T, bool) {
	for {
		if found, ok := e.(T); ok {
			return found, true
		}
		wrapper, ok := e.(interface{ Unwrap() Engine })
		if !ok {
			var none T
			return none, false
		}
		e = wrapper.Unwrap()
	}
}

// Instant is a point in time: microseconds since the Unix epoch, UTC.
type Instant int64

// Forever is after every instant: the end of an interval that is still open.
const Forever Instant = math.MaxInt64

// LastInstant is the last one that is written as a time: the end of the year 9999.
const LastInstant Instant = 253_402_300_799_999_999

// InstantOf converts a time, cutting what is finer than a microsecond.
func InstantOf(t time.Time) Instant { return Instant(t.UnixMicro()) }

// Time converts back, in UTC.
func (i Instant) Time() time.Time { return time.UnixMicro(int64(i)).UTC() }

// String formats as RFC 3339 in UTC, with as many digits of the second as
// there are, at most six.
func (i Instant) String() string { return i.Time().Format(time.RFC3339Nano) }

// Collection is a named set of documents with the indexes declared for it.
//
// A declaration may change between two openings of the same data: indexes
// come and go without a change of what any read returns, and a collection that
// was declared once stays known.
type Collection struct {
	Name    string
	Indexes []Index
}

// Index is a declared index: the value at a path of stored names. On a list
// (List is set) each element is indexed.
type Index struct {
	Path []string
	Kind Kind
	List bool
}

// Ref names one version of one document: by Number, or, where that is 0, the
// one that was current At an instant.
type Ref struct {
	Key    string
	Number int64
	At     Instant
}

// Version is one version of one document. What an engine returns is shared
// and must not be modified.
type Version struct {
	Collection string
	Key        string
	Number     int64   // 1, 2, 3 … without gaps
	RecordedAt Instant // when it was committed
	// SupersededAt is when the next version was committed; Forever while this
	// one is current. It is what is known when it is read, not at the instant
	// that the read is about: the only part of a version that ever changes.
	SupersededAt Instant
	Op           Op
	Deleted      bool // a tombstone: the document does not exist in this version
	Author       string
	Message      string
	// Group is shared by versions that were written together: a mutation
	// request, or the source of an import. May be empty.
	Group string
	// Changed lists the stored names of the top-level members in which this
	// version differs from the one before it, sorted.
	Changed []string
	// Data is a JSON object in normal form; nil for a tombstone.
	Data []byte
	// Seal has the hash by which the version vouches for itself and all before it, see
	// package seal. The engine makes it.
	Seal []byte
	// Schema, of a version that Rewrite is given, identifies the schema in whose form Data is now; 0: as it was.
	Schema uint32
	// Notes is there where the engine keeps the version and returns it to
	// others, too.
	Notes *Notes
}

// Current reports whether this version was the document's last when it was read.
func (v *Version) Current() bool { return v.SupersededAt == Forever }

// Size is how many bytes of it may be many: its data, its message and the names of the fields
// that changed, of which those that no schema declares may be long.
func (v *Version) Size() int {
	const least, beside = 32, 16 // about what a short string takes, and any beside its bytes
	size := len(v.Data) + len(v.Message)
	for _, name := range v.Changed {
		size += max(least, beside+len(name))
	}
	return size
}

// Position is the version's place in the commit order.
func (v *Version) Position() LogPosition {
	return LogPosition{At: v.RecordedAt, Collection: v.Collection, Key: v.Key, Number: v.Number}
}

// Meta is a value that every version carries; nil for MetaNone.
func (v *Version) Meta(m Meta) Value {
	switch m {
	case MetaKey:
		return v.Key
	case MetaNumber:
		return v.Number
	case MetaRecordedAt:
		return v.RecordedAt
	case MetaAuthor:
		return v.Author
	case MetaOp:
		return int64(v.Op)
	case MetaMessage:
		return v.Message
	case MetaGroup:
		return v.Group
	default:
		return nil
	}
}

// Op is what made a version.
type Op uint8

// The operations. Values are stored: never renumber them.
const (
	OpCreate Op = iota + 1
	OpUpdate
	OpDelete
	OpRestore
	OpImport
	// OpPruned is that of a version of which only number and time are left. It is
	// Deleted, as nothing can be read at it: made by Rewrite and Load, not by Commit.
	OpPruned
	// OpErase is that of a version that says that something was erased in those before it.
	OpErase
)

// Write is one new version, on condition that Expected is current.
type Write struct {
	// ID identifies this attempt, so that a repeated or uncertain commit is never
	// applied twice. Unique, at most 36 bytes.
	ID string
	// Compare says that this makes no version: of the document only the expected version
	// has to be current, and Op, Deleted and what is written with a version are ignored.
	Compare    bool
	Collection string
	Key        string
	// Expected is the number of the document's last version (a tombstone has
	// one too); 0 means that the document must not exist: it never did, or its
	// last version is a tombstone.
	Expected int64
	Op       Op
	Deleted  bool
	Author   string
	Message  string
	Group    string
	Changed  []string
	Data     []byte
	// Schema identifies the schema that it is written under, see seal.Schema; 0: it is not known.
	Schema uint32
}

// LoadResult counts what Load did.
type LoadResult struct{ Added, Skipped int64 }

// Stats is a summary of what an engine holds.
type Stats struct {
	Documents int64 // live ones
	Versions  int64
	Bytes     int64 // on disk, as the engine measures it
	// Writes are the calls of Commit since the engine was opened, and Commits
	// the transactions for them; more writes than commits are writes that
	// shared one. Both are 0 where an engine does not count them.
	Writes, Commits int64
	// Collections are those that hold versions, by name, also where they are
	// not declared any more. Documents and Versions are their sums.
	Collections []CollectionStats
}

// CollectionStats is a summary of one collection.
type CollectionStats struct {
	Name      string
	Documents int64 // live ones
	Versions  int64
}

// Add counts a collection, after those before it by name.
func (s *Stats) Add(c CollectionStats) {
	if c.Versions > 0 {
		s.Documents, s.Versions, s.Collections = s.Documents+c.Documents, s.Versions+c.Versions, append(s.Collections, c)
	}
}

// LogQuery selects versions in commit order.
type LogQuery struct {
	Collections []string // empty: all
	Keys        []string // empty: all; needs exactly one collection
	// From and To bound RecordedAt, half-open [From, To). To 0 means no bound.
	From, To Instant
	// FromNumber and ToNumber bound Number, half-open; ToNumber 0 means none.
	FromNumber, ToNumber int64
	Backward             bool // newest first
	After                *LogPosition
	Limit                int // 0: no limit; fewer are returned only where there are no more
	// Fields are the stored top-level names that the caller will look at, as in
	// Query: nil means all, and an empty list that no Data is needed.
	Fields []string
	// Hints say more about what the caller wants.
	Hints Hints
}

// Hints are conditions of a log which the caller checks again: an engine may
// leave out versions that do not meet them, and need not.
type Hints struct {
	Authors []string // empty: all
	Ops     []Op     // empty: all
	Groups  []string // empty: all; an empty string is that of versions without one
	Changed []string // stored top-level names, any of them; empty: all
}

// Any reports whether there is a condition.
func (h *Hints) Any() bool { return len(h.Authors)+len(h.Ops)+len(h.Groups)+len(h.Changed) > 0 }

// Hold reports whether a version meets the conditions.
func (h *Hints) Hold(v *Version) bool {
	return (len(h.Authors) == 0 || slices.Contains(h.Authors, v.Author)) &&
		(len(h.Ops) == 0 || slices.Contains(h.Ops, v.Op)) &&
		(len(h.Groups) == 0 || slices.Contains(h.Groups, v.Group)) &&
		(len(h.Changed) == 0 || slices.ContainsFunc(v.Changed, func(name string) bool { return slices.Contains(h.Changed, name) }))
}

// LogPosition is a place in the commit order. LogQuery.After continues
// strictly behind it, in the direction of the query.
type LogPosition struct {
	At         Instant
	Collection string
	Key        string
	Number     int64
}

// Compare is negative where p comes before q in the order of commits, 0 where they are one
// place, positive otherwise.
func (p LogPosition) Compare(q LogPosition) int {
	return cmp.Or(cmp.Compare(p.At, q.At), cmp.Compare(p.Collection, q.Collection), cmp.Compare(p.Key, q.Key), cmp.Compare(p.Number, q.Number))
}

// Notes are kept beside a version by an engine that returns it more than once:
// what a reader found out about its Data, so that the next one need not. They
// are one value of the readers' choice, which is shared and never modified, and
// has to say itself what it is about. The zero Notes are empty; engines never
// look into them, and need not have any: readers then find out again.
type Notes struct{ value atomic.Pointer[any] }

// Get returns what was kept last; nil for nothing, also on nil Notes.
func (n *Notes) Get() any {
	if n == nil {
		return nil
	}
	if v := n.value.Load(); v != nil {
		return *v
	}
	return nil
}

// Keep keeps a value in place of the last one; nil Notes keep nothing.
func (n *Notes) Keep(value any) {
	if n != nil {
		n.value.Store(&value)
	}
}

// maxKey is the length of the longest key, in bytes.
const maxKey = 512

// KeyProblem says why no document can have the key, such as "is empty"; "" if
// one can.
func KeyProblem(key string) string {
	switch {
	case key == "":
		return "is empty"
	case len(key) > maxKey:
		return "is longer than " + strconv.Itoa(maxKey) + " bytes"
	case !utf8.ValidString(key):
		return "is not valid UTF-8"
	case strings.ContainsRune(key, 0):
		return "contains a NUL character"
	}
	return ""
}
