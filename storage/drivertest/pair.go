package drivertest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/asof/asof/storage/driver"
)

// pair is an engine and a model that hold the same.
type pair struct {
	*fixture
	model *model
	gen   *generator
}

func (s *suite) pair(t *testing.T, gen *generator, collections ...driver.Collection) *pair {
	t.Helper()
	f := s.fixture(t, collections...)
	// The model takes whatever times the engine gives.
	m := newModel(func() time.Time { return time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC) }, collections)
	return &pair{fixture: f, model: m, gen: gen}
}

// version makes up a version for a load.
func (p *pair) version(key string, at driver.Instant) driver.Version {
	g := p.gen
	v := driver.Version{
		Collection: collection, Key: key, RecordedAt: at, Op: driver.Op(1 + g.IntN(int(driver.OpImport))),
		Author: pick(g, g.authors), Message: pick(g, g.authors), Group: pick(g, g.authors),
	}
	for _, m := range g.shape {
		if g.chance(10) {
			v.Changed = append(v.Changed, m.name)
		}
	}
	slices.Sort(v.Changed)
	if v.Deleted = g.chance(8); !v.Deleted {
		v.Data = []byte(g.document())
	}
	return v
}

// load loads versions into both, and expects the same result of both.
func (p *pair) load(vs []driver.Version) {
	p.Helper()
	want, wantErr := p.model.Load(p.ctx, vs)
	for i := range vs {
		// The engine gets the model's seals, so that what it commits follows on them.
		if v := versionAt(p.model.documents[vs[i].Collection][vs[i].Key], vs[i].RecordedAt); wantErr == nil && v != nil {
			vs[i].Seal = v.Seal
		}
	}
	got, again, err := p.loadAgain(p.ctx, vs)
	if again && got.Added+got.Skipped == want.Added+want.Skipped {
		got = want
	}
	var refused, wantRefused *driver.LoadError
	switch {
	case errors.As(wantErr, &wantRefused):
		if !errors.As(err, &refused) || refused.Index != wantRefused.Index {
			p.Fatalf("Load: %v, want index %d refused: %v", err, wantRefused.Index, wantErr)
		}
		return
	case err != nil || got != want:
		p.Fatalf("Load: %+v, %v; want %+v", got, err, want)
	}
	for i := range vs {
		p.note(vs[i].Key, vs[i].RecordedAt)
	}
}

// note remembers what random conditions may ask for.
func (p *pair) note(key string, at driver.Instant) {
	if len(p.gen.keys) < 1000 && !slices.Contains(p.gen.keys, key) {
		p.gen.keys = append(p.gen.keys, key)
	}
	if len(p.gen.times) < 20_000 {
		p.gen.times = append(p.gen.times, at)
	}
}

// mirror adds a version that the engine made to the model.
func (p *pair) mirror(v *driver.Version) {
	p.Helper()
	if _, err := p.model.Load(p.ctx, []driver.Version{*v}); err != nil {
		p.Fatalf("the engine made %+v, which does not fit: %v", *v, err)
	}
	p.note(v.Key, v.RecordedAt)
}

func (p *pair) randomQuery() *driver.Query {
	g := p.gen
	q := &driver.Query{Collection: collection, At: g.instant()}
	if g.chance(30) {
		q.At = driver.Forever
	}
	if g.chance(85) {
		q.Filter = g.filter(3, g.shape, nil)
	}
	if g.chance(70) {
		q.Order = g.order()
	}
	if g.chance(40) {
		all := p.want(&driver.Query{Collection: collection, At: q.At})
		if g.chance(60) {
			q.After = g.position(q.Order, all)
		}
		if g.chance(30) {
			q.Before = g.position(q.Order, all)
		}
	}
	if g.chance(50) {
		q.Limit = 1 + g.IntN(12)
	}
	q.Backward = g.chance(30)
	if g.chance(15) {
		q.Fields = g.fields()
	}
	return q
}

// fields returns some names of members, not nil.
func (g *generator) fields() []string {
	fields := []string{}
	for _, m := range g.shape {
		if g.chance(15) {
			fields = append(fields, m.name)
		}
	}
	return fields
}

func (p *pair) want(q *driver.Query) []*driver.Version {
	p.Helper()
	vs, err := p.model.Query(p.ctx, q)
	if err != nil {
		p.Fatalf("the test made a query that the model refuses: %v\n%#v", err, *q)
	}
	return vs
}

// compareQuery asks both.
func (p *pair) compareQuery(q *driver.Query) {
	p.Helper()
	if diff := p.queryDiff(q); diff != "" {
		p.Fatalf("%s\nat %d, order %#v\nafter %s, before %s, limit %d, backward %t, fields %q\nfilter %#v",
			diff, q.At, q.Order, showPosition(q.After), showPosition(q.Before), q.Limit, q.Backward, q.Fields, q.Filter)
	}
}

func showPosition(p *driver.Position) string {
	if p == nil {
		return "none"
	}
	return fmt.Sprintf("%#v", *p)
}

// queryDiff says how the answers differ; "" where they do not.
func (p *pair) queryDiff(q *driver.Query) string {
	want, wantCount, err := p.model.find(q)
	if err != nil {
		return fmt.Sprintf("the model: %v", err)
	}
	got, err := p.engine.Query(p.ctx, q)
	if err != nil {
		return fmt.Sprintf("Query: %v", err)
	}
	count, err := p.engine.Count(p.ctx, q)
	if err != nil || count != wantCount {
		return fmt.Sprintf("Count: %d, %v; want %d", count, err, wantCount) + p.difference(q)
	}
	if len(got) != len(want) {
		return fmt.Sprintf("Query found %q, want %q", keysOf(got), keysOf(want)) + p.difference(q)
	}
	for i := range want {
		if problem := partOf(got[i], want[i], q.Fields); problem != "" {
			return fmt.Sprintf("place %d: %s\nall: %q, want %q", i, problem, keysOf(got), keysOf(want))
		}
	}
	if len(q.Order) == 0 {
		bare := *q
		bare.Keys, bare.Fields = true, []string{}
		if got, err := p.engine.Query(p.ctx, &bare); err != nil || !slices.Equal(keysOf(got), keysOf(want)) {
			return fmt.Sprintf("Query of keys: %q, %v, want %q", keysOf(got), err, keysOf(want))
		}
	}
	return ""
}

// difference shows a document on which the two disagree.
func (p *pair) difference(q *driver.Query) string {
	for _, v := range p.want(&driver.Query{Collection: q.Collection, At: q.At}) {
		one := *q
		one.After, one.Before, one.Limit, one.Order = nil, nil, 0, nil
		one.Filter = driver.And{eq(driver.Field{Meta: driver.MetaKey, Kind: driver.KindString}, v.Key)}
		if q.Filter != nil {
			one.Filter = driver.And{one.Filter, q.Filter}
		}
		want := p.want(&one)
		got, err := p.engine.Query(p.ctx, &one)
		if err != nil || len(got) != len(want) {
			return fmt.Sprintf("\nfor example (found: %t, should be: %t, %v): %s", len(got) > 0, len(want) > 0, err, describe(v))
		}
	}
	return ""
}

func describe(v *driver.Version) string {
	if v == nil {
		return "nothing"
	}
	data := string(v.Data)
	if len(data) > 3000 {
		data = data[:3000] + "…"
	}
	return fmt.Sprintf("%q version %d of [%d, %d), op %d, by %q, message %q, group %q, changed %q: %s",
		v.Key, v.Number, v.RecordedAt, v.SupersededAt, v.Op, v.Author, v.Message, v.Group, v.Changed, data)
}

// lacks says which of the asked members are not as they should be.
func lacks(got, want *driver.Version, fields []string) string {
	a, err := decode(got.Data)
	if err != nil {
		return fmt.Sprintf("%s: %v", describe(got), err)
	}
	b, err := decode(want.Data)
	if err != nil {
		return fmt.Sprintf("%s: %v", describe(want), err)
	}
	for _, name := range fields {
		if fmt.Sprintf("%#v", lookup(a, []string{name})) != fmt.Sprintf("%#v", lookup(b, []string{name})) {
			return fmt.Sprintf("asked for %q, got %s of %s", name, got.Data, describe(want))
		}
	}
	return ""
}

func keysOf(vs []*driver.Version) []string {
	keys := make([]string, len(vs))
	for i, v := range vs {
		keys[i] = v.Key
	}
	return keys
}

// compareGet asks both for the same references.
func (p *pair) compareGet(refs []driver.Ref) {
	p.Helper()
	want, err := p.model.Get(p.ctx, collection, refs, nil)
	if err != nil {
		p.Fatal(err)
	}
	got, err := p.engine.Get(p.ctx, collection, refs, nil)
	if err != nil || len(got) != len(want) {
		p.Fatalf("Get of %d references: %d versions, %v", len(refs), len(got), err)
	}
	for i := range want {
		if !same(got[i], want[i]) {
			p.Fatalf("Get(%+v): %s, want %s", refs[i], describe(got[i]), describe(want[i]))
		}
	}
	fields := p.gen.fields()
	some, err := p.engine.Get(p.ctx, collection, refs, fields)
	if err != nil || len(some) != len(want) {
		p.Fatalf("Get of %d references and %q: %d versions, %v", len(refs), fields, len(some), err)
	}
	for i := range want {
		if problem := partOf(some[i], want[i], fields); problem != "" {
			p.Fatalf("Get(%+v) of %q: %s", refs[i], fields, problem)
		}
	}
}

// compareLog reads both logs.
func (p *pair) compareLog(q *driver.LogQuery) {
	p.Helper()
	want, err := p.model.log(p.ctx, q)
	if err != nil {
		p.Fatalf("the test made a log query that the model refuses: %v\n%#v", err, *q)
	}
	got := p.log(q)
	show := func(versions []*driver.Version) string { return strings.Join(names(versions), " ") }
	if len(got) != len(want) {
		p.Fatalf("Log(%s): %d versions, want %d\ngot  %.500s\nwant %.500s", showLog(q), len(got), len(want), show(got), show(want))
	}
	for i := range want {
		if problem := partOf(got[i], want[i], q.Fields); problem != "" {
			p.Fatalf("Log(%s), version %d of it: %s", showLog(q), i, problem)
		}
	}
}

// partOf says how a version that was read for some members (nil: all) differs from
// the whole one.
func partOf(got, want *driver.Version, fields []string) string {
	if got == nil || want == nil {
		if got != want {
			return describe(got) + ", want " + describe(want)
		}
		return ""
	}
	a, b := *got, *want
	if fields != nil {
		if !b.Deleted && len(fields) > 0 {
			if problem := lacks(&a, &b, fields); problem != "" {
				return problem
			}
		}
		a.Data, b.Data = nil, nil
	}
	if !same(&a, &b) {
		return describe(&a) + ", want " + describe(&b)
	}
	return ""
}

// showLog prints a log query with instants as numbers.
func showLog(q *driver.LogQuery) string {
	after := "the start"
	if q.After != nil {
		after = fmt.Sprintf("(%d %s %q %d)", q.After.At, q.After.Collection, q.After.Key, q.After.Number)
	}
	return fmt.Sprintf("collections %q, keys %q, hints %+v, time [%d, %d), number [%d, %d), behind %s, backward %t, limit %d, fields %q",
		q.Collections, q.Keys, q.Hints, q.From, q.To, q.FromNumber, q.ToNumber, after, q.Backward, q.Limit, q.Fields)
}

// compareEverything compares all versions of both, and the summary.
func (p *pair) compareEverything() {
	p.Helper()
	p.compareLog(&driver.LogQuery{})
	want, err := p.model.Stats(p.ctx)
	if err != nil {
		p.Fatal(err)
	}
	got, err := p.engine.Stats(p.ctx)
	if err != nil || !slices.Equal(got.Collections, want.Collections) || got.Documents != want.Documents || got.Versions != want.Versions {
		p.Fatalf("Stats: %+v, %v; want %+v", got, err, want)
	}
	var problems bytes.Buffer
	if err := p.engine.Check(p.ctx, func(problem string) { fmt.Fprintln(&problems, problem) }); err != nil || problems.Len() > 0 {
		p.Fatalf("Check: %v\n%s", err, problems.String())
	}
}

// same compares two versions, without a difference between no names and nil.
func same(a, b *driver.Version) bool {
	return a == nil && b == nil || sameButEnd(a, b) && a.SupersededAt == b.SupersededAt
}

// difference describes how versions, or what holds them, differ: all but what
// readers of them have noted, and seals, which are checked as the contract. Data is compared as a whole: byte by byte, that is most
// of what a test of long histories does.
func difference(want, got any) string {
	return cmp.Diff(want, got, cmpopts.IgnoreFields(driver.Version{}, "Notes", "Seal"), cmp.Comparer(sameData))
}

func sameData(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }

// sameButEnd leaves out when the versions were superseded.
func sameButEnd(a, b *driver.Version) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Collection == b.Collection && a.Key == b.Key && a.Number == b.Number && a.RecordedAt == b.RecordedAt &&
		a.Op == b.Op && a.Deleted == b.Deleted && a.Author == b.Author && a.Message == b.Message && a.Group == b.Group &&
		slices.Equal(a.Changed, b.Changed) && sameData(a.Data, b.Data) &&
		(a.Seal == nil || b.Seal == nil || bytes.Equal(a.Seal, b.Seal)) // what a test makes up has none
}
