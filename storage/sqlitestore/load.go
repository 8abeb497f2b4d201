package sqlitestore

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/asof/asof/storage/driver"
)

// Load implements driver.Engine. The versions of one call are written in one
// transaction, in the order of the file and not in that in which they come, so
// that each page is touched once; and what they do to a document's row and to
// the indexes is summed up first.
func (s *Store) Load(ctx context.Context, vs []driver.Version) (driver.LoadResult, error) {
	var result driver.LoadResult
	if len(vs) == 0 {
		return result, nil
	}
	if err := cmp.Or(s.alive(ctx), s.inspecting()); err != nil {
		return result, err
	}
	ahead := s.checkAhead(vs)
	defer ahead.end() // vs are the caller's again
	err := s.writer.submit(&request{ctx: ctx, run: func() error {
		w := s.writer
		var latest driver.Instant
		now := s.clock.Present()
		begin := true
		load := func() error {
			result = driver.LoadResult{}
			if begin {
				if err := w.beginBulk(len(vs)); err != nil {
					return err
				}
			}
			for i := range vs {
				v := &vs[i]
				if i%256 == 255 && ctx.Err() != nil {
					return ctx.Err()
				}
				err := ahead.check(i)
				added := false
				if err == nil {
					added, err = w.load(s.byName[v.Collection], v, now)
				}
				if err != nil {
					if driver.CodeOf(err) == driver.CodeInvalid {
						return &driver.LoadError{Index: i, Err: err}
					}
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
		}
		err := w.transaction(load)
		if errors.Is(err, errBulk) {
			begin = false
			if err = w.endBulk(); err == nil {
				err = w.transaction(load)
			}
		}
		if err == nil {
			s.clock.Saw(latest)
			w.landed()
			s.checkpoints.wrote(result.Added)
		}
		return err
	}})
	if err != nil {
		return driver.LoadResult{}, wrap(err, "loading versions")
	}
	return result, nil
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
	if len(st.unwritten) == 0 {
		st.written = st.number
	}
	st.unwritten = append(st.unwritten, in)
	w.advance(st, st.number+1, in)
	return true, nil
}

// sameAsStored returns nil where a version that is not after the document's
// last is in the store already.
func (w *writer) sameAsStored(st *state, in *driver.Version) error {
	there, err := w.loadedAt(st, in.RecordedAt)
	if err != nil {
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

// loadedAt returns a document's version of an instant, perhaps one that is
// not written yet; nil where there is none.
func (w *writer) loadedAt(st *state, at driver.Instant) (*driver.Version, error) {
	for i, u := range st.unwritten {
		if u.RecordedAt == at {
			v := *u
			v.Number = st.written + 1 + int64(i)
			return &v, nil
		}
	}
	if st.id == 0 {
		return nil, nil
	}
	v, err := w.versionAt(st.coll, st.id, at, nil)
	if v != nil && v.RecordedAt != at {
		v = nil
	}
	return v, err
}

// flushDocuments writes what Load added: the history, and the rows of the
// documents.
func (w *writer) flushDocuments() error {
	slices.SortFunc(w.pending.touched, func(a, b *state) int { return cmp.Compare(a.id, b.id) })
	for _, st := range w.pending.touched {
		if len(st.unwritten) == 0 {
			continue
		}
		if err := w.writeVersions(st, st.written+1, st.unwritten...); err != nil {
			return err
		}
		won, err := w.writeDocument(st, st.unwritten[len(st.unwritten)-1], st.number, st.written)
		if err != nil {
			return err
		}
		if !won {
			return internalf("%s %q is not at version %d, which the store's own writer wrote; is another program writing to the file?", st.coll.name, st.key, st.written)
		}
		if err := w.loaded(st); err != nil {
			return err
		}
		clear(st.unwritten)
		st.unwritten, st.stored = st.unwritten[:0], true
	}
	return w.flushRuns()
}
