package drivertest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/asof/asof/storage/driver"
)

// placed writes entries as the place of their history, a colon, key, @, number,
// and behind < the number of the previous version, where it is there.
func placed(entries []driver.Entry) string {
	list := []string{}
	for _, e := range entries {
		name := fmt.Sprintf("%d:%s@%d", e.History, e.Version.Key, e.Version.Number)
		if e.Previous != nil {
			name += fmt.Sprintf("<%d", e.Previous.Number)
		}
		list = append(list, name)
	}
	return strings.Join(list, " ")
}

func (s *suite) testHistories(t *testing.T) {
	f := s.logFixture(t) // b: 10, 30, 40 (deleted), 50; a: 30, 32; B: 30; é: 30
	three := []driver.History{{Key: "b"}, {Key: "missing"}, {Key: "a"}}
	for _, test := range []struct {
		name string
		q    driver.LogQuery
		want string
	}{
		{"none", driver.LogQuery{Histories: []driver.History{}}, ""},
		{"one that is not", driver.LogQuery{Histories: three[1:2]}, ""},
		{"three", driver.LogQuery{Histories: three}, "0:b@1 0:b@2 0:b@3 0:b@4 2:a@1 2:a@2"},
		{"newest first", driver.LogQuery{Histories: three, Backward: true}, "0:b@4 0:b@3 0:b@2 0:b@1 2:a@2 2:a@1"},
		{"a limit for each", driver.LogQuery{Histories: three, Limit: 1}, "0:b@1 2:a@1"},
		{"the last two of each", driver.LogQuery{Histories: three, Limit: 2, Backward: true}, "0:b@4 0:b@3 2:a@2 2:a@1"},
		{"more than there are", driver.LogQuery{Histories: three, Limit: 9, Backward: true}, "0:b@4 0:b@3 0:b@2 0:b@1 2:a@2 2:a@1"},
		{
			"in the order that is asked for, with one twice",
			driver.LogQuery{Histories: []driver.History{{Key: "é"}, {Key: "a", To: 32}, {Key: "B"}, {Key: "a", From: 32}}, Limit: 1},
			"0:é@1 1:a@1 2:B@1 3:a@2",
		},
		{"an end for each", driver.LogQuery{Histories: []driver.History{{Key: "b", To: 41}, {Key: "a", To: 30}}, Backward: true}, "0:b@3 0:b@2 0:b@1"},
		{"an end, and as many as the limit", driver.LogQuery{Histories: []driver.History{{Key: "b", To: 41}}, Backward: true, Limit: 2}, "0:b@3 0:b@2"},
		{"a beginning for each", driver.LogQuery{Histories: []driver.History{{Key: "b", From: 30}, {Key: "a", From: 33}}}, "0:b@2 0:b@3 0:b@4"},
		{"a beginning behind the last", driver.LogQuery{Histories: []driver.History{{Key: "b", From: 51}, {Key: "a", From: 32}}}, "1:a@2"},
		{"numbers", driver.LogQuery{Histories: []driver.History{{Key: "b", FromNumber: 2, ToNumber: 4}, {Key: "a", ToNumber: 2}}}, "0:b@2 0:b@3 1:a@1"},
		{"numbers beyond", driver.LogQuery{Histories: []driver.History{{Key: "b", FromNumber: 5}, {Key: "a", FromNumber: 2, ToNumber: 1 << 40}}}, "1:a@2"},
		{"numbers of what is no more", driver.LogQuery{Histories: []driver.History{{Key: "b", FromNumber: 1 << 40}, {Key: "b", ToNumber: 1}}}, ""},
		{
			"bounds of both kinds",
			driver.LogQuery{From: 30, ToNumber: 4, Histories: []driver.History{{Key: "b", To: 50, FromNumber: 3}, {Key: "b", To: 31}, {Key: "a", From: 1}}},
			"0:b@3 1:b@2 2:a@1 2:a@2",
		},
		{"an author", driver.LogQuery{Histories: three, Authors: []string{"ann"}, Limit: 2, Backward: true}, "0:b@4 0:b@1 2:a@2 2:a@1"},
		{"an operation", driver.LogQuery{Histories: three, Ops: []driver.Op{driver.OpDelete}, Limit: 1}, "0:b@3"},
		{"a group", driver.LogQuery{Histories: three, Groups: []string{"🚀 release"}, Limit: 1}, "0:b@4"},
		{"what changed", driver.LogQuery{Histories: three, Changed: []string{"x", "s"}, Limit: 1}, "0:b@1 2:a@1"},
		{"what was before", driver.LogQuery{Histories: three, Previous: true, Limit: 2}, "0:b@1 0:b@2<1 2:a@1 2:a@2<1"},
		{"what was before, newest first", driver.LogQuery{Histories: three, Previous: true, Backward: true, Limit: 1}, "0:b@4<3 2:a@2<1"},
		{
			"what was before those of an author",
			driver.LogQuery{Histories: three, Previous: true, Authors: []string{"bob", "eve"}, Backward: true},
			"0:b@3<2 0:b@2<1",
		},
		{"what was deleted", driver.LogQuery{Histories: three, PreviousOfDeleted: true}, "0:b@1 0:b@2 0:b@3<2 0:b@4 2:a@1 2:a@2"},
		{"what was deleted, at the end of a page", driver.LogQuery{Histories: three, PreviousOfDeleted: true, Backward: true, Limit: 2}, "0:b@4 0:b@3<2 2:a@2 2:a@1"},
		{"what was deleted, alone", driver.LogQuery{Histories: three, PreviousOfDeleted: true, Backward: true, Authors: []string{"eve"}}, "0:b@3<2"},
		{"without data", driver.LogQuery{Histories: three[:1], PreviousOfDeleted: true, NoData: true, Limit: 3}, "0:b@1 0:b@2 0:b@3<2"},
	} {
		test.q.Collections = []string{collection}
		entries := f.log(&test.q)
		if got := placed(entries); got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
		for _, e := range entries {
			for _, v := range []*driver.Version{e.Version, e.Previous} {
				if v == nil {
					continue
				}
				want := f.get(driver.Ref{Key: v.Key, Number: v.Number})
				if test.q.NoData {
					want = withoutData(want)
				}
				if !same(v, want) {
					t.Errorf("%s: %s, want %s", test.name, describe(v), describe(want))
				}
			}
		}
	}
}

// The members that are asked for are there, and tombstones show what they deleted.
func (s *suite) testHistoriesOfSomeFields(t *testing.T) {
	f := s.fixture(t)
	long := strings.Repeat("x", 10_000)
	for i := range 4 {
		for _, key := range []string{"a", "b"} {
			f.clock.move(time.Second)
			f.put(key, fmt.Sprintf(`{"long":%q,"n":%d,"o":{"n":%d}}`, long, i, -i))
		}
	}
	f.clock.move(time.Second)
	f.commit(&driver.Write{ID: f.id(), Collection: collection, Key: "b", Expected: 4, Op: driver.OpDelete, Deleted: true})
	for _, fields := range [][]string{{"n"}, {"o", "n", "missing"}, {}, {"long"}} {
		q := &driver.LogQuery{
			Collections: []string{collection}, Histories: []driver.History{{Key: "b"}, {Key: "a"}},
			Limit: 3, Backward: true, PreviousOfDeleted: true, Fields: fields,
		}
		entries := f.log(q)
		if got, want := placed(entries), "0:b@5<4 0:b@4 0:b@3 1:a@4 1:a@3 1:a@2"; got != want {
			t.Errorf("%q: %s, want %s", fields, got, want)
		}
		for _, e := range entries {
			for _, v := range []*driver.Version{e.Version, e.Previous} {
				if v == nil {
					continue
				}
				if problem := partOf(v, f.get(driver.Ref{Key: v.Key, Number: v.Number}), fields); problem != "" {
					t.Errorf("%q: %s", fields, problem)
				}
			}
		}
	}
}

// Histories that are longer than an engine reads at once, and that grew while
// others were written.
func (s *suite) testLongHistories(t *testing.T) {
	f := s.fixture(t)
	const documents, versions = 3, 120
	times := map[string][]driver.Instant{}
	for n := range versions {
		for d := range documents {
			key := fmt.Sprintf("k%d", d)
			f.clock.move(time.Second)
			w := driver.Write{ID: f.id(), Collection: collection, Key: key, Expected: int64(n), Op: driver.OpUpdate, Author: fmt.Sprintf("a%d", n%17)}
			if n%40 == 39 {
				w.Op, w.Deleted = driver.OpDelete, true
			} else {
				w.Data = fmt.Appendf(nil, `{"n":%d,"pad":%q}`, n, strings.Repeat("p", 500))
			}
			times[key] = append(times[key], f.commit(&w).RecordedAt)
		}
	}
	all := func(backward bool, q driver.LogQuery) driver.LogQuery {
		q.Collections, q.Backward = []string{collection}, backward
		for d := range documents {
			key := fmt.Sprintf("k%d", d)
			q.Histories = append(q.Histories, driver.History{Key: key, From: q.From, To: q.To, FromNumber: q.FromNumber, ToNumber: q.ToNumber})
		}
		return q
	}
	between := times["k1"]
	for _, backward := range []bool{false, true} {
		for name, q := range map[string]driver.LogQuery{
			"all":                        {},
			"a few":                      {Limit: 3},
			"what was before":            {Limit: 41, Previous: true},
			"as of":                      {Limit: 4, To: between[60]},
			"as of, just after":          {Limit: 4, To: between[60] + 1},
			"from a time":                {Limit: 4, From: between[20]},
			"from a time, just after":    {Limit: 2, From: between[20] + 1},
			"between two times":          {From: between[30], To: between[90]},
			"between two times, some":    {From: between[30], To: between[90], Limit: 5, Previous: true},
			"behind a number":            {Limit: 5, ToNumber: 50},
			"from a number":              {Limit: 5, FromNumber: 50},
			"between numbers":            {FromNumber: 20, ToNumber: 31, Limit: 50},
			"of an author":               {Authors: []string{"a3"}, Limit: 6, Previous: true},
			"of an author, all":          {Authors: []string{"a3", "a9"}},
			"of an author at a time":     {Authors: []string{"a3"}, Limit: 2, To: between[50]},
			"of an author, from a time":  {Authors: []string{"a3"}, Limit: 2, From: between[50]},
			"of nobody":                  {Authors: []string{"nobody"}, Limit: 2},
			"deletions":                  {Ops: []driver.Op{driver.OpDelete}, Limit: 2, PreviousOfDeleted: true},
			"before there was anything":  {To: between[0] - 1_000_000, Limit: 3},
			"from later than everything": {From: times["k2"][versions-1] + 1, Limit: 3},
		} {
			q := all(backward, q)
			var want []driver.Entry
			for i, h := range q.Histories {
				one := q
				one.Histories, one.Keys = nil, []string{h.Key}
				for _, e := range f.log(&one) {
					e.History = i
					want = append(want, e)
				}
			}
			if diff := difference(want, f.log(&q)); diff != "" {
				t.Errorf("%s, backward %t (-one by one +together):\n%.3000s", name, backward, diff)
			}
		}
	}
}

// More documents than an engine asks for at once, and a loop that is left.
func (s *suite) testManyHistories(t *testing.T) {
	f := s.fixture(t)
	const documents = 1100
	var vs []driver.Version
	q := &driver.LogQuery{Collections: []string{collection}, Limit: 1, Backward: true}
	var want []string
	for i := range documents {
		key := fmt.Sprintf("k%04d", i)
		vs = append(vs, loaded(key, 10, `{"n":1}`), loaded(key, 20, `{"n":2}`))
		q.Histories = append(q.Histories, driver.History{Key: key})
		want = append(want, fmt.Sprintf("%d:%s@2", i, key))
	}
	f.load(vs...)
	if diff := cmp.Diff(strings.Join(want, " "), placed(f.log(q))); diff != "" {
		t.Errorf("(-want +got):\n%.2000s", diff)
	}
	seen := 0
	for _, err := range f.engine.Log(f.ctx, q) {
		if err != nil {
			t.Fatal(err)
		}
		if seen++; seen == 2 {
			break
		}
	}
	slices.Reverse(q.Histories)
	if got := f.log(q); len(got) != documents || got[0].Version.Key != "k1099" {
		t.Errorf("%d entries, the first of %q", len(got), got[0].Version.Key)
	}
}

// randomHistories asks for the versions of some documents, the same ones more
// than once now and then.
func (r *operations) randomHistories() *driver.LogQuery {
	g := r.gen
	q := r.randomLogQuery()
	q.Collections, q.Keys, q.After = []string{collection}, nil, nil
	q.PreviousOfDeleted = g.chance(40)
	q.Histories = []driver.History{}
	for range g.IntN(9) {
		h := driver.History{Key: r.key()}
		if g.chance(40) {
			h.To = g.instant()
		}
		if g.chance(20) {
			h.From = g.instant()
		}
		last := int(numberOf(r.model.last(collection, h.Key)))
		if g.chance(30) {
			h.ToNumber = int64(g.IntN(last + 3))
		}
		if g.chance(20) {
			h.FromNumber = int64(g.IntN(last + 3))
		}
		q.Histories = append(q.Histories, h)
	}
	if g.chance(60) {
		q.Authors, q.Ops, q.Groups, q.Changed = nil, nil, nil, nil
	}
	return q
}
