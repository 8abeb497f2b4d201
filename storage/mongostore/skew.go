package mongostore

import (
	"context"
	"time"

	"github.com/asof/asof/storage/driver"
)

// compareClocks says that this machine's clock, which was read before and after
// the server's, is further from it than a bound; nil where it is not.
func compareClocks(before, server, after time.Time, bound time.Duration) *driver.Error {
	if early, late := before.Sub(server), server.Sub(after); early <= bound && late <= bound {
		return nil
	}
	return driver.Errorf(driver.CodeUnavailable,
		"the clocks are too far apart: this machine's says %s, that of the MongoDB server %s, and the bound is %v; synchronize them (NTP)",
		before.UTC().Format(time.RFC3339Nano), server.UTC().Format(time.RFC3339Nano), bound)
}

// compareAgain compares the clocks while the store is open.
func (s *Store) compareAgain(ctx context.Context, o Options) {
	if o.MaxSkew == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	before := o.Clock()
	hello, err := s.hello(ctx)
	after := o.Clock()
	if err != nil || hello.LocalTime == 0 {
		return // a server that does not answer is noticed by those who need it
	}
	apart := compareClocks(before, hello.LocalTime.Time(), after, o.MaxSkew)
	switch was := s.apart.Swap(apart); {
	case was == nil && apart != nil:
		s.logger.Error("nothing is written until the clocks agree", "error", apart)
	case was != nil && apart == nil:
		s.logger.Info("the clocks agree again")
	}
}

// clocksApart is what is wrong with the clocks; nil while they agree.
func (s *Store) clocksApart() error {
	if err := s.apart.Load(); err != nil {
		return err
	}
	return nil
}

// join makes the store one of the servers on the database. The first instant
// that it hands out is after one that is known. It has patience with what a server
// that is gone was loading: to complete that can take longer than opening may
// otherwise.
func (s *Store) join(ctx, patience context.Context, o Options, known driver.Instant) error {
	s.clock = newClock(o.Clock, o.elapsed, known)
	s.fleet = newFleet(s.meta, s.clock, o.beat)
	s.fleet.onBeat = func(ctx context.Context) { s.compareAgain(ctx, o) }
	s.fleet.complete = s.completeLoads
	err := s.fleet.start(ctx, s.life)
	if err == nil && s.fleet.owes() {
		s.logger.Info("what a server that is gone was loading is completed first; that can take minutes")
		ctx, cancel := context.WithTimeout(patience, completingTimeouts*s.timeout)
		defer cancel()
		err = s.fleet.paid(ctx)
	}
	if err == nil {
		ctx, cancel := s.step(patience)
		defer cancel()
		left := s.retryKept(ctx)
		for wait := firstPause; driver.CodeOf(wrap(left, "")) == driver.CodeUnavailable && ctx.Err() == nil; wait = min(2*wait, longestPause) {
			pause(ctx, wait)
			left = s.retryKept(ctx)
		}
		if left != nil {
			s.logger.Warn("loads that were given up were not tried again", "error", left)
		}
	}
	if err != nil {
		s.giveUp()
		return wrap(err, "joining the other servers on the database")
	}
	return nil
}

// completingTimeouts is how many times as long as opening otherwise the loads of
// servers that are gone may take.
const completingTimeouts = 20
