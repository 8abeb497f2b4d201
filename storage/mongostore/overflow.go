package mongostore

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/asof/asof/storage/driver"
)

// superseded is a version as it is stored in prev and in runs.
type superseded struct {
	raw      bson.Raw
	number   int64
	from, to driver.Instant
}

// supersede encodes a version as superseded.
func supersede(r *record, to driver.Instant) superseded {
	old := *r
	old.SupersededAt = to
	return superseded{raw: encodeVersion(&old), number: old.Number, from: old.RecordedAt, to: to}
}

// When prev would exceed its bounds, 1/keepShare of them stays: the less stays, the
// more seldom versions move, and the less an update rewrites.
const keepShare = 4

// fewVersions is about how many versions stay in prev, of any size, unless together they
// take more than mostOfFew bytes: with fewer, each update would move one.
const (
	fewVersions = 5
	mostOfFew   = 1 << 20
)

// beside are the bounds of the history beside a current version of a size in bytes.
func (b Bounds) beside(current int) Bounds {
	b.Bytes = max(b.Bytes, min(fewVersions*current, mostOfFew))
	return b
}

// cut returns how many of the superseded versions move to the overflow, oldest first: none
// if all may stay in prev, otherwise so many that the rest takes a part of each
// bound. The last one stays in any case: its end is not certain before the commit that
// supersedes it, and what is in a run is.
func (b Bounds) cut(versions []superseded, size int64) int {
	if len(versions) <= b.Versions && size <= int64(b.Bytes) {
		return 0
	}
	kept := versions
	for len(kept) > max(1, b.Versions/keepShare) || len(kept) > 1 && size > int64(b.Bytes)/keepShare {
		size -= int64(len(kept[0].raw))
		kept = kept[1:]
	}
	return len(versions) - len(kept)
}

// runs divides versions into runs that are within the bounds.
func (b Bounds) runs(versions []superseded) [][]superseded {
	var list [][]superseded
	begin, size := 0, 0
	for i, v := range versions {
		if i > begin && (i-begin >= b.Versions || size+len(v.raw) > b.Bytes) {
			list = append(list, versions[begin:i])
			begin, size = i, 0
		}
		size += len(v.raw)
	}
	return append(list, versions[begin:])
}

// embedded is an encoded document as the value of a field. The driver copies it
// unchanged, and would decode a bson.Raw.
func embedded(raw bson.Raw) bson.RawValue {
	return bson.RawValue{Type: bson.TypeEmbeddedDocument, Value: raw}
}

// raws is a list of versions as the value of a field.
func raws(versions []superseded) bson.RawValue {
	at, list := bsoncore.AppendArrayStart(make([]byte, 0, sizeOf(versions)+int64(8*len(versions))+5))
	for i, v := range versions {
		list = bsoncore.AppendDocumentElement(list, strconv.Itoa(i), bsoncore.Document(v.raw))
	}
	return bson.RawValue{Type: bson.TypeArray, Value: end(list, at)}
}

// runOf is the document of one run.
func runOf(key string, run []superseded) bson.D {
	first, last := run[0], run[len(run)-1]
	return append(byRun(key, first.number), bson.D{
		{Key: "n", Value: first.number},
		{Key: "last", Value: last.number},
		{Key: "from", Value: int64(first.from)},
		{Key: "to", Value: int64(last.to)},
		{Key: "vs", Value: raws(run)},
	}...)
}

// runID is the _id of the run that begins with a number.
func runID(key string, first int64) bson.D {
	return bson.D{{Key: "k", Value: encodeString(key)}, {Key: "n", Value: first}}
}

// byRun selects the run that begins with a number. The condition includes k, which may be
// the key of a sharded collection.
func byRun(key string, first int64) bson.D {
	return bson.D{{Key: "_id", Value: runID(key, first)}, {Key: "k", Value: encodeString(key)}}
}

// overflow writes the first n versions, of which all have ended, into runs, one command for
// each, and returns how many are in runs. If a run exists already, of a server that was
// stopped before its commit, its versions count, so that no two runs have the same version.
func (c *collection) overflow(ctx context.Context, b Bounds, key string, versions []superseded, n int) (moved int, err error) {
	for moved < n {
		run := b.runs(versions[moved:n])[0]
		_, err := c.history.InsertOne(ctx, runOf(key, run))
		switch {
		case err == nil:
			moved += len(run)
			continue
		case !mongo.IsDuplicateKeyError(err):
			return 0, err
		}
		first := run[0].number
		last, there, readErr := c.lastOfRun(ctx, key, first)
		switch {
		case readErr != nil || !there:
			return 0, cmp.Or(readErr, err)
		case last < first:
			return 0, layoutError(c.name, key, "a run of the overflow ends before it begins")
		}
		// A run that goes on has later versions, and this write is too late.
		moved += min(int(last-first)+1, len(versions)-moved)
	}
	return moved, nil
}

// lastOfRun returns the number of the last version in the run that begins with a
// number; false if there is no such run.
func (c *collection) lastOfRun(ctx context.Context, key string, first int64) (last int64, there bool, err error) {
	var run struct {
		Last int64 `bson:"last"`
	}
	err = c.history.FindOne(ctx, byRun(key, first), options.FindOne().SetProjection(bson.D{{Key: "last", Value: 1}})).Decode(&run)
	if errors.Is(err, mongo.ErrNoDocuments) {
		return 0, false, nil // a unique index of another program is in the way
	}
	return run.Last, err == nil, err
}

func sizeOf(versions []superseded) (size int64) {
	for _, v := range versions {
		size += int64(len(v.raw))
	}
	return size
}

// readPrev reads the versions in prev; false if the head is not as it is stored any more.
func (c *collection) readPrev(ctx context.Context, h *head) ([]superseded, bool, error) {
	raw, err := c.main.FindOne(ctx, append(guard(h.Key, h.Number, h.RecordedAt), bson.E{Key: "n", Value: h.n}),
		options.FindOne().SetProjection(bson.D{{Key: "prev", Value: 1}})).Raw()
	if errors.Is(err, mongo.ErrNoDocuments) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	versions, err := c.prevOf(h.Key, raw)
	return versions, err == nil, err
}

// prevOf returns the versions in prev of a document.
func (c *collection) prevOf(key string, raw bson.Raw) ([]superseded, error) {
	stored, err := elements(raw.Lookup("prev"))
	if err != nil {
		return nil, layoutError(c.name, key, "prev is no list")
	}
	versions := make([]superseded, len(stored))
	for i, doc := range stored {
		var from, to driver.Instant
		number, hasNumber := doc.Lookup("v").Int64OK()
		if !hasNumber || !readInstant(&from, doc.Lookup("at")) || !readInstant(&to, doc.Lookup("to")) {
			return nil, layoutError(c.name, key, "a version in prev has no number or interval")
		}
		versions[i] = superseded{raw: slices.Clone(doc), number: number, from: from, to: to}
	}
	return versions, nil
}

// findWrite returns the version that a write made, from all of a document's history;
// nil if there is none.
func (c *collection) findWrite(ctx context.Context, key, id string) (*record, error) {
	var found *record
	look := func(list string, source *mongo.Collection, narrow bson.D) error {
		cursor, err := source.Aggregate(ctx, bson.A{
			bson.D{{Key: "$match", Value: narrow}},
			bson.D{{Key: "$unwind", Value: "$" + list}},
			bson.D{{Key: "$match", Value: bson.D{{Key: list + ".id", Value: id}}}},
			bson.D{{Key: "$project", Value: versionFields(list)}},
		})
		return each(ctx, cursor, err, func(raw bson.Raw) error {
			var err error
			found, err = c.version(key, raw.Lookup(list))
			return err
		})
	}
	if err := look("prev", c.main, append(byKey(key), bson.E{Key: "prev.id", Value: id})); err != nil || found != nil {
		return found, err
	}
	return found, look("vs", c.history, bson.D{{Key: "k", Value: encodeString(key)}, {Key: "vs.id", Value: id}})
}
