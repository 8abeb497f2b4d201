package mongostore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/asof/asof/storage/driver"
)

// Besides documents there is what servers note of the store and of each other, in
// asof.meta, and of what they load, in asof.loads. Nobody else is to write there.

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
		"_id": {of: bson.TypeString}, "mark": {of: bson.TypeInt64}, "n": {of: bson.TypeInt64},
		"servers": {of: bson.TypeEmbeddedDocument}, "loader": {of: bson.TypeString, optional: true},
	}
	serverShape = shape{
		"beat": {of: bson.TypeInt64}, "alone": {of: bson.TypeBoolean}, "low": {of: bson.TypeInt64}, "floor": {of: bson.TypeInt64},
		"waits": {of: bson.TypeBoolean, optional: true},
	}
	loadShape = shape{
		"_id": {of: bson.TypeEmbeddedDocument}, "owner": {of: bson.TypeString}, "parts": {of: bson.TypeInt64}, "data": {of: bson.TypeBinary},
		failedField: {of: bson.TypeString, optional: true},
	}
	partShape = shape{"load": {of: bson.TypeString}, "part": {of: bson.TypeInt64}}
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

// meet looks at the clock document before this server has a part in it. What is wrong
// there such that servers cannot go by it is an error. The rest is mended by coming in;
// it is logged, and Check reports it. last is the time of the last version, which
// was read before.
func (s *Store) meet(ctx context.Context, last driver.Instant) error {
	raw, err := s.meta.FindOne(ctx, bson.D{{Key: "_id", Value: clockID}}).Raw()
	switch {
	case errors.Is(err, mongo.ErrNoDocuments):
		if last > 0 {
			s.mended = "it was not there, and was made anew"
		}
	case err != nil:
		return err
	default:
		var state clockState
		if err := state.decode(raw); err != nil {
			return err
		}
		if err := state.check(); err != nil {
			return err
		}
		if at := state.reached(); at < last {
			s.mended = fmt.Sprintf("mark was %s, before the last version, of %s, and was raised to that", at, last)
		}
	}
	if s.mended != "" {
		s.logger.Warn("the document that servers take their times from was wrong", "database", s.db.Name(), "document", clockID, "was", s.mended)
	}
	return nil
}

// checkMeta checks what servers note of the store and of each other.
func (s *Store) checkMeta(ctx context.Context, report func(string)) error {
	if s.mended != "" {
		reportMeta(report, clockID, s.mended)
	}
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
			problems = clockProblems(raw, s.clock.wall())
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

// farAhead is more than any clock was ahead of this server's by mistake. One that was
// does no harm otherwise.
const farAhead = driver.Instant(365 * 24 * time.Hour / time.Microsecond)

func clockProblems(raw bson.Raw, now driver.Instant) []string {
	problems := clockShape.problems("", whole(raw))
	servers, _ := raw.Lookup("servers").DocumentOK()
	elements, _ := servers.Elements()
	for _, e := range elements {
		problems = append(problems, serverShape.problems("servers."+e.Key()+".", e.Value())...)
	}
	if len(problems) > 0 {
		return problems
	}
	var state clockState
	if err := state.decode(raw); err != nil {
		return []string{err.Error()}
	}
	if state.N != int64(len(state.Servers)) {
		problems = append(problems, fmt.Sprintf("n is %d, and there are %d servers", state.N, len(state.Servers)))
	}
	plausible := func(name string, at driver.Instant) {
		switch {
		case at < 0:
			problems = append(problems, fmt.Sprintf("%s is %d", name, at))
		case at > now+farAhead:
			problems = append(problems, fmt.Sprintf("%s is %s, which is in the future; what is committed until then gets later times", name, at))
		}
	}
	plausible("mark", state.Mark)
	for _, id := range slices.Sorted(maps.Keys(state.Servers)) {
		plausible("servers."+id+".low", state.Servers[id].Low)
		plausible("servers."+id+".floor", state.Servers[id].Floor)
	}
	return problems
}

// whole is a document as a value.
func whole(raw bson.Raw) bson.RawValue {
	return bson.RawValue{Type: bson.TypeEmbeddedDocument, Value: raw}
}

// checkLoads checks what is being loaded. What servers leave behind that are gone is
// completed or removed by others, and only logged.
func (s *Store) checkLoads(ctx context.Context, report func(string)) error {
	owners := make(map[string]string)
	cursor, err := s.journal().Find(ctx, bson.D{})
	err = each(ctx, cursor, err, func(raw bson.Raw) error {
		problems := loadShape.problems("", whole(raw))
		if len(problems) == 0 {
			problems = partShape.problems("_id.", raw.Lookup("_id"))
		}
		if len(problems) == 0 {
			part, _ := raw.Lookup("_id", "part").Int64OK()
			if parts, _ := raw.Lookup("parts").Int64OK(); part < 0 || part >= parts {
				problems = []string{fmt.Sprintf("this is part %d of %d", part, parts)}
			}
		}
		for _, problem := range problems {
			report(fmt.Sprintf("%s %s: %s", journalName, raw.Lookup("_id"), problem))
		}
		if load, ok := raw.Lookup("_id", "load").StringValueOK(); ok && len(problems) == 0 && raw.Lookup(failedField).IsZero() {
			owners[load], _ = raw.Lookup("owner").StringValueOK()
		}
		return nil
	})
	if err != nil || len(owners) == 0 {
		return err
	}
	// Who wrote down what was found was among the servers before.
	state, err := s.fleet.doc.read(ctx)
	if err != nil {
		return err
	}
	for _, load := range slices.Sorted(maps.Keys(owners)) {
		if _, there := state.Servers[owners[load]]; !there {
			s.logger.Info("a load is left in "+journalName+" by a server that is gone; it is no damage, and another server completes or removes it", "load", load)
		}
	}
	return nil
}
