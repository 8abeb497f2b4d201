// Package lru has the one bounded cache: it keeps the entries that were used last, as many as
// a number of bytes has room for.
package lru

import (
	"math"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// entryBytes is what an entry takes beside its key and value, about.
const entryBytes = 256

// Cache is a cache of values by key, the library's but for Add. It is not safe for concurrent use.
type Cache[K comparable, V any] struct {
	*simplelru.LRU[K, V]

	sizes map[K]int
	bytes int
	most  int
}

// New returns an empty cache of at most a number of bytes.
func New[K comparable, V any](most int) *Cache[K, V] {
	c := &Cache[K, V]{sizes: map[K]int{}, most: most}
	entries, err := simplelru.NewLRU(math.MaxInt, func(key K, _ V) {
		c.bytes -= c.sizes[key]
		delete(c.sizes, key)
	})
	if err != nil {
		panic(err) // only for a size below one
	}
	c.LRU = entries
	return c
}

// Add keeps a value of a size in bytes, in place of the key's earlier one, and evicts others
// if there is no room: also the new one, if it alone has none.
func (c *Cache[K, V]) Add(key K, value V, bytes int) {
	c.LRU.Add(key, value)
	c.Resize(key, bytes)
}

// Resize sets the size of the value of a key, in bytes.
func (c *Cache[K, V]) Resize(key K, bytes int) {
	if !c.Contains(key) {
		return
	}
	c.bytes += bytes + entryBytes - c.sizes[key]
	c.sizes[key] = bytes + entryBytes
	for c.bytes > c.most {
		c.RemoveOldest()
	}
}

// Bytes returns what all values take, with about 256 for each beside its own.
func (c *Cache[K, V]) Bytes() int { return c.bytes }
