package mongostore

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/asof/asof/storage/driver"
)

// Besides documents there is what servers note of the store and of each other, in
// asof.meta. Nobody else is to write there.

// shape says what members of a document may be, by name; of some, that they need
// not be there.
type shape map[string]memberShape

type memberShape struct {
	of       bson.Type
	optional bool
}

var (
	storeShape = shape{
		"_id": {of: bson.TypeString}, "format": {of: bson.TypeInt64}, "collections": {of: bson.TypeArray},
		"identity": {of: bson.TypeBinary, optional: true},
	}
	clockShape = shape{
		"_id": {of: bson.TypeString}, "last": {of: bson.TypeInt64}, "now": {of: bson.TypeDateTime}, "n": {of: bson.TypeInt64},
		"flights": {of: bson.TypeEmbeddedDocument, optional: true}, "hold": {of: bson.TypeEmbeddedDocument, optional: true},
		"sharing": {of: bson.TypeArray, optional: true},
	}
	flightShape = shape{"from": {of: bson.TypeInt64}, "since": {of: bson.TypeDateTime}, "ms": {of: bson.TypeInt64}}
	holdShape   = shape{"id": {of: bson.TypeString}, "floor": {of: bson.TypeInt64}, "since": {of: bson.TypeDateTime}, "ms": {of: bson.TypeInt64}}
)

// problems says how a document, or a part of one, is not as asof writes it.
func (s shape) problems(where string, v bson.RawValue) (found []string) {
	raw, _ := v.DocumentOK()
	elements, err := raw.Elements()
	if raw == nil || err != nil {
		return []string{strings.TrimSuffix(where, ".") + " is no document"}
	}
	there := make(map[string]bool)
	for _, e := range elements {
		name := e.Key()
		there[name] = true
		switch want, known := s[name]; {
		case !known:
			found = append(found, where+name+" is not asof's")
		case e.Value().Type != want.of:
			found = append(found, fmt.Sprintf("%s%s is no %s, but a %s", where, name, want.of, e.Value().Type))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s)) {
		if !there[name] && !s[name].optional {
			found = append(found, where+name+" is missing")
		}
	}
	return found
}

// checkMeta checks what servers note of the store and of each other.
func (s *Store) checkMeta(ctx context.Context, report func(string)) error {
	missing := map[string]bool{storeID: true, clockID: true}
	cursor, err := s.meta.Find(ctx, bson.D{})
	err = each(ctx, cursor, err, func(raw bson.Raw) error {
		id, _ := raw.Lookup("_id").StringValueOK()
		delete(missing, id)
		var problems []string
		switch id {
		case storeID:
			problems = storeProblems(raw)
		case clockID:
			problems = clockProblems(raw)
		default:
			report(fmt.Sprintf("%s %s: this is no document of asof's; remove it", metaName, raw.Lookup("_id")))
		}
		for _, problem := range problems {
			reportMeta(report, id, problem)
		}
		return nil
	})
	for _, id := range slices.Sorted(maps.Keys(missing)) {
		if err == nil {
			reportMeta(report, id, "it is not there any more")
		}
	}
	return err
}

func reportMeta(report func(string), id, problem string) {
	report(fmt.Sprintf("%s %q: %s", metaName, id, problem))
}

func storeProblems(raw bson.Raw) []string {
	problems := storeShape.problems("", whole(raw))
	names, _ := raw.Lookup("collections").ArrayOK()
	values, _ := names.Values()
	for _, v := range values {
		if name, ok := v.StringValueOK(); !ok || name == "" {
			problems = append(problems, fmt.Sprintf("collections holds %s, which is no name", v))
		}
	}
	return problems
}

// clockProblems says what is wrong with the clock document. An instant in it that is far
// ahead of the database's clock is one that the clock has shown: from then on it was right
// again, or never before.
func clockProblems(raw bson.Raw) []string {
	problems := clockShape.problems("", whole(raw))
	flights, _ := raw.Lookup("flights").DocumentOK()
	elements, _ := flights.Elements()
	for _, e := range elements {
		problems = append(problems, flightShape.problems("flights."+e.Key()+".", e.Value())...)
	}
	if hold := raw.Lookup("hold"); !hold.IsZero() {
		problems = append(problems, holdShape.problems("hold.", hold)...)
	}
	if len(problems) > 0 {
		return problems
	}
	state, err := decodeClock(raw)
	if err != nil {
		return []string{err.Error()}
	}
	switch {
	case state.Last < 0:
		problems = append(problems, fmt.Sprintf("last is %d", state.Last))
	case state.Last > instantOf(state.Now)+farAhead:
		problems = append(problems, fmt.Sprintf("last is %s, and the database's clock says %s; what is committed until then gets times after that", state.Last, instantOf(state.Now)))
	}
	return problems
}

// farAhead is more than an instant is ahead of the database's clock by what asof does.
const farAhead = driver.Instant(time.Minute / time.Microsecond)

// whole is a document as a value.
func whole(raw bson.Raw) bson.RawValue {
	return bson.RawValue{Type: bson.TypeEmbeddedDocument, Value: raw}
}
