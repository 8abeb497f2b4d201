package drivertest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/asof/asof/storage/driver"
)

func (s *suite) writeTests() []test {
	return []test{
		{"ExactlyOneOfManyWritersWins", s.testOneWriterWins},
		{"EveryExpectedVersion", s.testExpectedVersions},
		{"AConflictWritesNothing", s.testConflictWritesNothing},
		{"ABatchKeepsDocumentsApart", s.testBatchKeepsDocumentsApart},
		{"OneLoserInABatch", s.testLoserInABatch},
		{"NumbersGoOnAfterADelete", s.testNumbersGoOn},
		{"ARepeatedWriteIsAppliedOnce", s.testRepeatedWrite},
		{"RepeatedAtTheSameTime", s.testRepeatedAtTheSameTime},
		{"TheCallerKeepsItsBytes", s.testCallerKeepsBytes},
		{"WhatIsAcknowledgedStays", s.testAcknowledgedStays},
	}
}

// parallel runs a function in n goroutines that start together.
func parallel(n int, run func(i int)) {
	var ready, done sync.WaitGroup
	ready.Add(n)
	for i := range n {
		done.Go(func() {
			ready.Done()
			ready.Wait()
			run(i)
		})
	}
	done.Wait()
}

// The comparison is part of the write: of many that expect the same version,
// one wins, and every other learns what it lost to.
func (s *suite) testOneWriterWins(t *testing.T) {
	const writers, rounds = 16, 12
	f := s.fixture(t)
	for round := range rounds {
		errs := make([]error, writers)
		parallel(writers, func(i int) {
			_, errs[i] = driver.CommitOne(f.ctx, f.engine, &driver.Write{
				ID: f.id(), Collection: collection, Key: "contended", Expected: int64(round), Op: driver.OpUpdate,
				Author: fmt.Sprintf("writer %d", i), Data: fmt.Appendf(nil, `{"writer":%d}`, i),
			})
		})
		winner := -1
		for i, err := range errs {
			var conflict *driver.ConflictError
			switch {
			case err == nil && winner >= 0:
				t.Fatalf("round %d: writers %d and %d both won", round, winner, i)
			case err == nil:
				winner = i
			case !errors.As(err, &conflict):
				t.Fatalf("round %d: writer %d got %v (%T), want a *ConflictError", round, i, err, err)
			case !slices.Equal(conflict.Lost, []driver.Conflict{{Collection: collection, Key: "contended", Expected: int64(round), Actual: int64(round) + 1}}):
				t.Errorf("round %d: writer %d got %+v, want expected %d and actual %d", round, i, *conflict, round, round+1)
			}
		}
		if winner < 0 {
			t.Fatalf("round %d: nobody won", round)
		}
		got := f.get(driver.Ref{Key: "contended", At: driver.Forever})
		if got.Number != int64(round)+1 || string(got.Data) != fmt.Sprintf(`{"writer":%d}`, winner) || got.Author != fmt.Sprintf("writer %d", winner) {
			t.Errorf("round %d: writer %d won, but version %d says %s by %s", round, winner, got.Number, got.Data, got.Author)
		}
	}
	if got := len(f.log(&driver.LogQuery{})); got != rounds {
		t.Errorf("%d versions, want %d", got, rounds)
	}
}

func (s *suite) testExpectedVersions(t *testing.T) {
	f := s.fixture(t)
	f.put("live", `{}`)
	f.put("live", `{"n":2}`)
	f.put("dead", `{}`)
	f.remove("dead")
	for _, test := range []struct {
		key      string
		expected int64
		actual   int64 // of the conflict
		ok       bool
		deleted  bool
	}{
		{key: "new", expected: 1},
		{key: "new", expected: 7},
		{key: "new", expected: 1 << 62},
		{key: "live", expected: 0, actual: 2},
		{key: "live", expected: 1, actual: 2},
		{key: "live", expected: 3, actual: 2},
		{key: "live", expected: 1, actual: 2, deleted: true},
		{key: "dead", expected: 1, actual: 2},
		{key: "dead", expected: 3, actual: 2},
		{key: "dead", expected: 1, actual: 2, deleted: true},
		{key: "new", expected: 0, ok: true},
		{key: "new", expected: 0, actual: 1},
		{key: "live", expected: 2, ok: true},
		{key: "live", expected: 2, actual: 3},
		{key: "dead", expected: 2, ok: true}, // the number of a tombstone
		{key: "dead", expected: 3, ok: true, deleted: true},
		{key: "dead", expected: 0, ok: true}, // it does not exist
		{key: "dead", expected: 0, actual: 5},
	} {
		w := &driver.Write{ID: f.id(), Collection: collection, Key: test.key, Expected: test.expected, Op: driver.OpUpdate, Deleted: test.deleted}
		if !test.deleted {
			w.Data = []byte(`{"by":"the test"}`)
		}
		v, err := driver.CommitOne(f.ctx, f.engine, w)
		var conflict *driver.ConflictError
		switch {
		case test.ok && err != nil:
			t.Errorf("%s expecting %d: %v", test.key, test.expected, err)
		case test.ok && v.Deleted != test.deleted:
			t.Errorf("%s expecting %d: made %+v", test.key, test.expected, v)
		case test.ok:
		case !errors.As(err, &conflict):
			t.Errorf("%s expecting %d: got %v (%T), want a *ConflictError", test.key, test.expected, err, err)
		case !slices.Equal(conflict.Lost, []driver.Conflict{{Collection: collection, Key: test.key, Expected: test.expected, Actual: test.actual}}):
			t.Errorf("%s expecting %d: got %+v, want actual %d", test.key, test.expected, *conflict, test.actual)
		}
	}
}

func (s *suite) testConflictWritesNothing(t *testing.T) {
	f := s.fixture(t)
	f.put("a", `{"n":1}`)
	before := f.log(&driver.LogQuery{})
	for range 3 {
		_, err := driver.CommitOne(f.ctx, f.engine, &driver.Write{
			ID: "again", Collection: collection, Key: "a", Expected: 5, Op: driver.OpUpdate, Data: []byte(`{"n":9}`),
		})
		f.wantCode("a stale write", err, driver.CodeConflict)
	}
	if diff := difference(before, f.log(&driver.LogQuery{})); diff != "" {
		t.Errorf("the log changed (-before +after):\n%s", diff)
	}
	if got := f.count(&driver.Query{At: driver.Forever, Filter: eq(intField("n"), int64(9))}); got != 0 {
		t.Errorf("the refused value is found")
	}
	// The refused write did not use up its ID.
	v := f.commit(&driver.Write{ID: "again", Collection: collection, Key: "a", Expected: 1, Op: driver.OpUpdate, Data: []byte(`{"n":2}`)})
	if v.Number != 2 {
		t.Errorf("after conflicts: version %d, want 2", v.Number)
	}
}

// Commits of different documents that are made at the same time, and so
// perhaps in one batch, each keep their own content.
func (s *suite) testBatchKeepsDocumentsApart(t *testing.T) {
	const documents, rounds = 24, 10
	f := s.fixture(t)
	versions := make([][]*driver.Version, documents)
	parallel(documents, func(i int) {
		for round := range rounds {
			v, err := driver.CommitOne(f.ctx, f.engine, &driver.Write{
				ID: f.id(), Collection: collection, Key: fmt.Sprintf("k%d", i), Expected: int64(round), Op: driver.OpUpdate,
				Author: fmt.Sprintf("a%d", i), Message: fmt.Sprintf("m%d.%d", i, round), Group: fmt.Sprintf("g%d", i),
				Changed: []string{fmt.Sprintf("c%d", i)}, Data: fmt.Appendf(nil, `{"n":%d,"s":"%d","tags":["t%d"]}`, round, i, i),
			})
			if err != nil {
				t.Errorf("Commit %d of k%d: %v", round, i, err)
				return
			}
			versions[i] = append(versions[i], v)
		}
	})
	times := make(map[driver.Instant]string)
	for i, vs := range versions {
		for round, v := range vs {
			name := fmt.Sprintf("k%d version %d", i, round+1)
			want := &driver.Version{
				Collection: collection, Key: fmt.Sprintf("k%d", i), Number: int64(round) + 1, RecordedAt: v.RecordedAt, SupersededAt: driver.Forever,
				Op: driver.OpUpdate, Author: fmt.Sprintf("a%d", i), Message: fmt.Sprintf("m%d.%d", i, round), Group: fmt.Sprintf("g%d", i),
				Changed: []string{fmt.Sprintf("c%d", i)}, Data: fmt.Appendf(nil, `{"n":%d,"s":"%d","tags":["t%d"]}`, round, i, i),
			}
			if !sameButEnd(v, want) {
				t.Errorf("Commit made %s: %+v", name, v)
			}
			if got := f.get(driver.Ref{Key: want.Key, Number: want.Number}); !sameButEnd(got, want) {
				t.Errorf("%s reads as %+v", name, got)
			}
			if other, ok := times[v.RecordedAt]; ok && s.UniqueTimes {
				t.Errorf("%s and %s were both recorded at %d", name, other, v.RecordedAt)
			}
			times[v.RecordedAt] = name
		}
		q := &driver.Query{At: driver.Forever, Filter: driver.Any{Field: stringField("tags"), Filter: eq(stringField(), fmt.Sprintf("t%d", i))}}
		if got := f.keys(q); len(got) != 1 || got[0] != fmt.Sprintf("k%d", i) {
			t.Errorf("the tag of k%d finds %q", i, got)
		}
	}
}

// A write that loses takes none of its neighbours with it.
func (s *suite) testLoserInABatch(t *testing.T) {
	const writers = 32
	f := s.fixture(t)
	errs := make([]error, writers)
	parallel(writers, func(i int) {
		w := &driver.Write{ID: f.id(), Collection: collection, Key: fmt.Sprintf("k%d", i), Op: driver.OpCreate, Data: []byte(`{"n":1}`)}
		switch i % 4 {
		case 1:
			w.Expected = 3 // a conflict
		case 2:
			w.Key = "" // malformed
		}
		_, errs[i] = driver.CommitOne(f.ctx, f.engine, w)
	})
	for i, err := range errs {
		f.wantCode(fmt.Sprintf("writer %d", i), err, []driver.Code{"", driver.CodeConflict, driver.CodeInvalid, ""}[i%4])
	}
	if got := f.count(&driver.Query{At: driver.Forever}); got != writers/2 {
		t.Errorf("%d documents, want %d", got, writers/2)
	}
}

func (s *suite) testNumbersGoOn(t *testing.T) {
	f := s.fixture(t)
	for i := range 5 {
		if v := f.put("a", fmt.Sprintf(`{"n":%d}`, i)); v.Number != int64(2*i)+1 {
			t.Errorf("life %d begins with version %d, want %d", i, v.Number, 2*i+1)
		}
		if v := f.remove("a"); v.Number != int64(2*i)+2 {
			t.Errorf("life %d ends with version %d, want %d", i, v.Number, 2*i+2)
		}
		f.clock.move(time.Second)
	}
	w := &driver.Write{ID: f.id(), Collection: collection, Key: "a", Op: driver.OpCreate, Data: []byte(`{"n":99}`)}
	if v := f.commit(w); v.Number != 11 {
		t.Errorf("created again: version %d, want 11", v.Number)
	}
	for i := range 5 {
		if v := f.get(driver.Ref{Key: "a", Number: int64(2*i) + 1}); v == nil || string(v.Data) != fmt.Sprintf(`{"n":%d}`, i) {
			t.Errorf("life %d is %+v", i, v)
		}
	}
}

func (s *suite) testRepeatedWrite(t *testing.T) {
	f := s.fixture(t)
	create := &driver.Write{ID: "create", Collection: collection, Key: "a", Op: driver.OpCreate, Author: "ann", Data: []byte(`{"n":1}`)}
	update := &driver.Write{ID: strings.Repeat("u", 36), Collection: collection, Key: "a", Expected: 1, Op: driver.OpUpdate, Data: []byte(`{"n":2}`)}
	remove := &driver.Write{ID: "remove", Collection: collection, Key: "a", Expected: 2, Op: driver.OpDelete, Deleted: true}
	var first []*driver.Version
	writes := []*driver.Write{create, update, remove}
	again := func(when string) {
		t.Helper()
		for i, v := range first {
			repeated, err := driver.CommitOne(f.ctx, f.engine, writes[i])
			if err != nil {
				t.Errorf("%s: write %q again: %v", when, writes[i].ID, err)
				continue
			}
			if !sameButEnd(repeated, v) {
				t.Errorf("%s: write %q again made %+v, not %+v", when, writes[i].ID, repeated, v)
			}
			if current := i == len(first)-1; repeated.Current() != current {
				t.Errorf("%s: write %q again: superseded at %s", when, writes[i].ID, repeated.SupersededAt)
			}
		}
		if got := len(f.log(&driver.LogQuery{})); got != len(first) {
			t.Errorf("%s: %d versions, want %d", when, got, len(first))
		}
	}
	for _, w := range writes {
		first = append(first, f.commit(w))
		f.clock.move(time.Second)
		again("after " + w.ID)
	}
	f.reopen()
	again("opened again")
	f.reopen()
	first = append(first, f.put("a", `{"n":3}`))
	first = first[:3]
	for i, v := range first {
		if repeated := f.commit(writes[i]); !sameButEnd(repeated, v) || repeated.Current() {
			t.Errorf("after a later version: write %q again made %+v, not %+v", writes[i].ID, repeated, v)
		}
	}
	if got := f.get(driver.Ref{Key: "a", At: driver.Forever}); got.Number != 4 {
		t.Errorf("repeated writes made version %d", got.Number)
	}
}

func (s *suite) testRepeatedAtTheSameTime(t *testing.T) {
	const writers = 12
	f := s.fixture(t)
	for round := range 10 {
		vs := make([]*driver.Version, writers)
		parallel(writers, func(i int) {
			v, err := driver.CommitOne(f.ctx, f.engine, &driver.Write{
				ID: fmt.Sprintf("round %d", round), Collection: collection, Key: "a", Expected: int64(round),
				Op: driver.OpUpdate, Data: fmt.Appendf(nil, `{"n":%d}`, round),
			})
			if err != nil {
				t.Errorf("round %d: %v", round, err)
			}
			vs[i] = v
		})
		for _, v := range vs {
			if v != nil && !sameButEnd(v, vs[0]) {
				t.Errorf("round %d: one write made %+v and %+v", round, v, vs[0])
			}
		}
		if got := f.get(driver.Ref{Key: "a", At: driver.Forever}); got.Number != int64(round)+1 {
			t.Fatalf("round %d: version %d", round, got.Number)
		}
	}
}

// An engine keeps no hold of what it was given.
func (s *suite) testCallerKeepsBytes(t *testing.T) {
	f := s.fixture(t)
	data, changed := []byte(`{"s":"mine"}`), []string{"s"}
	v := f.commit(&driver.Write{ID: f.id(), Collection: collection, Key: "a", Op: driver.OpCreate, Changed: changed, Data: data})
	loaded := driver.Version{
		Collection: collection, Key: "b", RecordedAt: 1, Op: driver.OpImport, Changed: changed, Data: bytes.Clone(data),
	}
	f.load(loaded)
	copy(data, `{"x":"gone"}`)
	copy(loaded.Data, `{"x":"gone"}`)
	changed[0] = "x"
	for _, got := range []*driver.Version{v, f.get(driver.Ref{Key: "a", Number: 1}), f.get(driver.Ref{Key: "b", Number: 1})} {
		if string(got.Data) != `{"s":"mine"}` || len(got.Changed) != 1 || got.Changed[0] != "s" {
			t.Errorf("after the caller reused its memory, %q says %s, changed %q", got.Key, got.Data, got.Changed)
		}
	}
}

func (s *suite) testAcknowledgedStays(t *testing.T) {
	f := s.fixture(t)
	var want []*driver.Version
	for i := range 20 {
		want = append(want, f.put(fmt.Sprintf("k%d", i%7), fmt.Sprintf(`{"n":%d}`, i)))
		if i%4 == 3 {
			f.reopen()
		}
	}
	for _, v := range want {
		if got := f.get(driver.Ref{Key: v.Key, Number: v.Number}); !sameButEnd(got, v) {
			t.Errorf("%q version %d is %+v, was %+v", v.Key, v.Number, got, v)
		}
	}
}
