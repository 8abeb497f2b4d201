package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"time"
)

// event is one line of the import format.
type event struct {
	Collection string         `json:"collection"`
	ID         string         `json:"id"`
	At         time.Time      `json:"at"`
	By         string         `json:"by"`
	Message    string         `json:"message"`
	Op         string         `json:"op"`
	Data       map[string]any `json:"data,omitempty"`
}

// The documents with a history of a known length, beside the random ones.
var fixedLengths = map[string]int{"ten": 10, "fourteen-hundred": 1400, "ten-thousand": 10_000, "hundred-thousand": 100_000}

// moments are instants worth reading at.
type moments struct {
	page  time.Time
	fixed map[string]time.Time
	// The histories of the random documents, and of the longest fixed one.
	pages, longest stretch
	projects       int
}

// stretch is a time from its first instant to its last.
type stretch struct{ first, last time.Time }

// random returns instants within, to the second.
func (s stretch) random(n int, seed uint64) []string {
	source := rand.New(rand.NewPCG(seed, 1))
	list := make([]string, n)
	for i := range list {
		list[i] = s.first.Add(time.Duration(source.Int64N(int64(s.last.Sub(s.first))))).Format(time.RFC3339)
	}
	return list
}

// writeDataset writes an invented catalogue in the import format: projects with
// about perProject versions each, with their tags, licenses and platforms, and
// the documents that lengths names, which are those of fixedLengths. The same seed gives the same bytes.
//
// It returns an instant in the middle of the random histories, and one in the
// middle of each fixed one, and how far they reach.
func writeDataset(w io.Writer, projects, perProject int, lengths map[string]int, seed uint64) (moments, error) {
	random := rand.New(rand.NewPCG(seed, 0))
	when := moments{fixed: map[string]time.Time{}, projects: projects}
	out := json.NewEncoder(w)
	out.SetEscapeHTML(false)
	at := time.Date(2022, 1, 1, 0, 0, 0, 0, time.UTC)
	put := func(collection, id string, data map[string]any) error {
		at = at.Add(time.Second)
		return out.Encode(event{Collection: collection, ID: id, At: at, By: people[random.IntN(len(people))], Message: "update", Op: "put", Data: data})
	}
	for i := range 60 {
		name := fmt.Sprintf("Tag %02d", i)
		if err := put("tags", name, map[string]any{"name": name, "description": "Everything that belongs to " + name}); err != nil {
			return when, err
		}
	}
	for i := range 20 {
		name := fmt.Sprintf("License-%d.0", i)
		if err := put("licenses", name, map[string]any{"identifier": name, "name": name, "url": "https://licenses.example.org/" + name}); err != nil {
			return when, err
		}
		name = fmt.Sprintf("Platform %d", i)
		if err := put("platforms", name, map[string]any{"name": name, "description": ""}); err != nil {
			return when, err
		}
	}
	state := make([]map[string]any, projects)
	for i := range state {
		state[i] = project(fmt.Sprintf("project-%04d", i), random)
	}
	for n := range perProject {
		if n == 1 {
			when.pages.first = at
		}
		if n == perProject/2 {
			when.page = at
		}
		for i, data := range state {
			step(data, random)
			if err := put("software", fmt.Sprintf("project-%04d", i), data); err != nil {
				return when, err
			}
		}
	}
	when.pages.last = at
	for _, id := range []string{"ten", "fourteen-hundred", "ten-thousand", "hundred-thousand"} {
		when.longest.first = at.Add(time.Second)
		data := project(id, random)
		for n := range lengths[id] {
			if n == lengths[id]/2 {
				when.fixed[id] = at
			}
			step(data, random)
			if err := put("software", id, data); err != nil {
				return when, err
			}
		}
		when.longest.last = at
	}
	return when, nil
}

var people = []string{"ada", "bruno", "chen", "dora", "emeka", "sync-bot"}

func project(id string, random *rand.Rand) map[string]any {
	tag := func() string { return fmt.Sprintf("Tag %02d", random.IntN(60)) }
	return map[string]any{
		"name":             "Project " + id,
		"description":      "Minimalist storage service with synchronisation and sharing abilities, number " + fmt.Sprint(random.IntN(1000)),
		"website_url":      "https://" + id + ".example.org/",
		"source_code_url":  "https://code.example.org/" + id,
		"licenses":         []string{fmt.Sprintf("License-%d.0", random.IntN(20))},
		"platforms":        []string{fmt.Sprintf("Platform %d", random.IntN(20))},
		"tags":             []string{tag(), tag()},
		"stargazers_count": random.IntN(50_000),
		"updated_at":       "2022-01-01",
		"archived":         false,
		"current_release":  map[string]any{"tag": "1.0.0", "published_at": "2022-01-01"},
		"commit_history":   map[string]any{"2022-01": random.IntN(90), "2022-02": random.IntN(90), "2022-03": random.IntN(90)},
	}
}

// step is one edit: the star count always moves, other fields now and then.
func step(data map[string]any, random *rand.Rand) {
	data["stargazers_count"] = max(0, data["stargazers_count"].(int)+random.IntN(41)-15)
	if random.IntN(4) == 0 {
		data["updated_at"] = fmt.Sprintf("20%02d-%02d-%02d", 22+random.IntN(4), 1+random.IntN(12), 1+random.IntN(28))
	}
	if random.IntN(20) == 0 {
		data["tags"] = []string{fmt.Sprintf("Tag %02d", random.IntN(60)), fmt.Sprintf("Tag %02d", random.IntN(60))}
	}
}

// writeDatasetFile writes the dataset to a file.
func writeDatasetFile(path string, projects, perProject int, lengths map[string]int, seed uint64) (moments, error) {
	f, err := os.Create(path)
	if err != nil {
		return moments{}, err
	}
	buffered := bufio.NewWriterSize(f, 1<<20)
	when, err := writeDataset(buffered, projects, perProject, lengths, seed)
	return when, errors.Join(err, buffered.Flush(), f.Close())
}
