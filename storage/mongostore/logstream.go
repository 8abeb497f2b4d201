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
			l := &logging{c: c, q: q, begin: begin, since: begin, cutoff: h}
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

// open opens the stream of the superseded versions in a list.
func (l *logging) open(ctx context.Context, field string, q *driver.LogQuery) (*source, error) {
	cursor, err := l.collection(field).Aggregate(ctx, l.superseded(field, q), options.Aggregate().SetAllowDiskUse(true))
	if l.q.Limit > 0 {
		var found []*record
		err := each(ctx, cursor, err, func(raw bson.Raw) error {
			r, err := l.read(raw, field)
			found = append(found, r)
			return err
		})
		if err != nil {
			return nil, err
		}
		l.cutoff.add(found...)
		return &source{next: func() (r *record, _ error) {
			if len(found) > 0 {
				r, found = found[0], found[1:]
			}
			return r, nil
		}}, nil
	}
	if err != nil {
		return nil, err
	}
	stream := &versionStream{l: l, field: field, q: *q, cursor: cursor}
	l.cursors = append(l.cursors, cursor)
	return &source{next: func() (*record, error) { return stream.next(ctx) }}, nil
}

// versionStream is the superseded versions in a list, sorted by the database. Servers
// close cursors that are not read for ten minutes, as when an export reads another stream
// for so long. Then the stream continues after its last version, with both lists
// opened again: versions that commits have moved from prev to the overflow meanwhile are
// not in the earlier cursor on the overflow.
type versionStream struct {
	l      *logging
	field  string
	q      driver.LogQuery
	cursor *mongo.Cursor
	moved  bool // by the cursor
}

func (v *versionStream) next(ctx context.Context) (*record, error) {
	if v.cursor.Next(ctx) {
		r, err := v.l.read(v.cursor.Current, v.field)
		if err == nil {
			p := r.Position()
			v.q.After, v.moved = &p, true
		}
		return r, err
	}
	err := v.cursor.Err()
	if !isCursorGone(err) || !v.moved {
		return nil, err
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
	keys := make(bson.A, len(l.q.Keys))
	for i, key := range l.q.Keys {
		keys[i] = encodeString(key)
	}
	return bson.D{{Key: field, Value: in(keys)}}
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

// logPart is how many of the versions that were current are read at a time.
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

// readPart reads the next of them from the three places where they may be now, one
// after the other. The first n of all are among the first n of each.
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
		c := a.Position().Compare(b.Position())
		if l.q.Backward {
			return -c
		}
		return c
	})
	found = slices.CompactFunc(found, func(a, b *record) bool { return a.Position() == b.Position() })
	if len(found) < limit {
		l.ended = true
	} else {
		found = found[:limit]
		after := found[limit-1].Position()
		l.after = &after
	}
	l.part = found
	return nil
}

// findPart reads the part from the three places. It stops early if versions were loaded
// that the open streams do not have.
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
	conditions = append(conditions, logConditions(here, l.c, l.cutoff.bounded(q))...)
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
		// A load says when it is before it writes.
		if loaded, err := l.c.store.loaded(ctx); loaded > l.since || err != nil {
			return nil, err == nil, err
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
