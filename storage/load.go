package storage

import (
	"context"
	"sync"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/normal"
	"github.com/asof/asof/storage/seal"
)

// Load adds versions that were recorded elsewhere, in the order given, with
// their own times, authors and data in normal form (see Type.Validate and
// package normal), which stays as it is from then on. It works out which members
// each one changed, and fills Changed of the versions given. Op 0 stands for an import. A *driver.LoadError
// names the version that is refused: by the engine, or because it deletes a
// document that never existed.
func (s *Store) Load(ctx context.Context, vs []driver.Version) (driver.LoadResult, error) {
	if err := s.PrepareLoad(ctx, vs); err != nil {
		return driver.LoadResult{}, err
	}
	return s.LoadPrepared(ctx, vs)
}

// PrepareLoad does the first half of Load: it fills Op and Changed. Batches are
// prepared in the order in which they are loaded, by one goroutine; while one
// is prepared, the one before it may still be on its way into the engine, and
// if that fails, what was prepared meanwhile must be prepared again.
func (s *Store) PrepareLoad(ctx context.Context, vs []driver.Version) error {
	s.loaded.begin()
	err := s.fillChanged(ctx, vs)
	if err != nil {
		s.loaded.fail()
	}
	return err
}

// DropPrepared says that what was prepared since the last LoadPrepared will not
// be loaded.
func (s *Store) DropPrepared() { s.loaded.fail() }

// LoadPrepared does the second half of Load: it gives the engine what
// PrepareLoad has prepared.
func (s *Store) LoadPrepared(ctx context.Context, vs []driver.Version) (driver.LoadResult, error) {
	res, err := s.all.Load(ctx, vs)
	s.feed.wake()
	if err != nil {
		s.loaded.fail()
	}
	return res, err
}

func (s *Store) fillChanged(ctx context.Context, vs []driver.Version) error {
	if err := s.readPrevious(ctx, vs); err != nil {
		return err
	}
	pruned, err := s.prunedNow(ctx, vs)
	if err != nil {
		return err
	}
	horizons := map[string]driver.Instant{}
	for i := range vs {
		v := &vs[i]
		if v.Op == 0 {
			v.Op = driver.OpImport
		}
		before := s.loaded.swap(v.Collection, v.Key, loadState{at: v.RecordedAt, data: v.Data, existed: true, pruned: pruned[v], erased: seal.Erased(v.Seal)})
		if before.pruned {
			horizons[v.Collection] = max(horizons[v.Collection], v.RecordedAt)
		}
		if v.Op == driver.OpPruned {
			v.Changed = nil
			continue
		}
		if v.Deleted && !before.existed && s.byCollection[v.Collection] != nil {
			return &driver.LoadError{Index: i, Err: driver.Errorf(driver.CodeInvalid, "%s %q cannot be deleted: it has no version before %s", v.Collection, v.Key, v.RecordedAt)}
		}
		if v.Changed != nil && (before.data == nil && before.existed || before.erased || seal.Erased(v.Seal)) {
			continue // after one that was pruned or erased, or was loaded before it was erased: it is said what has changed
		}
		v.Changed = normal.Changed(before.data, v.Data)
	}
	return s.raiseHorizons(ctx, horizons)
}

// prunedNow returns those of the versions to load that were pruned elsewhere and are not here
// in full.
func (s *Store) prunedNow(ctx context.Context, vs []driver.Version) (map[*driver.Version]bool, error) {
	pruned := map[string][]*driver.Version{}
	for i := range vs {
		if v := &vs[i]; v.Op == driver.OpPruned && s.byCollection[v.Collection] != nil { // else the engine refuses it
			pruned[v.Collection] = append(pruned[v.Collection], v)
		}
	}
	now := map[*driver.Version]bool{}
	for collection, vs := range pruned {
		refs := make([]driver.Ref, len(vs))
		for i, v := range vs {
			refs[i] = driver.Ref{Key: v.Key, At: v.RecordedAt}
		}
		here, err := s.all.Get(ctx, collection, refs, []string{})
		if err != nil {
			return nil, err
		}
		for i, v := range here {
			now[vs[i]] = v == nil || v.RecordedAt != vs[i].RecordedAt || v.Op == driver.OpPruned
		}
	}
	return now, nil
}

// readPrevious reads the states before the first versions of those documents
// that the cache does not know, one read for each collection.
func (s *Store) readPrevious(ctx context.Context, vs []driver.Version) error {
	refs := map[string][]driver.Ref{}
	for i := range vs {
		v := &vs[i]
		if !s.loaded.knows(v.Collection, v.Key, v.RecordedAt) {
			refs[v.Collection] = append(refs[v.Collection], driver.Ref{Key: v.Key, At: v.RecordedAt - 1})
			s.loaded.swap(v.Collection, v.Key, loadState{at: v.RecordedAt - 1}) // asked for once
		}
	}
	for collection, rs := range refs {
		if s.byCollection[collection] == nil {
			continue // the engine refuses it
		}
		before, err := s.all.Get(ctx, collection, rs, nil)
		if err != nil {
			return err
		}
		for i, v := range before {
			s.loaded.swap(collection, rs[i].Key, loadState{at: rs[i].At, data: dataOf(v), existed: v != nil, pruned: v != nil && v.Op == driver.OpPruned, erased: v != nil && seal.Erased(v.Seal)})
		}
	}
	return nil
}

// maxLoaded bounds each of the two generations of a loadCache, in bytes.
const maxLoaded = 32 << 20

// loadCache holds the last states that were loaded, so that an import need not
// read back what it has just written, nor wait until it is written. It forgets
// by generations: what the last batch loaded is in one of the two, whatever the
// sizes.
type loadCache struct {
	mu       sync.Mutex
	docs     map[loadKey]loadState // this generation
	bytes    int                   // of its data
	older    map[loadKey]loadState // the one before
	outdated bool                  // a load has failed: what is here was never stored
}

type loadKey struct{ collection, key string }

type loadState struct {
	at      driver.Instant
	data    []byte
	existed bool // there was a version, which may be a tombstone
	pruned  bool // it is one that was pruned
	erased  bool // it is one of which something was erased, perhaps in another form, see Store.eraseOnce
}

// begin makes room for a batch.
func (c *loadCache) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.outdated:
		c.docs, c.older, c.bytes, c.outdated = nil, nil, 0, false
	case c.bytes > maxLoaded:
		c.docs, c.older, c.bytes = nil, c.docs, 0
	}
}

// fail says that a batch was not stored.
func (c *loadCache) fail() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.outdated = true
}

func (c *loadCache) get(k loadKey) (state loadState, ok bool) {
	if state, ok = c.docs[k]; !ok {
		state, ok = c.older[k]
	}
	return state, ok
}

// knows reports whether the state before an instant is known.
func (c *loadCache) knows(collection, key string, at driver.Instant) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	state, ok := c.get(loadKey{collection, key})
	return ok && state.at < at
}

// swap sets a document's state and returns the one before.
func (c *loadCache) swap(collection, key string, state loadState) (before loadState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := loadKey{collection, key}
	before, _ = c.get(k)
	if c.docs == nil {
		c.docs = map[loadKey]loadState{}
	}
	c.bytes += len(state.data) - len(c.docs[k].data)
	c.docs[k] = state
	return before
}

func (c *loadCache) forget(collection, key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := loadKey{collection, key}
	c.bytes -= len(c.docs[k].data)
	delete(c.docs, k)
	delete(c.older, k)
}
