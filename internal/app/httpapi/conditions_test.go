package httpapi

import "testing"

func TestConditionIsNull(t *testing.T) {
	s := newServer(t, nil)
	for name, c := range map[string]struct{ document, text string }{
		"root":            {`query($b: Boolean = true) {hello @include(if: $b)}`, `"$b" cannot be null: it is a condition of @include`},
		"below":           {`query($b: Boolean = true) {nodes(ids: []) {id @skip(if: $b)}}`, `a condition of @skip`},
		"inline fragment": {`query($b: Boolean = true) {... @skip(if: $b) {hello}}`, `a condition of @skip`},
		"spread":          {`query($b: Boolean = true) {...F @skip(if: $b)} fragment F on Query {hello}`, `a condition of @skip`},
		"in a fragment":   {`query($b: Boolean = true) {...F ...F} fragment F on Query {hello @skip(if: $b)}`, `a condition of @skip`},
		"the second":      {`query($a: Boolean! = true, $b: Boolean = true) {hello @skip(if: $a) @include(if: $b)}`, `a condition of @include`},
	} {
		t.Run(name, func(t *testing.T) {
			body := `{"query": "` + c.document + `", "variables": {"b": null}}`
			s.post(t, body).wantError(t, 200, CodeBadInput, c.text)
			s.post(t, body, "Accept", mediaGraphQL).wantError(t, 400, CodeBadInput, "")
		})
	}
	s.post(t, `{"query": "query($b: Boolean = true) {hello @include(if: $b)}"}`).want(t, 200, ok)
	s.post(t, `{"query": "query($b: Boolean = true, $n: String) {hello(name: $n) @include(if: $b)}", "variables": {"n": null}}`).want(t, 200, ok)
	s.post(t, `{"query": "query($b: Boolean = false) {hello ... @defer(if: $b) {hello}}", "variables": {"b": null}}`).want(t, 200, ok)
}
