package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/asof/asof/storage/mongostore/mongotest"
)

// Servers that are killed while they prune, and others write, leave every version exact or told to
// be pruned, and what has to be kept; the store is sound, and who prunes again completes it.
func TestPruningKilled(t *testing.T) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) { killPruning(t, "sqlite:"+filepath.Join(t.TempDir(), "prune.db"), 1, 3) })
	t.Run("mongodb", func(t *testing.T) {
		transactions := mongotest.NewTransactions(t, mongotest.NewServer(t))
		_, uri := transactions.Behind(t)
		killPruning(t, uri, 2, 2)
	})
}

const (
	prunedKeys, prunedEach = 20, 60 // documents, and versions of each at the beginning
	prunedKept             = 2      // of each, see the schema
)

// killPruning kills so many servers that prune at once, again and again.
func killPruning(t *testing.T, store string, servers, kills int) {
	var history strings.Builder
	for n := range prunedEach {
		for k := range prunedKeys {
			fmt.Fprintf(&history, `{"collection":"readings","id":"k%d","at":"2020-01-01T%02d:%02d:%02dZ","by":"ann","op":"put","data":{"value":%d}}`+"\n", k, n/60, n%60, k, n+1)
		}
	}
	feed(t, store, history.String())
	random := rand.New(rand.NewPCG(5, 5))
	for range kills {
		t.Run("", func(t *testing.T) {
			running := make([]*server, servers)
			for i := range running {
				running[i] = startServer(t, program, store, "--prune-rate=2000")
			}
			var writers sync.WaitGroup
			for _, s := range running {
				first, writes := random.IntN(prunedKeys), random.IntN(30)
				writers.Go(func() {
					for i := range writes {
						k := (first + 7*i) % prunedKeys
						body, _ := json.Marshal(map[string]any{"query": fmt.Sprintf(`mutation { updateReading(input: {key: "k%d", expectedVersion: %d, patch: {value: %d}}) { __typename } }`, k, prunedEach, prunedEach+1)})
						if resp, err := http.Post(s.url+"/graphql", "application/json", bytes.NewReader(body)); err == nil {
							_ = resp.Body.Close()
						}
					}
				})
			}
			writers.Wait()
			for _, s := range running {
				s.kill(t)
			}
		})
		t.Run("", func(t *testing.T) {
			s := startServer(t, program, store, "--prune-rate=0")
			lost := 0
			for k := range prunedKeys {
				lost += checkPruned(t, s, k, false)
			}
			t.Logf("%d versions are pruned", lost)
		})
		if run(t, program, "check", "--store", store); t.Failed() {
			return
		}
	}
	run(t, program, "prune", "--store", store)
	t.Run("", func(t *testing.T) {
		s := startServer(t, program, store, "--prune-rate=0")
		for k := range prunedKeys {
			checkPruned(t, s, k, true)
		}
	})
	if said := run(t, program, "prune", "--dry-run", "--store", store); !strings.Contains(said, "0 versions of 0 documents") {
		t.Error(said)
	}
	run(t, program, "check", "--store", store)
}

// checkPruned reads a document in all its versions, and as of their times, and returns how many are
// pruned. Where all that is due has been, it wants those, and no others.
func checkPruned(t *testing.T, s *server, k int, all bool) (lost int) {
	t.Helper()
	last := read[struct{ Version int }](t, s, fmt.Sprintf(`{ reading(key: "k%d") { version } }`, k), nil).Version
	data, refused := make(map[string]string), make(map[string]bool)
	const each = 20 // of one request
	for from := 1; from <= last; from += each {
		var query strings.Builder
		for n := from; n < from+each && n <= last; n++ {
			fmt.Fprintf(&query, `n%d: reading(key: "k%d", version: %[1]d) { value } `, n, k)
			if n <= prunedEach {
				fmt.Fprintf(&query, `at%d: reading(key: "k%d", asOf: "2020-01-01T%02d:%02d:%02[2]dZ") { value } `, n, k, (n-1)/60, (n-1)%60)
			}
		}
		a := s.ask(t, "{"+query.String()+"}", nil)
		for _, e := range a.Errors {
			if e.Extensions.Code != "HISTORY_PRUNED" {
				t.Fatalf("k%d: %s", k, e.Message)
			}
			refused[fmt.Sprint(e.Path...)] = true
		}
		for field, value := range a.Data {
			data[field] = string(value)
		}
	}
	for n := 1; n <= last; n++ {
		pruned, exact := refused[fmt.Sprint("n", n)], fmt.Sprintf(`{"value":%d}`, n)
		for _, name := range []string{"n", "at"} {
			field := fmt.Sprint(name, n)
			if name == "at" && n > prunedEach {
				continue
			}
			if text := data[field]; refused[field] != pruned || pruned != (text == "null") || !pruned && text != exact {
				t.Fatalf("k%d, %s: %s, refused: %t", k, field, text, refused[field])
			}
		}
		if pruned {
			lost++
		}
		due := n <= prunedEach-prunedKept // the others were there until now, or are
		if pruned && !due || all && due && !pruned {
			t.Fatalf("k%d, version %d of %d is pruned: %t", k, n, last, pruned)
		}
	}
	return lost
}
