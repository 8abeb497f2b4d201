package storage

import (
	"context"
	"iter"
	"slices"

	"github.com/asof/asof/storage/driver"
)

// WatchQuery says what a watch is about and where it begins: behind a position, behind
// an instant, or, where neither is given, now.
type WatchQuery struct {
	Types []string // by their GraphQL names; empty: all that the schema has
	After string   // the position of an event, also of a watch in another process
	Since *driver.Instant
}

// Event is a step of a watch.
type Event struct {
	Position string   // behind this event; opaque, and good for as long as the store is
	Arrived  *Arrived // nil in the first event, which only says where the watch begins
}

// Arrived is a version that was committed.
type Arrived struct {
	store *Store
	t     *Type
	v     *driver.Version
}

// ResyncError ends a watch when versions were loaded into the past: what has been told is
// not all any more. Read again, and watch from now.
type ResyncError struct {
	Loaded driver.Instant // when the load was
}

func (e *ResyncError) Error() string {
	return "old versions were loaded at " + e.Loaded.String() + ", and are not told: read again what you need, and watch from then on"
}

// Watch tells of every version that is committed behind the beginning, once, in the
// order of commits; a read at Now shows it already. The first event is only a place.
//
// The log is told up to Now, again and again: at once after a commit of this process,
// and at most a second after one of another. The loop may take as long as it likes. It
// ends when it is left, or with an error, as when the context ends.
// Errors: *ResyncError; BAD_USER_INPUT for an unknown type, for a position or an instant
// that is in the future or malformed, and for both; UNAVAILABLE.
func (s *Store) Watch(ctx context.Context, q WatchQuery) iter.Seq2[*Event, error] {
	return func(yield func(*Event, error) bool) {
		w := &watch{store: s, yield: yield}
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
	yield       func(*Event, error) bool
	left        bool            // the loop was
	woken       <-chan struct{} // closed when the log may have grown since what was read of it
	place       watchPlace
}

// watchPlace is where a watch is: all that is before it in the log has been told. Without
// a collection it is behind all versions of its instant.
type watchPlace struct{ driver.LogPosition }

// watchCursor tells positions of watches from cursors.
const watchCursor = "watch"

func (p watchPlace) encode() string {
	return encodeCursor(watchCursor, 1, p.At, p.Collection, p.Key, p.Number)
}

func decodeWatchPlace(text string) (p watchPlace, err error) {
	_, parts, err := decodeCursor("after", text, watchCursor, 4)
	if err != nil {
		return p, badInput("after: %s is not a position of a watch", quoteShort(text))
	}
	at, ok1 := number(parts[0])
	collection, ok2 := parts[1].(string)
	key, ok3 := parts[2].(string)
	n, ok4 := number(parts[3])
	if !ok1 || !ok2 || !ok3 || !ok4 || at < 0 {
		return p, badInput("after: %s is not a position of a watch", quoteShort(text))
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
	w.tell(nil)
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

// round tells what is behind the place: a round that is shared with other watches, or,
// where the watch is behind those, all that there is up to now. It reports whether there
// may be more.
func (w *watch) round(ctx context.Context) (more bool, err error) {
	if w.place.Collection == "" {
		r, err := w.store.feed.round(ctx, w.store, w.place.At)
		if err != nil {
			return false, err
		}
		if r != nil {
			for _, v := range r.versions {
				if slices.Contains(w.collections, v.Collection) && !w.tell(v) {
					return false, nil
				}
			}
			w.place = watchPlace{driver.LogPosition{At: r.to}}
			if r.woken != nil { // it may have begun before this watch looked
				w.woken = r.woken
			}
			return r.more || !w.store.feed.last(r.to), nil
		}
	}
	until, err := w.store.watchedUntil(ctx, w.place.At)
	if err != nil {
		return false, err
	}
	q := w.place.log(until)
	q.Collections = w.collections
	for v, err := range w.store.readLog(ctx, q) {
		if err != nil {
			return false, err
		}
		if !w.tell(v) {
			return false, nil
		}
	}
	w.place = watchPlace{driver.LogPosition{At: until}}
	return false, nil
}

// watchedUntil is up to when the log behind an instant can be told.
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

// tell tells of a version, or of a place if v is nil, and returns whether it may go on.
func (w *watch) tell(v *driver.Version) bool {
	e := &Event{}
	if v != nil {
		w.place = watchPlace{positionOf(v)}
		e.Arrived = &Arrived{store: w.store, t: w.store.byCollection[v.Collection], v: v}
	}
	e.Position = w.place.encode()
	w.left = !w.yield(e, nil)
	return !w.left
}

// Type is the type of the document.
func (a *Arrived) Type() *Type { return a.t }

// Key is the document's key.
func (a *Arrived) Key() string { return a.v.Key }

// VersionInfo describes the version.
func (a *Arrived) VersionInfo() *VersionInfo {
	return &VersionInfo{typ: a.t, v: a.v, seen: a.v.RecordedAt}
}

// Document is the model of the document as this version left it, with its
// references as they were then; nil when it was deleted.
func (a *Arrived) Document() AnyDocument {
	if a.v.Deleted {
		return nil
	}
	return a.store.wrapAny(a.store.newDocument(a.t, a.v, a.v.RecordedAt, a.v.RecordedAt, true))
}

// Changes lists what the version changed, in the order in which it can be
// applied. It reads the version before.
func (a *Arrived) Changes(ctx context.Context) ([]*FieldChange, error) {
	var before *driver.Version
	if a.v.Number > 1 {
		var err error
		if before, err = a.store.getOne(ctx, a.t, driver.Ref{Key: a.v.Key, Number: a.v.Number - 1}); err != nil {
			return nil, err
		}
	}
	return a.store.listChanges(ctx, a.t, before, a.v, a.v, a.v.RecordedAt)
}
