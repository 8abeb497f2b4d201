package storage

import (
	"fmt"
	"slices"
	"strings"

	"github.com/asof/asof/storage/condition"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/fault"
	"github.com/asof/asof/storage/rawjson"
	"github.com/asof/asof/storage/record"
)

const maxOrderFields = 8

// order turns an orderBy argument into the engine's order. A field with a
// default sorts as null where the stored version lacks it.
func (s *Store) order(t *record.Type, orderBy []*OrderInput) ([]driver.Order, error) {
	if len(orderBy) > maxOrderFields {
		return nil, fault.BadInput("orderBy: %d fields are given; at most %d can be sorted by", len(orderBy), maxOrderFields)
	}
	var out []driver.Order
	for i, o := range orderBy {
		if o == nil {
			return nil, fault.BadInput("orderBy[%d]: null is not an order", i)
		}
		order := driver.Order{Desc: o.Direction == Desc}
		switch o.Field {
		case "key":
			order.Field = condition.Key
		case "version":
			order.Field = driver.Field{Meta: driver.MetaNumber, Kind: driver.KindInt}
		case "recordedAt":
			order.Field = driver.Field{Meta: driver.MetaRecordedAt, Kind: driver.KindInstant}
		default:
			if c := t.Copy(o.Field); c != nil {
				if i > 0 {
					return nil, fault.BadInput("orderBy[%d]: %s is copied from other documents, by which lists can only be sorted first: give it as the first field, and one of its kind", i, o.Field)
				}
				order.Field = driver.Field{Meta: metaCopied, Path: []string{o.Field}, Kind: c.Target().Kind}
				break
			}
			f := t.Object().Field(o.Field)
			if f == nil || !f.Sortable() {
				return nil, fault.BadInput("orderBy[%d]: %s cannot be sorted by %s%s", i, t.Plural, fault.QuoteShort(o.Field), similarOrder(t, o.Field))
			}
			order.Field = driver.Field{Path: []string{f.Stored}, Kind: f.DriverKind()}
		}
		same := func(o driver.Order) bool {
			return o.Field.Meta == order.Field.Meta && slices.Equal(o.Field.Path, order.Field.Path)
		}
		if !slices.ContainsFunc(out, same) { // a field decides once
			out = append(out, order)
		}
	}
	return out, nil
}

// similarOrder says what somebody meant who wrote a name in another case: names in
// variables come here in any.
func similarOrder(t *record.Type, name string) string {
	names := []string{"key", "version", "recordedAt"}
	for i := range t.Fields {
		if f := &t.Fields[i]; f.Sortable() {
			names = append(names, f.Name)
		}
	}
	for _, c := range t.Copies {
		names = append(names, c.Name)
	}
	for _, known := range names {
		if strings.EqualFold(known, name) {
			return fmt.Sprintf("; did you mean %q?", known)
		}
	}
	return ""
}

// position is the place of a document in an order.
func position(d *Document, orders []driver.Order) driver.Position {
	p := driver.Position{Key: d.v.Key}
	for _, o := range orders {
		v := d.v.Meta(o.Field.Meta)
		switch {
		case len(o.Field.Path) > 1: // of what is copied from it
			v = condition.SortValue(o.Field.Kind, &record.Field{Kind: record.KindDate}, rawjson.Find(d.v.Data, o.Field.Path))
		case o.Field.Meta == driver.MetaNone:
			i := d.typ.StoredAs(o.Field.Path[0])
			v = condition.SortValue(o.Field.Kind, &d.typ.Fields[i], d.stored(i))
		}
		p.Values = append(p.Values, v)
	}
	return p
}
