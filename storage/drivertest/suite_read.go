package drivertest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/asof/asof/storage/driver"
)

func (s *suite) readTests() []test {
	return []test{
		{"TheVersionIsChosenBeforeTheFilter", s.testVersionBeforeFilter},
		{"AtOrBefore", s.testAtOrBefore},
		{"ADeleteHidesNoHistory", s.testDeleteKeepsHistory},
		{"TheClockGoesBack", s.testClockGoesBack},
		{"LaterWritesStayOutOfAPinnedRead", s.testPinnedRead},
		{"TheFirstVersionIsKept", s.testFirstVersionKept},
		{"AMissingVersionIsNil", s.testMissingVersion},
		{"ReferencesKeepTheirOrder", s.testReferenceOrder},
		{"EverythingThatWasWrittenIsRead", s.testRoundTrip},
		{"NothingIsThereAtFirst", s.testEmpty},
		{"AnyInstantMayBeAskedFor", s.testAnyInstant},
	}
}

// A filter applied to all versions finds a document by a value that it no
// longer has, or shows the version that had it.
func (s *suite) testVersionBeforeFilter(t *testing.T) {
	f := s.fixture(t)
	first := f.put("a", `{"n":1,"tags":["old"]}`)
	f.clock.move(time.Hour)
	second := f.put("a", `{"n":2,"tags":["new"]}`)
	f.clock.move(time.Hour)
	f.remove("a")
	gone := f.now()
	tag := func(s string) driver.Filter {
		return driver.Any{Field: stringField("tags"), Filter: eq(stringField(), s)}
	}
	for _, test := range []struct {
		name   string
		at     driver.Instant
		filter driver.Filter
		want   int64 // the version found; 0: none
	}{
		{"the first value, then", first.RecordedAt, eq(intField("n"), int64(1)), 1},
		{"the first value, later", second.RecordedAt, eq(intField("n"), int64(1)), 0},
		{"the second value, before", first.RecordedAt, eq(intField("n"), int64(2)), 0},
		{"the second value, then", second.RecordedAt, eq(intField("n"), int64(2)), 2},
		{"the first element, later", second.RecordedAt, tag("old"), 0},
		{"the second element, then", second.RecordedAt, tag("new"), 2},
		{"a value of a deleted document", gone, eq(intField("n"), int64(2)), 0},
		{"not the first value, then", first.RecordedAt, driver.Not{Filter: eq(intField("n"), int64(1))}, 0},
		{"not the first value, later", second.RecordedAt, driver.Not{Filter: eq(intField("n"), int64(1))}, 2},
		{"not the first value, deleted", gone, driver.Not{Filter: eq(intField("n"), int64(1))}, 0},
	} {
		q := &driver.Query{Collection: collection, At: test.at, Filter: test.filter}
		var got int64
		for _, v := range f.query(q) {
			got = v.Number
		}
		if got != test.want || f.count(q) != min(test.want, 1) {
			t.Errorf("%s: found version %d (count %d), want %d", test.name, got, f.count(q), test.want)
		}
	}
}

// The state at an instant includes what was committed at that very instant.
func (s *suite) testAtOrBefore(t *testing.T) {
	f := s.fixture(t)
	var at []driver.Instant
	for i := range 4 {
		at = append(at, f.put("a", fmt.Sprintf(`{"n":%d}`, i+1)).RecordedAt)
		// The third comes as soon after the second as it can.
		if i != 1 {
			f.clock.move(time.Duration(i+1) * time.Millisecond)
		}
	}
	for i, instant := range at {
		for offset, want := range map[driver.Instant]int64{-1: int64(i), 0: int64(i) + 1, 1: int64(i) + 1} {
			if i+1 < len(at) && instant+offset == at[i+1] {
				want++
			}
			ref := driver.Ref{Key: "a", At: instant + offset}
			if got := numberOf(f.get(ref)); got != want {
				t.Errorf("Get at version %d%+d µs: version %d, want %d", i+1, offset, got, want)
			}
			var got int64
			q := &driver.Query{Collection: collection, At: instant + offset}
			for _, v := range f.query(q) {
				got = v.Number
			}
			if got != want || f.count(q) != min(want, 1) {
				t.Errorf("Query at version %d%+d µs: version %d (count %d), want %d", i+1, offset, got, f.count(q), want)
			}
			if want > 0 {
				q.Filter = eq(intField("n"), want)
				if got := f.count(q); got != 1 {
					t.Errorf("Count by the value of version %d at version %d%+d µs: %d, want 1", want, i+1, offset, got)
				}
			}
		}
	}
}

func (s *suite) testDeleteKeepsHistory(t *testing.T) {
	f := s.fixture(t)
	first := f.put("a", `{"n":1}`)
	f.clock.move(time.Hour)
	tombstone := f.remove("a")
	f.clock.move(time.Hour)
	now := f.now()
	if !tombstone.Deleted || tombstone.Number != 2 || tombstone.Data != nil {
		t.Errorf("the delete made %+v, want a tombstone that is version 2", tombstone)
	}
	if got := f.get(driver.Ref{Key: "a", At: now}); got == nil || !got.Deleted || !got.Current() {
		t.Errorf("Get after the delete: %+v, want the tombstone", got)
	}
	if got := f.keys(&driver.Query{At: now}); len(got) != 0 {
		t.Errorf("Query after the delete: %q, want nothing", got)
	}
	for _, ref := range []driver.Ref{{Key: "a", At: first.RecordedAt}, {Key: "a", At: tombstone.RecordedAt - 1}, {Key: "a", Number: 1}} {
		got := f.get(ref)
		if got == nil || got.Number != 1 || string(got.Data) != `{"n":1}` || got.SupersededAt != tombstone.RecordedAt {
			t.Errorf("Get(%+v): %+v, want version 1, superseded by the tombstone", ref, got)
		}
	}
	if got := f.keys(&driver.Query{At: tombstone.RecordedAt - 1}); !slices.Equal(got, []string{"a"}) {
		t.Errorf("Query before the delete: %q, want a", got)
	}
	if got := f.log(&driver.LogQuery{Collections: []string{collection}, Keys: []string{"a"}}); len(got) != 2 {
		t.Errorf("Log: %d versions, want 2", len(got))
	}
}

// When the clock goes back, versions are still recorded in the order in which
// they were written, so that a later read of an earlier instant is the same.
func (s *suite) testClockGoesBack(t *testing.T) {
	f := s.fixture(t)
	var versions []*driver.Version
	for i := range 6 {
		versions = append(versions, f.put("a", fmt.Sprintf(`{"n":%d}`, i+1)))
		pinned := f.now()
		if pinned < versions[i].RecordedAt {
			t.Errorf("Now is %d, before the commit at %d", pinned, versions[i].RecordedAt)
		}
		f.clock.move([]time.Duration{-time.Hour, -time.Second, time.Minute, -24 * time.Hour, time.Microsecond, 0}[i])
		if i%2 == 0 {
			other := f.put("b", fmt.Sprintf(`{"n":%d}`, i))
			if other.RecordedAt <= pinned {
				t.Errorf("a commit at %d, but Now had returned %d", other.RecordedAt, pinned)
			}
		}
	}
	for i, v := range versions {
		if i > 0 && v.RecordedAt <= versions[i-1].RecordedAt {
			t.Errorf("version %d was recorded at %d, version %d at %d", i, versions[i-1].RecordedAt, i+1, v.RecordedAt)
		}
		if got := f.get(driver.Ref{Key: "a", At: v.RecordedAt}); numberOf(got) != v.Number {
			t.Errorf("Get at the time of version %d: version %d", v.Number, numberOf(got))
		}
	}
}

// What was read at an instant reads the same for ever.
func (s *suite) testPinnedRead(t *testing.T) {
	f := s.fixture(t)
	for i := range 10 {
		f.put(fmt.Sprintf("k%d", i), fmt.Sprintf(`{"n":%d}`, i))
	}
	f.remove("k9")
	// The clock stands still, so that the next commits are as close as can be.
	at := f.now()
	q := &driver.Query{At: at, Order: []driver.Order{{Field: intField("n"), Desc: true}}}
	before := f.query(q)
	if len(before) != 9 {
		t.Fatalf("%d documents, want 9", len(before))
	}
	for i := range 5 {
		if v := f.put(fmt.Sprintf("k%d", i), `{"n":100}`); v.RecordedAt <= at {
			t.Errorf("a commit at %d, although Now had returned %d", v.RecordedAt, at)
		}
	}
	f.remove("k5")
	f.put("k9", `{"n":9}`)
	f.put("new", `{"n":5}`)
	for _, reopened := range []bool{false, true} {
		if reopened {
			f.reopen()
		}
		after := f.query(q)
		if len(after) != len(before) {
			t.Fatalf("%d documents at the same instant later (reopened: %t), want %d", len(after), reopened, len(before))
		}
		for i := range after {
			if !sameButEnd(before[i], after[i]) {
				t.Errorf("place %d is %+v, was %+v", i, after[i], before[i])
			}
		}
	}
}

// A document that was loaded, or created before its index was declared, keeps
// its first version when it is changed.
func (s *suite) testFirstVersionKept(t *testing.T) {
	f := s.fixture(t, driver.Collection{Name: collection})
	recorded := driver.InstantOf(f.clock.now()) - 1_000_000
	f.load(driver.Version{Collection: collection, Key: "loaded", RecordedAt: recorded, Op: driver.OpImport, Data: []byte(`{"n":1}`)})
	f.put("put", `{"n":1}`)
	at := f.now()
	f.reopen() // now with indexes
	f.clock.move(time.Minute)
	for _, key := range []string{"loaded", "put"} {
		f.put(key, `{"n":2}`)
		if got := f.get(driver.Ref{Key: key, Number: 1}); got == nil || string(got.Data) != `{"n":1}` {
			t.Errorf("version 1 of %s is %+v", key, got)
		}
	}
	if got := f.keys(&driver.Query{At: at, Filter: eq(intField("n"), int64(1))}); !slices.Equal(got, []string{"loaded", "put"}) {
		t.Errorf("Query by the first value, then: %q, want both", got)
	}
}

// A missing version is never replaced by another one.
func (s *suite) testMissingVersion(t *testing.T) {
	f := s.fixture(t)
	v := f.put("a", `{"n":1}`)
	f.put("a", `{"n":2}`)
	for _, ref := range []driver.Ref{
		{Key: "a", Number: 3},
		{Key: "a", Number: 1 << 62},
		{Key: "a", Number: -1},
		{Key: "a", At: v.RecordedAt - 1},
		{Key: "a"},
		{Key: "a", Number: 3, At: driver.Forever},
		{Key: "b", At: driver.Forever},
		{Key: "b", Number: 1},
		{Key: "", At: driver.Forever},
		{Key: "A", At: driver.Forever},
		{Key: "a ", At: driver.Forever},
		{Key: "a\x00", At: driver.Forever},
		{Key: "\xff", At: driver.Forever},
	} {
		if got := f.get(ref); got != nil {
			t.Errorf("Get(%+v): %+v, want nil", ref, got)
		}
	}
	// A number decides, whatever the instant.
	if got := f.get(driver.Ref{Key: "a", Number: 2, At: 1}); numberOf(got) != 2 {
		t.Errorf("Get of version 2 with an early instant: %+v", got)
	}
}

func (s *suite) testReferenceOrder(t *testing.T) {
	f := s.fixture(t)
	var refs []driver.Ref
	var want []string
	// More than a database may take as parameters of one statement.
	var vs []driver.Version
	for i := range 2500 {
		vs = append(vs, driver.Version{
			Collection: collection, Key: fmt.Sprintf("k%d", i), RecordedAt: driver.Instant(i + 1), Op: driver.OpImport,
			Data: fmt.Appendf(nil, `{"n":%d}`, i),
		})
	}
	f.load(vs...)
	add := func(ref driver.Ref, data string) { refs, want = append(refs, ref), append(want, data) }
	for i := range 2500 {
		n := (i*7919 + 13) % 2500
		key, data := fmt.Sprintf("k%d", n), fmt.Sprintf(`{"n":%d}`, n)
		switch i % 5 {
		case 0:
			add(driver.Ref{Key: key, At: driver.Forever}, data)
		case 1:
			add(driver.Ref{Key: key, Number: 1}, data)
		case 2:
			add(driver.Ref{Key: key, At: driver.Instant(n)}, "")
		case 3:
			add(driver.Ref{Key: key, At: driver.Instant(n + 1)}, data)
			add(driver.Ref{Key: key, At: driver.Instant(n + 1)}, data)
		case 4:
			add(driver.Ref{Key: "missing " + key, At: driver.Forever}, "")
		}
	}
	got, err := f.engine.Get(f.ctx, collection, refs, nil)
	if err != nil || len(got) != len(refs) {
		t.Fatalf("Get of %d references: %d versions, %v", len(refs), len(got), err)
	}
	for i, v := range got {
		data := ""
		if v != nil {
			data = string(v.Data)
		}
		if data != want[i] {
			t.Fatalf("reference %d, %+v: %q, want %q", i, refs[i], data, want[i])
		}
	}
	if got, err := f.engine.Get(f.ctx, collection, nil, nil); err != nil || len(got) != 0 {
		t.Errorf("Get of nothing: %v, %v", got, err)
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

func (s *suite) testEmpty(t *testing.T) {
	f := s.fixture(t)
	now := f.now()
	if got := f.query(&driver.Query{At: now}); len(got) != 0 {
		t.Errorf("Query: %+v", got)
	}
	if got := f.count(&driver.Query{At: now}); got != 0 {
		t.Errorf("Count: %d", got)
	}
	if got := f.log(&driver.LogQuery{}); len(got) != 0 {
		t.Errorf("Log: %+v", got)
	}
	if got, err := f.engine.Load(f.ctx, nil); err != nil || got != (driver.LoadResult{}) {
		t.Errorf("Load of nothing: %+v, %v", got, err)
	}
	if got, err := f.engine.Stats(f.ctx); err != nil || got.Documents != 0 || got.Versions != 0 {
		t.Errorf("Stats: %+v, %v", got, err)
	}
}

func (s *suite) testAnyInstant(t *testing.T) {
	f := s.fixture(t)
	f.put("a", `{"n":1}`)
	f.put("a", `{"n":2}`)
	for _, test := range []struct {
		at   driver.Instant
		want int64
	}{
		{-1 << 63, 0},
		{-1, 0},
		{0, 0},
		{1, 0},
		{f.now() + 1, 2},
		{f.now() + 1_000_000_000, 2},
		{driver.Forever - 1, 2},
		{driver.Forever, 2},
	} {
		if got := numberOf(f.get(driver.Ref{Key: "a", At: test.at})); got != test.want {
			t.Errorf("Get at %d: version %d, want %d", test.at, got, test.want)
		}
		var got int64
		for _, v := range f.query(&driver.Query{At: test.at, Filter: eq(intField("n"), int64(2))}) {
			got = v.Number
		}
		if got != test.want {
			t.Errorf("Query at %d: version %d, want %d", test.at, got, test.want)
		}
	}
}
