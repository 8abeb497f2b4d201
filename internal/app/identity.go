package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/secure/precis"

	"github.com/asof/asof/storage"
)

// identify says who sends a request while there is no authentication: whoever
// the X-Actor header names.
func identify(r *http.Request) (context.Context, string, error) {
	ctx := r.Context()
	actor := storage.Anonymous
	if given := r.Header["X-Actor"]; len(given) > 0 {
		var err error
		if actor, err = readActor(given); err != nil {
			return nil, "", err
		}
	}
	return storage.WithActor(ctx, storage.Actor{ID: actor}), actor, nil
}

const longestActor = 200 // bytes

// readActor reads a name in UTF-8. Bytes that are not UTF-8 are the first 256
// characters of Unicode (Latin-1): that is what browsers send, whose fetch takes
// no others, and RFC 9110, 5.5 leaves open what they are. A name has only what is
// seen (the FreeformClass of RFC 8264), so that nobody signs as somebody else.
func readActor(given []string) (string, error) {
	if len(given) > 1 {
		return "", errors.New("the header X-Actor was given more than once")
	}
	name := given[0]
	if !utf8.ValidString(name) {
		characters := make([]rune, len(name))
		for i := range len(name) {
			characters[i] = rune(name[i])
		}
		name = string(characters)
	}
	switch {
	case strings.TrimSpace(name) == "":
		return "", errors.New("the header X-Actor is empty; leave it out to act as " + storage.Anonymous)
	case len(name) > longestActor:
		return "", fmt.Errorf("the header X-Actor is longer than %d bytes of UTF-8", longestActor)
	case strings.TrimSpace(name) != name:
		return "", errors.New("the header X-Actor begins or ends with a blank; leave it out")
	}
	if _, err := precis.NewFreeform().String(name); err != nil {
		return "", errors.New("the header X-Actor must be text without control characters, marks that change the direction of writing, or other characters that are not seen")
	}
	return name, nil
}

// checkAddress refuses to serve others than this machine without
// authentication, unless that is what was asked for.
func checkAddress(addr string, insecure bool) error {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return usageError{fmt.Errorf("--addr %s: want HOST:PORT, such as 127.0.0.1:8080", addr)}
	}
	if insecure || isLoopback(host) {
		return nil
	}
	if host == "" {
		host = "every address of this machine"
	}
	return usageError{fmt.Errorf("--addr %s: this server does not know who its users are yet: whoever reaches it can read everything, and write under any name "+
		"(the X-Actor header). It therefore listens on this machine's own addresses only (127.0.0.1, ::1, localhost), not on %s. "+
		"If the network is trusted, add --insecure-no-auth", addr, host)}
}

// isLoopback reports whether a host name or address can only be this machine.
func isLoopback(host string) bool {
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	if host == "localhost" || strings.HasSuffix(host, ".localhost") { // RFC 6761
		return true
	}
	addr, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && addr.IsLoopback()
}
