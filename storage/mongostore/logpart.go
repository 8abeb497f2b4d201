package mongostore

import (
	"context"
	"errors"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/asof/asof/storage/driver"
)

// logPart is how many of the versions that are current are read at a time.
const logPart = 1000

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
//
// What is loaded after the streams were opened, on a document that had versions,
// makes versions past that were current, as if they had been so for long. Then the
// streams are opened again, behind what was told, so that they have those.
func (l *logging) readPart(ctx context.Context) error {
	limit := logPart
	if l.q.Limit > 0 {
		limit = min(limit, l.q.Limit)
	}
	q := *l.q
	q.After = l.after
	var found []*record
	opened, late := l.lists != nil, false
	read := func(ctx context.Context) error {
		var err error
		found, late, err = l.findPart(ctx, &q, limit, opened)
		return err
	}
	err := l.c.store.inSnapshot(ctx, read)
	if err == nil && late {
		opened = false
		if l.since, err = l.c.store.clock.instant(ctx); err == nil {
			err = l.c.store.inSnapshot(ctx, read)
		}
		if err == nil {
			err = l.openLists(ctx, &q)
		}
	}
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

// findPart looks for it in the three places. Where the streams are open it may find
// that what was loaded comes too late for them; then it has not looked everywhere.
func (l *logging) findPart(ctx context.Context, q *driver.LogQuery, limit int, opened bool) (found []*record, late bool, err error) {
	take := func(field string) func(bson.Raw) error {
		return func(raw bson.Raw) error {
			r, err := l.read(raw, field)
			found = append(found, r)
			return err
		}
	}
	here := at("current")
	before := bson.E{Key: "at", Value: bson.D{{Key: "$lte", Value: int64(l.begin)}}}
	conditions := bson.A{bson.D{{Key: "current.at", Value: before.Value}}, l.keys("_id")}
	conditions = append(conditions, logConditions(here, l.c, l.horizon.bounded(q))...)
	cursor, err := l.c.main.Find(ctx, bson.D{{Key: "$and", Value: conditions}},
		options.Find().SetSort(l.order(here)).SetLimit(int64(limit)).SetProjection(l.fields("current")).SetAllowDiskUse(true))
	if err := each(ctx, cursor, err, take("current")); err != nil {
		return nil, false, err
	}
	later, err := l.c.changedSince(ctx, l.since)
	if err != nil {
		return nil, false, err
	}
	if opened {
		if late, err = l.c.loadedOver(ctx, l.since, later); late || err != nil {
			return nil, late, err
		}
	}
	still := bson.D{before, {Key: "to", Value: bson.D{{Key: "$gt", Value: int64(l.since)}}}}
	for _, list := range superseding {
		if !later {
			break
		}
		cursor, err := l.collection(list).Aggregate(ctx, l.unwound(list, q, still, limit), options.Aggregate().SetAllowDiskUse(true))
		if err := each(ctx, cursor, err, take(list)); err != nil {
			return nil, false, err
		}
	}
	return found, false, nil
}

// loadedOver reports whether versions were loaded after an instant that may follow
// on others. What was committed on them since, if anything was, may have made them
// history by now.
func (c *collection) loadedOver(ctx context.Context, since driver.Instant, committed bool) (bool, error) {
	than := bson.D{{Key: "$gt", Value: int64(since)}}
	places := []struct {
		in     *mongo.Collection
		filter bson.D
	}{
		{c.main, bson.D{{Key: "current." + loadedField, Value: than}, {Key: "current.v", Value: bson.D{{Key: "$gt", Value: int64(1)}}}}},
		{c.main, bson.D{{Key: "current.at", Value: than}, {Key: "prev." + loadedField, Value: than}}},
		{c.history, bson.D{{Key: "to", Value: than}, {Key: "vs." + loadedField, Value: than}}},
	}
	if !committed {
		places = places[:1]
	}
	for _, p := range places {
		err := p.in.FindOne(ctx, p.filter, options.FindOne().SetProjection(bson.D{{Key: "_id", Value: 1}})).Err()
		if !errors.Is(err, mongo.ErrNoDocuments) {
			return err == nil, err
		}
	}
	return false, nil
}
