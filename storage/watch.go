package storage

import (
	"context"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/asof/asof/storage/driver"
)

// WatchQuery says what a watch is about and where it begins: behind a position, behind
// an instant, or, where neither is given, now.
type WatchQuery struct {
	Types []string     // by their GraphQL names; empty: all that the schema has
	Keys  []string     // empty: all; needs exactly one type
	Hints driver.Hints // conditions on versions, all of which must hold
	After string       // the position of an event, also of a watch in another process
	Since *driver.Instant
}

// Event is a step of a watch: a version that was committed, or, the first time, only
// where the watch begins.
type Event struct {
	store *Store
	t     *Type
	v     *driver.Version // nil in the first event
	place watchPlace
	kind  EventKind
	as    string // the watch's
}

// Begins reports whether the event is the first one, which has nothing but a position.
func (e *Event) Begins() bool { return e.v == nil }

// Position is the place behind this event; opaque, and good for as long as the store is.
func (e *Event) Position() string { return e.place.encode() }

// ResyncError ends a watch when versions were loaded into the past: what was delivered is not
// all any more. Read again, and watch from now.
type ResyncError struct {
	Loaded driver.Instant // when the load was
}

func (e *ResyncError) Error() string {
	return "old versions were loaded at " + e.Loaded.String() + ", and are not delivered: read again what you need, and watch from then on"
}

// Watch delivers every version that is committed after the beginning, once, in the order of
// commits; a read at Now shows it already. The first event is only a position.
//
// The log is delivered up to Now, again and again: at once after a commit of this process,
// and at most a second after one of another. The loop slows no other. It ends when it is left,
// or with an error, as when the context ends.
// Errors: *ResyncError; TOO_SLOW once the loop has come to Now and then falls behind by more
// than the rounds that are kept; BAD_USER_INPUT for an unknown type, for a position or an
// instant that is in the future or malformed, and for both; UNAVAILABLE.
func (s *Store) Watch(ctx context.Context, q WatchQuery) iter.Seq2[*Event, error] {
	return func(yield func(*Event, error) bool) {
		w := &watch{store: s, query: q, yield: yield}
		w.as = s.guard.fingerprint(ctx)
		err := w.begin(ctx, q)
		if err == nil {
			s.feed.join()
			defer s.feed.leave()
			err = w.run(ctx)
		}
		if err != nil && !w.left {
			yield(nil, err)
		}
	}
}

// watch is one call of Watch.
type watch struct {
	store       *Store
	collections []string
	query       WatchQuery
	as          string // what decides what the watch may tell
	yield       func(*Event, error) bool
	left        bool            // the loop was
	live        bool            // it has read a round that watches share
	woken       <-chan struct{} // closed when the log may have grown since what was read of it
	place       watchPlace
}

// watchPlace is the position of a watch: all before it in the log has been delivered. Without
// a collection it is after all versions of its instant.
type watchPlace struct{ driver.LogPosition }

// watchCursor distinguishes positions of watches from cursors.
const watchCursor = "watch"

func (p watchPlace) encode() string {
	return encodeCursor(watchCursor, 1, p.At, p.Collection, p.Key, p.Number)
}

func decodeWatchPlace(text string) (p watchPlace, err error) {
	_, parts, err := decodeCursor("position", text, watchCursor, 4)
	if err != nil {
		return p, badInput("position: %s is not the position of an event", quoteShort(text))
	}
	at, ok1 := number(parts[0])
	collection, ok2 := parts[1].(string)
	key, ok3 := parts[2].(string)
	n, ok4 := number(parts[3])
	if !ok1 || !ok2 || !ok3 || !ok4 || at < 0 {
		return p, badInput("position: %s is not the position of an event", quoteShort(text))
	}
	return watchPlace{driver.LogPosition{At: driver.Instant(at), Collection: collection, Key: key, Number: n}}, nil
}

// log is the log behind the place, up to an instant.
func (p watchPlace) log(until driver.Instant) *driver.LogQuery {
	if p.Collection == "" {
		return &driver.LogQuery{From: p.At + 1, To: until + 1}
	}
	return &driver.LogQuery{From: p.At, To: until + 1, After: &p.LogPosition}
}

// begin checks the query and finds the place where the watch begins.
func (w *watch) begin(ctx context.Context, q WatchQuery) error {
	for _, name := range q.Types {
		t := w.store.byName[name]
		if t == nil {
			return badInput("there is no type %s", quoteShort(name))
		}
		if view := w.store.guard.view(ctx, t.Collection); view != nil && !view.past {
			return view.noPast()
		}
		w.collections = append(w.collections, t.Collection)
	}
	if len(q.Types) == 0 {
		w.collections = w.store.collections()
	}
	switch {
	case q.After != "" && q.Since != nil:
		return badInput("a watch begins behind a position or behind an instant, not both")
	case q.After != "":
		var err error
		if w.place, err = decodeWatchPlace(q.After); err != nil {
			return err
		}
	case q.Since != nil:
		w.place.At = max(*q.Since, 0) // nothing was recorded before
	default:
		now, err := w.store.engine.Now(ctx)
		w.place.At = now
		return fromDriver(ctx, err)
	}
	err := w.store.engine.Settle(ctx, w.place.At)
	if driver.CodeOf(err) == driver.CodeInvalid {
		return badInput("the watch begins at %s, which is in the future; perhaps the store was restored from an older copy: watch from now", w.place.At)
	}
	return fromDriver(ctx, err)
}

func (w *watch) run(ctx context.Context) error {
	w.deliver(nil)
	for !w.left {
		w.woken = w.store.feed.look() // before the round, so that nothing is missed
		more, err := w.round(ctx)
		if err != nil {
			return err
		}
		if more || w.left {
			continue
		}
		select {
		case <-w.woken:
		case <-ctx.Done():
			return fromDriver(ctx, ctx.Err())
		}
	}
	return nil
}

// round delivers what comes after the place: a round that is shared with other watches, or,
// where none begins there, what there is up to where one does, or up to now. It reports whether
// there may be more.
func (w *watch) round(ctx context.Context) (more bool, err error) {
	if w.place.Collection == "" {
		r, err := w.store.feed.round(ctx, w.store, w.place.At)
		if err != nil {
			return false, err
		}
		if r != nil {
			for _, v := range r.versions {
				if !w.selects(v) {
					continue
				}
				if v, err = w.store.guard.arrived(ctx, v); err != nil {
					return false, fromDriver(ctx, err)
				}
				if v != nil && w.selects(v) && !w.deliver(v) {
					return false, nil
				}
			}
			w.live = true
			w.place = watchPlace{driver.LogPosition{At: r.to}}
			if r.woken != nil { // it may have begun before this watch looked
				w.woken = r.woken
			}
			return r.more || !w.store.feed.last(r.to), nil
		}
		if w.live && w.store.feed.forgot(w.place.At) {
			return false, errorf(CodeTooSlow, "events come faster than they are taken, and more wait than are kept: go on behind the last position, and take them faster or select fewer")
		}
	}
	meeting, meets := w.store.feed.meets(w.place.At) // before Now: nothing is loaded between them unnoticed
	until, err := w.store.watchedUntil(ctx, w.place.At)
	if err != nil {
		return false, err
	}
	if meets {
		until = meeting
	}
	q := w.place.log(until)
	q.Collections, q.Keys, q.Hints = w.collections, w.query.Keys, w.query.Hints
	for v, err := range w.store.readLog(ctx, q) {
		if err != nil {
			return false, err
		}
		if !w.deliver(v) {
			return false, nil
		}
	}
	w.place = watchPlace{driver.LogPosition{At: until}}
	return meets, nil
}

// watchedUntil returns up to when the log after an instant can be delivered.
func (s *Store) watchedUntil(ctx context.Context, from driver.Instant) (driver.Instant, error) {
	now, err := s.engine.Now(ctx)
	if err != nil {
		return 0, fromDriver(ctx, err)
	}
	// In this order: every load of an instant up to now is known.
	loaded, err := s.engine.Loaded(ctx)
	if err != nil {
		return 0, fromDriver(ctx, err)
	}
	if loaded > from && loaded <= now { // a load that goes on is not in the log yet
		return 0, &ResyncError{Loaded: loaded}
	}
	return max(now, from), nil
}

// selects reports whether a version is one that the watch is about.
func (w *watch) selects(v *driver.Version) bool {
	return slices.Contains(w.collections, v.Collection) && (len(w.query.Keys) == 0 || slices.Contains(w.query.Keys, v.Key)) && w.query.Hints.Hold(v)
}

// deliver delivers a version, or a place if v is nil, and returns whether to continue.
func (w *watch) deliver(v *driver.Version) bool {
	e := &Event{store: w.store, v: v, as: w.as}
	if v != nil {
		w.place = watchPlace{positionOf(v)}
		e.t = w.store.byCollection[v.Collection]
	}
	e.place = w.place
	w.left = !w.yield(e, nil)
	return !w.left
}

// feed is what the watches of a store share: being woken, and the rounds in which the log
// is read, so that a commit is read once and not by each watch.
type feed struct {
	mu      sync.Mutex
	woken   chan struct{} // closed when the log may have grown; nil: no watch waits
	watches int
	timer   *time.Timer // wakes the watches for what other processes commit
	sleep   time.Duration
	rounds  []*watchRound // none begins before the end of the one before it
	held    int           // bytes of their versions
}

// watchRound is the log of (from, to].
type watchRound struct {
	from, to driver.Instant // to is known when done is closed
	versions []*driver.Version
	bytes    int
	more     bool            // it ends before now, as it got too large
	woken    <-chan struct{} // closed when the log may have grown since the round began; nil where it is not shared
	done     chan struct{}
	err      error
}

// How long watches sleep at first and at most where nothing wakes them; and what a round,
// and all that are kept, may hold.
const (
	firstWatchSleep = 20 * time.Millisecond
	lastWatchSleep  = time.Second
	roundVersions   = 256
	roundBytes      = 1 << 20
	keptRounds      = 1024
	keptRoundBytes  = 8 << 20
)

// join is called by a watch that begins, and leave by one that ends.
func (f *feed) join() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.watches++; f.watches == 1 {
		f.sleep = firstWatchSleep
		f.timer = time.AfterFunc(f.sleep, f.tick)
	}
}

func (f *feed) leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.watches--; f.watches == 0 {
		f.timer.Stop()
		f.rounds, f.held = nil, 0
	}
}

// tick wakes the watches, ever more seldom while nothing is found.
func (f *feed) tick() {
	f.wake()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.watches > 0 {
		f.sleep = min(2*f.sleep, lastWatchSleep)
		f.timer.Reset(f.sleep)
	}
}

// look returns what is closed when the log may have grown since.
func (f *feed) look() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.woken == nil {
		f.woken = make(chan struct{})
	}
	return f.woken
}

// wake wakes all watches.
func (f *feed) wake() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.woken != nil {
		close(f.woken)
		f.woken = nil
	}
}

// last reports whether no round follows on an instant yet.
func (f *feed) last(at driver.Instant) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := len(f.rounds)
	return n == 0 || f.rounds[n-1].from < at
}

// forgot reports whether what follows on an instant is not kept any more.
func (f *feed) forgot(at driver.Instant) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.rounds) > 0 && at < f.rounds[0].from
}

// meets returns the next instant at which the last round begins or ends: a watch that reads up to
// there by itself shares what follows. It is false where there is none after the given one.
func (f *feed) meets(at driver.Instant) (driver.Instant, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.rounds) == 0 {
		return 0, false
	}
	r := f.rounds[len(f.rounds)-1]
	if at < r.from {
		return r.from, true
	}
	select {
	case <-r.done:
		return r.to, at < r.to
	default: // it is not known where it ends
		return 0, false
	}
}

// round returns the round that begins at an instant, and reads it if no other watch has; nil where
// the instant lies before the end of the last one, and no round begins there.
func (f *feed) round(ctx context.Context, s *Store, from driver.Instant) (*watchRound, error) {
	r, mine := f.find(from)
	switch {
	case r == nil:
		return nil, nil
	case mine:
		f.read(ctx, s, r)
	}
	select {
	case <-r.done:
	case <-ctx.Done():
		return nil, fromDriver(ctx, ctx.Err())
	}
	if r.err != nil && !mine && ctx.Err() == nil { // it may be about the one who read
		own := &watchRound{from: from, done: make(chan struct{})}
		own.fill(ctx, s)
		return own, own.err
	}
	return r, r.err
}

// find finds a round, or begins one, which is then the caller's to read.
func (f *feed) find(from driver.Instant) (r *watchRound, mine bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range slices.Backward(f.rounds) {
		if r.from == from {
			return r, false
		}
	}
	if n := len(f.rounds); n > 0 {
		select {
		case <-f.rounds[n-1].done:
			if from < f.rounds[n-1].to {
				return nil, false
			}
		default: // it is not known where it ends
			return nil, false
		}
	}
	if f.woken == nil {
		f.woken = make(chan struct{})
	}
	r = &watchRound{from: from, woken: f.woken, done: make(chan struct{})}
	f.rounds = append(f.rounds, r)
	return r, true
}

// read reads a round for all, and keeps it if anything is in it.
func (f *feed) read(ctx context.Context, s *Store, r *watchRound) {
	r.fill(trusted(ctx), s) // each watch leaves out what it may not tell
	f.mu.Lock()
	defer f.mu.Unlock()
	defer close(r.done)
	if r.err != nil || r.to == r.from {
		if n := len(f.rounds); n > 0 && f.rounds[n-1] == r {
			f.rounds = f.rounds[:n-1]
		}
		return
	}
	if len(r.versions) > 0 {
		f.sleep = firstWatchSleep
	}
	for f.held += r.bytes; len(f.rounds) > 1 && (len(f.rounds) > keptRounds || f.held > keptRoundBytes); f.rounds = f.rounds[1:] {
		f.held -= f.rounds[0].bytes
	}
}

// fill reads what is in a round, which ends where it gets too large, but holds all
// versions of an instant.
func (r *watchRound) fill(ctx context.Context, s *Store) {
	r.to = r.from
	until, err := s.watchedUntil(ctx, r.from)
	if err != nil {
		r.err = err
		return
	}
	q := &driver.LogQuery{Collections: s.collections(), From: r.from + 1, To: until + 1}
	for v, err := range s.readLog(ctx, q) {
		if err != nil {
			r.err = err
			return
		}
		if n := len(r.versions); (n >= roundVersions || r.bytes >= roundBytes) && v.RecordedAt > r.versions[n-1].RecordedAt {
			r.to, r.more = r.versions[n-1].RecordedAt, true
			return
		}
		r.versions = append(r.versions, v)
		r.bytes += len(v.Data)
	}
	r.to = until
}

// collections are those of the types.
func (s *Store) collections() []string {
	names := make([]string, len(s.types))
	for i, t := range s.types {
		names[i] = t.Collection
	}
	return names
}
