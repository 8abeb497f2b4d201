package storage

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/fault"
	"github.com/asof/asof/storage/record"
)

// recent reports whether nothing is pruned that was there at an instant, for what began at
// another one. Half of Grace is for how long that takes.
func recent(at, began driver.Instant) bool {
	return at >= began-driver.Instant((record.Grace/2).Microseconds())
}

// retentionCollection is where is kept how far types are pruned, a document for each collection,
// and what is being erased.
const retentionCollection = "asof_retention"

func retentionType() *record.Type {
	t := &record.Type{Name: "Retention", Collection: retentionCollection}
	for _, name := range []string{"horizon", "byTime", "byNumber", "byTag", "loaded", "keep", "erase"} { // see retention and erasure
		t.Fields = append(t.Fields, record.Field{Name: name, Kind: record.KindJSON})
	}
	return t
}

// retention is how far a type is pruned.
type retention struct {
	// Horizon is the least instant at which lists are exact; 0: all are.
	Horizon driver.Instant `json:"horizon"`
	// ByTime and ByNumber are the last versions in the log that were looked at, for
	// those before them to be too old or too many.
	ByTime   *driver.LogPosition `json:"byTime,omitempty"`
	ByNumber *driver.LogPosition `json:"byNumber,omitempty"`
	// ByTag is the last version of a tag that was looked at, for what it was on to be kept no more.
	ByTag *driver.LogPosition `json:"byTag,omitempty"`
	// Loaded is the last load before that, and Keep what the type kept.
	Loaded driver.Instant `json:"loaded,omitempty"`
	Keep   record.Keep    `json:"keep"`

	stored *driver.Version // that holds it; nil: there is none
	ahead  bool            // of what is stored
}

func (s *Store) retention(ctx context.Context, t *record.Type) (r retention, err error) {
	r.stored, err = readOwn(ctx, s.all, retentionCollection, t.Collection, &r)
	return r, fromDriver(ctx, err)
}

// HorizonOf returns the least instant at which lists of a type are exact; 0 where all are.
func (s *Store) HorizonOf(ctx context.Context, t *record.Type) (driver.Instant, error) {
	r, err := s.retention(ctx, t)
	return r.Horizon, err
}

// prunes reports whether versions of a type may have been pruned: it does not keep all, or
// did not, see LearnPruned.
func (s *Store) prunes(t *record.Type) bool {
	if t.Keep != nil {
		return true
	}
	_, pruned := s.pruning.Load(t.Collection)
	return pruned
}

// LearnPruned looks up which types have pruned versions that keep all now. A program that opens a
// store calls it once, before the store is read.
func (s *Store) LearnPruned(ctx context.Context) error {
	for _, t := range s.types {
		r, err := s.retention(ctx, t)
		if err != nil {
			return err
		}
		if r.Horizon > 0 {
			s.pruning.Store(t.Collection, true)
		}
	}
	return nil
}

// beyond refuses a list that was read at an instant of which a part is pruned. It is called
// after the list was read.
func (s *Store) beyond(ctx context.Context, t *record.Type, at driver.Instant) error {
	op, err := s.operation(ctx)
	if err != nil || !s.prunes(t) || recent(at, op.begin) {
		return err
	}
	horizon, err := s.HorizonOf(ctx, t)
	if err != nil || at >= horizon {
		return err
	}
	return historyPruned(horizon, "%s as of %s are not all there any more: the past of %s is complete from %s on", t.Plural, at, t.Name, horizon)
}

// historyPruned is the error of asking for what is not there any more, of a past that is complete from an instant on.
func historyPruned(earliest driver.Instant, format string, args ...any) error {
	e := fault.Errorf(fault.CodeHistoryPruned, format, args...)
	e.Earliest = earliest
	return e
}

// pruned is the error of reading a version that is not there any more.
func (s *Store) pruned(ctx context.Context, t *record.Type, v *driver.Version) error {
	earliest, err := s.earliest(ctx, t, v.Key)
	if err != nil {
		return err
	}
	return historyPruned(earliest, "version %d of %s %q, of %s, was pruned: the document's past is complete from %s on", v.Number, t.Name, v.Key, v.RecordedAt, earliest)
}

// PrunedError is the error of reading a document where of its version only number and time are
// left, or that has no form of today; nil otherwise, and for nil.
func PrunedError(ctx context.Context, d *Document) error {
	if !IsPruned(d) {
		return nil
	}
	if d.failed != nil {
		return fromDriver(ctx, d.failed)
	}
	return d.store.pruned(ctx, d.t, d.v)
}

// IsPruned reports whether PrunedError returns one.
func IsPruned(d *Document) bool { return d != nil && d.v != nil && d.v.Op == driver.OpPruned }

// earliest returns the least instant from which on the past of a document is complete; 0 where
// nothing of it was pruned.
func (s *Store) earliest(ctx context.Context, t *record.Type, key string) (driver.Instant, error) {
	v, err := s.lastPruned(ctx, t, key, 0)
	if err != nil || v == nil {
		return 0, err
	}
	return v.SupersededAt, nil
}

// lastPruned returns the last version before a number that was pruned; nil where none was.
func (s *Store) lastPruned(ctx context.Context, t *record.Type, key string, before int64) (*driver.Version, error) {
	if !s.prunes(t) {
		return nil, nil
	}
	q := &driver.LogQuery{
		Collections: []string{t.Collection}, Keys: []string{key}, ToNumber: before,
		Hints: driver.Hints{Ops: []driver.Op{driver.OpPruned}}, Backward: true, Limit: 1, Fields: []string{},
	}
	for v, err := range s.readLog(ctx, q) {
		return v, err
	}
	return nil, nil
}

// afterPruned returns the first version of those before a number, and with it, that are there
// without a gap; nil where nothing was pruned.
func (s *Store) afterPruned(ctx context.Context, t *record.Type, key string, number int64) (*driver.Version, error) {
	v, err := s.lastPruned(ctx, t, key, number)
	if err != nil || v == nil {
		return nil, err
	}
	return s.getOne(ctx, t, driver.Ref{Key: key, Number: v.Number + 1}, nil)
}

// complete refuses a history that begins at an instant after which some of it was pruned: of
// a document, or, where the key is empty, of all of a type. It is called after it was read.
func (s *Store) complete(ctx context.Context, t *record.Type, key string, begins driver.Instant) error {
	if t == nil || !s.prunes(t) {
		return nil
	}
	of, earliest, err := t.Plural, driver.Instant(0), error(nil)
	if key != "" {
		of = fmt.Sprintf("%s %q", t.Name, key)
		earliest, err = s.earliest(ctx, t, key)
	} else {
		earliest, err = s.HorizonOf(ctx, t)
	}
	if err != nil || begins >= earliest {
		return err
	}
	return historyPruned(earliest, "of the history of %s, what is before %s was pruned", of, earliest)
}

// Earliest is the least instant from which on the document's past is complete.
func (h *History[T]) Earliest(ctx context.Context) (driver.Instant, error) {
	s := h.Document.store
	earliest, err := s.earliest(ctx, h.t, h.v.Key)
	if err != nil || earliest != 0 {
		return earliest, err
	}
	first, err := s.getOne(ctx, h.t, driver.Ref{Key: h.v.Key, Number: 1}, nil)
	if err != nil || first == nil {
		return h.v.RecordedAt, err
	}
	return first.RecordedAt, nil
}

// PrunedVersions is how many versions of the document were pruned: all but those that are there, also for others.
func (h *History[T]) PrunedVersions(ctx context.Context) (int, error) {
	n := int(h.v.Number)
	if !h.Document.store.prunes(h.t) {
		return 0, nil
	}
	q := &driver.LogQuery{Collections: []string{h.t.Collection}, Keys: []string{h.v.Key}, ToNumber: h.v.Number + 1, Hints: driver.Hints{Ops: notPruned}, Fields: []string{}}
	for v, err := range h.Document.store.all.Log(ctx, q) {
		if err = cmp.Or(fromDriver(ctx, err), ended(ctx)); err != nil {
			return 0, err
		}
		if q.Hints.Hold(v) {
			n--
		}
	}
	return n, nil
}

// Pruner prunes the versions of one type, in steps.
type Pruner struct {
	// Rest is called after each transaction in an embedded store, whose processors others need meanwhile;
	// nil: nothing is.
	Rest func()

	store *Store
	t     *record.Type
	dry   bool
	retention
	known map[driver.Ref]bool // of a dry run: what was counted
}

// NewPruner returns what prunes a type, or, where dry, counts what it would. Nil for a type
// that keeps all.
func (s *Store) NewPruner(t *record.Type, dry bool) *Pruner {
	if t.Keep == nil {
		return nil
	}
	return &Pruner{store: s, t: t, dry: dry, known: map[driver.Ref]bool{}}
}

// Pruned is what a step has done.
type Pruned struct {
	Documents, Versions int
	More                bool // there is another step to do
}

// stepVersions is how many versions a step looks at.
const stepVersions = 500

// How many documents are rewritten at a time: that bounds how long a transaction for them is, and
// how many connections to a distant database they take.
const (
	rewritesAtATime        = 64
	rewritesAtATimeDistant = 4
)

// Step looks at the next versions of the log, in the order of commits, and prunes those before
// them that nothing keeps: of a version that is too old by time, the one before it, and by
// number the one so many before it; of that by which a tag was removed, the one that it was on.
// A step that was stopped is made again, by any server. How far it came is stored with what the
// next one prunes, so that many steps make few versions.
// Errors: UNAVAILABLE.
func (p *Pruner) Step(ctx context.Context) (done Pruned, err error) {
	defer func() {
		if err != nil { // what is in memory may be ahead of what was done
			p.retention = retention{}
		}
	}()
	now, err := p.store.all.Now(ctx)
	if err != nil {
		return Pruned{}, fromDriver(ctx, err)
	}
	if !p.dry {
		r, err := p.store.retention(ctx, p.t)
		if err != nil {
			return Pruned{}, err
		}
		if r.stored != nil && (p.stored == nil || r.stored.Number != p.stored.Number) {
			p.retention = r // of another process
		}
	}
	before := p.retention
	loaded, err := p.store.all.Loaded(ctx)
	if err != nil {
		return Pruned{}, fromDriver(ctx, err)
	}
	if loaded > p.Loaded || p.Keep != *p.t.Keep { // all is looked at again
		p.Loaded, p.Keep, p.ByTime, p.ByNumber = loaded, *p.t.Keep, nil, nil
	}
	keep, grace := p.t.Keep, record.GraceBefore(now)
	for _, scan := range []struct {
		on    bool
		of    *record.Type
		place **driver.LogPosition
		until driver.Instant
		back  int64
	}{
		{keep.For != record.Period{}, p.t, &p.ByTime, min(grace, keep.For.Before(now)), 1},
		{keep.Versions > 0, p.t, &p.ByNumber, grace, int64(keep.Versions)},
		{true, p.t.Tags, &p.ByTag, grace, 1},
	} {
		if !scan.on {
			continue
		}
		q := &driver.LogQuery{Collections: []string{scan.of.Collection}, After: *scan.place, To: scan.until + 1, Limit: stepVersions, Fields: []string{}}
		due, n := map[string][]driver.Ref{}, 0
		for v, err := range p.store.all.Log(ctx, q) {
			if err != nil {
				return Pruned{}, fromDriver(ctx, err)
			}
			place := v.Position()
			*scan.place, n = &place, n+1
			if v.Number > scan.back {
				due[v.Key] = append(due[v.Key], driver.Ref{Key: v.Key, Number: v.Number - scan.back})
			}
		}
		if n == 0 {
			continue
		}
		if scan.of == p.t.Tags {
			if due, err = p.store.released(ctx, p.t, due); err != nil {
				return Pruned{}, err
			}
		}
		done, err = p.prune(ctx, due, now, before)
		done.More = true
		return done, err
	}
	if p.ahead {
		return Pruned{}, p.store.note(ctx, p.t, &p.retention)
	}
	return Pruned{}, nil
}

// prune prunes those versions that nothing keeps. Where the steps before it have ended is given.
func (p *Pruner) prune(ctx context.Context, due map[string][]driver.Ref, now driver.Instant, before retention) (done Pruned, err error) {
	var found []*driver.Version
	var keys []driver.Value
	var refs []driver.Ref
	looked := slices.Sorted(maps.Keys(due))
	for _, key := range looked {
		refs = append(append(refs, due[key]...), driver.Ref{Key: key, At: latest})
	}
	vs, err := p.store.all.Get(ctx, p.t.Collection, refs, []string{})
	if err != nil {
		return done, fromDriver(ctx, err)
	}
	for _, key := range looked {
		n := len(due[key])
		last := vs[n]
		for i, v := range vs[:n] {
			if v != nil && v.Op != driver.OpPruned && !p.known[due[key][i]] && p.t.Keep.Lets(v, last, now) {
				found = append(found, v)
			}
		}
		if k := len(found); k > 0 && found[k-1].Key == key {
			keys = append(keys, key)
		}
		vs = vs[n+1:]
	}
	pins, err := p.store.pinned(ctx, p.t, driver.Forever, keys...) // after that, see keeps
	if err != nil {
		return done, err
	}
	gone, horizon := map[string][]driver.Version{}, p.Horizon
	for _, v := range found {
		ref := driver.Ref{Key: v.Key, Number: v.Number}
		if pins[ref] {
			continue
		}
		gone[v.Key] = append(gone[v.Key], driver.Version{Number: v.Number, Op: driver.OpPruned, Deleted: true})
		horizon = max(horizon, v.SupersededAt)
		done.Versions++
		if p.dry {
			p.known[ref] = true
		}
	}
	if p.dry {
		for key := range gone {
			if !p.known[driver.Ref{Key: key}] {
				p.known[driver.Ref{Key: key}] = true
				done.Documents++
			}
		}
		return done, nil
	}
	done.Documents = len(gone)
	if horizon > p.Horizon {
		before.Horizon = horizon
		if err := p.store.note(ctx, p.t, &before); err != nil {
			return done, err
		}
		p.Horizon, p.stored = horizon, before.stored
	}
	p.ahead = true
	// Several at a time, which an engine may write together.
	at := rewritesAtATime
	if p.store.distant {
		at = rewritesAtATimeDistant
	}
	for some := range slices.Chunk(slices.Sorted(maps.Keys(gone)), rewritesAtATime) {
		rewriting, ctx := errgroup.WithContext(ctx)
		rewriting.SetLimit(at)
		for _, key := range some {
			rewriting.Go(func() error { return p.store.all.Rewrite(ctx, p.t.Collection, key, gone[key]) })
		}
		if err := rewriting.Wait(); err != nil {
			return done, fromDriver(ctx, err)
		}
		if p.Rest != nil && !p.store.distant {
			p.Rest()
		}
	}
	return done, nil
}

// note stores how far the type is pruned, if nobody else has meanwhile.
func (s *Store) note(ctx context.Context, t *record.Type, r *retention) error {
	v, err := s.noteOwn(ctx, retentionCollection, t.Collection, r.stored, r)
	if isConflict(err) {
		return &fault.Error{Code: fault.CodeUnavailable, Message: "another process prunes " + t.Name + " at the same time", Cause: err}
	}
	if err == nil {
		r.stored, r.ahead = v, false
	}
	return fromDriver(ctx, err)
}

// raiseHorizons says of collections before which instants their lists are not exact.
func (s *Store) raiseHorizons(ctx context.Context, horizons map[string]driver.Instant) error {
	for collection, to := range horizons {
		t := s.byCollection[collection]
		r, err := s.retention(ctx, t)
		if err == nil && r.Horizon < to {
			r.Horizon = to
			err = s.note(ctx, t, &r)
		}
		if err != nil {
			return err
		}
		s.pruning.Store(collection, true)
	}
	return nil
}
