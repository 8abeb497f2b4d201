package storage_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
)

func TestMismatchesAreThoseOfAllVersions(t *testing.T) {
	e := newEnv(t)
	e.load("software", "k", `{"stargazers_count":1}`)
	e.load("software", "k", `{"name":"n","stargazers_count":"1","plan":"NONE"}`)
	e.load("software", "a", `{}`)
	e.load("software", "a", `{"name":"mended"}`)
	e.load("software", "b", `{}`)
	e.load("software", "b", ``)
	e.load("tags", "x", `{"name":"x","related":[null,5]}`)
	var got []string
	if err := e.store.Mismatches(t.Context(), func(m storage.Mismatch) {
		got = append(got, fmt.Sprintf("%s %s %d %t %v", m.Type.Name, m.Key, m.Version, m.Current, m.Err))
	}); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"Project k 1 false name: expected String!, found nothing",
		`Project k 2 true stargazers_count: expected Int, found the string "1"`,
		`Project k 2 true plan: expected one of [FREE PAID], found the string "NONE"`,
		"Project a 1 false name: expected String!, found nothing",
		"Project b 1 false name: expected String!, found nothing",
		"Tag x 1 true related[0]: expected a string (the key of a Tag), found null",
		"Tag x 1 true related[1]: expected a string (the key of a Tag), found the number 5",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// A check says what to do about a clock that was ahead.
func TestFutureNamesTheRemedy(t *testing.T) {
	e := newEnv(t)
	at := e.load("tags", "x", `{"name":"x"}`)
	for present, want := range map[driver.Instant]int{at: 0, at - driver.Instant(time.Hour/time.Microsecond): 1} {
		var got []string
		if err := storage.Future(t.Context(), e.engine, present, "ask Ada", func(problem string) { got = append(got, problem) }); err != nil {
			t.Fatal(err)
		}
		if len(got) != want || want > 0 && (!strings.HasPrefix(got[0], "tags: versions in the future: 1") || !strings.HasSuffix(got[0], "if that is right, ask Ada")) {
			t.Errorf("at %s: %q", present, got)
		}
	}
}
