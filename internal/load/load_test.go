package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
)

// An answer that is not what was asked for is no measurement.
func TestAnswersAreJudged(t *testing.T) {
	document := fixed{want: []byte(documentIn), times: 1}
	page := fixed{want: []byte(documentIn), times: 2}
	list := fixed{want: []byte(`"nodes":`)}
	write := func() request { return &writer{key: "a", version: 3} }
	for _, c := range []struct {
		name    string
		request request
		answer  string
		want    string // of the error; empty: it is right
	}{
		{"a document", document, `{"data":{"project":{"description":"x"}}}`, ""},
		{"none", document, `{"data":{"project":null}}`, "unexpected answer"},
		{"without a description", document, `{"data":{"project":{"description":null}}}`, "unexpected answer"},
		{"an error beside data", document, `{"errors":[],"data":{"project":{"description":"x"}}}`, "unexpected answer"},
		{"a full page", page, `{"data":[{"description":"x"},{"description":"y"}]}`, ""},
		{"a page with a hole", page, `{"data":[{"description":"x"}]}`, "1 times, want 2"},
		{"too many", page, `{"data":[{"description":"x"},{"description":"x"},{"description":"x"}]}`, "3 times, want 2"},
		{"any list", list, `{"data":{"nodes":[]}}`, ""},
		{"a page in turn", &varied{documents: 2}, `{"data":[{"description":"x"}]}`, "1 times, want 2"},
		{"an update", write(), `{"data":{"updateProject":{"changed":true,"project":{"version":4}}}}`, ""},
		{"a lost update", write(), `{"data":{"updateProject":{"project":{"version":5}}}}`, "from version 3 led to 5"},
		{"a conflict", write(), `{"data":{"updateProject":{}}}`, "from version 3: "},
		{"an update without a change", write(), `{"data":{"updateProject":{"changed":false,"project":{"version":3}}}}`, "led to 3"},
	} {
		err := c.request.check([]byte(c.answer))
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// What drive counts is what the server was asked, and a wrong answer fails it.
func TestDrive(t *testing.T) {
	asked := make(chan struct{}, 1<<20)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		_, _ = fmt.Fprint(w, `{"data":{"description":"x"}}`)
	}))
	defer server.Close()
	m, err := drive(server.URL, repeat(3, fixed{want: []byte(documentIn), times: 1}), 50*time.Millisecond)
	if err != nil || m.Requests != len(asked) || m.Requests < 1 || m.PerSecond <= 0 || m.P50Micros > m.P99Micros || m.BytesPerOp != 28 {
		t.Errorf("%+v, %v; the server was asked %d times", m, err, len(asked))
	}
	if _, err := drive(server.URL, append(repeat(2, fixed{want: []byte(documentIn)}), fixed{want: []byte("y")}), 500*time.Millisecond); err == nil {
		t.Error("a wrong answer to one of three clients was counted")
	}
}

// A ratio is one of the same round; the median round counts.
func TestSummarize(t *testing.T) {
	rounds := []map[string]measurement{
		{"a": {PerSecond: 10}, "b": {PerSecond: 100}},
		{"a": {PerSecond: 90}, "b": {PerSecond: 100}},
		{"a": {PerSecond: 20}, "b": {PerSecond: 40}},
	}
	r := summarize("a", "b", 0.4, rounds)
	if r.Ratio != 0.5 || r.Least != 0.1 || r.Most != 0.9 || r.Median.PerSecond != 20 || r.Target != "at least 0.4" || r.Against != "b" {
		t.Errorf("%+v, median %+v", r, *r.Median)
	}
	if r := summarize("b", "", 0, rounds); r.Ratio != 0 || r.Target != "" || r.Median.PerSecond != 100 {
		t.Errorf("%+v", r)
	}
}

// The batches of the server are told by its counters, and never guessed.
func TestBatches(t *testing.T) {
	const both = "# TYPE asof_store_writes_total counter\nasof_store_writes_total 320\nasof_store_commits_total 40\nasof_store_writes_total_other 7\n"
	for text, fails := range map[string]bool{both: false, "asof_store_writes_total 320\n": true, strings.ReplaceAll(both, "320", "many"): true} {
		at := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/metrics" {
				w.WriteHeader(http.StatusNotFound)
			}
			_, _ = fmt.Fprint(w, text)
		}))
		writes, commits, err := batches(at.URL + "/graphql")
		at.Close()
		if (err != nil) != fails || !fails && (writes != 320 || commits != 40) {
			t.Errorf("%q: %v writes in %v transactions, %v", text, writes, commits, err)
		}
	}
	none := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {}))
	defer none.Close()
	if writes, commits, err := batches(none.URL + "/graphql"); writes != 0 || commits != 0 || err != nil {
		t.Errorf("before the first write: %v writes in %v transactions, %v", writes, commits, err)
	}
	missing := httptest.NewServer(http.NotFoundHandler())
	defer missing.Close()
	if _, _, err := batches(missing.URL + "/graphql"); err == nil {
		t.Error("a server without counters told its batches")
	}
}

// fewer are lengths of the same documents that are soon written.
func fewer() map[string]int {
	lengths := maps.Clone(fixedLengths)
	for id := range lengths {
		lengths[id] = 2 + lengths[id]/100
	}
	return lengths
}

// The catalogue has the lengths that are said, in the order of time, and its
// moments lie within.
func TestDataset(t *testing.T) {
	for _, each := range []int{2, 4} {
		t.Run(fmt.Sprint(each), func(t *testing.T) { testDataset(t, each) })
	}
}

func testDataset(t *testing.T, each int) {
	var one, two bytes.Buffer
	lengths := fewer()
	when, err := writeDataset(&one, 5, each, lengths, 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := writeDataset(&two, 5, each, lengths, 1); err != nil || !bytes.Equal(one.Bytes(), two.Bytes()) {
		t.Errorf("the same seed gave other bytes (%v)", err)
	}
	versions, before := map[string]int{}, map[string]int{}
	last := time.Time{}
	lines := json.NewDecoder(&one)
	for lines.More() {
		var e event
		if err := lines.Decode(&e); err != nil {
			t.Fatal(err)
		}
		if !e.At.After(last) {
			t.Fatalf("%s of %s is not after %s", e.At, e.ID, last)
		}
		last = e.At
		if e.Collection != "software" {
			continue
		}
		versions[e.ID]++
		at, fixed := when.fixed[e.ID]
		if !fixed {
			at = when.page
		}
		if !e.At.After(at) {
			before[e.ID]++
		}
	}
	want := maps.Clone(lengths)
	for i := range 5 {
		want[fmt.Sprintf("project-%04d", i)] = each
	}
	if !maps.Equal(versions, want) {
		t.Errorf("versions %v, want %v", versions, want)
	}
	for id, n := range want {
		if before[id] != n/2 {
			t.Errorf("%s has %d versions at its moment, want %d", id, before[id], n/2)
		}
	}
	for _, s := range []stretch{when.pages, when.longest} {
		for _, text := range s.random(100, 1) {
			if at, err := time.Parse(time.RFC3339, text); err != nil || at.Before(s.first) || at.After(s.last) {
				t.Errorf("%s is not in %v: %v", text, s, err)
			}
		}
	}
}

// The bare loops do all of the work: every line, also a last one without its
// end, and every document that fits.
func TestBareLoops(t *testing.T) {
	const lines = `{"collection":"software","id":"a","at":"2024-01-01T00:00:00Z","op":"put","data":{"description":"old music"}}
{"collection":"software","id":"a","at":"2024-01-02T00:00:00Z","op":"put","data":{"description":"no more"}}
{"collection":"software","id":"b","at":"2024-01-03T00:00:00Z","op":"put","data":{"description":"music"}}
{"collection":"software","id":"c","at":"2024-01-04T00:00:00Z","op":"put","data":{"description":"music"}}
{"collection":"software","id":"c","at":"2024-01-05T00:00:00Z","op":"delete"}
{"collection":"tags","id":"d","at":"2024-01-06T00:00:00Z","op":"put","data":{"description":"music"}}
{"collection":"software","id":"e","at":"2024-01-07T00:00:00Z","op":"put","data":{"description":"the music"}}`
	writer, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	zipped := writer.EncodeAll([]byte(lines+"\n"), nil)
	for name, content := range map[string][]byte{"events.ndjson": []byte(lines), "events.ndjson.zst": zipped} {
		dir := t.TempDir()
		events := filepath.Join(dir, name)
		if err := os.WriteFile(events, content, 0o600); err != nil {
			t.Fatal(err)
		}
		if n, err := bareImport(events, filepath.Join(dir, "bare.db")); n != 7 || err != nil {
			t.Errorf("%s: %d lines imported, want 7: %v", name, n, err)
		}
		took, found, err := bareScan(events, dir, "music")
		if err != nil || took <= 0 || found != 2 {
			t.Errorf("%s: %d found in %v, want 2: %v", name, found, took, err)
		}
	}
}

// Every ratio that is printed is of two scenarios that are run.
func TestScenariosExist(t *testing.T) {
	when, err := writeDataset(new(bytes.Buffer), 4, 2, fewer(), 1)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	list := append(scenarios(2, when), anyScenarios(2, when)...)
	for _, s := range list {
		if slices.Contains(names, s.Name) || len(s.Clients) == 0 {
			t.Errorf("%s: %d clients, or there twice", s.Name, len(s.Clients))
		}
		names = append(names, s.Name)
	}
	for _, s := range append(list, comparisons...) {
		if !slices.Contains(names, s.Name) || s.Against != "" && !slices.Contains(names, s.Against) {
			t.Errorf("%s against %s: there is no such scenario", s.Name, s.Against)
		}
	}
}
