package mongostore

import (
	"context"
	"iter"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/asof/asof/storage/driver"
)

// logPart is how many of the versions that are current are read at a time.
const logPart = 1000

// source is a stream of versions in the order of a log, with the next one.
type source struct {
	next func() (*record, error) // nil at the end
	head *record
}

// merge joins the streams of several collections, and drops what is in two places.
func (s *Store) merge(ctx context.Context, q *driver.LogQuery, collections []*collection) iter.Seq2[*record, error] {
	return func(yield func(*record, error) bool) {
		begin, err := s.fleet.now(ctx)
		if err != nil {
			yield(nil, err)
			return
		}
		var sources []*source
		var opened []*logging
		defer func() {
			for _, l := range opened {
				l.close(ctx)
			}
		}()
		for _, c := range collections {
			l := &logging{c: c, q: q, begin: begin}
			opened = append(opened, l)
			more, err := l.sources(ctx)
			if err != nil {
				yield(nil, err)
				return
			}
			sources = append(sources, more...)
		}
		var last driver.LogPosition
		for {
			r, err := smallest(sources, q.Backward)
			if err != nil {
				yield(nil, err)
				return
			}
			if r == nil {
				return
			}
			if p := positionOf(r); p != last {
				last = p
				if !yield(r, nil) {
					return
				}
			}
		}
	}
}

// smallest takes the next version out of the sources.
func smallest(sources []*source, backward bool) (*record, error) {
	var first *source
	for _, s := range sources {
		if s.head == nil {
			continue
		}
		if first == nil || (comparePositions(positionOf(s.head), positionOf(first.head)) < 0) != backward {
			first = s
		}
	}
	if first == nil {
		return nil, nil
	}
	r := first.head
	var err error
	first.head, err = first.next()
	return r, err
}

// logging reads the log of one collection as it was at an instant.
type logging struct {
	c       *collection
	q       *driver.LogQuery
	begin   driver.Instant
	cursors []*mongo.Cursor
	end     func()    // of the snapshot that they read
	part    []*record // read of what was current, in order
	ended   bool      // nothing follows the part
	after   *driver.LogPosition
}

func (l *logging) close(ctx context.Context) {
	for _, cursor := range l.cursors {
		closeCursor(ctx, cursor)
	}
	l.cursors = nil
	if l.end != nil {
		l.end()
	}
}

// sources opens the streams, in the direction that versions move in: what was
// current, prev, overflow. The database sorts before it answers, so that each
// stream stands from then on.
func (l *logging) sources(ctx context.Context) ([]*source, error) {
	l.after = l.q.After
	list := []*source{{next: func() (*record, error) { return l.nextCurrent(ctx) }}}
	fields := []string{"prev", "vs"}
	var err error
	l.end, err = l.c.store.openSnapshot(ctx, func(ctx context.Context) error {
		l.close(ctx)
		for _, field := range fields {
			cursor, err := l.collection(field).Aggregate(ctx, l.superseded(field), options.Aggregate().SetAllowDiskUse(true))
			if err != nil {
				return err
			}
			l.cursors = append(l.cursors, cursor)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for i, field := range fields {
		cursor := l.cursors[i]
		list = append(list, &source{next: func() (*record, error) {
			if !cursor.Next(ctx) {
				return nil, cursor.Err()
			}
			return l.read(cursor.Current, field)
		}})
	}
	for _, s := range list {
		if s.head, err = s.next(); err != nil {
			return nil, err
		}
	}
	return list, nil
}

func (l *logging) collection(field string) *mongo.Collection {
	if field == "vs" {
		return l.c.history
	}
	return l.c.main
}

func (l *logging) read(raw bson.Raw, field string) (*record, error) {
	key, err := l.c.key(raw.Lookup("_id"))
	if err != nil {
		return nil, err
	}
	return l.c.version(key, raw.Lookup(field))
}

// keys is the condition on the key, in the field that has it.
func (l *logging) keys(field string) bson.D {
	if len(l.q.Keys) == 0 {
		return bson.D{}
	}
	keys := make(bson.A, len(l.q.Keys))
	for i, key := range l.q.Keys {
		keys[i] = encodeString(key)
	}
	return bson.D{{Key: field, Value: in(keys)}}
}

// fields is the projection to a version as far as it was asked for.
func (l *logging) fields(list string) bson.D {
	fields := versionFields(list)
	if l.q.NoData {
		fields = slices.DeleteFunc(fields, func(e bson.E) bool { return e.Key == list+".data" })
	}
	return fields
}

func (l *logging) sort(p place) bson.D {
	return p.sortBy([]driver.Order{{Field: driver.Field{Meta: driver.MetaRecordedAt, Kind: driver.KindInstant}}}, false)
}

func (l *logging) order(p place) bson.D {
	spec := l.sort(p)
	if l.q.Backward {
		for i := range spec {
			spec[i].Value = int32(-1)
		}
	}
	return spec
}

// superseded is a pipeline over the versions in a list that had been
// superseded when the log began.
func (l *logging) superseded(list string) bson.A {
	ended := bson.D{{Key: list + ".to", Value: bson.D{{Key: "$lte", Value: int64(l.begin)}}}}
	inside := bson.D{{Key: "to", Value: bson.D{{Key: "$lte", Value: int64(l.begin)}}}}
	return l.unwound(list, l.q, ended, inside, l.q.Limit)
}

// unwound is a pipeline over the versions in a list for which a condition holds.
func (l *logging) unwound(list string, q *driver.LogQuery, condition, inside bson.D, limit int) bson.A {
	whole := *q
	whole.After = nil // the key, which a position is about, is outside
	within := append(bson.A{inside}, logConditions(at(""), l.c, &whole)...)
	stages := bson.A{
		bson.D{{Key: "$match", Value: append(l.keys(at(list).key), bson.E{Key: list, Value: bson.D{{Key: "$elemMatch", Value: bson.D{{Key: "$and", Value: within}}}}})}},
		bson.D{{Key: "$unwind", Value: "$" + list}},
		bson.D{{Key: "$match", Value: bson.D{{Key: "$and", Value: append(bson.A{condition}, logConditions(at(list), l.c, q)...)}}}},
		bson.D{{Key: "$sort", Value: l.order(at(list))}},
	}
	if limit > 0 {
		stages = append(stages, bson.D{{Key: "$limit", Value: int64(limit)}})
	}
	return append(stages, bson.D{{Key: "$project", Value: unwoundFields(list, l.fields(list))}})
}

// nextCurrent returns the next of the versions that were current when the log
// began.
func (l *logging) nextCurrent(ctx context.Context) (*record, error) {
	if len(l.part) == 0 && !l.ended {
		if err := l.readPart(ctx); err != nil {
			return nil, err
		}
	}
	if len(l.part) == 0 {
		return nil, nil
	}
	r := l.part[0]
	l.part = l.part[1:]
	return r, nil
}

// readPart reads the next of them from the three places where they may be by
// now, one after the other. The first so many of all are among the first so
// many of each.
func (l *logging) readPart(ctx context.Context) error {
	limit := logPart
	if l.q.Limit > 0 {
		limit = min(limit, l.q.Limit)
	}
	q := *l.q
	q.After = l.after
	var found []*record
	err := l.c.store.inSnapshot(ctx, func(ctx context.Context) error {
		var err error
		found, err = l.findPart(ctx, &q, limit)
		return err
	})
	if err != nil {
		return err
	}
	slices.SortFunc(found, func(a, b *record) int {
		c := comparePositions(positionOf(a), positionOf(b))
		if l.q.Backward {
			return -c
		}
		return c
	})
	found = slices.CompactFunc(found, func(a, b *record) bool { return positionOf(a) == positionOf(b) })
	if len(found) < limit {
		l.ended = true
	} else {
		found = found[:limit]
		after := positionOf(found[limit-1])
		l.after = &after
	}
	l.part = found
	return nil
}

// findPart looks for it in the three places.
func (l *logging) findPart(ctx context.Context, q *driver.LogQuery, limit int) ([]*record, error) {
	var found []*record
	take := func(field string) func(bson.Raw) error {
		return func(raw bson.Raw) error {
			r, err := l.read(raw, field)
			found = append(found, r)
			return err
		}
	}
	here := at("current")
	conditions := bson.A{bson.D{{Key: "current.at", Value: bson.D{{Key: "$lte", Value: int64(l.begin)}}}}, l.keys("_id")}
	conditions = append(conditions, logConditions(here, l.c, q)...)
	cursor, err := l.c.main.Find(ctx, bson.D{{Key: "$and", Value: conditions}},
		options.Find().SetSort(l.order(here)).SetLimit(int64(limit)).SetProjection(l.fields("current")).SetAllowDiskUse(true))
	if err := each(ctx, cursor, err, take("current")); err != nil {
		return nil, err
	}
	later, err := l.c.changedSince(ctx, l.begin)
	if err != nil {
		return nil, err
	}
	for _, list := range []string{"prev", "vs"} {
		if !later {
			break
		}
		cursor, err := l.collection(list).Aggregate(ctx,
			l.unwound(list, q, holding(list+".", l.begin), holding("", l.begin), limit), options.Aggregate().SetAllowDiskUse(true))
		if err := each(ctx, cursor, err, take(list)); err != nil {
			return nil, err
		}
	}
	return found, nil
}
