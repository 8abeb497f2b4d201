package mongostore

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"maps"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/asof/asof/storage/driver"
)

// Log implements driver.Engine. It yields the history as of the beginning of the
// loop. The versions superseded until then are a set that does not change:
// the database sorts them, and they are streamed. Versions that were current then
// may move while the log is read, and so are read in parts, each part from all
// places where they may be. The history of a single document is read from the
// document and its runs, in their own order.
func (s *Store) Log(ctx context.Context, q *driver.LogQuery) iter.Seq2[*driver.Version, error] {
	return func(yield func(*driver.Version, error) bool) {
		causal, done := s.causal(ctx)
		defer done()
		if err := s.log(causal, q, yield); err != nil {
			yield(nil, wrap(err, "reading the log"))
		}
	}
}

func (s *Store) log(ctx context.Context, q *driver.LogQuery, yield func(*driver.Version, error) bool) error {
	collections := s.logged(q)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	versions := s.merge(ctx, q, collections)
	if len(q.Keys) == 1 {
		versions = collections[0].logOne(ctx, q)
	}
	n := 0
	for r, err := range versions {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		if n++; !yield(&r.Version, nil) || n == q.Limit {
			return nil
		}
	}
	return nil
}

// logged returns the collections of a query, sorted.
func (s *Store) logged(q *driver.LogQuery) []*collection {
	names := slices.Clone(q.Collections)
	if len(names) == 0 {
		names = slices.Collect(maps.Keys(s.collections))
	}
	slices.Sort(names)
	names = slices.Compact(names)
	collections := make([]*collection, len(names))
	for i, name := range names {
		collections[i] = s.collections[name]
	}
	return collections
}

// logConditions are the conditions of a query on versions at a place, but for
// the keys.
func logConditions(p place, c *collection, q *driver.LogQuery) bson.A {
	var list bson.A
	add := func(field, op string, value any) {
		list = append(list, bson.D{{Key: p.prefix + field, Value: bson.D{{Key: op, Value: value}}}})
	}
	if q.From != 0 {
		add("at", "$gte", int64(q.From))
	}
	if q.To != 0 {
		add("at", "$lt", int64(q.To))
	}
	if q.FromNumber > 1 {
		add("v", "$gte", q.FromNumber)
	}
	if q.ToNumber != 0 {
		add("v", "$lt", q.ToNumber)
	}
	if len(q.Hints.Authors) > 0 {
		add("by", "$in", encodeStrings(q.Hints.Authors))
	}
	if len(q.Hints.Ops) > 0 {
		ops := make(bson.A, len(q.Hints.Ops))
		for i, op := range q.Hints.Ops {
			ops[i] = int64(op)
		}
		add("op", "$in", ops)
	}
	if len(q.Hints.Groups) > 0 {
		add("grp", "$in", encodeStrings(q.Hints.Groups))
	}
	if len(q.Hints.Changed) > 0 {
		add("ch", "$in", q.Hints.Changed)
	}
	if q.After != nil {
		list = append(list, after(p, c.name, q.After, q.Backward))
	}
	return list
}

// after holds for versions of a collection strictly after a position.
func after(p place, name string, position *driver.LogPosition, backward bool) bson.D {
	relation, direction := "$gt", 1
	if backward {
		relation, direction = "$lt", -1
	}
	than := func(field string, value any) bson.D {
		return bson.D{{Key: field, Value: bson.D{{Key: relation, Value: value}}}}
	}
	at := p.prefix + "at"
	later := than(at, int64(position.At))
	switch direction * cmp.Compare(name, position.Collection) {
	case -1:
		return later
	case 1:
		return bson.D{{Key: at, Value: bson.D{{Key: relation + "e", Value: int64(position.At)}}}}
	}
	key := encodeString(position.Key)
	same := bson.D{{Key: at, Value: int64(position.At)}}
	return bson.D{{Key: "$or", Value: bson.A{
		later,
		append(slices.Clone(same), than(p.key, key)...),
		append(append(slices.Clone(same), bson.E{Key: p.key, Value: key}), than(p.prefix+"v", position.Number)...),
	}}}
}

// inOrder compares positions in the order of a log.
func inOrder(q *driver.LogQuery) func(a, b driver.LogPosition) int {
	if q.Backward {
		return func(a, b driver.LogPosition) int { return b.Compare(a) }
	}
	return driver.LogPosition.Compare
}

// cutoff bounds the positions of a log with a limit n: after n versions were found,
// in any place, no version after the last of them is needed. So current versions, which
// an index has in the order of the log, bound the search in prev, both
// bound that in the overflow, and one collection bounds the next. Without a limit there is
// no cutoff.
type cutoff struct {
	q      *driver.LogQuery
	places []driver.LogPosition // the first ones found, at most the limit
}

// add adds the positions of versions that were found.
func (h *cutoff) add(found ...*record) {
	if h.q.Limit == 0 {
		return
	}
	for _, r := range found {
		h.places = append(h.places, r.Position())
	}
	slices.SortFunc(h.places, inOrder(h.q))
	h.places = slices.Compact(h.places) // a version may be in two places
	h.places = h.places[:min(len(h.places), h.q.Limit)]
}

// bounded is a query of the log with its interval cut at the cutoff and at the position
// after which it begins.
func (h *cutoff) bounded(q *driver.LogQuery) *driver.LogQuery {
	b := *q
	from := func(at driver.Instant) { b.From = max(b.From, at) }
	to := func(last driver.Instant) {
		if last < driver.Forever && (b.To == 0 || last < b.To) {
			b.To = last + 1
		}
	}
	far, near := to, from
	if q.Backward {
		far, near = from, to
	}
	if q.After != nil {
		near(q.After.At)
	}
	if q.Limit > 0 && len(h.places) == q.Limit {
		far(h.places[q.Limit-1].At)
	}
	return &b
}

// runsOf are conditions, answered by an index, on the runs that can have versions of a
// log.
func runsOf(q *driver.LogQuery) bson.D {
	var conditions bson.D
	if q.From != 0 {
		conditions = append(conditions, bson.E{Key: "to", Value: bson.D{{Key: "$gt", Value: int64(q.From)}}})
	}
	if q.To != 0 {
		conditions = append(conditions, bson.E{Key: "from", Value: bson.D{{Key: "$lt", Value: int64(q.To)}}})
	}
	return conditions
}

// How many runs are read at a time: few at first, which often have all wanted
// versions, then twice as many each time. Runs without data are small.
const (
	runBatch       = 4
	mostRuns       = 64
	mostRunsNoData = 1024
)

// logOne reads the history of one document in order. The document is read
// first, whatever the direction, because versions move from it to the runs.
func (c *collection) logOne(ctx context.Context, q *driver.LogQuery) iter.Seq2[*record, error] {
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

// newest reads the versions in the document itself, oldest first.
func (c *collection) newest(ctx context.Context, q *driver.LogQuery) ([]*record, error) {
	l := &logging{c: c, q: q}
	raw, err := c.main.FindOne(ctx, byKey(q.Keys[0]),
		options.FindOne().SetProjection(append(append(l.fields("current"), l.fields("prev")...), bson.E{Key: "n", Value: 1}))).Raw()
	if errors.Is(err, mongo.ErrNoDocuments) || err == nil && isPlaceholder(raw) {
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

// runs reads the runs before a version that can have versions of the log.
func (c *collection) runs(ctx context.Context, q *driver.LogQuery, before int64, give func([]*record) bool) (bool, error) {
	key, l := q.Keys[0], &logging{c: c, q: q}
	end := before
	if q.ToNumber != 0 {
		end = min(end, q.ToNumber)
	}
	filter := bson.D{
		{Key: "k", Value: encodeString(key)},
		{Key: "n", Value: bson.D{{Key: "$lt", Value: end}}},
		{Key: "last", Value: bson.D{{Key: "$gte", Value: q.FromNumber}}},
	}
	filter = append(filter, runsOf((&cutoff{q: q}).bounded(q))...)
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
	if noData(q) {
		most = mostRunsNoData
	}
	for n, bytes := 1, 0; cursor.Next(ctx); n++ {
		bytes += len(cursor.Current)
		if cursor.RemainingBatchLength() == 0 {
			batch = min(2*batch, most, int32(min(n*logBytes/bytes+1, mostRunsNoData)))
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

// inLog reports whether a version of the document meets the log's conditions.
func inLog(q *driver.LogQuery, r *record) bool {
	if q.After != nil {
		if order := r.Position().Compare(*q.After); order == 0 || (order < 0) != q.Backward {
			return false
		}
	}
	return r.RecordedAt >= q.From && (q.To == 0 || r.RecordedAt < q.To) &&
		r.Number >= q.FromNumber && (q.ToNumber == 0 || r.Number < q.ToNumber) &&
		q.Hints.Hold(&r.Version)
}
