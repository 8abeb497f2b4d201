package mongostore

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	wire "go.mongodb.org/mongo-driver/v2/x/mongo/driver"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/auth"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/topology"
	"golang.org/x/sync/singleflight"

	"github.com/asof/asof/storage/driver"
)

// Store is an engine over a database of MongoDB, behind a guard (see check.Guard).
type Store struct {
	client  *mongo.Client
	db      *mongo.Database
	meta    *mongo.Collection
	clock   *clock
	logger  *slog.Logger
	timeout time.Duration
	// majorities: the server is one of several, and only writes of a majority are durable.
	majorities bool
	// snapshots: the server can answer several commands from one snapshot.
	snapshots bool
	progress  progress
	heads     heads
	writes    singleflight.Group // commits in flight, by collections and IDs
	// collections has every collection that is or was declared.
	collections map[string]*collection
	// life ends when the store cancels the writes that are still running.
	life    context.Context
	stop    context.CancelFunc
	running sync.WaitGroup // commits, whether or not their callers still wait
}

// collection is a collection of documents with that of their runs.
type collection struct {
	name          string
	main, history *mongo.Collection
	store         *Store
	bounds        Bounds
	latest        atomic.Int64 // the last instant of a version that changedSince has seen
}

// bounded returns the context of a call, with the store's timeout if the given one has no
// deadline, and a function to call when the call has ended.
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
	at, err := s.loaded(ctx)
	return at, wrap(err, "reading when the last load was")
}

func (s *Store) loaded(ctx context.Context) (driver.Instant, error) {
	var stored struct {
		Loaded driver.Instant `bson:"loaded"`
	}
	err := s.meta.FindOne(ctx, bson.D{{Key: "_id", Value: storeID}}).Decode(&stored)
	return stored.Loaded, err
}

// Settle implements driver.Engine.
func (s *Store) Settle(ctx context.Context, at driver.Instant) error {
	ctx, done := s.bounded(ctx)
	defer done()
	return s.clock.settle(ctx, at)
}

// Ping implements driver.Engine. It checks with two commands whether documents can be
// read and written. It also returns the error of a clock that cannot agree with other
// servers on the time.
func (s *Store) Ping(ctx context.Context) error {
	ctx, done := s.bounded(ctx)
	defer done()
	if err := s.clock.check(); err != nil {
		return err
	}
	return wrap(s.ping(ctx), "asking the server whether it answers")
}

// Stats implements driver.Engine. Bytes is the database's size on disk, or the size of
// its documents if the server does not report that.
func (s *Store) Stats(ctx context.Context) (driver.Stats, error) {
	ctx, done := s.bounded(ctx)
	defer done()
	var stats driver.Stats
	for _, name := range slices.Sorted(maps.Keys(s.collections)) {
		c, sum := s.collections[name], driver.CollectionStats{Name: name}
		// Numbers have no gaps, so a document's last number is the number of its
		// versions. An index has all fields, so that no document is read.
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

// closeTimeout is how long Close waits for commits.
const closeTimeout = 10 * time.Second

// Close implements driver.Engine. It tells other servers that this one has left, if it can: else
// they notice after a while.
func (s *Store) Close() error {
	finished := make(chan struct{})
	go func() { s.running.Wait(); close(finished) }()
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	select {
	case <-finished:
	case <-ctx.Done():
	}
	s.stop()
	leaving, cancel := context.WithTimeout(ctx, closingTimeout)
	defer cancel()
	s.clock.leave(leaving)
	return wrap(s.client.Disconnect(ctx), "closing the store")
}

// duplicateKey is the code of MongoDB's error for a value that a unique index
// has already.
const duplicateKey = 11000

// refusals map MongoDB's error codes to codes of driver, with a text that says what to
// do. The codes are those of MongoDB's manual ("Error Codes").
var refusals = [...]struct {
	codes []int
	code  driver.Code
	text  string
}{
	// UserNotFound, AuthenticationFailed
	{[]int{11, 18}, driver.CodeUnavailable, "the user or the password of --store is wrong"},
	// Unauthorized
	{[]int{13}, driver.CodeUnavailable, "the user of --store may not do this (it needs the role readWrite on the database)"},
	// IllegalOperation, NotWritablePrimary, NotPrimaryNoSecondaryOk, NotPrimaryOrSecondary, LegacyNotPrimary
	{[]int{20, 10107, 13435, 13436, 10058}, driver.CodeUnavailable, "the server takes no writes, or not now; name all members of the replica set in --store, without directConnection"},
	// ShutdownInProgress, PrimarySteppedDown, InterruptedAtShutdown, InterruptedDueToReplStateChange
	{[]int{91, 189, 11600, 11602}, driver.CodeUnavailable, "the server is shutting down or gives up being the primary; try again"},
	// UserWritesBlocked
	{[]int{371}, driver.CodeUnavailable, "writes to the cluster are blocked, as while it is copied; try again when they are not"},
	// NotYetInitialized
	{[]int{94}, driver.CodeUnavailable, "the replica set is not initiated yet, or the server not part of it; try again"},
	// StaleShardVersion, StaleEpoch, StaleConfig
	{[]int{63, 150, 13388}, driver.CodeUnavailable, "what is on which shard has just changed; try again"},
	// NamespaceNotFound
	{[]int{26}, driver.CodeUnavailable, "the collection was dropped; start asof again, which makes what it needs"},
	// OutOfDiskSpace
	{[]int{14031}, driver.CodeUnavailable, "the disk of the server is full; make room and try again"},
	// WriteConcernTimeout, UnknownReplWriteConcern, UnsatisfiableWriteConcern
	{[]int{64, 79, 100}, driver.CodeUnavailable, "no majority of the replica set acknowledged it; look whether its members are up"},
	// ReadConcernMajorityNotAvailableYet
	{[]int{134}, driver.CodeUnavailable, "the server cannot tell yet what a majority has; try again"},
	// ReadConcernMajorityNotEnabled
	{[]int{148}, driver.CodeUnavailable, "the server reads nothing that a majority has; start it without enableMajorityReadConcern=false"},
	// HostUnreachable, HostNotFound, NetworkTimeout, FailedToSatisfyReadPreference,
	// NetworkInterfaceExceededTimeLimit, SocketException
	{[]int{6, 7, 89, 133, 202, 9001}, driver.CodeUnavailable, "a part of the cluster cannot be reached; look whether its members are up"},
	// LockTimeout, CursorNotFound, LockBusy, WriteConflict, QueryPlanKilled, TransactionTooOld, CursorKilled,
	// SnapshotTooOld, TransactionAborted, SnapshotUnavailable, NoSuchTransaction, ExceededTimeLimit,
	// TemporarilyUnavailable, Interrupted
	{[]int{24, 43, 46, 112, 175, 225, 237, 239, 244, 246, 251, 262, 365, 11601}, driver.CodeUnavailable, "the server ended it on the way; try again"},
	// IndexOptionsConflict, IndexKeySpecsConflict
	{[]int{85, 86}, driver.CodeInvalid, "another program made an index there that is in the way; drop it, or use another database"},
	// CannotCreateIndex
	{[]int{67}, driver.CodeInvalid, "MongoDB cannot make this index"},
	// InvalidNamespace, CommandNotSupportedOnView
	{[]int{73, 166}, driver.CodeInvalid, "there can be no documents of asof under this name; use another database"},
	// DatabaseDifferCase
	{[]int{13297}, driver.CodeInvalid, "another database of the server has this name in other upper and lower case; name that one, or another"},
	// duplicateKey
	{[]int{duplicateKey}, driver.CodeInternal, "another program made a unique index on the collection, which keeps documents out; drop it"},
	// Location10334 (BSONObjectTooLarge), and those of updates and inserts
	{[]int{10334, 17419, 17420}, driver.CodeInvalid, "the document is too large for MongoDB"},
	// Location51091 (a regular expression that cannot be compiled)
	{[]int{51091}, driver.CodeInvalid, "the text of a condition is too long for MongoDB"},
	// Overflow (of the nesting of a command)
	{[]int{15}, driver.CodeInvalid, "the conditions are nested too deeply"},
}

// retryLabels are the labels of errors that may not occur in another attempt.
var retryLabels = [...]string{"RetryableWriteError", "RetryableError", "SystemOverloadedError", "TransientTransactionError"}

func wrap(err error, doing string) error {
	return driver.Wrap(err, doing, func(err error) driver.Error {
		code, text := explain(err)
		return driver.Error{Code: code, Message: text}
	})
}

// explain returns the code of an error, and a text that says what to do.
func explain(err error) (driver.Code, string) {
	var server mongo.ServerError
	isServer := errors.As(err, &server)
	switch {
	case errors.Is(err, context.Canceled):
		return driver.CodeUnavailable, "the request ended"
	case isAuth(err): // also where it is why there is no connection
		return driver.CodeUnavailable, "the user or the password of --store is wrong"
	case strings.Contains(err.Error(), "Type: ReplicaSetNoPrimary, Servers: []"): // each was asked, and left out
		return driver.CodeUnavailable, "none of the servers that --store names is a member of the replica set that it names (replicaSet=…)"
	case isNeverSent(err):
		return driver.CodeUnavailable, "the MongoDB server cannot be reached"
	case isTooLarge(err):
		return driver.CodeInvalid, "the document is too large for MongoDB"
	case mongo.IsTimeout(err):
		return driver.CodeUnavailable, "the time was up"
	case isServer && server.HasErrorCode(13) && strings.Contains(err.Error(), "requires authentication"):
		return driver.CodeUnavailable, "the server wants to know who asks; add a user and a password to --store"
	case isServer:
		for i := range refusals {
			if r := &refusals[i]; slices.ContainsFunc(r.codes, server.HasErrorCode) {
				return r.code, r.text
			}
		}
	}
	switch {
	case isUnreachable(err):
		return driver.CodeUnavailable, "the MongoDB server cannot be reached"
	case strings.Contains(err.Error(), " reports wire version "): // the driver has no type for it
		return driver.CodeUnavailable, "the MongoDB server is too old for asof, or too new; it needs 4.4, and 7.0 or 8.0 is recommended"
	case isServer && slices.ContainsFunc(retryLabels[:], server.HasErrorLabel):
		return driver.CodeUnavailable, "the server asks to try again"
	}
	return driver.CodeInternal, ""
}

func isTooLarge(err error) bool { return errors.Is(err, wire.ErrDocumentTooLarge) }

func isAuth(err error) bool {
	var refused *auth.Error
	if errors.As(err, &refused) {
		return true
	}
	// What cleared the pool of connections is in the text only.
	var pool wire.RetryablePoolError
	return errors.As(err, &pool) && strings.Contains(err.Error(), "auth error: ")
}

func isUnreachable(err error) bool {
	var connection topology.ConnectionError
	return mongo.IsNetworkError(err) || errors.As(err, &connection) || isNeverSent(err)
}

// ofForeignIndex reports whether a duplicate is one of a unique index that is
// not asof's: that of _id is the only one that asof has.
func ofForeignIndex(e mongo.WriteError) bool {
	if keys, ok := e.Raw.Lookup("keyPattern").DocumentOK(); ok {
		first, err := keys.IndexErr(0)
		return err == nil && first.Key() != "_id"
	}
	// Some servers name the index in the message only.
	_, after, named := strings.Cut(e.Message, " index: ")
	name, _, _ := strings.Cut(after, " ")
	return named && name != "_id_"
}

func invalidf(format string, args ...any) error {
	return driver.Errorf(driver.CodeInvalid, format, args...)
}

// refused adds to an error with CodeUnavailable, of a write that was certainly not
// applied, the reason for clients why nothing was written.
func refused(err error) error {
	switch {
	case driver.CodeOf(err) != driver.CodeUnavailable:
		return err
	case !isNeverSent(err) && (mongo.IsTimeout(err) || errors.Is(err, context.DeadlineExceeded)):
		return driver.Refused("the store did not answer in time", err)
	case isUnreachable(err):
		return driver.Refused("the store cannot be reached", err)
	default:
		return driver.Refused("the store takes no writes now", err)
	}
}

// isNeverSent reports whether an error means that nothing was sent to a server. That
// holds for writes, too, because the driver does not retry them (see connect): the
// pool's error is not that of a retry.
func isNeverSent(err error) bool {
	var selection topology.ServerSelectionError
	var queue topology.WaitQueueTimeoutError
	var pool wire.RetryablePoolError // no connection, because others just broke
	return errors.As(err, &selection) || errors.As(err, &queue) || errors.As(err, &pool) || errors.Is(err, mongo.ErrClientDisconnected)
}

// passing are the codes of errors that last until there is a primary; see refusals.
var passing = [...]int{10107, 13435, 13436, 10058, 91, 189, 11600, 11602, 94}

// staysRefused reports whether an error is an answer that every attempt gets until an
// operator changes something.
func staysRefused(err error) bool {
	var server mongo.ServerError
	if !errors.As(err, &server) || mongo.IsTimeout(err) || mongo.IsNetworkError(err) {
		return false
	}
	return !slices.ContainsFunc(retryLabels[:], server.HasErrorLabel) && !server.HasErrorLabel("NoWritesPerformed") &&
		!slices.ContainsFunc(passing[:], server.HasErrorCode)
}
