package drivertest

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/seal"
)

func (s *suite) rewriteTests() []test {
	return []test{
		{"NumberAndTimeStay", s.testRewriteKeepsPlace},
		{"IndexesFollow", s.testRewriteIndexes},
		{"RefusesWhatIsNotThere", s.testRewriteRefused},
		{"WhatWasRewrittenSinceStays", s.testRewriteAsRead},
		{"BesideCommits", s.testRewriteBesideCommits},
		{"APrunedVersionLoadsAsAny", s.testLoadPruned},
		{"OfMostlyPrunedDocumentsTheRestIsFound", s.testLogOfFew},
	}
}

// pruned are versions with numbers of which nothing else is left.
func pruned(numbers ...int64) []driver.Version {
	vs := make([]driver.Version, len(numbers))
	for i, n := range numbers {
		vs[i] = driver.Version{Number: n, Op: driver.OpPruned, Deleted: true}
	}
	return vs
}

func (f *fixture) rewrite(key string, vs ...driver.Version) {
	f.Helper()
	if err := f.engine.Rewrite(f.ctx, collection, key, vs); err != nil {
		f.Fatalf("Rewrite(%q): %v", key, err)
	}
}

func (s *suite) testRewriteKeepsPlace(t *testing.T) {
	f := s.fixture(t)
	var were []*driver.Version
	for i := range 200 { // on MongoDB, most of them are in runs
		were = append(were, f.put("a", fmt.Sprintf(`{"n":%d,"tags":["t%d"]}`, i, i%3)))
	}
	for i := range were { // read, so that an engine may know them
		were[i] = f.get(driver.Ref{Key: "a", Number: int64(i + 1)})
	}
	other := driver.Version{Number: 195, Op: driver.OpUpdate, Author: "eve", Message: "m", Group: "g", Changed: []string{"n"}, Data: []byte(`{"n":-1}`), Schema: 9}
	want := func() {
		t.Helper()
		for i, was := range were {
			w := *was
			switch n := int64(i + 1); {
			case n == other.Number:
				w.Op, w.Author, w.Message, w.Group, w.Changed, w.Data = other.Op, other.Author, other.Message, other.Group, other.Changed, other.Data
				w.Schema = other.Schema
				w.Seal = seal.Rewritten(was, &w)
			case n <= 3 || n == 199:
				w = driver.Version{Collection: collection, Key: "a", Number: n, RecordedAt: was.RecordedAt, SupersededAt: was.SupersededAt, Op: driver.OpPruned, Deleted: true}
				w.Seal = seal.Rewritten(was, &w)
			}
			for _, ref := range []driver.Ref{{Key: "a", Number: w.Number}, {Key: "a", At: w.RecordedAt}, {Key: "a", At: was.SupersededAt - 1}} {
				if got := f.get(ref); !same(got, &w) {
					t.Errorf("%+v: %s, want %s", ref, describe(got), describe(&w))
				}
			}
			if got := f.query(&driver.Query{At: w.RecordedAt}); (len(got) == 0) != w.Deleted {
				t.Errorf("a list as of version %d: %d documents", w.Number, len(got))
			}
		}
		if got := f.log(&driver.LogQuery{Collections: []string{collection}, Keys: []string{"a"}}); len(got) != len(were) || got[1].Op != driver.OpPruned || got[194].Author != "eve" {
			t.Errorf("the log has %d versions", len(got))
		}
	}
	for range 2 { // again changes nothing
		f.rewrite("a", append(pruned(3, 1, 2, 199), other)...)
		want()
	}
	f.reopen()
	want()
	v := f.put("a", `{"n":1}`)
	if v.Number != 201 {
		t.Errorf("the next version is number %d", v.Number)
	}
}

func (s *suite) testRewriteIndexes(t *testing.T) {
	f := s.fixture(t)
	var vs []*driver.Version
	for _, n := range []int{1, 1, 2, 1, 1} {
		vs = append(vs, f.put("a", fmt.Sprintf(`{"n":%d,"tags":["x","y%d"]}`, n, n)))
	}
	find := func(at driver.Instant, n int64) int64 {
		return int64(len(f.query(&driver.Query{At: at, Filter: eq(intField("n"), n)}))) +
			f.count(&driver.Query{At: at, Filter: driver.Any{Field: field(0, "tags"), Filter: eq(driver.Field{Kind: driver.KindString}, fmt.Sprintf("y%d", n))}})
	}
	f.rewrite("a", driver.Version{Number: 2, Op: driver.OpUpdate, Data: []byte(`{"n":7,"tags":["y7"]}`)}, pruned(4)[0])
	for i, want := range []int64{1, 7, 2, 0, 1} {
		for _, n := range []int64{1, 2, 7} {
			found := int64(0)
			if n == want {
				found = 2
			}
			if got := find(vs[i].RecordedAt, n); got != found {
				t.Errorf("as of version %d, by %d: %d, want %d", i+1, n, got, found)
			}
		}
	}
	if got := find(driver.Forever, 1); got != 2 {
		t.Errorf("now: %d", got)
	}
}

// Who was stopped between reading and rewriting brings nothing back, neither does a load.
func (s *suite) testRewriteAsRead(t *testing.T) {
	f := s.fixture(t)
	for i := range 100 { // on MongoDB, some of them are in runs
		f.put("a", fmt.Sprintf(`{"n":%d,"s":"secret"}`, i))
	}
	var stale, first, old []driver.Version
	for _, v := range f.log(&driver.LogQuery{Collections: []string{collection}, Keys: []string{"a"}}) {
		old = append(old, *v)
		if was := *v; v.Number < 100 {
			was.Data = []byte(`{"s":"secret"}`)
			stale = append(stale, was)
			was.Data = []byte(`{"n":0}`)
			first = append(first, was)
		}
	}
	f.rewrite("a", first[40:]...)
	f.rewrite("a", pruned(1)...)
	f.rewrite("a", first...)
	f.rewrite("a", stale...)
	if got := f.load(old...); got.Skipped != 100 {
		t.Errorf("loaded again: %+v", got)
	}
	for _, v := range f.log(&driver.LogQuery{Collections: []string{collection}, Keys: []string{"a"}}) {
		if n := v.Number; (v.Op == driver.OpPruned) != (n == 1) || n > 1 && n < 100 && string(v.Data) != `{"n":0}` {
			t.Errorf("there is %s", describe(v))
		}
	}
	old[1].Author = "another"
	old[1].Seal = bytes.Clone(old[2].Seal)
	if _, err := f.engine.Load(f.ctx, old[1:2]); driver.CodeOf(err) != driver.CodeInvalid {
		t.Errorf("another version in the place of one that was rewritten: %v", err)
	}
}

func (s *suite) testRewriteRefused(t *testing.T) {
	f := s.fixture(t)
	f.put("a", `{"n":1}`)
	f.put("a", `{"n":2}`)
	f.wantCode("the last version", f.engine.Rewrite(f.ctx, collection, "a", pruned(2)), driver.CodeInvalid)
	f.wantCode("a later version", f.engine.Rewrite(f.ctx, collection, "a", pruned(1, 3)), driver.CodeInvalid)
	f.wantCode("no document", f.engine.Rewrite(f.ctx, collection, "b", pruned(1)), driver.CodeInvalid)
	if got := f.get(driver.Ref{Key: "a", Number: 1}); string(got.Data) != `{"n":1}` {
		t.Errorf("a refused call changed %s", describe(got))
	}
}

// Commits move versions while they are rewritten: none comes back, none is lost.
func (s *suite) testRewriteBesideCommits(t *testing.T) {
	f := s.fixture(t)
	f.put("a", `{"n":0,"s":"secret"}`)
	var writers sync.WaitGroup
	writers.Go(func() {
		for i := range s.tries(300) {
			f.put("a", fmt.Sprintf(`{"n":%d,"s":"secret"}`, i))
		}
	})
	ended := make(chan struct{})
	go func() { writers.Wait(); close(ended) }()
	done := int64(0)
	for running := true; running; {
		select {
		case <-ended:
			running = false
		default:
		}
		last := f.get(driver.Ref{Key: "a", At: driver.Forever}).Number
		var vs []driver.Version
		for n := done + 1; n < last && len(vs) < 40; n++ {
			vs = append(vs, driver.Version{Number: n, Op: driver.OpUpdate, Data: []byte(`{"n":-1}`)})
		}
		if len(vs) > 0 {
			f.rewrite("a", vs...)
			done = vs[len(vs)-1].Number
			running = true
		}
	}
	f.put("a", `{"n":0,"s":"secret"}`) // also after the last call, whatever the writer did meanwhile
	got := f.log(&driver.LogQuery{Collections: []string{collection}, Keys: []string{"a"}})
	if slices.ContainsFunc(got, func(v *driver.Version) bool { return v.Number <= done && string(v.Data) != `{"n":-1}` }) || int64(len(got)) != done+2 {
		t.Errorf("of %d versions that were rewritten, some are not, or not there: %d versions", done, len(got))
	}
	if n := f.count(&driver.Query{At: got[len(got)/2].RecordedAt, Filter: eq(stringField("s"), "secret")}); n != 0 {
		t.Errorf("what was rewritten is found by its old value")
	}
}

func (s *suite) testLoadPruned(t *testing.T) {
	f := s.fixture(t)
	v := func(n int64, pruned bool) driver.Version {
		v := driver.Version{Collection: collection, Key: "a", Number: n, RecordedAt: driver.Instant(n), Op: driver.OpImport, Data: []byte(`{"n":1}`)}
		if pruned {
			v.Op, v.Deleted, v.Data = driver.OpPruned, true, nil
		}
		return v
	}
	f.load(v(1, true), v(2, true), v(3, false), v(4, false))
	if got := f.get(driver.Ref{Key: "a", Number: 2}); got.Op != driver.OpPruned || got.SupersededAt != 3 {
		t.Errorf("loaded: %s", describe(got))
	}
	f.rewrite("a", pruned(3)...)
	if got := f.load(v(1, false), v(2, false), v(3, false), v(4, true)); got.Skipped != 4 {
		t.Errorf("what is pruned, or was, is loaded again: %+v", got)
	}
	if got := f.get(driver.Ref{Key: "a", Number: 3}); got.Op != driver.OpPruned {
		t.Errorf("it came back: %s", describe(got))
	}
}

// Of a document of which most was pruned, what is left is found, with when it was superseded.
func (s *suite) testLogOfFew(t *testing.T) {
	f := s.fixture(t)
	const n = 3000
	kept := []int64{1, 2, 700, 1500, 1501, 2999, n}
	vs := make([]driver.Version, n)
	for i := range vs {
		v := driver.Version{Collection: collection, Key: "a", Number: int64(i + 1), RecordedAt: driver.Instant(i + 1), Op: driver.OpPruned, Deleted: true}
		if slices.Contains(kept, v.Number) {
			v.Op, v.Deleted, v.Data = driver.OpImport, false, []byte(`{"n":1}`)
		}
		vs[i] = v
	}
	f.load(vs...)
	for _, backward := range []bool{false, true} {
		want := slices.Clone(kept)
		if backward {
			slices.Reverse(want)
		}
		for _, limit := range []int{0, 1, 3, len(want)} {
			for _, fields := range [][]string{nil, {}} {
				var got []int64
				for _, v := range f.log(&driver.LogQuery{
					Collections: []string{collection}, Keys: []string{"a"}, Hints: driver.Hints{Ops: []driver.Op{driver.OpImport, driver.OpUpdate}},
					Backward: backward, Limit: limit, Fields: fields,
				}) {
					got = append(got, v.Number)
					if end := driver.Instant(v.Number + 1); v.SupersededAt != end && (v.Number < n || v.SupersededAt != driver.Forever) {
						t.Errorf("%s was superseded at %d", describe(v), v.SupersededAt)
					}
				}
				if end := min(len(want), cmp.Or(limit, n)); !slices.Equal(got, want[:end]) {
					t.Errorf("backward %v, limit %d: %v, want %v", backward, limit, got, want[:end])
				}
			}
		}
	}
}
