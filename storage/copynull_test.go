package storage_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
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

// A page reads the sources that it comes to, in either order: what has no value is the end of the list.
func TestCopiesReadFewSources(t *testing.T) {
	const sources = 500
	r := &read{}
	e := newEnvOf(t, copyTypes(), func(engine driver.Engine) driver.Engine { r.Engine = engine; return r })
	w := &written{e, map[string]int64{}, map[string]string{}}
	licenses, projects := map[string]string{}, map[string]string{}
	for i := range sources {
		licenses[fmt.Sprintf("l%03d", i)] = fmt.Sprintf(`{"title":"%03d"}`, i)
		projects[fmt.Sprintf("p%03d", i)] = fmt.Sprintf(`{"lic":"l%03d"}`, i)
	}
	projects["none"] = `{"lic":"gone"}`
	w.commit("tags", licenses)
	w.commit("software", projects)
	for direction, want := range map[storage.OrderDirection]string{storage.Asc: "p000", storage.Desc: "p499"} {
		before := r.versions.Load()
		by := []*storage.OrderInput{{Field: "licenseName", Direction: direction}}
		nodes := must(e.projects.Page(e.begin(), nil, by, ptr(5), nil, nil, nil, nil, nil))(t).Nodes
		if first := nodes[0].Key(); first != want {
			t.Errorf("%s: the first is %s, not %s", direction, first, want)
		}
		if n := r.versions.Load() - before; n > 60 {
			t.Errorf("%s: a page of 5 read %d of %d", direction, n, sources)
		}
		last := must(e.projects.Page(e.begin(), nil, by, nil, nil, ptr(1), nil, nil, nil))(t).Nodes
		if key := last[0].Key(); key != "none" {
			t.Errorf("%s: the last is %s", direction, key)
		}
	}
}
