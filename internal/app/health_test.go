package app

import (
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

// A server is asked where it listens, and what it says is the status.
func TestHealth(t *testing.T) {
	server := serve(t)
	u, err := url.Parse(server.url)
	if err != nil {
		t.Fatal(err)
	}
	unready := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/readyz" {
			plain(w, http.StatusServiceUnavailable, "the store cannot be reached")
			return
		}
		plain(w, http.StatusOK, "ok")
	}))
	defer unready.Close()
	closed, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		args   []string
		status int
		text   string
	}{
		{"ready", []string{"--addr", u.Host}, 0, "ready"},
		{"alive", []string{"--addr", u.Host, "--alive"}, 0, "ok"},
		{"as the server's own flag: every address", []string{"--addr", "0.0.0.0:" + u.Port()}, 0, "ready"},
		{"without a host", []string{"--addr", ":" + u.Port()}, 0, "ready"},
		{"not ready", []string{"--addr", unready.Listener.Addr().String()}, 1, "is not ready: the store cannot be reached (status 503)"},
		{"alive though not ready", []string{"--addr", unready.Listener.Addr().String(), "--alive"}, 0, "ok"},
		{"nobody there", []string{"--addr", closed.Addr().String()}, 1, "no server answers at " + closed.Addr().String()},
		{"every address of IPv6", []string{"--addr", "[::]:1"}, 1, "no server answers at [::]:1"},
		{"any port", []string{"--addr", "127.0.0.1:0"}, 1, "no server answers at 127.0.0.1:0"},
		{"a path", []string{"--addr", "127.0.0.1 x:80"}, 2, "want HOST:PORT"},
		{"no time", []string{"--addr", u.Host, "--timeout", "0s"}, 2, "--timeout must be positive"},
	} {
		t.Run(c.name, func(t *testing.T) {
			status, stdout, stderr := run(t, "", append([]string{"health"}, c.args...)...)
			if status != c.status || !strings.Contains(stdout+stderr, c.text) {
				t.Errorf("status %d, want %d; want %q in:\n%s%s", status, c.status, c.text, stdout, stderr)
			}
		})
	}
}

// Inside a container both commands read the same variable.
func TestHealthReadsTheServersVariable(t *testing.T) {
	server := serve(t)
	u, err := url.Parse(server.url)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("ASOF_ADDR", "0.0.0.0:"+u.Port())
	if status, stdout, stderr := run(t, "", "health"); status != 0 || stdout != "ready\n" {
		t.Errorf("status %d: %s%s", status, stdout, stderr)
	}
}
