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
// loop. The history of a single document is read from the document and its runs, in
// their own order; that of several in stretches of time, see logging.
func (s *Store) Log(ctx context.Context, q *driver.LogQuery) iter.Seq2[*driver.Version, error] {
	return func(yield func(*driver.Version, error) bool) {
		causal, done := s.causal(ctx)
		defer done()
		if err := s.log(causal, q, yield); err != nil {
			yield(nil, wrap(err, "reading the log"))
		}
	}
}

func (s *Store) log(ctx context.Context, q *driver.LogQuery, yield func(*driver.Version, error) bool) (err error) {
	n, ended := 0, error(nil)
	give := func(r *record) bool {
		if ended = ctx.Err(); ended != nil {
			return false
		}
		n++
		return yield(&r.Version, nil) && n != q.Limit
	}
	if len(q.Keys) == 1 {
		err = s.collections[q.Collections[0]].logOne(ctx, q, give)
	} else {
		err = s.logMany(ctx, q, give)
	}
	return cmp.Or(err, ended)
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

// narrowed is a query with its interval cut at the position after which it begins, and at
// the last one that is looked for, if there is one.
func narrowed(q driver.LogQuery, end *driver.LogPosition) *driver.LogQuery {
	first, last := q.After, end
	if q.Backward {
		first, last = last, first
	}
	if first != nil {
		q.From = max(q.From, first.At)
	}
	if last != nil && last.At < driver.Forever && (q.To == 0 || last.At < q.To) {
		q.To = last.At + 1
	}
	return &q
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

// noData reports whether a log needs no Data.
func noData(q *driver.LogQuery) bool { return q.Fields != nil && len(q.Fields) == 0 }

// logFields is the projection to the requested members of a version.
func logFields(q *driver.LogQuery, list string) bson.D {
	fields := versionFields(list)
	if noData(q) {
		fields = slices.DeleteFunc(fields, func(e bson.E) bool { return e.Key == list+".data" })
	}
	return fields
}

// How much of one place is in memory at a time: so many versions, or so many bytes; and how
// many versions are asked for before their size is known, and where they are a page.
const (
	logPart  = 1000
	logBytes = 2 << 20
	logBatch = 4
	logPage  = 24
)

// logging reads the log of several documents as it was at an instant, in stretches of time.
// A stretch ends where the current versions that may be in memory end. They are read first,
// then prev and the overflow until there: this is the direction in which versions move, and
// a version is written to the next place before it leaves, so that each one is found,
// whatever is written meanwhile, and without a snapshot. One that is found twice is dropped.
// The database sorts what prev and the overflow have before it answers, so that these streams
// do not change, however slowly they are read.
//
// With a limit, what was found in some places bounds what is looked for in the next ones: in
// each of them a part is read at once.
type logging struct {
	collections []*collection
	q           driver.LogQuery // what has not been yielded
	limit       int             // how much of one place is read at once
	batch       int32           // how many versions are asked for at once, after those that were read last

	found []driver.LogPosition // in this stretch, where there is a limit
	end   *driver.LogPosition  // of this stretch; nil: that of the log
}

func (s *Store) logMany(ctx context.Context, q *driver.LogQuery, give func(*record) bool) error {
	begin, err := s.clock.instant(ctx)
	if err != nil {
		return err
	}
	l := &logging{collections: s.logged(q), q: *q, limit: logPart, batch: logBatch}
	if q.To == 0 || q.To > begin {
		l.q.To = begin + 1
	}
	if q.Limit > 0 {
		l.limit, l.batch = min(q.Limit, logPart), logPage
	}
	for more := true; more && err == nil; {
		more, err = l.stretch(ctx, give)
	}
	return err
}

// stretch yields the versions of the next stretch; false where it is the last one. Servers
// close cursors that are not read for ten minutes: then the next stretch begins after what
// was yielded.
func (l *logging) stretch(ctx context.Context, give func(*record) bool) (more bool, err error) {
	after := l.q.After
	l.found, l.end = nil, nil
	var streams []*stream
	defer func() {
		for _, s := range streams {
			s.close(ctx)
		}
	}()
	for _, list := range [...]string{"current", "prev", "vs"} {
		for _, c := range l.collections {
			s := &stream{logging: l, c: c, list: list}
			streams = append(streams, s)
			if err := s.open(ctx); err != nil {
				return false, err
			}
		}
	}
	for {
		var next *stream
		for _, s := range streams {
			if s.head != nil && (next == nil || l.order(s.head.Position(), next.head.Position()) < 0) {
				next = s
			}
		}
		if next == nil || l.end != nil && l.order(next.head.Position(), *l.end) > 0 {
			break
		}
		if p := next.head.Position(); l.q.After == nil || p != *l.q.After {
			l.q.After = &p
			if !give(next.head) {
				return false, nil // before the next version is requested
			}
		}
		if err := next.next(ctx); err != nil {
			more = isCursorGone(err) && l.q.After != after
			if more {
				err = nil
			}
			return more, err
		}
	}
	if l.end != nil {
		l.q.After = l.end
	}
	return l.end != nil, nil
}

// order compares positions in the order of the log.
func (l *logging) order(a, b driver.LogPosition) int {
	if l.q.Backward {
		a, b = b, a
	}
	return a.Compare(b)
}

// endAt ends the stretch with a position, unless it ends before.
func (l *logging) endAt(p driver.LogPosition) {
	if l.end == nil || l.order(p, *l.end) < 0 {
		l.end = &p
	}
}

// stream is the versions of a stretch in one place, in the order of the log.
type stream struct {
	*logging
	c        *collection
	list     string
	head     *record       // the next version; nil at the end
	ahead    []*record     // those that follow it, and were read
	cursor   *mongo.Cursor // on those that follow them; nil for none
	n, bytes int           // of what was read
}

func (s *stream) close(ctx context.Context) {
	if s.cursor != nil {
		closeCursor(ctx, s.cursor)
		s.cursor = nil
	}
}

// open finds what the place has, and goes to the first version.
func (s *stream) open(ctx context.Context) (err error) {
	q, here := narrowed(s.q, s.end), at(s.list)
	order := here.sortBy([]driver.Order{{Field: driver.Field{Meta: driver.MetaRecordedAt, Kind: driver.KindInstant}}}, q.Backward)
	switch s.list {
	case "current":
		filter := bson.D{{Key: "$and", Value: append(logConditions(here, s.c, q), s.keys(here.key))}}
		s.cursor, err = s.c.main.Find(ctx, filter, options.Find().SetSort(order).SetLimit(int64(s.limit)).
			SetBatchSize(s.batch).SetProjection(logFields(q, s.list)).SetAllowDiskUse(true))
	case "prev":
		s.cursor, err = s.c.main.Aggregate(ctx, s.pipeline(q, order), options.Aggregate().SetAllowDiskUse(true).SetBatchSize(s.batch))
	default:
		s.cursor, err = s.c.history.Aggregate(ctx, s.pipeline(q, order), options.Aggregate().SetAllowDiskUse(true).SetBatchSize(s.batch))
	}
	if err == nil && (s.list == "current" || q.Limit > 0) {
		err = s.readPart(ctx)
	}
	if err == nil {
		err = s.next(ctx)
	}
	return err
}

// keys is the condition on the key, in the field that has it.
func (s *stream) keys(field string) bson.D {
	if len(s.q.Keys) == 0 {
		return bson.D{}
	}
	return bson.D{{Key: field, Value: in(encodeStrings(s.q.Keys))}}
}

// pipeline selects and sorts versions in a list.
func (s *stream) pipeline(q *driver.LogQuery, order bson.D) bson.A {
	here, whole := at(s.list), *q
	whole.After = nil // a position has the key, which is not in the list
	narrow := s.keys(here.key)
	if s.list == "vs" {
		narrow = append(narrow, runsOf(q)...)
	}
	within := bson.D{{Key: "$elemMatch", Value: bson.D{{Key: "$and", Value: logConditions(at(""), s.c, &whole)}}}}
	stages := bson.A{
		bson.D{{Key: "$match", Value: append(narrow, bson.E{Key: s.list, Value: within})}},
		bson.D{{Key: "$unwind", Value: "$" + s.list}},
		bson.D{{Key: "$match", Value: bson.D{{Key: "$and", Value: logConditions(here, s.c, q)}}}},
		bson.D{{Key: "$sort", Value: order}},
	}
	if q.Limit > 0 {
		stages = append(stages, bson.D{{Key: "$limit", Value: int64(s.limit)}})
	}
	return append(stages, bson.D{{Key: "$project", Value: unwoundFields(s.list, logFields(q, s.list))}})
}

// readPart reads so many versions at once, or fewer that are large. Where there may be more,
// the stretch ends with them; and where as many as are wanted were found by now, with those.
func (s *stream) readPart(ctx context.Context) error {
	defer s.close(ctx)
	for more := true; more; {
		r, err := s.read(ctx)
		if more = r != nil; more {
			s.ahead, s.found = append(s.ahead, r), append(s.found, r.Position())
		}
		gone := isCursorGone(err) && s.n > 0
		if gone || s.n == s.limit || s.bytes > logBytes {
			s.endAt(s.ahead[s.n-1].Position())
			more, err = false, nil
		}
		if err != nil {
			return err
		}
	}
	if s.q.Limit > 0 {
		slices.SortFunc(s.found, s.order)
		if s.found = slices.Compact(s.found); len(s.found) >= s.limit {
			s.endAt(s.found[s.limit-1])
		}
	}
	return nil
}

// read returns the next version that the cursor has; nil at its end.
func (s *stream) read(ctx context.Context) (*record, error) {
	if !s.cursor.Next(ctx) {
		return nil, s.cursor.Err()
	}
	key, err := s.c.key(s.cursor.Current.Lookup("_id"))
	if err != nil {
		return nil, err
	}
	r, err := s.c.version(key, s.cursor.Current.Lookup(s.list))
	if err != nil {
		return nil, err
	}
	s.n, s.bytes = s.n+1, s.bytes+r.Size()+headOverhead
	s.batch = int32(min(s.n*logBytes/s.bytes+1, logPart))
	s.cursor.SetBatchSize(s.batch)
	return r, nil
}

// next goes on to the next version.
func (s *stream) next(ctx context.Context) (err error) {
	switch {
	case len(s.ahead) > 0:
		s.head, s.ahead = s.ahead[0], s.ahead[1:]
	case s.cursor == nil:
		s.head = nil
	default:
		s.head, err = s.read(ctx)
	}
	return err
}

// isCursorGone reports whether the server has closed a cursor (CursorNotFound,
// CursorKilled).
func isCursorGone(err error) bool {
	var server mongo.ServerError
	return errors.As(err, &server) && (server.HasErrorCode(43) || server.HasErrorCode(237))
}

// logOne reads the history of one document in order. The document is read
// first, whatever the direction, because versions move from it to the runs.
func (c *collection) logOne(ctx context.Context, q *driver.LogQuery, give func(*record) bool) error {
	newest, err := c.newest(ctx, q)
	if err != nil || len(newest) == 0 {
		return err
	}
	first, last := newest[0].Number, int64(0)
	all := func(list []*record) bool {
		if q.Backward {
			slices.Reverse(list)
		}
		for _, r := range list {
			if last != 0 && (r.Number == last || (r.Number < last) != q.Backward) {
				continue // it is in two places
			}
			if last = r.Number; inLog(q, r) && !give(r) {
				return false
			}
		}
		return true
	}
	more := !q.Backward || all(newest)
	if more && first > 1 {
		more, err = c.runs(ctx, q, first, all)
	}
	if more && err == nil && !q.Backward {
		all(newest)
	}
	return err
}

// newest reads the versions in the document itself, oldest first.
func (c *collection) newest(ctx context.Context, q *driver.LogQuery) ([]*record, error) {
	raw, err := c.main.FindOne(ctx, byKey(q.Keys[0]),
		options.FindOne().SetProjection(append(append(logFields(q, "current"), logFields(q, "prev")...), bson.E{Key: "n", Value: 1}))).Raw()
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

// How many runs are read at a time: few at first, which often have all wanted versions, then twice
// as many each time, if they are small.
const (
	runBatch = 4
	mostRuns = 1024
)

// runs reads the runs before a version that can have versions of the log.
func (c *collection) runs(ctx context.Context, q *driver.LogQuery, before int64, give func([]*record) bool) (more bool, err error) {
	if q.ToNumber != 0 {
		before = min(before, q.ToNumber)
	}
	filter := append(bson.D{
		{Key: "k", Value: encodeString(q.Keys[0])},
		{Key: "n", Value: bson.D{{Key: "$lt", Value: before}}},
		{Key: "last", Value: bson.D{{Key: "$gte", Value: q.FromNumber}}},
	}, runsOf(narrowed(*q, nil))...)
	direction := 1
	if q.Backward {
		direction = -1
	}
	cursor, err := c.history.Find(ctx, filter, options.Find().SetSort(bson.D{{Key: "n", Value: direction}}).
		SetBatchSize(runBatch).SetProjection(logFields(q, "vs")))
	if err != nil {
		return false, err
	}
	defer closeCursor(ctx, cursor)
	for n, bytes, batch := 1, 0, int32(runBatch); cursor.Next(ctx); n++ {
		bytes += len(cursor.Current)
		if cursor.RemainingBatchLength() == 0 {
			batch = min(2*batch, int32(n*logBytes/bytes+1), mostRuns)
			cursor.SetBatchSize(batch)
		}
		records, err := c.list(q.Keys[0], cursor.Current.Lookup("vs"))
		if err != nil || !give(records) {
			return false, err
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
