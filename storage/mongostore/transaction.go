package mongostore

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/asof/asof/storage/driver"
)

// A commit of several documents is a transaction of the database. Its updates have the
// conditions of single ones. But those are judged when they are carried out, and what they
// change becomes visible when the transaction is committed, however long after: when others may
// have evicted its entry from the clock document, and read at later instants. So each
// transaction has a note, a document in asof.meta, which is made before it begins, and which
// it deletes last. Whoever evicts the entry deletes its notes first: of the two deletions the
// database carries out one. Where it is the other one, the transaction is never committed;
// where it is the transaction's, the other one waits until that is committed or was aborted.
//
// A note that is made later, after the eviction, is of a transaction whose updates are too late.

// transactions reports whether the database has them.
func (s *Store) transactions() bool { return s.progress.kept }

// MaxWrites implements driver.Batcher: without transactions only the update of one document
// is atomic.
func (s *Store) MaxWrites() int {
	if s.transactions() {
		return driver.MaxWrites
	}
	return 1
}

const (
	// notePrefix begins the _id of a note: then come the entry and what is its own.
	notePrefix = "note "
	// comparedField is a field of a document which a commit sets that only compares it. A
	// transaction that reads a document does not keep others from changing it.
	comparedField = "cmp"
)

// notesOf selects the notes of the transactions of an entry.
func notesOf(entry string) bson.D {
	return bson.D{{Key: "_id", Value: bson.D{{Key: "$gte", Value: notePrefix + entry + " "}, {Key: "$lt", Value: notePrefix + entry + "!"}}}}
}

// deleteNotes deletes notes. When it has succeeded, what their transactions have changed is
// visible, or never will be. It fails while one of them is about to be committed.
func deleteNotes(ctx context.Context, meta *mongo.Collection, which bson.D) error {
	_, err := meta.DeleteMany(ctx, which)
	return err
}

// withdraw makes certain that no transaction of the flights is committed any more.
func (s *Store) withdraw(ctx context.Context, flights []*flight) error {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	notes := make(bson.A, len(flights))
	for i, f := range flights {
		notes[i] = f.note
	}
	return deleteNotes(ctx, s.meta, bson.D{{Key: "_id", Value: in(notes)}})
}

// errLate: a condition of a transaction did not hold. Most often another commit was faster,
// which shows when the documents are read again; else it took too long.
var errLate = fmt.Errorf("not all that the commit changes was as it is to be, or it took too long: %w", context.DeadlineExceeded)

// transact carries out all changes, or none. Errors other than certain ones mean that it is
// not known which.
func (s *Store) transact(ctx context.Context, f *flight, changes []guarded) (bool, error) {
	f.note = notePrefix + f.entry + " " + rand.Text()
	if _, err := s.meta.InsertOne(ctx, bson.D{{Key: "_id", Value: f.note}}); err != nil {
		return false, certain(err)
	}
	// A session of its own: as long as the driver takes it for one with a transaction, all its
	// commands are part of that.
	session, err := s.client.StartSession()
	if err != nil {
		return false, certain(err)
	}
	if err := session.StartTransaction(); err != nil {
		return false, certain(err)
	}
	within := mongo.NewSessionContext(ctx, session)
	if err := s.carryOut(within, f, changes); err != nil {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), closingTimeout)
		defer cancel()
		_ = session.AbortTransaction(ending)
		session.EndSession(ending)
		_ = s.withdraw(ending, []*flight{f})
		return false, certain(err)
	}
	if err := s.commitTransaction(context.WithoutCancel(ctx), session); err != nil {
		return false, unknownError{err} // nor is it aborted: a part of a cluster may have prepared to commit it
	}
	s.progress.note(session)
	session.EndSession(context.WithoutCancel(ctx))
	return true, nil
}

// carryOut makes the changes in a transaction, in one order for all, so that of two with the
// same documents one is the first at all of them.
func (s *Store) carryOut(ctx context.Context, f *flight, changes []guarded) error {
	slices.SortFunc(changes, func(a, b guarded) int { return cmp.Or(cmp.Compare(a.c.name, b.c.name), cmp.Compare(a.key, b.key)) })
	found := int64(0)
	for len(changes) > 0 {
		c := changes[0].c
		b := &bulk{store: s, target: c.main}
		for ; len(changes) > 0 && changes[0].c == c; changes = changes[1:] {
			g := &changes[0]
			if err := b.add(ctx, mongo.NewUpdateOneModel().SetFilter(g.condition).SetUpdate(g.change), g.bytes); err != nil {
				return err
			}
			found--
		}
		if err := b.flush(ctx); err != nil {
			return err
		}
		found += b.found
	}
	if found < 0 {
		return errLate
	}
	result, err := s.meta.DeleteOne(ctx, bson.D{{Key: "_id", Value: f.note}})
	if err == nil && result.DeletedCount == 0 {
		err = errLate
	}
	return err
}

// commitTransaction commits, and asks again where it gets no answer.
func (s *Store) commitTransaction(ctx context.Context, session *mongo.Session) error {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	for wait := firstPause; ; wait = min(2*wait, longestPause) {
		step, done := context.WithTimeout(ctx, firstTimeout)
		err := session.CommitTransaction(step)
		done()
		var server mongo.ServerError
		if err == nil || ctx.Err() != nil || errors.As(err, &server) && !mongo.IsTimeout(err) && !server.HasErrorLabel("UnknownTransactionCommitResult") {
			return err
		}
		pause(ctx, wait)
	}
}
