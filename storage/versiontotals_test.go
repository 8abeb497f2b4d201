package storage_test

import "testing"

// The total beside a later page is that of the first page's instant, whatever is written meanwhile.
func TestTotalsOfLaterPages(t *testing.T) {
	e := newEnv(t)
	e.create("a", object{"name": "0", "tags": []any{}})
	for i, name := range []string{"b", "c", "d", "e"} {
		e.update("ann", "a", i+1, object{"name": name})
	}
	ctx := e.begin()
	first := must(e.projects.Versions(ctx, e.get("a").Document, nil, nil, nil, nil, ptr(1), nil, nil, nil))(t)
	before := must(first.TotalCount(ctx))(t)
	cursor := first.Edges[0].Cursor()
	e.update("eve", "a", 5, object{"name": "x"})
	e.update("eve", "a", 6, object{"name": "y"})
	ctx = e.begin()
	second := must(e.projects.Versions(ctx, e.get("a").Document, nil, nil, nil, nil, ptr(1), &cursor, nil, nil))(t)
	if n := must(second.TotalCount(ctx))(t); n != before || n != 5 || second.Nodes[0].Version() != 4 {
		t.Errorf("the total is %d, and %d with the first page; the version is %d", n, before, second.Nodes[0].Version())
	}
	now := must(e.projects.Versions(ctx, e.get("a").Document, nil, nil, nil, nil, ptr(1), nil, nil, nil))(t)
	if n := must(now.TotalCount(ctx))(t); n != 7 {
		t.Errorf("now the total is %d", n)
	}
}
