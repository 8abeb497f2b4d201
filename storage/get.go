package storage

import (
	"bytes"
	"context"
	"iter"
	"slices"
	"sync/atomic"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/fault"
	"github.com/asof/asof/storage/record"
	"github.com/asof/asof/storage/seal"
)

// Get returns the document with a key: as it is now, as it was at an instant,
// or in one of its versions; the zero T where it does not exist or is deleted
// in that state.
// Errors: AMBIGUOUS_VERSION for both asOf and version, AS_OF_IN_FUTURE,
// VERSION_NOT_FOUND for a version that never was, BAD_USER_INPUT for a version
// below 1.
func (c *Collection[T]) Get(ctx context.Context, key string, asOf *driver.Instant, version *int) (T, error) {
	d, err := c.store.Document(ctx, c.t, key, asOf, version, nil)
	return c.Wrap(d), err
}

// Document is Collection.Get without a model: nil for a document that does not
// exist in the state asked for. Fields are the stored names of the top-level
// members that the caller will look at; nil means all of them.
func (s *Store) Document(ctx context.Context, t *record.Type, key string, asOf *driver.Instant, version *int, fields []string) (*Document, error) {
	op, err := s.operation(ctx)
	if err != nil {
		return nil, err
	}
	if asOf != nil && version != nil {
		return nil, fault.Errorf(fault.CodeAmbiguousVersion, "asOf and version are both given: name the state by one of them")
	}
	if driver.KeyProblem(key) != "" {
		return nil, nil // no document has such a key
	}
	if version != nil {
		now := op.now(nil)
		v, err := s.numbered(ctx, now, t, key, *version, fields)
		if err != nil || v == nil || v.Deleted {
			return nil, err
		}
		return s.newDocument(t, v, v.RecordedAt, now, true), nil
	}
	at := op.begin
	if asOf != nil {
		at = *asOf
		if err := s.settled(ctx, op, at); err != nil {
			return nil, err
		}
	}
	v, err := s.getOne(ctx, t, driver.Ref{Key: key, At: at}, fields)
	if err != nil || v == nil || v.Deleted {
		return nil, err
	}
	return s.newDocument(t, v, at, at, asOf != nil), nil
}

// numbered returns a version by its number; nil for an unknown key. A version
// that was recorded after now is not there yet. Now is later than the beginning
// of the operation where that has written something itself.
func (s *Store) numbered(ctx context.Context, now driver.Instant, t *record.Type, key string, number int, fields []string) (*driver.Version, error) {
	if number < 1 {
		return nil, fault.BadInput("version %d: versions are counted from 1", number)
	}
	ref := driver.Ref{Key: key, Number: int64(number)}
	v, err := s.getOne(ctx, t, ref, fields)
	if err != nil || v != nil && v.RecordedAt <= now {
		return v, err
	}
	return nil, s.noVersion(ctx, now, t, ref)
}

// noVersion is the error of a number that no version had at an instant; nil for an unknown key.
func (s *Store) noVersion(ctx context.Context, now driver.Instant, t *record.Type, ref driver.Ref) error {
	last, err := s.getOne(ctx, t, driver.Ref{Key: ref.Key, At: now}, []string{})
	if err != nil || last == nil {
		return err
	}
	return fault.Errorf(fault.CodeVersionNotFound, "%s %q has no version %d: its versions are 1 to %d", t.Name, ref.Key, ref.Number, last.Number)
}

// getOne reads one version; nil where there is none. Fields are the stored names of the top-level members that the
// caller will look at; nil: all.
func (s *Store) getOne(ctx context.Context, t *record.Type, ref driver.Ref, fields []string) (*driver.Version, error) {
	vs, err := s.engine.Get(ctx, t.Collection, []driver.Ref{ref}, fields)
	switch {
	case err != nil:
		return nil, fromDriver(ctx, err)
	case vs[0] != nil && vs[0].Op == driver.OpPruned:
		return nil, s.pruned(ctx, t, vs[0])
	}
	return vs[0], nil
}

// GetKeys reads documents by key, all at once: the result has one element for
// each reference, nil where the document does not exist. Each is read at its
// reference's instant. It is what loaders are made of. Fields are the stored
// names of the top-level members that the caller will look at; nil: all. Of one that was
// pruned, or has no form of today, nothing can be read but the error, see PrunedError.
func (s *Store) GetKeys(ctx context.Context, t *record.Type, refs []KeyAt, fields []string) ([]*Document, error) {
	rs := make([]driver.Ref, len(refs))
	for i, r := range refs {
		rs[i] = driver.Ref{Key: r.Key, At: r.At}
	}
	vs, failed, err := s.getEach(ctx, t.Collection, rs, fields)
	if err != nil {
		return nil, fromDriver(ctx, err)
	}
	lists(ctx, vs...)
	docs := make([]*Document, len(refs))
	all := make([]Document, len(refs)) // allocated together
	for i, v := range vs {
		if v != nil && (!v.Deleted || v.Op == driver.OpPruned) {
			docs[i] = &all[i]
			s.fillDocument(docs[i], t, v, refs[i].At, refs[i].At, refs[i].Pinned)
		} else if failed[i] != nil {
			docs[i] = &all[i]
			s.fillDocument(docs[i], t, &driver.Version{Collection: t.Collection, Key: refs[i].Key, Op: driver.OpPruned, Deleted: true}, refs[i].At, refs[i].At, false)
			docs[i].failed = failed[i]
		}
	}
	inBatch(docs)
	return docs, nil
}

// KeyAt names a document at an instant.
type KeyAt struct {
	Key    string
	At     driver.Instant
	Pinned bool // the id shall name the version
}

// CheckInstant checks an instant that a user named: AS_OF_IN_FUTURE if it has not
// come yet.
func (s *Store) CheckInstant(ctx context.Context, at driver.Instant) error {
	op, err := s.operation(ctx)
	if err != nil {
		return err
	}
	return s.settled(ctx, op, at)
}

// Node returns the document with a global id, at the version that the id names;
// nil where it does not exist. The id of a deletion, which lists of versions
// have, names what they show: the state that was deleted.
func (s *Store) Node(ctx context.Context, id string) (Node, error) {
	return only(s.Nodes(ctx, []string{id}))
}

// only returns the one element of a list, or what is wrong with it.
func only[T any](list []T, bad []ElementError, err error) (one T, _ error) {
	switch {
	case err != nil:
		return one, err
	case len(bad) > 0:
		return one, bad[0].Err
	}
	return list[0], nil
}

// everything asks for all fields of documents of any type.
func everything(*record.Type) []string { return nil }

// DocumentByID is Node without a model. Fields says which stored names the
// caller will look at in documents of a type; nil: all.
func (s *Store) DocumentByID(ctx context.Context, id string, fields func(*record.Type) []string) (*Document, error) {
	return only(s.DocumentsByID(ctx, []string{id}, fields))
}

func (s *Store) resolveID(id string) (t *record.Type, ref driver.Ref, err error) {
	name, key, number, err := parseID(id)
	if err != nil {
		return nil, ref, err
	}
	if t = s.byName[name]; t == nil {
		return nil, ref, fault.BadInput("id %s names the type %s, which does not exist", fault.QuoteShort(id), fault.QuoteShort(name))
	}
	return t, driver.Ref{Key: key, Number: number}, nil
}

// ElementError is what is wrong with one element of a list, which is null then.
type ElementError struct {
	Index int
	Err   error
}

// Nodes returns the documents with the given ids, in their order, nil where one
// does not exist. It reads each collection once, and once more for each deletion and for each
// version that there is not. An id that is malformed, or
// names a type or a version that there is not, spoils no other: its errors are
// returned in the order of the ids.
func (s *Store) Nodes(ctx context.Context, ids []string) ([]Node, []ElementError, error) {
	docs, bad, err := s.DocumentsByID(ctx, ids, everything)
	if err != nil {
		return nil, nil, err
	}
	out := make([]Node, len(docs))
	for i, d := range docs {
		if d != nil {
			out[i] = s.wrapAny(d)
		}
	}
	return out, bad, nil
}

// DocumentsByID is Nodes without models. Fields is that of DocumentByID.
func (s *Store) DocumentsByID(ctx context.Context, ids []string, fields func(*record.Type) []string) (docs []*Document, bad []ElementError, err error) {
	if len(ids) > s.limits.PageMax {
		return nil, nil, fault.BadInput("ids: %d ids are asked for; at most %d can be read at once (--max-page)", len(ids), s.limits.PageMax)
	}
	op, err := s.operation(ctx)
	if err != nil {
		return nil, nil, err
	}
	now := op.now(nil)
	refs, places := map[*record.Type][]driver.Ref{}, map[*record.Type][]int{}
	for i, id := range ids {
		t, ref, err := s.resolveID(id)
		if err != nil {
			bad = append(bad, ElementError{i, err})
			continue
		}
		if ref.Number == 0 {
			ref.At = now
		}
		refs[t], places[t] = append(refs[t], ref), append(places[t], i)
	}
	docs = make([]*Document, len(ids))
	for _, t := range s.types {
		if refs[t] == nil {
			continue
		}
		vs, failed, err := s.getEach(ctx, t.Collection, refs[t], fields(t))
		if err != nil {
			return nil, nil, fromDriver(ctx, err)
		}
		found := make([]*Document, len(vs))
		for i, v := range vs {
			place, err := places[t][i], fromDriver(ctx, failed[i])
			if err == nil {
				found[i], err = s.byID(ctx, t, refs[t][i], now, v, fields(t))
			}
			if docs[place] = found[i]; err != nil {
				bad = append(bad, ElementError{place, err})
			}
		}
		inBatch(found)
	}
	slices.SortFunc(bad, func(a, b ElementError) int { return a.Index - b.Index })
	return docs, bad, nil
}

// byID returns the document that an id shows, of which v was read.
func (s *Store) byID(ctx context.Context, t *record.Type, ref driver.Ref, now driver.Instant, v *driver.Version, fields []string) (*Document, error) {
	switch {
	case ref.Number > 0 && (v == nil || v.RecordedAt > now):
		return nil, s.noVersion(ctx, now, t, ref)
	case v != nil && v.Op == driver.OpPruned:
		return nil, s.pruned(ctx, t, v)
	case ref.Number == 0 && live(v):
		return s.newDocument(t, v, now, now, false), nil
	case ref.Number == 0:
		return nil, nil
	}
	d := s.newDocument(t, v, v.RecordedAt, now, true)
	if v.Deleted {
		was, err := s.getOne(ctx, t, driver.Ref{Key: v.Key, Number: v.Number - 1}, fields)
		if err != nil || !live(was) {
			return nil, err
		}
		d.raw = was.Data
	}
	return d, nil
}

// moreVersions is how many times as many versions are asked for where those before
// were too few.
const moreVersions = 4

// readLog reads what a query selects, without pruned versions where it does not ask for
// them. It checks the hints, which an engine may ignore;
// where that leaves too few versions, it asks for more. Its errors are *Error. One beside a version is of that
// alone (see isUnreadable), and what follows on it can be read; any other is the last.
func (s *Store) readLog(ctx context.Context, q *driver.LogQuery) iter.Seq2[*driver.Version, error] {
	return func(yield func(*driver.Version, error) bool) {
		asked, found := *q, 0
		if len(q.Keys) == 1 && len(q.Hints.Ops) == 0 {
			if t := s.byCollection[q.Collections[0]]; t != nil && s.prunes(t) {
				asked.Hints.Ops = notPruned // of a document, most may be pruned
			}
		}
		for {
			var last *driver.Version
			n := 0
			for v, err := range s.engine.Log(ctx, &asked) {
				if err == nil {
					err = ended(ctx)
				}
				if err != nil && !isUnreadable(err) {
					yield(nil, fromDriver(ctx, err))
					return
				}
				n, last = n+1, v
				if !q.Hints.Hold(v) || v.Op == driver.OpPruned && len(q.Hints.Ops) == 0 {
					continue
				}
				lists(ctx, v)
				if found++; !yield(v, fromDriver(ctx, err)) || found == q.Limit {
					return
				}
			}
			if q.Limit == 0 || n < asked.Limit {
				return
			}
			after := last.Position()
			asked.After, asked.Limit = &after, moreVersions*asked.Limit
		}
	}
}

// notPruned are the operations of versions that can be read.
var notPruned = []driver.Op{driver.OpCreate, driver.OpUpdate, driver.OpDelete, driver.OpRestore, driver.OpImport, driver.OpErase}

// logOf is the log of a document between two numbers, both included.
func logOf(t *record.Type, key string, first, last int64) *driver.LogQuery {
	return &driver.LogQuery{Collections: []string{t.Collection}, Keys: []string{key}, FromNumber: first, ToNumber: last + 1}
}

// entry is a version of a log with the one before it, nil for a document's first.
type entry struct{ version, before *driver.Version }

// begins reports whether what is before the version was pruned, so that nobody knows what it
// changed.
func (e entry) begins() bool { return e.before != nil && e.before.Op == driver.OpPruned }

// How many versions are read before those before them are, at first and at most, and after how many bytes.
const (
	firstEntries = 2
	mostEntries  = 128
	entryBytes   = 1 << 20
)

// entries is readLog with the version before each: the one beside it in the log, where that is the one, and else
// one that is read by number, those of many entries at once.
func (s *Store) entries(ctx context.Context, q *driver.LogQuery) iter.Seq2[entry, error] {
	return func(yield func(entry, error) bool) {
		var read []*driver.Version
		previous := 0 // of read: it was yielded, and may be before the next one
		flush := func(end int) bool {
			list, err := s.withBefore(ctx, q, read, previous, end)
			if err != nil {
				yield(entry{}, err)
				return false
			}
			previous = min(1, end)
			left := copy(read, read[end-previous:])
			clear(read[left:]) // versions may be large
			read = read[:left]
			for i, e := range list {
				list[i] = entry{}
				if err := ended(ctx); err != nil { // what is made of each takes time
					yield(entry{}, err)
					return false
				}
				if !yield(e, nil) {
					return false
				}
			}
			return true
		}
		most, size := firstEntries, 0
		if q.Limit > 0 {
			most = min(q.Limit, mostEntries)
		}
		for v, err := range s.readLog(ctx, q) {
			if err != nil {
				yield(entry{}, err)
				return
			}
			read = append(read, v)
			if size += v.Size(); len(read)-previous < most && size < entryBytes {
				continue
			}
			end := len(read)
			if end-previous > 1 && q.Backward && len(q.Keys) == 1 {
				end-- // what is before the last one probably comes next
			}
			if !flush(end) {
				return
			}
			most, size = min(2*most, mostEntries), 0
		}
		flush(len(read))
	}
}

// beforeNarrowed is how many versions changesOf yields before it asks again for fewer.
const beforeNarrowed = 64

// changesOf is entries, the newest first, for what looks for those that changed any of the members whose
// stored names a function returns: as there are fewer of them, it leaves out what did not. It yields
// all to those who may not read some versions, for whom what changed is found with another read of each.
func (s *Store) changesOf(ctx context.Context, q *driver.LogQuery, names func() []string) iter.Seq2[entry, error] {
	return func(yield func(entry, error) bool) {
		asked, left := *q, len(names())
		asked.Backward = true
		w := s.guard.view(ctx, q.Collections[0])
		for more := true; more; {
			more = false
			n := 0
			for e, err := range s.entries(ctx, &asked) {
				if !yield(e, err) {
					return
				}
				if n++; n%beforeNarrowed > 0 || w != nil && w.rows != nil {
					continue
				}
				if open := names(); len(open) < left {
					after := e.version.Position()
					asked.After, asked.Hints.Changed, left, more = &after, open, len(open), true
					break
				}
			}
		}
	}
}

// withBefore returns versions of a log, from one place to another, with those before them.
func (s *Store) withBefore(ctx context.Context, q *driver.LogQuery, read []*driver.Version, from, to int) ([]entry, error) {
	list := make([]entry, 0, to-from)
	refs, places := map[string][]driver.Ref{}, map[string][]int{}
	for i := from; i < to; i++ {
		v, beside := read[i], i-1
		if q.Backward {
			beside = i + 1
		}
		e := entry{version: v}
		if 0 <= beside && beside < len(read) && read[beside].Collection == v.Collection && read[beside].Key == v.Key && read[beside].Number == v.Number-1 {
			e.before = read[beside]
		} else if v.Number > 1 {
			refs[v.Collection] = append(refs[v.Collection], driver.Ref{Key: v.Key, Number: v.Number - 1})
			places[v.Collection] = append(places[v.Collection], len(list))
		}
		list = append(list, e)
	}
	for collection, rs := range refs {
		vs, err := s.engine.Get(ctx, collection, rs, q.Fields)
		if err != nil {
			return nil, fromDriver(ctx, err)
		}
		for i, v := range vs {
			if v == nil {
				return nil, fromDriver(ctx, driver.Errorf(driver.CodeInternal, "%s %q: version %d is missing in the middle of its history", collection, rs[i].Key, rs[i].Number))
			}
			list[places[collection][i]].before = v
		}
	}
	return list, nil
}

// VerifyReads returns an engine of which one in so many reads is verified: 1 is each. The versions
// that it returns are then read again, with those before them, and the read fails with CodeInternal where
// one is not as it was sealed.
func VerifyReads(engine driver.Engine, every int64) driver.Engine {
	return &verifying{Engine: engine, every: every}
}

type verifying struct {
	driver.Engine
	every int64
	reads atomic.Int64
}

// Unwrap is for driver.As.
func (e *verifying) Unwrap() driver.Engine { return e.Engine }

func (e *verifying) Get(ctx context.Context, collection string, refs []driver.Ref, fields []string) ([]*driver.Version, error) {
	vs, err := e.Engine.Get(ctx, collection, refs, fields)
	return e.verified(ctx, vs, err)
}

func (e *verifying) Query(ctx context.Context, q *driver.Query) ([]*driver.Version, error) {
	vs, err := e.Engine.Query(ctx, q)
	return e.verified(ctx, vs, err)
}

func (e *verifying) Log(ctx context.Context, q *driver.LogQuery) iter.Seq2[*driver.Version, error] {
	return func(yield func(*driver.Version, error) bool) {
		for v, err := range e.Engine.Log(ctx, q) {
			if vs, wrong := e.verified(ctx, []*driver.Version{v}, err); vs == nil {
				v, err = nil, wrong
			}
			if !yield(v, err) || err != nil {
				return
			}
		}
	}
}

// verified returns what a read returned, versions of one collection: an error where it is their turn to be verified
// and one is not as it was sealed. Nil, and what has no seal, which asof check reports, is left out.
func (e *verifying) verified(ctx context.Context, vs []*driver.Version, err error) ([]*driver.Version, error) {
	if err != nil || e.reads.Add(1)%e.every != 0 {
		return vs, err
	}
	var refs []driver.Ref
	var read []*driver.Version
	for _, v := range vs {
		if v != nil && v.Seal != nil {
			refs = append(refs, driver.Ref{Key: v.Key, Number: v.Number}, driver.Ref{Key: v.Key, Number: max(1, v.Number-1)})
			read = append(read, v)
		}
	}
	if len(read) == 0 {
		return vs, nil
	}
	found, err := e.Engine.Get(ctx, read[0].Collection, refs, nil)
	if err != nil {
		return nil, err
	}
	for i, v := range read {
		is, previous := found[2*i], found[2*i+1]
		wrong := is == nil || previous == nil || !bytes.Equal(seal.Hash(is.Seal), seal.Hash(v.Seal))
		if !wrong {
			before := previous.Seal
			if v.Number == 1 {
				before = nil
			}
			wrong = seal.Verify(before, is) != nil
		}
		if wrong {
			return nil, driver.Errorf(driver.CodeInternal, "%s %q: version %d is not as it was sealed; asof check finds all that are not", v.Collection, v.Key, v.Number)
		}
	}
	return vs, nil
}
