package storage_test

import (
	"context"
	"fmt"
	"iter"
	"testing"

	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
)

// limited notes the limits of logs.
type limited struct {
	driver.Engine
	limits []int
}

func (l *limited) Log(ctx context.Context, q *driver.LogQuery) iter.Seq2[driver.Entry, error] {
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
