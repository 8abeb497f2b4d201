package mongostore

import (
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"github.com/asof/asof/storage/driver"
)

// checkField refuses a field that cannot be compared; element says that its
// path starts at an element of a list, and so may be empty.
func checkField(f driver.Field, element bool) error {
	if err := checkPlace(f, element); err != nil {
		return err
	}
	if reading(f.Kind) == "" {
		return invalidf("a field has no known kind (%d)", f.Kind)
	}
	if f.Meta != driver.MetaNone && f.Kind != metaKind(f.Meta) {
		return invalidf("a field that versions carry (%d) is of kind %d, not %d", f.Meta, metaKind(f.Meta), f.Kind)
	}
	return nil
}

func checkPlace(f driver.Field, element bool) error {
	switch {
	case f.Meta > driver.MetaGroup:
		return invalidf("unknown field of the version (%d)", f.Meta)
	case f.Meta != driver.MetaNone && len(f.Path) > 0:
		return invalidf("a field that versions carry has no path")
	case f.Meta == driver.MetaNone && len(f.Path) == 0 && !element:
		return invalidf("a field has no path")
	}
	return nil
}

func metaKind(m driver.Meta) driver.Kind {
	switch m {
	case driver.MetaNumber, driver.MetaOp:
		return driver.KindInt
	case driver.MetaRecordedAt:
		return driver.KindInstant
	default:
		return driver.KindString
	}
}

func checkValue(kind driver.Kind, value driver.Value) error {
	if _, ok := operand(kind, value); !ok {
		return invalidf("%v (%T) is not a value of kind %d", value, value, kind)
	}
	return nil
}

func checkPosition(p *driver.Position, order []driver.Order) error {
	if p == nil {
		return nil
	}
	if len(p.Values) != len(order) {
		return invalidf("a position has %d values for %d orders", len(p.Values), len(order))
	}
	for i, o := range order {
		if p.Values[i] == nil {
			continue
		}
		if err := checkValue(o.Field.Kind, p.Values[i]); err != nil {
			return err
		}
	}
	return nil
}

const maxWriteID = 36

func checkWrite(w *driver.Write) error {
	switch {
	case w.ID == "" || len(w.ID) > maxWriteID:
		return invalidf("the write's ID has %d bytes: it must have 1 to %d", len(w.ID), maxWriteID)
	case w.Expected < 0:
		return invalidf("the expected version %d is negative", w.Expected)
	}
	if err := checkContent(w.Key, w.Op, w.Deleted, w.Data); err != nil {
		return invalidf("%w", err)
	}
	return nil
}

func checkLoaded(v *driver.Version) error {
	switch {
	case v.RecordedAt <= 0:
		return fmt.Errorf("%s %q: the time %s is not after 1970-01-01", v.Collection, v.Key, v.RecordedAt)
	case v.Number < 0:
		return fmt.Errorf("%s %q: number %d is negative", v.Collection, v.Key, v.Number)
	}
	return checkContent(v.Key, v.Op, v.Deleted, v.Data)
}

// checkContent refuses what no document can hold.
func checkContent(key string, op driver.Op, deleted bool, data []byte) error {
	switch {
	case key == "":
		return fmt.Errorf("the key is empty")
	case !utf8.ValidString(key):
		return fmt.Errorf("the key %q is not valid UTF-8", key)
	case op < driver.OpCreate || op > driver.OpImport:
		return fmt.Errorf("unknown operation %d", op)
	case deleted && data != nil:
		return fmt.Errorf("a tombstone has no data")
	case !deleted && (len(data) == 0 || data[0] != '{' || !json.Valid(data)):
		return fmt.Errorf("the data is not a JSON object")
	case !utf8.Valid(data):
		return fmt.Errorf("the data is not valid UTF-8")
	}
	return nil
}
