package mongostore

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/topology"

	"github.com/asof/asof/internal/lru"
	"github.com/asof/asof/storage/driver"
)

// The pauses between attempts.
const (
	firstPause   = 5 * time.Millisecond
	longestPause = time.Second
)

// Commit implements driver.Engine. When the context ends meanwhile, the write
// continues until its outcome is certain: until then its time is in flight, and
// no reader gets an instant at or after it.
func (s *Store) Commit(ctx context.Context, ws []driver.Write) ([]*driver.Version, error) {
	w := &ws[0]
	c := s.collections[w.Collection]
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.timeout)
		defer cancel()
	}
	// The same write may still be in flight for a caller whose context ended: both get
	// one outcome. Otherwise one could return a conflict, and the other be applied later.
	id := c.name + " " + w.ID
	o := &outcome{done: make(chan struct{})}
	if running, there := s.writes.LoadOrStore(id, o); there {
		o = running.(*outcome)
	} else {
		own := *w // the caller may return and change w before the outcome
		own.Data, own.Changed = bytes.Clone(w.Data), slices.Clone(w.Changed)
		s.running.Go(func() {
			t := &committing{c: c, w: &own}
			ctx, done := s.causal(s.life)
			if o.version, o.err = t.run(ctx); o.err == nil {
				ctx, cancel := context.WithTimeout(ctx, s.timeout)
				o.err = s.clock.acknowledge(ctx, o.version.RecordedAt)
				cancel()
			}
			done()
			if o.version == nil && len(t.uncertain) == 0 {
				o.err = refused(wrap(o.err, "committing"))
			}
			s.writes.Delete(id)
			close(o.done)
		})
	}
	select {
	case <-o.done:
		if o.err != nil {
			return nil, wrap(o.err, "committing")
		}
		return []*driver.Version{o.version}, nil
	case <-ctx.Done():
		return nil, driver.Errorf(driver.CodeUnavailable,
			"the request ended before the outcome of the write was known; the same write, with the same ID, tells: %w", ctx.Err())
	}
}

// MaxWrites implements driver.Batcher: only the update of one document is atomic.
func (*Store) MaxWrites() int { return 1 }

// outcome is the outcome of a write; it is read when done is closed.
type outcome struct {
	done    chan struct{}
	version *driver.Version
	err     error
}

// attempt tries once. The timeout bounds how long it waits for a commit time. It returns
// nil and nil if the condition did not hold, and the document must be read again.
func (t *committing) attempt(life context.Context, timeout time.Duration, h *head, blind bool) (*driver.Version, error) {
	w, clock := t.w, t.c.store.clock
	ctx, cancel := context.WithTimeout(life, timeout)
	defer cancel()
	if !blind {
		var err error
		if h, err = t.c.readHead(ctx, w.Key); err != nil {
			return nil, err
		}
		if v, err := t.outcome(ctx, h); v != nil || err != nil {
			return v, err
		}
	}
	if h == nil {
		_, err := t.c.main.InsertOne(ctx, placeholder(w.Key))
		if mongo.IsDuplicateKeyError(err) && !isForeignIndex(err) {
			return nil, nil
		}
		if err != nil {
			return nil, certain(err)
		}
		h = new(head)
	}
	r := &record{id: w.ID, Version: driver.Version{
		Collection: w.Collection, Key: w.Key, Number: h.Number + 1, SupersededAt: driver.Forever,
		Op: w.Op, Deleted: w.Deleted, Author: w.Author, Message: w.Message, Group: w.Group, Changed: w.Changed, Data: w.Data,
	}}
	// The former current version is sent again, as history.
	f, err := clock.begin(ctx, h.arrived(), clock.lifeOf(len(r.Data)+len(h.Data), len(t.uncertain)+t.rounds))
	if err != nil {
		return nil, certain(err)
	}
	r.RecordedAt = f.at
	sending, sent := context.WithTimeout(life, f.run)
	defer sent()
	made, err := t.write(sending, h, r, f)
	if err != nil && uncertain(err) {
		t.uncertain = append(t.uncertain, f)
		return nil, err
	}
	clock.end(f)
	if err != nil {
		t.c.forget(w.Key)
		return nil, err
	}
	if made == nil {
		t.c.forget(w.Key)
		return nil, nil
	}
	t.c.remember(w.Key, made)
	return &r.Version, nil
}

// write makes a version the current one if the head still is, and the flight's life has
// not ended. It returns nil otherwise.
func (t *committing) write(ctx context.Context, h *head, r *record, f *flight) (*head, error) {
	current := encodeVersion(r)
	if h.Number == 0 {
		result, err := t.c.main.UpdateOne(ctx, append(unmade(r.Key), f.inTime()), bson.D{{Key: "$set", Value: bson.D{{Key: "current", Value: embedded(current)}}}})
		if err != nil || result.MatchedCount == 0 {
			return nil, err
		}
		return &head{record: *r}, nil
	}
	old := supersede(&h.record, r.RecordedAt)
	made := &head{record: *r, n: h.n + 1, size: h.size + int64(len(old.raw))}
	set := bson.D{{Key: "current", Value: embedded(current)}}
	var change bson.D
	if b := t.c.bounds.beside(len(current)); made.n <= int64(b.Versions) && made.size <= int64(b.Bytes) {
		set = append(set, bson.E{Key: "n", Value: made.n}, bson.E{Key: "size", Value: made.size})
		change = bson.D{{Key: "$set", Value: set}, {Key: "$push", Value: bson.D{{Key: "prev", Value: embedded(old.raw)}}}}
	} else {
		prev, still, err := t.c.readPrev(ctx, h)
		if err != nil || !still {
			return nil, certain(err)
		}
		versions := append(prev, old)
		gone, err := t.c.overflow(ctx, b, r.Key, versions, b.cut(versions, made.size, len(current)), true)
		if err != nil {
			return nil, certain(err)
		}
		kept := versions[gone:]
		if len(kept) == 0 {
			t.ended = h
		}
		made.n, made.size = int64(len(kept)), sizeOf(kept)
		set = append(set, bson.E{Key: "n", Value: made.n}, bson.E{Key: "size", Value: made.size})
		if len(kept) == 0 {
			change = bson.D{{Key: "$set", Value: append(set, bson.E{Key: "prev", Value: bson.A{}})}}
		} else {
			// Versions that have moved are removed at the front; the others are not sent again.
			change = bson.D{{Key: "$set", Value: set}, {Key: "$push", Value: bson.D{{Key: "prev", Value: bson.D{
				{Key: "$each", Value: raws(versions[len(versions)-1:])}, {Key: "$slice", Value: -made.n},
			}}}}}
		}
	}
	// The condition includes n, so that the content of prev is certain, and what is removed from it.
	condition := append(guard(h.Key, h.Number, h.RecordedAt), bson.E{Key: "n", Value: h.n}, f.inTime())
	result, err := t.c.main.UpdateOne(ctx, condition, change)
	if err != nil || result.MatchedCount == 0 {
		return nil, err
	}
	return made, nil
}

// lifeOf is how long the database may run a write of a size in bytes; each further attempt
// gets twice as long, so that a slow database can complete it.
func (c *clock) lifeOf(bytes, attempt int) time.Duration {
	life := c.timing.life + time.Duration(max(0, bytes-smallWrite))*time.Second/lifeBytes
	return min(life<<attempt, max(longestLife, 4*life))
}

const (
	// lifeBytes is the least assumed speed of large writes, in bytes per second.
	lifeBytes  = 1 << 20
	smallWrite = 64 << 10
)

// certainError is an error of a step before the one that commits.
type certainError struct{ error }

func (e certainError) Unwrap() error { return e.error }

func certain(err error) error {
	if err == nil {
		return nil
	}
	return certainError{err}
}

// uncertain reports whether a write that failed with an error may have been applied, or may
// still be. It was not if the server refused it, or if it was never sent.
func uncertain(err error) bool {
	var before certainError
	if errors.As(err, &before) || isNeverSent(err) || isTooLarge(err) {
		return false
	}
	var write mongo.WriteException
	if errors.As(err, &write) {
		return write.WriteConcernError != nil
	}
	var command mongo.CommandError
	if errors.As(err, &command) {
		if command.HasErrorLabel("NoWritesPerformed") {
			return false // the label covers all attempts of the driver
		}
		// A primary that steps down meanwhile may have applied it.
		return command.HasErrorLabel("NetworkError") || command.HasErrorLabel("RetryableWriteError") || mongo.IsTimeout(err) ||
			slices.ContainsFunc(interrupted[:], command.HasErrorCode)
	}
	return true
}

// interrupted are the codes of errors that end a running command: ShutdownInProgress,
// PrimarySteppedDown, InterruptedAtShutdown, InterruptedDueToReplStateChange.
var interrupted = [...]int{91, 189, 11600, 11602}

// committing is one call of Commit.
type committing struct {
	c *collection
	w *driver.Write

	uncertain []*flight // of attempts that may still be carried out
	rounds    int       // how often resolve has waited until they could not
	// ended is the version that an attempt moved to the overflow to supersede it.
	ended *head
}

const (
	// maxRounds is how often a write is tried again after attempts without an answer that
	// were not carried out.
	maxRounds = 3
	// maxUncertain is how many attempts may have no outcome before Commit waits for the
	// end of their lives: until then no instant after them is read at.
	maxUncertain = 2
	// firstTimeout is how long the first attempt waits for its commit time; each
	// further one waits twice as long, up to attemptTimeout.
	firstTimeout   = 2 * time.Second
	attemptTimeout = 10 * time.Second
)

// resolve waits until no attempt can be carried out any more, and returns the outcome
// of the write; nil and nil if no attempt was applied. Then none is in flight.
func (t *committing) resolve(life context.Context) (*driver.Version, error) {
	if err := t.c.store.clock.awaitEnd(life, t.uncertain); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(life, attemptTimeout)
	defer cancel()
	h, err := t.c.readHead(ctx, t.w.Key)
	if err != nil {
		return nil, err
	}
	if v, err := t.outcome(ctx, h); v != nil || err != nil {
		return v, err
	}
	t.c.store.clock.end(t.uncertain...)
	t.uncertain = nil
	t.rounds++
	return nil, nil
}

// run makes the write, see try. Then it corrects the end of the superseded version in the
// overflow, if another attempt superseded it than the one that moved it last.
func (t *committing) run(life context.Context) (*driver.Version, error) {
	defer func() {
		if life.Err() == nil { // else they stay in flight until others evict them
			t.c.store.clock.end(t.uncertain...)
		}
	}()
	v, err := t.try(life)
	if t.ended != nil && (v != nil || driver.CodeOf(err) == driver.CodeConflict) {
		ctx, cancel := context.WithTimeout(life, attemptTimeout)
		defer cancel()
		if err := retryTimeouts(ctx, func() error { return t.end(ctx, v) }); err != nil {
			t.c.store.logger.Error("the end of a version may be wrong; asof check tells", "collection", t.c.name, "key", t.w.Key, "version", t.ended.Number, "error", err)
		}
	}
	return v, err
}

// end sets when a version ended that was moved to the overflow before it was superseded:
// several writes may have moved it, with different times, of which one
// superseded it, with the version made or with another.
func (t *committing) end(ctx context.Context, made *driver.Version) error {
	if made == nil || made.Number != t.ended.Number+1 {
		found, err := t.c.get(ctx, []driver.Ref{{Key: t.w.Key, Number: t.ended.Number + 1}})
		if err != nil || found[0] == nil {
			return err
		}
		made = &found[0].Version
	}
	return t.c.endRun(ctx, supersede(&t.ended.record, made.RecordedAt), t.w.Key)
}

// try repeats attempts until the outcome is certain. After an attempt with an unknown
// outcome, the next one has the same condition: it holds for at most one attempt, and
// the version which that made is found by the write's ID.
func (t *committing) try(life context.Context) (*driver.Version, error) {
	known := t.c.cached(t.w.Key, t.w.Expected)
	blind := t.w.Expected == 0 || known != nil // the first attempt needs no reading
	began := t.c.store.clock.elapsed()
	var last error
	wait, timeout := firstPause, firstTimeout
	for {
		v, err := t.attempt(life, timeout, known, blind)
		timeout = min(2*timeout, attemptTimeout)
		if v != nil || err != nil && (life.Err() != nil || driver.CodeOf(err) == driver.CodeConflict) {
			return v, err
		}
		if err != nil {
			last = err
		}
		ends := err != nil && (!passes(err) || t.c.store.clock.elapsed()-began > t.c.store.timeout)
		for len(t.uncertain) >= maxUncertain || ends && len(t.uncertain) > 0 {
			v, err := t.resolve(life)
			switch {
			case v != nil || err != nil && (life.Err() != nil || driver.CodeOf(err) == driver.CodeConflict):
				return v, err
			case err != nil:
				pause(life, longestPause)
			case t.rounds == maxRounds && !ends:
				return nil, driver.Errorf(driver.CodeUnavailable, "the database did not answer in time, however often this was written, and nothing was; try again: %w", last)
			}
		}
		if ends {
			return nil, last
		}
		if err != nil || known == nil && !blind {
			pause(life, wait)
			wait = min(2*wait, longestPause)
		}
		known, blind = nil, false
	}
}

// passes reports whether another attempt may succeed: the connection broke, a timeout
// ended, or there is no primary now.
func passes(err error) bool {
	var selection topology.ServerSelectionError
	var server mongo.ServerError
	return mongo.IsTimeout(err) || isUnreachable(err) && !errors.As(err, &selection) || errors.As(err, &server) && !staysRefused(err)
}

// outcome returns the outcome of the write according to the document: the version that
// it made, or its conflict; neither if it can still be applied.
func (t *committing) outcome(ctx context.Context, h *head) (*driver.Version, error) {
	w := t.w
	conflict := func(actual int64) error {
		return &driver.ConflictError{Lost: []driver.Conflict{{Collection: w.Collection, Key: w.Key, Expected: w.Expected, Actual: actual}}}
	}
	switch {
	case (h == nil || h.Number == 0) && w.Expected == 0:
		return nil, nil
	case h == nil || h.Number == 0:
		return nil, conflict(0)
	case h.id == w.ID:
		return &h.Version, nil
	}
	var made *record
	var err error
	switch {
	case w.Expected == 0:
		// It may have made any version that follows none or a tombstone.
		made, err = t.c.findWrite(ctx, w.Key, w.ID)
	case w.Expected+1 < h.Number:
		// It can have made only the version after the expected one, which this is not.
		var found []*record
		if found, err = t.c.get(ctx, []driver.Ref{{Key: w.Key, Number: w.Expected + 1}}); err == nil && found[0] != nil && found[0].id == w.ID {
			made = found[0]
		}
	}
	switch {
	case err != nil:
		return nil, err
	case made != nil:
		return &made.Version, nil
	case w.Expected == h.Number, w.Expected == 0 && h.Deleted:
		return nil, nil
	}
	return nil, conflict(h.Number)
}

// head is a document's current version with the size of its history, which an update
// needs. It is shared and never changed.
type head struct {
	record
	n, size int64
}

// heads caches the heads read or written last, of all collections, so that an update of
// a document that was just read takes one round trip. They may be out of date: then the
// condition of the update does not hold.
type heads struct {
	mu    sync.Mutex // held for look-ups and changes only
	known *lru.Cache[documentKey, *head]
}

// Bounds of the cache, in bytes. It has room for several documents of any size that
// MongoDB takes.
const (
	headBytes    = 64 << 20
	headOverhead = 512 // of one head, beside its texts
)

func newHeads(bound int) *heads {
	return &heads{known: lru.New[documentKey, *head](bound)}
}

// memory is about how many bytes a head takes.
func (h *head) memory() int { return headOverhead + len(h.Key) + len(h.Message) + len(h.Data) }

func (h *heads) get(d documentKey, number int64) *head {
	h.mu.Lock()
	defer h.mu.Unlock()
	if known, ok := h.known.Get(d); ok && known.Number == number {
		return known
	}
	return nil
}

// put caches a head, unless a later one is cached.
func (h *heads) put(d documentKey, known *head) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if before, ok := h.known.Peek(d); ok && before.Number > known.Number {
		return
	}
	h.known.Add(d, known, known.memory())
}

func (h *heads) drop(d documentKey) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.known.Remove(d)
}

// cached returns a document's head if it is cached and has the number.
func (c *collection) cached(key string, number int64) *head {
	return c.store.heads.get(documentKey{c.name, key}, number)
}

func (c *collection) remember(key string, known *head) {
	c.store.heads.put(documentKey{c.name, key}, known)
}

func (c *collection) forget(key string) { c.store.heads.drop(documentKey{c.name, key}) }

// headFields is the projection that decodeHead needs.
func headFields() bson.D {
	return append(arrivalFields("current"), bson.E{Key: "n", Value: 1}, bson.E{Key: "size", Value: 1})
}

func (c *collection) decodeHead(key string, raw bson.Raw) (*head, error) {
	r, err := c.version(key, raw.Lookup("current"))
	if err != nil {
		return nil, err
	}
	n, hasN := raw.Lookup("n").Int64OK()
	size, hasSize := raw.Lookup("size").Int64OK()
	if !hasN || !hasSize {
		return nil, layoutError(c.name, key, "n or size is missing")
	}
	return &head{record: *r, n: n, size: size}, nil
}

// readHead reads a document's head; nil if there is no document, and one without a
// version for a placeholder.
func (c *collection) readHead(ctx context.Context, key string) (*head, error) {
	raw, err := c.main.FindOne(ctx, byKey(key), options.FindOne().SetProjection(headFields())).Raw()
	if errors.Is(err, mongo.ErrNoDocuments) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if isPlaceholder(raw) {
		return new(head), nil
	}
	h, err := c.decodeHead(key, raw)
	if err == nil {
		c.remember(key, h)
	}
	return h, err
}

// A document is created in two steps, because the database cannot refuse a late insert:
// a placeholder, which readers ignore, gets its first version by an update. A
// placeholder that was left over is used when the document is created later.
func placeholder(key string) bson.D {
	return append(byKey(key), bson.E{Key: "n", Value: int64(0)}, bson.E{Key: "size", Value: int64(0)})
}

func isPlaceholder(raw bson.Raw) bool {
	n, ok := raw.Lookup("n").Int64OK()
	return ok && n == 0 && raw.Lookup("current").IsZero()
}

// unmade selects a placeholder.
func unmade(key string) bson.D {
	return append(byKey(key), bson.E{Key: "current", Value: exists(false)})
}

// inTime is the condition that the database's clock is not past the life of a flight.
func (f *flight) inTime() bson.E {
	return bson.E{Key: "$expr", Value: bson.D{{Key: "$lt", Value: bson.A{"$$NOW", f.until}}}}
}

func byKey(key string) bson.D { return bson.D{{Key: "_id", Value: encodeString(key)}} }

// guard selects a document on condition that a version is current.
func guard(key string, number int64, at driver.Instant) bson.D {
	return append(byKey(key), bson.E{Key: "current.v", Value: number}, bson.E{Key: "current.at", Value: int64(at)})
}

// Remembered implements driver.Rememberer.
func (s *Store) Remembered(_ context.Context, collection, key string, number int64) (*driver.Version, error) {
	if c := s.collections[collection]; c != nil {
		if h := c.cached(key, number); h != nil {
			return &h.Version, nil
		}
	}
	return nil, nil
}
