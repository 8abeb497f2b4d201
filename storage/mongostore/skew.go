package mongostore

import (
	"context"
	"errors"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

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
	server, err := s.serverTime(ctx)
	after := o.Clock()
	if err != nil || server == 0 {
		return // a server that does not answer is noticed by those who need it
	}
	apart := compareClocks(before, server.Time(), after, o.MaxSkew)
	switch was := s.apart.Swap(apart); {
	case was == nil && apart != nil:
		s.logger.Error("nothing is written until the clocks agree", "error", apart)
	case was != nil && apart == nil:
		s.logger.Info("the clocks agree again")
	}
}

// serverTime is what the server's clock says; 0 where it does not tell.
func (s *Store) serverTime(ctx context.Context) (bson.DateTime, error) {
	var hello struct {
		LocalTime bson.DateTime `bson:"localTime"`
	}
	err := s.db.RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Decode(&hello)
	var refused mongo.ServerError
	if errors.As(err, &refused) {
		err = s.db.RunCommand(ctx, bson.D{{Key: "isMaster", Value: 1}}).Decode(&hello)
	}
	return hello.LocalTime, err
}

// clocksApart is what is wrong with the clocks; nil while they agree.
func (s *Store) clocksApart() error {
	if err := s.apart.Load(); err != nil {
		return err
	}
	return nil
}

// join makes the store one of the servers on the database. The first instant
// that it hands out is after one that is known.
func (s *Store) join(ctx context.Context, o Options, known driver.Instant) error {
	s.clock = newClock(o.Clock, o.elapsed, known)
	s.fleet = newFleet(s.meta, s.clock, o.beat)
	s.fleet.onBeat = func(ctx context.Context) { s.compareAgain(ctx, o) }
	s.fleet.complete = s.completeLoads
	if err := s.fleet.start(ctx, s.life); err != nil {
		s.giveUp()
		return wrap(err, "joining the other servers on the database")
	}
	return nil
}
