package sqlitestore

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/google/uuid"
	"zombiezen.com/go/sqlite"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/driver/check"
)

// Commit implements driver.Engine.
func (s *Store) Commit(ctx context.Context, w *driver.Write) (*driver.Version, error) {
	if err := cmp.Or(s.alive(ctx), s.inspecting()); err != nil {
		return nil, err
	}
	coll, err := s.collection(w.Collection)
	if err != nil {
		return nil, err
	}
	if err := check.Write(w); err != nil {
		return nil, err
	}
	r := &request{ctx: ctx, write: w, coll: coll}
	if err := s.writer.submit(r); err != nil {
		return nil, err
	}
	return r.version, nil
}

// commitBatch commits writes together. A write that fails for a reason of its
// own must not take the others with it, so they are then committed one by one.
func (w *writer) commitBatch(batch []*request) {
	err := w.tryBatch(batch)
	if err != nil && len(batch) > 1 && !isOutage(err) {
		var before uncommitted
		certain := errors.As(err, &before)
		for i, r := range batch {
			if err := w.tryBatch(batch[i : i+1]); err != nil {
				if r.err = wrap(err, "writing"); !certain {
					r.err = unsure(r.err)
				}
			}
			close(r.ready)
		}
		return
	}
	if err == nil {
		w.commits.Add(1)
		w.writes.Add(int64(len(batch)))
	}
	for _, r := range batch {
		if err != nil {
			r.version, r.err = nil, wrap(err, "writing")
		}
		close(r.ready)
	}
}

// isOutage tells a failure of the disk, which one write did not cause.
func isOutage(err error) bool {
	switch sqlite.ErrCode(err).ToPrimary() {
	case sqlite.ResultFull, sqlite.ResultIOErr, sqlite.ResultReadOnly, sqlite.ResultCantOpen, sqlite.ResultCorrupt, sqlite.ResultNotADB:
		return true
	default:
		return false
	}
}

// tryBatch commits writes in one transaction. Conflicts are results, not failures.
func (w *writer) tryBatch(batch []*request) error {
	if err := w.endBulk(); err != nil {
		return uncommitted{err}
	}
	w.store.clock.Begin()
	err := w.transaction(func() error {
		for _, r := range batch {
			r.version, r.err = nil, nil
			v, err := w.apply(r)
			var conflict *driver.ConflictError
			var coded *driver.Error
			switch {
			case errors.As(err, &conflict), errors.As(err, &coded) && coded.Code == driver.CodeInvalid:
				r.err = err
			case err != nil:
				return err
			}
			r.version = v
		}
		return nil
	})
	w.store.clock.End() // before a watch can tell: whoever hears of a version can read at its instant
	if err == nil {
		w.landed()
	}
	return err
}

// apply makes one version, or returns a conflict and has changed nothing.
func (w *writer) apply(r *request) (*driver.Version, error) {
	in := r.write
	st, err := w.state(r.coll, in.Key)
	if err != nil {
		return nil, err
	}
	v := &driver.Version{
		Collection: r.coll.name, Key: in.Key, Number: st.number + 1, SupersededAt: driver.Forever,
		Op: in.Op, Deleted: in.Deleted, Author: in.Author, Message: in.Message, Group: in.Group,
		Changed: slices.Clone(in.Changed), Data: bytes.Clone(in.Data),
	}
	if v.Number > maxNumber {
		return nil, invalidf("%s %q has %d versions, the most that this store can hold of one document", v.Collection, v.Key, st.number)
	}
	id := attemptID(in.ID)
	if before, err := w.attempt(id); err != nil {
		return nil, err
	} else if before != 0 {
		return w.versionOf(before)
	}
	expected := in.Expected
	if expected == 0 && st.deleted {
		expected = st.number // of the tombstone
	}
	// The database compares: a row changes only where its number is the
	// expected one, and there is a new row only where there is none.
	won := st.stored == (expected != 0)
	if won {
		if !st.stored {
			if st.id, err = w.newDocument(r.coll); err != nil {
				return nil, err
			}
		}
		v.RecordedAt = w.store.clock.Next()
		if won, err = w.writeDocument(st, v, v.Number, expected); err != nil {
			return nil, err
		}
	}
	if !won {
		return nil, &driver.ConflictError{Collection: v.Collection, Key: v.Key, Expected: in.Expected, Actual: st.number}
	}
	st.stored = true
	if err := w.writeVersions(st, v.Number, v); err != nil {
		return nil, err
	}
	if err := w.remember(id, st.id.version(v.Number)); err != nil {
		return nil, err
	}
	w.advance(st, v.Number, v)
	w.arriving.commit(v)
	return v, nil
}

// newDocument takes the next place in a collection.
func (w *writer) newDocument(coll *collection) (docID, error) {
	if coll.sequence >= maxSequence {
		return 0, invalidf("%s holds %d documents, the most that this store can", coll.name, coll.sequence)
	}
	coll.sequence++
	coll.dirty = true
	return docOf(coll.id, coll.sequence), nil
}

// attemptID is the identifier of a write as it is stored: 16 bytes for what
// is written like a UUID, else the text behind a sign that tells it apart.
func attemptID(id string) []byte {
	if u, err := uuid.Parse(id); err == nil && u.String() == id {
		return u[:]
	}
	return append([]byte{'='}, id...)
}

// attempt returns the version that an attempt made; 0: none.
func (w *writer) attempt(id []byte) (int64, error) {
	s, err := w.Prepare(`SELECT version FROM writes WHERE id = ?1`)
	if err != nil {
		return 0, err
	}
	s.BindBytes(1, id)
	version := int64(0)
	row, err := s.Step()
	if row {
		version = s.ColumnInt64(0)
	}
	return version, finish(s, err)
}

func (w *writer) remember(id []byte, version int64) error {
	s, err := w.Prepare(`INSERT INTO writes(id, version) VALUES(?1, ?2)`)
	if err != nil {
		return err
	}
	s.BindBytes(1, id)
	s.BindInt64(2, version)
	_, err = s.Step()
	return finish(s, err)
}

// versionOf returns a version that was committed before.
func (w *writer) versionOf(id int64) (*driver.Version, error) {
	coll := w.store.byID[int64(docOfVersion(id))>>sequenceBits]
	if coll == nil {
		return nil, internalf("version %d is of no collection", id)
	}
	v, err := w.versionByID(coll, id, nil)
	if err == nil && v == nil {
		err = internalf("%s: version %d of an earlier write is missing", coll.name, id)
	}
	return v, err
}
