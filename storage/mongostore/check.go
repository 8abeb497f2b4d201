package mongostore

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/driver/check"
)

// Check implements driver.Engine. It reads every version of every document and
// looks whether numbers and times follow on each other, and whether what
// filters see is what the data says. It is meant for a store that nobody
// writes to.
func (s *Store) Check(ctx context.Context, report func(problem string)) error {
	for _, c := range s.collections {
		cursor, err := c.main.Find(ctx, bson.D{}, options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}))
		err = each(ctx, cursor, err, func(raw bson.Raw) error { return c.check(ctx, raw, report) })
		if err != nil {
			return wrap(err, "checking "+c.name)
		}
	}
	return wrap(s.checkMeta(ctx, report), "checking "+metaName)
}

// check checks one document with its overflow.
func (c *collection) check(ctx context.Context, raw bson.Raw, report func(string)) error {
	key, err := c.key(raw.Lookup("_id"))
	if err != nil {
		report(err.Error())
		return nil
	}
	if isPlaceholder(raw) {
		return nil // what was to be made of it was not
	}
	h := &history{c: c, key: key, report: report}
	head, err := c.decodeHead(key, raw)
	if err != nil {
		report(err.Error())
		return nil
	}
	prev := elements(raw.Lookup("prev"))
	var inPrev []bson.Raw
	size := int64(0)
	for _, v := range prev {
		inPrev = append(inPrev, v)
		size += int64(len(v))
	}
	if int64(len(inPrev)) != head.n || size != head.size {
		h.problem("prev has %d versions of %d bytes; n and size say %d and %d", len(inPrev), size, head.n, head.size)
	}
	cursor, err := c.history.Find(ctx, bson.D{{Key: "k", Value: encodeString(key)}}, options.Find().SetSort(bson.D{{Key: "n", Value: 1}}))
	first := head.Number - head.n
	err = each(ctx, cursor, err, func(run bson.Raw) error {
		h.run(run, first)
		return nil
	})
	if err != nil {
		return err
	}
	for _, v := range inPrev {
		h.next(v)
	}
	current, _ := raw.Lookup("current").DocumentOK()
	h.next(current)
	for _, problem := range h.History.End() {
		h.problem("%s", problem)
	}
	return nil
}

func elements(v bson.RawValue) []bson.Raw {
	array, ok := v.ArrayOK()
	if !ok {
		return nil
	}
	values, err := array.Values()
	if err != nil {
		return nil
	}
	list := make([]bson.Raw, 0, len(values))
	for _, value := range values {
		doc, _ := value.DocumentOK()
		list = append(list, doc)
	}
	return list
}

// history follows the versions of one document.
type history struct {
	check.History
	c      *collection
	key    string
	report func(string)
}

func (h *history) problem(format string, args ...any) {
	h.report(fmt.Sprintf("%s %q: ", h.c.name, h.key) + fmt.Sprintf(format, args...))
}

// run takes a run of the overflow. Versions that are in the document as well,
// or in an earlier run, are what a crash left, and harmless.
func (h *history) run(run bson.Raw, before int64) {
	versions := elements(run.Lookup("vs"))
	if len(versions) == 0 {
		h.problem("a run of the overflow is empty")
	}
	for i, v := range versions {
		number, _ := v.Lookup("v").Int64OK()
		if n, _ := run.Lookup("n").Int64OK(); i == 0 && n != number {
			h.problem("the run that begins with version %d says that it begins with %d", number, n)
		}
		if number < before && (h.Last == nil || number > h.Last.Number) {
			h.next(v)
		}
	}
}

// next takes the next version.
func (h *history) next(raw bson.Raw) {
	r, err := decodeVersion(h.c.name, h.key, raw)
	if err != nil {
		h.problem("%v", err)
		return
	}
	for _, problem := range h.Next(&r.Version) {
		h.problem("%s", problem)
	}
	if !bytes.Equal(encodeVersion(r), raw) {
		h.problem("version %d: what filters see is not what the data says; export the store and import it into an empty one", r.Number)
	}
}

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
		"identity": {of: bson.TypeBinary, optional: true}, // of older programs
		"loaded":   {of: bson.TypeInt64, optional: true},
		unsealed:   {of: bson.TypeBoolean, optional: true},
	}
	clockShape = shape{
		"_id": {of: bson.TypeString}, "last": {of: bson.TypeInt64}, "now": {of: bson.TypeDateTime}, "n": {of: bson.TypeInt64},
		"acked": {of: bson.TypeInt64, optional: true}, "flights": {of: bson.TypeEmbeddedDocument, optional: true}, "lease": {of: bson.TypeString, optional: true}, "servers": {of: bson.TypeEmbeddedDocument, optional: true},
		"sharing": {of: bson.TypeArray, optional: true}, // of older programs
	}
	flightShape = shape{"from": {of: bson.TypeInt64}, "since": {of: bson.TypeDateTime}, "ms": {of: bson.TypeInt64}}
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
			if strings.HasPrefix(id, notePrefix) {
				break // of a transaction that runs, or that ended with its server
			}
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
	if len(problems) > 0 {
		return problems
	}
	state, err := decodeClock(raw, nil)
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
