package storage_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/record"
)

// written commits versions as they are; "" deletes.
type written struct {
	*env
	last map[string]int64
	data map[string]string
}

func (w *written) commit(collection string, docs map[string]string) {
	w.t.Helper()
	var ws []driver.Write
	for key, data := range docs {
		id := collection + "/" + key
		if data == "" && w.data[id] == "" {
			continue
		}
		write := driver.Write{ID: fmt.Sprint(id, "@", w.last[id]), Collection: collection, Key: key, Expected: w.last[id], Op: driver.OpUpdate, Deleted: data == ""}
		if data != "" {
			write.Data = []byte(data)
		}
		ws, w.data[id] = append(ws, write), data
		w.last[id]++
	}
	if len(ws) == 0 {
		return
	}
	if _, err := w.engine.Commit(w.t.Context(), ws); err != nil {
		w.t.Fatal(err)
	}
}

// forgetful is the same store, which remembers nothing.
func (e *env) forgetful(types []*record.Type) *env {
	e.t.Helper()
	other := *e
	other.store = must(storage.New(e.engine, types))(e.t)
	other.projects = storage.NewCollection(other.store, types[0], func(d *storage.Document) *project { return &project{d} })
	return &other
}

// Ascending lists by copied fields are the same whatever the store remembers of earlier ones, at
// each instant: after commits, few and many, loads and erasures.
func testCopiesAreRemembered(t *testing.T) {
	const seed = 3
	random := rand.New(rand.NewPCG(seed, 0))
	types := copyTypes()
	types[1].Auth.Erase = []string{"privacy"}
	e := newEnvOf(t, types, nil)
	w := &written{e, map[string]int64{}, map[string]string{}}
	key := func(kind string, n int) string { return fmt.Sprint(kind, random.IntN(n)) }
	license := func() string {
		return []string{"", `{}`, `{"kind":"FREE"}`, `{"title":"a"}`, `{"title":"b","kind":"PAID"}`, `{"title":"c"}`}[random.IntN(6)]
	}
	project := func() string {
		return []string{"", `{}`, `{"lic":3}`, `{"lic":"gone"}`, `{"lic":"` + key("l", 9) + `"}`, `{"lic":"` + key("l", 9) + `"}`, `{"lic":"` + key("l", 9) + `"}`}[random.IntN(7)]
	}
	var instants []driver.Instant
	checkAt := func(on *env, what string, at driver.Instant, field string) {
		t.Helper()
		for _, order := range []storage.OrderDirection{storage.Asc, storage.Desc} {
			l := list{nil, []*storage.OrderInput{{Field: field, Direction: order}}}
			want := l.keys(e.begin(), t, e.forgetful(types), at, 500, false)
			for _, size := range []int{9, 500} {
				if got := l.keys(on.begin(), t, on, at, size, size == 9); !slices.Equal(got, want) {
					t.Fatalf("seed %d, %s: sorted by %s, as of %s: %s", seed, what, asText(t, l.orderBy), at, cmp.Diff(want, got))
				}
			}
		}
	}
	check := func(what string) {
		t.Helper()
		back := min(random.IntN(3)*random.IntN(9), len(instants)-1)
		checkAt(e, what, instants[len(instants)-1-back], []string{"licenseName", "kind"}[random.IntN(2)])
	}
	next := func() driver.Instant {
		instants = append(instants, e.clock.advance(time.Microsecond))
		e.clock.advance(time.Microsecond) // what is committed next is later
		return instants[len(instants)-1]
	}
	for round := range 60 {
		what := "after commits"
		for range random.IntN(4) {
			w.commit("tags", map[string]string{key("l", 9): license(), key("l", 9): license()})
			w.commit("software", map[string]string{key("p", 30): project(), key("p", 30): project()})
		}
		switch round % 20 {
		case 5:
			what = "after many commits"
			many := func(n int, data string) map[string]string {
				docs := map[string]string{}
				for i := range n {
					docs[fmt.Sprint("many", i)] = strings.ReplaceAll(data, "N", fmt.Sprint(i))
				}
				return docs
			}
			w.commit("tags", many(100, `{"title":"x"}`))
			w.commit("software", many(100, `{"lic":"manyN"}`))
			checkAt(e, what, next(), "licenseName")
			before := next()
			w.commit("tags", many(100, "")) // more than are remembered
			checkAt(e, what, before, "licenseName")
			checkAt(e, what, next(), "licenseName")
			for range 2 { // more than are looked at
				w.commit("software", many(600, fmt.Sprintf(`{"lic":"noneN","stars":%d}`, random.IntN(1000))))
			}
			checkAt(e, what, next(), "licenseName")
			w.commit("software", many(600, ""))
		case 12:
			what = "after a load"
			late := e.clock.advance(time.Microsecond)
			if _, err := e.store.Load(t.Context(), []driver.Version{
				{Collection: "software", Key: fmt.Sprint("loaded", round), RecordedAt: instants[len(instants)/2], Data: []byte(`{"lic":"nowhere"}`)},
				{Collection: "tags", Key: fmt.Sprint("loaded", round), RecordedAt: late, Data: []byte(`{"title":"a"}`)},
			}); err != nil {
				t.Fatal(err)
			}
		case 17:
			what = "after an erasure"
			w.commit("tags", map[string]string{"l0": `{"title":"a"}`})
			w.commit("tags", map[string]string{"l0": `{"title":"b"}`})
			w.commit("software", map[string]string{"p0": `{"lic":"l0"}`})
			before, learned := next(), e.forgetful(types) // from now on
			checkAt(learned, what, before, "licenseName")
			if _, err := e.tags.Erase(e.by("eve", nil, "privacy"), storage.EraseInput{Key: "l0", ExpectedVersion: int(w.last["tags/l0"]), Reason: "r", Paths: []string{"/name"}}); err != nil {
				t.Fatal(err)
			}
			w.last["tags/l0"]++
			checkAt(learned, what, before, "licenseName")
		}
		next()
		check(what)
	}
}

// read counts the versions that queries return.
type read struct {
	driver.Engine
	versions atomic.Int64
}

func (r *read) Query(ctx context.Context, q *driver.Query) ([]*driver.Version, error) {
	vs, err := r.Engine.Query(ctx, q)
	r.versions.Add(int64(len(vs)))
	return vs, err
}

// An ascending list reads the more sources the more there are only where none was before it.
func TestAscendingCopiesReadFewSources(t *testing.T) {
	const sources = 500
	r := &read{}
	e := newEnvOf(t, copyTypes(), func(engine driver.Engine) driver.Engine { r.Engine = engine; return r })
	w := &written{e, map[string]int64{}, map[string]string{}}
	licenses, projects := map[string]string{}, map[string]string{}
	for i := range sources {
		licenses[fmt.Sprintf("l%03d", i)] = fmt.Sprintf(`{"title":"%03d"}`, i)
		projects[fmt.Sprintf("p%03d", i)] = fmt.Sprintf(`{"lic":"l%03d"}`, i)
	}
	w.commit("tags", licenses)
	w.commit("software", projects)
	page := func(first string) int64 {
		t.Helper()
		ctx := e.begin()
		before := r.versions.Load()
		nodes := must(e.projects.Page(ctx, nil, []*storage.OrderInput{{Field: "licenseName"}}, ptr(5), nil, nil, nil, nil, nil))(t).Nodes
		if nodes[0].Key() != first {
			t.Errorf("the first is %s, not %s", nodes[0].Key(), first)
		}
		return r.versions.Load() - before
	}
	if n := page("p000"); n < sources {
		t.Errorf("the first list read %d of %d", n, sources)
	}
	for _, change := range []func(){
		func() {},
		func() { w.commit("software", map[string]string{"p400": `{"lic":"gone"}`}) },
		func() { w.commit("tags", map[string]string{"l300": ""}) },
		func() { w.commit("tags", map[string]string{"gone": `{"title":"x"}`}) },
	} {
		change()
		first := "p000"
		switch {
		case w.last["tags/gone"] > 0, w.last["tags/l300"] > 1:
			first = "p300"
		case w.last["software/p400"] > 1:
			first = "p400"
		}
		if n := page(first); n > 60 {
			t.Errorf("a later list read %d of %d", n, sources)
		}
	}
}
