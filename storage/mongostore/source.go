package mongostore

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/asof/asof/storage/driver"
)

// Source is a collection that other programs write to. It is read without writing to it: first
// what it holds, in parts that are each a snapshot of a known cluster time, and then its
// change stream from before the first part. It is for one goroutine.
type Source struct {
	Position SourcePosition // behind what was returned last
	Wait     time.Duration  // for changes, in Next

	client     *mongo.Client
	name       string // with its database
	collection *mongo.Collection
	filter     bson.D
	postImages bool // the server knows of them, and of all names in paths
	stream     *mongo.ChangeStream
	next       *Change // of the stream, not returned yet
	err        error   // what comes after that which was returned
}

// SourcePosition is how far a source was read. The zero position is before Begin.
type SourcePosition struct {
	Source string         `json:"source,omitempty"` // the database and the collection
	Start  bson.Timestamp `json:"start,omitzero"`   // where the stream begins
	Part   int            `json:"part,omitempty"`   // how many of idParts have been read
	After  []byte         `json:"after,omitempty"`  // the last _id of those in the next one; nil: none
	Token  []byte         `json:"token,omitempty"`  // how far the stream was read; nil: not at all
	Until  driver.Instant `json:"until,omitempty"`  // of the last snapshot
	// IDs are the types of the values of _id whose keys look like those of another type.
	IDs map[string]string `json:"ids,omitempty"`
}

// Scanned reports whether all of the collection was read, so that the stream follows.
func (p *SourcePosition) Scanned() bool { return p.Part == len(idParts) }

// idParts are the types of _id in the order in which they are read: first those of which no
// key can be made, so that they are told before anything is loaded. A comparison finds only
// values of one type, so a part is continued within it.
var idParts = [...][]string{
	{"object", "bool", "date", "timestamp", "null", "javascript", "dbPointer", "symbol", "minKey", "maxKey"},
	{"number"},
	{"string"},
	{"objectId"},
	{"binData"},
}

// OpenSource connects to a database, in which a collection is to be read; filter is a
// condition in Extended JSON on its documents, "" for all. It fails with CodeInvalid for
// an invalid URI or filter, and servers without change streams and snapshots.
func OpenSource(ctx context.Context, uri, collection, filter string) (*Source, error) {
	s := &Source{Wait: streamWait}
	if filter != "" {
		if err := bson.UnmarshalExtJSON([]byte(filter), false, &s.filter); err != nil {
			return nil, invalidf("the filter is no condition in MongoDB's JSON: %w", err)
		}
		if _, err := inserted(s.filter); err != nil {
			return nil, err
		}
	}
	client, database, err := connect(uri)
	if err != nil {
		return nil, err
	}
	db := client.Database(database)
	s.client, s.collection, s.name = client, db.Collection(collection), database+"."+collection
	h, err := describe(ctx, db)
	if err == nil && !h.snapshots() {
		err = invalidf("the server of %s has no change streams with snapshots: it must be a replica set, or a sharded cluster, of MongoDB 5.0 or newer", s.name)
	}
	if err != nil {
		s.Close()
		return nil, s.explain(err)
	}
	const postImages = 18 // the version of the protocol of MongoDB 6.1
	s.postImages = h.MaxWireVersion >= postImages
	return s, nil
}

// Close disconnects.
func (s *Source) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), closingTimeout)
	defer cancel()
	if s.stream != nil {
		_ = s.stream.Close(ctx)
	}
	_ = s.client.Disconnect(ctx)
}

// Begin sets the position to the beginning.
func (s *Source) Begin(ctx context.Context) error {
	at, err := s.inSnapshot(ctx, func(ctx context.Context) error {
		err := s.collection.FindOne(ctx, bson.D{}, options.FindOne().SetProjection(bson.D{{Key: "_id", Value: 1}})).Err()
		if errors.Is(err, mongo.ErrNoDocuments) {
			err = nil
		}
		return err
	})
	s.Position = SourcePosition{Source: s.name, Start: at}
	return s.explain(err)
}

// Resume sets the position to where another Source was. CodeInvalid: that read another collection.
func (s *Source) Resume(p SourcePosition) error {
	if p.Source != s.name {
		return invalidf("the store has what was captured from %s, and not from %s: capture into another type, or an empty store", p.Source, s.name)
	}
	s.Position = p
	return nil
}

// inSnapshot reads in a snapshot, and returns the cluster time of that.
func (s *Source) inSnapshot(ctx context.Context, read func(context.Context) error) (at bson.Timestamp, err error) {
	session, err := s.client.StartSession(options.Session().SetSnapshot(true))
	if err != nil {
		return at, err
	}
	defer session.EndSession(ctx)
	err = read(mongo.NewSessionContext(ctx, session))
	if at = session.SnapshotTime(); err == nil && at.IsZero() {
		err = driver.Errorf(driver.CodeUnavailable, "the server did not say of which time its snapshot is")
	}
	return at, err
}

// Bounds of what is returned at once.
const (
	sourceChanges = 4096
	sourceBytes   = 4 << 20
)

// Scan returns the next documents that the collection holds, as of the cluster time at which
// they are read. It sets Position.Scanned when there are no more.
func (s *Source) Scan(ctx context.Context) (found []Change, err error) {
	p := s.Position
	id, bytes := bson.D{{Key: "$type", Value: idParts[p.Part]}}, 0
	if p.After != nil {
		id = append(id, bson.E{Key: "$gt", Value: bson.Raw(p.After).Lookup("_id")})
	}
	wanted, more := bson.A{}, false
	if len(s.filter) > 0 {
		wanted = append(wanted, s.filter)
	}
	at, err := s.inSnapshot(ctx, func(ctx context.Context) error {
		cursor, err := s.collection.Find(ctx, bson.D{{Key: "$and", Value: append(wanted, bson.D{{Key: "_id", Value: id}})}},
			options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}).SetHint(bson.D{{Key: "_id", Value: 1}}).SetLimit(sourceChanges).SetBatchSize(sourceChanges))
		if err != nil {
			return err
		}
		defer closeCursor(ctx, cursor)
		for !more && cursor.Next(ctx) {
			c := Change{Kind: Found}
			if err := c.read(cursor.Current); err != nil {
				return err
			}
			if err := s.setKey(&c, cursor.Current.Lookup("_id")); err != nil {
				return err
			}
			if p.After, err = bson.Marshal(bson.D{{Key: "_id", Value: cursor.Current.Lookup("_id")}}); err != nil {
				return err
			}
			found = append(found, c)
			bytes += len(cursor.Current)
			more = len(found) == sourceChanges || bytes > sourceBytes
		}
		return cursor.Err()
	})
	if err != nil {
		return nil, s.explain(err)
	}
	if p.Until = ofClusterTime(at); !more {
		p.Part, p.After = p.Part+1, nil
	}
	for i := range found {
		found[i].At = p.Until
	}
	p.IDs = s.Position.IDs
	s.Position = p
	return found, nil
}

// ofClusterTime is the instant that stands for a cluster time, in the same order: its second, and as
// many microseconds as operations had been in that. No second has a million of them.
func ofClusterTime(t bson.Timestamp) driver.Instant {
	return driver.Instant(t.T)*driver.Instant(time.Second/time.Microsecond) + driver.Instant(t.I)
}

// streamWait is how long Next waits, if nobody says otherwise.
const streamWait = 500 * time.Millisecond

// Next returns the next changes in the order in which they were made, those of a transaction
// together, unless there is more of it than a commit may have; none where there was none in the
// time that it waits, which a server has said whose cursor was there before and after. A cursor that
// was lost is made again once; CodeUnavailable: so was that one.
func (s *Source) Next(ctx context.Context) (changes []Change, err error) {
	for range 2 {
		lost := false
		if changes, lost, err = s.read(ctx); err != nil || len(changes) > 0 || !lost {
			return changes, err
		}
	}
	return nil, driver.Errorf(driver.CodeUnavailable, "reading %s: the server loses the cursors of its change stream", s.name)
}

// read is Next with one cursor, and reports whether that was lost meanwhile.
func (s *Source) read(ctx context.Context) (changes []Change, lost bool, err error) {
	if s.err != nil {
		return nil, false, s.err
	}
	opened := s.stream == nil
	if err := s.watch(ctx); err != nil {
		return nil, false, s.explain(err)
	}
	if s.next != nil {
		changes, s.next = append(changes, *s.next), nil
	}
	cursor := s.stream.ID()
	token, bytes := []byte(nil), 0
	for s.stream.TryNext(ctx) || opened && s.stream.Err() == nil && s.stream.TryNext(ctx) { // the first one asks for nothing
		c, err := s.change(s.stream.Current)
		if err != nil {
			if s.err = err; len(changes) == 0 {
				return nil, false, err
			}
			break
		}
		if n := len(changes); n >= sourceChanges || bytes > sourceBytes {
			if changes[n-1].At != c.At || n > driver.MaxWrites+sourceChanges || bytes > driver.MaxCommitBytes {
				s.next = &c
				break
			}
		}
		if c.Kind != 0 {
			changes, bytes = append(changes, c), bytes+len(s.stream.Current)
		}
		if token = c.token; s.stream.RemainingBatchLength() == 0 && c.Group == "" {
			break
		}
	}
	if err := s.stream.Err(); err != nil {
		return nil, false, s.explain(err)
	}
	if s.next == nil && s.err == nil && s.stream.RemainingBatchLength() == 0 {
		token = s.stream.ResumeToken()
	}
	if token != nil {
		s.Position.Token = token
	}
	// The driver has made another one, whose first answer tells nothing.
	lost = s.stream.ID() != cursor
	if s.stream.ID() == 0 && s.next == nil && s.stream.RemainingBatchLength() == 0 { // the server has closed it
		_ = s.stream.Close(ctx)
		s.stream, lost = nil, true
	}
	return changes, lost, nil
}

// watch opens the stream behind the position.
func (s *Source) watch(ctx context.Context) (err error) {
	if s.stream != nil {
		return nil
	}
	o := options.ChangeStream().SetMaxAwaitTime(s.Wait).SetBatchSize(sourceChanges)
	if s.postImages {
		o.SetFullDocument(options.WhenAvailable).SetShowExpandedEvents(true)
	}
	if s.Position.Token != nil {
		o.SetResumeAfter(bson.Raw(s.Position.Token))
	} else {
		o.SetStartAtOperationTime(&s.Position.Start)
	}
	kinds := bson.A{}
	for _, kind := range slices.Sorted(maps.Keys(kindsOf)) {
		kinds = append(kinds, kind)
	}
	wanted := bson.D{{Key: "operationType", Value: in(kinds)}}
	if len(s.filter) > 0 {
		of, err := inserted(s.filter)
		if err != nil {
			return err
		}
		wanted = append(wanted, bson.E{Key: "$or", Value: bson.A{bson.D{{Key: "operationType", Value: bson.D{{Key: "$ne", Value: "insert"}}}}, of}})
	}
	s.stream, err = s.collection.Watch(ctx, mongo.Pipeline{{{Key: "$match", Value: wanted}}}, o)
	return err
}

// inserted is a filter as a condition on the event of an insertion.
func inserted(filter bson.D) (of bson.D, err error) {
	for _, e := range filter {
		list, isList := e.Value.(bson.A)
		switch {
		case !strings.HasPrefix(e.Key, "$"):
			of = append(of, bson.E{Key: "fullDocument." + e.Key, Value: e.Value})
			continue
		case e.Key != "$and" && e.Key != "$or" && e.Key != "$nor" || !isList:
			return nil, invalidf("the filter has %s, which cannot be asked of changes; it may have conditions on fields, with $and, $or and $nor", e.Key)
		}
		all := bson.A{}
		for _, one := range list {
			d, _ := one.(bson.D)
			inner, err := inserted(d)
			if err != nil {
				return nil, err
			}
			all = append(all, inner)
		}
		of = append(of, bson.E{Key: e.Key, Value: all})
	}
	return of, nil
}

// explain says what an error of the source means.
func (s *Source) explain(err error) error {
	var server mongo.ServerError
	switch {
	case isAuth(err):
		return driver.Errorf(driver.CodeUnavailable, "the user or the password of --from is wrong: %w", err)
	case !errors.As(err, &server):
		return wrap(err, "reading "+s.name)
	case server.HasErrorCode(13): // Unauthorized
		return driver.Errorf(driver.CodeUnavailable, "the user of --from may not read %s; it needs find and changeStream on the collection: %w", s.name, err)
	case server.HasErrorCode(286), server.HasErrorCode(280), server.HasErrorCode(260): // ChangeStreamHistoryLost, ChangeStreamFatalError, InvalidResumeToken
		return invalidf("the oplog of %s does not reach back any more to where this capture had come, so that changes are lost: "+
			"keep the store for its history, capture into an empty one, and give the source a larger oplog (replSetResizeOplog): %w", s.name, err)
	case server.HasErrorLabel("ResumableChangeStreamError"), server.HasErrorCode(136): // CappedPositionLost; a stream that begins again tells
		return driver.Errorf(driver.CodeUnavailable, "reading %s: the stream can go on: %w", s.name, err)
	}
	return wrap(err, "reading "+s.name)
}

// changeEvent is an event of a change stream.
type changeEvent struct {
	Type   string         `bson:"operationType"`
	Token  bson.Raw       `bson:"_id"`
	Time   bson.Timestamp `bson:"clusterTime"`
	Key    bson.Raw       `bson:"documentKey"`
	Whole  bson.RawValue  `bson:"fullDocument"`
	Update struct {
		Set       bson.Raw `bson:"updatedFields"`
		Removed   []string `bson:"removedFields"`
		Truncated []struct {
			Field string `bson:"field"`
			Size  int    `bson:"newSize"`
		} `bson:"truncatedArrays"`
		Paths map[string]bson.A `bson:"disambiguatedPaths"`
	} `bson:"updateDescription"`
	Session bson.Raw `bson:"lsid"`
	Number  int64    `bson:"txnNumber"`
}

// change reads an event of the stream. Its Kind is 0 where the filter leaves it out.
func (s *Source) change(raw bson.Raw) (c Change, err error) {
	var e changeEvent
	if err := bson.Unmarshal(raw, &e); err != nil {
		return c, driver.Errorf(driver.CodeInternal, "an event of the change stream of %s cannot be read: %w", s.name, err)
	}
	c = Change{Kind: kindsOf[e.Type], At: ofClusterTime(e.Time), token: e.Token}
	if c.Kind == 0 {
		return c, invalidf("%s ended at %s (%s); what was captured before is there. To go on with a collection that took its place, capture that into an empty store", s.name, c.At, e.Type)
	}
	if _, id, ok := e.Session.Lookup("id").BinaryOK(); ok {
		c.Group = fmt.Sprintf("%s-%d", hex.EncodeToString(id), e.Number)
	}
	ids := s.Position.IDs
	err = s.setKey(&c, e.Key.Lookup("_id"))
	if c.Kind != Inserted && len(s.filter) > 0 {
		if err != nil { // the document was not captured
			return Change{token: e.Token}, nil
		}
		s.Position.IDs = ids // where it was, they are as they were
	}
	if err != nil {
		return c, err
	}
	if whole, ok := e.Whole.DocumentOK(); ok {
		err = c.read(whole)
	} else if c.Kind == Updated {
		err = c.readEdits(&e)
	}
	return c, err
}
