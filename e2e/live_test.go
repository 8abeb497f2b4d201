package e2e

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
)

// follower is a client of a subscription that goes on behind its last event after each loss of
// the server.
type follower struct {
	field string // of the subscription, with its arguments but since
	since map[string]string
	told  []string
	done  bool // it was told of the document "end"
}

// follow receives events until the stream ends, or the last one comes, or so many have.
func (f *follower) follow(url string, most int) error {
	body, err := json.Marshal(map[string]any{
		"query":     "subscription ($since: Since) {e: " + f.field + " {kind key versionInfo {number} document {version}}}",
		"variables": map[string]any{"since": f.since},
	})
	if err != nil {
		return err
	}
	request, err := http.NewRequest(http.MethodPost, url+"/graphql", bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "text/event-stream")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil //nolint:nilerror // the server was killed
	}
	defer func() { _ = response.Body.Close() }()
	for lines := bufio.NewScanner(response.Body); lines.Scan() && most > 0; {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		var a struct {
			Data struct {
				E *struct {
					Kind, Key   string
					VersionInfo struct{ Number int }
					Document    *struct{ Version int }
				}
			}
			Extensions struct{ Position string }
			Errors     []struct {
				Extensions struct{ Code, Position string }
			}
		}
		err := json.Unmarshal([]byte(data), &a)
		if len(a.Errors) > 0 && a.Errors[0].Extensions.Code == "TOO_SLOW" { // there is much to tell
			f.since = map[string]string{"position": a.Errors[0].Extensions.Position}
			return f.follow(url, most)
		}
		if err != nil || a.Data.E == nil {
			return fmt.Errorf("after %d events: %s", len(f.told), data)
		}
		e := a.Data.E
		if e.Document != nil && e.Document.Version != e.VersionInfo.Number {
			return fmt.Errorf("the document of another version: %s", data)
		}
		f.told = append(f.told, fmt.Sprintf("%s %s@%d", e.Kind, e.Key, e.VersionInfo.Number))
		f.since = map[string]string{"position": a.Extensions.Position}
		most--
		if f.done = e.Key == "end"; f.done {
			return nil
		}
	}
	return nil
}

// wanted are the events of an export: of all tags, and of the list of those with the
// description "in".
func wanted(t *testing.T, export string) (all, list []string) {
	t.Helper()
	type version struct {
		At, ID, Op string
		Data       struct{ Description string }
		number     int
	}
	var versions []version
	numbers, in, there := map[string]int{}, map[string]bool{}, map[string]bool{}
	for line := range strings.Lines(export) {
		var v version
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Fatal(err)
		}
		numbers[v.ID]++
		v.number = numbers[v.ID]
		versions = append(versions, v)
	}
	slices.SortStableFunc(versions, func(a, b version) int { // a Z sorts behind a digit
		return cmp.Or(cmp.Compare(strings.TrimSuffix(a.At, "Z"), strings.TrimSuffix(b.At, "Z")), cmp.Compare(a.ID, b.ID), cmp.Compare(a.number, b.number))
	})
	kind := func(before, after bool) string {
		switch {
		case before && after:
			return "CHANGED"
		case before:
			return "LEFT"
		case after:
			return "ENTERED"
		}
		return ""
	}
	for _, v := range versions {
		exists, member := v.Op != "delete", v.Op != "delete" && v.Data.Description == "in"
		all = append(all, fmt.Sprintf("%s %s@%d", kind(there[v.ID], exists), v.ID, v.number))
		if k := kind(in[v.ID], member); k != "" {
			list = append(list, fmt.Sprintf("%s %s@%d", k, v.ID, v.number))
		}
		there[v.ID], in[v.ID] = exists, member
	}
	return all, list
}

// Whatever is written beside, and though the server is killed again and again, each subscriber
// is told each version once, in the order of commits, and what it did to the list.
func TestSubscriptionsResume(t *testing.T) {
	t.Parallel()
	for _, e := range []struct {
		name  string
		store func(*testing.T) string
	}{
		{"sqlite", func(t *testing.T) string { return "sqlite:" + filepath.Join(t.TempDir(), "live.db") }},
		{"mongodb", func(t *testing.T) string { return mongoDatabase(t, t.Cleanup) }},
	} {
		t.Run(e.name, func(t *testing.T) { resumeSubscriptions(t, e.store(t)) })
	}
}

func resumeSubscriptions(t *testing.T, store string) {
	const lives, writers, writes = 4, 3, 25
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	var followers []*follower
	for range 3 {
		for _, field := range []string{`changes(since: $since)`, `tagsChanged(where: {description: {eq: "in"}}, since: $since)`} {
			followers = append(followers, &follower{field: field, since: map[string]string{"asOf": "2020-01-01T00:00:00Z"}})
		}
	}
	for life := range lives {
		last := life == lives-1
		s := startServer(t, program, store)
		var writing, following sync.WaitGroup
		for i, f := range followers {
			following.Go(func() {
				random := rand.New(rand.NewPCG(seed, uint64(life*100+i)))
				for !f.done {
					before := len(f.told)
					if err := f.follow(s.url, 1+random.IntN(40)); err != nil {
						t.Error(err)
						return
					}
					if len(f.told) == before { // the server is gone
						return
					}
				}
			})
		}
		var written atomic.Int64
		most := make(chan struct{})
		for w := range writers {
			writing.Go(func() {
				random := rand.New(rand.NewPCG(seed, uint64(life*100+50+w)))
				for range writes {
					write(s, fmt.Sprintf("w%d-%d", w, random.IntN(4)), random)
					if written.Add(1) == writers*writes*3/4 {
						close(most)
					}
				}
			})
		}
		<-most
		if !last {
			s.kill(t)
		}
		writing.Wait()
		if !last {
			following.Wait()
			continue
		}
		write(s, "end", nil)
		following.Wait()
		s.kill(t)
	}
	all, list := wanted(t, export(t, store))
	t.Logf("%d events, %d of the list", len(all), len(list))
	for i, f := range followers {
		want := all
		if i%2 == 1 {
			want = list
		}
		if diff := gocmp.Diff(want, f.told); diff != "" {
			t.Errorf("subscriber %d of %s, of %d events (-want +told):\n%.3000s", i, f.field, len(want), diff)
		}
	}
}

// write changes a tag at random, whether it exists or not: what fails is not written.
func write(s *server, key string, random *rand.Rand) {
	data := `{name: "N", description: "in"}`
	mutation := `createTag(input: {key: "` + key + `", data: ` + data + `}) {__typename}`
	if random != nil {
		data = fmt.Sprintf(`{name: "N%d", description: %q}`, random.IntN(1000), []string{"in", "out"}[random.IntN(2)])
		mutation = strings.Replace(mutation, `"N", description: "in"`, data[7:len(data)-1], 1)
		version := 1 + random.IntN(12)
		switch random.IntN(4) {
		case 0:
			mutation = fmt.Sprintf(`deleteTag(input: {key: %q, expectedVersion: %d}) {__typename}`, key, version)
		case 1, 2:
			mutation = fmt.Sprintf(`updateTag(input: {key: %q, expectedVersion: %d, onConflict: MERGE, patch: %s}) {__typename}`, key, version, data)
		}
	}
	body, _ := json.Marshal(map[string]string{"query": "mutation {" + mutation + "}"})
	if response, err := http.Post(s.url+"/graphql", "application/json", bytes.NewReader(body)); err == nil {
		_ = response.Body.Close()
	}
}
