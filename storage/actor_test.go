package storage_test

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
)

// A name that another server has noted meanwhile costs one write its own, and not all that follow.
func TestNameOfAnotherServer(t *testing.T) {
	e := newEnv(t)
	write := func(name, key string) string {
		t.Helper()
		ctx := storage.WithActor(e.begin(), storage.Actor{ID: "ann", Name: name})
		if _, err := e.tags.Create(ctx, storage.CreateInput{Key: key, Data: map[string]any{"name": "T"}}); err != nil {
			t.Fatal(err)
		}
		found, err := e.engine.Get(t.Context(), "asof_actors", []driver.Ref{{Key: "ann", At: driver.Forever}}, nil)
		if err != nil || found[0] == nil {
			t.Fatal(found, err)
		}
		return string(found[0].Data)
	}
	write("Ann", "a")
	_, err := driver.CommitOne(t.Context(), e.engine, &driver.Write{
		ID: "other", Collection: "asof_actors", Key: "ann", Expected: 1, Op: driver.OpUpdate, Author: "ann", Changed: []string{"name"}, Data: []byte(`{"name":"Anna"}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	var got string
	for i := range 2 {
		got = write("Annie", strconv.Itoa(i))
	}
	if want := `{"name":"Annie"}`; got != want {
		t.Errorf("noted %s, want %s", got, want)
	}
}

// The names of the authors of a list are read together.
func TestNamesAreReadTogether(t *testing.T) {
	e := newEnv(t)
	for i := range 30 {
		id := strconv.Itoa(i)
		ctx := storage.WithActor(e.begin(), storage.Actor{ID: "u" + id, Name: "name of " + id})
		if _, err := e.tags.Create(ctx, storage.CreateInput{Key: id, Data: map[string]any{"name": "T"}}); err != nil {
			t.Fatal(err)
		}
	}
	e.clock.advance(2 * time.Minute) // what is known is too old
	ask := func(ctx context.Context, authors ...*storage.Actor) {
		t.Helper()
		for _, a := range authors {
			name, err := a.LatestName(ctx)
			if err != nil || name == nil || *name != "name of "+strings.TrimPrefix(a.ID, "u") {
				t.Fatalf("the name of %s: %v, %v", a.ID, name, err)
			}
		}
	}
	ctx := e.begin()
	var authors []*storage.Actor
	for _, d := range must(e.tags.Page(ctx, nil, nil, ptr(30), nil, nil, nil, nil, nil))(t).Nodes {
		authors = append(authors, d.VersionInfo().Author())
	}
	if len(authors) != 30 {
		t.Fatal(len(authors))
	}
	before := e.engine.gets.Load()
	ask(ctx, authors...)
	if n := e.engine.gets.Load() - before; n != 1 {
		t.Errorf("30 names took %d reads", n)
	}
	e.clock.advance(2 * time.Minute)
	ctx, authors = e.begin(), nil
	for _, c := range must(e.store.Changelog(ctx, nil, ptr(30), nil, nil, nil))(t).Nodes {
		authors = append(authors, c.ChangedBy())
	}
	before = e.engine.gets.Load()
	ask(ctx, authors...)
	if n := e.engine.gets.Load() - before; n != 1 {
		t.Errorf("30 names took %d reads", n)
	}
}
