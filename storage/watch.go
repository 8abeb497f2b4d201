package storage

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/fault"
	"github.com/asof/asof/storage/record"
)

// WatchQuery says what a watch is about and where it begins: behind a position, behind
// an instant, or, where neither is given, now.
type WatchQuery struct {
	Collections []string     // of types of the schema; empty: all
	Keys        []string     // empty: all; needs exactly one collection
	Hints       driver.Hints // conditions on versions, all of which must hold
	After       string       // the position of an event, also of a watch in another process
	Since       *driver.Instant
}

// Event is a version that was committed, as a watch delivers it.
type Event struct {
	store *Store
	t     *record.Type
	v     *driver.Version
	place watchPlace
	kind  EventKind
	err   error // why the version cannot be read: it is all that may be told
}

// Position is the place behind this event; opaque, and good for as long as the store is.
func (e *Event) Position() string { return e.place.encode() }

// ResyncError ends a watch when versions were loaded into the past: what was delivered is not
// all any more. Read again, and watch from now.
type ResyncError struct {
	Loaded driver.Instant // when the load was
	Pruned bool           // it was none: versions before that instant were pruned
}

func (e *ResyncError) Error() string {
	if e.Pruned {
		return "versions before " + e.Loaded.String() + " were pruned, and are not delivered: read again what you need, and watch from then on"
	}
	return "old versions were loaded at " + e.Loaded.String() + ", and are not delivered: read again what you need, and watch from then on"
}

// Watch delivers every version that is committed after the place where it begins, once, in the
// order of commits; a read at Now shows it already. It is used by one goroutine at a time, and
// holds nothing that has to be given back.
type Watch struct {
	store  *Store
	query  WatchQuery // with its collections
	as     string     // what decides what the watch may tell
	live   bool       // it has read a round that watches share
	place  watchPlace
	began  driver.Instant // what was committed up to it is the past
	stride driver.Instant // how much of that it reads next, where it reads alone
}

// Watch begins a watch.
// Errors: BAD_USER_INPUT for a position or an instant that is in the future or malformed, and for both; UNAVAILABLE.
func (s *Store) Watch(ctx context.Context, q WatchQuery) (*Watch, error) {
	for _, name := range q.Collections {
		if view := s.guard.view(ctx, name); view != nil && !view.past {
			return nil, view.noPast()
		}
	}
	if len(q.Collections) == 0 {
		q.Collections = s.collections()
	}
	w := &Watch{store: s, query: q, as: s.guard.fingerprint(ctx)}
	err := w.begin(ctx, q)
	return w, err
}

// Position is the place behind the last event that was taken, or where the watch begins; see
// [Event.Position].
func (w *Watch) Position() string { return w.place.encode() }

// watchState is where a watch is, and what it may tell.
type watchState struct {
	place  watchPlace
	live   bool
	as     string
	erased uint64 // the feed's
}

// Place is equal for watches of the same query that go on with the same events; it can be compared.
func (w *Watch) Place() any { return watchState{w.place, w.live, w.as, w.store.feed.erased.Load()} }

// Follow goes to the place that another watch of the same query reached from an equal one.
func (w *Watch) Follow(place any) {
	to, _ := place.(watchState)
	w.place, w.live = to.place, to.live
}

// Past reports whether what comes next was committed before the watch began.
func (w *Watch) Past() bool { return w.place.begins() < w.began }

// watchPlace is the position of a watch: all before it in the log has been delivered. Without
// a collection it is after all versions of its instant.
type watchPlace struct{ driver.LogPosition }

// watchCursor distinguishes positions of watches from cursors.
const watchCursor = "watch"

func (p watchPlace) encode() string {
	return string(appendCursor(nil, watchCursor, 1, p.At, p.Collection, p.Key, p.Number))
}

func decodeWatchPlace(text string) (p watchPlace, err error) {
	_, place, err := decodeCursor("position", text, watchCursor, logKinds, nil)
	if err == nil {
		p.LogPosition = logPosition(place)
	}
	if err != nil || p.At < 0 {
		return p, fault.BadInput("position: %s is not the position of an event", fault.QuoteShort(text))
	}
	return p, nil
}

// log is the log behind the place, up to an instant.
func (p watchPlace) log(until driver.Instant) *driver.LogQuery {
	if p.Collection == "" {
		return &driver.LogQuery{From: p.At + 1, To: until + 1}
	}
	return &driver.LogQuery{From: p.At, To: until + 1, After: &p.LogPosition}
}

// begins is the instant that all that comes after the place is after.
func (p watchPlace) begins() driver.Instant {
	if p.Collection == "" {
		return p.At
	}
	return p.At - 1
}

// isBefore reports whether an event comes after the place.
func (p watchPlace) isBefore(e *Event) bool {
	if p.Collection == "" {
		return p.At < e.place.At
	}
	return p.Compare(e.place.LogPosition) < 0
}

// begin finds the place where the watch begins.
func (w *Watch) begin(ctx context.Context, q WatchQuery) (err error) {
	if w.began, err = w.store.engine.Now(ctx); err != nil {
		return fromDriver(ctx, err)
	}
	switch {
	case q.After != "" && q.Since != nil:
		return fault.BadInput("since: a subscription begins behind a position or behind an instant, not both")
	case q.After != "":
		if w.place, err = decodeWatchPlace(q.After); err != nil {
			return err
		}
	case q.Since != nil:
		w.place.At = max(*q.Since, 0) // nothing was recorded before
	default:
		w.place.At = w.began
		return nil
	}
	if err := w.unbroken(ctx, w.place.At); err != nil {
		return err
	}
	err = w.store.engine.Settle(ctx, w.place.At)
	if driver.CodeOf(err) == driver.CodeInvalid {
		return fault.Errorf(fault.CodeAsOfInFuture, "the subscription would begin at %s, which is in the future: the server's time is %s; subscribe without since, unless an older copy of the store was put back: then read what is there first", w.place.At, w.began)
	}
	return fromDriver(ctx, err)
}

// unbroken returns a *ResyncError where versions that come after an instant were pruned.
func (w *Watch) unbroken(ctx context.Context, from driver.Instant) error {
	for _, c := range w.query.Collections {
		t := w.store.byCollection[c]
		if !w.store.prunes(t) {
			continue
		}
		if horizon, err := w.store.HorizonOf(ctx, t); err != nil || from < horizon {
			return cmp.Or(err, error(&ResyncError{Loaded: horizon, Pruned: true}))
		}
	}
	return nil
}

// Next delivers events up to Now, or less: an event that take returns false for is not taken,
// and is the first of the next call. It reports whether there may be more; if not, there may be
// when [Store.Notify] says so.
// Errors: *ResyncError; TOO_SLOW once the watch has come to Now and then falls behind by more
// than the rounds that are kept; UNAVAILABLE, also where the context ends, in which case the position
// may be behind events that were not selected.
func (w *Watch) Next(ctx context.Context, take func(*Event) bool) (more bool, err error) {
	f := &w.store.feed
	began, from := w.place.At, w.place.begins()
	var r *watchRound
	next := driver.Forever
	// Of the past, few read alone what all would read only to leave it out.
	if !w.Past() || len(w.query.Keys) == 0 && !w.query.Hints.Any() {
		if r, next, err = f.round(ctx, w.store, from); err != nil {
			return false, err
		}
	}
	if r != nil {
		if !recent(began, r.now) {
			if err := w.unbroken(ctx, began); err != nil {
				return false, err
			}
		}
		for _, e := range r.events {
			if !w.place.isBefore(e) || !w.selects(e.v) {
				continue
			}
			v, err := w.store.guard.arrived(ctx, e.v, e.err)
			if err != nil && !isUnreadable(err) {
				return false, fromDriver(ctx, err)
			}
			if v == nil || !w.selects(v) {
				continue
			}
			if w.as != "" {
				e = w.store.event(v, fromDriver(ctx, err))
			}
			if !w.deliver(e, take) {
				return true, nil
			}
		}
		w.live = true
		w.place = watchPlace{driver.LogPosition{At: r.to}}
		return r.more || f.goesOn(r), nil
	}
	if w.live && f.forgot(from) {
		return false, fault.Errorf(fault.CodeTooSlow, "events come faster than they are taken, and more wait than are kept: go on behind the last position, and take them faster or select fewer")
	}
	// What comes before the next round is read by this watch alone.
	now, err := w.store.watchedUntil(ctx, from)
	if err != nil {
		return false, err
	}
	// Ever more of it at once: who finds nothing gets somewhere, too, before the context ends.
	w.stride = max(2*w.stride, firstStride)
	until, taken := min(now, next, from+w.stride), true
	q := w.place.log(until)
	q.Collections, q.Keys, q.Hints = w.query.Collections, w.query.Keys, w.query.Hints
	for v, err := range w.store.readLog(ctx, q) {
		if v == nil {
			w.stride /= 4 // it may have been too much for the time that was left
			return false, err
		}
		if taken = w.deliver(w.store.event(v, err), take); !taken {
			break
		}
	}
	if taken {
		w.place = watchPlace{driver.LogPosition{At: until}}
	}
	if recent(began, now) {
		return true, nil
	}
	return true, w.unbroken(ctx, began) // what was pruned meanwhile was not read
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
func (w *Watch) selects(v *driver.Version) bool {
	return slices.Contains(w.query.Collections, v.Collection) && (len(w.query.Keys) == 0 || slices.Contains(w.query.Keys, v.Key)) && w.query.Hints.Hold(v)
}

// deliver delivers an event, and reports whether it was taken.
func (w *Watch) deliver(e *Event, take func(*Event) bool) bool {
	taken := take(e)
	if taken {
		w.place = e.place
	}
	return taken
}

// event is the event of a version, or of the error of reading it.
func (s *Store) event(v *driver.Version, err error) *Event {
	place := watchPlace{v.Position()}
	return &Event{store: s, t: s.byCollection[v.Collection], v: v, place: place, err: err}
}

// feed is what the watches of a store share: being told that the log has grown, and the rounds
// in which it is read, so that a commit is read once and not by each watch.
type feed struct {
	mu     sync.Mutex
	notify map[*func()]struct{}
	grown  uint64      // how often the log may have grown
	timer  *time.Timer // for what other processes commit
	sleep  time.Duration
	rounds []*watchRound // none begins before the end of the one before it
	held   int           // bytes of their versions
	erased atomic.Uint64 // how often what they hold was erased: what was told of it before is not told again
}

// watchRound is the log of (from, to].
type watchRound struct {
	from, to driver.Instant // to is known when done is closed
	now      driver.Instant // when it was read, known then, too
	events   []*Event       // as they may be told to everybody, or are to be looked at again
	bytes    int
	more     bool   // it ends before now, as it got too large
	erased   bool   // something of its versions was, so that it has no events: who comes to it reads them again
	grown    uint64 // the feed's, when the round began
	done     chan struct{}
	err      error
}

// How much of the log one watch reads alone, at first; how long that is not looked at, at first and at most, where
// nothing is committed here; and what a round, and all that are kept, may hold.
const (
	firstStride     = driver.Instant(time.Second / time.Microsecond)
	firstWatchSleep = 20 * time.Millisecond
	lastWatchSleep  = time.Second
	roundVersions   = 256
	roundBytes      = 1 << 20
	keptRounds      = 1024
	keptRoundBytes  = 8 << 20
	besideVersion   = 320 // what one takes beside its data, and its event
)

// Notify has a function called whenever the log may have grown, until stop is called: at once
// after a commit of this process, and at most a second after one of another. It is called by who
// commits, and must not take long.
func (s *Store) Notify(grown func()) (stop func()) {
	f := &s.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.notify == nil {
		f.notify = map[*func()]struct{}{}
	}
	if len(f.notify) == 0 {
		f.sleep = firstWatchSleep
		f.timer = time.AfterFunc(f.sleep, f.tick)
	}
	f.notify[&grown] = struct{}{}
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if delete(f.notify, &grown); len(f.notify) == 0 {
			f.timer.Stop()
			f.rounds, f.held = nil, 0
		}
	}
}

// tick notifies ever more seldom while nothing is found.
func (f *feed) tick() {
	f.wake()
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.notify) > 0 {
		f.sleep = min(2*f.sleep, lastWatchSleep)
		f.timer.Reset(f.sleep)
	}
}

// wake says that the log may have grown.
func (f *feed) wake() {
	f.mu.Lock()
	f.grown++
	functions := slices.Collect(maps.Keys(f.notify))
	f.mu.Unlock()
	for _, grown := range functions {
		(*grown)()
	}
}

// goesOn reports whether a round follows on another one, or the log may have grown since that
// began.
func (f *feed) goesOn(r *watchRound) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := len(f.rounds)
	return f.grown != r.grown || n > 0 && f.rounds[n-1].from >= r.to
}

// forgot reports whether what follows on an instant is not kept any more.
func (f *feed) forgot(at driver.Instant) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.rounds) > 0 && at < f.rounds[0].from
}

// round returns a round that has what follows on an instant, and reads it if no other watch has;
// nil where that is not kept, but what follows on a later one is.
func (f *feed) round(ctx context.Context, s *Store, from driver.Instant) (r *watchRound, next driver.Instant, err error) {
	for {
		r, mine, next := f.find(from)
		if r == nil {
			return nil, next, nil
		}
		if mine {
			f.read(ctx, s, r)
		}
		select {
		case <-r.done:
		case <-ctx.Done():
			return nil, 0, fromDriver(ctx, ctx.Err())
		}
		switch {
		case r.erased, r.err != nil && !mine && ctx.Err() == nil: // the error may be about the one who read
			own := &watchRound{from: from, grown: r.grown}
			own.fill(trusted(ctx), s)
			return own, 0, own.err
		case r.err != nil || from < r.to || from == r.from:
			return r, 0, r.err
		}
	}
}

// find finds the round that has what follows on an instant, or may have, as it is being read; or
// begins one, which is then the caller's to read; or returns where the next one begins.
func (f *feed) find(from driver.Instant) (r *watchRound, mine bool, next driver.Instant) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range slices.Backward(f.rounds) {
		if r.from <= from {
			if !r.isDone() || from < r.to {
				return r, false, 0
			}
			break
		}
		next = r.from
	}
	if next > 0 {
		return nil, false, next
	}
	r = &watchRound{from: from, grown: f.grown, done: make(chan struct{})}
	f.rounds = append(f.rounds, r)
	return r, true, 0
}

func (r *watchRound) isDone() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// read reads a round for all, and keeps it if anything is in it.
func (f *feed) read(ctx context.Context, s *Store, r *watchRound) {
	erased := f.erased.Load()
	r.fill(trusted(ctx), s) // each watch leaves out what it may not tell
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.erased.Load() != erased { // what was read may be what was erased meanwhile
		r.events, r.bytes, r.erased = nil, 0, true
	}
	close(r.done)
	if r.err != nil || r.to == r.from {
		if n := len(f.rounds); n > 0 && f.rounds[n-1] == r {
			f.rounds = f.rounds[:n-1]
		}
		return
	}
	if len(r.events) > 0 {
		f.sleep = firstWatchSleep
	}
	f.keep(r.bytes)
	for _, e := range r.events {
		if e.v.Op == driver.OpErase {
			f.forget(e.v.Collection, e.v.Key, e.v.Number)
		}
	}
}

// keep counts what the last round holds, and drops the first ones where that is too much with it;
// f.mu is held.
func (f *feed) keep(bytes int) {
	dropped := 0
	for f.held += bytes; dropped < len(f.rounds)-1 && (len(f.rounds)-dropped > keptRounds || f.held > keptRoundBytes); dropped++ {
		f.held -= f.rounds[dropped].bytes
	}
	f.rounds = slices.Delete(f.rounds, 0, dropped) // the array has none of them any more
}

// erase has the versions of a document before one that erases read again.
func (f *feed) erase(collection, key string, by int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.forget(collection, key, by)
}

// forget is erase; f.mu is held.
func (f *feed) forget(collection, key string, by int64) {
	f.erased.Add(1)
	for i, r := range f.rounds {
		if r.isDone() && slices.ContainsFunc(r.events, func(e *Event) bool { return e.v.Collection == collection && e.v.Key == key && e.v.Number < by }) {
			f.held -= r.bytes
			f.rounds[i] = &watchRound{from: r.from, to: r.to, grown: r.grown, erased: true, done: r.done}
		}
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
	r.now = until
	q := &driver.LogQuery{Collections: s.collections(), From: r.from + 1, To: until + 1}
	for v, err := range s.readLog(ctx, q) {
		if v == nil {
			r.err = err
			return
		}
		if n := len(r.events); (n >= roundVersions || r.bytes >= roundBytes) && v.RecordedAt > r.events[n-1].v.RecordedAt {
			r.to, r.more = r.events[n-1].v.RecordedAt, true
			return
		}
		r.events = append(r.events, s.event(v, err))
		r.bytes += v.Size() + len(v.Key) + besideVersion
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
