package httpapi

import (
	"strings"
	"testing"
)

func TestCheckOrigin(t *testing.T) {
	for origin, want := range map[string]string{
		"https://app.example.org":      "",
		"http://localhost:5173":        "",
		"http://[::1]:3000":            "",
		"https://example.org:80":       "",
		"http://localhost:5173/":       "no slash at its end; write http://localhost:5173",
		"http://[::1]:3000/":           "no slash at its end; write http://[::1]:3000",
		"http://localhost:5173/app":    "nothing but scheme, host and port; write http://localhost:5173",
		"https://example.org?x":        "nothing but scheme, host and port; write https://example.org",
		"https://example.org?":         "nothing but scheme, host and port; write https://example.org",
		"https://example.org#x":        "nothing but scheme, host and port; write https://example.org",
		"https://example.org#":         "nothing but scheme, host and port; write https://example.org",
		"https://ada@example.org":      "nothing but scheme, host and port; write https://example.org",
		"https://example.org:443":      "the port that is the scheme's own; write https://example.org",
		"http://example.org:80":        "the port that is the scheme's own; write http://example.org",
		"http://example.org:":          "the port that is the scheme's own; write http://example.org",
		"https://Example.org":          "lower case; write https://example.org",
		"HTTPS://example.org":          "lower case; write https://example.org",
		"https://bücher.example":       "in punycode",
		"http://localhost:080":         "a port is a number",
		"http://localhost:99999":       "a port is a number",
		"*":                            "one by one",
		"https://*.example.org":        "one by one",
		"https://*":                    "one by one",
		"null":                         "want scheme://host",
		"":                             "want scheme://host",
		"localhost:5173":               "want scheme://host",
		"example.org":                  "want scheme://host",
		"ftp://example.org":            "want scheme://host",
		"http://:8080":                 "want scheme://host",
		"http://exa mple.org":          "want scheme://host",
		"http://localhost:5173\u0000/": "want scheme://host",
	} {
		switch err := CheckOrigin(origin); {
		case want == "" && err != nil:
			t.Errorf("%q: %v", origin, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%q: %v, want %q", origin, err, want)
		}
	}
}
