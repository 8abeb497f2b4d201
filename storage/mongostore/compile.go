package mongostore

import (
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/asof/asof/storage/driver"
)

// place is where compiled conditions find versions.
type place struct {
	key    string // the field of the document's key
	prefix string // of a version's fields, with a dot
	search string // of the document's search form, with a dot
}

// at is the place of versions in a field; "" for the document itself.
func at(field string) place {
	switch field {
	case "":
		return place{key: "_id", search: "x."}
	case "vs":
		return place{key: "k", prefix: "vs.", search: "vs.x."}
	default:
		return place{key: "_id", prefix: field + ".", search: field + ".x."}
	}
}

// value is the search form of what a path leads to, without its reading.
func (p place) value(path []string) string {
	names := make([]string, len(path))
	for i, step := range path {
		names[i] = memberName(step)
	}
	return p.search + strings.Join(names, "."+readingObject+".")
}

// field is where a field's value of its kind is.
func (p place) field(f driver.Field) string {
	switch f.Meta {
	case driver.MetaKey:
		return p.key
	case driver.MetaNumber:
		return p.prefix + "v"
	case driver.MetaRecordedAt:
		return p.prefix + "at"
	case driver.MetaAuthor:
		return p.prefix + "by"
	case driver.MetaOp:
		return p.prefix + "op"
	case driver.MetaMessage:
		return p.prefix + "msg"
	case driver.MetaGroup:
		return p.prefix + "grp"
	case driver.MetaNone:
	}
	return join(p.inside(f.Path), reading(f.Kind))
}

// inside is value for a place that may be an element of a list, where the
// first step goes through the element's own object.
func (p place) inside(path []string) string {
	if p.search != "" || len(path) == 0 {
		return p.value(path)
	}
	return readingObject + "." + p.value(path)
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

var relations = [...]string{driver.Eq: "$eq", driver.Lt: "$lt", driver.Le: "$lte", driver.Gt: "$gt", driver.Ge: "$gte"}

// compile writes a planned filter as a condition on versions at a place.
func (p place) compile(f driver.Filter) bson.D {
	switch f := f.(type) {
	case nil, always:
		return bson.D{}
	case driver.And:
		return bson.D{{Key: "$and", Value: p.compileAll(f)}}
	case driver.Or:
		return bson.D{{Key: "$or", Value: p.compileAll(f)}}
	case driver.Not:
		return bson.D{{Key: "$nor", Value: bson.A{p.compile(f.Filter)}}}
	case driver.Compare:
		value, _ := operand(f.Field.Kind, f.Value)
		return bson.D{{Key: p.field(f.Field), Value: bson.D{{Key: relations[f.Op], Value: value}}}}
	case driver.In:
		values := make(bson.A, len(f.Values))
		for i, v := range f.Values {
			values[i], _ = operand(f.Field.Kind, v)
		}
		return bson.D{{Key: p.field(f.Field), Value: bson.D{{Key: "$in", Value: values}}}}
	case driver.Text:
		return bson.D{{Key: p.field(f.Field), Value: textCondition(f)}}
	case driver.Present:
		return p.present(f.Field.Path)
	case driver.Any:
		list := join(p.inside(f.Field.Path), readingList)
		if f.Filter == nil {
			return bson.D{{Key: list + ".0", Value: exists(true)}}
		}
		return bson.D{{Key: list, Value: bson.D{{Key: "$elemMatch", Value: place{}.compile(f.Filter)}}}}
	}
	return bson.D{{Key: "$nor", Value: bson.A{bson.D{}}}} // never
}

func (p place) compileAll(list []driver.Filter) bson.A {
	conditions := make(bson.A, len(list))
	for i, f := range list {
		conditions[i] = p.compile(f)
	}
	return conditions
}

// present holds where a value has any reading. A missing or null member has no
// search form, but a null element has an empty one.
func (p place) present(path []string) bson.D {
	if len(path) > 0 {
		return bson.D{{Key: p.inside(path), Value: exists(true)}}
	}
	var readings bson.A
	for _, name := range []string{"s", "b", "i", "f", "m", readingObject, readingList, readingCut} {
		readings = append(readings, bson.D{{Key: name, Value: exists(true)}})
	}
	return bson.D{{Key: "$or", Value: readings}}
}

func exists(yes bool) bson.D { return bson.D{{Key: "$exists", Value: yes}} }
