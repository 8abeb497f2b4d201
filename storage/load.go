package storage

import (
	"context"
	"slices"
	"sync"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/normal"
)

// Load adds versions that were recorded elsewhere, in the order given, with
// their own times, authors and data in normal form (see Type.Validate and
// package normal). It works out which members each one changed, and fills
// Changed of the versions given. Op 0 stands for an import. Errors are the
// engine's: a *driver.LoadError names the version.
func (s *Store) Load(ctx context.Context, vs []driver.Version) (driver.LoadResult, error) {
	if err := s.fillChanged(ctx, vs); err != nil {
		return driver.LoadResult{}, err
	}
	res, err := s.engine.Load(ctx, vs)
	if err != nil {
		s.loaded.clear()
	}
	return res, err
}

func (s *Store) fillChanged(ctx context.Context, vs []driver.Version) error {
	s.loaded.shrink()
	if err := s.readPrevious(ctx, vs); err != nil {
		return err
	}
	for i := range vs {
		v := &vs[i]
		if v.Op == 0 {
			v.Op = driver.OpImport
		}
		before := s.loaded.swap(v.Collection, v.Key, v.RecordedAt, v.Data)
		v.Changed = normal.Changed(before, v.Data)
	}
	return nil
}

// readPrevious reads the states before the first versions of those documents
// that the cache does not know, one read for each collection.
func (s *Store) readPrevious(ctx context.Context, vs []driver.Version) error {
	refs := map[string][]driver.Ref{}
	for i := range vs {
		v := &vs[i]
		if !s.loaded.knows(v.Collection, v.Key, v.RecordedAt) {
			refs[v.Collection] = append(refs[v.Collection], driver.Ref{Key: v.Key, At: v.RecordedAt - 1})
			s.loaded.swap(v.Collection, v.Key, v.RecordedAt-1, nil) // asked for once
		}
	}
	for collection, rs := range refs {
		if s.byCollection[collection] == nil {
			continue // the engine refuses it
		}
		before, err := s.engine.Get(ctx, collection, rs)
		if err != nil {
			s.loaded.clear()
			return err
		}
		for i, v := range before {
			s.loaded.swap(collection, rs[i].Key, rs[i].At, dataOf(v))
		}
	}
	return nil
}

// maxLoaded bounds what a loadCache holds, in bytes.
const maxLoaded = 64 << 20

// loadCache holds the last states that were loaded, so that an import need not
// read back what it has just written.
type loadCache struct {
	mu    sync.Mutex
	docs  map[loadKey]loadState
	bytes int
}

type loadKey struct{ collection, key string }

type loadState struct {
	at   driver.Instant
	data []byte
}

// knows reports whether the state before an instant is known.
func (c *loadCache) knows(collection, key string, at driver.Instant) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	state, ok := c.docs[loadKey{collection, key}]
	return ok && state.at < at
}

// swap sets a document's state and returns the one before.
func (c *loadCache) swap(collection, key string, at driver.Instant, data []byte) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := loadKey{collection, key}
	before := c.docs[k]
	if c.docs == nil {
		c.docs = map[loadKey]loadState{}
	}
	c.docs[k] = loadState{at, slices.Clone(data)}
	c.bytes += len(data) - len(before.data)
	return before.data
}

func (c *loadCache) forget(collection, key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := loadKey{collection, key}
	c.bytes -= len(c.docs[k].data)
	delete(c.docs, k)
}

// shrink empties a cache that has grown too large.
func (c *loadCache) shrink() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bytes > maxLoaded {
		c.docs, c.bytes = nil, 0
	}
}

func (c *loadCache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.docs, c.bytes = nil, 0
}
