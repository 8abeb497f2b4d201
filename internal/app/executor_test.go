package app

import (
	"strings"
	"testing"
)

// Which executor answers is a matter of flags and of the query; what it answers
// is not.
func TestExecutors(t *testing.T) {
	const (
		known   = `{ project(key: "hearth", version: 1) { id name tags { name } versionInfo { recordedAt } } }`
		unknown = `{ project(key: "hearth", version: 1) { id blame(fields: [name]) { value } } }`
	)
	tests := []struct {
		flags         []string
		query, header string
		label         string
	}{
		{nil, known, "plan", `executor="plan"`},
		{nil, unknown, "gqlgen; Project.blame is not planned", `executor="gqlgen"`},
		{[]string{"--executor=gqlgen"}, known, "", `executor="gqlgen"`},
		{[]string{"--insecure-no-auth"}, known, "", `executor="plan"`},
		{[]string{"--insecure-no-auth"}, unknown, "", `executor="gqlgen"`},
	}
	answers := map[string]string{}
	for _, test := range tests {
		p := serve(t, append([]string{"--demo"}, test.flags...)...)
		got := p.query(t, test.query)
		if header := got.header.Get("X-Asof-Executor"); header != test.header {
			t.Errorf("%v: %s was answered by %q", test.flags, test.query, header)
		}
		if metrics := p.do(t, "GET", "/metrics", "").body; !strings.Contains(metrics, test.label) {
			t.Errorf("%v: %s has another label than %s", test.flags, test.query, test.label)
		}
		data, _, _ := strings.Cut(got.body, `,"extensions"`) // the instant of the request
		if before, ok := answers[test.query]; ok && before != data || strings.Contains(data, `"errors"`) {
			t.Errorf("%v: %s is answered with\n%s, and was with\n%s", test.flags, test.query, data, before)
		}
		answers[test.query] = data
	}
}
