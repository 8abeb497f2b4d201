package mongostore

import (
	"context"
	"errors"
	"slices"

	"github.com/tidwall/gjson"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/driver/check"
)

// A version is in one of three places: a document's current version, its prev,
// or the overflow. It only ever moves on from one to the next, and arrives
// before it leaves. So a read that looks at them in this order, one after the
// other, meets every version at least once; what it meets twice it drops.
//
// The version of a document at an instant is the one whose interval [at, to)
// holds it, so that choosing the version and filtering are one condition.

// planned is a query, checked and made ready.
type planned struct {
	*driver.Query
	filter driver.Filter // planned and hoisted
	local  bool          // deeper than the search form: filtered, sorted and cut here
}

func planQuery(q *driver.Query) (*planned, error) {
	p := &planned{Query: q, filter: always{}}
	if q.Limit < 0 {
		return nil, invalidf("the limit %d is negative", q.Limit)
	}
	for _, o := range q.Order {
		if err := check.Field(o.Field, false); err != nil {
			return nil, err
		}
		p.local = p.local || len(o.Field.Path) > maxDepth
	}
	for _, position := range []*driver.Position{q.After, q.Before} {
		if err := checkPosition(position, q.Order); err != nil {
			return nil, err
		}
	}
	if q.Filter != nil {
		filter, err := plan(q.Filter, false)
		if err != nil {
			return nil, err
		}
		p.filter = hoist(filter)
	}
	p.local = p.local || depth(p.filter) > maxDepth
	return p, nil
}

// pushed is what the database applies of the filter and the page.
func (p *planned) pushed(at place) bson.A {
	var conditions bson.A
	if p.local {
		return conditions
	}
	if _, all := p.filter.(always); !all {
		conditions = append(conditions, at.compile(p.filter))
	}
	if p.After != nil {
		conditions = append(conditions, at.beyond(p.Order, p.After, true))
	}
	if p.Before != nil {
		conditions = append(conditions, at.beyond(p.Order, p.Before, false))
	}
	return conditions
}

func (p *planned) limit() int64 {
	if p.local {
		return 0
	}
	return int64(p.Limit)
}

// Query implements driver.Engine. It takes one command for a read of what is
// current for ever, two for one of what is current, and at most four for one
// of the past.
func (s *Store) Query(ctx context.Context, q *driver.Query) ([]*driver.Version, error) {
	ctx, leave, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	c, err := s.collection(q.Collection)
	if err != nil {
		return nil, err
	}
	p, err := planQuery(q)
	if err != nil {
		return nil, err
	}
	var rows []row
	err = s.inSnapshot(ctx, func(ctx context.Context) error {
		rows, err = c.rows(ctx, p, false)
		return err
	})
	if err != nil {
		return nil, wrap(err, "querying "+c.name)
	}
	if p.local {
		rows = p.evaluate(rows)
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
	ctx, leave, err := s.enter(ctx)
	if err != nil {
		return 0, err
	}
	defer leave()
	c, err := s.collection(q.Collection)
	if err != nil {
		return 0, err
	}
	if _, err := planQuery(q); err != nil {
		return 0, err
	}
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

// count counts what a query finds.
func (c *collection) count(ctx context.Context, p *planned) (int64, error) {
	if !p.local && !c.knownSince(p.At) {
		n, err := c.main.CountDocuments(ctx, p.currentFilter())
		if err != nil {
			return 0, err
		}
		if later, err := c.changedSince(ctx, p.At); err != nil || !later {
			return n, err
		}
	}
	// Some documents have later versions: their counted ones are in three
	// places, and only the keys tell which are the same.
	rows, err := c.rows(ctx, p, !p.local)
	if err != nil {
		return 0, err
	}
	if p.local {
		rows = p.evaluate(rows)
	}
	return int64(len(rows)), nil
}

// rows reads what a query finds in all three places, each version once. Only
// their keys are read where the caller wants to count, and knows that there are
// later versions.
func (c *collection) rows(ctx context.Context, p *planned, keysOnly bool) ([]row, error) {
	if _, none := p.filter.(never); none {
		return nil, nil
	}
	r := &reader{c: c, p: p, keysOnly: keysOnly, seen: make(map[string]bool)}
	find := options.Find().SetSort(place.sortBy(at("current"), p.sorting(), p.Backward)).SetLimit(p.limit()).
		SetProjection(currentProjection(keysOnly)).SetAllowDiskUse(true)
	cursor, err := c.main.Find(ctx, p.currentFilter(), find)
	if err := r.all(ctx, cursor, err, "current"); err != nil {
		return nil, err
	}
	if !keysOnly {
		if later, err := c.changedSince(ctx, p.At); err != nil || !later {
			return r.rows, err
		}
	}
	cursor, err = c.main.Aggregate(ctx, p.prevPipeline(keysOnly), options.Aggregate().SetAllowDiskUse(true))
	if err := r.all(ctx, cursor, err, "prev"); err != nil {
		return nil, err
	}
	cursor, err = c.history.Aggregate(ctx, p.overflowPipeline(keysOnly), options.Aggregate().SetAllowDiskUse(true))
	return r.rows, r.all(ctx, cursor, err, "vs")
}

// sorting is the order that the database sorts by.
func (p *planned) sorting() []driver.Order {
	if p.local {
		return nil
	}
	return p.Order
}

// changedSince reports whether any document has a version after an instant. What is
// after one stays so, and needs no second look.
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

// knownSince is changedSince as far as it is known without asking.
func (c *collection) knownSince(at driver.Instant) bool { return int64(at) < c.latest.Load() }

// reader collects rows, each document once.
type reader struct {
	c        *collection
	p        *planned
	keysOnly bool
	seen     map[string]bool
	rows     []row
}

// all reads a cursor to its end; its versions are in a field of its documents.
func (r *reader) all(ctx context.Context, cursor *mongo.Cursor, err error, field string) error {
	if err != nil {
		return err
	}
	defer closeCursor(ctx, cursor)
	for cursor.Next(ctx) {
		key, err := r.c.key(cursor.Current.Lookup("_id"))
		if err != nil {
			return err
		}
		if r.seen[key] {
			continue
		}
		r.seen[key] = true
		if r.keysOnly {
			r.rows = append(r.rows, row{version: &driver.Version{Key: key}})
			continue
		}
		found, err := r.record(key, cursor.Current, field)
		if err != nil {
			return err
		}
		r.rows = append(r.rows, newRow(r.p.Order, &found.Version))
	}
	return cursor.Err()
}

// record reads a version that is in a field. Who was shown a current one may be about
// to update it, so it is remembered.
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

// evaluate filters, and cuts at the positions, what the database could not.
func (p *planned) evaluate(rows []row) []row {
	return slices.DeleteFunc(rows, func(r row) bool {
		against := func(position *driver.Position) int {
			return comparePlaces(p.Order, r.values, placeOf(p.Order, position), r.version.Key, position.Key)
		}
		return p.After != nil && against(p.After) <= 0 || p.Before != nil && against(p.Before) >= 0 ||
			!holds(p.filter, r.version, gjson.ParseBytes(r.version.Data))
	})
}

// page sorts what came from several places and cuts the page out of it.
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

func currentProjection(keysOnly bool) bson.D {
	if keysOnly {
		return bson.D{{Key: "_id", Value: 1}}
	}
	return headFields()
}

// versionFields is a projection to a version without its search form.
func versionFields(prefix string) bson.D {
	fields := bson.D{}
	for _, name := range []string{"v", "at", "to", "op", "del", "by", "msg", "grp", "ch", "id", "data"} {
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
		if end.position == nil || p.local {
			continue
		}
		if bound := here.bound(p.Order, end.position, end.after); bound != nil {
			conditions = append(conditions, bound)
		}
	}
	conditions = append(conditions, p.pushed(here)...)
	if p.At != driver.Forever {
		conditions = append(conditions, bson.D{{Key: "current.at", Value: bson.D{{Key: "$lte", Value: int64(p.At)}}}})
	}
	return bson.D{{Key: "$and", Value: conditions}}
}

// holding is the condition on a version's interval.
func holding(prefix string, at driver.Instant) bson.D {
	return bson.D{
		{Key: prefix + "at", Value: bson.D{{Key: "$lte", Value: int64(at)}}},
		{Key: prefix + "to", Value: bson.D{{Key: "$gt", Value: int64(at)}}},
	}
}

// prevPipeline selects from documents that have a later version now.
func (p *planned) prevPipeline(keysOnly bool) bson.A {
	narrow := bson.D{
		{Key: "current.at", Value: bson.D{{Key: "$gt", Value: int64(p.At)}}},
		{Key: "prev", Value: bson.D{{Key: "$elemMatch", Value: p.element()}}},
	}
	return p.unwound("prev", narrow, keysOnly)
}

// overflowPipeline selects from runs whose versions surround the instant.
func (p *planned) overflowPipeline(keysOnly bool) bson.A {
	narrow := bson.D{
		{Key: "to", Value: bson.D{{Key: "$gt", Value: int64(p.At)}}},
		{Key: "from", Value: bson.D{{Key: "$lte", Value: int64(p.At)}}},
		{Key: "vs", Value: bson.D{{Key: "$elemMatch", Value: p.element()}}},
	}
	return p.unwound("vs", narrow, keysOnly)
}

// element is the condition on one version of a list, as far as it can be
// evaluated there: the document's key is outside.
func (p *planned) element() bson.D {
	conditions := bson.A{holding("", p.At), bson.D{{Key: "del", Value: false}}}
	list, ok := p.filter.(driver.And)
	if !ok {
		list = driver.And{p.filter}
	}
	for _, f := range list {
		if _, all := f.(always); !all && !p.local && !asksForKey(f) {
			conditions = append(conditions, at("").compile(f))
		}
	}
	return bson.D{{Key: "$and", Value: conditions}}
}

// unwound is a pipeline over the versions in a list that hold at the instant.
func (p *planned) unwound(list string, narrow bson.D, keysOnly bool) bson.A {
	here := at(list)
	conditions := append(bson.A{holding(here.prefix, p.At), bson.D{{Key: list + ".del", Value: false}}}, p.pushed(here)...)
	stages := bson.A{
		bson.D{{Key: "$match", Value: narrow}},
		choose(list, heldAt(list, p.At)),
		bson.D{{Key: "$unwind", Value: "$" + list}},
		bson.D{{Key: "$match", Value: bson.D{{Key: "$and", Value: conditions}}}},
		bson.D{{Key: "$sort", Value: here.sortBy(p.sorting(), p.Backward)}},
	}
	if n := p.limit(); n > 0 {
		stages = append(stages, bson.D{{Key: "$limit", Value: n}})
	}
	var fields bson.D
	if !keysOnly {
		fields = versionFields(list)
	}
	return append(stages, bson.D{{Key: "$project", Value: unwoundFields(list, fields)}})
}

// heldAt is the place, in a list that begins at or before an instant, of the
// version that it holds: versions are in the order of their times, so that it
// is how many there are until then, less one.
func heldAt(list string, at driver.Instant) bson.D {
	until := bson.D{{Key: "$size", Value: bson.D{{Key: "$filter", Value: bson.D{
		{Key: "input", Value: "$" + list + ".at"},
		{Key: "as", Value: "at"},
		{Key: "cond", Value: bson.D{{Key: "$lte", Value: bson.A{"$$at", int64(at)}}}},
	}}}}}
	return bson.D{{Key: "$subtract", Value: bson.A{until, 1}}}
}

// numbered is the place of a version in a list that has it: numbers have no gaps.
func numbered(list string, number int64) bson.D {
	first := any("$n") // of a run
	if list == "prev" {
		first = bson.D{{Key: "$arrayElemAt", Value: bson.A{"$prev.v", 0}}}
	}
	return bson.D{{Key: "$subtract", Value: bson.A{number, first}}}
}

// choose is a stage that leaves only the version at a place in a list.
func choose(list string, place bson.D) bson.D {
	fields := bson.D{{Key: list, Value: bson.D{{Key: "$slice", Value: bson.A{"$" + list, place, 1}}}}}
	if list == "vs" {
		fields = append(fields, bson.E{Key: "k", Value: 1})
	}
	return bson.D{{Key: "$project", Value: fields}}
}

// asksForKey reports whether a filter looks at a document's key.
func asksForKey(f driver.Filter) bool {
	switch f := f.(type) {
	case driver.And:
		return slices.ContainsFunc(f, asksForKey)
	case driver.Or:
		return slices.ContainsFunc(f, asksForKey)
	case driver.Not:
		return asksForKey(f.Filter)
	case driver.Compare:
		return f.Field.Meta == driver.MetaKey
	case driver.In:
		return f.Field.Meta == driver.MetaKey
	case driver.Text:
		return f.Field.Meta == driver.MetaKey
	}
	return false
}
