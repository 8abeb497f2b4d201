package mongostore

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/asof/asof/storage/driver"
)

// The clock document is what the servers on one database tell each other:
//
//	{_id: "clock", mark, n: number of servers, loader, servers: {<id>: {beat, alone, low, floor, waits}}}
//
// mark is an instant that every later commit is after, of any server but one
// that is alone. low is at most the time of every commit that its server has
// in flight (0: none), floor at least every instant that a server that is
// alone has handed out. beat counts the exchanges of a server: each is made on
// condition that it is the next one, so that one that was delayed on its way
// has no effect. A server that was removed comes in again under another ID, for
// the same reason. loader is the server that loads; the others take no times until
// it has ended. waits says that a server was refused for that; the loader does not
// begin again before that one had its turn.
const clockID = "clock"

// clockState is the clock document at one moment.
type clockState struct {
	Mark    driver.Instant         `bson:"mark"`
	N       int64                  `bson:"n"`
	Loader  string                 `bson:"loader"`
	Servers map[string]serverState `bson:"servers"`
}

type serverState struct {
	Beat  int64          `bson:"beat"`
	Alone bool           `bson:"alone"`
	Low   driver.Instant `bson:"low"`
	Floor driver.Instant `bson:"floor"`
	Waits bool           `bson:"waits"`
}

// spoiledError: another program wrote into the clock document. Nothing is handed out, until
// somebody does something about it.
type spoiledError struct{ error }

func (e spoiledError) Unwrap() error { return e.error }

func spoiled(format string, args ...any) error {
	return spoiledError{driver.Errorf(driver.CodeUnavailable,
		"another program wrote into the document %q of %s (%w); stop all asof servers on the database and remove the document: asof makes it anew when it starts",
		clockID, metaName, fmt.Errorf(format, args...))}
}

// decode reads the document as it came.
func (s *clockState) decode(raw bson.Raw) error {
	if err := bson.Unmarshal(raw, s); err != nil {
		return spoiled("%w", err)
	}
	return nil
}

// check says what is wrong with a document in which servers would not find each other:
// they wait for those that are not there, or take themselves to be alone.
func (s *clockState) check() error {
	if s.N != int64(len(s.Servers)) {
		return spoiled("n is %d, and there are %d servers", s.N, len(s.Servers))
	}
	for id, server := range s.Servers {
		if server.Beat < 1 {
			return spoiled("servers.%s has no beat", id)
		}
	}
	return nil
}

// reached is an instant that every commit so far was at or before.
func (s *clockState) reached() driver.Instant {
	at := s.Mark
	for _, server := range s.Servers {
		at = max(at, server.Floor)
	}
	return at
}

// lowest is the lowest time that servers other than this one have in flight.
func (s *clockState) lowest(id string) driver.Instant {
	low := driver.Forever
	for other, state := range s.Servers {
		if other != id && state.Low != 0 {
			low = min(low, state.Low)
		}
	}
	return low
}

// others reports whether there are other servers, and whether one of them does
// not know yet that it is not alone.
func (s *clockState) others(id string) (some, unaware bool) {
	for other, state := range s.Servers {
		if other != id {
			some = true
			unaware = unaware || state.Alone
		}
	}
	return some, unaware
}

// waits reports whether another server waits for a load to end.
func (s *clockState) waits(id string) bool {
	for other, state := range s.Servers {
		if other != id && state.Waits {
			return true
		}
	}
	return false
}

// Why an exchange was not made.
var (
	// errRemoved: others took this server for dead.
	errRemoved = errors.New("this server was taken for dead by another one on the same database")
	// errUnmet: a condition did not hold, or it is not clear yet whether an
	// earlier exchange was made.
	errUnmet = errors.New("the clock document is not as it was expected")
)

// clockDocument is the document as one server sees it.
type clockDocument struct {
	meta *mongo.Collection
	id   string
	beat int64 // of the last exchange that is known to have been made
	// changes and reads are patience with what changes the document, and with
	// what reads it.
	changes, reads *patience
}

func (d *clockDocument) field(name string) string { return "servers." + d.id + "." + name }

// read reads the document.
func (d *clockDocument) read(ctx context.Context) (*clockState, error) {
	return d.readWith(ctx, d.reads)
}

func (d *clockDocument) readWith(ctx context.Context, p *patience) (*clockState, error) {
	var state clockState
	return &state, p.try(ctx, func(ctx context.Context) error {
		raw, err := d.meta.FindOne(ctx, bson.D{{Key: "_id", Value: clockID}}).Raw()
		switch {
		case errors.Is(err, mongo.ErrNoDocuments):
			return nil
		case err != nil:
			return err
		}
		return state.decode(raw)
	})
}

// unloaded is the condition that no other server loads, but for some.
func (d *clockDocument) unloaded(but ...string) bson.E {
	free := bson.A{nil, "", d.id}
	for _, id := range but {
		free = append(free, id)
	}
	return bson.E{Key: "loader", Value: bson.D{{Key: "$in", Value: free}}}
}

// exchange changes the document, sets fields in it, and returns
// what it said before; with errUnmet, what it says instead of what was expected.
// begins is called before each attempt.
func (d *clockDocument) exchange(ctx context.Context, begins func(), set bson.D, change bson.D, condition ...bson.E) (*clockState, error) {
	for {
		begins()
		filter := append(bson.D{{Key: "_id", Value: clockID}, {Key: d.field("beat"), Value: d.beat}}, condition...)
		fields := append(bson.D{{Key: d.field("beat"), Value: d.beat + 1}}, set...)
		before, err := d.change(ctx, filter, append(bson.D{{Key: "$set", Value: fields}}, change...))
		if err == nil {
			d.beat++
			return before, nil
		}
		if !errors.Is(err, mongo.ErrNoDocuments) {
			return nil, err
		}
		state, err := d.read(ctx)
		if err != nil {
			return nil, err
		}
		own, there := state.Servers[d.id]
		switch {
		case !there:
			return nil, errRemoved
		case own.Beat == d.beat:
			return state, errUnmet
		}
		d.beat = own.Beat // an exchange without an answer was made after all
	}
}

func (d *clockDocument) change(ctx context.Context, filter, change bson.D) (*clockState, error) {
	var before clockState
	return &before, d.changes.try(ctx, func(ctx context.Context) error {
		raw, err := d.meta.FindOneAndUpdate(ctx, filter, change, options.FindOneAndUpdate().SetReturnDocument(options.Before)).Raw()
		if err != nil {
			return err
		}
		return before.decode(raw)
	})
}

// update changes the document where it is as expected, and reports whether it was.
func (d *clockDocument) update(ctx context.Context, filter, change bson.D, o ...options.Lister[options.UpdateOneOptions]) (bool, error) {
	matched := false
	err := d.changes.try(ctx, func(ctx context.Context) error {
		result, err := d.meta.UpdateOne(ctx, filter, change, o...)
		matched = err == nil && result.MatchedCount > 0
		return err
	})
	return matched, err
}

// errEmptied: the document was there, and is not any more.
var errEmptied = driver.Errorf(driver.CodeUnavailable, "the database was emptied while asof ran; restore it, or start asof again for an empty store")

// join gives this server a part in the document, which it makes where there is none;
// one that comes in again does not: then there is no store any more, see errEmptied.
func (d *clockDocument) join(ctx context.Context, mark driver.Instant, again bool) error {
	for {
		d.beat = 1
		joined, err := d.update(ctx,
			bson.D{{Key: "_id", Value: clockID}, {Key: "servers." + d.id, Value: exists(false)}},
			bson.D{
				{Key: "$inc", Value: bson.D{{Key: "n", Value: int64(1)}}},
				{Key: "$max", Value: bson.D{{Key: "mark", Value: int64(mark)}}},
				{Key: "$set", Value: bson.D{
					{Key: d.field("beat"), Value: d.beat},
					{Key: d.field("alone"), Value: false},
					{Key: d.field("low"), Value: int64(0)},
					{Key: d.field("floor"), Value: int64(0)},
				}},
			}, options.UpdateOne().SetUpsert(!again))
		if !mongo.IsDuplicateKeyError(err) && (err != nil || joined || !again) {
			return err
		}
		// It was made by another server meanwhile, or this one is in it already.
		state, err := d.read(ctx)
		if err != nil {
			return err
		}
		if own, there := state.Servers[d.id]; there {
			d.beat = own.Beat
			return nil
		}
		if again && state.Servers == nil {
			return errEmptied
		}
	}
}

// remove takes a server out of the document, if it has not moved since a beat.
// Later commits are after all that it may have handed out, and wait until this
// server has completed what the other one was loading.
func (d *clockDocument) remove(ctx context.Context, id string, last serverState) (bool, error) {
	return d.update(ctx,
		bson.D{{Key: "_id", Value: clockID}, {Key: "servers." + id + ".beat", Value: last.Beat}, d.unloaded(id)},
		bson.D{
			{Key: "$set", Value: bson.D{{Key: "loader", Value: d.id}}},
			{Key: "$unset", Value: bson.D{{Key: "servers." + id, Value: ""}}},
			{Key: "$inc", Value: bson.D{{Key: "n", Value: int64(-1)}}},
			{Key: "$max", Value: bson.D{{Key: "mark", Value: int64(last.Floor)}}},
		})
}

// takeOver makes this server the one that completes the loads of a loader that
// is not among the servers.
func (d *clockDocument) takeOver(ctx context.Context, loader string) (bool, error) {
	return d.update(ctx,
		bson.D{{Key: "_id", Value: clockID}, {Key: "loader", Value: loader}, {Key: "servers." + loader, Value: exists(false)}},
		bson.D{{Key: "$set", Value: bson.D{{Key: "loader", Value: d.id}}}})
}

// leave takes this server out of the document, also as its loader.
func (d *clockDocument) leave(ctx context.Context, handedOut driver.Instant) error {
	gone := bson.D{
		{Key: "$unset", Value: bson.D{{Key: "servers." + d.id, Value: ""}}},
		{Key: "$inc", Value: bson.D{{Key: "n", Value: int64(-1)}}},
		{Key: "$max", Value: bson.D{{Key: "mark", Value: int64(handedOut)}}},
	}
	for _, way := range []struct {
		loader any
		change bson.D
	}{
		{bson.D{{Key: "$ne", Value: d.id}}, gone},
		{d.id, append(gone, bson.E{Key: "$set", Value: bson.D{{Key: "loader", Value: ""}}})},
	} {
		left, err := d.update(ctx, bson.D{
			{Key: "_id", Value: clockID}, {Key: "servers." + d.id, Value: exists(true)}, {Key: "loader", Value: way.loader},
		}, way.change)
		if err != nil || left {
			return err
		}
	}
	return nil
}
