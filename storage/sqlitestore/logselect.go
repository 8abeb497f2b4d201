package sqlitestore

import (
	"slices"

	"zombiezen.com/go/sqlite"

	"github.com/asof/asof/storage/driver"
)

// A collection's log under conditions is read in two steps, a stretch at a
// time: first who, how and what of each version, which tells whether it is
// wanted, then the versions that are. No index leads to them, but the documents
// of all the others, which are what is long, are not touched.

const (
	selectNames         = `SELECT v.id, v.at, v.key, v.op, v.author, v.grp, v.changed`
	sqlSelect           = selectNames + logRange + ` ORDER BY v.at, v.key LIMIT ?6`
	sqlSelectBackward   = selectNames + logRange + ` ORDER BY v.at DESC, v.key DESC LIMIT ?6`
	sqlVersionUntilNext = `SELECT ` + versionColumns + `, ` + versionNext + ` FROM versions v WHERE v.id = ?1`
)

// The columns of sqlSelect.
const (
	selectID = iota
	selectAt
	selectKey
	selectOp
	selectAuthor
	selectGroup
	selectChanged
)

// selects reports whether conditions other than time and place may leave
// versions out.
func (st *stream) selects() bool {
	return st.authors != nil || st.groups != nil || st.changed != nil || len(st.q.Ops) > 0 || st.q.FromNumber > 0 || st.q.ToNumber > 0
}

// readSelected is readCollection where conditions may leave versions out.
func (st *stream) readSelected(c *conn) error {
	ids, last, n, err := st.selectVersions(c)
	if err != nil {
		return err
	}
	size := 0
	for _, id := range ids {
		v, err := c.versionUntilNext(id, st.coll.name, !st.q.NoData, st.q.Fields)
		if err != nil {
			return err
		}
		if !st.wanted(v) {
			continue // it is at the place that the log continues behind
		}
		e := driver.Entry{Version: v}
		if st.q.WithPrevious(v) && v.Number > 1 {
			if e.Previous, err = st.previous(c, id-1, v); err != nil {
				return err
			}
			size += len(e.Previous.Data)
		}
		st.rows = append(st.rows, e)
		if size += len(v.Data); size >= st.bytes {
			st.pass(place{at: int64(v.RecordedAt), key: v.Key})
			return nil
		}
	}
	if n > 0 {
		st.pass(last)
	}
	st.ended = n < st.stretch
	return nil
}

// selectVersions looks through a stretch. It returns the rows of the versions
// that meet the conditions, the last place that it looked at, and how many.
func (st *stream) selectVersions(c *conn) (ids []int64, last place, n int, err error) {
	query := sqlSelect
	if st.q.Backward {
		query = sqlSelectBackward
	}
	s, err := c.prepareIndexed(query)
	if err != nil {
		return nil, place{}, 0, err
	}
	st.bind(s)
	var key []byte
	if err := c.rows(s, func(s *sqlite.Stmt) error {
		n++
		last.at, key = s.ColumnInt64(selectAt), append(key[:0], c.raw(s, selectKey)...)
		ok, err := st.selected(c, s)
		if ok {
			ids = append(ids, s.ColumnInt64(selectID))
		} else {
			st.out.versions++
			st.out.bytes += rowBytes + len(key) + s.ColumnLen(selectAuthor) + s.ColumnLen(selectGroup) + s.ColumnLen(selectChanged)
		}
		return err
	}); err != nil {
		return nil, place{}, 0, err
	}
	last.key = string(key)
	return ids, last, n, nil
}

// selected is wanted for a row that is not read as a version yet.
func (st *stream) selected(c *conn, s *sqlite.Stmt) (bool, error) {
	number := s.ColumnInt64(selectID) & maxNumber
	switch {
	case st.authors != nil && !st.authors[string(c.raw(s, selectAuthor))],
		st.groups != nil && !st.groups[string(c.raw(s, selectGroup))],
		len(st.q.Ops) > 0 && !slices.Contains(st.q.Ops, driver.Op(s.ColumnInt64(selectOp))),
		number < st.q.FromNumber, st.q.ToNumber > 0 && number >= st.q.ToNumber:
		return false, nil
	case st.changed == nil:
		return true, nil
	}
	names, err := c.changed(s, selectChanged)
	return slices.ContainsFunc(names, func(name string) bool { return st.changed[name] }), err
}

// versionUntilNext reads a version by its row.
func (c *conn) versionUntilNext(id int64, collection string, data bool, fields []string) (*driver.Version, error) {
	s, err := c.Prepare(sqlVersionUntilNext)
	if err != nil {
		return nil, err
	}
	s.BindInt64(1, id)
	var v *driver.Version
	row, err := s.Step()
	if row {
		if v, err = c.version(s, collection, data, fields); err == nil {
			v.SupersededAt = next(s)
		}
	}
	if err := finish(s, err); err != nil {
		return nil, err
	}
	if v == nil {
		return nil, internalf("%s: the row %d of the log is not there any more", collection, id)
	}
	return v, nil
}
