package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/asof/asof/storage/mongostore/mongotest"
)

// A server that is killed in the middle of commits of several documents leaves each commit whole
// or not at all, and those that it acknowledged; and there is an order of all that clients asked,
// with one instant for each commit, which explains what they were answered.
func TestCommitsKilled(t *testing.T) {
	t.Parallel()
	kills := 40
	if os.Getenv("ASOF_TEST_FULL") != "" {
		kills = 500
	}
	t.Run("sqlite", func(t *testing.T) { killCommits(t, "sqlite:"+filepath.Join(t.TempDir(), "commits.db"), kills) })
	t.Run("mongodb", func(t *testing.T) {
		transactions := mongotest.NewTransactions(t, mongotest.NewServer(t))
		transactions.Lifetime = 3 * time.Second // those of a server that was killed
		_, uri := transactions.Behind(t)
		killCommits(t, uri, kills/20) // after each the next server waits for some seconds
	})
}

func killCommits(t *testing.T, store string, kills int) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	h := &commitHistory{}
	for round := range kills {
		t.Run("", func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, uint64(round)))
			s := startServer(t, program, store)
			if round == 0 {
				for _, key := range commitKeys {
					s.text(t, `mutation { createPlatform(input: { key: "`+key+`", data: { name: "A", description: "B" } }) { __typename } }`, nil)
				}
			}
			made := make(chan bool)
			var clients sync.WaitGroup
			for client := range 4 {
				clients.Go(func() { h.use(t, s.url, rand.New(rand.NewPCG(seed, uint64(1000*round+client))), made) })
			}
			for range 1 + random.IntN(12) {
				<-made
			}
			s.kill(t)
			go func() {
				for range made {
				}
			}()
			clients.Wait()
			close(made)
			h.end()
		})
	}
	if !t.Failed() {
		h.check(t, run(t, program, "export", "--store", store, "-"))
	}
}

var commitKeys = [...]string{"a", "b", "c"}

// versions are those of the documents; 0: it is not there, or not meant.
type versions [len(commitKeys)]int

// commitCall is a call of a client and what it was answered.
type commitCall struct {
	name         string   // of a commit: the description that it gives to documents; "": a read
	expected     versions // of the commit
	changed      [len(commitKeys)]bool
	began, ended int64 // ended 0: there was no answer
	success      bool
	lost         [len(commitKeys)]bool // the documents in conflict
	read         versions
}

// commitHistory is all calls, with a clock that ticks with each beginning and end.
type commitHistory struct {
	mu    sync.Mutex
	tick  int64
	calls []*commitCall
}

func (h *commitHistory) begin(c *commitCall) *commitCall {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tick++
	c.began = h.tick
	if h.calls = append(h.calls, c); c.name != "" {
		c.name = fmt.Sprint("commit ", h.tick)
	}
	return c
}

func (h *commitHistory) returned(c *commitCall) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tick++
	c.ended = h.tick
}

// end ends the calls of a server that is dead.
func (h *commitHistory) end() {
	for _, c := range h.calls {
		if c.ended == 0 {
			h.returned(c)
		}
	}
}

// use reads and commits until the server is gone; made gets a value for each commit.
func (h *commitHistory) use(t *testing.T, url string, random *rand.Rand, made chan<- bool) {
	var known versions
	for {
		if known == (versions{}) || random.IntN(4) == 0 {
			c := h.begin(&commitCall{})
			var found map[string]struct{ Version int }
			if !commitRequest(t, url, `{ a: platform(key: "a") { version } b: platform(key: "b") { version } c: platform(key: "c") { version } }`, nil, &found) {
				return
			}
			for i, key := range commitKeys {
				c.read[i] = found[key].Version
			}
			known = c.read
			h.returned(c)
			continue
		}
		c := &commitCall{name: "yes"}
		var changes []any
		for _, i := range random.Perm(len(commitKeys))[:2+random.IntN(2)] {
			c.expected[i], c.changed[i] = known[i], len(changes) == 0 || random.IntN(4) > 0
		}
		h.begin(c)
		for i, key := range commitKeys {
			if c.expected[i] > 0 {
				patch := map[string]any{} // of nothing: the document only has to be at the version
				if c.changed[i] {
					patch["description"] = c.name + strings.Repeat(" .", 1000)
				}
				changes = append(changes, map[string]any{"updatePlatform": map[string]any{"key": key, "expectedVersion": c.expected[i], "patch": patch}})
			}
		}
		var answer struct {
			Commit struct {
				Changed   *bool
				Conflicts []struct {
					Key           string
					ActualVersion int
				}
			}
		}
		if !commitRequest(t, url, `mutation($changes: [ChangeInput!]!) { commit(input: {changes: $changes}) {
			... on CommitSuccess { changed } ... on CommitConflict { conflicts { key actualVersion } } } }`, map[string]any{"changes": changes}, &answer) {
			return
		}
		c.success = answer.Commit.Changed != nil
		for _, k := range answer.Commit.Conflicts {
			i := slices.Index(commitKeys[:], k.Key)
			c.lost[i], known[i] = true, k.ActualVersion
		}
		h.returned(c)
		if c.success {
			for i, changed := range c.changed {
				if changed {
					known[i]++
				}
			}
			made <- true
		}
	}
}

// commitRequest sends a request that has no errors; false where the server is gone.
func commitRequest(t *testing.T, url, query string, variables map[string]any, data any) bool {
	body, err := json.Marshal(map[string]any{"query": query, "variables": variables})
	if err != nil {
		t.Error(err)
		return false
	}
	resp, err := http.Post(url+"/graphql", "application/json", bytes.NewReader(body))
	if err != nil {
		return false
	}
	text, err := io.ReadAll(resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		return false
	}
	answer := struct {
		Data   any
		Errors []any
	}{Data: data}
	if err := json.Unmarshal(text, &answer); err != nil || len(answer.Errors) > 0 {
		t.Errorf("%v: %s", err, text)
		return false
	}
	return true
}

// check compares the history with what the store holds in the end.
func (h *commitHistory) check(t *testing.T, export string) {
	type line struct {
		ID, At, Source string
		Data           struct{ Description string }
	}
	there := map[string][]line{}
	for text := range strings.Lines(export) {
		var v line
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			t.Fatal(err)
		}
		name := strings.TrimRight(v.Data.Description, " .")
		there[name] = append(there[name], v)
	}
	var operations []porcupine.Operation
	made, unanswered, lost := 0, 0, 0
	final := &commitCall{began: h.tick + 1, ended: h.tick + 2}
	for _, vs := range there {
		for _, v := range vs {
			final.read[slices.Index(commitKeys[:], v.ID)]++
		}
	}
	for _, c := range append(h.calls, final) {
		vs := there[c.name]
		answered := c.success || c.lost != [len(commitKeys)]bool{} || c.read != versions{}
		switch {
		case c.name == "" && !answered:
			continue // a read without an answer
		case c.name == "":
		case len(vs) == 0 && c.success:
			t.Errorf("%s was acknowledged, and is not there", c.name)
		case len(vs) == 0 && !answered:
			continue // it was not made
		case len(vs) == 0:
			lost++
		default:
			keys := map[string]bool{}
			for _, v := range vs {
				keys[v.ID] = true
				if v.At != vs[0].At || v.Source != vs[0].Source {
					t.Errorf("%s was made at %s and at %s, in the groups %s and %s", c.name, vs[0].At, v.At, vs[0].Source, v.Source)
				}
			}
			for i, key := range commitKeys {
				if keys[key] != c.changed[i] || len(keys) != len(vs) {
					t.Errorf("%s has made %d versions, of %v", c.name, len(vs), keys)
				}
			}
			if !answered {
				unanswered++
			}
			c.success = true
			made++
		}
		operations = append(operations, porcupine.Operation{Input: c, Call: c.began, Return: c.ended})
	}
	model := porcupine.Model{
		Init: func() any { return versions{1, 1, 1} },
		Step: func(state, input, _ any) (bool, any) { return input.(*commitCall).step(state.(versions)) },
	}
	if got := porcupine.CheckOperationsTimeout(model, operations, time.Minute); got != porcupine.Ok {
		t.Errorf("an order of the %d calls that explains their answers: %s", len(operations), got)
	}
	t.Logf("%d commits were made, %d of them without an answer, and %d were in conflict", made, unanswered, lost)
	if made == 0 || lost == 0 {
		t.Error("no commits, or no conflicts")
	}
}

// step says whether a call could be answered so where the documents are at these versions, and
// which it leaves.
func (c *commitCall) step(now versions) (bool, versions) {
	if c.name == "" {
		return c.read == now, now
	}
	next := now
	for i, expected := range c.expected {
		if expected > 0 && c.lost[i] == (expected == now[i]) {
			return false, now
		}
		if c.changed[i] && c.success {
			next[i]++
		}
	}
	return true, next
}
