package storage

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/asof/asof/internal/scalar/literal"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/fault"
	"github.com/asof/asof/storage/rawjson"
	"github.com/asof/asof/storage/record"
)

var metaKey = driver.Field{Meta: driver.MetaKey, Kind: driver.KindString}

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
			order.Field = metaKey
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
			v = sortValue(o.Field.Kind, &record.Field{Kind: record.KindDate}, rawjson.Find(d.v.Data, o.Field.Path))
		case o.Field.Meta == driver.MetaNone:
			i := d.typ.StoredAs(o.Field.Path[0])
			v = sortValue(o.Field.Kind, &d.typ.Fields[i], d.stored(i))
		}
		p.Values = append(p.Values, v)
	}
	return p
}

// comparePositions compares places in an order as engines do: what has no value comes first
// where it is ascending.
func comparePositions(orders []driver.Order, a, b *driver.Position) int {
	for i, o := range orders {
		x, y, n := a.Values[i], b.Values[i], 0
		switch {
		case x == nil && y == nil:
		case x == nil:
			n = -1
		case y == nil:
			n = 1
		default:
			n = compareValues(o.Field.Kind, x, y)
		}
		if o.Desc {
			n = -n
		}
		if n != 0 {
			return n
		}
	}
	return cmp.Compare(a.Key, b.Key)
}

// sortValue is the value by which an engine sorts; nil for what is not of the
// kind.
func sortValue(kind driver.Kind, f *record.Field, raw []byte) driver.Value {
	if len(raw) == 0 {
		return nil
	}
	switch kind {
	case driver.KindInt:
		if n, err := strconv.ParseInt(string(raw), 10, 64); err == nil {
			return n
		}
	case driver.KindFloat:
		if x, ok := record.ReadFloat(f, raw); ok {
			return x
		}
	case driver.KindBool:
		if b, ok := record.ReadBool(f, raw); ok {
			return b
		}
	case driver.KindInstant:
		s, ok := rawjson.Unquote(raw)
		if t, err := time.Parse(time.RFC3339, s); ok && err == nil {
			return driver.InstantOf(t) // engines sort by moments of all years, also such as cannot be read
		}
	case driver.KindDecimal:
		s, ok := rawjson.Unquote(raw)
		if !ok {
			s = string(raw)
		}
		if literal.IsDecimal(s) {
			return s
		}
	case driver.KindString:
		if s, ok := record.ReadText(&record.Field{Kind: record.KindString}, raw); ok {
			return s
		}
	default:
		if s, ok := record.ReadText(f, raw); ok {
			return s
		}
	}
	return nil
}

// compareValues compares two values of a kind.
func compareValues(kind driver.Kind, a, b driver.Value) int {
	switch x := a.(type) {
	case int64:
		y, _ := b.(int64)
		return cmp.Compare(x, y)
	case float64:
		y, _ := b.(float64)
		return cmp.Compare(x, y)
	case driver.Instant:
		y, _ := b.(driver.Instant)
		return cmp.Compare(x, y)
	case bool:
		y, _ := b.(bool)
		switch {
		case x == y:
			return 0
		case y:
			return -1
		}
		return 1
	case string:
		y, _ := b.(string)
		if kind == driver.KindDecimal {
			dx, _ := literal.ParseDecimal(x)
			dy, _ := literal.ParseDecimal(y)
			return dx.Compare(dy)
		}
		return cmp.Compare(x, y)
	}
	return 1
}
