package app

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"
)

// maxHealthAnswer bounds what is read of a server's answer.
const maxHealthAnswer = 1 << 10

// health asks a server on this machine whether it can answer, for those who
// cannot run anything but this program, such as a container without a shell.
func (m *Main) health(ctx context.Context) error {
	f := &m.flags.Health
	if f.Timeout <= 0 {
		return usageError{fmt.Errorf("--timeout must be positive, not %v", f.Timeout)}
	}
	addr, err := reachable(f.Addr)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, f.Timeout)
	defer cancel()
	path := "/readyz"
	if f.Alive {
		path = "/healthz"
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+path, http.NoBody)
	if err != nil {
		return usageError{fmt.Errorf("--addr %s: want HOST:PORT, such as 127.0.0.1:8080", f.Addr)}
	}
	// Of its own, since the usual one would ask a proxy.
	transport := &http.Transport{DisableKeepAlives: true}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return fmt.Errorf("no server answers at %s within %v: %w", addr, f.Timeout.Round(time.Millisecond), err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxHealthAnswer))
	if err != nil {
		return fmt.Errorf("the answer of %s broke off: %w", addr, err)
	}
	said := strings.TrimSpace(string(text))
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("the server at %s is not ready: %s (status %d)", addr, said, response.StatusCode)
	}
	_, err = fmt.Fprintln(m.Stdout, said)
	return err
}

// reachable is where a server that listens on an address can be asked from the
// same machine: one that listens on every address, by the loopback one.
func reachable(addr string) (string, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil || port == "" || port == "0" {
		return "", usageError{fmt.Errorf("--addr %s: want the HOST:PORT that the server listens on, such as 127.0.0.1:8080", addr)}
	}
	switch ip, err := netip.ParseAddr(host); {
	case host == "", err == nil && ip.IsUnspecified() && ip.Is4():
		host = "127.0.0.1"
	case err == nil && ip.IsUnspecified():
		host = "::1"
	}
	return net.JoinHostPort(host, port), nil
}
