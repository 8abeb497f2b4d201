package httpapi

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestIdentity(t *testing.T) {
	s := newServer(t, func(cfg *Config, _ *fakeSchema) {
		cfg.Identify = func(r *http.Request) (Identity, error) {
			if r.Header.Get("X-Actor") == "bad" {
				return Identity{}, errors.New("who are you?")
			}
			return Identity{Context: r.Context(), Actor: r.Header.Get("X-Actor")}, nil
		}
	})
	s.query(t, `query Named {hello}`, "X-Actor", "ada", "X-Request-Id", "r-1").want(t, 200, ok)
	s.query(t, `{hello}`, "X-Actor", "bad").wantError(t, 400, codeBadInput, "who are you?")
	got := s.journal.lines(t)[0]
	delete(got, "time")
	delete(got, "duration")
	if diff := cmp.Diff(map[string]any{
		"level": "INFO", "msg": "operation", "name": "Named", "type": "query", "asOf": "2026-01-02T03:04:05Z",
		"documentsRead": 7.0, "bytesRead": 70.0, "transport": "POST", "executor": "gqlgen", "actor": "ada",
		"request": "r-1", "status": 200.0,
	}, got); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
}

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

// identified lets in who sends Authorization: good, and others to read.
func identified(refused *atomic.Pointer[Denied]) func(r *http.Request) (Identity, error) {
	return func(r *http.Request) (Identity, error) {
		denied := &Denied{http.StatusUnauthorized, CodeUnauthenticated, "credentials are needed", `Bearer realm="test"`}
		name := r.Header.Get("Authorization")
		if d := refused.Load(); d != nil && name == "good" {
			return Identity{}, d
		}
		switch name {
		case "":
			return Identity{Context: r.Context(), ReadOnly: denied}, nil
		case "bad":
			return Identity{}, denied
		}
		return Identity{Context: r.Context(), Actor: strings.TrimPrefix(name, "new "), Client: "actor " + name}, nil
	}
}

// Who may not come in is told how; who may only read writes nothing, by no transport.
func TestDenied(t *testing.T) {
	var refused atomic.Pointer[Denied]
	s := newServer(t, func(cfg *Config, _ *fakeSchema) { cfg.Identify = identified(&refused) })
	const reading, changing = `{"query":"{hello}"}`, `{"query":"mutation {change}"}`
	for _, c := range []struct {
		name, body, authorization, accept string
		status                            int
	}{
		{"good", changing, "good", "", 200},
		{"bad", reading, "bad", "", 401},
		{"bad, by server-sent events", reading, "bad", mediaEvents, 401},
		{"bad, and malformed", `{`, "bad", "", 401},
		{"nobody reads", reading, "", "", 200},
		{"nobody writes", changing, "", "", 401},
		{"nobody writes, by server-sent events", changing, "", mediaEvents, 401},
		{"nobody writes, as GraphQL", changing, "", mediaGraphQL, 401},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := s.post(t, c.body, "Authorization", c.authorization, "Accept", c.accept)
			if got.status != c.status {
				t.Errorf("status %d, want %d: %s", got.status, c.status, got.text)
			}
			challenged := got.header.Get("WWW-Authenticate") == `Bearer realm="test"` && strings.Contains(got.text, CodeUnauthenticated)
			if refused := c.status == 401; challenged != refused || refused && strings.Contains(got.text, `"data"`) {
				t.Errorf("challenge %q: %s", got.header.Get("WWW-Authenticate"), got.text)
			}
		})
	}
	refused.Store(&Denied{Status: http.StatusServiceUnavailable, Code: CodeUnavailable, Message: "later"})
	if got := s.post(t, reading, "Authorization", "good"); got.status != 503 || got.header.Get("Retry-After") == "" || got.header.Get("WWW-Authenticate") != "" {
		t.Errorf("status %d, %v", got.status, got.header)
	}
}

// from is a connection of a client that records what is written to it.
type from struct {
	net.Conn

	client string
	said   []string
}

func (f *from) RemoteAddr() net.Addr {
	return &net.UnixAddr{Name: f.client}
}

func (f *from) Write(p []byte) (int, error) {
	f.said = append(f.said, string(p))
	return len(p), nil
}

func (f *from) Close() error {
	f.said = append(f.said, "closed")
	return nil
}

// A client has half of the connections that others leave, and all have no more than there are.
func TestConnectionsAreBounded(t *testing.T) {
	connections := make(piped, 10)
	l := BoundConnections(&http.Server{}, connections, 8*connectionBytes, func(address string) string { return address })
	come := func(clients ...string) {
		for _, client := range clients {
			connections <- &from{client: client}
		}
	}
	accept := func(clients ...string) (last net.Conn) {
		t.Helper()
		for _, client := range clients {
			var err error
			if last, err = l.Accept(); err != nil || last.RemoteAddr().String() != client {
				t.Fatalf("%v, %v; want one of %s", last, err, client)
			}
		}
		return last
	}
	const a, b, c, d = "192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4"
	come(a, a, a, a, a, b, b, b, c)
	last := accept(a, a, a, a, b, b, c) // the fifth, and the third, are too many
	_, _ = last.Close(), last.Close()
	come(c)
	accept(c)
	refused := &from{client: d}
	connections <- refused
	_ = connections.Close()
	if c, err := l.Accept(); err == nil {
		t.Fatalf("one of %s is accepted", c.RemoteAddr())
	}
	if diff := cmp.Diff([]string{tooManyConnections, "closed"}, refused.said); diff != "" {
		t.Errorf("a refused client gets (-want +got):\n%s", diff)
	}
}

// A header of many lines is refused, wherever they are cut, and a body of many lines is not.
func TestHeadersHaveFewLines(t *testing.T) {
	server := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			t.Error(err)
		}
	})}
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := BoundConnections(server, inner, 100*connectionBytes, func(string) string { return "one client" })
	done := make(chan error)
	go func() { done <- server.Serve(l) }()
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	dial := func() net.Conn {
		t.Helper()
		c, err := new(net.Dialer).DialContext(t.Context(), "tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	status := func(c net.Conn, parts ...string) int {
		t.Helper()
		for _, part := range parts {
			if _, err := c.Write([]byte(part)); err != nil {
				t.Fatal(err)
			}
		}
		r, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		return r.StatusCode
	}
	const begin = "GET / HTTP/1.1\r\nHost: a\r\n"
	short := strings.Repeat("a:b\r\n", mostLines-3) + fmt.Sprintf("Content-Length: %d\r\n\r\n", 2*mostLines) + strings.Repeat("\n", 2*mostLines)
	first := dial()
	for range 3 {
		if got := status(first, begin, short[:100], short[100:]); got != http.StatusOK {
			t.Errorf("a header of %d lines with a body of more: %d", mostLines, got)
		}
	}
	if got := status(first, begin+"a:b\r\n"+short); got != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("a header of %d lines after others: %d", mostLines+1, got)
	}
	if got := status(dial(), begin, "a:b\r\n"+short); got != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("a header of %d lines: %d", mostLines+1, got)
	}
	unfinished := dial()
	if got := status(unfinished, begin, strings.Repeat("a:b\r\n", mostLines)); got != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("a header that is not finished: %d", got)
	}
}
