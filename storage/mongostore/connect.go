package mongostore

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"net"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/connstring"
	"golang.org/x/sync/singleflight"

	"github.com/asof/asof/storage/driver"
)

// CheckURI says what is wrong with a URI that Open is to be given, without
// connecting to the server; for mongodb+srv:// its hosts are looked up. Errors:
// CodeInvalid; CodeUnavailable when the hosts cannot be looked up. They do not
// show a password.
func CheckURI(uri string) error {
	o, _, err := clientOptions(uri)
	if err == nil && o.Validate() != nil {
		err = uriError(o.Validate())
	}
	return err
}

// Name is what may be shown of a URI: where the servers are, and the database. The
// user may have a password, and so may options.
func Name(uri string) string {
	scheme, rest, _ := strings.Cut(uri, "://")
	if _, after, user := strings.Cut(rest, "@"); user {
		rest = after
	}
	rest, _, _ = strings.Cut(rest, "?")
	return scheme + "://" + rest[strings.LastIndex(rest, "@")+1:]
}

// connect returns a client of the servers and the name of the database in a URI. An
// error of the URI is returned before any server is contacted. The client does not retry
// writes, since a retry without a connection returns the pool's error and hides the
// outcome of the first attempt. This package repeats writes itself.
func connect(uri string) (client *mongo.Client, database string, err error) {
	o, database, err := clientOptions(uri)
	if err != nil {
		return nil, "", err
	}
	if client, err = mongo.Connect(o); err != nil {
		return nil, "", uriError(err)
	}
	return client, database, nil
}

func clientOptions(uri string) (o *options.ClientOptions, database string, err error) {
	parsed, err := parseURI(uri)
	if err != nil {
		return nil, "", err
	}
	return options.Client().SetAppName("asof").SetServerSelectionTimeout(openTimeout).ApplyURI(uri).
		SetReadPreference(readpref.Primary()).SetReadConcern(readconcern.Majority()).SetWriteConcern(durable()).SetRetryWrites(false), parsed.Database, nil
}

func parseURI(uri string) (*connstring.ConnString, error) {
	_, rest, _ := strings.Cut(uri, "://")
	_, rest, _ = strings.Cut(rest, "@")
	if rest, _, _ = strings.Cut(rest, "?"); strings.Contains(rest, "@") {
		// The text after the first one would be parsed as the host, and be shown in errors.
		return nil, invalidf("the MongoDB URI is not valid: in a user and a password, write %%40 for @")
	}
	parsed, err := connstring.ParseAndValidate(uri)
	switch {
	case err != nil:
		return nil, uriError(err)
	case parsed.Database == "":
		return nil, invalidf("the MongoDB URI names no database; add one, such as mongodb://localhost:27017/asof")
	case strings.ContainsAny(parsed.Database, "/\\. \"$\x00") || len(parsed.Database) > maxDatabaseName:
		return nil, invalidf("the MongoDB URI names the database %q; a name has at most %d bytes, and none of / \\ . \" $ and spaces", parsed.Database, maxDatabaseName)
	case len(parsed.UnknownOptions) > 0:
		// The driver ignores them, such as tlss=true.
		return nil, invalidf("the MongoDB URI has the option %s, which the driver does not know; correct or remove it", slices.Min(slices.Collect(maps.Keys(parsed.UnknownOptions))))
	}
	return parsed, nil
}

// maxDatabaseName is how long the name of a database may be, in bytes.
const maxDatabaseName = 63

// repeated matches quoted parts of a URI in the driver's errors, which may be of a
// password; after "for" they are names of options.
var repeated = regexp.MustCompile(`(for )?"(?:[^"\\]|\\.)*"`)

// uriError returns the driver's error about a URI without the parts of the URI in it.
func uriError(err error) error {
	var lookup *net.DNSError
	if errors.As(err, &lookup) {
		return driver.Errorf(driver.CodeUnavailable, "the MongoDB server cannot be found: %w", err)
	}
	return invalidf("the MongoDB URI is not valid: %s", repeated.ReplaceAllStringFunc(err.Error(), func(text string) string {
		if strings.HasPrefix(text, "for ") || text == `"mongodb"` || text == `"mongodb+srv"` {
			return text
		}
		return "…"
	}))
}

// Distant implements driver.Distant.
func (*Store) Distant() {}

// hello is a server's description of itself.
type hello struct {
	SetName string `bson:"setName"`
	Message string `bson:"msg"`
	Me      string `bson:"me"`
	Primary bool   `bson:"isWritablePrimary"`
	Master  bool   `bson:"ismaster"` // its former name

	MaxWireVersion int32 `bson:"maxWireVersion"`
	SessionTimeout int64 `bson:"logicalSessionTimeoutMinutes"`
}

// replicated reports whether what a majority acknowledged survives the loss of
// the server.
func (h *hello) replicated() bool { return h.SetName != "" || h.Message == "isdbgrid" }

// sessions reports whether the server supports transactions, and reads that wait until it
// has the operations of another server (afterClusterTime).
func (h *hello) sessions() bool { return h.replicated() && h.SessionTimeout > 0 }

// describe returns a server's description. It fails with CodeUnavailable if the server
// takes no writes: a client of a whole replica set asks the primary only, so this
// server was named alone.
func describe(ctx context.Context, db *mongo.Database) (*hello, error) {
	var h hello
	err := db.RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Decode(&h)
	var refused mongo.ServerError
	if errors.As(err, &refused) {
		err = db.RunCommand(ctx, bson.D{{Key: "isMaster", Value: 1}}).Decode(&h)
	}
	if err != nil {
		return nil, err
	}
	if h.SetName != "" && !h.Primary && !h.Master {
		return nil, driver.Errorf(driver.CodeUnavailable,
			"the MongoDB server %s is not the primary of the replica set %s now, and takes no writes; name all members of the set in --store, without directConnection", h.Me, h.SetName)
	}
	return &h, nil
}

// ping returns an error if documents cannot be read or written: if the server cannot be
// reached, takes no writes, has lost the store's description, or does not let this
// user read it.
func (s *Store) ping(ctx context.Context) error {
	if _, err := describe(ctx, s.db); err != nil {
		return err
	}
	err := s.meta.FindOne(ctx, bson.D{{Key: "_id", Value: storeID}}, options.FindOne().SetProjection(bson.D{{Key: "_id", Value: 1}})).Err()
	if errors.Is(err, mongo.ErrNoDocuments) {
		return errEmptied
	}
	return err
}

// progress is the time of the last operation that any server answered. A newly elected
// primary may show less than the one before it had acknowledged; so, if servers support
// sessions, every read waits until the server has reached that time (afterClusterTime).
type progress struct {
	kept bool

	mu      sync.Mutex
	time    *bson.Timestamp // of the last operation
	cluster bson.Raw        // the signed cluster time
}

func (p *progress) operation() *bson.Timestamp {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.time
}

// causal returns a context whose reads see the results of all earlier operations, and
// a function to call when they have ended. Its commands must not run concurrently.
func (s *Store) causal(ctx context.Context) (context.Context, func()) {
	p := &s.progress
	if !p.kept || mongo.SessionFromContext(ctx) != nil {
		return ctx, func() {}
	}
	session, err := s.client.StartSession()
	if err != nil { // the client is closed, and the command will fail with that
		return ctx, func() {}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.time != nil {
		_, _ = session.AdvanceClusterTime(p.cluster), session.AdvanceOperationTime(p.time) // only of a session that has ended
	}
	return mongo.NewSessionContext(ctx, session), func() {
		p.note(session)
		session.EndSession(context.WithoutCancel(ctx))
	}
}

// note notes what a session has seen.
func (p *progress) note(session *mongo.Session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if at := session.OperationTime(); at != nil && (p.time == nil || at.After(*p.time)) {
		p.time, p.cluster = at, bytes.Clone(session.ClusterTime())
	}
}

// A scan on MongoDB is no snapshot: it yields to writes, and a document whose
// place in the index changes meanwhile may be returned twice, or not at all. So
// scans run in a snapshot session if the server has them (replica sets
// and sharded clusters, since MongoDB 5.0).

// snapshotWire is the version of the protocol that has snapshot sessions.
const snapshotWire = 13

// snapshots reports whether the server reads in snapshots.
func (h *hello) snapshots() bool { return h.replicated() && h.MaxWireVersion >= snapshotWire }

// Codes of errors of snapshots that cannot be read, or not any more.
const (
	snapshotTooOld      = 239
	snapshotUnavailable = 246
	// snapshotAttempts is how many snapshots are tried, with a pause before each that
	// grows by snapshotPause: after a collection or an index was created, none can be
	// read until a majority has it.
	snapshotAttempts = 8
	snapshotPause    = 20 * time.Millisecond
)

func isSnapshotGone(err error) bool {
	var server mongo.ServerError
	return errors.As(err, &server) && (server.HasErrorCode(snapshotTooOld) || server.HasErrorCode(snapshotUnavailable))
}

// inSnapshot calls a function whose reads are of one snapshot, if the server supports
// them. It calls the function again with another snapshot when the server cannot read
// that one. The function must leave no cursor open: servers keep a snapshot for some
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

// closingTimeout is how long closing a cursor may take. The server closes it by itself
// after some minutes.
const closingTimeout = 5 * time.Second

// closeCursor closes a cursor here and on the server. If the context has ended, it does
// not wait for the server.
func closeCursor(ctx context.Context, cursor *mongo.Cursor) {
	if cursor.ID() == 0 {
		_ = cursor.Close(ctx) // nothing is left, and nothing is sent
		return
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closingTimeout)
	kill := func() {
		defer cancel()
		_ = cursor.Close(closing)
	}
	if ctx.Err() != nil {
		go kill()
		return
	}
	kill()
}

// pause waits for a duration, or until the context ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// rounds runs a function for all callers that ask before it begins. Runs do not overlap.
type rounds struct {
	run     func() error
	asked   singleflight.Group
	running sync.Mutex
}

func (r *rounds) ask() <-chan singleflight.Result {
	return r.asked.DoChan("", func() (any, error) {
		r.running.Lock()
		defer r.running.Unlock()
		r.asked.Forget("") // who asks from now on waits for the next one
		return nil, r.run()
	})
}

// do waits for a round that begins after the call, and returns its error, or that of the context.
func (r *rounds) do(ctx context.Context) error {
	select {
	case ended := <-r.ask():
		return ended.Err
	case <-ctx.Done():
		return ctx.Err()
	}
}
