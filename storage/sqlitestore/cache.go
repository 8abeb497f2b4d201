package sqlitestore

import (
	"cmp"
	"hash/maphash"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/asof/asof/internal/lru"
	"github.com/asof/asof/storage/driver"
)

// versionCache keeps versions that were read, for all connections. A version
// never changes but for when it was superseded, so one that was superseded is
// good for ever, and a document's last one until the next is committed. Each is
// found by its number, or by any instant at which it was current.
//
// What is kept must be what the reader's snapshot holds, or a page could mix
// two states. So the writer counts: the count is odd while a transaction is
// being committed. A snapshot that was taken with the same even count before and
// after holds just the transactions until then; only what was read in such a
// snapshot is kept, together with its count, and only readers whose snapshot is
// as new are given it. After each transaction the last versions of the documents
// that it changed are dropped, before anyone is told of it.
type versionCache struct {
	count  atomic.Int64
	seed   maphash.Seed
	limit  int // bytes of each part
	shards [versionShards]versionShard
}

// versionShards is how many parts the cache has, so that readers seldom wait for
// each other.
const versionShards = 8

// versionShard is one part of the cache, which holds whole documents.
type versionShard struct {
	mu   sync.Mutex
	docs *lru.Cache[documentKey, *knownDocument]
}

type documentKey struct {
	collection int64
	key        string
}

// knownDocument is what is kept of a document.
type knownDocument struct {
	id       docID
	last     driver.Instant // of the latest version that was seen
	versions []knownVersion // by number
	bytes    int
}

type knownVersion struct {
	*driver.Version
	count int64 // of the snapshot that it was read in
}

// Bounds of the cache: bytes in all; of one version, since larger ones would
// drive too many others out; versions of one document, and the share of a part
// that it may have; and what a version takes beside its text, about, with its
// notes.
const (
	versionCacheBytes = 8 << 20
	maxKnownBytes     = 16 << 10
	maxKnownVersions  = 64
	documentShare     = 4
	knownOverhead     = 512
)

// bytesOf is how many bytes a version takes, about. Lists of names that recur are
// shared; long ones seldom do.
func bytesOf(v *driver.Version) int {
	names := 0
	for _, name := range v.Changed {
		names += len(name) + int(unsafe.Sizeof(name))
	}
	if names <= maxInternedNames {
		names = 0
	}
	return len(v.Data) + len(v.Key) + len(v.Author) + len(v.Message) + len(v.Group) + names + knownOverhead
}

// unsettled is the count of a snapshot of which nothing is known.
const unsettled = -1

// newVersionCache makes a cache of about so many bytes; 0: nothing is kept.
func newVersionCache(bytes int) *versionCache {
	c := &versionCache{seed: maphash.MakeSeed(), limit: bytes / versionShards}
	for i := range c.shards {
		c.shards[i].docs = lru.New[documentKey, *knownDocument](c.limit)
	}
	return c
}

func (c *versionCache) shard(k documentKey) *versionShard {
	return &c.shards[maphash.String(c.seed, k.key)%versionShards]
}

// find returns the version that a reference means; nil where it is not kept. The
// row of the document is returned where the version is known to be in the
// history, which needs no snapshot: rows do not move, and what was superseded
// once stays so.
func (c *versionCache) find(k documentKey, ref driver.Ref, count int64) (v *driver.Version, history docID) {
	shard := c.shard(k)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	d, ok := shard.docs.Get(k)
	if !ok {
		return nil, 0
	}
	if v = d.find(ref, count); v == nil && (ref.Number > 0 || ref.Number == 0 && ref.At < d.last) {
		history = d.id
	}
	return v, history
}

func (d *knownDocument) find(ref driver.Ref, count int64) *driver.Version {
	behind := sort.Search(len(d.versions), func(i int) bool {
		if ref.Number != 0 {
			return d.versions[i].Number > ref.Number
		}
		return d.versions[i].RecordedAt > ref.At
	})
	if behind == 0 {
		return nil
	}
	v := d.versions[behind-1]
	switch {
	case v.count > count: // also where nothing is known of the snapshot
		return nil
	case ref.Number != 0 && v.Number != ref.Number:
		return nil
	case ref.Number == 0 && v.SupersededAt <= ref.At && v.SupersededAt != driver.Forever:
		return nil
	}
	return v.Version
}

// add keeps a version that was read in a snapshot.
func (c *versionCache) add(k documentKey, id docID, v *driver.Version, count int64) {
	size := bytesOf(v)
	if count == unsettled || size > min(maxKnownBytes, c.limit) {
		return
	}
	shard := c.shard(k)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	// Read under the lock: who drops what changed does so with a greater count.
	if c.count.Load() != count {
		return
	}
	k.key = v.Key
	d := shard.document(k, id)
	d.last = max(d.last, v.RecordedAt)
	place, there := slices.BinarySearchFunc(d.versions, v.Number, func(k knownVersion, n int64) int { return cmp.Compare(k.Number, n) })
	if there {
		return
	}
	v.Notes = new(driver.Notes) // nobody else has it yet
	d.versions = slices.Insert(d.versions, place, knownVersion{v, count})
	d.bytes += size
	for len(d.versions) > maxKnownVersions || d.bytes > c.limit/documentShare {
		i := oldest(d.versions, v)
		if i < 0 {
			break
		}
		d.drop(i)
	}
	shard.docs.Resize(k, d.bytes)
}

// seen notes that a document has a version of an instant.
func (c *versionCache) seen(k documentKey, id docID, at driver.Instant) {
	if c.limit == 0 {
		return
	}
	shard := c.shard(k)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	k.key = strings.Clone(k.key) // it may be a part of a large text
	d := shard.document(k, id)
	d.last = max(d.last, at)
}

// document returns what is kept of a document, which it makes if need be.
func (s *versionShard) document(k documentKey, id docID) *knownDocument {
	if d, ok := s.docs.Get(k); ok {
		return d
	}
	d := &knownDocument{id: id, bytes: len(k.key) + knownOverhead}
	s.docs.Add(k, d, d.bytes)
	return d
}

// oldest returns the place of the version that was kept first, as far as counts
// tell, but for one, and for the document's last; -1 where there are no others.
func oldest(versions []knownVersion, but *driver.Version) int {
	first := -1
	for i, v := range versions {
		if v.Version != but && v.SupersededAt != driver.Forever && (first < 0 || v.count < versions[first].count) {
			first = i
		}
	}
	return first
}

func (d *knownDocument) drop(i int) {
	d.bytes -= bytesOf(d.versions[i].Version)
	d.versions = slices.Delete(d.versions, i, i+1)
}

// committing is called before a transaction is committed.
func (c *versionCache) committing() { c.count.Add(1) }

// committed is called when it was, or was not, with the documents that it
// changed, before anyone is told. Where it is not known what happened, ok is
// false.
func (c *versionCache) committed(changed []*state, ok bool) {
	if !ok {
		for i := range c.shards {
			shard := &c.shards[i]
			shard.mu.Lock()
			shard.docs.Purge()
			shard.mu.Unlock()
		}
	}
	for _, st := range changed {
		k := documentKey{st.coll.id, st.key}
		shard := c.shard(k)
		shard.mu.Lock()
		if d, ok := shard.docs.Peek(k); ok {
			if last := len(d.versions) - 1; last >= 0 && d.versions[last].SupersededAt == driver.Forever {
				d.drop(last)
				shard.docs.Resize(k, d.bytes)
			}
		}
		shard.mu.Unlock()
	}
	c.count.Add(1)
}

// current returns the count, unsettled while a transaction is being committed.
func (c *versionCache) current() int64 {
	if n := c.count.Load(); n&1 == 0 {
		return n
	}
	return unsettled
}

// stateCache keeps the states of documents between transactions, so that a
// bulk load, or a row of updates of one document, does not read them again.
// It belongs to the writer, the only one who changes documents.
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
			c.bytes += len(e.value) + 64
		}
	}
}

func (c *stateCache) clear() { *c = stateCache{} }

// trim empties a cache that has grown too large. It must not be called within
// a transaction, whose states are all here.
func (c *stateCache) trim() {
	if c.bytes > maxCachedBytes || len(c.states) > maxCachedStates {
		c.clear()
	}
}
