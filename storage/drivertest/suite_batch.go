package drivertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/asof/asof/storage/driver"
)

func (s *suite) batchTests() []test {
	return []test{
		{"ABatchIsAllOrNothing", s.testBatchAllOrNothing},
		{"ABatchHasOneInstant", s.testBatchOneInstant},
		{"ARepeatedBatchIsAppliedOnce", s.testRepeatedBatch},
		{"ABatchComparesWhatItDoesNotWrite", s.testComparedBatch},
		{"BatchesThatCompareEachOther", s.testBatchesThatCompareEachOther},
	}
}

// maxWrites is how many writes an engine commits together.
func maxWrites(e driver.Engine) int {
	if b, ok := driver.As[driver.Batcher](e); ok {
		return b.MaxWrites()
	}
	return driver.MaxWrites
}

// batching is a fixture of an engine that commits several writes together.
func (s *suite) batching(t *testing.T) *fixture {
	f := s.fixture(t)
	if n := maxWrites(f.engine); n < 4 {
		t.Skipf("the engine commits at most %d writes together", n)
	}
	return f
}

// writes are of new documents, with IDs of their own.
func (f *fixture) writes(keys ...string) []driver.Write {
	ws := make([]driver.Write, len(keys))
	for i, key := range keys {
		ws[i] = driver.Write{ID: f.id(), Collection: collection, Key: key, Op: driver.OpCreate, Group: "g", Data: fmt.Appendf(nil, `{"n":%d,"tags":["%s"]}`, i, key)}
	}
	return ws
}

func (s *suite) testBatchAllOrNothing(t *testing.T) {
	f := s.batching(t)
	f.put("a", `{"n":1}`)
	f.put("b", `{"n":1}`)
	f.remove("b")
	before := f.log(&driver.LogQuery{})
	ws := f.writes("new", "a", "b", "c")
	ws[0].Collection = "others"
	ws[1].Expected, ws[3].Expected = 2, 7
	for range 2 {
		_, err := f.engine.Commit(f.ctx, ws)
		want := []driver.Conflict{{Collection: collection, Key: "a", Expected: 2, Actual: 1}, {Collection: collection, Key: "c", Expected: 7}}
		var conflict *driver.ConflictError
		if !errors.As(err, &conflict) || !slices.Equal(conflict.Lost, want) {
			t.Errorf("%v, want the conflicts %+v", err, want)
		}
		if diff := difference(before, f.log(&driver.LogQuery{})); diff != "" {
			t.Errorf("the log changed (-before +after):\n%s", diff)
		}
	}
	if n := f.count(&driver.Query{At: driver.Forever, Filter: driver.Any{Field: stringField("tags"), Filter: eq(stringField(), "b")}}); n != 0 {
		t.Error("a value of a refused commit is found")
	}
	// The refused commit used up neither IDs nor numbers.
	ws[1].Expected, ws[3].Expected = 1, 0
	vs, err := f.engine.Commit(f.ctx, ws)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []int64{1, 2, 3, 1} {
		if vs[i].Number != want {
			t.Errorf("%s is version %d, want %d", vs[i].Key, vs[i].Number, want)
		}
	}
	if n := len(f.log(&driver.LogQuery{})); n != len(before)+4 {
		t.Errorf("%d versions, want %d", n, len(before)+4)
	}
	stats, err := f.engine.Stats(f.ctx)
	if err != nil || stats.Documents != 4 || stats.Versions != 7 {
		t.Errorf("%+v, %v; want 4 documents of 7 versions", stats, err)
	}
	if err := f.engine.Check(f.ctx, func(problem string) { t.Errorf("Check: %s", problem) }); err != nil {
		t.Error(err)
	}
}

// No read sees some of a batch: it is in the past of all its documents from one instant on.
func (s *suite) testBatchOneInstant(t *testing.T) {
	f := s.batching(t)
	f.put("a", `{"n":1}`)
	ws := f.writes("a", "b", "c")
	ws[0].Expected = 1
	now := f.now()
	vs, err := f.engine.Commit(f.ctx, ws)
	if err != nil {
		t.Fatal(err)
	}
	at := vs[0].RecordedAt
	for _, v := range vs {
		if v.RecordedAt != at || at <= now {
			t.Errorf("%s was committed at %d, a at %d, after Now was %d", v.Key, v.RecordedAt, at, now)
		}
	}
	f.reopen()
	for instant, want := range map[driver.Instant]int64{at - 1: 1, at: 3, driver.Forever: 3} {
		if n := f.count(&driver.Query{At: instant}); n != want {
			t.Errorf("%d documents at %d, want %d", n, instant, want)
		}
		if got := f.keys(&driver.Query{At: instant, Filter: driver.Present{Field: driver.Field{Path: []string{"tags"}}}}); (len(got) == 3) != (want == 3) {
			t.Errorf("%q have tags at %d", got, instant)
		}
	}
	if got := fmt.Sprint(names(f.log(&driver.LogQuery{From: at}))); got != "[t/a@2 t/b@1 t/c@1]" {
		t.Errorf("the log is %s", got)
	}
	// As much as one commit takes.
	keys := make([]string, maxWrites(f.engine))
	for i := range keys {
		keys[i] = fmt.Sprintf("many%d", i)
	}
	if vs, err = f.engine.Commit(f.ctx, f.writes(keys...)); err != nil || vs[0].RecordedAt != vs[len(keys)-1].RecordedAt {
		t.Errorf("%d writes: %v", len(keys), err)
	}
}

func (s *suite) testRepeatedBatch(t *testing.T) {
	f := s.batching(t)
	ws := f.writes("a", "b", "c")
	first, err := f.engine.Commit(f.ctx, ws)
	if err != nil {
		t.Fatal(err)
	}
	f.put("b", `{"n":7}`)
	for range 2 {
		again, err := f.engine.Commit(f.ctx, ws)
		if err != nil {
			t.Fatal(err)
		}
		for i, v := range again {
			if !sameButEnd(v, first[i]) {
				t.Errorf("again, %q made %+v, not %+v", ws[i].ID, v, first[i])
			}
		}
		f.reopen()
	}
	// IDs of some, with a new one.
	mixed := append(f.writes("d"), ws[1])
	_, err = f.engine.Commit(f.ctx, mixed)
	f.wantCode("some of a commit again", err, driver.CodeInvalid)
	if n := len(f.log(&driver.LogQuery{})); n != 4 {
		t.Errorf("%d versions, want 4", n)
	}
}

// What a commit only compares has no new version, and has to be as it was expected.
func (s *suite) testComparedBatch(t *testing.T) {
	f := s.batching(t)
	f.put("a", `{"n":1}`)
	f.put("gone", `{"n":1}`)
	f.remove("gone")
	ws := f.writes("a", "new", "gone", "never")
	for i := range ws {
		if ws[i].Key != "new" {
			ws[i] = driver.Write{ID: ws[i].ID, Collection: collection, Key: ws[i].Key, Compare: true}
		}
	}
	before := f.log(&driver.LogQuery{})
	_, err := f.engine.Commit(f.ctx, ws)
	var conflict *driver.ConflictError
	if want := []driver.Conflict{{Collection: collection, Key: "a", Actual: 1}}; !errors.As(err, &conflict) || !slices.Equal(conflict.Lost, want) {
		t.Errorf("%v, want the conflicts %+v", err, want)
	}
	if diff := difference(before, f.log(&driver.LogQuery{})); diff != "" {
		t.Errorf("the log changed (-before +after):\n%s", diff)
	}
	ws[0].Expected = 1
	for range 2 { // the second one repeats the first
		vs, err := f.engine.Commit(f.ctx, ws)
		if err != nil {
			t.Fatal(err)
		}
		if len(vs) != 4 || vs[0] != nil || vs[1] == nil || vs[1].Key != "new" || vs[2] != nil || vs[3] != nil {
			t.Errorf("made %+v, want only a version of new", vs)
		}
		f.reopen()
	}
	if n := len(f.log(&driver.LogQuery{})); n != len(before)+1 {
		t.Errorf("%d versions, want %d", n, len(before)+1)
	}
}

// Of two commits each of which writes what the other one only compares, at most one is made.
func (s *suite) testBatchesThatCompareEachOther(t *testing.T) {
	f := s.batching(t)
	for round := range 20 {
		keys := []string{fmt.Sprint("a", round), fmt.Sprint("b", round)}
		if round%2 > 0 { // else neither is there
			f.put(keys[0], `{}`)
			f.put(keys[1], `{}`)
		}
		made := make([]bool, len(keys))
		parallel(len(keys), func(i int) {
			ws := f.writes(keys...)
			for k := range ws {
				ws[k].Expected = int64(round % 2)
			}
			ws[i] = driver.Write{ID: ws[i].ID, Collection: collection, Key: ws[i].Key, Compare: true, Expected: ws[i].Expected}
			_, err := f.engine.Commit(f.ctx, ws)
			if made[i] = err == nil; err != nil && driver.CodeOf(err) != driver.CodeConflict {
				t.Error(err)
			}
		})
		if made[0] == made[1] {
			t.Errorf("round %d: made %v, want one of two", round, made)
		}
	}
}

// batchMessage is the message of the writes of a commit that says how many there are; they
// have a group of their own.
const batchMessage = "batch of %d"

// CheckBatches reports commits that Clients made together of which some are there and
// others not, or not of one instant. It returns how many there are.
func CheckBatches(ctx context.Context, e driver.Engine, collection string, report func(violation string)) (int, error) {
	type seen struct {
		size, count int
		at          driver.Instant
	}
	batches := make(map[string]*seen)
	for v, err := range e.Log(ctx, &driver.LogQuery{Collections: []string{collection}, Fields: []string{}}) {
		if err != nil {
			return 0, err
		}
		var size int
		if _, err := fmt.Sscanf(v.Message, batchMessage, &size); err != nil {
			continue
		}
		b := batches[v.Group]
		if b == nil {
			b = &seen{size: size, at: v.RecordedAt}
			batches[v.Group] = b
		}
		if b.count++; v.RecordedAt != b.at {
			report(fmt.Sprintf("the commit %s has versions of %d and of %d", v.Group, b.at, v.RecordedAt))
		}
	}
	for group, b := range batches {
		if b.count != b.size {
			report(fmt.Sprintf("%d of the %d versions of the commit %s are there", b.count, b.size, group))
		}
	}
	return len(batches), nil
}
