package app

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"
)

// An answer that caches may keep says the same after every write; what would not is not kept.
func TestPinnedAnswersStay(t *testing.T) {
	p := serve(t, "--demo")
	const past, at = `"2025-04-02T00:00:00Z"`, `{"at":"2025-04-02T00:00:00Z"}`
	stay := []string{
		`{project(key: "hearth", asOf: ` + past + `) {id name tags {name} versionInfo {supersededAt isCurrent} versions {totalCount} changelog(first: 500) {nodes {path document {id}}}}}`,
		`query($at: DateTime) {a: projects(asOf: $at) {totalCount nodes {name tags {id versionInfo {isCurrent}}}} b: tag(key: "later", asOf: $at) {id}}`,
		`query($at: DateTime = ` + past + `) {project(key: "hearth", asOf: $at) {id}}`,
		`query($at: DateTime) {projects(first: 3) @include(if: false) {nodes {id}} ...F} fragment F on Query {__typename project(key: "hearth", asOf: $at) {id}}`,
	}
	change := []string{
		`{project(key: "hearth") {id name}}`, `{__typename}`, `{__schema {queryType {name}}}`,
		`query($x: DateTime) {project(key: "hearth", asOf: $x) {id name}}`,
		`{project(key: "hearth", asOf: null) {id name}}`,
		`{tag(key: "photos", version: 1) {id name}}`, `{a: project(key: "hearth", asOf: ` + past + `) {id} b: tag(key: "photos", version: 1) {name}}`,
		`{a: project(key: "hearth", asOf: ` + past + `) {id} b: project(key: "hearth") {id}}`,
		`{a: project(key: "hearth", asOf: ` + past + `) {id} ...F} fragment F on Query {projectHistory(key: "hearth") {versions {totalCount}}}`,
		`{project(key: "hearth", asOf: ` + past + `) {versionInfo {author {id name}}}}`,
		`{project(key: "hearth", asOf: "2999-01-01T00:00:00Z") {id}}`,
	}
	get := func(query string) reply {
		variables := at
		if strings.Contains(query, "$x") {
			variables = `{"x":null}`
		}
		return p.do(t, "GET", "/graphql?"+url.Values{"query": {query}, "variables": {variables}}.Encode(), "")
	}
	data := func(r reply) string {
		var body struct{ Data json.RawMessage }
		if err := json.Unmarshal([]byte(r.body), &body); err != nil {
			t.Fatal(err)
		}
		return string(body.Data)
	}
	before := map[string]string{}
	for _, query := range stay {
		r := get(query)
		if got := r.header.Get("Cache-Control"); got != "public, max-age=31536000, immutable" || strings.Contains(r.body, `"errors"`) {
			t.Errorf("%s: Cache-Control: %s\n%s", query, got, r.body)
		}
		before[query] = data(r)
	}
	for _, query := range change {
		if r := get(query); r.header.Get("Cache-Control") != "no-cache" && !strings.Contains(r.body, `"errors"`) {
			t.Errorf("%s: %v", query, r.header)
		}
	}
	for _, write := range []string{
		`createTag(input: {key: "later", data: {name: "Later", description: ""}})`,
		`restoreTag(input: {key: "photos", expectedVersion: %d, to: {version: 1}, message: "x"})`,
		`deleteTag(input: {key: "photos", expectedVersion: %d})`,
		`deleteProject(input: {key: "hearth", expectedVersion: %d})`,
	} {
		if strings.Contains(write, "%d") {
			document := "tag(key: \"photos\")"
			if strings.Contains(write, "hearth") {
				document = "project(key: \"hearth\")"
			}
			var read map[string]struct{ Version int }
			if err := json.Unmarshal([]byte(data(get("{d: "+document+" {version}}"))), &read); err != nil {
				t.Fatal(err)
			}
			write = fmt.Sprintf(write, read["d"].Version)
		}
		if r := p.query(t, "mutation {"+write+" {__typename}}"); !strings.Contains(r.body, "Success") {
			t.Fatalf("%s: %s", write, r.body)
		}
	}
	for query, want := range before {
		if got := data(get(query)); got != want {
			t.Errorf("%s\n was %s\n is  %s", query, want, got)
		}
	}
}

// A current answer has one tag as long as its data is the same, whatever the instant, also
// compressed.
func TestTagsOfAnswers(t *testing.T) {
	p := serve(t, "--demo", "--cache-past=0", "--cors-origin=http://app.example")
	path := "/graphql?query=" + url.QueryEscape(`{projects {nodes {id name description}} tag(key: "photos", version: 1) {name}}`)
	first, second := p.do(t, "GET", path, ""), p.do(t, "GET", path, "", "Accept-Encoding", "gzip")
	tag := first.header.Get("ETag")
	hash, _, _ := strings.Cut(tag, ".")
	if first.body == second.body || len(hash) != 23 || !strings.HasPrefix(second.header.Get("ETag"), hash) || !strings.HasSuffix(second.header.Get("ETag"), `-gzip"`) || second.header.Get("Content-Encoding") != "gzip" {
		t.Errorf("%v\n%v", first.header, second.header)
	}
	for encoding, want := range map[string]string{"gzip": "Origin, Accept-Encoding, Accept, Authorization", "identity": "Origin, Accept, Authorization"} {
		tag := first.header.Get("ETag")
		if encoding == "gzip" {
			tag = second.header.Get("ETag")
		}
		r := p.do(t, "GET", path, "", "If-None-Match", tag, "Accept-Encoding", encoding, "Origin", "http://app.example")
		if vary := strings.Join(r.header["Vary"], ", "); r.status != 304 || r.body != "" || r.header.Get("Content-Encoding") != "" || r.header.Get("ETag") != tag || vary != want {
			t.Errorf("%d %v", r.status, r.header)
		}
	}
	if r := p.query(t, `mutation {createProject(input: {key: "a", data: {name: "A", description: ""}}) {__typename}}`); !strings.Contains(r.body, "Success") {
		t.Fatal(r.body)
	}
	if r := p.do(t, "GET", path, "", "If-None-Match", tag); r.status != 200 || strings.HasPrefix(r.header.Get("ETag"), hash) || r.header.Get("Cache-Control") != "no-cache" {
		t.Errorf("%d %v", r.status, r.header)
	}
}
