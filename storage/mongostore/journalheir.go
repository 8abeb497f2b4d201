package mongostore

import (
	"context"
	"errors"
	"time"

	"github.com/klauspost/compress/zstd"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/asof/asof/storage/driver"
)

// removeJournal forgets a load of so many parts, its first part first; 0: some
// parts, without the first.
func (s *Store) removeJournal(ctx context.Context, load string, parts int64) error {
	ctx, cancel := s.step(ctx)
	defer cancel()
	if _, err := s.journal().DeleteOne(ctx, bson.D{{Key: "_id", Value: journalPart(load, 0)}}); err != nil || parts == 1 {
		return err
	}
	_, err := s.journal().DeleteMany(ctx, bson.D{{Key: "_id.load", Value: load}})
	return err
}

// errForgotten: the load was completed, and its first part removed.
var errForgotten = errors.New("the load is not written down any more")

// completeLoads completes the loads of servers that are not there any more, in a
// life of this server in which commits wait.
func (s *Store) completeLoads(ctx context.Context, life string) error {
	type part struct {
		ID struct {
			Load string `bson:"load"`
			Part int64  `bson:"part"`
		} `bson:"_id"`
		Owner string `bson:"owner"`
		Parts int64  `bson:"parts"`
	}
	var found []part
	cursor, err := s.journal().Find(ctx, bson.D{{Key: failedField, Value: exists(false)}}, options.Find().SetProjection(bson.D{{Key: "owner", Value: 1}, {Key: "parts", Value: 1}}))
	err = each(ctx, cursor, err, func(raw bson.Raw) error {
		var p part
		if bson.Unmarshal(raw, &p) == nil { // else it is another program's, see checkLoads
			found = append(found, p)
		}
		return nil
	})
	if err != nil {
		return err
	}
	// Who wrote down what was found was among the servers before, and is not taken
	// for one that is gone because it came in meanwhile.
	state, err := s.fleet.doc.read(ctx)
	if err != nil {
		return err
	}
	loads := make(map[string]int64) // those without an owner, by how many parts they have; 0: not whole
	for _, f := range found {
		if _, there := state.Servers[f.Owner]; there {
			continue
		}
		loads[f.ID.Load] = max(loads[f.ID.Load], 0)
		if f.ID.Part == 0 {
			loads[f.ID.Load] = f.Parts
		}
	}
	for load, parts := range loads {
		if err := s.completeLoad(ctx, load, parts, life); err != nil {
			return err
		}
	}
	return nil
}

// completeLoad completes a load, or removes what is not whole. One that fails for a
// reason that only an operator can remove is given up after a while.
func (s *Store) completeLoad(ctx context.Context, load string, parts int64, life string) error {
	if parts > 0 {
		n, err := s.addJournal(ctx, load, parts, life)
		_, lost := s.clock.exclusionLeft(life)
		if driver.CodeOf(wrap(err, "")) != driver.CodeInternal {
			delete(s.failing, load) // a database that cannot be reached says nothing about the load
		}
		switch {
		case err != nil && lost != nil:
			return err
		case err == nil:
			s.logger.Info("what a server that is gone was loading was completed", "versions", n)
		case errors.Is(err, errForgotten):
		case s.hopeless(err, s.failing.since(load, s.clock.elapsed())):
			delete(s.failing, load)
			_, err := s.keepJournal(ctx, load, err)
			return err
		default:
			if driver.CodeOf(wrap(err, "")) == driver.CodeInternal {
				s.logger.Error("what a server that is gone was loading cannot be completed; nothing is committed until it is, or given up", "error", err)
			}
			return err
		}
	}
	delete(s.failing, load)
	return s.removeJournal(ctx, load, parts)
}

// failing is when loads that cannot be completed were tried first, in times of
// elapsed. Only the one goroutine that completes loads uses it.
type failing map[string]time.Duration

// since is for how long a load has been tried.
func (f *failing) since(load string, now time.Duration) time.Duration {
	if *f == nil {
		*f = make(failing)
	}
	if _, there := (*f)[load]; !there {
		(*f)[load] = now
	}
	return now - (*f)[load]
}

// addJournal adds what was written down of a load, and says how many versions
// that are.
func (s *Store) addJournal(ctx context.Context, load string, parts int64, life string) (int, error) {
	versions, err := s.readJournal(ctx, load, parts)
	if err != nil {
		return 0, err
	}
	return len(versions), s.addLoaded(ctx, versions, life)
}

// readJournal reads what a load that was written down adds.
func (s *Store) readJournal(ctx context.Context, load string, parts int64) ([]driver.Version, error) {
	var packed []byte
	for part := range parts {
		var doc struct {
			Data []byte `bson:"data"`
		}
		err := s.journal().FindOne(ctx, bson.D{{Key: "_id", Value: journalPart(load, int(part))}}).Decode(&doc)
		switch {
		case errors.Is(err, mongo.ErrNoDocuments) && part == 0:
			return nil, errForgotten
		case errors.Is(err, mongo.ErrNoDocuments):
			return nil, brokenError{internalf("a load that was written down is broken: part %d of %d is missing", part+1, parts)}
		case err != nil:
			return nil, err
		}
		packed = append(packed, doc.Data...)
	}
	decoder, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return nil, internalf("reading a load that was written down: %w", err)
	}
	defer decoder.Close()
	text, err := decoder.DecodeAll(packed, nil)
	if err != nil {
		return nil, brokenError{internalf("a load that was written down is broken: %w", err)}
	}
	return s.decodeJournal(text)
}
