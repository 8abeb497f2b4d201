package mongostore

import (
	"context"
	"errors"

	lru "github.com/hashicorp/golang-lru/v2"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"

	"github.com/asof/asof/storage/driver"
)

// head is a document's current version with what an update needs to know
// about its history. It is shared and never changed.
type head struct {
	record
	n, size int64
}

// heads remembers the heads read or written last, so that an update of what
// was just read takes one round trip. What it holds may be out of date: the
// update's own condition finds out.
type heads struct{ cache *lru.Cache[string, *head] }

// Bounds of what is remembered.
const (
	maxHeads    = 4096
	maxHeadData = 32 << 10 // bytes
)

func newHeads() (*heads, error) {
	cache, err := lru.New[string, *head](maxHeads)
	if err != nil {
		return nil, internalf("%w", err)
	}
	return &heads{cache}, nil
}

func (h *heads) get(key string, number int64) *head {
	if known, ok := h.cache.Get(key); ok && known.Number == number {
		return known
	}
	return nil
}

// put remembers a head, unless a later one is known.
func (h *heads) put(key string, known *head) {
	if len(known.Data) > maxHeadData {
		h.cache.Remove(key)
		return
	}
	if before, ok := h.cache.Peek(key); !ok || before.Number <= known.Number {
		h.cache.Add(key, known)
	}
}

func (h *heads) drop(key string) { h.cache.Remove(key) }

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

// readHead reads a document's head; nil where there is none.
func (c *collection) readHead(ctx context.Context, key string) (*head, error) {
	return c.readHeadFrom(ctx, c.main, key)
}

// readLastHead is readHead that sees all that the database has carried out by now,
// also what a majority does not have yet: it waits for that.
func (c *collection) readLastHead(ctx context.Context, key string) (*head, error) {
	source := c.main
	if c.store.majorities {
		source = source.Clone(options.Collection().SetReadConcern(readconcern.Linearizable()))
	}
	return c.readHeadFrom(ctx, source, key)
}

func (c *collection) readHeadFrom(ctx context.Context, source *mongo.Collection, key string) (*head, error) {
	raw, err := source.FindOne(ctx, byKey(key), options.FindOne().SetProjection(headFields())).Raw()
	if errors.Is(err, mongo.ErrNoDocuments) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	h, err := c.decodeHead(key, raw)
	if err == nil {
		c.heads.put(key, h)
	}
	return h, err
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
	if h := c.heads.get(key, number); h != nil {
		return &h.Version
	}
	return nil
}
