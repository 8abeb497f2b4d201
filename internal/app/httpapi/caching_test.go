package httpapi

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/99designs/gqlgen/graphql"
)

func TestCaching(t *testing.T) {
	s := newServer(t, func(cfg *Config, _ *fakeSchema) {
		cfg.CachePast = time.Hour
		cfg.Pinned = func(oc *graphql.OperationContext) bool { return oc.OperationName == "Past" }
	})
	get := func(query, name string, header ...string) answer {
		return s.do(t, "GET", "/?"+url.Values{"query": {query}, "operationName": {name}}.Encode(), "", header...)
	}
	for _, c := range []struct {
		query, name, policy string
		header              []string
	}{
		{`query Past {hello}`, "Past", "public, max-age=3600, immutable", nil},
		{`query Past {hello}`, "Past", "private, max-age=3600, immutable", []string{"Authorization", "Bearer x"}},
		{`query Now {hello}`, "Now", "no-cache", nil},
		{`query Now {hello}`, "Now", "private, no-cache", []string{"Authorization", "Bearer x"}},
	} {
		a := get(c.query, c.name, c.header...)
		a.want(t, 200, ok)
		tag := a.header.Get("ETag")
		if got := a.header.Get("Cache-Control"); got != c.policy || !strings.HasSuffix(tag, `.2026-01-02T03:04:05Z"`) || a.header.Get("Vary") != "Accept, Authorization" {
			t.Errorf("%s %v: %v, want %s", c.name, c.header, a.header, c.policy)
		}
		earlier := strings.Replace(tag, "2026", "2025", 1) // of another instant
		for given, want := range map[string]string{
			tag: tag, earlier: earlier, "W/" + earlier: "W/" + earlier, `"a", ` + earlier: earlier, strings.Trim(tag, `"`) + `-gzip"`: "",
			strings.TrimSuffix(tag, `"`) + `-gzip"`: strings.TrimSuffix(tag, `"`) + `-gzip"`, "*": tag, `"a"`: "", tag[:10] + `"`: "", "": "",
		} {
			again, status := get(c.query, c.name, append(c.header, "If-None-Match", given)...), http.StatusNotModified
			if want == "" {
				want, status = tag, http.StatusOK
			}
			if again.status != status || again.header.Get("ETag") != want || again.header.Get("Cache-Control") != c.policy {
				t.Errorf("If-None-Match: %s: %d %v, want %d", given, again.status, again.header, status)
			}
			if status == http.StatusNotModified && (again.text != "" || again.header.Get("Content-Type") != "") {
				t.Errorf("304 with a body: %v %q", again.header, again.text)
			}
		}
	}
	if a, b := get(`{hello}`, ""), get(`{other: hello}`, ""); a.header.Get("ETag") == b.header.Get("ETag") {
		t.Errorf("one tag for two answers: %v", a.header)
	}
	for name, a := range map[string]answer{
		"POST":            s.query(t, `query Past {hello}`),
		"an error":        get(`{fail}`, ""),
		"a wrong query":   get(`{nothing}`, ""),
		"a mutation":      get(`mutation {change}`, ""),
		"another accept":  get(`{hello}`, "", "Accept", "text/event-stream"),
		"no such query":   s.do(t, "GET", "/?documentId=x", ""),
		"a refused GET":   get(`{hello}`, "", "Sec-Fetch-Site", "cross-site"),
		"a failing panic": get(`{panics}`, ""),
	} {
		if got := a.header.Get("Cache-Control"); got != "no-store" && got != "no-cache" || a.header["Etag"] != nil {
			t.Errorf("%s: %v", name, a.header)
		}
	}
	off := newServer(t, func(cfg *Config, _ *fakeSchema) {
		cfg.Pinned = func(*graphql.OperationContext) bool { return true }
	})
	if a := off.do(t, "GET", "/?query={hello}", ""); a.header.Get("Cache-Control") != "no-cache" {
		t.Errorf("%v", a.header)
	}
}
