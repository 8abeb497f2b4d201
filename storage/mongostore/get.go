package mongostore

import (
	"context"
	"maps"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/asof/asof/storage/driver"
)

// maxKeys is how many documents one command reads.
const maxKeys = 1000

// Get implements driver.Engine. Current versions take one command for all of
// them together, recent ones two, those in the overflow three.
func (s *Store) Get(ctx context.Context, name string, refs []driver.Ref, _ []string) ([]*driver.Version, error) {
	ctx, done := s.bounded(ctx)
	defer done()
	c := s.collections[name]
	found, err := c.get(ctx, refs)
	if err != nil {
		return nil, wrap(err, "reading "+name)
	}
	versions := make([]*driver.Version, len(refs))
	for i, r := range found {
		if r != nil {
			versions[i] = &r.Version
		}
	}
	return versions, nil
}

// get returns the records of references; nil for one that does not exist.
func (c *collection) get(ctx context.Context, refs []driver.Ref) ([]*record, error) {
	g := &getting{c: c, refs: refs, found: make([]*record, len(refs))}
	byKey := make(map[string][]int)
	var keys []string
	for i, ref := range refs {
		if byKey[ref.Key] == nil {
			keys = append(keys, ref.Key)
		}
		byKey[ref.Key] = append(byKey[ref.Key], i)
	}
	for part := range slices.Chunk(keys, maxKeys) {
		if err := g.current(ctx, part, byKey); err != nil {
			return nil, err
		}
	}
	return g.found, g.past(ctx)
}

// getting is one call of Get.
type getting struct {
	c     *collection
	refs  []driver.Ref
	found []*record
	open  []int // references that are not found yet: their versions are not current
}

func (g *getting) current(ctx context.Context, keys []string, byKey map[string][]int) error {
	heads, err := g.c.readHeads(ctx, keys)
	for _, key := range keys {
		h := heads[key]
		if h == nil || h.Number == 0 {
			continue
		}
		g.c.remember(key, h)
		for _, i := range byKey[key] {
			switch ref := g.refs[i]; {
			case ref.Number == h.Number, ref.Number == 0 && ref.At >= h.RecordedAt:
				g.found[i] = &h.record
			case ref.Number < h.Number && h.Number > 1 && ref.Number >= 0:
				g.open = append(g.open, i)
			}
		}
	}
	return err
}

func encodeStrings(list []string) bson.A {
	encoded := make(bson.A, len(list))
	for i, s := range list {
		encoded[i] = encodeString(s)
	}
	return encoded
}

// in is $in, or equality for a single value.
func in(values bson.A) any {
	if len(values) == 1 {
		return values[0]
	}
	return bson.D{{Key: "$in", Value: values}}
}

// past finds versions that are not current: in prev, then in the overflow, which is the
// direction in which versions move.
func (g *getting) past(ctx context.Context) error {
	for _, list := range []string{"prev", "vs"} {
		for part := range slices.Chunk(g.open, maxKeys) {
			source, pipeline := g.c.main, g.pipeline(part, list)
			if list == "vs" {
				source = g.c.history
			}
			cursor, err := source.Aggregate(ctx, pipeline)
			if err := each(ctx, cursor, err, func(raw bson.Raw) error { return g.take(part, raw, list) }); err != nil {
				return err
			}
		}
		g.open = slices.DeleteFunc(g.open, func(i int) bool { return g.found[i] != nil })
	}
	return nil
}

func (g *getting) take(open []int, raw bson.Raw, list string) error {
	key, err := g.c.key(raw.Lookup("_id"))
	if err != nil {
		return err
	}
	r, err := g.c.version(key, raw.Lookup(list))
	if err != nil {
		return err
	}
	for _, i := range open {
		if ref := g.refs[i]; ref.Key == key && (ref.Number == r.Number ||
			ref.Number == 0 && r.RecordedAt <= ref.At && ref.At < r.SupersededAt) {
			g.found[i] = r
		}
	}
	return nil
}

// pipeline selects the versions of references from a list of versions.
func (g *getting) pipeline(open []int, list string) bson.A {
	keyField := "_id"
	if list == "vs" {
		keyField = "k"
	}
	var keys, outer, inner bson.A
	numbers := make(map[string][]int64)
	for _, i := range open {
		ref := g.refs[i]
		key := encodeString(ref.Key)
		if ref.Number != 0 {
			if numbers[key] == nil {
				keys = append(keys, key)
			}
			numbers[key] = append(numbers[key], ref.Number)
			continue
		}
		keys = append(keys, key)
		outer = append(outer, bson.D{
			{Key: "k", Value: key}, {Key: "from", Value: bson.D{{Key: "$lte", Value: int64(ref.At)}}}, {Key: "to", Value: bson.D{{Key: "$gt", Value: int64(ref.At)}}},
		})
		inner = append(inner, append(bson.D{{Key: keyField, Value: key}}, holding(list+".", ref.At)...))
	}
	for _, key := range slices.Sorted(maps.Keys(numbers)) {
		some := slices.Sorted(slices.Values(numbers[key]))
		var wanted bson.A
		for first, i := 0, 0; i < len(some); i++ {
			wanted = append(wanted, some[i])
			if i+1 == len(some) || some[i+1]-some[i] > fewVersions {
				outer = append(outer, bson.D{
					{Key: "k", Value: key}, {Key: "n", Value: bson.D{{Key: "$lte", Value: some[i]}}}, {Key: "last", Value: bson.D{{Key: "$gte", Value: some[first]}}},
				})
				first = i + 1
			}
		}
		inner = append(inner, bson.D{{Key: keyField, Value: key}, {Key: list + ".v", Value: in(wanted)}})
	}
	narrow := bson.D{{Key: keyField, Value: in(keys)}}
	if list == "vs" {
		narrow = oneOf(outer)
	}
	stages := bson.A{bson.D{{Key: "$match", Value: narrow}}}
	// If all references have the same instant or number, a stage selects it from the lists.
	if first := g.refs[open[0]]; first.Number != 0 && len(open) == 1 {
		stages = append(stages,
			bson.D{{Key: "$match", Value: bson.D{{Key: list + ".v", Value: first.Number}}}},
			choose(list, numbered(list, first.Number)))
	} else if g.sameInstant(open) {
		stages = append(stages,
			bson.D{{Key: "$match", Value: bson.D{{Key: list, Value: bson.D{{Key: "$elemMatch", Value: holding("", first.At)}}}}}},
			choose(list, heldAt(list, first.At)))
	}
	return append(stages,
		bson.D{{Key: "$unwind", Value: "$" + list}},
		bson.D{{Key: "$match", Value: oneOf(inner)}},
		bson.D{{Key: "$project", Value: unwoundFields(list, versionFields(list))}},
	)
}

// sameInstant reports whether all references name the same instant.
func (g *getting) sameInstant(open []int) bool {
	for _, i := range open {
		if ref := g.refs[i]; ref.Number != 0 || ref.At != g.refs[open[0]].At {
			return false
		}
	}
	return true
}

// unwoundFields makes the key of a run that of its document.
func unwoundFields(list string, fields bson.D) bson.D {
	if list == "vs" {
		return append(fields, bson.E{Key: "_id", Value: "$k"})
	}
	return append(fields, bson.E{Key: "_id", Value: 1})
}

func oneOf(conditions bson.A) bson.D {
	if len(conditions) == 1 {
		return conditions[0].(bson.D)
	}
	return bson.D{{Key: "$or", Value: conditions}}
}

// each calls a function with every document of a cursor.
func each(ctx context.Context, cursor *mongo.Cursor, err error, use func(bson.Raw) error) error {
	if err != nil {
		return err
	}
	defer closeCursor(ctx, cursor)
	for cursor.Next(ctx) {
		if err := use(cursor.Current); err != nil {
			return err
		}
	}
	return cursor.Err()
}
