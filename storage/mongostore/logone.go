package mongostore

import (
	"context"
	"errors"
	"iter"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/asof/asof/storage/driver"
)

// How many runs are read at a time: few at first, as the versions that are wanted are
// often among them, and then twice as many each time. Runs without data are small.
const (
	runBatch       = 4
	mostRuns       = 64
	mostRunsNoData = 1024
)

// logOne reads the history of one document in order. The document is read
// first, whatever the direction, because versions move from it to the runs. A
// function is told of everything that is read before it is used.
func (c *collection) logOne(ctx context.Context, q *driver.LogQuery, read func([]*record)) iter.Seq2[*record, error] {
	return func(yield func(*record, error) bool) {
		newest, err := c.newest(ctx, q)
		if err != nil {
			yield(nil, err)
			return
		}
		if len(newest) == 0 {
			return
		}
		give := func(list []*record) bool {
			read(list)
			if q.Backward {
				slices.Reverse(list)
			}
			for _, r := range list {
				if inLog(q, r) && !yield(r, nil) {
					return false
				}
			}
			return true
		}
		first := newest[0].Number
		if q.Backward && !give(newest) {
			return
		}
		if first > 1 {
			more, err := c.runs(ctx, q, first, give)
			if err != nil {
				yield(nil, err)
				return
			}
			if !more {
				return
			}
		}
		if !q.Backward {
			give(newest)
		}
	}
}

// newest reads the versions that are in the document itself, oldest first.
func (c *collection) newest(ctx context.Context, q *driver.LogQuery) ([]*record, error) {
	l := &logging{c: c, q: q}
	raw, err := c.main.FindOne(ctx, byKey(q.Keys[0]),
		options.FindOne().SetProjection(append(append(l.fields("current"), l.fields("prev")...), bson.E{Key: "n", Value: 1}))).Raw()
	if errors.Is(err, mongo.ErrNoDocuments) || err == nil && isStub(raw) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	records, err := c.list(q.Keys[0], raw.Lookup("prev"))
	if err != nil {
		return nil, err
	}
	current, err := c.version(q.Keys[0], raw.Lookup("current"))
	return append(records, current), err
}

// runs reads the runs before a version, as far as they hold what was asked for.
func (c *collection) runs(ctx context.Context, q *driver.LogQuery, before int64, give func([]*record) bool) (bool, error) {
	key, l := q.Keys[0], &logging{c: c, q: q}
	filter := bson.D{{Key: "k", Value: encodeString(key)}, {Key: "n", Value: bson.D{{Key: "$lt", Value: before}}}}
	var more bson.A
	and := func(field, op string, value int64) {
		more = append(more, bson.D{{Key: field, Value: bson.D{{Key: op, Value: value}}}})
	}
	if q.FromNumber > 1 {
		and("last", "$gte", q.FromNumber)
	}
	if q.ToNumber != 0 {
		and("n", "$lt", q.ToNumber)
	}
	if q.From != 0 {
		and("to", "$gt", int64(q.From))
	}
	if q.To != 0 {
		and("from", "$lt", int64(q.To))
	}
	if q.After != nil && q.Backward {
		and("from", "$lte", int64(q.After.At))
	}
	if q.After != nil && !q.Backward {
		and("to", "$gte", int64(q.After.At))
	}
	if more != nil {
		filter = append(filter, bson.E{Key: "$and", Value: more})
	}
	direction := 1
	if q.Backward {
		direction = -1
	}
	cursor, err := c.history.Find(ctx, filter, options.Find().SetSort(bson.D{{Key: "n", Value: direction}}).
		SetBatchSize(runBatch).SetProjection(l.fields("vs")))
	if err != nil {
		return false, err
	}
	defer closeCursor(ctx, cursor)
	bound := before // the next number is before it, or, going forward, at or after it
	if !q.Backward {
		bound = 1
	}
	batch, most := int32(runBatch), int32(mostRuns)
	if q.NoData {
		most = mostRunsNoData
	}
	for cursor.Next(ctx) {
		if cursor.RemainingBatchLength() == 0 {
			batch = min(2*batch, most)
			cursor.SetBatchSize(batch)
		}
		records, err := c.list(key, cursor.Current.Lookup("vs"))
		if err != nil {
			return false, err
		}
		records = slices.DeleteFunc(records, func(r *record) bool {
			return r.Number >= before || q.Backward && r.Number >= bound || !q.Backward && r.Number < bound
		})
		if len(records) == 0 {
			continue
		}
		if q.Backward {
			bound = records[0].Number
		} else {
			bound = records[len(records)-1].Number + 1
		}
		if !give(records) {
			return false, nil
		}
	}
	return true, cursor.Err()
}

// inLog reports whether a version of the right document was asked for.
func inLog(q *driver.LogQuery, r *record) bool {
	if q.After != nil {
		if order := comparePositions(positionOf(r), *q.After); order == 0 || (order < 0) != q.Backward {
			return false
		}
	}
	return r.RecordedAt >= q.From && (q.To == 0 || r.RecordedAt < q.To) &&
		r.Number >= q.FromNumber && (q.ToNumber == 0 || r.Number < q.ToNumber) &&
		(len(q.Authors) == 0 || slices.Contains(q.Authors, r.Author)) &&
		(len(q.Ops) == 0 || slices.Contains(q.Ops, r.Op)) &&
		(len(q.Groups) == 0 || slices.Contains(q.Groups, r.Group)) &&
		(len(q.Changed) == 0 || slices.ContainsFunc(r.Changed, func(name string) bool { return slices.Contains(q.Changed, name) }))
}
