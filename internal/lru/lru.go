// Package lru has the one bounded cache: it keeps the entries that were used last, as many as
// a number of bytes has room for.
package lru

import (
	"math"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// entryBytes is what an entry takes beside its key and value, about.
const entryBytes = 256

// Cache is a cache of values by key. It is not safe for concurrent use.
type Cache[K comparable, V any] struct {
	entries *simplelru.LRU[K, *entry[V]]
	bytes   int
	most    int
}

type entry[V any] struct {
	value V
	bytes int
}

// New returns an empty cache of at most a number of bytes.
func New[K comparable, V any](most int) *Cache[K, V] {
	c := &Cache[K, V]{most: most}
	entries, err := simplelru.NewLRU(math.MaxInt, func(_ K, e *entry[V]) { c.bytes -= e.bytes })
	if err != nil {
		panic(err) // only for a size below one
	}
	c.entries = entries
	return c
}

// Get returns the value of a key, which is then the one used last.
func (c *Cache[K, V]) Get(key K) (value V, ok bool) {
	if e, ok := c.entries.Get(key); ok {
		return e.value, true
	}
	return value, false
}

// Peek returns the value of a key, which does not count as use.
func (c *Cache[K, V]) Peek(key K) (value V, ok bool) {
	if e, ok := c.entries.Peek(key); ok {
		return e.value, true
	}
	return value, false
}

// Add keeps a value of a size in bytes, in place of the key's earlier one, and evicts others
// if there is no room: also the new one, if it alone has none.
func (c *Cache[K, V]) Add(key K, value V, bytes int) {
	c.entries.Remove(key)
	c.entries.Add(key, &entry[V]{value: value})
	c.Resize(key, bytes)
}

// Resize sets the size of the value of a key, in bytes.
func (c *Cache[K, V]) Resize(key K, bytes int) {
	e, ok := c.entries.Peek(key)
	if !ok {
		return
	}
	c.bytes += bytes + entryBytes - e.bytes
	e.bytes = bytes + entryBytes
	for c.bytes > c.most {
		c.entries.RemoveOldest()
	}
}

// Remove forgets the value of a key.
func (c *Cache[K, V]) Remove(key K) { c.entries.Remove(key) }

// Purge forgets everything.
func (c *Cache[K, V]) Purge() { c.entries.Purge() }

// Len returns the number of values.
func (c *Cache[K, V]) Len() int { return c.entries.Len() }

// Bytes returns what all values take, with about 256 for each beside its own.
func (c *Cache[K, V]) Bytes() int { return c.bytes }
