package storage_test

import (
	"fmt"
	"testing"

	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
)

// How many versions there are is told by their numbers, however long the history is,
// between whatever instants; by an author or of a field they are counted one by one.
func TestVersionsAreCountedByTheirNumbers(t *testing.T) {
	e := newEnv(t)
	const versions = 60
	var at []driver.Instant
	for i := range versions {
		at = append(at, e.load("software", "a", fmt.Sprintf(`{"name":"a","stargazers_count":%d}`, i)))
	}
	engine, read := e.engine.Engine, 0
	ctx := e.begin()
	early := must(e.projects.Get(ctx, "a", &at[9], nil))(t)
	late := e.get("a")
	for _, c := range []struct {
		name     string
		document *storage.Document
		from, to *driver.Instant
		author   *string
		want     int
		most     int // entries that are read to count them
	}{
		{"all", late.Document, nil, nil, nil, versions, 1},
		{"as they were", early.Document, nil, nil, nil, 10, 1},
		{"since", late.Document, &at[20], nil, nil, versions - 20, 2},
		{"until", late.Document, nil, &at[20], nil, 20, 1},
		{"between", late.Document, &at[10], &at[20], nil, 10, 2},
		{"between, as they were", early.Document, &at[5], &at[20], nil, 5, 2},
		{"of an author", late.Document, nil, nil, ptr("importer"), versions, versions},
		{"of nobody", late.Document, nil, nil, ptr("nobody"), 0, 0},
	} {
		e.engine.Engine = engine
		one := 1
		conn := must(e.projects.Versions(ctx, c.document, c.from, c.to, c.author, nil, &one, nil, nil, nil))(t)
		read = 0
		e.engine.Engine = &counted{Engine: engine, entries: &read}
		if n := must(conn.TotalCount(ctx))(t); n != c.want {
			t.Errorf("%s: %d, want %d", c.name, n, c.want)
		}
		if read > c.most {
			t.Errorf("%s: %d entries were read to count them", c.name, read)
		}
	}
}
