package mongostore

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/mongostore/mongotest"
)

// How many commands calls take where several servers agree on instants, held against
// the table in docs/mongodb.md. What waits for others on a slow machine is left out by
// trying several times: it only adds.
func TestCommandsOfSeveralServers(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	proxy, behind, _ := pair(ctx, t, Options{timing: unending})
	var mu sync.Mutex
	count := 0
	proxy.Set(func(c mongotest.Command) mongotest.Answer {
		if !c.Hello() {
			mu.Lock()
			count++
			mu.Unlock()
		}
		return mongotest.Pass()
	})
	writes := 0
	var table strings.Builder
	for _, call := range []struct {
		name string
		call func() error
	}{
		{"the instant of a request", func() error {
			_, err := behind.Now(ctx)
			return err
		}},
		{"a create", func() error {
			writes++
			_, err := driver.CommitOne(ctx, behind, write(fmt.Sprint("k", writes), fmt.Sprint(writes), 0))
			return err
		}},
		{"an update on a version that this server read or wrote last", func() error {
			writes++
			key := fmt.Sprint("u", writes)
			if _, err := driver.CommitOne(ctx, behind, write(key, fmt.Sprint(writes, " first"), 0)); err != nil {
				return err
			}
			mu.Lock()
			count = 0
			mu.Unlock()
			_, err := driver.CommitOne(ctx, behind, write(key, fmt.Sprint(writes), 1))
			return err
		}},
		{"a current document", func() error {
			_, err := behind.Get(ctx, "things", []driver.Ref{{Key: "k1", At: driver.Forever}}, nil)
			return err
		}},
	} {
		const tries = 20
		least := 0
		for range tries {
			mu.Lock()
			count = 0
			mu.Unlock()
			if err := call.call(); driver.CodeOf(err) == driver.CodeUnavailable {
				continue // the machine is slow
			} else if err != nil {
				t.Fatalf("%s: %v", call.name, err)
			}
			mu.Lock()
			if least == 0 || count < least {
				least = count
			}
			mu.Unlock()
		}
		fmt.Fprintf(&table, "| %s | %d |\n", call.name, least)
	}
	documented(t, "with several servers", table.String())
}
