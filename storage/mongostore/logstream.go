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

// merge joins the streams of several collections, and drops duplicates: a version may
// be found in two places.
func (s *Store) merge(ctx context.Context, q *driver.LogQuery, collections []*collection) iter.Seq2[*record, error] {
	return func(yield func(*record, error) bool) {
		begin, err := s.clock.instant(ctx)
		if err != nil {
			yield(nil, err)
			return
		}
		var streams []*stream
		defer func() {
			for _, s := range streams {
				s.close(ctx)
			}
		}()
		h := &cutoff{q: q}
		for _, c := range collections {
			l := &logging{c: c, q: q, begin: begin, since: begin, cutoff: h, after: q.After, batch: logBatch}
			if q.Limit > 0 {
				l.batch = logPage
			}
			l.current = stream{l: l, field: "current"}
			streams = append(streams, &l.current, &l.lists[0], &l.lists[1])
			if err := l.open(ctx); err != nil {
				yield(nil, err)
				return
			}
		}
		var last driver.LogPosition
		for {
			from := first(streams, inOrder(q))
			if from == nil {
				return
			}
			if p := from.head.Position(); p != last {
				last = p
				if !yield(from.head, nil) {
					return // before the next version is requested
				}
			}
			if err := from.next(ctx); err != nil {
				yield(nil, err)
				return
			}
		}
	}
}

// first returns the stream that has the next version; nil at the end.
func first(streams []*stream, order func(a, b driver.LogPosition) int) (first *stream) {
	for _, s := range streams {
		if s.head != nil && (first == nil || order(s.head.Position(), first.head.Position()) < 0) {
			first = s
		}
	}
	return first
}

// logging reads the log of one collection as it was at an instant.
type logging struct {
	c     *collection
	q     *driver.LogQuery
	begin driver.Instant
	// since is when the streams were opened: begin, unless they had to be opened
	// again. They have the versions that were superseded by then.
	since   driver.Instant
	cutoff  *cutoff
	current stream                   // of versions that were current at begin, which are read in parts
	lists   [len(superseding)]stream // of those that were superseded
	ended   bool                     // no versions follow the part of current
	after   *driver.LogPosition      // where that ends
	batch   int32                    // how many versions are asked for at once, after those that were read last
}

// open opens the streams, in the direction in which versions move: those that were
// current, prev, overflow. The database sorts before it answers, so that a stream
// does not change, and needs no snapshot, which servers keep for some minutes only,
// however slowly it is read. Without a snapshot, the scan still finds every version
// that was superseded before: a version leaves a document only for a run, which is
// read later, and the fields by which documents and runs are found do not
// change. Versions that are found twice are dropped.
//
// A later load may supersede versions at earlier times, which are not in the
// streams; then they are opened again (readPart).
//
// With a limit, each place is read only up to the cutoff that follows from the ones
// before.
func (l *logging) open(ctx context.Context) error {
	if err := l.current.next(ctx); err != nil {
		return err
	}
	return l.openLists(ctx, *l.q)
}

// superseding are the lists of superseded versions, in the direction in which versions
// move.
var superseding = [...]string{"prev", "vs"}

// openLists opens the streams of prev and overflow for a query, also once more. With a limit, a
// part of each is read at once.
func (l *logging) openLists(ctx context.Context, q driver.LogQuery) error {
	for i, field := range superseding {
		s := &l.lists[i]
		s.close(ctx)
		cursor, err := l.aggregate(ctx, field, l.superseded(field, &q))
		if err != nil {
			return err
		}
		*s = stream{l: l, field: field, q: q, cursor: cursor}
		if q.Limit > 0 {
			if s.ahead, _, err = s.part(ctx, q.Limit); err != nil {
				return err
			}
			l.cutoff.add(s.ahead...)
		}
		if err := s.next(ctx); err != nil {
			return err
		}
	}
	return nil
}

// How much of one place is in memory at a time: so many versions, or so many bytes; and how
// many versions are asked for before their size is known, and where they are a page.
const (
	logPart  = 1000
	logBytes = 2 << 20
	logBatch = 4
	logPage  = 24
)

// stream is the versions in one place in the order of a log, sorted by the database. Servers
// close cursors that are not read for ten minutes, as when an export reads another stream
// for so long. Then the stream continues after its last version, with both lists
// opened again: versions that commits have moved from prev to the overflow meanwhile are
// not in the earlier cursor on the overflow.
type stream struct {
	l        *logging
	field    string
	head     *record         // the next version; nil at the end
	ahead    []*record       // those that follow it, and were read
	cursor   *mongo.Cursor   // on those that follow them; nil for current, and where nothing is open
	q        driver.LogQuery // what it was opened for, after the last version that was read
	n, bytes int             // of what was read
}

func (s *stream) close(ctx context.Context) {
	if s.cursor != nil {
		closeCursor(ctx, s.cursor)
	}
}

func (l *logging) aggregate(ctx context.Context, field string, pipeline bson.A) (*mongo.Cursor, error) {
	return l.collection(field).Aggregate(ctx, pipeline, options.Aggregate().SetAllowDiskUse(true).SetBatchSize(l.batch))
}

// read returns the next version that the cursor has; nil at its end.
func (s *stream) read(ctx context.Context) (*record, error) {
	if !s.cursor.Next(ctx) {
		return nil, s.cursor.Err()
	}
	r, err := s.l.read(s.cursor.Current, s.field)
	if err != nil {
		return nil, err
	}
	last := r.Position()
	s.q.After = &last
	s.n, s.bytes = s.n+1, s.bytes+r.Size()+headOverhead
	s.l.batch = int32(min(s.n*logBytes/s.bytes+1, logPart))
	s.cursor.SetBatchSize(s.l.batch)
	return r, nil
}

// part reads so many versions, or fewer that are large, and reports whether there may be more.
func (s *stream) part(ctx context.Context, limit int) (found []*record, more bool, err error) {
	for !more {
		r, err := s.read(ctx)
		switch {
		case isCursorGone(err) && len(found) > 0:
			return found, true, nil
		case r == nil:
			return found, false, err
		}
		found = append(found, r)
		more = len(found) == limit || s.bytes > logBytes
	}
	return found, true, nil
}

// next goes on to the next version.
func (s *stream) next(ctx context.Context) (err error) {
	if len(s.ahead) == 0 && s == &s.l.current && !s.l.ended {
		if err := s.l.readPart(ctx); err != nil {
			return err
		}
	}
	switch {
	case len(s.ahead) > 0:
		s.head, s.ahead = s.ahead[0], s.ahead[1:]
	case s.cursor == nil:
		s.head = nil
	default:
		s.head, err = s.read(ctx)
	}
	if isCursorGone(err) && s.n > 0 {
		// All versions before the last one of this stream were yielded, also of the other list.
		return s.l.openLists(ctx, s.q)
	}
	return err
}

// isCursorGone reports whether the server has closed a cursor (CursorNotFound,
// CursorKilled).
func isCursorGone(err error) bool {
	var server mongo.ServerError
	return errors.As(err, &server) && (server.HasErrorCode(43) || server.HasErrorCode(237))
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
	return bson.D{{Key: field, Value: in(encodeStrings(l.q.Keys))}}
}

// noData reports whether a log needs no Data.
func noData(q *driver.LogQuery) bool { return q.Fields != nil && len(q.Fields) == 0 }

// fields is the projection to the requested members of a version.
func (l *logging) fields(list string) bson.D {
	fields := versionFields(list)
	if noData(l.q) {
		fields = slices.DeleteFunc(fields, func(e bson.E) bool { return e.Key == list+".data" })
	}
	return fields
}

func (l *logging) order(p place) bson.D {
	return p.sortBy([]driver.Order{{Field: driver.Field{Meta: driver.MetaRecordedAt, Kind: driver.KindInstant}}}, l.q.Backward)
}

// superseded is a pipeline over the versions in a list that were superseded before the
// streams were opened.
func (l *logging) superseded(list string, q *driver.LogQuery) bson.A {
	ended := bson.D{{Key: "to", Value: bson.D{{Key: "$lte", Value: int64(l.since)}}}}
	if l.since != l.begin {
		ended = append(ended, bson.E{Key: "at", Value: bson.D{{Key: "$lte", Value: int64(l.begin)}}})
	}
	return l.unwound(list, q, ended, l.q.Limit)
}

// unwound is a pipeline over the versions in a list for which a condition on their
// own fields holds.
func (l *logging) unwound(list string, q *driver.LogQuery, inside bson.D, limit int) bson.A {
	q = l.cutoff.bounded(q)
	condition := bson.D{}
	for _, e := range inside {
		condition = append(condition, bson.E{Key: list + "." + e.Key, Value: e.Value})
	}
	whole := *q
	whole.After = nil // a position has the key, which is not in the list
	within := append(bson.A{inside}, logConditions(at(""), l.c, &whole)...)
	narrow := l.keys(at(list).key)
	if list == "vs" {
		narrow = append(narrow, runsOf(q)...)
	}
	stages := bson.A{
		bson.D{{Key: "$match", Value: append(narrow, bson.E{Key: list, Value: bson.D{{Key: "$elemMatch", Value: bson.D{{Key: "$and", Value: within}}}}})}},
		bson.D{{Key: "$unwind", Value: "$" + list}},
		bson.D{{Key: "$match", Value: bson.D{{Key: "$and", Value: append(bson.A{condition}, logConditions(at(list), l.c, q)...)}}}},
		bson.D{{Key: "$sort", Value: l.order(at(list))}},
	}
	if limit > 0 {
		stages = append(stages, bson.D{{Key: "$limit", Value: int64(limit)}})
	}
	return append(stages, bson.D{{Key: "$project", Value: unwoundFields(list, l.fields(list))}})
}

// readPart reads the next versions that were current when the log began, from the three places where they may be now, one
// after the other, a part of each, up to where one of the parts ends.
//
// A load on a document that had versions, after the streams were opened, supersedes
// versions that were current, at times in the past. Then the streams are opened again,
// after the last version that was yielded, so that they have those.
func (l *logging) readPart(ctx context.Context) error {
	limit := logPart
	if l.q.Limit > 0 {
		limit = min(limit, l.q.Limit)
	}
	q := *l.q
	q.After = l.after
	opened, late := l.lists[0].cursor != nil, false
	read := func(ctx context.Context) error {
		var err error
		late, err = l.findPart(ctx, &q, limit, opened)
		return err
	}
	err := l.c.store.inSnapshot(ctx, read)
	if err == nil && late {
		opened = false
		if l.since, err = l.c.store.clock.instant(ctx); err == nil {
			err = l.c.store.inSnapshot(ctx, read)
		}
		if err == nil {
			err = l.openLists(ctx, q)
		}
	}
	return err
}

// findPart reads the part from the three places. It stops early if versions were loaded
// that the open streams do not have.
func (l *logging) findPart(ctx context.Context, q *driver.LogQuery, limit int, opened bool) (late bool, err error) {
	order := inOrder(q)
	var found []*record
	var end *driver.LogPosition // from there on a place may have more than was read of it
	take := func(field string, cursor *mongo.Cursor, err error) error {
		if err != nil {
			return err
		}
		defer closeCursor(ctx, cursor)
		s := &stream{l: l, field: field, cursor: cursor}
		part, more, err := s.part(ctx, limit)
		found = append(found, part...)
		if last := s.q.After; more && (end == nil || order(*last, *end) < 0) {
			end = last
		}
		return err
	}
	here := at("current")
	before := bson.E{Key: "at", Value: bson.D{{Key: "$lte", Value: int64(l.begin)}}}
	conditions := bson.A{bson.D{{Key: "current.at", Value: before.Value}}, l.keys("_id")}
	conditions = append(conditions, logConditions(here, l.c, l.cutoff.bounded(q))...)
	cursor, err := l.c.main.Find(ctx, bson.D{{Key: "$and", Value: conditions}}, options.Find().SetSort(l.order(here)).
		SetLimit(int64(limit)).SetBatchSize(l.batch).SetProjection(l.fields("current")).SetAllowDiskUse(true))
	if err := take("current", cursor, err); err != nil {
		return false, err
	}
	later, err := l.c.changedSince(ctx, l.since)
	if err != nil {
		return false, err
	}
	if opened {
		// A load says when it is before it writes.
		if loaded, err := l.c.store.loaded(ctx); loaded > l.since || err != nil {
			return err == nil, err
		}
	}
	still := bson.D{before, {Key: "to", Value: bson.D{{Key: "$gt", Value: int64(l.since)}}}}
	for _, list := range superseding {
		if !later {
			break
		}
		cursor, err := l.aggregate(ctx, list, l.unwound(list, q, still, limit))
		if err := take(list, cursor, err); err != nil {
			return false, err
		}
	}
	found = slices.DeleteFunc(found, func(r *record) bool { return end != nil && order(r.Position(), *end) > 0 })
	slices.SortFunc(found, func(a, b *record) int { return order(a.Position(), b.Position()) })
	l.current.ahead = slices.CompactFunc(found, func(a, b *record) bool { return a.Position() == b.Position() })
	l.cutoff.add(l.current.ahead...)
	l.after, l.ended = end, end == nil
	return false, nil
}
