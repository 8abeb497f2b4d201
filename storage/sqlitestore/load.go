package sqlitestore

import (
	"bytes"
	"context"

	"github.com/asof/asof/storage/driver"
)

// Load implements driver.Engine. The versions of one call are written in one
// transaction. Rows of the history are written as they come; what the call
// does to a document's row and to the indexes is summed up and written once,
// in the order of the file.
func (s *Store) Load(ctx context.Context, vs []driver.Version) (driver.LoadResult, error) {
	var result driver.LoadResult
	if len(vs) == 0 {
		return result, nil
	}
	if err := s.alive(ctx); err != nil {
		return result, err
	}
	err := s.writer.submit(&request{ctx: ctx, run: func() error {
		w := s.writer
		var latest driver.Instant
		now := s.clock.present()
		result = driver.LoadResult{}
		err := w.transaction(func() error {
			for i := range vs {
				v := &vs[i]
				if i%256 == 255 && ctx.Err() != nil {
					return ctx.Err()
				}
				err := s.checkLoad(v)
				added := false
				if err == nil {
					added, err = w.load(s.byName[v.Collection], v, now)
				}
				if driver.CodeOf(err) == driver.CodeInvalid {
					return &driver.LoadError{Index: i, Err: err}
				}
				if err != nil {
					return err
				}
				if added {
					result.Added++
					latest = max(latest, v.RecordedAt)
				} else {
					result.Skipped++
				}
			}
			return w.flushDocuments()
		})
		if err == nil {
			s.clock.saw(latest)
		}
		return err
	}})
	if err != nil {
		return driver.LoadResult{}, wrap(err, "loading versions")
	}
	return result, nil
}

func (s *Store) checkLoad(v *driver.Version) error {
	if _, err := s.collection(v.Collection); err != nil {
		return err
	}
	switch {
	case v.RecordedAt <= 0:
		return invalidf("%s %q: the time %s is not after 1970-01-01", v.Collection, v.Key, v.RecordedAt)
	case v.Number < 0:
		return invalidf("%s %q: version numbers start at 1, got %d", v.Collection, v.Key, v.Number)
	}
	return checkContent(v.Collection, v.Key, v.Op, v.Deleted, v.Data)
}

// load adds one version, or reports that it is there already.
func (w *writer) load(coll *collection, in *driver.Version, now driver.Instant) (added bool, err error) {
	st, err := w.state(coll, in.Key)
	if err != nil {
		return false, err
	}
	if st.number > 0 && in.RecordedAt <= st.at {
		return false, w.sameAsStored(st, in)
	}
	if in.RecordedAt > now {
		return false, invalidf("%s %q: %s is in the future", in.Collection, in.Key, in.RecordedAt)
	}
	if st.number >= maxNumber {
		return false, invalidf("%s %q has %d versions, the most that this store can hold of one document", in.Collection, in.Key, st.number)
	}
	if in.Number != 0 && in.Number != st.number+1 {
		return false, invalidf("%s %q: version %d cannot follow version %d", in.Collection, in.Key, in.Number, st.number)
	}
	if st.id == 0 {
		if st.id, err = w.newDocument(coll); err != nil {
			return false, err
		}
	}
	v := *in
	v.Number = st.number + 1
	if err := w.writeVersion(st, &v); err != nil {
		return false, err
	}
	if st.unwritten == nil {
		st.written = st.number
	}
	st.unwritten = &v
	w.advance(st, &v)
	return true, nil
}

// sameAsStored returns nil where a version that is not after the document's
// last is in the store already.
func (w *writer) sameAsStored(st *state, in *driver.Version) error {
	s, err := w.Prepare(sqlVersionAt)
	if err != nil {
		return err
	}
	s.BindInt64(1, int64(st.id))
	s.BindInt64(2, int64(in.RecordedAt))
	row, err := s.Step()
	if err != nil {
		return finish(s, err)
	}
	var there *driver.Version
	if row && s.ColumnInt64(colAt) == int64(in.RecordedAt) {
		there, err = w.version(s, st.coll.name, true)
	}
	if err := finish(s, err); err != nil {
		return err
	}
	switch {
	case there == nil:
		return invalidf("%s %q: %s is not after the last version, %d of %s", in.Collection, in.Key, in.RecordedAt, st.number, st.at)
	case in.Number != 0 && in.Number != there.Number,
		in.Deleted != there.Deleted, !bytes.Equal(in.Data, there.Data),
		in.Author != there.Author, in.Message != there.Message, in.Group != there.Group:
		return invalidf("%s %q: version %d of %s is in the store with other content", in.Collection, in.Key, there.Number, there.RecordedAt)
	}
	return nil
}

// flushDocuments writes the rows of the documents that Load added versions to.
func (w *writer) flushDocuments() error {
	for _, st := range w.pending.touched {
		if st.unwritten == nil {
			continue
		}
		won, err := w.writeDocument(st, st.unwritten, st.written)
		if err != nil {
			return err
		}
		if !won {
			return internalf("%s %q is not at version %d, which the store's own writer wrote; is another program writing to the file?", st.coll.name, st.key, st.written)
		}
		st.unwritten, st.stored = nil, true
	}
	return nil
}
