package mongostore

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/topology"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/driver/check"
)

// Bounds say how much history stays inside a document before all of it but a
// quarter moves to the overflow. Zero means the default.
type Bounds struct {
	Versions int // default 64
	Bytes    int // as stored, or a few versions where that is more; default 32 KB

	together int // how large a document may get by what stays in prev; 0: maxTogether
}

// The default bounds.
const (
	DefaultVersions = 64
	DefaultBytes    = 32 << 10
)

// Options are how a store is opened.
type Options struct {
	Collections []driver.Collection
	// Bounds of collections that differ from the default, by name.
	Bounds map[string]Bounds
	// Clock tells the time; nil means the system's.
	Clock func() time.Time
	// Logger gets warnings; nil means none.
	Logger *slog.Logger
	// Timeout ends calls whose context has no deadline. Default 30 s. Open takes
	// longer where indexes have to be made.
	Timeout time.Duration
	// MaxSkew is how far Clock and the server's clock may be apart. Open
	// refuses when they are further; 0 means that they are not compared.
	MaxSkew time.Duration
	// Existing: a store is not made where there is none; that has CodeNotFound.
	Existing bool

	// timing is that of the clock; zero means the usual one. elapsed measures how long
	// something takes.
	timing  timing
	elapsed func() time.Duration
}

const (
	defaultTimeout = 30 * time.Second
	// openTimeout bounds how long Open looks for a server.
	openTimeout = 10 * time.Second
	// format is the version of the layout; storeID names the document of it.
	format  = 1
	storeID = "store"
)

// Open connects to the database that a mongodb:// or mongodb+srv:// URI names,
// and makes what is missing in it: collections, and declared indexes. Errors
// of the URI have CodeInvalid, and so have a database that another version of
// asof made, one in which another program keeps documents, and collections or
// indexes of another program that are in the way.
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
	dials := new(dialer)
	client, database, err := connect(uri, dials)
	if err != nil {
		return nil, err
	}
	s, err := open(ctx, client, database, o)
	if err != nil {
		// What went wrong first is what counts.
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closingTimeout)
		defer cancel()
		_ = client.Disconnect(closing)
		return nil, err
	}
	s.dialer = dials
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
		heads: newHeads(headBytes), collections: make(map[string]*collection),
	}
	s.life, s.giveUp = context.WithCancel(context.WithoutCancel(ctx))
	if err := s.prepare(ctx, o); err != nil {
		return nil, err
	}
	// Indexes of a large collection take as long as they take.
	for _, declared := range o.Collections {
		if err := insist(ctx, func() error { return s.collections[declared.Name].declare(ctx, declared.Indexes) }); err != nil {
			return nil, wrap(err, "making the indexes of "+declared.Name)
		}
	}
	ctx, cancel := s.step(ctx)
	defer cancel()
	var floor driver.Instant
	for _, c := range s.collections {
		if err := insist(ctx, func() error {
			last, err := c.lastCommit(ctx)
			floor = max(floor, last)
			return err
		}); err != nil {
			return nil, wrap(err, "reading "+c.name)
		}
	}
	s.clock = newClock(s, o)
	err := insist(ctx, func() error { return s.clock.open(ctx, floor) })
	if err == nil {
		go s.clock.run()
		_, err = s.clock.instant(ctx) // another server may have to share the clock first
	}
	if err != nil {
		s.giveUp()
		return nil, wrap(err, "looking for other servers on the database")
	}
	return s, nil
}

// prepare finds out what the server and the database are, and which collections
// there are.
func (s *Store) prepare(ctx context.Context, o Options) error {
	ctx, cancel := s.step(ctx)
	defer cancel()
	if err := insist(ctx, func() error { return s.greet(ctx, o) }); err != nil {
		return err
	}
	return insist(ctx, func() error {
		known, err := s.register(ctx, o)
		for _, name := range known {
			s.collections[name] = s.newCollection(name, o.Bounds[name])
		}
		return err
	})
}

// insist repeats what can be done twice where the connection broke on the way, a few
// times: the driver does that for some commands only, and for writes not on a server
// alone. It does not look for a server longer than the driver does.
func insist(ctx context.Context, do func() error) error {
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

// persist repeats what failed for want of an answer, until the context ends; where the
// connection broke, a few times.
func persist(ctx context.Context, do func() error) error {
	for {
		err := insist(ctx, do)
		if err == nil || ctx.Err() != nil || !mongo.IsTimeout(err) {
			return err
		}
		pause(ctx, firstPause)
	}
}

// step bounds one command of many. The context that it returns ends with the
// given one, and at last when the store's timeout is over.
func (s *Store) step(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, s.timeout)
}

func (s *Store) newCollection(name string, b Bounds) *collection {
	if b.Versions <= 0 {
		b.Versions = DefaultVersions
	}
	if b.Bytes <= 0 {
		b.Bytes = DefaultBytes
	}
	if b.together == 0 {
		b.together = maxTogether
	}
	base := collectionName(name)
	return &collection{
		name: name, main: s.db.Collection(base), history: s.db.Collection(base + historySuffix),
		store: s, bounds: b,
	}
}

// greet asks the server what it is, and compares the clocks.
func (s *Store) greet(ctx context.Context, o Options) error {
	before := o.Clock()
	hello, err := s.hello(ctx)
	after := o.Clock()
	if err != nil {
		return wrap(err, "connecting to MongoDB")
	}
	if !hello.replicated() {
		s.logger.Warn("the MongoDB server is not a replica set: what is acknowledged survives a crash of the server, but not the loss of its disk")
	}
	s.majorities, s.snapshots, s.progress.kept = hello.replicated(), hello.snapshots(), hello.sessions()
	if o.MaxSkew == 0 || hello.LocalTime == 0 {
		return nil
	}
	return compareClocks(before, hello.LocalTime.Time(), after, o.MaxSkew)
}

// storedStore is what asof.meta says of the store.
type storedStore struct {
	Format      int64    `bson:"format"`
	Collections []string `bson:"collections"`
}

// stored reads it; nil where no store was made in the database.
func (s *Store) stored(ctx context.Context) (*storedStore, error) {
	var stored storedStore
	switch err := s.meta.FindOne(ctx, bson.D{{Key: "_id", Value: storeID}}).Decode(&stored); {
	case errors.Is(err, mongo.ErrNoDocuments):
		return nil, nil
	case err != nil:
		return nil, wrap(err, "preparing the database")
	case stored.Format != format:
		return nil, invalidf(
			"the database was made by another version of asof (layout %d, this one knows %d); use that version, or another database", stored.Format, format)
	}
	return &stored, nil
}

// register notes which collections there are, and returns all that there ever
// were. Nothing is written into a database that is not asof's.
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

// unused looks whether the collections of a store that is to be made hold
// documents of another program.
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

// lastCommit is the latest time of a version. Documents of another program are
// left to those who read them.
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

// compareClocks returns an error where this machine's clock, which was read before and
// after the database's, is further from it than a bound.
func compareClocks(before, server, after time.Time, bound time.Duration) error {
	if early, late := before.Sub(server), server.Sub(after); early <= bound && late <= bound {
		return nil
	}
	return driver.Errorf(driver.CodeUnavailable,
		"the clocks are too far apart: this machine's says %s, that of the MongoDB server %s, and the bound is %v; synchronize them (NTP)",
		before.UTC().Format(time.RFC3339Nano), server.UTC().Format(time.RFC3339Nano), bound)
}
