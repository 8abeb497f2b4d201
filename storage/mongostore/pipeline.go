package mongostore

import (
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/asof/asof/storage/driver"
)

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
