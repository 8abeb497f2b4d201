package httpapi

import (
	"context"
	"sync"

	"github.com/99designs/gqlgen/graphql"
	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// lru is a cache that keeps what was used last, bounded in entries and in
// bytes of what the entries are made of.
type lru[T any] struct {
	mu       sync.Mutex
	entries  *simplelru.LRU[string, T]
	size     func(key string, value T) int
	bytes    int
	maxBytes int
}

var _ graphql.Cache[string] = (*lru[string])(nil)

// newLRU makes a cache of at most the given entries (at least one) and bytes,
// as size counts them.
func newLRU[T any](entries, maxBytes int, size func(key string, value T) int) *lru[T] {
	c := &lru[T]{size: size, maxBytes: maxBytes}
	inner, err := simplelru.NewLRU(max(entries, 1), func(key string, value T) {
		c.bytes -= size(key, value)
	})
	if err != nil {
		panic(err) // only for a size below one
	}
	c.entries = inner
	return c
}

// Get returns what was added under a key and not evicted since.
func (c *lru[T]) Get(_ context.Context, key string) (T, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.entries.Get(key)
}

// Add keeps a value unless it would fill more than an eighth of the cache.
func (c *lru[T]) Add(_ context.Context, key string, value T) {
	size := c.size(key, value)
	if size > c.maxBytes/8 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.entries.Remove(key)
	c.entries.Add(key, value)
	c.bytes += size
	for c.bytes > c.maxBytes {
		c.entries.RemoveOldest()
	}
}
