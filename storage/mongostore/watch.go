package mongostore

import (
	"context"
	"iter"
	"slices"
	"time"

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
// Between two rounds a watch sleeps. Commits and loads of this server wake it;
// those of other servers are told by the change streams of the database, where
// it has them (waker), and found by asking where it has not.

// How long a watch sleeps at first, and at last, where nothing wakes it: without
// change streams, and with them, where this is only a safeguard.
const (
	firstSleep     = 20 * time.Millisecond
	lastSleep      = time.Second
	guardedByWaker = 10 * time.Second
)

// Watch implements driver.Engine. A watch holds nothing of the database, and
// nothing waits for it, while its loop does something else.
func (s *Store) Watch(ctx context.Context, q *driver.WatchQuery) iter.Seq2[driver.Arrival, error] {
	return func(yield func(driver.Arrival, error) bool) {
		err := s.watch(ctx, q, yield)
		switch {
		case err == nil:
			return
		case s.life.Err() != nil:
			err = errClosed()
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
	defer s.waker.leave()
	w.told(nil)
	first, last, guardedLast := s.waker.sleeps()
	sleep := first
	for !w.left {
		woken, guarded := s.waker.look() // before the round, so that nothing is missed
		n, err := w.round(ctx)
		if err != nil || w.left {
			return err
		}
		longest := last
		if guarded {
			longest = guardedLast
		}
		if n > 0 {
			sleep = first
		}
		timer := time.NewTimer(min(sleep, longest))
		select {
		case <-woken:
			sleep = first
		case <-timer.C:
			sleep *= 2
		case <-ctx.Done():
		}
		timer.Stop()
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}

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
		// Another server may have been a little further than this one is.
		err := w.store.Settle(ctx, max(w.place.from, w.place.to))
		if driver.CodeOf(err) == driver.CodeInvalid {
			return invalidf("the position is ahead of the store, which was perhaps restored from an older copy; begin from now, or from the beginning")
		}
		return err
	}
	return nil
}

// told tells of a version, or of a place if v is nil.
func (w *watching) told(v *driver.Version) {
	w.left = !w.yield(driver.Arrival{Position: w.place.encode(), Version: v}, nil)
}
