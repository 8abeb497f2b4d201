package mongostore

import (
	"bytes"
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/tidwall/gjson"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/asof/asof/internal/lru"
	"github.com/asof/asof/storage/driver"
)

// record is a version with the other fields stored with it.
type record struct {
	driver.Version
	id string // of the write that made it; empty when it was loaded
	// loaded is the instant at which the version was loaded; 0 if it was committed; see arrived.
	loaded driver.Instant
}

// encodeVersion returns the stored form of a version:
//
//	{v, at, to, op, del, by, msg, grp, ch: [names], id, ld, s: seal, data, x: {search form}}
//
// data is the JSON unchanged, so that reads and exports have the same bytes.
// to is when the version was superseded; the current one has none.
func encodeVersion(r *record) bson.Raw {
	at, dst := bsoncore.AppendDocumentStart(make([]byte, 0, 256+3*len(r.Data)))
	dst = appendVersion(dst, r)
	if !r.Deleted {
		var search int32
		search, dst = bsoncore.AppendDocumentElementStart(dst, "x")
		dst = end(appendSearch(dst, gjson.ParseBytes(r.Data), 0), search)
	}
	return end(dst, at)
}

// appendVersion appends the elements of a version but for its search form.
func appendVersion(dst []byte, r *record) []byte {
	dst = bsoncore.AppendInt64Element(dst, "v", r.Number)
	dst = bsoncore.AppendInt64Element(dst, "at", int64(r.RecordedAt))
	if !r.Current() {
		dst = bsoncore.AppendInt64Element(dst, "to", int64(r.SupersededAt))
	}
	dst = bsoncore.AppendInt64Element(dst, "op", int64(r.Op))
	dst = bsoncore.AppendBooleanElement(dst, "del", r.Deleted)
	dst = bsoncore.AppendStringElement(dst, "by", encodeString(r.Author))
	dst = bsoncore.AppendStringElement(dst, "msg", encodeString(r.Message))
	dst = bsoncore.AppendStringElement(dst, "grp", encodeString(r.Group))
	list, dst := bsoncore.AppendArrayElementStart(dst, "ch")
	for i, name := range r.Changed {
		dst = bsoncore.AppendStringElement(dst, strconv.Itoa(i), name)
	}
	dst = end(dst, list)
	if r.id != "" {
		dst = bsoncore.AppendStringElement(dst, "id", r.id)
	}
	if r.loaded != 0 {
		dst = bsoncore.AppendInt64Element(dst, loadedField, int64(r.loaded))
	}
	if r.Seal != nil {
		dst = bsoncore.AppendBinaryElement(dst, "s", bson.TypeBinaryGeneric, r.Seal)
	}
	if !r.Deleted {
		dst = bsoncore.AppendStringElement(dst, "data", string(r.Data))
	}
	return dst
}

// decodeVersion decodes the result of encodeVersion, with or without data. The record
// shares no memory with its argument.
func decodeVersion(collection, key string, raw bson.Raw) (*record, error) {
	r := &record{Version: driver.Version{Collection: collection, Key: key, SupersededAt: driver.Forever}}
	elements, err := raw.Elements()
	if err != nil {
		return nil, layoutError(collection, key, "it is not a document")
	}
	for _, e := range elements {
		v, name := e.Value(), e.Key()
		ok := true
		switch name {
		case "v":
			r.Number, ok = v.Int64OK()
		case "at":
			ok = readInstant(&r.RecordedAt, v)
		case "to":
			ok = readInstant(&r.SupersededAt, v)
		case "op":
			var op int64
			op, ok = v.Int64OK()
			r.Op = driver.Op(op)
		case "del":
			r.Deleted, ok = v.BooleanOK()
		case "by":
			r.Author, ok = v.StringValueOK()
			r.Author = decodeString(r.Author)
		case "msg":
			r.Message, ok = v.StringValueOK()
			r.Message = decodeString(r.Message)
		case "grp":
			r.Group, ok = v.StringValueOK()
			r.Group = decodeString(r.Group)
		case "ch":
			r.Changed, ok = readNames(v)
		case "id":
			r.id, ok = v.StringValueOK()
		case loadedField:
			ok = readInstant(&r.loaded, v)
		case "s":
			_, r.Seal, ok = v.BinaryOK()
			r.Seal = bytes.Clone(r.Seal)
		case "data":
			r.Data, ok = readData(v)
		}
		if !ok {
			return nil, layoutError(collection, key, name+" is not of its type")
		}
	}
	if r.Number < 1 || r.RecordedAt <= 0 || r.Op < driver.OpCreate || r.Op > driver.OpErase {
		return nil, layoutError(collection, key, "a version has no number, time or operation")
	}
	return r, nil
}

func readInstant(dst *driver.Instant, v bson.RawValue) bool {
	i, ok := v.Int64OK()
	*dst = driver.Instant(i)
	return ok
}

func instantOf(t bson.DateTime) driver.Instant    { return driver.InstantOf(t.Time()) }
func microseconds(d time.Duration) driver.Instant { return driver.Instant(d.Microseconds()) }

func readData(v bson.RawValue) ([]byte, bool) {
	const lengths = 4 + 1 // the length before and the NUL after
	if v.Type != bson.TypeString || len(v.Value) < lengths {
		return nil, false
	}
	return bytes.Clone(v.Value[4 : len(v.Value)-1]), true
}

func readNames(v bson.RawValue) ([]string, bool) {
	list, ok := v.ArrayOK()
	if !ok {
		return nil, false
	}
	values, err := list.Values()
	if err != nil || len(values) == 0 {
		return nil, err == nil
	}
	names := make([]string, len(values))
	for i, value := range values {
		if names[i], ok = value.StringValueOK(); !ok {
			return nil, false
		}
	}
	return names, true
}

func layoutError(collection, key, what string) error {
	return driver.Errorf(driver.CodeInternal,
		"%s %q does not have the layout of asof's documents: %s; another program may have written into the collection", collection, key, what)
}

// key reads the key of a document.
func (c *collection) key(id bson.RawValue) (string, error) {
	key, ok := id.StringValueOK()
	if !ok {
		return "", layoutError(c.name, id.String(), "its _id is not text")
	}
	return decodeString(key), nil
}

// version reads a version that is a field of a document.
func (c *collection) version(key string, v bson.RawValue) (*record, error) {
	raw, ok := v.DocumentOK()
	if !ok {
		return nil, layoutError(c.name, key, "it has no version")
	}
	return decodeVersion(c.name, key, raw)
}

// Filters, orders and indexes use the search form of a document.
// Each member becomes a small document with one member for each kind that its
// value reads as, so that a comparison of a kind never meets a value of another:
//
//	{"name":"Go","stars":5,"tags":["a"]}
//	{name: {s: "Go"}, stars: {i: 5, f: …, m: "6…"}, tags: {l: [{s: "a"}]}}
//
// Floats (f) and decimals (m) are encoded such that their order is exact.
// Objects are under o, lists under l, so that paths do not enter lists implicitly.
// Null members are left out; null elements are empty documents.
// Values deeper than maxDepth are replaced by {z: true}: they exist, and their content
// is not in the search form.

// maxDepth is how many levels of objects and lists the search form has. Each
// takes two levels of BSON, of which the server allows 100; filters look at fewer.
const maxDepth = 40

// appendSearch appends the elements of an object's search form.
func appendSearch(dst []byte, object gjson.Result, depth int) []byte {
	object.ForEach(func(name, value gjson.Result) bool {
		if value.Type == gjson.Null {
			return true
		}
		var at int32
		at, dst = bsoncore.AppendDocumentElementStart(dst, memberName(text(name)))
		dst = appendValue(dst, value, depth+1)
		dst = end(dst, at)
		return true
	})
	return dst
}

// appendValue appends the readings of one value.
func appendValue(dst []byte, v gjson.Result, depth int) []byte {
	switch v.Type {
	case gjson.True, gjson.False:
		return bsoncore.AppendBooleanElement(dst, "b", v.Type == gjson.True)
	case gjson.String:
		s := text(v)
		dst = bsoncore.AppendStringElement(dst, "s", encodeString(s))
		if s == "" || s[0] != '-' && (s[0] < '0' || s[0] > '9') {
			return dst
		}
		return appendReadings(dst, textAs, s, driver.KindInstant, driver.KindDate, driver.KindDecimal)
	case gjson.Number:
		before := len(dst)
		dst = appendReadings(dst, numberAs, v.Raw, driver.KindInt, driver.KindFloat, driver.KindDecimal)
		if len(dst) == before {
			dst = bsoncore.AppendBooleanElement(dst, readingCut, true)
		}
		return dst
	case gjson.JSON:
		return appendNested(dst, v, depth)
	case gjson.Null:
	}
	return dst
}

func appendReadings(dst []byte, read func(driver.Kind, string) any, s string, kinds ...driver.Kind) []byte {
	for _, kind := range kinds {
		switch x := read(kind, s).(type) {
		case int64:
			dst = bsoncore.AppendInt64Element(dst, readings[kind], x)
		case string:
			dst = bsoncore.AppendStringElement(dst, readings[kind], x)
		}
	}
	return dst
}

func appendNested(dst []byte, v gjson.Result, depth int) []byte {
	if depth >= maxDepth {
		return bsoncore.AppendBooleanElement(dst, readingCut, true)
	}
	var at int32
	if v.IsObject() {
		at, dst = bsoncore.AppendDocumentElementStart(dst, readingObject)
		return end(appendSearch(dst, v, depth), at)
	}
	at, dst = bsoncore.AppendArrayElementStart(dst, readingList)
	i := 0
	v.ForEach(func(_, element gjson.Result) bool {
		var inner int32
		inner, dst = bsoncore.AppendDocumentElementStart(dst, strconv.Itoa(i))
		dst = end(appendValue(dst, element, depth+1), inner)
		i++
		return true
	})
	return end(dst, at)
}

// end ends the document or the list that begins at an offset.
func end(dst []byte, at int32) []byte {
	dst = append(dst, 0)
	return bsoncore.UpdateLength(dst, at, int32(len(dst[at:])))
}

// loadedField is the field with the instant at which a version was loaded.
const loadedField = "ld"

// arrived is when a version was committed or loaded. It grows with the number.
func (r *record) arrived() driver.Instant { return max(r.RecordedAt, r.loaded) }

// arrivalFields is a projection to versions with their arrival.
func arrivalFields(list string) bson.D {
	return append(versionFields(list), bson.E{Key: list + "." + loadedField, Value: 1})
}

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
	sync.Mutex
	*lru.Cache[documentKey, *head]
}

// Bounds of the cache, in bytes. It has room for several documents of any size that
// MongoDB takes.
const (
	headBytes    = 64 << 20
	headOverhead = 512 // of one head, beside its texts
)

// cached returns a document's head if it is cached and has the number.
func (c *collection) cached(key string, number int64) *head {
	cache := &c.store.heads
	cache.Lock()
	defer cache.Unlock()
	if known, ok := cache.Get(documentKey{c.name, key}); ok && known.Number == number {
		return known
	}
	return nil
}

// remember caches a head that the next version can follow on, which is one that is sealed,
// unless a later one is cached.
func (c *collection) remember(key string, known *head) {
	cache, d := &c.store.heads, documentKey{c.name, key}
	cache.Lock()
	defer cache.Unlock()
	if before, ok := cache.Peek(d); known.Seal != nil && (!ok || before.Number <= known.Number) {
		cache.Add(d, known, headOverhead+len(known.Key)+len(known.Message)+len(known.Data))
	}
}

func (c *collection) forget(key string) {
	cache := &c.store.heads
	cache.Lock()
	defer cache.Unlock()
	cache.Remove(documentKey{c.name, key})
}

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
	h, err := c.decodeHead(key, raw)
	if err == nil {
		c.remember(key, h)
	}
	return h, err
}

// readHeads reads heads of several documents, those that are there; see readHead.
func (c *collection) readHeads(ctx context.Context, keys []string) (map[string]*head, error) {
	ctx, cancel := c.store.step(ctx)
	defer cancel()
	heads := make(map[string]*head, len(keys))
	cursor, err := c.main.Find(ctx, bson.D{{Key: "_id", Value: in(encodeStrings(keys))}},
		options.Find().SetProjection(headFields()).SetBatchSize(int32(len(keys))))
	err = each(ctx, cursor, err, func(raw bson.Raw) error {
		key, err := c.key(raw.Lookup("_id"))
		if err != nil {
			return err
		}
		if heads[key] = new(head); !isPlaceholder(raw) {
			heads[key], err = c.decodeHead(key, raw)
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
