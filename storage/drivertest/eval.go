package drivertest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/asof/asof/storage/driver"
)

// decode turns a document into maps, slices, strings, json.Numbers, booleans and nil.
func decode(data []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var root any
	if err := d.Decode(&root); err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("more than one JSON value")
	}
	return root, nil
}

// lookup follows a path of member names. Lists are never entered.
func lookup(at any, path []string) any {
	for _, name := range path {
		object, ok := at.(map[string]any)
		if !ok {
			return nil
		}
		at = object[name]
	}
	return at
}

// valueOf returns what a field holds, as typed says, or nil where it
// holds nothing of the field's kind.
func valueOf(f driver.Field, v *driver.Version, at any) any {
	if f.Meta != driver.MetaNone {
		return v.Meta(f.Meta)
	}
	return typed(f.Kind, lookup(at, f.Path))
}

// typed converts a decoded JSON value to what compare takes for a kind:
// string, int64, float64, bool, driver.Instant or, for decimals, *big.Rat; objects,
// which do not compare, as they are. It returns nil where the value is not of the kind.
func typed(kind driver.Kind, value any) any {
	s, isString := value.(string)
	n, isNumber := value.(json.Number)
	switch kind {
	case driver.KindString:
		if isString {
			return s
		}
	case driver.KindInt:
		if i, err := strconv.ParseInt(n.String(), 10, 64); isNumber && err == nil {
			return i
		}
	case driver.KindFloat:
		if x, err := strconv.ParseFloat(n.String(), 64); isNumber && err == nil {
			return x
		}
	case driver.KindBool:
		if b, ok := value.(bool); ok {
			return b
		}
	case driver.KindInstant:
		var t time.Time
		if isString && t.UnmarshalText([]byte(s)) == nil {
			return driver.InstantOf(t)
		}
	case driver.KindDate:
		if _, err := time.Parse(time.DateOnly, s); isString && err == nil {
			return s
		}
	case driver.KindDecimal:
		if isNumber {
			s = n.String()
		}
		return decimal(s)
	case driver.KindObject:
		if object, ok := value.(map[string]any); ok {
			return object
		}
	}
	return nil
}

// decimal reads a decimal number exactly, in the grammar of JSON's; nil where the text is
// none, or has an exponent beyond four digits.
func decimal(s string) any {
	if strings.Trim(s, "-0123456789.eE+") != "" || !json.Valid([]byte(s)) {
		return nil
	}
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		if exponent, err := strconv.Atoi(s[i+1:]); err != nil || exponent < -9999 || exponent > 9999 {
			return nil
		}
	}
	r, ok := new(big.Rat).SetString(s)
	if !ok {
		return nil
	}
	return r
}

// operand converts a driver.Value to what compare takes.
func operand(kind driver.Kind, value driver.Value) any {
	if s, ok := value.(string); ok && kind == driver.KindDecimal {
		return decimal(s)
	}
	return value
}

// compare orders two values of one kind.
func compare(a, b any) int {
	switch a := a.(type) {
	case string:
		return cmp.Compare(a, b.(string))
	case int64:
		return cmp.Compare(a, b.(int64))
	case float64:
		return cmp.Compare(a, b.(float64))
	case driver.Instant:
		return cmp.Compare(a, b.(driver.Instant))
	case *big.Rat:
		return a.Cmp(b.(*big.Rat))
	case bool:
		switch {
		case a == b.(bool):
			return 0
		case a:
			return 1
		default:
			return -1
		}
	}
	panic(fmt.Sprintf("drivertest: values of %T do not compare", a))
}

// holds evaluates a condition on a version, or on an element of one of its lists.
func holds(f driver.Filter, v *driver.Version, at any) bool {
	switch f := f.(type) {
	case driver.And:
		for _, g := range f {
			if !holds(g, v, at) {
				return false
			}
		}
		return true
	case driver.Or:
		for _, g := range f {
			if holds(g, v, at) {
				return true
			}
		}
		return false
	case driver.Not:
		return !holds(f.Filter, v, at)
	case driver.Compare:
		value := valueOf(f.Field, v, at)
		return value != nil && relates(compare(value, operand(f.Field.Kind, f.Value)), f.Op)
	case driver.In:
		value := valueOf(f.Field, v, at)
		for _, x := range f.Values {
			if value != nil && compare(value, operand(f.Field.Kind, x)) == 0 {
				return true
			}
		}
		return false
	case driver.Text:
		s, ok := valueOf(f.Field, v, at).(string)
		return ok && matches(s, f)
	case driver.Present:
		if f.Field.Kind == 0 {
			return lookup(at, f.Field.Path) != nil
		}
		return valueOf(f.Field, v, at) != nil
	case driver.Any:
		list, _ := lookup(at, f.Field.Path).([]any)
		for _, element := range list {
			if f.Filter == nil || holds(f.Filter, v, element) {
				return true
			}
		}
		return false
	}
	panic(fmt.Sprintf("drivertest: unknown filter %T", f))
}

func relates(c int, op driver.CompareOp) bool {
	switch op {
	case driver.Eq:
		return c == 0
	case driver.Lt:
		return c < 0
	case driver.Le:
		return c <= 0
	case driver.Gt:
		return c > 0
	default:
		return c >= 0
	}
}

func matches(s string, f driver.Text) bool {
	want := f.Value
	if f.Fold {
		s, want = strings.ToLower(s), strings.ToLower(want)
	}
	switch f.Op {
	case driver.Contains:
		return strings.Contains(s, want)
	case driver.HasPrefix:
		return strings.HasPrefix(s, want)
	case driver.HasSuffix:
		return strings.HasSuffix(s, want)
	default:
		return s == want
	}
}

// row is a version that a query found, with the values that it sorts by.
type row struct {
	version *driver.Version
	values  []any // as typed returns them
}

func orderValues(order []driver.Order, v *driver.Version, root any) []any {
	values := make([]any, len(order))
	for i, o := range order {
		values[i] = valueOf(o.Field, v, root)
	}
	return values
}

// compareRows orders by the query's fields, then by key.
func compareRows(order []driver.Order, a, b []any, aKey, bKey string) int {
	for i, o := range order {
		var c int
		switch {
		case a[i] == nil && b[i] == nil:
		case a[i] == nil:
			c = -1
		case b[i] == nil:
			c = 1
		default:
			c = compare(a[i], b[i])
		}
		if o.Desc {
			c = -c
		}
		if c != 0 {
			return c
		}
	}
	return cmp.Compare(aKey, bKey)
}

// page sorts rows and cuts the query's page out of them.
func page(rows []row, q *driver.Query) []row {
	slices.SortFunc(rows, func(a, b row) int {
		return compareRows(q.Order, a.values, b.values, a.version.Key, b.version.Key)
	})
	against := func(r row, p *driver.Position) int {
		values := make([]any, len(q.Order))
		for i, o := range q.Order {
			values[i] = operand(o.Field.Kind, p.Values[i])
		}
		return compareRows(q.Order, r.values, values, r.version.Key, p.Key)
	}
	rows = slices.DeleteFunc(rows, func(r row) bool {
		return q.After != nil && against(r, q.After) <= 0 || q.Before != nil && against(r, q.Before) >= 0
	})
	if q.Limit > 0 && len(rows) > q.Limit {
		if q.Backward {
			return rows[len(rows)-q.Limit:]
		}
		return rows[:q.Limit]
	}
	return rows
}

// logged reports whether a version is one that the query asks for, whatever its
// hints say.
func logged(q *driver.LogQuery, v *driver.Version) bool {
	oneOf := func(list []string, s string) bool { return len(list) == 0 || slices.Contains(list, s) }
	behind := true
	if q.After != nil {
		c := v.Position().Compare(*q.After)
		behind = c > 0 && !q.Backward || c < 0 && q.Backward
	}
	return oneOf(q.Collections, v.Collection) && oneOf(q.Keys, v.Key) && behind &&
		q.From <= v.RecordedAt && (q.To == 0 || v.RecordedAt < q.To) &&
		q.FromNumber <= v.Number && (q.ToNumber == 0 || v.Number < q.ToNumber)
}

// checkHistory says what is wrong with all versions of one document, oldest first.
func checkHistory(versions []*driver.Version) []string {
	var problems []string
	for i, v := range versions {
		name := fmt.Sprintf("%s %q version %d", v.Collection, v.Key, v.Number)
		if v.Number != int64(i)+1 {
			problems = append(problems, fmt.Sprintf("%s: found where number %d should be", name, i+1))
		}
		if v.Deleted != (v.Data == nil) {
			problems = append(problems, name+": a tombstone with data, or a document without")
		}
		end := driver.Forever
		if i+1 < len(versions) {
			end = versions[i+1].RecordedAt
			if end <= v.RecordedAt {
				problems = append(problems, fmt.Sprintf("%s: recorded at %s, not before the next one, of %s", name, v.RecordedAt, end))
			}
		}
		if v.SupersededAt != end {
			problems = append(problems, fmt.Sprintf("%s: superseded at %s, but the next one is of %s", name, v.SupersededAt, end))
		}
	}
	return problems
}
