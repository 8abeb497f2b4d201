package app

import (
	"net/http"
	"testing"
)

func TestClientAddress(t *testing.T) {
	for _, c := range []struct {
		proxies   int
		remote    string
		forwarded []string
		want      string
	}{
		{0, "192.0.2.1:1234", []string{"198.51.100.1"}, "192.0.2.1"},
		{0, "[2001:db8:1:2:3:4:5:6]:1234", nil, "2001:db8:1:2::/64"},
		{0, "[::ffff:192.0.2.1]:1234", nil, "192.0.2.1"},
		{0, "[fe80::1%eth0]:1234", nil, "fe80::/64"},
		{1, "192.0.2.1:1234", []string{"203.0.113.9, 198.51.100.1"}, "198.51.100.1"},
		{2, "192.0.2.1:1234", []string{"forged", "203.0.113.9", "198.51.100.1"}, "203.0.113.9"},
		{1, "192.0.2.1:1234", []string{"198.51.100.1:99"}, "198.51.100.1"},
		{1, "192.0.2.1:1234", []string{"[2001:db8::1]:99"}, "2001:db8::/64"},
		{3, "192.0.2.1:1234", []string{"198.51.100.1"}, "198.51.100.1"},
		{1, "192.0.2.1:1234", nil, ""},
		{1, "192.0.2.1:1234", []string{"unknown"}, ""},
	} {
		r := &http.Request{RemoteAddr: c.remote, Header: http.Header{"X-Forwarded-For": c.forwarded}}
		if got := clientAddress(c.proxies)(r); got != c.want {
			t.Errorf("%d proxies, %s, %q: %q, want %q", c.proxies, c.remote, c.forwarded, got, c.want)
		}
	}
}
