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

// source is a stream of versions in the order of a log, with the next one.
type source struct {
	next func() (*record, error) // nil at the end
	head *record
}

// merge joins the streams of several collections, and drops duplicates: a version may
// be found in two places.
func (s *Store) merge(ctx context.Context, q *driver.LogQuery, collections []*collection) iter.Seq2[*record, error] {
	return func(yield func(*record, error) bool) {
		begin, err := s.clock.instant(ctx)
		if err != nil {
			yield(nil, err)
			return
		}
		var sources []*source
		var opened []*logging
		h := &cutoff{q: q}
		defer func() {
			for _, l := range opened {
				l.close(ctx)
			}
		}()
		for _, c := range collections {
			l := &logging{c: c, q: q, begin: begin, since: begin, cutoff: h, batch: logBatch}
			if q.Limit > 0 {
				l.batch = logPage
			}
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
			from := first(sources, q.Backward)
			if from == nil {
				return
			}
			if p := from.head.Position(); p != last {
				last = p
				if !yield(from.head, nil) {
					return // before the next version is requested
				}
			}
			if from.head, err = from.next(); err != nil {
				yield(nil, err)
				return
			}
		}
	}
}

// first returns the source that has the next version; nil at the end.
func first(sources []*source, backward bool) (first *source) {
	for _, s := range sources {
		if s.head == nil {
			continue
		}
		if first == nil || (s.head.Position().Compare(first.head.Position()) < 0) != backward {
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
	lists   []*source // the streams of prev and overflow
	cursors []*mongo.Cursor
	part    []*record // versions that were current at begin, in order
	ended   bool      // no versions follow the part
	after   *driver.LogPosition
	batch   int32 // how many versions are asked for at once, after those that were read last
}

func (l *logging) close(ctx context.Context) {
	for _, cursor := range l.cursors {
		closeCursor(ctx, cursor)
	}
	l.cursors = nil
}

// sources opens the streams, in the direction in which versions move: those that were
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
func (l *logging) sources(ctx context.Context) ([]*source, error) {
	l.after = l.q.After
	current := &source{next: func() (*record, error) { return l.nextCurrent(ctx) }}
	var err error
	if current.head, err = current.next(); err != nil {
		return nil, err
	}
	if current.head != nil {
		l.cutoff.add(current.head)
		l.cutoff.add(l.part...)
	}
	if err := l.openLists(ctx, l.q); err != nil {
		return nil, err
	}
	return append([]*source{current}, l.lists...), nil
}

// superseding are the lists of superseded versions, in the direction in which versions
// move.
var superseding = [...]string{"prev", "vs"}

// openLists opens the streams of prev and overflow for a query, and closes those that
// were open.
func (l *logging) openLists(ctx context.Context, q *driver.LogQuery) error {
	l.close(ctx)
	for i, field := range superseding {
		s, err := l.open(ctx, field, q)
		if err == nil {
			s.head, err = s.next()
		}
		if err != nil {
			return err
		}
		if i < len(l.lists) {
			*l.lists[i] = *s
		} else {
			l.lists = append(l.lists, s)
		}
	}
	return nil
}

// open opens the stream of the superseded versions in a list. With a limit, its first part is
// read at once.
func (l *logging) open(ctx context.Context, field string, q *driver.LogQuery) (*source, error) {
	cursor, err := l.aggregate(ctx, field, l.superseded(field, q))
	if err != nil {
		return nil, err
	}
	l.cursors = append(l.cursors, cursor)
	stream := &versionStream{l: l, field: field, q: *q, cursor: cursor}
	var ahead []*record
	if l.q.Limit > 0 {
		if ahead, _, err = stream.part(ctx, l.q.Limit); err != nil {
			return nil, err
		}
		l.cutoff.add(ahead...)
	}
	return &source{next: func() (r *record, _ error) {
		if len(ahead) > 0 {
			r, ahead = ahead[0], ahead[1:]
			return r, nil
		}
		return stream.next(ctx)
	}}, nil
}

// How much of one place is in memory at a time: so many versions, or so many bytes; and how
// many versions are asked for before their size is known, and where they are a page.
const (
	logPart  = 1000
	logBytes = 2 << 20
	logBatch = 4
	logPage  = 24
)

// versionStream is the versions in one place, sorted by the database. Servers
// close cursors that are not read for ten minutes, as when an export reads another stream
// for so long. Then the stream continues after its last version, with both lists
// opened again: versions that commits have moved from prev to the overflow meanwhile are
// not in the earlier cursor on the overflow.
type versionStream struct {
	l        *logging
	field    string
	q        driver.LogQuery
	cursor   *mongo.Cursor
	n, bytes int // of what was read
}

func (l *logging) aggregate(ctx context.Context, field string, pipeline bson.A) (*mongo.Cursor, error) {
	return l.collection(field).Aggregate(ctx, pipeline, options.Aggregate().SetAllowDiskUse(true).SetBatchSize(l.batch))
}

// read returns the next version that the cursor has; nil at its end.
func (v *versionStream) read(ctx context.Context) (*record, error) {
	if !v.cursor.Next(ctx) {
		return nil, v.cursor.Err()
	}
	r, err := v.l.read(v.cursor.Current, v.field)
	if err != nil {
		return nil, err
	}
	last := r.Position()
	v.q.After = &last
	v.n, v.bytes = v.n+1, v.bytes+r.Size()+headOverhead
	v.l.batch = int32(min(v.n*logBytes/v.bytes+1, logPart))
	v.cursor.SetBatchSize(v.l.batch)
	return r, nil
}

// part reads so many versions, or fewer that are large, and reports whether there may be more.
func (v *versionStream) part(ctx context.Context, limit int) (found []*record, more bool, err error) {
	for !more {
		r, err := v.read(ctx)
		switch {
		case isCursorGone(err) && len(found) > 0:
			return found, true, nil
		case r == nil:
			return found, false, err
		}
		found = append(found, r)
		more = len(found) == limit || v.bytes > logBytes
	}
	return found, true, nil
}

func (v *versionStream) next(ctx context.Context) (*record, error) {
	r, err := v.read(ctx)
	if !isCursorGone(err) || v.n == 0 {
		return r, err
	}
	// All versions before the last one of this stream were yielded, also of the other list.
	if err := v.l.openLists(ctx, &v.q); err != nil {
		return nil, err
	}
	return v.l.lists[slices.Index(superseding[:], v.field)].head, nil
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

// readPart reads the next of them from the three places where they may be now, one
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
	opened, late := l.lists != nil, false
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
			err = l.openLists(ctx, &q)
		}
	}
	return err
}

// findPart reads the part from the three places. It stops early if versions were loaded
// that the open streams do not have.
func (l *logging) findPart(ctx context.Context, q *driver.LogQuery, limit int, opened bool) (late bool, err error) {
	order := func(a, b driver.LogPosition) int {
		if l.q.Backward {
			return b.Compare(a)
		}
		return a.Compare(b)
	}
	var found []*record
	var end *driver.LogPosition // from there on a place may have more than was read of it
	take := func(field string, cursor *mongo.Cursor, err error) error {
		if err != nil {
			return err
		}
		defer closeCursor(ctx, cursor)
		stream := &versionStream{l: l, field: field, cursor: cursor}
		part, more, err := stream.part(ctx, limit)
		found = append(found, part...)
		if last := stream.q.After; more && (end == nil || order(*last, *end) < 0) {
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
	l.part = slices.CompactFunc(found, func(a, b *record) bool { return a.Position() == b.Position() })
	l.after, l.ended = end, end == nil
	return false, nil
}
