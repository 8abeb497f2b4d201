package drivertest

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/driver/check"
	"github.com/asof/asof/storage/seal"
)

// NewModel returns an empty in-memory engine: the simplest implementation of
// driver.Engine that is right. Every read scans every document, and every
// condition decodes the documents that it looks at. It is the oracle that
// other engines are compared with, and is good enough for the tests of code
// above an engine; it is not meant to be fast. Its clock is the one given.
func NewModel(clock func() time.Time, collections []driver.Collection) driver.Engine {
	m := newModel(clock, collections)
	return m.guard(m)
}

// guard puts in front of the model, or of an engine made of it, what engines have there.
func (m *model) guard(engine driver.Engine) driver.Engine {
	return check.Guard(engine, slices.Collect(maps.Keys(m.documents)))
}

func newModel(clock func() time.Time, collections []driver.Collection) *model {
	m := &model{
		clock:     clock,
		documents: make(map[string]map[string][]*driver.Version),
		byID:      make(map[string]*driver.Version),
	}
	m.declare(collections)
	return m
}

// model keeps, for each document, all of its versions, oldest first. Versions
// are never changed once they were returned: superseding one replaces it.
type model struct {
	mu        sync.Mutex
	clock     func() time.Time
	documents map[string]map[string][]*driver.Version // by collection, by key
	byID      map[string]*driver.Version              // by Write.ID
	// floor is the latest instant that Now returned or a version has.
	floor  driver.Instant
	loaded driver.Instant // of the last load
}

func (m *model) declare(collections []driver.Collection) {
	for _, c := range collections {
		if m.documents[c.Name] == nil {
			m.documents[c.Name] = make(map[string][]*driver.Version)
		}
	}
}

// reopen gives the model another clock and more collections, over the same versions.
func (m *model) reopen(clock func() time.Time, collections []driver.Collection) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.clock = clock
	m.declare(collections)
}

// now never goes back and never falls behind a version.
func (m *model) now() driver.Instant { return max(m.floor, driver.InstantOf(m.clock())) }

func (m *model) Now(ctx context.Context) (driver.Instant, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.floor = m.now()
	return m.floor, nil
}

// Settle has nothing to wait for, since commits are made one at a time; it
// only promises that none will come at or before the instant.
func (m *model) Settle(ctx context.Context, at driver.Instant) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if now := m.now(); at > now {
		return driver.Errorf(driver.CodeInvalid, "%s is in the future: the engine's clock says %s", at, now)
	}
	m.floor = max(m.floor, at)
	return nil
}

func (m *model) Get(ctx context.Context, collection string, refs []driver.Ref, _ []string) ([]*driver.Version, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	found := make([]*driver.Version, len(refs))
	for i, ref := range refs {
		versions := m.documents[collection][ref.Key]
		if ref.Number == 0 {
			found[i] = versionAt(versions, ref.At)
			continue
		}
		for _, v := range versions {
			if v.Number == ref.Number {
				found[i] = v
			}
		}
	}
	return found, nil
}

// versionAt returns the last version recorded at or before an instant.
func versionAt(versions []*driver.Version, at driver.Instant) *driver.Version {
	var found *driver.Version
	for _, v := range versions {
		if v.RecordedAt <= at {
			found = v
		}
	}
	return found
}

func (m *model) Query(ctx context.Context, q *driver.Query) ([]*driver.Version, error) {
	found, _, err := m.find(q)
	return found, err
}

func (m *model) Count(ctx context.Context, q *driver.Query) (int64, error) {
	_, n, err := m.find(q)
	return n, err
}

// find returns the page of a query, and how many documents there are without it.
func (m *model) find(q *driver.Query) (found []*driver.Version, all int64, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	rows, err := m.match(q)
	all = int64(len(rows))
	for _, r := range page(rows, q) {
		found = append(found, r.version)
	}
	return found, all, err
}

// match chooses the version of each document first, and only then filters.
func (m *model) match(q *driver.Query) ([]row, error) {
	var rows []row
	for _, versions := range m.documents[q.Collection] {
		v := versionAt(versions, q.At)
		if v == nil || v.Deleted {
			continue
		}
		root, err := decode(v.Data)
		if err != nil {
			return nil, driver.Errorf(driver.CodeInternal, "%s %q version %d: %w", v.Collection, v.Key, v.Number, err)
		}
		if q.Filter == nil || holds(q.Filter, v, root) {
			rows = append(rows, row{version: v, values: orderValues(q.Order, v, root)})
		}
	}
	return rows, nil
}

func (m *model) Log(ctx context.Context, q *driver.LogQuery) iter.Seq2[*driver.Version, error] {
	return func(yield func(*driver.Version, error) bool) {
		versions, err := m.log(ctx, q)
		if err != nil {
			yield(nil, err)
			return
		}
		for _, v := range versions {
			if err := ctx.Err(); err != nil {
				yield(nil, driver.Errorf(driver.CodeUnavailable, "the request ended: %w", err))
				return
			}
			if !yield(v, nil) {
				return
			}
		}
	}
}

func (m *model) log(ctx context.Context, q *driver.LogQuery) ([]*driver.Version, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var found []*driver.Version
	for _, documents := range m.documents {
		for _, versions := range documents {
			for _, v := range versions {
				if logged(q, v) && q.Hints.Hold(v) {
					found = append(found, v)
				}
			}
		}
	}
	slices.SortFunc(found, func(a, b *driver.Version) int {
		c := a.Position().Compare(b.Position())
		if q.Backward {
			return -c
		}
		return c
	})
	if q.Limit > 0 && len(found) > q.Limit {
		found = found[:q.Limit]
	}
	return found, nil
}

func (m *model) Commit(ctx context.Context, ws []driver.Write) ([]*driver.Version, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	made, before, compared := make([]*driver.Version, len(ws)), 0, 0
	for i, w := range ws {
		if v := m.byID[w.ID]; v != nil && !w.Compare {
			// Again from the document, since it may have been superseded.
			made[i] = m.documents[v.Collection][v.Key][v.Number-1]
			before++
		}
		if w.Compare {
			compared++
		}
	}
	switch {
	case before+compared == len(ws):
		return made, nil
	case before > 0:
		return nil, driver.Errorf(driver.CodeInvalid, "%d of %d writes were committed before", before, len(ws)-compared)
	}
	var lost []driver.Conflict
	for _, w := range ws {
		last := m.last(w.Collection, w.Key)
		if absent := last == nil || last.Deleted; !(w.Expected == 0 && absent) && w.Expected != numberOf(last) {
			lost = append(lost, driver.Conflict{Collection: w.Collection, Key: w.Key, Expected: w.Expected, Actual: numberOf(last)})
		}
	}
	if len(lost) > 0 {
		return nil, &driver.ConflictError{Lost: lost}
	}
	at := max(driver.InstantOf(m.clock()), m.floor+1)
	for i, w := range ws {
		if w.Compare {
			continue
		}
		v := &driver.Version{
			Collection: w.Collection, Key: w.Key, RecordedAt: at, Op: w.Op, Deleted: w.Deleted,
			Author: w.Author, Message: w.Message, Group: w.Group,
			Changed: slices.Clone(w.Changed), Data: bytes.Clone(w.Data),
		}
		m.add(v, w.Schema)
		m.byID[w.ID] = v
		made[i] = v
	}
	return made, nil
}

// add appends a version to its document.
func (m *model) add(v *driver.Version, schema uint32) {
	versions := m.documents[v.Collection][v.Key]
	v.Number, v.SupersededAt = int64(len(versions))+1, driver.Forever
	if v.Seal == nil {
		v.Seal = seal.New(sealOf(m.last(v.Collection, v.Key)), v, schema)
	}
	if i := len(versions) - 1; i >= 0 {
		superseded := *versions[i]
		superseded.SupersededAt = v.RecordedAt
		versions[i] = &superseded
	}
	m.documents[v.Collection][v.Key] = append(versions, v)
	m.floor = max(m.floor, v.RecordedAt)
}

func (m *model) last(collection, key string) *driver.Version {
	versions := m.documents[collection][key]
	if len(versions) == 0 {
		return nil
	}
	return versions[len(versions)-1]
}

func sealOf(v *driver.Version) []byte {
	if v == nil {
		return nil
	}
	return v.Seal
}

func numberOf(v *driver.Version) int64 {
	if v == nil {
		return 0
	}
	return v.Number
}

func (m *model) Load(ctx context.Context, vs []driver.Version) (driver.LoadResult, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	// All or nothing: on an error the documents are put back.
	type document struct{ collection, key string }
	before := make(map[document][]*driver.Version)
	floor, now := m.floor, m.now()
	var result driver.LoadResult
	for i := range vs {
		d := document{vs[i].Collection, vs[i].Key}
		if _, saved := before[d]; !saved {
			before[d] = slices.Clone(m.documents[d.collection][d.key])
		}
		added, err := m.loadOne(&vs[i], now)
		switch {
		case err != nil:
			m.floor = floor
			for d, versions := range before {
				if len(versions) == 0 {
					delete(m.documents[d.collection], d.key)
				} else {
					m.documents[d.collection][d.key] = versions
				}
			}
			return driver.LoadResult{}, &driver.LoadError{Index: i, Err: err}
		case added:
			result.Added++
		default:
			result.Skipped++
		}
	}
	if result.Added > 0 {
		m.floor = max(m.floor+1, driver.InstantOf(m.clock()))
		m.loaded = m.floor
	}
	return result, nil
}

func (m *model) Rewrite(ctx context.Context, collection, key string, vs []driver.Version) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	versions := m.documents[collection][key]
	for i := range vs {
		if vs[i].Number >= int64(len(versions)) {
			return driver.Errorf(driver.CodeInvalid, "%q has no earlier version %d", key, vs[i].Number)
		}
	}
	for i := range vs {
		to := vs[i]
		was := versions[to.Number-1]
		if to.Seal != nil && !bytes.Equal(to.Seal, was.Seal) {
			continue
		}
		to.Collection, to.Key, to.RecordedAt, to.SupersededAt = collection, key, was.RecordedAt, was.SupersededAt
		to.Seal, to.Schema = seal.Rewritten(was, &to), 0
		to.Changed, to.Data = slices.Clone(to.Changed), bytes.Clone(to.Data)
		versions[to.Number-1] = &to
	}
	return nil
}

func (m *model) loadOne(v *driver.Version, now driver.Instant) (added bool, err error) {
	for _, there := range m.documents[v.Collection][v.Key] {
		if there.RecordedAt != v.RecordedAt {
			continue
		}
		if v.Number != 0 && v.Number != there.Number {
			return false, fmt.Errorf("%s %q: the version of %s is number %d, not %d",
				v.Collection, v.Key, v.RecordedAt, there.Number, v.Number)
		}
		if !sameContent(there, v) {
			return false, fmt.Errorf("%s %q: another version of %s is there already", v.Collection, v.Key, v.RecordedAt)
		}
		return false, nil
	}
	last := m.last(v.Collection, v.Key)
	switch {
	case v.RecordedAt > now:
		return false, fmt.Errorf("%s %q: %s is in the future", v.Collection, v.Key, v.RecordedAt)
	case last != nil && v.RecordedAt < last.RecordedAt:
		return false, fmt.Errorf("%s %q: %s is not after the last version, of %s",
			v.Collection, v.Key, v.RecordedAt, last.RecordedAt)
	case v.Number != 0 && v.Number != numberOf(last)+1:
		return false, fmt.Errorf("%s %q: number %d does not follow number %d", v.Collection, v.Key, v.Number, numberOf(last))
	}
	loaded := *v
	loaded.Changed, loaded.Data, loaded.Seal = slices.Clone(v.Changed), bytes.Clone(v.Data), bytes.Clone(v.Seal)
	loaded.Number = numberOf(last) + 1
	if v.Seal != nil {
		if err := seal.Verify(sealOf(last), &loaded); err != nil {
			return false, fmt.Errorf("%s %q: version %d %w", v.Collection, v.Key, loaded.Number, err)
		}
	}
	m.add(&loaded, 0)
	return true, nil
}

// sameContent compares what a version says, not how it came about: Op and
// Changed are left out, because a load sets them anew; as far as all of it is there.
func sameContent(a, b *driver.Version) bool {
	return seal.Same(a, b) || a.Deleted == b.Deleted && a.Author == b.Author && a.Message == b.Message &&
		a.Group == b.Group && bytes.Equal(a.Data, b.Data)
}

func (m *model) Loaded(ctx context.Context) (driver.Instant, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.loaded, nil
}

func (m *model) Stats(ctx context.Context) (driver.Stats, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var s driver.Stats
	for _, name := range slices.Sorted(maps.Keys(m.documents)) {
		c := driver.CollectionStats{Name: name}
		for _, versions := range m.documents[name] {
			if !versions[len(versions)-1].Deleted {
				c.Documents++
			}
			c.Versions += int64(len(versions))
			for _, v := range versions {
				s.Bytes += int64(len(v.Data))
			}
		}
		s.Add(c)
	}
	return s, nil
}

func (m *model) Ping(context.Context) error { return nil }

func (m *model) Check(ctx context.Context, report func(problem string)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, documents := range m.documents {
		for _, versions := range documents {
			for _, problem := range checkHistory(versions) {
				report(problem)
			}
		}
	}
	return nil
}

func (m *model) Close() error { return nil }
