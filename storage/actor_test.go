package storage_test

import (
	"strconv"
	"testing"

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
		found, err := e.engine.Get(t.Context(), storage.ActorCollection, []driver.Ref{{Key: "ann", At: driver.Forever}}, nil)
		if err != nil || found[0] == nil {
			t.Fatal(found, err)
		}
		return string(found[0].Data)
	}
	write("Ann", "a")
	_, err := driver.CommitOne(t.Context(), e.engine, &driver.Write{
		ID: "other", Collection: storage.ActorCollection, Key: "ann", Expected: 1, Op: driver.OpUpdate, Author: "ann", Changed: []string{"name"}, Data: []byte(`{"name":"Anna"}`),
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
