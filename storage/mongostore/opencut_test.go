package mongostore_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/mongostore"
	"github.com/asof/asof/storage/mongostore/mongotest"
)

// A connection that breaks once while a store is opened or closed, before or after any
// of the commands for that was carried out, does not end it, on whatever server.
func TestOpenIsCut(t *testing.T) {
	use := func(t *testing.T, cut int, answer mongotest.Answer) ([]string, error) {
		t.Helper()
		proxy, uri := newServer(t).behind(t)
		var mu sync.Mutex
		var names []string // a command that was cut may arrive after Close
		proxy.Set(func(c mongotest.Command) mongotest.Answer {
			if c.Hello() && !c.Body.Lookup("helloOk").IsZero() { // the driver's own
				return mongotest.Pass()
			}
			mu.Lock()
			defer mu.Unlock()
			if names = append(names, c.Name); len(names) == cut {
				return answer
			}
			return mongotest.Pass()
		})
		s, err := mongostore.Open(t.Context(), uri+"&retryReads=false&retryWrites=false", mongostore.Options{Collections: []driver.Collection{{Name: "things"}}})
		if err == nil {
			err = s.Close()
		}
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(names), err
	}
	names, err := use(t, 0, mongotest.Pass())
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range names {
		for when, answer := range map[string]mongotest.Answer{"before": mongotest.CutBefore(), "after": mongotest.CutAfter()} {
			t.Run(fmt.Sprintf("%s command %d, %s", when, i+1, name), func(t *testing.T) {
				t.Parallel()
				if done, err := use(t, i+1, answer); err != nil {
					t.Errorf("of %s: %v", done, err)
				}
			})
		}
	}
}

// A server that breaks the connection each time is told, and not tried for long.
func TestOpenIsAlwaysCut(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"update", "createIndexes"} {
		proxy, uri := newServer(t).behind(t)
		var mu sync.Mutex
		cuts := 0
		proxy.Set(func(c mongotest.Command) mongotest.Answer {
			if c.Name != name {
				return mongotest.Pass()
			}
			mu.Lock()
			defer mu.Unlock()
			cuts++
			return mongotest.CutBefore()
		})
		wanted := says(driver.CodeUnavailable, "cannot be reached")
		s, err := mongostore.Open(t.Context(), uri, mongostore.Options{Collections: []driver.Collection{{Name: "things"}}})
		if err == nil {
			_ = s.Close()
		}
		mu.Lock()
		if most := 10; !wanted(err) || cuts > most {
			t.Errorf("%s: %v (%q), after %d attempts, want %d at most", name, err, driver.CodeOf(err), cuts, most)
		}
		mu.Unlock()
	}
}
