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
	prev, _ := elements(raw.Lookup("prev"))
	size := int64(0)
	for _, v := range prev {
		size += int64(len(v))
	}
	if int64(len(prev)) != head.n || size != head.size {
		h.problem("prev has %d versions of %d bytes; n and size say %d and %d", len(prev), size, head.n, head.size)
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
	for _, v := range prev {
		h.next(v)
	}
	current, _ := raw.Lookup("current").DocumentOK()
	h.next(current)
	for _, problem := range h.History.End() {
		h.problem("%s", problem)
	}
	return nil
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
	versions, _ := elements(run.Lookup("vs"))
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

// checkMeta checks what servers note of the store and of each other, in asof.meta. Nobody
// else is to write there.
func (s *Store) checkMeta(ctx context.Context, report func(string)) error {
	missing := map[string]bool{storeID: true, clockID: true}
	cursor, err := s.meta.Find(ctx, bson.D{})
	err = each(ctx, cursor, err, func(raw bson.Raw) error {
		id, _ := raw.Lookup("_id").StringValueOK()
		delete(missing, id)
		switch {
		case id == clockID:
			if problem := clockProblem(raw); problem != "" {
				report(fmt.Sprintf("%s %q: %s", metaName, id, problem))
			}
		case id != storeID && !strings.HasPrefix(id, notePrefix): // a note is of a transaction that runs, or that ended with its server
			report(fmt.Sprintf("%s %s: this is no document of asof's; remove it", metaName, raw.Lookup("_id")))
		}
		return nil
	})
	for _, id := range slices.Sorted(maps.Keys(missing)) {
		if err == nil {
			report(fmt.Sprintf("%s %q: it is not there any more", metaName, id))
		}
	}
	return err
}

// decodeClock returns what a command about the document answers.
func decodeClock(raw bson.Raw, err error) (*clockState, error) {
	if err != nil {
		return nil, err
	}
	state := new(clockState)
	err = bson.Unmarshal(raw, state)
	latest := max(state.Last, state.Acked)
	for _, e := range state.Flights {
		latest = max(latest, e.From)
	}
	if err == nil && latest > driver.LastInstant {
		err = fmt.Errorf("it says %s, which no time can be", latest)
	}
	if err != nil {
		return nil, driver.Errorf(driver.CodeUnavailable,
			"another program wrote into the document %q of %s (%w); stop all asof servers on the database and remove the document: asof makes it anew when it starts",
			clockID, metaName, err)
	}
	return state, nil
}

// clockProblem says what is wrong with the clock document; "": nothing. An instant in it that
// is far ahead of the database's clock is one that the clock has shown: from then on it was
// right again, or never before.
func clockProblem(raw bson.Raw) string {
	switch state, err := decodeClock(raw, nil); {
	case err != nil:
		return err.Error()
	case state.Last > instantOf(state.Now)+farAhead:
		return fmt.Sprintf("last is %s, and the database's clock says %s; what is committed until then gets times after that", state.Last, instantOf(state.Now))
	}
	return ""
}

// farAhead is more than an instant is ahead of the database's clock by what asof does.
const farAhead = driver.Instant(time.Minute / time.Microsecond)
