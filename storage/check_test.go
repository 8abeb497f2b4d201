package storage_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/asof/asof/storage"
)

func TestMisfitsAreThoseOfNow(t *testing.T) {
	e := newEnv(t)
	for i := range 501 { // more than are read at once
		e.load("software", fmt.Sprintf("k%03d", i), `{"name":"n"}`)
	}
	e.load("software", "k500", `{"stargazers_count":1}`)
	e.load("software", "a", `{}`)
	e.load("software", "a", `{"name":"mended"}`)
	e.load("software", "b", `{}`)
	e.load("software", "b", ``)
	e.load("tags", "x", `{"name":"x","related":[null]}`)
	var got []string
	if err := e.store.Misfits(t.Context(), func(m storage.Misfit) {
		got = append(got, fmt.Sprintf("%s %s %d %v", m.Type.Name, m.Key, m.Version, m.Err))
	}); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"Project k500 2 name: expected String!, found nothing",
		"Tag x 1 related[0]: expected a string (the key of a Tag), found null",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestSimilarMember(t *testing.T) {
	project := fixtureTypes()[0]
	for path, want := range map[string]string{
		"stargazer_count":            "stargazers_count", // misspelt
		"stars":                      "stargazers_count", // its name in GraphQL
		"Name":                       "name",
		"current_release.publishdAt": "published_at",
		"releases.tga":               "",
		"nothing_like_it":            "",
		"name.x":                     "",
		"unknown.tag":                "",
		"":                           "",
	} {
		if got := project.SimilarMember(path); got != want {
			t.Errorf("%q: %q, want %q", path, got, want)
		}
	}
}
