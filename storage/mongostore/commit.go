package mongostore

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/topology"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/seal"
)

// The pauses between attempts.
const (
	firstPause   = 5 * time.Millisecond
	longestPause = time.Second
)

// Commit implements driver.Engine. When the context ends meanwhile, the writes
// continue until their outcome is certain: until then their time is in flight, and
// no reader gets an instant at or after it.
func (s *Store) Commit(ctx context.Context, ws []driver.Write) ([]*driver.Version, error) {
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.timeout)
		defer cancel()
	}
	// The same writes may still be in flight for a caller whose context ended: both get
	// one outcome. Otherwise one could return a conflict, and the other be applied later.
	var id strings.Builder
	for i := range ws {
		id.WriteString(ws[i].Collection + " " + ws[i].ID + "\n")
	}
	t := &committing{s: s}
	for _, w := range ws { // the caller may return and change them before the outcome
		w.Data, w.Changed = bytes.Clone(w.Data), slices.Clone(w.Changed)
		t.parts = append(t.parts, &part{c: s.collections[w.Collection], w: &w})
	}
	s.running.Add(1)
	ended := s.writes.DoChan(id.String(), func() (any, error) { return t.commit() })
	select {
	case outcome := <-ended:
		s.running.Done()
		if outcome.Err != nil {
			return nil, wrap(outcome.Err, "committing")
		}
		return outcome.Val.([]*driver.Version), nil
	case <-ctx.Done():
		go func() {
			<-ended
			s.running.Done()
		}()
		return nil, driver.Errorf(driver.CodeUnavailable,
			"the request ended before the outcome of the write was known; the same write, with the same ID, tells: %w", ctx.Err())
	}
}

// committing is one call of Commit.
type committing struct {
	s     *Store
	parts []*part        // of different documents
	at    driver.Instant // of the versions, when they are made

	uncertain []*flight // of attempts that may still be carried out
	rounds    int       // how often resolve has waited until they could not, or all came too late
}

// commit returns the outcome when it is certain, and may be acknowledged.
func (t *committing) commit() ([]*driver.Version, error) {
	ctx, done := t.s.causal(t.s.life)
	defer done()
	vs, err := t.run(ctx)
	if err == nil {
		acknowledging, cancel := context.WithTimeout(ctx, t.s.timeout)
		defer cancel()
		err = t.s.clock.acknowledge(acknowledging, t.at)
	}
	if vs == nil && len(t.uncertain) == 0 {
		err = refused(wrap(err, "committing"))
	}
	return vs, err
}

// part is one write of a commit.
type part struct {
	c    *collection
	w    *driver.Write
	head *head   // that it is based on; nil: no document
	r    *record // the version that the last attempt makes; nil where it only compares
	made *head   // what follows on head then
}

// attempt tries once. The timeout bounds how long it waits for a commit time. It returns
// nil and nil if the condition did not hold, and the documents must be read again.
func (t *committing) attempt(life context.Context, timeout time.Duration, blind bool) ([]*driver.Version, error) {
	clock := t.s.clock
	ctx, cancel := context.WithTimeout(life, timeout)
	defer cancel()
	if !blind {
		if err := t.readHeads(ctx); err != nil {
			return nil, err
		}
		if vs, err := t.outcome(ctx); vs != nil || err != nil {
			return vs, err
		}
	}
	if still, err := t.placeholders(ctx); err != nil || !still {
		return nil, certain(err)
	}
	bytes, after := 0, driver.Instant(0)
	for _, p := range t.parts {
		bytes += len(p.w.Data)
		if p.head != nil { // which is sent again, as history
			bytes, after = bytes+len(p.head.Data), max(after, p.head.arrived())
		}
	}
	f, err := clock.begin(ctx, after, clock.lifeOf(bytes, len(t.uncertain)+t.rounds))
	if err != nil {
		return nil, certain(err)
	}
	sending, sent := context.WithTimeout(life, f.run)
	defer sent()
	made, err := t.write(sending, f)
	if err != nil && uncertain(err) {
		t.uncertain = append(t.uncertain, f)
		return nil, err
	}
	clock.end(f)
	if mongo.IsTimeout(err) { // also errLate: the next attempt may take longer
		t.rounds++
	}
	if err != nil || !made {
		for _, p := range t.parts {
			p.c.forget(p.w.Key)
		}
		return nil, err
	}
	vs := make([]*driver.Version, len(t.parts))
	for i, p := range t.parts {
		if p.r != nil {
			p.c.remember(p.w.Key, p.made)
			vs[i], t.at = &p.r.Version, f.at
		}
	}
	return vs, nil
}

// write makes the versions the current ones if the heads still are, and the flight's life
// has not ended. It returns false otherwise.
func (t *committing) write(ctx context.Context, f *flight) (bool, error) {
	changes := make([]guarded, len(t.parts))
	for i, p := range t.parts {
		var still bool
		var err error
		if changes[i], still, err = p.change(ctx, f); err != nil || !still {
			return false, certain(err)
		}
	}
	if len(changes) > 1 {
		return t.s.transact(ctx, f, changes)
	}
	result, err := changes[0].c.main.UpdateOne(ctx, changes[0].condition, changes[0].change)
	return err == nil && result.MatchedCount > 0, err
}

// guarded is a change of one document on a condition.
type guarded struct {
	c                 *collection
	key               string
	bytes             int64 // about what is sent
	condition, change bson.D
}

// change is what makes the part's version the current one. Before, what has no room in the
// document any more is moved to the overflow. It returns false where that finds that the
// head is not current any more.
func (p *part) change(ctx context.Context, f *flight) (g guarded, still bool, err error) {
	h, w := p.head, p.w
	g = guarded{c: p.c, key: w.Key}
	// The condition includes n, so that the content of prev is certain, and what is removed from it.
	if h == nil || h.Number == 0 {
		g.condition = append(unmade(w.Key), f.inTime())
	} else {
		g.condition = append(guard(w.Key, h.Number, h.RecordedAt), bson.E{Key: "n", Value: h.n}, f.inTime())
	}
	if w.Compare {
		g.change = bson.D{{Key: "$set", Value: bson.D{{Key: comparedField, Value: int64(f.at)}}}}
		return g, true, nil
	}
	p.r = &record{id: w.ID, Version: driver.Version{
		Collection: w.Collection, Key: w.Key, Number: 1, RecordedAt: f.at, SupersededAt: driver.Forever,
		Op: w.Op, Deleted: w.Deleted, Author: w.Author, Message: w.Message, Group: w.Group, Changed: w.Changed, Data: w.Data,
	}}
	var before []byte
	if h != nil {
		p.r.Number, before = h.Number+1, h.Seal
	}
	p.r.Seal = seal.New(before, &p.r.Version, w.Schema)
	current := encodeVersion(p.r)
	if len(current) > maxStored {
		return g, false, invalidf("%s %q: the new version %s", w.Collection, w.Key, isTooLargeText)
	}
	g.bytes = int64(len(current))
	set := bson.D{{Key: "current", Value: embedded(current)}}
	p.made = &head{record: *p.r}
	if p.r.Number == 1 {
		g.change = bson.D{{Key: "$set", Value: set}}
		return g, true, nil
	}
	old := supersede(&h.record, f.at)
	g.bytes += int64(len(old.raw))
	p.made.n, p.made.size = h.n+1, h.size+int64(len(old.raw))
	if b := p.c.bounds.beside(len(current)); p.made.n <= int64(b.Versions) && p.made.size <= int64(b.Bytes) {
		set = append(set, bson.E{Key: "n", Value: p.made.n}, bson.E{Key: "size", Value: p.made.size})
		g.change = bson.D{{Key: "$set", Value: set}, {Key: "$push", Value: bson.D{{Key: "prev", Value: embedded(old.raw)}}}}
	} else {
		prev, still, err := p.c.readPrev(ctx, h)
		if err != nil || !still {
			return g, false, err
		}
		versions := append(prev, old)
		gone, err := p.c.overflow(ctx, b, w.Key, prev, b.cut(versions, p.made.size))
		if err != nil {
			return g, false, err
		}
		kept := versions[gone:]
		p.made.n, p.made.size = int64(len(kept)), sizeOf(kept)
		set = append(set, bson.E{Key: "n", Value: p.made.n}, bson.E{Key: "size", Value: p.made.size})
		// Versions that have moved are removed at the front; the others are not sent again.
		g.change = bson.D{{Key: "$set", Value: set}, {Key: "$push", Value: bson.D{{Key: "prev", Value: bson.D{
			{Key: "$each", Value: raws([]superseded{old})}, {Key: "$slice", Value: -p.made.n},
		}}}}}
	}
	return g, true, nil
}

// certainError is an error of a step before the one that commits.
type certainError struct{ error }

func (e certainError) Unwrap() error { return e.error }

func certain(err error) error {
	if err == nil {
		return nil
	}
	return certainError{err}
}

// unknownError is an error of committing a transaction.
type unknownError struct{ error }

func (e unknownError) Unwrap() error { return e.error }

// uncertain reports whether a write that failed with an error may have been applied, or may
// still be. It was not if the server refused it, or if it was never sent.
func uncertain(err error) bool {
	var unknown unknownError
	if errors.As(err, &unknown) {
		return true
	}
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

const (
	// maxRounds is how often a write is tried again after attempts without an answer that
	// were not carried out.
	maxRounds = 3
	// maxUncertain is how many attempts may have no outcome before Commit waits for the
	// end of their lives: until then no instant after them is read at. A transaction may
	// keep others from its documents until then, so of those it is one.
	maxUncertain = 2
	// firstTimeout is how long the first attempt waits for its commit time; each
	// further one waits twice as long, up to attemptTimeout.
	firstTimeout   = 2 * time.Second
	attemptTimeout = 10 * time.Second
)

// resolve waits until no attempt can be carried out any more, and returns the outcome
// of the writes; nil and nil if no attempt was applied. Then none is in flight.
func (t *committing) resolve(life context.Context) ([]*driver.Version, error) {
	if len(t.parts) > 1 {
		if err := t.s.withdraw(life, t.uncertain); err != nil {
			return nil, err
		}
	} else if err := t.s.clock.awaitEnd(life, t.uncertain); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(life, attemptTimeout)
	defer cancel()
	if err := t.readHeads(ctx); err != nil {
		return nil, err
	}
	if vs, err := t.outcome(ctx); vs != nil || err != nil {
		return vs, err
	}
	t.s.clock.end(t.uncertain...)
	t.uncertain = nil
	t.rounds++
	return nil, nil
}

// run repeats attempts until the outcome is certain. After an attempt with an unknown
// outcome, the next one has the same condition: it holds for at most one attempt, and
// the versions which that made are found by the writes' IDs.
func (t *committing) run(life context.Context) ([]*driver.Version, error) {
	defer func() {
		if life.Err() == nil { // else they stay in flight until others evict them
			t.s.clock.end(t.uncertain...)
		}
	}()
	blind, most := true, maxUncertain // blind: the first attempt needs no reading
	for _, p := range t.parts {
		p.head = p.c.cached(p.w.Key, p.w.Expected)
		blind = blind && (p.head != nil || p.w.Expected == 0)
	}
	if len(t.parts) > 1 {
		most = 1
	}
	began := t.s.clock.elapsed()
	var last error
	wait, timeout := firstPause, firstTimeout
	for {
		vs, err := t.attempt(life, timeout, blind)
		timeout = min(2*timeout, attemptTimeout)
		if vs != nil || err != nil && (life.Err() != nil || isDecided(err)) {
			return vs, err
		}
		if err != nil {
			last = err
		}
		ends := err != nil && (!passes(err) || t.s.clock.elapsed()-began > t.s.timeout)
		for len(t.uncertain) >= most || ends && len(t.uncertain) > 0 {
			vs, err := t.resolve(life)
			switch {
			case vs != nil || err != nil && (life.Err() != nil || isDecided(err)):
				return vs, err
			case err != nil:
				pause(life, longestPause)
			case t.rounds >= maxRounds && !ends:
				return nil, driver.Errorf(driver.CodeUnavailable, "the database did not answer in time, however often this was written, and nothing was; try again: %w", last)
			}
		}
		if ends {
			return nil, last
		}
		if err != nil || !blind {
			pause(life, wait)
			wait = min(2*wait, longestPause)
		}
		blind = false
	}
}

// isDecided reports whether an error is an outcome that does not change any more.
func isDecided(err error) bool {
	code := driver.CodeOf(err)
	return code == driver.CodeConflict || code == driver.CodeInvalid
}

// passes reports whether another attempt may succeed: the connection broke, a timeout
// ended, or there is no primary now.
func passes(err error) bool {
	var selection topology.ServerSelectionError
	var server mongo.ServerError
	return mongo.IsTimeout(err) || isUnreachable(err) && !errors.As(err, &selection) || errors.As(err, &server) && !staysRefused(err)
}

// outcome returns the outcome of the writes according to the heads: the versions that
// they made, or their conflicts; neither if they can still be applied.
func (t *committing) outcome(ctx context.Context) ([]*driver.Version, error) {
	vs, found, writes := make([]*driver.Version, len(t.parts)), 0, 0
	var lost []driver.Conflict
	for i, p := range t.parts {
		if !p.w.Compare {
			made, err := p.find(ctx)
			if err != nil {
				return nil, err
			}
			if writes++; made != nil {
				vs[i], t.at = &made.Version, made.RecordedAt
				found++
			}
		}
		if actual, fits := p.fits(); !fits {
			lost = append(lost, driver.Conflict{Collection: p.w.Collection, Key: p.w.Key, Expected: p.w.Expected, Actual: actual})
		}
	}
	switch {
	case found == writes:
		return vs, nil
	case found > 0:
		return nil, invalidf("%d of the %d writes were committed before, by their IDs; repeat all writes of a commit, or give them new IDs", found, writes)
	case len(lost) > 0:
		return nil, &driver.ConflictError{Lost: lost}
	}
	return nil, nil
}

// fits reports whether the head is the expected version, and returns its number.
func (p *part) fits() (actual int64, fits bool) {
	if p.head == nil {
		return 0, p.w.Expected == 0
	}
	return p.head.Number, p.head.Number == p.w.Expected || p.w.Expected == 0 && p.head.Deleted
}

// find returns the version that the write has made; nil if there is none.
func (p *part) find(ctx context.Context) (*record, error) {
	h, w := p.head, p.w
	switch {
	case h == nil || h.Number == 0:
		return nil, nil
	case h.id == w.ID:
		return &h.record, nil
	case w.Expected == 0:
		// It may have made any version that follows none or a tombstone.
		return p.c.findWrite(ctx, w.Key, w.ID)
	case w.Expected+1 < h.Number:
		// It can have made only the version after the expected one, which this is not.
		found, err := p.c.get(ctx, []driver.Ref{{Key: w.Key, Number: w.Expected + 1}})
		if err == nil && found[0] != nil && found[0].id == w.ID {
			return found[0], nil
		}
		return nil, err
	}
	return nil, nil
}

// readHeads reads the heads that the writes are based on.
func (t *committing) readHeads(ctx context.Context) (err error) {
	if len(t.parts) == 1 {
		p := t.parts[0]
		p.head, err = p.c.readHead(ctx, p.w.Key)
		return err
	}
	keys := make(map[*collection][]string)
	for _, p := range t.parts {
		keys[p.c] = append(keys[p.c], p.w.Key)
	}
	heads := make(map[*collection]map[string]*head)
	for c, keys := range keys {
		if heads[c], err = c.readHeads(ctx, keys); err != nil {
			return err
		}
	}
	for _, p := range t.parts {
		p.head = heads[p.c][p.w.Key]
	}
	return nil
}

// placeholders makes those documents that are not there; false where one was by now.
func (t *committing) placeholders(ctx context.Context) (bool, error) {
	made := make(map[*collection]*bulk)
	for _, p := range t.parts {
		if p.head != nil {
			continue
		}
		if made[p.c] == nil {
			made[p.c] = &bulk{store: t.s, target: p.c.main}
		}
		if err := made[p.c].add(ctx, mongo.NewInsertOneModel().SetDocument(placeholder(p.w.Key)), int64(len(p.w.Key))); err != nil {
			return false, err
		}
	}
	for _, b := range made {
		if err := b.flush(ctx); err != nil || len(b.there) > 0 {
			return false, err
		}
	}
	return true, nil
}

func byKey(key string) bson.D { return bson.D{{Key: "_id", Value: encodeString(key)}} }

// guard selects a document on condition that a version is current.
func guard(key string, number int64, at driver.Instant) bson.D {
	return append(byKey(key), bson.E{Key: "current.v", Value: number}, bson.E{Key: "current.at", Value: int64(at)})
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

// inTime is the condition that the database's clock is not past the life of a flight.
func (f *flight) inTime() bson.E {
	return bson.E{Key: "$expr", Value: bson.D{{Key: "$lt", Value: bson.A{"$$NOW", f.until}}}}
}
