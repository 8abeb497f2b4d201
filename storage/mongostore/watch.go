package mongostore

import (
	"context"
	"iter"
	"slices"

	"github.com/asof/asof/storage/driver"
)

// The order of arrival.
//
// Every version has an instant at which it came into the store: a commit its
// own time, a loaded version that of the write which brought it (see
// record.arrived). All of them come from the clock that the servers on a
// database share, so that what Now says holds for them: when it has returned an
// instant, every version that arrived up to it is visible, and none will follow.
//
// So a watch goes round after round. A round tells what arrived in (from, to],
// where to is now, by collection, key and number: the documents whose last
// version arrived after from are found by an index, and of a document, versions
// arrive in the order of their numbers. It is told from what is stored, so that
// no position ever gets too old, and no server need keep a log for it.
//
// Watches that have caught up share their rounds (sharing). In between they
// sleep. Commits and loads of this server wake them; those of other servers are
// told by the change streams of the database, where it has them, and found by
// asking where it has not (waker).

// Watch implements driver.Engine. A watch holds nothing of the database, and
// nothing waits for it, while its loop does something else.
func (s *Store) Watch(ctx context.Context, q *driver.WatchQuery) iter.Seq2[driver.Arrival, error] {
	return func(yield func(driver.Arrival, error) bool) {
		err := s.watch(ctx, q, yield)
		switch {
		case err == nil:
			return
		case s.life.Err() != nil:
			err = driver.Closed()
		}
		yield(driver.Arrival{}, wrap(err, "watching"))
	}
}

func (s *Store) watch(ctx context.Context, q *driver.WatchQuery, yield func(driver.Arrival, error) bool) error {
	leave, err := s.begin(ctx)
	if err != nil {
		return err
	}
	leave() // Close ends a watch instead of waiting for it
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.life, cancel)()
	w := &watching{store: s, yield: yield}
	if err := w.choose(q); err != nil {
		return err
	}
	if err := w.begin(ctx, q); err != nil {
		return err
	}
	s.waker.join(s)
	defer s.waker.leave(s)
	w.told(nil)
	for !w.left {
		woken, _ := s.waker.look() // before the round, so that nothing is missed
		more, err := w.step(ctx)
		if err != nil || w.left {
			return err
		}
		if more {
			continue
		}
		select {
		case <-woken:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// furthestAhead is how far, in microseconds, a position of another server may be
// ahead of what this one knows. It is as good here: what it is behind is visible.
const furthestAhead = 60_000_000

// watching is one watch.
type watching struct {
	store       *Store
	collections []*collection // by name
	yield       func(driver.Arrival, error) bool
	place       watchPlace
	left        bool // the loop was
}

// choose looks up the collections.
func (w *watching) choose(q *driver.WatchQuery) error {
	names := slices.Clone(q.Collections)
	if len(names) == 0 {
		for name := range w.store.collections {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		c, err := w.store.collection(name)
		if err != nil {
			return err
		}
		w.collections = append(w.collections, c)
	}
	return nil
}

// begin finds the place where the watch begins.
func (w *watching) begin(ctx context.Context, q *driver.WatchQuery) error {
	var err error
	if w.place.store, err = w.store.identity(ctx); err != nil {
		return err
	}
	switch {
	case q.After != "" && q.FromNow:
		return invalidf("a watch begins behind a position or from now, not both")
	case q.FromNow:
		w.place.from, err = w.store.Now(ctx)
		return err
	case q.After != "":
		if err := w.place.decode(q.After); err != nil {
			return err
		}
		now, err := w.store.Now(ctx)
		if err != nil {
			return err
		}
		if max(w.place.from, w.place.to) > now+furthestAhead {
			return invalidf("the position is ahead of the store, which was perhaps restored from an older copy; begin from now, or from the beginning")
		}
	}
	return nil
}

// told tells of a version, or of a place if v is nil.
func (w *watching) told(v *driver.Version) {
	w.left = !w.yield(driver.Arrival{Position: w.place.encode(), Version: v}, nil)
}
