package drivertest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/asof/asof/storage/driver"
)

func (s *suite) writeTests() []test {
	return []test{
		{"EverythingThatWasWrittenIsRead", s.testRoundTrip},
		{"ExactlyOneOfManyWritersWins", s.testOneWriterWins},
		{"ABatchKeepsDocumentsApart", s.testBatchKeepsDocumentsApart},
		{"RepeatedAtTheSameTime", s.testRepeatedAtTheSameTime},
		{"TheCallerKeepsItsBytes", s.testCallerKeepsBytes},
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

// Commits of different documents that are made at the same time, and so perhaps in one batch,
// each keep their own content: in what they return and, as the contract sees, in what is read.
func (s *suite) testBatchKeepsDocumentsApart(t *testing.T) {
	const documents, rounds = 24, 10
	f := s.fixture(t)
	parallel(documents, func(i int) {
		for round := range rounds {
			name := fmt.Sprintf("%d.%d", i, round)
			_, err := driver.CommitOne(f.ctx, f.engine, &driver.Write{
				ID: f.id(), Collection: collection, Key: fmt.Sprintf("k%d", i), Expected: int64(round), Op: driver.OpUpdate,
				Author: "a" + name, Message: "m" + name, Group: "g" + name, Changed: []string{"c" + name},
				Data: fmt.Appendf(nil, `{"n":%d,"s":"%d","tags":["t%d"]}`, round, i, i),
			})
			if err != nil {
				t.Errorf("Commit %d of k%d: %v", round, i, err)
				return
			}
		}
	})
	if got := f.log(&driver.LogQuery{}); len(got) != documents*rounds {
		t.Errorf("%d versions, want %d", len(got), documents*rounds)
	}
	for i := range documents {
		q := &driver.Query{At: driver.Forever, Filter: driver.Any{Field: stringField("tags"), Filter: eq(stringField(), fmt.Sprintf("t%d", i))}}
		if got := f.keys(q); len(got) != 1 || got[0] != fmt.Sprintf("k%d", i) {
			t.Errorf("the tag of k%d finds %q", i, got)
		}
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

func (s *suite) testRoundTrip(t *testing.T) {
	f := s.fixture(t)
	w := &driver.Write{
		ID: "0f5e7a3c-0000-4000-8000-123456789abc", Collection: collection, Key: "ключ/1", Op: driver.OpRestore,
		Author: "Ann O'Neill <ann@example.org>", Message: "a \"message\"\nof two lines — 🎉", Group: "group;1",
		Changed: []string{"", "a.b", "ключ", "z"},
		Data:    []byte(`{"z":1,"a.b":[null,true,1.5,"\u0000\n\u001f\"\\/<>&é🎉"],"ключ":{"":{}},"":-12345678901234567890.5}`),
	}
	made := f.commit(w)
	want := &driver.Version{
		Collection: collection, Key: w.Key, Number: 1, RecordedAt: driver.InstantOf(f.clock.now()), SupersededAt: driver.Forever,
		Op: w.Op, Author: w.Author, Message: w.Message, Group: w.Group, Changed: w.Changed, Data: w.Data,
	}
	if made.RecordedAt < want.RecordedAt {
		t.Errorf("recorded at %d, before the clock, %d", made.RecordedAt, want.RecordedAt)
	}
	want.RecordedAt = made.RecordedAt
	f.reopen()
	for name, got := range map[string]*driver.Version{
		"Commit":        made,
		"Get at":        f.get(driver.Ref{Key: w.Key, At: made.RecordedAt}),
		"Get of number": f.get(driver.Ref{Key: w.Key, Number: 1}),
		"Query":         f.query(&driver.Query{At: made.RecordedAt})[0],
		"Log":           f.log(&driver.LogQuery{})[0],
	} {
		if diff := difference(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	f.clock.move(time.Second)
	f.put(w.Key, `{"after":true}`)
	want.SupersededAt = f.get(driver.Ref{Key: w.Key, Number: 2}).RecordedAt
	if diff := difference(want, f.get(driver.Ref{Key: w.Key, Number: 1})); diff != "" {
		t.Errorf("superseded (-want +got):\n%s", diff)
	}
}
