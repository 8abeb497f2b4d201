package storage

import (
	"context"
	"fmt"
	"time"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/record"
)

// Mismatch is a value in a stored version that does not fit its type: reading the
// field that Err names is an error.
type Mismatch struct {
	Type    *record.Type
	Key     string
	Version int
	Current bool // of a document that exists now
	Err     *record.MismatchError
}

// Mismatches calls report for what does not fit its type in every version that is
// stored, in the order of times: for at most 1,000 values of each version. It keeps
// nothing, and returns the error of the engine, or of data that is no document.
func (s *Store) Mismatches(ctx context.Context, report func(Mismatch)) error {
	for v, err := range s.all.Log(ctx, &driver.LogQuery{Collections: s.collections()}) {
		if err != nil {
			return fromDriver(ctx, err)
		}
		if v.Deleted {
			continue
		}
		t := s.byCollection[v.Collection]
		data, err := s.Today(v)
		if err != nil {
			found := &record.MismatchError{Path: "*", Expected: "a migration that succeeds", Found: "a failure: " + err.Error()}
			report(Mismatch{Type: t, Key: v.Key, Version: int(v.Number), Current: v.Current(), Err: found})
			continue
		}
		mismatches, err := t.Unreadable(data)
		if err != nil {
			return fmt.Errorf("%s %q, version %d: %w", t.Name, v.Key, v.Number, err)
		}
		for _, m := range mismatches {
			report(Mismatch{Type: t, Key: v.Key, Version: int(v.Number), Current: v.Current(), Err: m})
		}
	}
	return nil
}

// maxAhead is how far instants may be ahead of a clock before Future reports them.
const maxAhead = driver.Instant(time.Second / time.Microsecond)

// Future reports versions that lie in the future, a line for each collection: a
// clock was wrong when they were committed. It can say so only where the clock that
// says what is present is right. The remedy is what to do then, in words.
func Future(ctx context.Context, engine driver.Engine, present driver.Instant, remedy string, report func(problem string)) error {
	now, err := engine.Now(ctx)
	if err != nil || now <= present+maxAhead {
		return err
	}
	type found struct {
		versions    int
		first, last driver.Instant
	}
	var collections []string
	all := map[string]*found{}
	for v, err := range engine.Log(ctx, &driver.LogQuery{From: present + maxAhead, Fields: []string{}}) {
		if err != nil {
			return err
		}
		f := all[v.Collection]
		if f == nil {
			f = &found{first: v.RecordedAt}
			all[v.Collection] = f
			collections = append(collections, v.Collection)
		}
		f.versions++
		f.last = v.RecordedAt
	}
	for _, name := range collections {
		f := all[name]
		report(fmt.Sprintf("%s: versions in the future: %d, from %s to %s, while this machine's clock says %s; if that is right, %s",
			name, f.versions, f.first, f.last, present, remedy))
	}
	if len(collections) == 0 {
		report(fmt.Sprintf("the store's clock is ahead: commits get times after %s, while this machine's clock says %s; if that is right, %s", now, present, remedy))
	}
	return nil
}
