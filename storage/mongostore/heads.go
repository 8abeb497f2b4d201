package mongostore

import (
	"context"
	"errors"
	"sync"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/asof/asof/internal/lru"
	"github.com/asof/asof/storage/driver"
)

// head is a document's current version with what an update needs to know
// about its history. It is shared and never changed.
type head struct {
	record
	n, size int64
}

// heads caches the heads read or written last, of all collections, so that
// an update of what was just read takes one round trip. What it holds may be out
// of date: the update's own condition finds out.
type heads struct {
	mu    sync.Mutex // held for look-ups and changes only
	known *lru.Cache[documentKey, *head]
}

// Bounds of what is remembered, in bytes. There is room for several documents of
// any size that the database takes.
const (
	headBytes    = 64 << 20
	headOverhead = 512 // of one head, beside its texts
)

func newHeads(bound int) *heads {
	return &heads{known: lru.New[documentKey, *head](bound)}
}

// memory is what a head takes, in bytes, about.
func (h *head) memory() int { return headOverhead + len(h.Key) + len(h.Message) + len(h.Data) }

func (h *heads) get(d documentKey, number int64) *head {
	h.mu.Lock()
	defer h.mu.Unlock()
	if known, ok := h.known.Get(d); ok && known.Number == number {
		return known
	}
	return nil
}

// put remembers a head, unless a later one is known.
func (h *heads) put(d documentKey, known *head) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if before, ok := h.known.Peek(d); ok && before.Number > known.Number {
		return
	}
	h.known.Add(d, known, known.memory())
}

func (h *heads) drop(d documentKey) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.known.Remove(d)
}

// cached is a document's head with a number, if it is known.
func (c *collection) cached(key string, number int64) *head {
	return c.store.heads.get(documentKey{c.name, key}, number)
}

func (c *collection) remember(key string, known *head) {
	c.store.heads.put(documentKey{c.name, key}, known)
}

func (c *collection) forget(key string) { c.store.heads.drop(documentKey{c.name, key}) }

// headFields is the projection that decodeHead needs.
func headFields() bson.D {
	return append(arrivalFields("current"), bson.E{Key: "n", Value: 1}, bson.E{Key: "size", Value: 1})
}

func (c *collection) decodeHead(key string, raw bson.Raw) (*head, error) {
	r, err := c.version(key, raw.Lookup("current"))
	if err != nil {
		return nil, err
	}
	n, hasN := raw.Lookup("n").Int64OK()
	size, hasSize := raw.Lookup("size").Int64OK()
	if !hasN || !hasSize {
		return nil, layoutError(c.name, key, "n or size is missing")
	}
	return &head{record: *r, n: n, size: size}, nil
}

// readHead reads a document's head; nil where there is none, and one without a version
// where it is a placeholder.
func (c *collection) readHead(ctx context.Context, key string) (*head, error) {
	raw, err := c.main.FindOne(ctx, byKey(key), options.FindOne().SetProjection(headFields())).Raw()
	if errors.Is(err, mongo.ErrNoDocuments) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if isPlaceholder(raw) {
		return new(head), nil
	}
	h, err := c.decodeHead(key, raw)
	if err == nil {
		c.remember(key, h)
	}
	return h, err
}

// A document is made in two steps, because the database cannot refuse an insert that
// comes late: an empty one, which is nothing to readers, gets its first version by an
// update. One that was left behind is used by whoever makes the document later.
func placeholder(key string) bson.D {
	return append(byKey(key), bson.E{Key: "n", Value: int64(0)}, bson.E{Key: "size", Value: int64(0)})
}

func isPlaceholder(raw bson.Raw) bool {
	n, ok := raw.Lookup("n").Int64OK()
	return ok && n == 0 && raw.Lookup("current").IsZero()
}

// unmade selects a placeholder.
func unmade(key string) bson.D {
	return append(byKey(key), bson.E{Key: "current", Value: exists(false)})
}

// inTime is the condition that the database's clock is not past the life of a flight.
func (f *flight) inTime() bson.E {
	return bson.E{Key: "$expr", Value: bson.D{{Key: "$lt", Value: bson.A{"$$NOW", f.until}}}}
}

func byKey(key string) bson.D { return bson.D{{Key: "_id", Value: encodeString(key)}} }

// guard selects a document on condition that a version is current.
func guard(key string, number int64, at driver.Instant) bson.D {
	return append(byKey(key), bson.E{Key: "current.v", Value: number}, bson.E{Key: "current.at", Value: int64(at)})
}

// Remembered implements driver.Rememberer.
func (s *Store) Remembered(collection, key string, number int64) *driver.Version {
	c := s.collections[collection]
	if c == nil {
		return nil
	}
	if h := c.cached(key, number); h != nil {
		return &h.Version
	}
	return nil
}
