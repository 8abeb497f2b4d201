package httpapi

import (
	"errors"
	"fmt"
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
