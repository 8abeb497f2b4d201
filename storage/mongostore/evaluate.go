package mongostore

import (
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/driver/check"
)

// Conditions that look deeper into a document than its search form goes are
// evaluated here, on the JSON. Everything else is left to the database.

// lookup follows a path of member names; lists are never entered. The result
// does not exist where the path leads nowhere.
func lookup(v gjson.Result, path []string) gjson.Result {
	for _, step := range path {
		if !v.IsObject() {
			return gjson.Result{}
		}
		var found gjson.Result
		v.ForEach(func(name, value gjson.Result) bool {
			if text(name) == step {
				found = value
			}
			return !found.Exists()
		})
		v = found
	}
	return v
}

// valueOf is a field's value in the form that the database compares; nil for null.
func valueOf(f driver.Field, v *driver.Version, at gjson.Result) any {
	switch f.Meta {
	case driver.MetaKey:
		return encodeString(v.Key)
	case driver.MetaNumber:
		return v.Number
	case driver.MetaRecordedAt:
		return int64(v.RecordedAt)
	case driver.MetaAuthor:
		return encodeString(v.Author)
	case driver.MetaOp:
		return int64(v.Op)
	case driver.MetaMessage:
		return encodeString(v.Message)
	case driver.MetaGroup:
		return encodeString(v.Group)
	case driver.MetaNone:
	}
	return readAs(f.Kind, lookup(at, f.Path))
}

// holds evaluates a planned filter on a version, or on an element of a list.
func holds(f driver.Filter, v *driver.Version, at gjson.Result) bool {
	switch f := f.(type) {
	case driver.And:
		return !slices.ContainsFunc(f, func(g driver.Filter) bool { return !holds(g, v, at) })
	case driver.Or:
		return slices.ContainsFunc(f, func(g driver.Filter) bool { return holds(g, v, at) })
	case driver.Not:
		return !holds(f.Filter, v, at)
	case driver.Compare:
		value := valueOf(f.Field, v, at)
		want, _ := operand(f.Field.Kind, f.Value)
		return value != nil && check.Relates(compareValues(value, want), f.Op)
	case driver.In:
		value := valueOf(f.Field, v, at)
		return value != nil && slices.ContainsFunc(f.Values, func(x driver.Value) bool {
			want, _ := operand(f.Field.Kind, x)
			return compareValues(value, want) == 0
		})
	case driver.Text:
		value, ok := valueOf(f.Field, v, at).(string)
		return ok && matches(decodeString(value), f)
	case driver.Present:
		value := lookup(at, f.Field.Path)
		return value.Exists() && value.Type != gjson.Null
	case driver.Any:
		found := false
		if list := lookup(at, f.Field.Path); list.IsArray() {
			list.ForEach(func(_, element gjson.Result) bool {
				found = f.Filter == nil || holds(f.Filter, v, element)
				return !found
			})
		}
		return found
	case always:
		return true
	}
	return false
}

func matches(s string, f driver.Text) bool {
	want := f.Value
	if f.Fold {
		s, want = strings.ToLower(s), strings.ToLower(want)
	}
	return check.Matches([]byte(s), []byte(want), f.Op)
}
