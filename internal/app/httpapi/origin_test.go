package httpapi

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
)

func TestCheckOrigin(t *testing.T) {
	for origin, want := range map[string]string{
		"https://app.example.org":      "",
		"http://localhost:5173":        "",
		"http://[::1]:3000":            "",
		"https://example.org:80":       "",
		"http://localhost:5173/":       "write http://localhost:5173",
		"http://[::1]:3000/":           "write http://[::1]:3000",
		"http://localhost:5173/app":    "write http://localhost:5173",
		"https://example.org?x":        "write https://example.org",
		"https://example.org?":         "write https://example.org",
		"https://example.org#x":        "write https://example.org",
		"https://example.org#":         "write https://example.org",
		"https://ada@example.org":      "write https://example.org",
		"https://example.org:443":      "write https://example.org",
		"http://example.org:80":        "write http://example.org",
		"http://example.org:":          "write http://example.org",
		"https://Example.org":          "write https://example.org",
		"HTTPS://example.org":          "write https://example.org",
		"https://bücher.example":       "in punycode",
		"http://localhost:080":         "a port is a number",
		"http://localhost:99999":       "a port is a number",
		"*":                            "want one origin",
		"https://*.example.org":        "want one origin",
		"https://*":                    "want one origin",
		"null":                         "want one origin",
		"":                             "want one origin",
		"localhost:5173":               "want one origin",
		"example.org":                  "want one origin",
		"ftp://example.org":            "want one origin",
		"http://:8080":                 "want one origin",
		"http://exa mple.org":          "want one origin",
		"http://localhost:5173\u0000/": "want one origin",
	} {
		switch err := CheckOrigin(origin); {
		case want == "" && err != nil:
			t.Errorf("%q: %v", origin, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%q: %v, want %q", origin, err, want)
		}
	}
}

// A page of another site cannot have a browser execute a query by GET, whatever it
// does; programs, and pages that may, can.
func TestGetFromOtherSites(t *testing.T) {
	const listed = "https://app.example.org"
	const browser = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"
	s := newServer(t, func(cfg *Config, _ *fakeSchema) { cfg.Origins = []string{listed} })
	yes, no := http.StatusOK, http.StatusForbidden
	for _, c := range []struct {
		name   string
		status int
		header []string
	}{
		{"image", no, []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors", "Sec-Fetch-Dest", "image"}},
		{"script of another port", no, []string{"Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "no-cors"}},
		{"fetch", no, []string{"Sec-Fetch-Site", "cross-site", "Origin", "https://evil.example.org"}},
		{"a link in another page", no, []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate"}},
		{"fetch, old browser", no, []string{"User-Agent", browser, "Origin", "https://evil.example.org"}},
		{"sandboxed", no, []string{"User-Agent", browser, "Origin", "null"}},
		{"a media type that needs no preflight", no, []string{"Sec-Fetch-Site", "cross-site", "Content-Type", "text/plain"}},
		{"image by plain HTTP to another machine", no, []string{"User-Agent", browser, "Accept", "image/avif,*/*"}},
		{"media of Safari", no, []string{"User-Agent", "AppleCoreMedia/1.0.0.21F90 (iPhone; U; CPU OS 17_5_1 like Mac OS X; en_us)"}},

		{"program", yes, []string{"User-Agent", "curl/8.14.1", "Accept", "*/*"}},
		{"program without a name", yes, []string{"User-Agent", ""}},
		{"fetch of Node", yes, []string{"User-Agent", "node", "Sec-Fetch-Mode", "cors", "Accept-Language", "*"}},
		{"address bar", yes, []string{"User-Agent", browser, "Sec-Fetch-Site", "none"}},
		{"own page", yes, []string{"User-Agent", browser, "Sec-Fetch-Site", "same-origin"}},
		{"own page, old browser", yes, []string{"User-Agent", browser, "Origin", s.URL}},
		{"listed page", yes, []string{"User-Agent", browser, "Sec-Fetch-Site", "cross-site", "Origin", listed}},
		{"listed page, old browser", yes, []string{"User-Agent", browser, "Origin", listed}},
		{"after a preflight", yes, []string{"Sec-Fetch-Site", "cross-site", "Apollo-Require-Preflight", "true"}},
		{"after a preflight", yes, []string{"Sec-Fetch-Site", "cross-site", "X-Apollo-Operation-Name", "Q"}},
		{"after a preflight", yes, []string{"User-Agent", browser, "GraphQL-Require-Preflight", "1"}},
		{"after a preflight", yes, []string{"User-Agent", browser, "Content-Type", mediaJSON}},
	} {
		for _, accept := range []string{mediaJSON, mediaEvents} {
			got := s.do(t, http.MethodGet, "/?"+url.Values{"query": {"{hello}"}}.Encode(), "", append([]string{"Accept", accept}, c.header...)...)
			switch {
			case c.status == no:
				got.wantError(t, no, CodeForbidden, "graphql-require-preflight: 1")
			case got.status != yes || !strings.Contains(got.text, `"data"`):
				t.Errorf("%s: status %d: %s", c.name, got.status, got.text)
			}
		}
	}
	if refused := s.counted(t, "asof_requests_refused_total", "reason")["origin"]; refused != 18 {
		t.Errorf("counted %v refusals, want 18", refused)
	}
}
