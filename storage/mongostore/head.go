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

// head is a document's current version with the size of its history, which an update
// needs. It is shared and never changed.
type head struct {
	record
	n, size int64
}

// heads caches the heads read or written last, of all collections, so that an update of
// a document that was just read takes one round trip. They may be out of date: then the
// condition of the update does not hold.
type heads struct {
	mu    sync.Mutex // held for look-ups and changes only
	known *lru.Cache[documentKey, *head]
}

// Bounds of the cache, in bytes. It has room for several documents of any size that
// MongoDB takes.
const (
	headBytes    = 64 << 20
	headOverhead = 512 // of one head, beside its texts
)

func newHeads(bound int) *heads {
	return &heads{known: lru.New[documentKey, *head](bound)}
}

// memory is about how many bytes a head takes.
func (h *head) memory() int { return headOverhead + len(h.Key) + len(h.Message) + len(h.Data) }

func (h *heads) get(d documentKey, number int64) *head {
	h.mu.Lock()
	defer h.mu.Unlock()
	if known, ok := h.known.Get(d); ok && known.Number == number {
		return known
	}
	return nil
}

// put caches a head, unless a later one is cached.
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

// cached returns a document's head if it is cached and has the number.
func (c *collection) cached(key string, number int64) *head {
	return c.store.heads.get(documentKey{c.name, key}, number)
}

// remember caches a head that the next version can follow on: one that is sealed.
func (c *collection) remember(key string, known *head) {
	if known.Seal != nil {
		c.store.heads.put(documentKey{c.name, key}, known)
	}
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

// readHead reads a document's head; nil if there is no document, and one without a
// version for a placeholder.
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
	h, err := c.sealedHead(ctx, key, raw)
	if err == nil {
		c.remember(key, h)
	}
	return h, err
}

// readHeads reads heads of several documents, those that are there; see readHead.
func (c *collection) readHeads(ctx context.Context, keys []string) (map[string]*head, error) {
	ids := make(bson.A, len(keys))
	for i, key := range keys {
		ids[i] = encodeString(key)
	}
	ctx, cancel := c.store.step(ctx)
	defer cancel()
	heads := make(map[string]*head, len(keys))
	cursor, err := c.main.Find(ctx, bson.D{{Key: "_id", Value: in(ids)}}, options.Find().SetProjection(headFields()))
	err = each(ctx, cursor, err, func(raw bson.Raw) error {
		key, err := c.key(raw.Lookup("_id"))
		if err != nil {
			return err
		}
		if heads[key] = new(head); !isPlaceholder(raw) {
			heads[key], err = c.sealedHead(ctx, key, raw)
		}
		return err
	})
	return heads, err
}

// A document is created in two steps, because the database cannot refuse a late insert:
// a placeholder, which readers ignore, gets its first version by an update. A
// placeholder that was left over is used when the document is created later.
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

// Remembered implements driver.Rememberer.
func (s *Store) Remembered(_ context.Context, collection, key string, number int64) (*driver.Version, error) {
	if c := s.collections[collection]; c != nil {
		if h := c.cached(key, number); h != nil {
			return &h.Version, nil
		}
	}
	return nil, nil
}
