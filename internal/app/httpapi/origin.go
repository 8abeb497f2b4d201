package httpapi

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"unicode"
)

// CheckOrigin returns an error for what is not the origin of a page as browsers
// send it, such as "https://app.example.org" or "http://localhost:3000": it would
// never be the one that asks. The error says what to write instead, where that is
// clear. Patterns are none: whoever is allowed is named.
func CheckOrigin(origin string) error {
	if strings.Contains(origin, "*") {
		return fmt.Errorf("origin %q: name the origins that may use the API, one by one", origin)
	}
	u, err := url.Parse(origin)
	if err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("origin %q: want scheme://host or scheme://host:port, such as http://localhost:5173", origin)
	}
	if strings.ContainsFunc(u.Host, func(r rune) bool { return r > unicode.MaxASCII }) {
		return fmt.Errorf("origin %q: browsers send the name of a host in punycode, as xn--…; write that", origin)
	}
	if n, err := strconv.ParseUint(u.Port(), 10, 16); u.Port() != "" && (err != nil || strconv.FormatUint(n, 10) != u.Port()) {
		return fmt.Errorf("origin %q: a port is a number from 0 to 65535, without zeros before it", origin)
	}
	host := strings.ToLower(u.Host)
	standard := map[string]string{"http": ":80", "https": ":443"}[u.Scheme]
	host = strings.TrimSuffix(strings.TrimSuffix(host, standard), ":")
	sent := u.Scheme + "://" + host
	why := ""
	switch {
	case origin == sent:
		return nil
	case origin == sent+"/":
		why = "an origin has no slash at its end"
	case u.Path != "" || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || u.User != nil || strings.HasSuffix(origin, "#"):
		why = "an origin has nothing but scheme, host and port"
	case !strings.EqualFold(u.Host, host):
		why = "browsers leave out the port that is the scheme's own"
	default:
		why = "browsers send it in lower case"
	}
	return errors.New("origin " + fmt.Sprintf("%q", origin) + ": " + why + "; write " + sent)
}

// trusted allows pages of these origins, and of the server's own. An origin that is
// not one is an error.
func trusted(origins []string) (*http.CrossOriginProtection, error) {
	t := http.NewCrossOriginProtection()
	for _, origin := range origins {
		if err := CheckOrigin(origin); err != nil {
			return nil, err
		}
		if err := t.AddTrustedOrigin(origin); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// mayUse reports whether a request is not from a page of an origin that is not
// allowed, as far as its sender says where it comes from.
func (h *Handler) mayUse(r *http.Request) bool {
	asked := *r
	asked.Method = http.MethodPost // of GET, Check allows any
	return h.origins.Check(&asked) == nil
}

// refusedGet is what the sender of a GET that mayGet refuses is told.
const refusedGet = "this GET may have been caused by a page of another site, in a browser that does not ask whether it may: " +
	"send the operation by POST, or with the header graphql-require-preflight: 1 (pages of other origins have to be listed with --cors-origin)"

// mayGet reports whether a GET is not from a page that has no right to send it.
// Browsers send the GET of any page (an image, a script) without asking, unless it
// has a header that needs a preflight: that is only let through for origins that
// are allowed. Where there is none, the browser says in Sec-Fetch-Site or Origin
// where the request comes from; but plain HTTP to another machine has neither, and
// then all that tells programs from browsers is the User-Agent, which no page can
// change without a preflight.
func (h *Handler) mayGet(r *http.Request) bool {
	for _, name := range [...]string{"Graphql-Require-Preflight", "Apollo-Require-Preflight", "X-Apollo-Operation-Name"} {
		if r.Header[name] != nil {
			return true
		}
	}
	if jsonBody(r) {
		return true
	}
	if !h.mayUse(r) {
		return false
	}
	agent := r.Header.Get("User-Agent")
	return r.Header.Get("Sec-Fetch-Site") != "" || r.Header.Get("Origin") != "" ||
		// All current browsers, and what loads media for Safari.
		!strings.Contains(agent, "Mozilla/") && !strings.Contains(agent, "AppleCoreMedia")
}
