package mongostore

import (
	"context"
	"errors"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/driver/check"
)

// A version is in one of three places: a document's current version, its prev,
// or the overflow. It moves from one to the next only, and is written to the next
// before it is removed. So a read of the three in this order, one after the
// other, finds every version at least once, and drops duplicates.
//
// The version of a document at an instant is the one whose interval [at, to)
// holds it, so that choosing the version and filtering are one condition.

// planned is a prepared query.
type planned struct {
	*driver.Query
	filter driver.Filter // planned
	// keys are the ranges that hold the keys of what the query finds; any key, unless keyed.
	keys  []check.KeyRange
	keyed bool
}

func planQuery(q *driver.Query) (*planned, error) {
	p := &planned{Query: q, filter: always{}}
	if q.Filter != nil {
		var err error
		if p.filter, err = plan(q.Filter); err != nil {
			return nil, err
		}
	}
	p.keys, p.keyed = check.Keys(p.filter)
	if p.sortedByKey() {
		desc := len(q.Order) > 0 && q.Order[0].Desc
		p.beyondKey(q.After, !desc)
		p.beyondKey(q.Before, desc)
	}
	return p, nil
}

// sortedByKey reports whether the order is that of the keys, which is an index's.
func (p *planned) sortedByKey() bool {
	return len(p.Order) == 0 || p.Order[0].Field.Meta == driver.MetaKey
}

func (p *planned) beyondKey(position *driver.Position, after bool) {
	if position == nil {
		return
	}
	if !p.keyed {
		p.keys, p.keyed = []check.KeyRange{{}}, true
	}
	p.keys = check.KeysBeyond(p.keys, position.Key, after)
}

// inKeys is the condition on the field that has the key.
func (p *planned) inKeys(field string) bson.D {
	if !p.keyed {
		return nil
	}
	ones, alternatives := bson.A{}, bson.A{}
	for _, r := range p.keys {
		if key, one := r.One(); one {
			ones = append(ones, encodeString(key))
			continue
		}
		bounds := bson.D{{Key: "$gte", Value: encodeString(r.Low)}}
		if r.High != "" {
			bounds = append(bounds, bson.E{Key: "$lt", Value: encodeString(r.High)})
		}
		alternatives = append(alternatives, bson.D{{Key: field, Value: bounds}})
	}
	if len(ones) > 0 || len(alternatives) == 0 {
		alternatives = append(alternatives, bson.D{{Key: field, Value: in(ones)}})
	}
	return oneOf(alternatives)
}

// positions are the conditions that versions at a place are within the page; that they
// are on keys says inKeys.
func (p *planned) positions(at place) bson.A {
	var conditions bson.A
	if p.sortedByKey() {
		return conditions
	}
	if p.After != nil {
		conditions = append(conditions, at.beyond(p.Order, p.After, true))
	}
	if p.Before != nil {
		conditions = append(conditions, at.beyond(p.Order, p.Before, false))
	}
	return conditions
}

// Query implements driver.Engine. It takes one command for a read at Forever, two for
// a read of the present, and at most four for one of the past.
func (s *Store) Query(ctx context.Context, q *driver.Query) ([]*driver.Version, error) {
	ctx, done := s.bounded(ctx)
	defer done()
	c := s.collections[q.Collection]
	p, err := planQuery(q)
	if err != nil {
		return nil, err
	}
	var rows []row
	err = s.inSnapshot(ctx, func(ctx context.Context) error {
		rows, err = c.rows(ctx, p)
		return err
	})
	if err != nil {
		return nil, wrap(err, "querying "+c.name)
	}
	rows = p.page(rows)
	found := make([]*driver.Version, len(rows))
	for i, r := range rows {
		found[i] = r.version
	}
	return found, nil
}

// Count implements driver.Engine.
func (s *Store) Count(ctx context.Context, q *driver.Query) (int64, error) {
	ctx, done := s.bounded(ctx)
	defer done()
	c := s.collections[q.Collection]
	whole := *q
	whole.After, whole.Before, whole.Limit, whole.Order = nil, nil, 0, nil
	p, err := planQuery(&whole)
	if err != nil {
		return 0, err
	}
	if _, none := p.filter.(never); none {
		return 0, nil
	}
	var n int64
	err = s.inSnapshot(ctx, func(ctx context.Context) error {
		n, err = c.count(ctx, p)
		return err
	})
	return n, wrap(err, "counting in "+c.name)
}

// count counts the versions of a query.
func (c *collection) count(ctx context.Context, p *planned) (int64, error) {
	if !c.knownSince(p.At) {
		n, err := c.main.CountDocuments(ctx, p.currentFilter())
		if err != nil {
			return 0, err
		}
		if later, err := c.changedSince(ctx, p.At); err != nil || !later {
			return n, err
		}
	}
	// Some documents have later versions. A document that has the version itself is counted
	// by its own fields. For the others the runs are counted, before and after: versions
	// only move to runs, so if both counts are equal, none moved meanwhile.
	overflow, err := c.countOverflow(ctx, p)
	if err != nil {
		return 0, err
	}
	for {
		n, err := c.main.CountDocuments(ctx, bson.D{{Key: "$or", Value: bson.A{p.currentFilter(), p.pastFilter("prev")}}})
		if err != nil || c.store.snapshots {
			return n + overflow, err
		}
		before := overflow
		if overflow, err = c.countOverflow(ctx, p); err != nil || overflow == before {
			return n + overflow, err
		}
	}
}

// countOverflow counts the documents whose version is in a run and not in the document as
// well, as after a commit that wrote the run and then failed.
func (c *collection) countOverflow(ctx context.Context, p *planned) (int64, error) {
	cursor, err := c.history.Aggregate(ctx, bson.A{
		bson.D{{Key: "$match", Value: p.pastFilter("vs")}},
		bson.D{{Key: "$project", Value: bson.D{{Key: "k", Value: 1}}}},
		bson.D{{Key: "$lookup", Value: bson.D{
			{Key: "from", Value: c.main.Name()}, {Key: "localField", Value: "k"}, {Key: "foreignField", Value: "_id"}, {Key: "as", Value: "d"},
		}}},
		bson.D{{Key: "$unwind", Value: "$d"}},
		bson.D{{Key: "$match", Value: bson.D{{Key: "d.current.at", Value: bson.D{{Key: "$gt", Value: int64(p.At)}}}, {Key: "$nor", Value: bson.A{bson.D{{Key: "d.prev.at", Value: bson.D{{Key: "$lte", Value: int64(p.At)}}}}}}}}},
		bson.D{{Key: "$group", Value: bson.D{{Key: "_id", Value: nil}, {Key: "n", Value: bson.D{{Key: "$sum", Value: 1}}}}}},
	})
	n := int64(0)
	err = each(ctx, cursor, err, func(raw bson.Raw) error {
		counted, ok := raw.Lookup("n").AsInt64OK()
		if !ok {
			return driver.Errorf(driver.CodeInternal, "the server counts %v", raw)
		}
		n = counted
		return nil
	})
	return n, err
}

// rows reads the versions of a query from all three places, each version once.
func (c *collection) rows(ctx context.Context, p *planned) ([]row, error) {
	if _, none := p.filter.(never); none {
		return nil, nil
	}
	r := &reader{c: c, p: p, seen: make(map[string]bool)}
	find := options.Find().SetSort(at("current").sortBy(p.Order, p.Backward)).SetLimit(int64(p.Limit)).
		SetProjection(headFields()).SetAllowDiskUse(true)
	cursor, err := c.main.Find(ctx, p.currentFilter(), find)
	if err := r.all(ctx, cursor, err, "current"); err != nil {
		return nil, err
	}
	if later, err := c.changedSince(ctx, p.At); err != nil || !later {
		return r.complete(), err
	}
	cursor, err = c.main.Aggregate(ctx, p.pastPipeline("prev"), options.Aggregate().SetAllowDiskUse(true))
	if err := r.all(ctx, cursor, err, "prev"); err != nil {
		return nil, err
	}
	cursor, err = c.history.Aggregate(ctx, p.pastPipeline("vs"), options.Aggregate().SetAllowDiskUse(true))
	err = r.all(ctx, cursor, err, "vs")
	return r.complete(), err
}

// changedSince reports whether any document has a version after an instant. A positive
// result is valid for ever and is cached.
func (c *collection) changedSince(ctx context.Context, at driver.Instant) (bool, error) {
	if at == driver.Forever {
		return false, nil
	}
	if c.knownSince(at) {
		return true, nil
	}
	last, err := c.main.FindOne(ctx, bson.D{{Key: "current.at", Value: bson.D{{Key: "$gt", Value: int64(at)}}}},
		options.FindOne().SetSort(bson.D{{Key: "current.at", Value: -1}}).SetProjection(bson.D{{Key: "_id", Value: 0}, {Key: "current.at", Value: 1}})).Raw()
	if errors.Is(err, mongo.ErrNoDocuments) {
		return false, nil
	}
	if latest, ok := last.Lookup("current", "at").Int64OK(); ok {
		for old := c.latest.Load(); old < latest && !c.latest.CompareAndSwap(old, latest); {
			old = c.latest.Load()
		}
	}
	return err == nil, err
}

// knownSince is changedSince from the cache.
func (c *collection) knownSince(at driver.Instant) bool { return int64(at) < c.latest.Load() }

// reader collects rows, each document once.
type reader struct {
	c    *collection
	p    *planned
	seen map[string]bool
	rows []row
	// last are the last rows of cursors that were not read to their end, because they had
	// more data than a page may have.
	last []row
}

// complete returns the rows up to the first one at which a cursor was left.
func (r *reader) complete() []row {
	return slices.DeleteFunc(r.rows, func(found row) bool {
		return slices.ContainsFunc(r.last, func(last row) bool {
			order := compareRows(r.p.Order, found, last)
			return r.p.Backward && order < 0 || !r.p.Backward && order > 0
		})
	})
}

// all reads a cursor to its end, or until the page is refused for its size; its
// versions are in a field of its documents.
func (r *reader) all(ctx context.Context, cursor *mongo.Cursor, err error, field string) error {
	if err != nil {
		return err
	}
	defer closeCursor(ctx, cursor)
	size := int64(0)
	for cursor.Next(ctx) {
		key, err := r.c.key(cursor.Current.Lookup("_id"))
		if err != nil {
			return err
		}
		if r.seen[key] {
			continue
		}
		r.seen[key] = true
		found, err := r.record(key, cursor.Current, field)
		if err != nil {
			return err
		}
		r.rows = append(r.rows, newRow(r.p.Order, &found.Version))
		if size += int64(found.Size()); r.p.Exceeds(size) {
			r.last = append(r.last, r.rows[len(r.rows)-1])
			return nil
		}
	}
	return cursor.Err()
}

// record reads a version from a field. A current one is cached, because its reader may
// update it next.
func (r *reader) record(key string, raw bson.Raw, field string) (*record, error) {
	if field != "current" {
		return r.c.version(key, raw.Lookup(field))
	}
	h, err := r.c.decodeHead(key, raw)
	if err != nil {
		return nil, err
	}
	r.c.remember(key, h)
	return &h.record, nil
}

// page sorts the rows of several places and returns those of the page.
func (p *planned) page(rows []row) []row {
	slices.SortFunc(rows, func(a, b row) int { return compareRows(p.Order, a, b) })
	if p.Limit > 0 && len(rows) > p.Limit {
		if p.Backward {
			return rows[len(rows)-p.Limit:]
		}
		return rows[:p.Limit]
	}
	return rows
}

// versionFields is a projection to a version without its search form.
func versionFields(prefix string) bson.D {
	fields := bson.D{}
	for _, name := range []string{"v", "at", "to", "op", "del", "by", "msg", "grp", "ch", "id", "s", "data"} {
		fields = append(fields, bson.E{Key: prefix + "." + name, Value: 1})
	}
	return fields
}

// currentFilter selects documents whose current version is that of the instant.
func (p *planned) currentFilter() bson.D {
	here := at("current")
	conditions := bson.A{bson.D{{Key: "current.del", Value: false}}}
	for _, end := range []struct {
		position *driver.Position
		after    bool
	}{{p.After, true}, {p.Before, false}} {
		if end.position == nil || p.sortedByKey() {
			continue
		}
		if bound := here.bound(p.Order, end.position, end.after); bound != nil {
			conditions = append(conditions, bound)
		}
	}
	if p.filters() {
		conditions = append(conditions, here.compile(p.filter))
	}
	conditions = append(conditions, p.positions(here)...)
	if p.At != driver.Forever {
		conditions = append(conditions, bson.D{{Key: "current.at", Value: bson.D{{Key: "$lte", Value: int64(p.At)}}}})
	}
	return append(p.inKeys("_id"), bson.E{Key: "$and", Value: conditions})
}

// filters reports whether the database applies the filter.
func (p *planned) filters() bool {
	_, all := p.filter.(always)
	return !all
}

// holding is the condition on a version's interval.
func holding(prefix string, at driver.Instant) bson.D {
	return bson.D{
		{Key: prefix + "at", Value: bson.D{{Key: "$lte", Value: int64(at)}}},
		{Key: prefix + "to", Value: bson.D{{Key: "$gt", Value: int64(at)}}},
	}
}

// pastFilter selects the documents, or runs, whose list has the version of the instant and
// which meet the query's conditions, except positions in another order than that of keys.
func (p *planned) pastFilter(list string) bson.D {
	conditions := p.inKeys(at(list).key)
	if list == "prev" {
		conditions = append(conditions, bson.E{Key: "current.at", Value: bson.D{{Key: "$gt", Value: int64(p.At)}}})
	} else {
		conditions = append(conditions, bson.E{Key: "to", Value: bson.D{{Key: "$gt", Value: int64(p.At)}}}, bson.E{Key: "from", Value: bson.D{{Key: "$lte", Value: int64(p.At)}}})
	}
	within := bson.A{bson.D{{Key: "del", Value: false}}}
	var around bson.A // conditions on the key, which is outside of the list
	if p.filters() {
		parts, ok := p.filter.(driver.And)
		if !ok {
			parts = driver.And{p.filter}
		}
		for _, f := range parts {
			if asksForKey(f) {
				around = append(around, p.around(list, f))
			} else {
				within = append(within, at("").compile(f))
			}
		}
	}
	conditions = append(conditions, p.held(list, within)...)
	if around != nil {
		conditions = append(conditions, bson.E{Key: "$and", Value: around})
	}
	return conditions
}

// held is the condition that a list has the version of the instant, and that it meets
// the given conditions.
func (p *planned) held(list string, conditions bson.A) bson.D {
	return bson.D{{Key: list, Value: bson.D{{Key: "$elemMatch", Value: bson.D{{Key: "$and", Value: append(bson.A{holding("", p.At)}, conditions...)}}}}}}
}

// around is a filter on the key as a condition on a document, or run, whose list has the
// version of the instant.
func (p *planned) around(list string, f driver.Filter) bson.D {
	all := func(filters []driver.Filter) bson.A {
		var conditions bson.A
		for _, f := range filters {
			conditions = append(conditions, p.around(list, f))
		}
		return conditions
	}
	if !asksForKey(f) {
		return p.held(list, bson.A{at("").compile(f)})
	}
	switch f := f.(type) {
	case driver.And:
		return bson.D{{Key: "$and", Value: all(f)}}
	case driver.Or:
		return bson.D{{Key: "$or", Value: all(f)}}
	case driver.Not:
		return bson.D{{Key: "$nor", Value: bson.A{p.around(list, f.Filter)}}}
	}
	return at(list).compile(f)
}

// pastPipeline reads the versions of the instant from a list. A page in the order of
// keys ends when it is full: no documents after its last key are examined.
func (p *planned) pastPipeline(list string) bson.A {
	here := at(list)
	page := bson.A{bson.D{{Key: "$sort", Value: here.sortBy(p.Order, p.Backward)}}}
	if p.Limit > 0 {
		page = append(page, bson.D{{Key: "$limit", Value: int64(p.Limit)}})
	}
	first := p.sortedByKey() && p.Limit > 0
	stages := bson.A{bson.D{{Key: "$match", Value: p.pastFilter(list)}}}
	if first {
		stages = append(stages, page...)
	}
	stages = append(stages, choose(list, heldAt(list, p.At)), bson.D{{Key: "$unwind", Value: "$" + list}})
	if positions := p.positions(here); positions != nil {
		stages = append(stages, bson.D{{Key: "$match", Value: bson.D{{Key: "$and", Value: positions}}}})
	}
	if !first {
		stages = append(stages, page...)
	}
	return append(stages, bson.D{{Key: "$project", Value: unwoundFields(list, versionFields(list))}})
}

// heldAt is the position of an instant's version in a list that begins at or before the
// instant: versions are in the order of their times, so it is the number of
// versions until then, minus one.
func heldAt(list string, at driver.Instant) bson.D {
	until := bson.D{{Key: "$size", Value: bson.D{{Key: "$filter", Value: bson.D{
		{Key: "input", Value: "$" + list + ".at"},
		{Key: "as", Value: "at"},
		{Key: "cond", Value: bson.D{{Key: "$lte", Value: bson.A{"$$at", int64(at)}}}},
	}}}}}
	return bson.D{{Key: "$subtract", Value: bson.A{until, 1}}}
}

// numbered is the position of a version in a list that has it: numbers have no gaps.
func numbered(list string, number int64) bson.D {
	first := any("$n") // of a run
	if list == "prev" {
		first = bson.D{{Key: "$arrayElemAt", Value: bson.A{"$prev.v", 0}}}
	}
	return bson.D{{Key: "$subtract", Value: bson.A{number, first}}}
}

// choose is a stage that keeps only the version at a position in a list.
func choose(list string, place bson.D) bson.D {
	fields := bson.D{{Key: list, Value: bson.D{{Key: "$slice", Value: bson.A{"$" + list, place, 1}}}}}
	if list == "vs" {
		fields = append(fields, bson.E{Key: "k", Value: 1})
	}
	return bson.D{{Key: "$project", Value: fields}}
}

// asksForKey reports whether a filter has a condition on a document's key.
func asksForKey(f driver.Filter) bool {
	return slices.ContainsFunc(driver.Fields(f), func(f driver.Field) bool { return f.Meta == driver.MetaKey })
}
