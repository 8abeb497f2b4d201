package sqlitestore

import (
	"bytes"
	"context"
	"errors"
	"slices"

	"github.com/google/uuid"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/seal"
)

// Commit implements driver.Engine.
func (s *Store) Commit(ctx context.Context, ws []driver.Write) ([]*driver.Version, error) {
	if err := s.checkWritable(); err != nil {
		return nil, err
	}
	r := &request{ctx: ctx, writes: ws}
	if err := s.writer.submit(r); err != nil {
		return nil, err
	}
	return r.versions, nil
}

// handle handles requests of one kind in one transaction. If nothing of that is in the database,
// and another one may succeed, each has its own, so that a request that fails for a reason of its
// own does not fail the others.
func (w *writer) handle(batch []*request) {
	commits := batch[0].rewrite == nil
	try := w.tryRewrite
	if commits {
		try = w.tryCommit
	}
	err := wrap(try(batch), "writing")
	if len(batch) > 1 && errors.As(err, new(uncommitted)) && driver.CodeOf(err) != driver.CodeUnavailable {
		for i := range batch {
			w.handle(batch[i : i+1])
		}
		return
	}
	if commits && err == nil {
		w.commits.Add(1)
		w.writes.Add(int64(len(batch)))
	}
	for _, r := range batch {
		if err != nil {
			r.versions, r.err = nil, err
		}
		close(r.ready)
	}
}

// tryCommit commits requests in one transaction. A refused request, such as one with a
// conflict, has its error in its result and does not fail the transaction.
func (w *writer) tryCommit(batch []*request) error {
	if err := w.endBulk(); err != nil {
		return uncommitted{err}
	}
	w.store.clock.Begin()
	defer w.store.clock.End()
	return w.transaction(func() error {
		for _, r := range batch {
			if err := w.apply(r); err != nil {
				return err
			}
		}
		return nil
	})
}

// apply writes the versions of a request, or none and sets its error. All are compared before the first
// is written: a savepoint would keep every page that is changed in memory. An error is of the transaction.
func (w *writer) apply(r *request) error {
	r.versions, r.err = nil, nil
	ids := make([][]byte, len(r.writes))
	for i := range r.writes {
		ids[i] = attemptID(r.writes[i].ID)
	}
	if before, err := w.repeated(r, ids); before || err != nil {
		return err
	}
	states, lost := make([]*state, len(r.writes)), []driver.Conflict(nil)
	for i := range r.writes {
		in := &r.writes[i]
		st, err := w.state(w.store.byName[in.Collection], in.Key)
		if err != nil {
			return err
		}
		if states[i] = st; !st.matches(in.Expected) {
			lost = append(lost, st.conflict(in))
		}
	}
	if lost != nil {
		r.err = &driver.ConflictError{Lost: lost}
		return nil
	}
	at := w.store.clock.Next()
	r.versions = make([]*driver.Version, len(r.writes))
	for i, st := range states {
		in := &r.writes[i]
		if in.Compare {
			continue
		}
		v, err := w.writeOne(st, in, at, ids[i])
		if err != nil {
			return err
		}
		r.versions[i] = v
		st.stored, st.seal, st.made = true, v.Seal, v
		w.setCurrent(st, v.Number, v)
	}
	return nil
}

// repeated reports whether writes of a request were committed before, by their IDs. It
// then sets the request's versions, or its error if only some of them were.
func (w *writer) repeated(r *request, ids [][]byte) (bool, error) {
	versions, found, made := make([]*driver.Version, len(ids)), 0, 0
	for i, id := range ids {
		if r.writes[i].Compare {
			continue
		}
		made++
		before, err := w.integer(`SELECT version FROM writes WHERE id = ?1`, id)
		if err != nil {
			return false, err
		}
		if before == 0 {
			continue
		}
		if versions[i], err = w.versionOf(before); err != nil {
			return false, err
		}
		found++
	}
	switch found {
	case 0:
		return false, nil
	case made:
		r.versions = versions
	default:
		r.err = invalidf("%d of the %d writes were committed before, by their IDs; repeat all writes of a commit, or give them new IDs", found, made)
	}
	return true, nil
}

// writeOne writes the next version of a document. The state is unchanged.
func (w *writer) writeOne(st *state, in *driver.Write, at driver.Instant, id []byte) (*driver.Version, error) {
	v := &driver.Version{
		Collection: in.Collection, Key: in.Key, Number: st.number + 1, RecordedAt: at, SupersededAt: driver.Forever,
		Op: in.Op, Deleted: in.Deleted, Author: in.Author, Message: in.Message, Group: in.Group,
		Changed: slices.Clone(in.Changed), Data: bytes.Clone(in.Data),
	}
	if v.Number > maxNumber {
		return nil, invalidf("%s %q has %d versions, the most that this store can hold of one document", v.Collection, v.Key, st.number)
	}
	expected := in.Expected
	if expected == 0 && st.deleted {
		expected = st.number // of the tombstone
	}
	if st.id == 0 {
		var err error
		if st.id, err = w.newDocument(st.coll); err != nil {
			return nil, err
		}
	}
	v.Seal = seal.New(st.seal, v, in.Schema)
	// The database compares: a row changes only where its number is the
	// expected one, and there is a new row only where there is none.
	won, err := w.writeDocument(st, v, v.Number, expected, v.Seal)
	if err == nil && !won {
		err = &driver.ConflictError{Lost: []driver.Conflict{st.conflict(in)}}
	}
	if err != nil {
		return nil, err
	}
	if err := w.writeVersion(st, v, v.Number, v.Seal); err != nil {
		return nil, err
	}
	_, err = w.integer(`INSERT INTO writes(id, version) VALUES(?1, ?2)`, id, st.id.version(v.Number))
	return v, err
}

// newDocument takes the next sequence number of a collection. If the document is not stored
// in the end, the number stays unused.
func (w *writer) newDocument(coll *collection) (docID, error) {
	if coll.sequence >= maxSequence {
		return 0, invalidf("%s holds %d documents, the most that this store can", coll.name, coll.sequence)
	}
	coll.sequence++
	coll.dirty = true
	return docOf(coll.id, coll.sequence), nil
}

// attemptID returns the stored identifier of a write: 16 bytes for a UUID in
// canonical form, else the text after "=".
func attemptID(id string) []byte {
	if u, err := uuid.Parse(id); err == nil && u.String() == id {
		return u[:]
	}
	return append([]byte{'='}, id...)
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

// state is the writer's copy of a document's last version, and of its entries in
// the indexes.
type state struct {
	coll    *collection
	key     string
	id      docID
	number  int64 // 0: it does not exist yet
	at      driver.Instant
	deleted bool
	seal    []byte
	stored  bool      // the document has a row
	entries [][]entry // for each index of the collection
	touched bool      // it is in pending.touched
	// made is the version that the running transaction has committed of it last; nil: none.
	made *driver.Version
	// rewritten is the number of the last version that was, in the running transaction; 0: none.
	rewritten int64
}

// entry is one value that an index holds for a document, since an instant.
// since is known only for entries that are not in the file yet.
type entry struct {
	value  []byte
	since  driver.Instant
	stored bool
}

// size is about what the entry takes in memory.
func (e entry) size() int { return len(e.value) + 64 }

const (
	sqlState          = `SELECT id, number, at, deleted, data, seal FROM documents WHERE collection = ?1 AND key = ?2`
	sqlInsertDocument = `INSERT INTO documents(id, number, at, op, deleted, author, message, grp, changed, collection, key, seal, data)
		VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?14, ?12)`
	sqlUpdateDocument = `UPDATE documents SET number = ?2, at = ?3, op = ?4, deleted = ?5, author = ?6, message = ?7,
		grp = ?8, changed = ?9, seal = ?14, data = ?12 WHERE id = ?1 AND number = ?13`
	sqlInsertVersion = `INSERT INTO versions(id, document, at, op, deleted, author, message, grp, changed, collection, key, seal, data)
		VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?14, ?12)`
)

// matches reports whether the last version is the expected one, see driver.Write.
func (st *state) matches(expected int64) bool {
	return st.number == expected || expected == 0 && st.deleted
}

func (st *state) conflict(in *driver.Write) driver.Conflict {
	return driver.Conflict{Collection: in.Collection, Key: in.Key, Expected: in.Expected, Actual: st.number}
}

// state returns a document's state, from the cache or from the file.
func (w *writer) state(coll *collection, key string) (*state, error) {
	if st := w.cache.get(coll, key); st != nil {
		return st, nil
	}
	st, err := w.readState(coll, key)
	if err == nil {
		w.cache.put(st)
	}
	return st, err
}

func (w *writer) readState(coll *collection, key string) (*state, error) {
	st := &state{coll: coll, key: key, entries: make([][]entry, len(coll.indexes))}
	s, err := w.prepare(sqlState, coll.id, key)
	if err != nil {
		return nil, err
	}
	row, err := s.Step()
	if err != nil || !row {
		return st, finish(s, err)
	}
	st.stored = true
	st.id = docID(s.ColumnInt64(0))
	st.number = s.ColumnInt64(1)
	st.at = driver.Instant(s.ColumnInt64(2))
	st.deleted = s.ColumnInt64(3) != 0
	data := w.bytes(s, 4)
	st.seal = w.bytes(s, 5)
	if err := finish(s, nil); err != nil {
		return nil, err
	}
	for i, values := range coll.valuesIn(&w.values, data) {
		for _, value := range values {
			st.entries[i] = append(st.entries[i], entry{value: bytes.Clone(value), stored: true})
		}
	}
	return st, nil
}

// writeDocument writes a version to the document's row if that still has the number
// before (0: if there is no row). It reports whether it did.
func (w *writer) writeDocument(st *state, v *driver.Version, number, before int64, seal []byte) (bool, error) {
	query := sqlUpdateDocument
	if before == 0 {
		query = sqlInsertDocument
	}
	return w.writeRow(query, st, v, seal, int64(st.id), number, before)
}

// writeVersion adds a version's row to the history.
func (w *writer) writeVersion(st *state, v *driver.Version, number int64, seal []byte) error {
	_, err := w.writeRow(sqlInsertVersion, st, v, seal, st.id.version(number), int64(st.id), 0)
	return err
}

// writeRow writes a version to a row of documents or versions, given its first two columns, and
// the number that a document's row must have. It reports whether a row was written.
func (w *writer) writeRow(query string, st *state, v *driver.Version, seal []byte, id, second, before int64) (bool, error) {
	w.written += int64(len(v.Data))
	s, err := w.Prepare(query)
	if err != nil {
		return false, err
	}
	for i, n := range [...]int64{id, second, int64(v.RecordedAt), int64(v.Op)} {
		s.BindInt64(i+1, n)
	}
	s.BindBool(5, v.Deleted)
	for i, text := range [...]string{v.Author, v.Message, v.Group, encodeNames(v.Changed)} {
		s.BindText(i+6, text)
	}
	s.BindInt64(10, st.coll.id)
	s.BindText(11, st.key)
	s.BindNull(12)
	if !v.Deleted {
		s.BindBytes(12, v.Data)
	}
	s.BindInt64(13, before)
	s.BindBytes(14, seal)
	_, err = s.Step()
	return w.Changes() == 1, finish(s, err)
}

// stateCache keeps the states of documents between transactions, so that a
// large load, or repeated updates of one document, do not read them again.
// Only the writer uses it.
type stateCache struct {
	states map[stateKey]*state
	bytes  int
}

type stateKey struct {
	coll int64
	key  string
}

// Limits of the cache between transactions.
const (
	maxCachedBytes  = 24 << 20
	maxCachedStates = 50_000
)

func (c *stateCache) get(coll *collection, key string) *state {
	return c.states[stateKey{coll.id, key}]
}

func (c *stateCache) put(st *state) {
	if c.states == nil {
		c.states = map[stateKey]*state{}
	}
	c.states[stateKey{st.coll.id, st.key}] = st
	c.bytes += len(st.key) + 256
	for _, entries := range st.entries {
		for _, e := range entries {
			c.bytes += e.size()
		}
	}
}

func (c *stateCache) clear() { *c = stateCache{} }

// trim clears a cache that is too large. It must not be called within a transaction,
// which needs all of its states.
func (c *stateCache) trim() {
	if c.bytes > maxCachedBytes || len(c.states) > maxCachedStates {
		c.clear()
	}
}

// checkWritable returns an error if the store was opened for inspection.
func (s *Store) checkWritable() error {
	if !s.opts.Inspect {
		return nil
	}
	return driver.Refused("the store takes no writes: it is only looked at",
		driver.Errorf(driver.CodeInvalid, "the store was opened to be looked at, and takes no writes"))
}
