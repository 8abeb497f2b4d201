package storage

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/agnivade/levenshtein"

	"github.com/asof/asof/storage/driver"
)

// Mismatch is a value in a stored version that does not fit its type: reading the
// field that Err names is an error.
type Mismatch struct {
	Type    *Type
	Key     string
	Version int
	Current bool // of a document that exists now
	Err     *MismatchError
}

// Mismatches calls report for what does not fit its type in every version that is
// stored, in the order of times: for at most 1,000 values of each version. It keeps
// nothing, and returns the error of the engine, or of data that is no document.
func (s *Store) Mismatches(ctx context.Context, report func(Mismatch)) error {
	q := &driver.LogQuery{}
	for _, t := range s.types {
		q.Collections = append(q.Collections, t.Collection)
	}
	for v, err := range s.all.Log(ctx, q) {
		if err != nil {
			return fromDriver(ctx, err)
		}
		if v.Deleted {
			continue
		}
		t := s.byCollection[v.Collection]
		data, err := s.Today(v)
		if err != nil {
			found := &MismatchError{Path: "*", Expected: "a migration that succeeds", Found: "a failure: " + err.Error()}
			report(Mismatch{Type: t, Key: v.Key, Version: int(v.Number), Current: v.Current(), Err: found})
			continue
		}
		mismatches, err := t.unreadable(data)
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

// SimilarMember returns the stored name of a field that somebody may have meant
// by a member that the type does not declare: one whose name in GraphQL is the
// member's, or that differs in a letter or two. The path is one that Validate
// returned. It returns "" where there is none.
func (t *Type) SimilarMember(path string) string {
	if t.prepare() != nil {
		return ""
	}
	o := t.object
	names := strings.Split(path, ".")
	for _, name := range names[:len(names)-1] {
		i, ok := o.byStored[name]
		if !ok || o.Fields[i].Object == nil {
			return ""
		}
		o = o.Fields[i].Object
	}
	name := names[len(names)-1]
	if f := o.field(name); f != nil {
		return f.Stored
	}
	best, distance := "", min(2, len(name)/3)+1
	for i := range o.Fields {
		f := &o.Fields[i]
		for _, known := range []string{f.Stored, f.Name} {
			if d := levenshtein.ComputeDistance(strings.ToLower(name), strings.ToLower(known)); d < distance {
				best, distance = f.Stored, d
			}
		}
	}
	return best
}
