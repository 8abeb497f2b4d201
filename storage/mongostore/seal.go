package mongostore

import (
	"bytes"
	"context"
	"strconv"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/asof/asof/storage/seal"
)

// Format 1 had no seals. The first server that knows format 2 notes it, which keeps older
// ones from opening the store, and seals all documents, or goes on where another one was
// ended. An older server that still runs drops the seals of what it writes over, so it
// is to be stopped before: who writes next to such a document seals it again.

const (
	unsealedFormat = 1
	unsealed       = "unsealed" // in the description of the store, until all documents are sealed
)

func (s *Store) beginSealing(ctx context.Context) error {
	_, err := s.meta.UpdateOne(ctx, bson.D{{Key: "_id", Value: storeID}, {Key: "format", Value: int64(unsealedFormat)}},
		bson.D{{Key: "$set", Value: bson.D{{Key: "format", Value: int64(format)}, {Key: unsealed, Value: true}}}})
	return err
}

// sealAll seals the documents of a store of format 1. Several servers may do so at once.
func (s *Store) sealAll(ctx context.Context) error {
	const report = 1000
	done := 0
	for _, c := range s.collections {
		cursor, err := c.main.Find(ctx, bson.D{{Key: "current.v", Value: exists(true)}, {Key: "current.s", Value: exists(false)}},
			options.Find().SetProjection(bson.D{{Key: "_id", Value: 1}}))
		if err := each(ctx, cursor, err, func(raw bson.Raw) error {
			key, err := c.key(raw.Lookup("_id"))
			if err != nil {
				return err
			}
			if done++; done%report == 0 {
				s.logger.Info("sealing the history, once; the store opens when it is done", "documents", done)
			}
			return c.seal(ctx, key)
		}); err != nil {
			return err
		}
	}
	_, err := s.meta.UpdateOne(ctx, bson.D{{Key: "_id", Value: storeID}}, bson.D{{Key: "$unset", Value: bson.D{{Key: unsealed, Value: ""}}}})
	return err
}

// seal seals the versions of a document whose current version has no seal: those that have
// none, or one that does not hold. It writes the runs first, oldest first, and
// each write on condition that nobody else sealed there meanwhile; then it begins anew.
func (c *collection) seal(ctx context.Context, key string) error {
	for {
		sealed, err := c.trySeal(ctx, key)
		if sealed || err != nil {
			return err
		}
	}
}

// sealedHead is decodeHead for a head that a version will follow on, which is sealed for that.
func (c *collection) sealedHead(ctx context.Context, key string, raw bson.Raw) (*head, error) {
	h, err := c.decodeHead(key, raw)
	if err != nil || h.Seal != nil {
		return h, err
	}
	if err := c.seal(ctx, key); err != nil {
		return nil, err
	}
	return c.readHead(ctx, key)
}

func (c *collection) trySeal(ctx context.Context, key string) (done bool, err error) {
	raw, err := c.main.FindOne(ctx, byKey(key)).Raw()
	if err != nil {
		return false, err
	}
	h, err := c.decodeHead(key, raw)
	if err != nil || h.Seal != nil {
		return err == nil, err
	}
	s := &sealing{c: c, key: key, seals: make(map[int64][]byte)}
	cursor, err := c.history.Find(ctx, bson.D{{Key: "k", Value: encodeString(key)}}, options.Find().SetSort(bson.D{{Key: "n", Value: 1}}))
	if err := each(ctx, cursor, err, func(run bson.Raw) error { return s.run(ctx, run) }); err != nil || s.lost {
		return false, err
	}
	prev, _, err := s.list(raw.Lookup("prev"))
	if err != nil {
		return false, err
	}
	s.next(&h.record)
	set := bson.D{{Key: "current", Value: embedded(encodeVersion(&h.record))}, {Key: "size", Value: sizeOf(prev)}}
	if len(prev) > 0 {
		set = append(set, bson.E{Key: "prev", Value: raws(prev)})
	}
	result, err := c.main.UpdateOne(ctx,
		append(guard(key, h.Number, h.RecordedAt), bson.E{Key: "n", Value: h.n}, bson.E{Key: "size", Value: h.size}, bson.E{Key: "current.s", Value: exists(false)}),
		bson.D{{Key: "$set", Value: set}})
	return err == nil && result.MatchedCount > 0, err
}

// sealing is a document that is being sealed.
type sealing struct {
	c     *collection
	key   string
	seals map[int64][]byte // by number: a crash may have left versions in two places
	lost  bool             // somebody else was quicker
}

// next seals a version, and reports whether that changed it.
func (s *sealing) next(r *record) bool {
	if s.seals[r.Number] == nil {
		if s.seals[r.Number] = r.Seal; seal.Verify(s.seals[r.Number-1], &r.Version) != nil {
			s.seals[r.Number] = seal.New(s.seals[r.Number-1], &r.Version, 0)
		}
	}
	before := r.Seal
	r.Seal = s.seals[r.Number]
	return !bytes.Equal(before, r.Seal)
}

func (s *sealing) list(v bson.RawValue) (versions []superseded, changed bool, err error) {
	records, err := s.c.list(s.key, v)
	for _, r := range records {
		changed = s.next(r) || changed
		versions = append(versions, supersede(r, r.SupersededAt))
	}
	return versions, changed, err
}

// run seals the versions in a run.
func (s *sealing) run(ctx context.Context, run bson.Raw) error {
	versions, changed, err := s.list(run.Lookup("vs"))
	if err != nil || !changed || s.lost {
		return err
	}
	last := versions[len(versions)-1]
	was := any(exists(false))
	if _, before, ok := run.Lookup("vs", strconv.Itoa(len(versions)-1), "s").BinaryOK(); ok {
		was = before
	}
	result, err := s.c.history.ReplaceOne(ctx, append(byRun(s.key, versions[0].number),
		bson.E{Key: "last", Value: last.number}, bson.E{Key: "to", Value: int64(last.to)},
		bson.E{Key: "vs." + strconv.Itoa(len(versions)-1) + ".s", Value: was}), runOf(s.key, versions))
	if err == nil {
		s.lost = result.MatchedCount == 0
	}
	return err
}
