package dataloader_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/fault"
)

// versionsOf reads the last versions of a document, as a resolver does.
func (e *env) versionsOf(ctx context.Context, n *node, first int, author string) (*storage.VersionConnection[*node], error) {
	by := &author
	if author == "" {
		by = nil
	}
	return e.projects.Versions(ctx, n.Document, nil, nil, by, nil, &first, nil, nil, nil)
}

// Documents that were read together have their versions read together: once for
// each set of arguments, whoever asks first, also at the same time.
func TestVersions(t *testing.T) {
	e := newEnv(t)
	for i := range 5 {
		for n := range i + 1 {
			e.load("projects", fmt.Sprintf("p%d", i), fmt.Sprintf(`{"tags":["t%d"]}`, n))
		}
	}
	ctx := e.begin()
	page := e.page(ctx, nil)
	before := e.engine.reads()
	var all sync.WaitGroup
	for i, n := range page {
		for _, first := range []int{2, 3} {
			all.Go(func() {
				conn, err := e.versionsOf(ctx, n, first, "")
				if err != nil {
					t.Error(err)
					return
				}
				if want := min(first, i+1); len(conn.Nodes) != want || conn.Nodes[0].Key() != n.Key() || conn.Nodes[0].Version() != i+1 {
					t.Errorf("%d versions of %s, want %d", len(conn.Nodes), n.Key(), want)
				}
				if total, err := conn.TotalCount(ctx); err != nil || total != i+1 {
					t.Errorf("%d versions of %s in all, %v; want %d", total, n.Key(), err, i+1)
				}
			})
		}
	}
	all.Wait()
	if got := e.engine.reads() - before; got != 2 { // for each of the arguments; numbers tell the totals
		t.Errorf("%d reads, want 2", got)
	}
	if conn, err := e.versionsOf(ctx, page[4], 3, "nobody"); err != nil || len(conn.Nodes) != 0 {
		t.Errorf("versions by nobody: %v, %v", conn, err)
	}
	if got := e.engine.reads() - before; got != 2+5 {
		t.Errorf("an author takes %d reads more, want a log for each document", got-2)
	}

	// What the versions refer to is read together, too.
	e.load("tags", "t0", `{"name":"0"}`)
	ctx = e.begin()
	page = e.page(ctx, nil)
	for _, n := range page {
		conn, err := e.versionsOf(ctx, n, 9, "")
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range conn.Nodes {
			e.refs(ctx, v, fTags, nil)
		}
	}
	if got := e.engine.count("tags"); got != 1 {
		t.Errorf("%d reads of tags, want 1", got)
	}

	// One that was read alone, and an operation without loaders.
	one, err := e.projects.Get(ctx, "p3", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	before = e.engine.reads()
	for range 2 {
		if conn, err := e.versionsOf(ctx, one, 9, ""); err != nil || len(conn.Nodes) != 4 {
			t.Errorf("%v, %v", conn, err)
		}
	}
	if conn, err := e.versionsOf(t.Context(), page[2], 9, ""); err != nil || len(conn.Nodes) != 3 {
		t.Errorf("without loaders: %v, %v", conn, err)
	}
	if got := e.engine.reads() - before; got != 2 {
		t.Errorf("%d reads, want 2", got)
	}
}

// Nobody waits for ever for versions that could not be read.
func TestVersionsThatCannotBeRead(t *testing.T) {
	e := newEnv(t)
	for i := range 3 {
		e.load("projects", fmt.Sprintf("p%d", i), `{"tags":[]}`)
	}
	ctx := e.begin()
	page := e.page(ctx, nil)
	e.engine.fail.Store(true)
	for _, n := range page {
		if _, err := e.versionsOf(ctx, n, 2, ""); codeOf(err) != fault.CodeUnavailable {
			t.Errorf("%v", err)
		}
	}
	e.engine.fail.Store(false)
	e.engine.crash.Store(true)
	for i, n := range page {
		func() {
			defer func() {
				if failure := recover(); (failure != nil) != (i == 0) {
					t.Errorf("document %d: %v", i, failure)
				}
			}()
			if _, err := e.versionsOf(ctx, n, 3, ""); codeOf(err) != fault.CodeInternal {
				t.Errorf("%v", err)
			}
		}()
	}
	e.engine.crash.Store(false)
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := e.versionsOf(ended, page[0], 4, ""); codeOf(err) != fault.CodeUnavailable {
		t.Errorf("%v", err)
	}
}

// codeOf is the code of an error of the store; "" for none.
func codeOf(err error) fault.Code {
	if own, ok := errors.AsType[*fault.Error](err); ok {
		return own.Code
	}
	return ""
}
