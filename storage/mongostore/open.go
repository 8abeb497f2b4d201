package mongostore

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/topology"

	"github.com/asof/asof/internal/lru"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/driver/check"
)

// Bounds are how much history stays inside a document before three quarters of it
// move to the overflow. Zero means the default.
type Bounds struct {
	Versions int // default 64
	Bytes    int // as stored, or the size of a few versions if that is more; default 32 KB
}

// The default bounds.
const (
	defaultVersions = 64
	defaultBytes    = 32 << 10
)

// Options configure a store.
type Options struct {
	Collections []driver.Collection
	// Bounds of collections that differ from the default, by name.
	Bounds map[string]Bounds
	// Clock is the time of day; nil means the system's.
	Clock func() time.Time
	// Logger gets warnings; nil means none.
	Logger *slog.Logger
	// Timeout ends calls whose context has no deadline. Default 30 s. Open takes
	// longer if it has to create indexes, or a server that was killed left a transaction.
	Timeout time.Duration
	// MaxSkew is how far times may be behind the server's clock, whatever Clock says; 0 means
	// as far as that. They are never further ahead of it than half a second.
	MaxSkew time.Duration
	// Existing: Open fails with CodeNotFound if there is no store, and creates none.
	Existing bool

	// timing is that of the clock; zero means the default. elapsed is the monotonic clock.
	timing  timing
	elapsed func() time.Duration
}

const (
	defaultTimeout = 30 * time.Second
	// openTimeout is how long Open waits for a server.
	openTimeout = 10 * time.Second
	// format is the version of the layout; storeID names the document of it.
	format  = 2
	storeID = "store"
)

// Open connects to the database that a mongodb:// or mongodb+srv:// URI names,
// and creates missing collections and declared indexes. It fails with CodeInvalid for
// an invalid URI, a database of another version of asof, one in which another program
// keeps documents, and collections or indexes of another program that conflict.
func Open(ctx context.Context, uri string, o Options) (driver.Engine, error) {
	s, err := openURI(ctx, uri, o)
	if err != nil {
		return nil, err
	}
	return s.guarded(), nil
}

func (s *Store) guarded() driver.Engine {
	return check.Guard(s, slices.Collect(maps.Keys(s.collections)))
}

func openURI(ctx context.Context, uri string, o Options) (*Store, error) {
	client, database, err := connect(uri)
	if err != nil {
		return nil, err
	}
	s, err := open(ctx, client, database, o)
	if err != nil {
		// The first error is the cause; an error of closing is ignored.
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closingTimeout)
		defer cancel()
		_ = client.Disconnect(closing)
		return nil, err
	}
	return s, nil
}

func durable() *writeconcern.WriteConcern {
	journal := true
	return &writeconcern.WriteConcern{W: writeconcern.WCMajority, Journal: &journal}
}

func open(ctx context.Context, client *mongo.Client, database string, o Options) (*Store, error) {
	if o.Clock == nil {
		o.Clock = time.Now //nolint:forbidigo // the clock that is handed in by default
	}
	if o.elapsed == nil {
		began := time.Now()                                           //nolint:forbidigo // measures, and tells no time
		o.elapsed = func() time.Duration { return time.Since(began) } //nolint:forbidigo // as above
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Timeout == 0 {
		o.Timeout = defaultTimeout
	}
	db := client.Database(database)
	s := &Store{
		client: client, db: db, meta: db.Collection(metaName), logger: o.Logger, timeout: o.Timeout,
		heads: heads{Cache: lru.New[documentKey, *head](headBytes)}, collections: make(map[string]*collection),
	}
	s.life, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	var last driver.Instant // of any version
	err := retryConnection(ctx, func() (err error) {
		last, err = s.prepare(ctx, o)
		return err
	})
	if err != nil {
		return nil, err
	}
	s.clock = newClock(s, o)
	err = retryConnection(ctx, func() error {
		step, cancel := s.step(ctx)
		defer cancel()
		return s.clock.open(step, last)
	})
	if err == nil {
		go s.clock.run()
		err = s.share(ctx)
	}
	if err != nil {
		s.stop()
		s.clock.stop()
		return nil, wrap(err, "looking for other servers on the database")
	}
	return s, nil
}

// share waits until this server and the others on the database share the clock. Where the
// database answers, it takes as long as the database may still carry out what a server that is
// gone had sent, such as a transaction; this is logged.
func (s *Store) share(ctx context.Context) error {
	ended := make(chan struct{})
	defer close(ended)
	go tellProgress(min(s.timeout, openTimeout), ended, func(waited time.Duration) {
		s.logger.Info("what a server that is gone had sent may still be carried out; asof starts when it has ended, a transaction at the latest after transactionLifetimeLimitSeconds of MongoDB", "for", waited)
	})
	for {
		step, cancel := s.step(ctx)
		_, err := s.clock.instant(step)
		late := step.Err() != nil
		cancel()
		if !late || ctx.Err() != nil || s.clock.check() != nil {
			return err
		}
	}
}

// prepare checks the server and the database, makes what is missing, and returns the time of the last version.
func (s *Store) prepare(ctx context.Context, o Options) (last driver.Instant, err error) {
	step, cancel := s.step(ctx)
	defer cancel()
	if err := s.checkServer(step); err != nil {
		return 0, err
	}
	known, err := s.register(step, o)
	if err != nil {
		return 0, err
	}
	for _, name := range known {
		s.collections[name] = s.newCollection(name, o.Bounds[name])
	}
	for _, declared := range o.Collections {
		if err := s.collections[declared.Name].declare(ctx, declared.Indexes); err != nil {
			return 0, wrap(err, "making the indexes of "+declared.Name)
		}
	}
	reading, cancel := s.step(ctx)
	defer cancel()
	for _, c := range s.collections {
		at, err := c.lastCommit(reading)
		if err != nil {
			return 0, wrap(err, "reading "+c.name)
		}
		last = max(last, at)
	}
	return last, nil
}

// retryConnection repeats an idempotent function a few times if the connection broke. The
// driver retries some commands only, and no writes on a standalone server. It does
// not wait for a server longer than the driver does.
func retryConnection(ctx context.Context, do func() error) error {
	const attempts = 5
	wait := firstPause
	for attempt := 1; ; attempt++ {
		err := do()
		var selection topology.ServerSelectionError
		if err == nil || attempt == attempts || ctx.Err() != nil || !isUnreachable(err) || errors.As(err, &selection) || isAuth(err) {
			return err
		}
		pause(ctx, wait)
		wait *= 2
	}
}

// step returns the context of one command of several, with the store's timeout.
func (s *Store) step(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, s.timeout)
}

func (s *Store) newCollection(name string, b Bounds) *collection {
	if b.Versions <= 0 {
		b.Versions = defaultVersions
	}
	if b.Bytes <= 0 {
		b.Bytes = defaultBytes
	}
	base := collectionName(name)
	return &collection{
		name: name, main: s.db.Collection(base), history: s.db.Collection(base + historySuffix),
		store: s, bounds: b,
	}
}

// checkServer reads what the server supports.
func (s *Store) checkServer(ctx context.Context) error {
	hello, err := describe(ctx, s.db)
	if err != nil {
		return wrap(err, "connecting to MongoDB")
	}
	if !hello.replicated() {
		s.logger.Warn("the MongoDB server is not a replica set: what is acknowledged survives a crash of the server, but not the loss of its disk")
	}
	s.majorities, s.snapshots, s.progress.kept = hello.replicated(), hello.snapshots(), hello.sessions()
	return nil
}

// storedStore is the description of the store in asof.meta.
type storedStore struct {
	Format      int64    `bson:"format"`
	Collections []string `bson:"collections"`
}

// stored reads the description; nil if there is no store in the database.
func (s *Store) stored(ctx context.Context) (*storedStore, error) {
	var stored storedStore
	switch err := s.meta.FindOne(ctx, bson.D{{Key: "_id", Value: storeID}}).Decode(&stored); {
	case errors.Is(err, mongo.ErrNoDocuments):
		return nil, nil
	case err != nil:
		return nil, wrap(err, "preparing the database")
	case stored.Format != format:
		return nil, invalidf(
			"the database was made by another version of asof (layout %d, this one knows %d); use that version, or export it with that and import into another database", stored.Format, format)
	}
	return &stored, nil
}

// register stores the names of the declared collections, and returns those of all that
// were ever declared. It writes nothing into a database of another program.
func (s *Store) register(ctx context.Context, o Options) (known []string, err error) {
	stored, err := s.stored(ctx)
	switch {
	case err != nil:
		return nil, err
	case stored == nil && o.Existing:
		return nil, driver.Errorf(driver.CodeNotFound, "there is no store in the database %s of this MongoDB server (see --store)", s.db.Name())
	case stored == nil:
		if err := s.unused(ctx, o.Collections); err != nil {
			return nil, err
		}
	}
	names := make(bson.A, len(o.Collections))
	for i, c := range o.Collections {
		names[i] = c.Name
	}
	note := func(upsert bool) error {
		_, err := s.meta.UpdateOne(ctx, bson.D{{Key: "_id", Value: storeID}, {Key: "format", Value: int64(format)}},
			bson.D{{Key: "$addToSet", Value: bson.D{{Key: "collections", Value: bson.D{{Key: "$each", Value: names}}}}}},
			options.UpdateOne().SetUpsert(upsert))
		return err
	}
	if err = note(true); mongo.IsDuplicateKeyError(err) { // another server has just made it
		err = note(false)
	}
	if err != nil {
		return nil, wrap(err, "preparing the database")
	}
	if stored, err = s.stored(ctx); err != nil {
		return nil, err
	}
	if stored == nil {
		return nil, driver.Errorf(driver.CodeUnavailable, "the database was emptied while asof started; start it again")
	}
	return stored.Collections, nil
}

// unused fails with CodeInvalid if the collections of a new store hold documents of
// another program.
func (s *Store) unused(ctx context.Context, declared []driver.Collection) error {
	for _, c := range declared {
		name := collectionName(c.Name)
		made := bson.D{{Key: "$nor", Value: bson.A{bson.D{{Key: "n", Value: int64(0)}, {Key: "size", Value: int64(0)}, {Key: "current", Value: exists(false)}}}}}
		first, err := s.db.Collection(name).FindOne(ctx, made, options.FindOne().SetProjection(bson.D{{Key: "current.v", Value: 1}})).Raw()
		switch {
		case errors.Is(err, mongo.ErrNoDocuments):
			continue
		case err != nil:
			return wrap(err, "preparing the database")
		}
		if _, ours := first.Lookup("current", "v").Int64OK(); !ours {
			return invalidf("the database %s is another program's: its collection %s holds documents that are not asof's; name another database in --store", s.db.Name(), name)
		}
	}
	return nil
}

// lastCommit returns the latest time of a version. It ignores documents of another
// program, which fail when they are read.
func (c *collection) lastCommit(ctx context.Context) (driver.Instant, error) {
	var last struct {
		Current struct {
			At int64 `bson:"at"`
		} `bson:"current"`
	}
	ours := bson.D{{Key: "current.at", Value: bson.D{{Key: "$type", Value: "long"}}}}
	err := c.main.FindOne(ctx, ours, options.FindOne().
		SetSort(bson.D{{Key: "current.at", Value: -1}}).SetProjection(bson.D{{Key: "current.at", Value: 1}})).Decode(&last)
	if errors.Is(err, mongo.ErrNoDocuments) {
		return 0, nil
	}
	return driver.Instant(last.Current.At), err
}

// declare creates the indexes of a collection. Indexes that are no longer declared are
// kept: other servers may still run with the schema that declares them. Of a large collection it
// takes long, so that it has no timeout, and logs its progress once per timeout.
func (c *collection) declare(ctx context.Context, declared []driver.Index) error {
	ended := make(chan struct{})
	defer close(ended)
	go tellProgress(c.store.timeout, ended, func(waited time.Duration) {
		c.store.logger.Info("the indexes of a large collection are being made; asof starts when they are there", "collection", c.name, "for", waited)
	})
	how := options.CreateIndexes()
	if c.store.majorities {
		// By default every voting member has to complete an index before it can be used:
		// asof could not start while one is down. A standalone server does not accept a
		// quorum.
		how.SetCommitQuorumMajority()
	}
	main, history := c.indexes(declared)
	if _, err := c.main.Indexes().CreateMany(ctx, main, how); err != nil {
		return err
	}
	_, err := c.history.Indexes().CreateMany(ctx, history, how)
	return err
}

// tellProgress tells periodically for how long it has run so far, until ended is closed.
func tellProgress(each time.Duration, ended <-chan struct{}, tell func(waited time.Duration)) {
	every := time.NewTicker(each)
	defer every.Stop()
	for times := time.Duration(1); ; times++ {
		select {
		case <-every.C:
			tell(times * each)
		case <-ended:
			return
		}
	}
}

// indexes returns the indexes of a collection and of its overflow. Each declared index
// exists on current versions, followed by the key, so that it is an order; on prev; and
// on the overflow. A field that can be sorted by has two on current versions: keys
// ascend within equal values in ascending and descending orders, but an index read in
// reverse has them descend. So descending orders need an index with descending keys.
// These only save a sort, so there are no more than a collection may have.
func (c *collection) indexes(declared []driver.Index) (main, history []mongo.IndexModel) {
	main = []mongo.IndexModel{
		index("current.at", "_id", "current.v", "current.del"), // what changed since; the log; how many there are, see Stats
		index("current.at", "-_id"),                            // what changed last, by key at one time
		index("prev.at"),
	}
	history = []mongo.IndexModel{
		index("k", "n", "last"),  // a version by number, which is in n to last: of other runs nothing is read
		index("k", "from", "to"), // a version at an instant
		index("to", "from"),      // all versions at an instant
	}
	var descending []mongo.IndexModel
	for _, d := range declared {
		if len(d.Path) == 0 || len(d.Path) >= maxDepth {
			continue
		}
		name := func(list string) string {
			path := at(list).value(d.Path)
			if d.List {
				path += "." + readingList
			}
			return path + "." + readings[d.Kind]
		}
		main = append(main, index(name("current"), "_id"), index(name("prev")))
		if !d.List {
			descending = append(descending, index(name("current"), "-_id"))
		}
		history = append(history, index(name("vs")))
	}
	room := max(0, min(len(descending), maxIndexes-len(main)))
	return append(main, descending[:room]...), history
}

// maxIndexes is how many indexes MongoDB lets a collection have, besides that of _id.
const maxIndexes = 63

// index returns an index on fields; a minus before the name means descending.
func index(fields ...string) mongo.IndexModel {
	var keys bson.D
	name := "asof"
	for _, field := range fields {
		name += "_" + field
		direction := int32(1)
		if rest, descending := strings.CutPrefix(field, "-"); descending {
			field, direction = rest, -1
		}
		keys = append(keys, bson.E{Key: field, Value: direction})
	}
	// Older servers limit the length of names.
	const longest = 100
	if len(name) > longest {
		sum := sha256.Sum256([]byte(name))
		name = "asof_" + hex.EncodeToString(sum[:8])
	}
	return mongo.IndexModel{Keys: keys, Options: options.Index().SetName(name)}
}
