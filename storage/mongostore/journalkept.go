package mongostore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/asof/asof/storage/driver"
)

// A load that cannot be completed is given up, so that others commit again: at once
// where its failure is certain, and otherwise, where it is one of the kind that
// another attempt does not mend, after the store's timeout. What was written down
// is kept with the reason in failedField, is reported by Check, and is tried
// again whenever a store is opened: whatever was in the way may be gone by then.

// failedField says, in a load that is kept, why it was given up.
const failedField = "failed"

// documentRefused is the code of MongoDB's error for a document that a validator
// of the collection does not admit ("DocumentValidationFailure").
const documentRefused = 121

// hopeless reports whether a load fails however often it is tried, which it was for
// some time.
func (s *Store) hopeless(err error, tried time.Duration) bool {
	var broken brokenError
	if errors.As(err, &broken) || isKeptOut(err) {
		return true
	}
	switch driver.CodeOf(wrap(err, "")) {
	case driver.CodeInvalid:
		return true
	case driver.CodeInternal:
		return tried > s.timeout
	default:
		return false
	}
}

// isKeptOut reports whether another program's index or validator refused a document.
func isKeptOut(err error) bool {
	var write mongo.WriteException
	keptOut := func(e mongo.WriteError) bool {
		return e.Code == documentRefused || e.Code == duplicateKey && ofForeignIndex(e)
	}
	if errors.As(err, &write) {
		return slices.ContainsFunc(write.WriteErrors, keptOut)
	}
	bulk, _ := errors.AsType[mongo.BulkWriteException](err)
	return slices.ContainsFunc(bulk.WriteErrors, func(e mongo.BulkWriteError) bool { return keptOut(e.WriteError) })
}

// keepJournal gives up a load, some of which may be there, and keeps what was
// written down. Clients are told what it returns.
func (s *Store) keepJournal(ctx context.Context, load string, reason error) (told, err error) {
	s.logger.Error("a load that was written down cannot be completed, and is given up; some of it may be there. "+
		"Remove what is in the way, and start asof again or run asof check, which tries it again; or load the same again. It is kept in "+journalName,
		"load", load, "error", reason)
	reason = wrap(reason, "loading")
	// A version's index would be that in the load, and not in what it was called with.
	told = driver.Errorf(driver.CodeOf(reason),
		"what is loaded was given up, and only some of it may be there; when what is in the way is removed, load the same again: %v", reason)
	ctx, cancel := s.step(ctx)
	defer cancel()
	_, err = s.journal().UpdateMany(ctx, bson.D{{Key: "_id.load", Value: load}},
		bson.D{{Key: "$set", Value: bson.D{{Key: failedField, Value: encodeString(reason.Error())}}}})
	return told, err
}

// kept selects the first parts of loads that were given up.
func kept() bson.D {
	return bson.D{{Key: "_id.part", Value: int64(0)}, {Key: failedField, Value: exists(true)}}
}

// retryKept tries again to complete loads that were given up. Whether one is
// completed or not, it holds up nobody afterwards.
func (s *Store) retryKept(ctx context.Context) error {
	n, err := s.journal().CountDocuments(ctx, kept(), options.Count().SetLimit(1))
	if err != nil || n == 0 {
		return err
	}
	life, err := s.exclude(ctx)
	if err != nil {
		return err
	}
	defer s.fleet.include()
	var found []struct {
		ID struct {
			Load string `bson:"load"`
		} `bson:"_id"`
		Parts int64 `bson:"parts"`
	}
	cursor, err := s.journal().Find(ctx, kept(), options.Find().SetProjection(bson.D{{Key: "parts", Value: 1}}).SetSort(bson.D{{Key: "_id", Value: 1}}))
	if err != nil {
		return err
	}
	if err := cursor.All(ctx, &found); err != nil {
		return err
	}
	for _, f := range found {
		n, err := s.addJournal(ctx, f.ID.Load, f.Parts, life)
		switch {
		case err == nil:
			s.logger.Info("a load that was given up is completed now", "load", f.ID.Load, "versions", n)
		case errors.Is(err, errForgotten):
		case s.hopeless(err, 0):
			if _, err := s.keepJournal(ctx, f.ID.Load, err); err != nil {
				return err
			}
			continue
		default:
			return err
		}
		if err := s.removeJournal(ctx, f.ID.Load, f.Parts); err != nil {
			return err
		}
	}
	return nil
}

// checkJournal reports loads that were given up.
func (s *Store) checkJournal(ctx context.Context, report func(string)) error {
	cursor, err := s.journal().Find(ctx, kept(), options.Find().SetProjection(bson.D{{Key: failedField, Value: 1}}))
	return each(ctx, cursor, err, func(raw bson.Raw) error {
		load, _ := raw.Lookup("_id", "load").StringValueOK()
		reason, _ := raw.Lookup(failedField).StringValueOK()
		report(fmt.Sprintf("the load %s was given up, and only some of it may be there: %s. Remove what is in the way, and open the store again, which completes it; or remove it from %s, if it is not wanted",
			load, decodeString(reason), journalName))
		return nil
	})
}
