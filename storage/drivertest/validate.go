package drivertest

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/asof/asof/storage/driver"
)

// checkQuery refuses a query that the contract does not define.
func checkQuery(q *driver.Query) error {
	if q.Limit < 0 {
		return invalid("the limit %d is negative", q.Limit)
	}
	for _, o := range q.Order {
		if err := checkField(o.Field, false); err != nil {
			return err
		}
	}
	for _, p := range []*driver.Position{q.After, q.Before} {
		if p == nil {
			continue
		}
		if len(p.Values) != len(q.Order) {
			return invalid("a position has %d values for %d orders", len(p.Values), len(q.Order))
		}
		for i, o := range q.Order {
			if p.Values[i] == nil {
				continue
			}
			if err := checkValue(o.Field.Kind, p.Values[i]); err != nil {
				return err
			}
		}
	}
	if q.Filter == nil {
		return nil
	}
	return checkFilter(q.Filter, false)
}

func invalid(format string, args ...any) error {
	return driver.Errorf(driver.CodeInvalid, format, args...)
}

// checkField refuses a field that cannot be compared; element says whether
// its path starts at an element of a list.
func checkField(f driver.Field, element bool) error {
	if err := checkPlace(f, element); err != nil {
		return err
	}
	if f.Kind < driver.KindString || f.Kind > driver.KindDecimal {
		return invalid("a field has no known kind (%d)", f.Kind)
	}
	if f.Meta != driver.MetaNone && f.Kind != kindOf(f.Meta) {
		return invalid("a field of the version (%d) is of kind %d, not %d", f.Meta, kindOf(f.Meta), f.Kind)
	}
	return nil
}

func checkPlace(f driver.Field, element bool) error {
	switch {
	case f.Meta > driver.MetaGroup:
		return invalid("unknown field of the version (%d)", f.Meta)
	case f.Meta != driver.MetaNone && len(f.Path) > 0:
		return invalid("a field of the version has no path")
	case f.Meta == driver.MetaNone && len(f.Path) == 0 && !element:
		return invalid("a field has no path")
	}
	return nil
}

func kindOf(m driver.Meta) driver.Kind {
	switch m {
	case driver.MetaNumber, driver.MetaOp:
		return driver.KindInt
	case driver.MetaRecordedAt:
		return driver.KindInstant
	default:
		return driver.KindString
	}
}

// checkValue refuses a value that is not of a kind.
func checkValue(kind driver.Kind, value driver.Value) error {
	ok := false
	switch value := value.(type) {
	case string:
		switch kind { //nolint:exhaustive // the other kinds are no strings
		case driver.KindString:
			ok = true
		case driver.KindDate:
			_, err := time.Parse(time.DateOnly, value)
			ok = err == nil
		case driver.KindDecimal:
			ok = decimal(value) != nil
		}
	case int64:
		ok = kind == driver.KindInt
	case float64:
		ok = kind == driver.KindFloat && !math.IsNaN(value) && !math.IsInf(value, 0)
	case bool:
		ok = kind == driver.KindBool
	case driver.Instant:
		ok = kind == driver.KindInstant
	}
	if !ok {
		return invalid("%T %v is not a value of kind %d", value, value, kind)
	}
	return nil
}

func checkFilter(f driver.Filter, element bool) error {
	switch f := f.(type) {
	case driver.And:
		return checkFilters(f, element)
	case driver.Or:
		return checkFilters(f, element)
	case driver.Not:
		return checkFilter(f.Filter, element)
	case driver.Compare:
		if f.Op < driver.Eq || f.Op > driver.Ge {
			return invalid("unknown order relation %d", f.Op)
		}
		if err := checkField(f.Field, element); err != nil {
			return err
		}
		return checkValue(f.Field.Kind, f.Value)
	case driver.In:
		if err := checkField(f.Field, element); err != nil {
			return err
		}
		for _, v := range f.Values {
			if err := checkValue(f.Field.Kind, v); err != nil {
				return err
			}
		}
		return nil
	case driver.Text:
		if f.Op < driver.Contains || f.Op > driver.Equals {
			return invalid("unknown text match %d", f.Op)
		}
		if err := checkField(f.Field, element); err != nil {
			return err
		}
		if f.Field.Kind != driver.KindString {
			return invalid("a text match needs a field of strings, not of kind %d", f.Field.Kind)
		}
		return nil
	case driver.Present:
		if f.Field.Kind > driver.KindObject {
			return invalid("unknown kind %d", f.Field.Kind)
		}
		return checkPlace(f.Field, element)
	case driver.Any:
		if f.Field.Meta != driver.MetaNone {
			return invalid("a field of the version is not a list")
		}
		if err := checkPlace(f.Field, element); err != nil || f.Filter == nil {
			return err
		}
		return checkFilter(f.Filter, true)
	default:
		return invalid("unknown filter %T", f)
	}
}

func checkFilters(fs []driver.Filter, element bool) error {
	for _, f := range fs {
		if err := checkFilter(f, element); err != nil {
			return err
		}
	}
	return nil
}

// checkWrite refuses what no document could hold.
func checkWrite(w *driver.Write) error {
	switch {
	case w.ID == "" || len(w.ID) > 36:
		return driver.Errorf(driver.CodeInvalid, "the write's ID has %d bytes: it must have 1 to 36", len(w.ID))
	case w.Expected < 0:
		return driver.Errorf(driver.CodeInvalid, "the expected version %d is negative", w.Expected)
	}
	op, deleted, data := w.Op, w.Deleted, w.Data
	if op == driver.OpPruned {
		op = 0
	}
	if w.Compare {
		op, deleted, data = driver.OpDelete, true, nil
	}
	if err := checkContent(w.Key, op, deleted, data); err != nil {
		return driver.Errorf(driver.CodeInvalid, "%w", err)
	}
	return nil
}

func checkLoaded(v *driver.Version) error {
	if v.RecordedAt <= 0 {
		return fmt.Errorf("%s %q: the time %s is not after 1970-01-01", v.Collection, v.Key, v.RecordedAt)
	}
	if v.Number < 0 {
		return fmt.Errorf("%s %q: number %d is negative", v.Collection, v.Key, v.Number)
	}
	return checkContent(v.Key, v.Op, v.Deleted, v.Data)
}

func checkRewritten(key string, vs []driver.Version) error {
	for i, v := range vs {
		if v.Number < 1 || slices.ContainsFunc(vs[:i], func(o driver.Version) bool { return o.Number == v.Number }) {
			return invalid("number %d twice, or not a number", v.Number)
		}
		if err := checkContent(key, v.Op, v.Deleted, v.Data); err != nil {
			return invalid("%v", err)
		}
	}
	return nil
}

func checkContent(key string, op driver.Op, deleted bool, data []byte) error {
	switch {
	case key == "":
		return fmt.Errorf("the key is empty")
	case !utf8.ValidString(key):
		return fmt.Errorf("the key %q is not valid UTF-8", key)
	case op < driver.OpCreate || op > driver.OpPruned || op == driver.OpPruned && !deleted:
		return fmt.Errorf("unknown operation %d", op)
	case deleted && data != nil:
		return fmt.Errorf("a tombstone has no data")
	case !deleted && (len(data) == 0 || data[0] != '{' || !json.Valid(data)):
		return fmt.Errorf("the data is not a JSON object")
	}
	return nil
}
