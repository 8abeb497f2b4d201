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

// merge joins the streams of several collections, and drops what is in two places.
func (s *Store) merge(ctx context.Context, q *driver.LogQuery, collections []*collection) iter.Seq2[*record, error] {
	return func(yield func(*record, error) bool) {
		begin, err := s.clock.instant(ctx)
		if err != nil {
			yield(nil, err)
			return
		}
		var sources []*source
		var opened []*logging
		h := &horizon{q: q}
		defer func() {
			for _, l := range opened {
				l.close(ctx)
			}
		}()
		for _, c := range collections {
			l := &logging{c: c, q: q, begin: begin, since: begin, horizon: h}
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
			if p := positionOf(from.head); p != last {
				last = p
				if !yield(from.head, nil) {
					return // before what follows is asked for
				}
			}
			if from.head, err = from.next(); err != nil {
				yield(nil, err)
				return
			}
		}
	}
}

// first is the source that has the next version; nil at the end.
func first(sources []*source, backward bool) (first *source) {
	for _, s := range sources {
		if s.head == nil {
			continue
		}
		if first == nil || (comparePositions(positionOf(s.head), positionOf(first.head)) < 0) != backward {
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
	// again. They have what had been superseded then.
	since   driver.Instant
	horizon *horizon
	lists   []*source // the streams of prev and overflow
	cursors []*mongo.Cursor
	part    []*record // read of what was current, in order
	ended   bool      // nothing follows the part
	after   *driver.LogPosition
}

func (l *logging) close(ctx context.Context) {
	for _, cursor := range l.cursors {
		closeCursor(ctx, cursor)
	}
	l.cursors = nil
}

// sources opens the streams, in the direction that versions move in: what was
// current, prev, overflow. The database has sorted when it answers, so that each
// stream stands from then on, and however slowly it is read, it needs no snapshot,
// which servers keep for some minutes only. A scan that is none meets all the same
// what had been superseded: those versions leave a document only for a run, which
// is looked for later, and neither documents nor runs move by what they are found
// by. What is met twice is dropped.
//
// A load that comes later may supersede versions at times before, which are not in
// the streams then; they are opened again (readPart).
//
// Where there is a limit, each place is read as far as the ones before leave it
// open (horizon).
func (l *logging) sources(ctx context.Context) ([]*source, error) {
	l.after = l.q.After
	current := &source{next: func() (*record, error) { return l.nextCurrent(ctx) }}
	var err error
	if current.head, err = current.next(); err != nil {
		return nil, err
	}
	if current.head != nil {
		l.horizon.add(current.head)
		l.horizon.add(l.part...)
	}
	if err := l.openLists(ctx, l.q); err != nil {
		return nil, err
	}
	return append([]*source{current}, l.lists...), nil
}

// superseding are the lists of what was superseded, in the direction that versions
// move in.
var superseding = [...]string{"prev", "vs"}

// openLists opens the streams of prev and overflow, as far as a query goes; where
// they were open, again.
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

// open opens the stream of what was superseded in a list.
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
		l.horizon.add(found...)
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

// versionStream is what was superseded in a list, as the database sorts it. Servers
// give up cursors that nobody asks for ten minutes, as when all that an export has to
// tell for so long is elsewhere; then it goes on behind what it told, with both lists
// opened again: what a new cursor on prev does not meet, since commits have moved it to
// the overflow, came too late for the one that was opened there before.
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
			p := positionOf(r)
			v.q.After, v.moved = &p, true
		}
		return r, err
	}
	err := v.cursor.Err()
	if !isCursorGone(err) || !v.moved {
		return nil, err
	}
	// All before what this one told last has been told, of the other list too.
	if err := v.l.openLists(ctx, &v.q); err != nil {
		return nil, err
	}
	return v.l.lists[slices.Index(superseding[:], v.field)].head, nil
}

// isCursorGone reports whether an error says that the server gave up a cursor
// (CursorNotFound, CursorKilled).
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

// fields is the projection to a version as far as it was asked for.
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

// superseded is a pipeline over the versions in a list that had been
// superseded when the streams were opened.
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
	q = l.horizon.bounded(q)
	condition := bson.D{}
	for _, e := range inside {
		condition = append(condition, bson.E{Key: list + "." + e.Key, Value: e.Value})
	}
	whole := *q
	whole.After = nil // the key, which a position is about, is outside
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
