package mongostore

import (
	"context"
	"slices"
	"strconv"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/seal"
)

// Rewrite implements driver.Engine. Versions that are to change are changed in runs only:
// prev is emptied into runs before. So n changes, and a commit that has read prev fails on
// its condition, instead of moving to a run what was there before; and as each of these
// versions is in a run already, its overflow adds none of them again.
func (s *Store) Rewrite(ctx context.Context, name, key string, vs []driver.Version) error {
	ctx, done := s.bounded(ctx)
	defer done()
	return wrap(s.collections[name].rewrite(ctx, key, vs), "rewriting versions")
}

func (c *collection) rewrite(ctx context.Context, key string, vs []driver.Version) error {
	vs = slices.SortedFunc(slices.Values(vs), func(a, b driver.Version) int { return int(a.Number - b.Number) })
	for moved := false; !moved; {
		h, err := c.readHead(ctx, key)
		if err != nil {
			return err
		}
		last := vs[len(vs)-1].Number
		if h == nil || last >= h.Number {
			number := int64(0)
			if h != nil {
				number = h.Number
			}
			return driver.Errorf(driver.CodeInvalid, "%s %q has no version %d before its last one, which is %d", c.name, key, last, number)
		}
		if moved, err = c.emptyPrev(ctx, h, last); err != nil {
			return err
		}
	}
	return c.rewriteRuns(ctx, key, vs)
}

// emptyPrev moves all of prev into runs where it has a version with a number, or earlier
// ones; false if another write came first.
func (c *collection) emptyPrev(ctx context.Context, h *head, number int64) (bool, error) {
	if number < h.Number-h.n {
		return true, nil
	}
	prev, still, err := c.readPrev(ctx, h)
	if err != nil || !still {
		return false, err
	}
	if _, err := c.overflow(ctx, c.bounds, h.Key, prev, len(prev)); err != nil {
		return false, err
	}
	result, err := c.main.UpdateOne(ctx, append(guard(h.Key, h.Number, h.RecordedAt), bson.E{Key: "n", Value: h.n}),
		bson.D{{Key: "$set", Value: bson.D{{Key: "prev", Value: bson.A{}}, {Key: "n", Value: int64(0)}, {Key: "size", Value: int64(0)}}}})
	c.forget(h.Key)
	return err == nil && result.MatchedCount > 0, err
}

// rewriteRuns changes versions, in the order of their numbers, which are in runs.
func (c *collection) rewriteRuns(ctx context.Context, key string, vs []driver.Version) error {
	cursor, err := c.history.Find(ctx, bson.D{
		{Key: "k", Value: encodeString(key)},
		{Key: "n", Value: bson.D{{Key: "$lte", Value: vs[len(vs)-1].Number}}},
		{Key: "last", Value: bson.D{{Key: "$gte", Value: vs[0].Number}}},
	}, options.Find().SetProjection(bson.D{{Key: "n", Value: 1}, {Key: "vs", Value: 1}}))
	found, changed, b := 0, int64(0), &bulk{store: c.store, target: c.history}
	err = each(ctx, cursor, err, func(raw bson.Raw) error {
		first, hasFirst := raw.Lookup("n").Int64OK()
		list, isList := raw.Lookup("vs").ArrayOK()
		if !hasFirst || !isList {
			return layoutError(c.name, key, "a run has no number or no versions")
		}
		stored, err := list.Values()
		if err != nil {
			return layoutError(c.name, key, "a run is not a list of versions")
		}
		filter, set, bytes := byRun(key, first), bson.D(nil), int64(0)
		for i, value := range stored {
			n, ok := slices.BinarySearchFunc(vs, first+int64(i), func(v driver.Version, number int64) int { return int(v.Number - number) })
			if !ok {
				continue
			}
			r, err := c.version(key, value)
			if err != nil {
				return err
			}
			found++
			v, place := &vs[n], "vs."+strconv.Itoa(i)
			if v.Seal != nil {
				if !slices.Equal(v.Seal, r.Seal) {
					continue
				}
				filter = append(filter, bson.E{Key: place + ".s", Value: bson.Binary{Data: v.Seal}})
			}
			r.Seal = seal.Rewritten(&r.Version, v)
			r.Op, r.Deleted, r.Author, r.Message, r.Group, r.Changed, r.Data = v.Op, v.Deleted, v.Author, v.Message, v.Group, v.Changed, v.Data
			encoded := encodeVersion(r)
			set, bytes = append(set, bson.E{Key: place, Value: embedded(encoded)}), bytes+int64(len(encoded))
		}
		if len(set) == 0 {
			return nil
		}
		changed++
		return b.add(ctx, mongo.NewUpdateOneModel().SetFilter(filter).SetUpdate(bson.D{{Key: "$set", Value: set}}), bytes)
	})
	if err == nil {
		err = b.flush(ctx)
	}
	if err == nil && b.found < changed {
		err = driver.Errorf(driver.CodeUnavailable, "%s %q: its versions were rewritten at the same time", c.name, key)
	}
	if err == nil && found < len(vs) {
		err = layoutError(c.name, key, "versions before the current one are in no run")
	}
	return err
}
