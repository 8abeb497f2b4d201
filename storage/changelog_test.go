package storage_test

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/normal"
)

// limited notes the limits of logs.
type limited struct {
	driver.Engine
	limits []int
}

func (l *limited) Log(ctx context.Context, q *driver.LogQuery) iter.Seq2[*driver.Version, error] {
	l.limits = append(l.limits, q.Limit)
	return l.Engine.Log(ctx, q)
}

// A page of changes tells the engine how far it is likely to look, and goes on where
// that was not enough, as many versions have no visible change, or none of the fields.
func TestPagesOfChangesAreLimited(t *testing.T) {
	const versions, page = 300, 3
	engine := &limited{}
	e := newEnvOver(t, func(inner driver.Engine) driver.Engine {
		engine.Engine = inner
		return engine
	})
	e.load("software", "a", `{"name":"first"}`)
	for i := range versions {
		e.load("software", "a", fmt.Sprintf(`{"name":"first","not declared":%d}`, i))
		e.load("software", "b", fmt.Sprintf(`{"name":"b%d"}`, i))
	}
	d := e.get("a").Document
	for _, c := range []struct {
		name   string
		read   func(first, last *int) (*storage.FieldChangeConnection, error)
		want   [2]string // the newest and the oldest change
		limits [2][]int  // of a page of these
	}{
		{
			"all", func(first, last *int) (*storage.FieldChangeConnection, error) {
				return e.store.Changelog(e.begin(), nil, first, nil, last, nil)
			},
			[2]string{`b /name "b299"`, `a /name "first"`},
			[2][]int{{5, 20}, {5, 20}},
		},
		{
			"of a document", func(first, last *int) (*storage.FieldChangeConnection, error) {
				return e.store.DocumentChangelog(e.begin(), d, nil, nil, nil, nil, first, nil, last, nil)
			},
			[2]string{`a /name "first"`, `a /name "first"`},
			[2][]int{{5, 20, 80, 320}, {5, 20, 80, 320}},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			for i, read := range []func() (*storage.FieldChangeConnection, error){
				func() (*storage.FieldChangeConnection, error) { return c.read(ptr(page), nil) },
				func() (*storage.FieldChangeConnection, error) { return c.read(nil, ptr(page)) },
			} {
				engine.limits = nil
				conn := must(read())(t)
				n := conn.Nodes[i*(len(conn.Nodes)-1)]
				if got := fmt.Sprintf("%s %s %s", n.DocumentKey(), n.Path, n.NewValue); got != c.want[i] {
					t.Errorf("page %d: %s, want %s", i, got, c.want[i])
				}
				if got := fmt.Sprint(engine.limits); got != fmt.Sprint(c.limits[i]) {
					t.Errorf("page %d: the limits were %s, want %v", i, got, c.limits[i])
				}
			}
		})
	}
	for _, c := range []struct{ first, read int }{{page, 1}, {1 + versions, 0}} { // what is on one page is counted already
		conn := must(e.store.Changelog(e.begin(), nil, ptr(c.first), nil, nil, nil))(t)
		engine.limits = nil
		if n := must(conn.TotalCount(e.begin()))(t); n != 1+versions || len(engine.limits) != c.read {
			t.Errorf("%d changes, want %d; of a page of %d they were read %d times", n, 1+versions, c.first, len(engine.limits))
		}
	}
}

// However it is walked, what a page of changes shows is a part of the whole list:
// forward and backward, behind a cursor, before one and between two, and while others
// write; with versions that show no change, and collections that share their times.
func TestChangelogsAreWalked(t *testing.T) {
	const most = 500
	e := newEnv(t)
	random := rand.New(rand.NewPCG(1, 2))
	load := func() {
		at := e.clock.advance(time.Second)
		for _, collection := range []string{"software", "tags"} {
			for _, key := range []string{"a", "b", "c"} {
				v := driver.Version{Collection: collection, Key: key, RecordedAt: at, Author: "importer"}
				switch n := random.IntN(12); {
				case n < 4:
					continue
				case n < 5:
					v.Deleted = true
				case n < 8: // the only difference may be one that does not show
					v.Data = fmt.Appendf(nil, `{"name":"same","not declared":%d}`, random.Int64())
				default:
					v.Data = fmt.Appendf(nil, `{"name":"%d","description":"%d","related":["%d"]}`, random.IntN(3), random.IntN(3), random.IntN(3))
				}
				if !v.Deleted {
					v.Data = must(normal.Object(v.Data))(t)
				}
				if _, err := e.store.Load(t.Context(), []driver.Version{v}); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	for range 40 {
		load()
	}
	middle := driver.InstantOf(e.clock.Now().Add(-20 * time.Second))
	e.load("software", "a", `{"name":"last"}`)
	d := e.get("a").Document
	type list func(first *int, after *string, last *int, before *string) (*storage.FieldChangeConnection, error)
	global := func(where *storage.ChangelogWhere) list {
		return func(first *int, after *string, last *int, before *string) (*storage.FieldChangeConnection, error) {
			return e.store.Changelog(e.begin(), where, first, after, last, before)
		}
	}
	ofDocument := func(fields []string, from, to *driver.Instant) list {
		return func(first *int, after *string, last *int, before *string) (*storage.FieldChangeConnection, error) {
			return e.store.DocumentChangelog(e.begin(), d, fields, nil, from, to, first, after, last, before)
		}
	}
	for _, c := range []struct {
		name string
		read list
	}{
		{"all", global(nil)},
		{"a field", global(&storage.ChangelogWhere{Field: ptr("description")})},
		{"a type", global(&storage.ChangelogWhere{DocumentType: []string{"Tag"}})},
		{"a document", ofDocument(nil, nil, nil)},
		{"fields of it", ofDocument([]string{"description"}, nil, nil)},
		{"since", ofDocument(nil, &middle, nil)},
		{"until", ofDocument(nil, nil, &middle)},
	} {
		t.Run(c.name, func(t *testing.T) {
			show := func(conn *storage.FieldChangeConnection) (changes []string) {
				for _, c := range conn.Nodes {
					changes = append(changes, fmt.Sprint(c.DocumentType(), c.DocumentKey(), c.Version(), lines([]*storage.FieldChange{c})))
				}
				return changes
			}
			whole := must(c.read(ptr(most), nil, nil, nil))(t)
			all := show(whole)
			if len(all) < 5 || whole.PageInfo.HasNextPage {
				t.Fatalf("%d changes", len(all))
			}
			for i := range 200 {
				if i == 100 {
					load()
				}
				// A list that is not pinned by a cursor is that of now.
				n, from, to, after, before := random.IntN(7), 0, len(all), (*string)(nil), (*string)(nil)
				if random.IntN(2) == 0 {
					n = random.IntN(len(all) + 2)
				}
				which := random.IntN(4)
				if which&1 != 0 || which == 0 && i >= 100 {
					from = 1 + random.IntN(len(all))
					after = ptr(whole.Edges[from-1].Cursor())
				}
				if which&2 != 0 {
					to = random.IntN(len(all))
					before = ptr(whole.Edges[to].Cursor())
				}
				first, last, want := &n, (*int)(nil), all[min(from, to):to]
				more := len(want) > n
				if random.IntN(2) == 0 {
					want = want[:min(n, len(want))]
				} else {
					first, last, want = nil, &n, want[max(len(want)-n, 0):]
				}
				page := must(c.read(first, after, last, before))(t)
				next, previous := before != nil || first != nil && more, after != nil || last != nil && more
				if got := show(page); !slices.Equal(got, want) || page.PageInfo.HasNextPage != next || page.PageInfo.HasPreviousPage != previous {
					t.Fatalf("%d from %d to %d, backward %t: %q, %+v, want %q, %t %t", n, from, to, last != nil, got, page.PageInfo, want, next, previous)
				}
				if got := must(page.TotalCount(e.begin()))(t); got != len(all) {
					t.Fatalf("%d from %d to %d, backward %t: %d in all, want %d", n, from, to, last != nil, got, len(all))
				}
			}
		})
	}
}
