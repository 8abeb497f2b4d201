package mongostore

import (
	"context"
	"errors"
	"fmt"

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

// failedField says, in a load that is kept, why it was given up.
const failedField = "failed"

// errForgotten: the load was completed, and its first part removed.
var errForgotten = errors.New("the load is not written down any more")

// keepJournal gives up a load that can never be completed, and keeps what was
// written down, some of which may be there.
func (s *Store) keepJournal(ctx context.Context, load string, reason error) error {
	s.logger.Error("a load that was written down cannot be completed, and is given up; some of it may be there. It is kept in "+journalName, "load", load, "error", reason)
	ctx, cancel := s.step(ctx)
	defer cancel()
	_, err := s.journal().UpdateMany(ctx, bson.D{{Key: "_id.load", Value: load}},
		bson.D{{Key: "$set", Value: bson.D{{Key: failedField, Value: encodeString(reason.Error())}}}})
	return err
}

// checkJournal reports loads that were given up.
func (s *Store) checkJournal(ctx context.Context, report func(string)) error {
	cursor, err := s.journal().Find(ctx, bson.D{{Key: "_id.part", Value: int64(0)}, {Key: failedField, Value: exists(true)}},
		options.Find().SetProjection(bson.D{{Key: failedField, Value: 1}}))
	return each(ctx, cursor, err, func(raw bson.Raw) error {
		load, _ := raw.Lookup("_id", "load").StringValueOK()
		reason, _ := raw.Lookup(failedField).StringValueOK()
		report(fmt.Sprintf("the load %s was given up, and only some of it may be there: %s. Load it again, and then remove it from %s", load, decodeString(reason), journalName))
		return nil
	})
}

// completeLoads completes the loads of servers that are not there any more, in a
// life of this server in which commits wait.
func (s *Store) completeLoads(ctx context.Context, life string) error {
	var found []struct {
		ID struct {
			Load string `bson:"load"`
			Part int64  `bson:"part"`
		} `bson:"_id"`
		Owner string `bson:"owner"`
		Parts int64  `bson:"parts"`
	}
	cursor, err := s.journal().Find(ctx, bson.D{{Key: failedField, Value: exists(false)}}, options.Find().SetProjection(bson.D{{Key: "owner", Value: 1}, {Key: "parts", Value: 1}}))
	if err != nil {
		return err
	}
	if err := cursor.All(ctx, &found); err != nil {
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

func (s *Store) completeLoad(ctx context.Context, load string, parts int64, life string) error {
	if parts > 0 {
		versions, err := s.readJournal(ctx, load, parts)
		if err == nil {
			err = s.addLoaded(ctx, versions, life)
		}
		_, lost := s.clock.exclusionLeft(life)
		switch {
		case err != nil && lost != nil:
			return err
		case err == nil:
			s.logger.Info("what a server that is gone was loading was completed", "versions", len(versions))
		case errors.Is(err, errForgotten):
		case hopeless(err):
			return s.keepJournal(ctx, load, err)
		default:
			if driver.CodeOf(wrap(err, "")) == driver.CodeInternal {
				s.logger.Error("what a server that is gone was loading cannot be completed; nothing is committed until it is", "error", err)
			}
			return err
		}
	}
	return s.removeJournal(ctx, load, parts)
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
