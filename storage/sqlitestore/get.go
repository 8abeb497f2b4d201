package sqlitestore

import (
	"cmp"
	"context"
	"hash/maphash"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	"zombiezen.com/go/sqlite"

	"github.com/asof/asof/internal/lru"
	"github.com/asof/asof/storage/driver"
)

const (
	sqlDocumentByKey = `SELECT ` + documentColumns + ` FROM documents d WHERE d.collection = ?1 AND d.key = ?2`
	sqlDocumentByID  = `SELECT ` + documentColumns + ` FROM documents d WHERE d.id = ?1`
	// These yield a version and the next row, whose time is when the version was
	// superseded if it is of the same document.
	sqlVersionByID = `SELECT ` + versionColumns + ` FROM versions v WHERE v.id >= ?1 ORDER BY v.id LIMIT 2`
	sqlVersionAt   = `SELECT ` + versionColumns + ` FROM versions v WHERE v.id >= (
			SELECT w.id FROM versions w WHERE w.document = ?1 AND w.at <= ?2 ORDER BY w.at DESC LIMIT 1
		) ORDER BY v.id LIMIT 2`
)

// Identifiers are packed so that rows that are read together are adjacent:
//
//	document = collection << 28 | sequence in the collection
//	version  = document << 26 | number
//
// A collection is one range of documents, a document's history is one range of
// versions, and the previous version is the row before.
const (
	sequenceBits   = 28
	numberBits     = 26
	maxCollections = 1<<(63-sequenceBits-numberBits) - 1
	maxSequence    = 1<<sequenceBits - 1
	maxNumber      = 1<<numberBits - 1
)

type docID int64

func docOf(coll, seq int64) docID          { return docID(coll<<sequenceBits | seq) }
func (d docID) version(number int64) int64 { return int64(d)<<numberBits | number }
func docOfVersion(id int64) docID          { return docID(id >> numberBits) }

// Now implements driver.Engine.
func (s *Store) Now(context.Context) (driver.Instant, error) { return s.clock.Now(), nil }

// Settle implements driver.Engine.
func (s *Store) Settle(ctx context.Context, at driver.Instant) error {
	return wrap(s.clock.Settle(ctx, at), "waiting for commits in flight")
}

// Get implements driver.Engine.
func (s *Store) Get(ctx context.Context, collection string, refs []driver.Ref, fields []string) ([]*driver.Version, error) {
	coll, out := s.byName[collection], make([]*driver.Version, len(refs))
	if s.getCached(coll, refs, out) {
		return out, nil
	}
	err := s.read(ctx, func(c *conn) (err error) {
		for i, ref := range refs {
			if i%64 == 63 && ctx.Err() != nil {
				return ctx.Err()
			}
			if out[i], err = c.get(coll, ref, fields); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, wrap(err, "reading "+collection)
	}
	return out, nil
}

// getCached reads versions from the cache and reports whether all of them are there.
// A commit in between must not be visible in some of them and not in others.
func (s *Store) getCached(coll *collection, refs []driver.Ref, out []*driver.Version) bool {
	count := s.cached.current()
	if count == unsettled {
		return false
	}
	for i, ref := range refs {
		if out[i], _ = s.cached.find(documentKey{coll.id, ref.Key}, ref, count); out[i] == nil {
			return false
		}
	}
	return len(refs) < 2 || s.cached.count.Load() == count
}

// get reads one version from the cache or from the file.
func (c *conn) get(coll *collection, ref driver.Ref, fields []string) (*driver.Version, error) {
	k := documentKey{coll.id, ref.Key}
	known, id := c.store.cached.find(k, ref, c.count)
	if known != nil {
		return known, nil
	}
	v, id, err := c.lookUp(coll, ref, fields, id)
	if err == nil && v != nil && c.whole {
		c.store.cached.add(k, id, v, c.count)
	}
	return v, err
}

// lookUp reads a version from the file, and returns the row of its document. It reads
// the document's row first, which is enough for a current read, and the history
// only if that row is too new. If the row is given, it is known to be too new.
func (c *conn) lookUp(coll *collection, ref driver.Ref, fields []string, id docID) (*driver.Version, docID, error) {
	if ref.Number < 0 || ref.Number > maxNumber {
		return nil, 0, nil
	}
	if id != 0 {
		v, err := c.lookUpHistory(coll, ref, fields, id)
		return v, id, err
	}
	s, err := c.Prepare(sqlDocumentByKey)
	if err != nil {
		return nil, 0, err
	}
	s.BindInt64(1, coll.id)
	s.BindText(2, ref.Key)
	row, err := s.Step()
	if err != nil || !row {
		return nil, 0, finish(s, err)
	}
	var v *driver.Version
	doc, number, at := docID(s.ColumnInt64(colID)), s.ColumnInt64(colNumber), driver.Instant(s.ColumnInt64(colAt))
	if ref.Number == number || ref.Number == 0 && at <= ref.At {
		v, err = c.version(s, coll.name, true, fields)
	} else {
		c.store.cached.seen(documentKey{coll.id, ref.Key}, doc, at)
		v, err = c.lookUpHistory(coll, ref, fields, doc)
	}
	return v, doc, finish(s, err)
}

// lookUpHistory reads a version of a document from the history.
func (c *conn) lookUpHistory(coll *collection, ref driver.Ref, fields []string, doc docID) (*driver.Version, error) {
	if ref.Number > 0 {
		return c.versionByID(coll, doc.version(ref.Number), fields)
	}
	return c.versionAt(coll, doc, ref.At, fields)
}

// versionAt reads a document's version as of an instant from the history; nil if
// there was none.
func (c *conn) versionAt(coll *collection, doc docID, at driver.Instant, fields []string) (v *driver.Version, err error) {
	err = c.first(sqlVersionAt, func(s *sqlite.Stmt) (err error) {
		v, err = c.historic(s, coll, fields)
		return err
	}, int64(doc), int64(at))
	return v, err
}

// versionByID reads a version from the history by its row; nil if there is none.
func (c *conn) versionByID(coll *collection, id int64, fields []string) (v *driver.Version, err error) {
	err = c.first(sqlVersionByID, func(s *sqlite.Stmt) (err error) {
		if s.ColumnInt64(colID) == id {
			v, err = c.historic(s, coll, fields)
		}
		return err
	}, id)
	return v, err
}

// historic copies a statement's current row of the history. The statement yields the
// following row next.
func (c *conn) historic(s *sqlite.Stmt, coll *collection, fields []string) (*driver.Version, error) {
	v, err := c.version(s, coll.name, true, fields)
	if err != nil {
		return nil, err
	}
	doc := docOfVersion(s.ColumnInt64(colID))
	row, err := s.Step()
	if row && docOfVersion(s.ColumnInt64(colID)) == doc {
		v.SupersededAt = driver.Instant(s.ColumnInt64(colAt))
	}
	return v, err
}

// versionCache keeps versions that were read, for all connections. Only the time at
// which a version was superseded can change, so one that was superseded is valid
// for ever, and a document's last one until the next is committed. Each is
// found by its number, or by any instant at which it was current.
//
// A cached version must be the one in the reader's snapshot, or a page could mix
// two states. So the writer counts transactions: the count is odd while one is
// being committed. A snapshot that was taken with the same even count before and
// after contains exactly the transactions until then. Only versions that were read
// in such a snapshot are cached, with its count, and only returned to readers whose
// snapshot is as new. After each transaction, before it is acknowledged, the last
// versions of the documents that it changed give way to those that were committed, with the
// count of then, and of those whose history was rewritten the versions up to the last one
// that was are removed.
type versionCache struct {
	count  atomic.Int64
	seed   maphash.Seed
	limit  int // bytes of each part
	shards [versionShards]versionShard
}

// versionShards is the number of parts with a lock each, so that readers seldom wait
// for each other.
const versionShards = 8

// versionShard is one part of the cache, which holds whole documents.
type versionShard struct {
	mu   sync.Mutex
	docs *lru.Cache[documentKey, *cachedDocument]
}

type documentKey struct {
	collection int64
	key        string
}

// cachedDocument holds the cached versions of a document.
type cachedDocument struct {
	id       docID
	last     driver.Instant  // of the latest version that was seen
	versions []cachedVersion // by number
	bytes    int
}

type cachedVersion struct {
	*driver.Version
	count int64 // of the snapshot that it was read in
}

// Bounds of the cache: the bytes in all; of one version, since larger ones would
// evict too many others; the versions of one document, and its share of a part; and
// about how many bytes a version takes beside its text, with its notes.
const (
	versionCacheBytes = 8 << 20
	maxKnownBytes     = 16 << 10
	maxKnownVersions  = 64
	documentShare     = 4
	knownOverhead     = 512
)

// bytesOf is about how many bytes a version takes. It does not count short lists
// of names, which are shared between versions.
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

// unsettled is the count of a snapshot that was taken while a transaction was being
// committed.
const unsettled = -1

// newVersionCache returns a cache of about the given size in bytes; 0: of nothing.
func newVersionCache(bytes int) *versionCache {
	c := &versionCache{seed: maphash.MakeSeed(), limit: bytes / versionShards}
	for i := range c.shards {
		c.shards[i].docs = lru.New[documentKey, *cachedDocument](c.limit)
	}
	return c
}

func (c *versionCache) shard(k documentKey) *versionShard {
	return &c.shards[maphash.String(c.seed, k.key)%versionShards]
}

// find returns the version of a reference; nil if it is not cached. If the version is
// known to be superseded, it returns the row of the document in history, which is
// valid in any snapshot: rows do not move.
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

func (d *cachedDocument) find(ref driver.Ref, count int64) *driver.Version {
	after := sort.Search(len(d.versions), func(i int) bool {
		if ref.Number != 0 {
			return d.versions[i].Number > ref.Number
		}
		return d.versions[i].RecordedAt > ref.At
	})
	if after == 0 {
		return nil
	}
	v := d.versions[after-1]
	switch {
	case v.count > count: // also if the count is unsettled
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
	if count == unsettled || !c.holds(v) {
		return
	}
	shard := c.shard(k)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	// Read under the lock: committed removes changed versions with a greater count.
	if c.count.Load() != count {
		return
	}
	k.key = v.Key
	c.insert(shard, k, shard.document(k, id), cachedVersion{v, count})
}

// holds reports whether a version is small enough.
func (c *versionCache) holds(v *driver.Version) bool {
	return bytesOf(v) <= min(maxKnownBytes, c.limit)
}

// insert adds a version to those of a document, and drops others that are too many then.
func (c *versionCache) insert(shard *versionShard, k documentKey, d *cachedDocument, v cachedVersion) {
	d.last = max(d.last, v.RecordedAt)
	place, there := slices.BinarySearchFunc(d.versions, v.Number, func(k cachedVersion, n int64) int { return cmp.Compare(k.Number, n) })
	if there {
		return
	}
	v.Notes = new(driver.Notes) // it is not shared yet
	d.versions = slices.Insert(d.versions, place, v)
	d.bytes += bytesOf(v.Version)
	for len(d.versions) > maxKnownVersions || d.bytes > c.limit/documentShare {
		i := slices.IndexFunc(d.versions, func(old cachedVersion) bool { return old.Version != v.Version && old.SupersededAt != driver.Forever })
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

// document returns the cached versions of a document, and adds it if it is absent.
func (s *versionShard) document(k documentKey, id docID) *cachedDocument {
	if d, ok := s.docs.Get(k); ok {
		return d
	}
	d := &cachedDocument{id: id, bytes: len(k.key) + knownOverhead}
	s.docs.Add(k, d, d.bytes)
	return d
}

func (d *cachedDocument) drop(i int) {
	d.bytes -= bytesOf(d.versions[i].Version)
	d.versions = slices.Delete(d.versions, i, i+1)
}

// committing is called before a transaction is committed.
func (c *versionCache) committing() { c.count.Add(1) }

// committed is called after a commit, before it is acknowledged, with the documents
// that it changed. Those that are read get their new last versions, for the next who reads or
// changes them. If it failed, or its outcome is unknown, ok is false.
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
			if last := len(d.versions) - 1; st.rewritten == 0 && last >= 0 && d.versions[last].SupersededAt == driver.Forever {
				d.drop(last)
			}
			for len(d.versions) > 0 && d.versions[0].Number <= st.rewritten {
				d.drop(0)
			}
			shard.docs.Resize(k, d.bytes)
			if v := st.made; v != nil && c.holds(v) {
				for _, text := range [...]*string{&v.Key, &v.Author, &v.Message, &v.Group} {
					*text = strings.Clone(*text) // it may be a part of a large text
				}
				c.insert(shard, k, d, cachedVersion{v, c.count.Load() + 1})
			}
		}
		st.rewritten, st.made = 0, nil
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
