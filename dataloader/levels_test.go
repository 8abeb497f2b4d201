package dataloader_test

import (
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/asof/asof/dataloader"
	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/record"
)

// Levels has each document read once at an instant, and gives it to all places
// that want it.
func TestLevels(t *testing.T) {
	e := newEnv(t)
	tag, project := e.tags.Type(), e.projects.Type()
	a, b, x := []byte("a"), []byte("b"), []byte("x")
	var l dataloader.Levels
	want := func(places []dataloader.Place, of *record.Type, at int64, keys ...[]byte) []dataloader.Place {
		t.Helper()
		places, err := l.Want(places, of, driver.Instant(at), false, keys)
		if err != nil {
			t.Fatal(err)
		}
		return places
	}
	places := want(nil, tag, 1, a, b, a)
	places = want(places, project, 1, x)
	places = want(places, tag, 2, a)
	first := l.Missing(tag)
	if diff := cmp.Diff([]storage.KeyAt{{Key: "a", At: 1}, {Key: "b", At: 1}, {Key: "a", At: 2}}, first); diff != "" {
		t.Error(diff)
	}
	docs := []*storage.Document{new(storage.Document), nil, new(storage.Document)}
	l.Fill(tag, docs)
	for i, d := range []*storage.Document{docs[0], nil, docs[0]} {
		if places[i].Wanted() || places[i].Document() != d {
			t.Errorf("place %d: wanted %t, or another document", i, places[i].Wanted())
		}
	}
	if !places[3].Wanted() || places[4].Document() != docs[2] {
		t.Error("what was not read is there, or a document of another instant")
	}
	// What could not be read may be wanted again; what was read is not.
	l.Fill(project, nil)
	if again := want(nil, project, 1, x); !again[0].Wanted() || len(l.Missing(project)) != 1 {
		t.Error("what could not be read is not wanted again")
	}
	if again := want(nil, tag, 1, b, a); again[0].Wanted() || len(l.Missing(tag)) != 0 {
		t.Error("what was read is wanted again")
	}
}

// An operation that wanted too much gets nothing more.
func TestLevelsAreBounded(t *testing.T) {
	e := newEnv(t)
	keys := make([][]byte, dataloader.MaxDocs)
	for i := range keys {
		keys[i] = []byte(strconv.Itoa(i))
	}
	var l dataloader.Levels
	places, err := l.Want(nil, e.tags.Type(), 1, false, keys)
	if err != nil {
		t.Fatal(err)
	}
	for followed := 2 * len(keys); followed <= dataloader.MaxFollowed; followed += len(keys) {
		if _, err = l.Want(places[:0], e.tags.Type(), 1, false, keys); err != nil {
			t.Fatalf("%d followed: %v", followed, err)
		}
	}
	if _, err = l.Want(places[:0], e.tags.Type(), 1, false, keys[:1]); err == nil || !l.Full() {
		t.Error("too many references are followed")
	}
	l.Reset()
	if _, err = l.Want(places[:0], e.tags.Type(), 1, false, keys); err != nil {
		t.Fatal(err)
	}
	if _, err = l.Want(places[:0], e.tags.Type(), 2, false, keys[:1]); err == nil || !l.Full() {
		t.Error("too many documents are loaded")
	}
}
