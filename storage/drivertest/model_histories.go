package drivertest

import (
	"slices"

	"github.com/asof/asof/storage/driver"
)

// histories reads the log once for each history, and cuts what is not within its
// bounds.
func (m *model) histories(q *driver.LogQuery) []driver.Entry {
	var all []driver.Entry
	for i, h := range q.Histories {
		one := *q
		one.Histories, one.Keys, one.Limit = nil, []string{h.Key}, 0
		found := slices.DeleteFunc(m.entries(&one), func(e driver.Entry) bool { return !within(h, e.Version) })
		if q.Limit > 0 && len(found) > q.Limit {
			found = found[:q.Limit]
		}
		for _, e := range found {
			e.History = i
			all = append(all, e)
		}
	}
	return all
}

// within reports whether a version is of a history and between its bounds.
func within(h driver.History, v *driver.Version) bool {
	return v.Key == h.Key && h.From <= v.RecordedAt && (h.To == 0 || v.RecordedAt < h.To) &&
		h.FromNumber <= v.Number && (h.ToNumber == 0 || v.Number < h.ToNumber)
}

// historyCheck looks at the entries of a log of histories as they come.
type historyCheck struct {
	of int // the history that the last one belonged to
	n  int // how many it has
}

// next checks an entry against the one before it, if that is of the same history;
// it returns that one, or nil.
func (c *historyCheck) next(report func(format string, args ...any), q *driver.LogQuery, e driver.Entry, last *driver.Version) *driver.Version {
	if q.Histories == nil {
		if e.History != 0 {
			report("Log returned an entry of history %d, and none were asked for", e.History)
		}
		return last
	}
	if e.History < c.of || e.History >= len(q.Histories) {
		report("Log returned an entry of history %d after one of %d, of %d", e.History, c.of, len(q.Histories))
		return nil
	}
	if e.History > c.of {
		*c, last = historyCheck{of: e.History}, nil
	}
	if c.n++; q.Limit > 0 && c.n > q.Limit {
		report("Log returned %d entries of a history, with a limit of %d", c.n, q.Limit)
	}
	if !within(q.Histories[e.History], e.Version) {
		report("Log returned %q version %d at %d for the history %+v", e.Version.Key, e.Version.Number, e.Version.RecordedAt, q.Histories[e.History])
	}
	return last
}

// compareHistories reads the versions of several documents from both.
func (p *pair) compareHistories(q *driver.LogQuery) {
	p.Helper()
	p.compareLog(q)
	if q.NoData {
		return
	}
	// With some of the members only: these have to be there, and all else the same.
	some := *q
	some.Fields = p.gen.fields()
	want, err := p.model.log(p.ctx, q)
	if err != nil {
		p.Fatal(err)
	}
	got := p.log(&some)
	if len(got) != len(want) {
		p.Fatalf("Log(%s) of %q: %d entries, want %d", showLog(q), some.Fields, len(got), len(want))
	}
	for i := range want {
		for _, v := range [][2]*driver.Version{{got[i].Version, want[i].Version}, {got[i].Previous, want[i].Previous}} {
			if problem := partOf(v[0], v[1], some.Fields); problem != "" {
				p.Fatalf("Log(%s) of %q, entry %d: %s", showLog(q), some.Fields, i, problem)
			}
		}
	}
}

// partOf says how a version that was read for some members differs from the whole
// one.
func partOf(got, want *driver.Version, fields []string) string {
	if got == nil || want == nil {
		if got != want {
			return describe(got) + ", want " + describe(want)
		}
		return ""
	}
	a, b := *got, *want
	if !b.Deleted && fields != nil {
		if problem := lacks(&a, &b, fields); problem != "" {
			return problem
		}
		a.Data, b.Data = nil, nil
	}
	if !same(&a, &b) {
		return describe(&a) + ", want " + describe(&b)
	}
	return ""
}
