package drivertest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/asof/asof/storage/driver"
)

func (s *suite) logTests() []test {
	return []test{
		{"OrderAndConditions", s.testLogConditions},
		{"Stopping", s.testLogStopping},
	}
}

// logFixture loads a history where versions of several documents share a time.
func (s *suite) logFixture(t *testing.T) *fixture {
	f := s.fixture(t)
	v := func(collection, key string, at driver.Instant, author string, changed ...string) driver.Version {
		return driver.Version{
			Collection: collection, Key: key, RecordedAt: at, Op: driver.OpImport, Author: author, Changed: changed,
			Data: fmt.Appendf(nil, `{"n":%d}`, at),
		}
	}
	gone := v(collection, "b", 40, "eve")
	gone.Deleted, gone.Data = true, nil
	gone.Op = driver.OpDelete
	restored := v(collection, "b", 50, "ann", "s")
	restored.Op, restored.Group = driver.OpRestore, "🚀 release"
	grouped := v("others", "a", 31, "bob", "s")
	grouped.Group = "release"
	f.load(
		v(collection, "b", 10, "ann", "n", "s"), v(collection, "b", 30, "bob", "n"), gone, restored,
		v("others", "a", 30, "ann", "n"), grouped,
		v(collection, "a", 30, "ann", "x"), v(collection, "a", 32, "ann"),
		v(collection, "B", 30, "", "", "a.b"), v(collection, "é", 30, "ann", "n"),
	)
	return f
}

// names writes versions as collection initial, key, @, number.
func names(versions []*driver.Version) []string {
	list := []string{}
	for _, v := range versions {
		list = append(list, fmt.Sprintf("%.1s/%s@%d", v.Collection, v.Key, v.Number))
	}
	return list
}

func (s *suite) testLogConditions(t *testing.T) {
	f := s.logFixture(t)
	all := []string{"t/b@1", "o/a@1", "t/B@1", "t/a@1", "t/b@2", "t/é@1", "o/a@2", "t/a@2", "t/b@3", "t/b@4"}
	things := []string{collection}
	for _, test := range []struct {
		name string
		q    driver.LogQuery
		want []string
	}{
		{"all", driver.LogQuery{}, all},
		{"both collections", driver.LogQuery{Collections: []string{"others", collection}}, all},
		{"one collection", driver.LogQuery{Collections: []string{"others"}}, []string{"o/a@1", "o/a@2"}},
		{"one key", driver.LogQuery{Collections: things, Keys: []string{"b"}}, []string{"t/b@1", "t/b@2", "t/b@3", "t/b@4"}},
		{"some keys", driver.LogQuery{Collections: things, Keys: []string{"é", "missing", "B"}}, []string{"t/B@1", "t/é@1"}},
		{"an unknown key", driver.LogQuery{Collections: things, Keys: []string{"missing"}}, []string{}},
		{"one author", driver.LogQuery{Hints: driver.Hints{Authors: []string{"bob"}}}, []string{"t/b@2", "o/a@2"}},
		{"two authors", driver.LogQuery{Hints: driver.Hints{Authors: []string{"eve", ""}}}, []string{"t/B@1", "t/b@3"}},
		{"one operation", driver.LogQuery{Hints: driver.Hints{Ops: []driver.Op{driver.OpRestore}}}, []string{"t/b@4"}},
		{"two operations", driver.LogQuery{Hints: driver.Hints{Ops: []driver.Op{driver.OpRestore, driver.OpDelete}}}, []string{"t/b@3", "t/b@4"}},
		{"an operation that was not", driver.LogQuery{Hints: driver.Hints{Ops: []driver.Op{driver.OpUpdate}}}, []string{}},
		{"operations of one key", driver.LogQuery{Hints: driver.Hints{Ops: []driver.Op{driver.OpImport}}, Collections: things, Keys: []string{"b"}}, []string{"t/b@1", "t/b@2"}},
		{"one group", driver.LogQuery{Hints: driver.Hints{Groups: []string{"release"}}}, []string{"o/a@2"}},
		{"two groups", driver.LogQuery{Hints: driver.Hints{Groups: []string{"🚀 release", "release", "none"}}}, []string{"o/a@2", "t/b@4"}},
		{"without a group", driver.LogQuery{Hints: driver.Hints{Groups: []string{""}}, FromNumber: 2}, []string{"t/b@2", "t/a@2", "t/b@3"}},
		{"a group of one key", driver.LogQuery{Hints: driver.Hints{Groups: []string{"🚀 release"}}, Collections: things, Keys: []string{"b"}}, []string{"t/b@4"}},
		{"an unknown group", driver.LogQuery{Hints: driver.Hints{Groups: []string{"rel"}}}, []string{}},
		{"one member", driver.LogQuery{Hints: driver.Hints{Changed: []string{"s"}}}, []string{"t/b@1", "o/a@2", "t/b@4"}},
		{"any of two members", driver.LogQuery{Hints: driver.Hints{Changed: []string{"x", "s"}}}, []string{"t/b@1", "t/a@1", "o/a@2", "t/b@4"}},
		{"an empty name", driver.LogQuery{Hints: driver.Hints{Changed: []string{""}}}, []string{"t/B@1"}},
		{"a name with a dot", driver.LogQuery{Hints: driver.Hints{Changed: []string{"a.b"}}}, []string{"t/B@1"}},
		{"part of a name", driver.LogQuery{Hints: driver.Hints{Changed: []string{"a"}}}, []string{}},
		{"from, included", driver.LogQuery{From: 32}, []string{"t/a@2", "t/b@3", "t/b@4"}},
		{"to, excluded", driver.LogQuery{To: 30}, []string{"t/b@1"}},
		{"just after", driver.LogQuery{To: 31}, all[:6]},
		{"from and to", driver.LogQuery{From: 31, To: 40}, []string{"o/a@2", "t/a@2"}},
		{"an empty range", driver.LogQuery{From: 40, To: 40}, []string{}},
		{"a range upside down", driver.LogQuery{From: 50, To: 40}, []string{}},
		{"from a number", driver.LogQuery{FromNumber: 3}, []string{"t/b@3", "t/b@4"}},
		{"to a number", driver.LogQuery{Collections: things, ToNumber: 2}, []string{"t/b@1", "t/B@1", "t/a@1", "t/é@1"}},
		{"one number", driver.LogQuery{Collections: things, Keys: []string{"b"}, FromNumber: 2, ToNumber: 3}, []string{"t/b@2"}},
		{"a limit", driver.LogQuery{Limit: 3}, all[:3]},
		{"a large limit", driver.LogQuery{Limit: 1000}, all},
		{"the last ones", driver.LogQuery{Limit: 2, Backward: true}, []string{"t/b@4", "t/b@3"}},
		{
			"all together",
			driver.LogQuery{
				Collections: things, Keys: []string{"a", "b", "é"}, Hints: driver.Hints{Authors: []string{"ann", "bob"}, Changed: []string{"n", "s"}},
				From: 10, To: 50, FromNumber: 1, ToNumber: 4, Backward: true, Limit: 2,
			},
			[]string{"t/é@1", "t/b@2"},
		},
	} {
		if diff := cmp.Diff(test.want, names(f.log(&test.q))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
	reversed := slices.Clone(all)
	slices.Reverse(reversed)
	if diff := cmp.Diff(reversed, names(f.log(&driver.LogQuery{Backward: true}))); diff != "" {
		t.Errorf("backward (-want +got):\n%s", diff)
	}
}

// A loop may end early, and an iterator may be used again.
func (s *suite) testLogStopping(t *testing.T) {
	f := s.logFixture(t)
	log := f.engine.Log(f.ctx, &driver.LogQuery{})
	for round := range 20 {
		n := 0
		for _, err := range log {
			if err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
			if n++; n > round%4 {
				break
			}
		}
		// What a loop that was left holds must not block a writer.
		f.put("written", fmt.Sprintf(`{"n":%d}`, round))
	}
	ctx, cancel := context.WithCancel(f.ctx)
	seen := 0
	for _, err := range f.engine.Log(ctx, &driver.LogQuery{}) {
		if err != nil {
			f.wantCode("after the context was cancelled", err, driver.CodeUnavailable)
			break
		}
		seen++
		cancel()
	}
	cancel()
	if seen == 0 {
		t.Error("nothing was read before the context was cancelled")
	}
	f.clock.move(time.Second)
	if v := f.put("written", `{}`); v.Number != 21 {
		t.Errorf("version %d, want 21", v.Number)
	}
}
