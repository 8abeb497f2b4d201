package rule

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	field, claim, is := func(n string) Value { return Value{Field: n} }, func(n string) Value { return Value{Claim: n} }, func(v any) Value { return Value{Literal: v} }
	owner := Compare{Equal, field("owner"), claim("sub")}
	for text, want := range map[string]Expr{
		"owner = $sub":                              owner,
		" ( owner=$sub ) ":                          owner,
		"a = 1 or b != null and not c in $d":        Or{Compare{Equal, field("a"), is(int64(1))}, And{Compare{Unequal, field("b"), is(nil)}, Not{Compare{In, field("c"), claim("d")}}}},
		"(a = true or b = -2) and \"x\\\"y\" in d":  And{Or{Compare{Equal, field("a"), is(true)}, Compare{Equal, field("b"), is(int64(-2))}}, Compare{In, is(`x"y`), field("d")}},
		"not not a = false":                         Not{Not{Compare{Equal, field("a"), is(false)}}},
		"\"admin\" in $roles or $team-id = teamKey": Or{Compare{In, is("admin"), claim("roles")}, Compare{Equal, claim("team-id"), field("teamKey")}},
	} {
		got, err := Parse(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
	for text, want := range map[string]string{
		"":                             "at character 1, the end is found where a field",
		"owner":                        "at character 6, the end is found where =, != or in is wanted",
		"owner = ":                     "the end is found where a field",
		"owner == $sub":                `at character 8, "=" is found where a field`,
		"owner = $sub and":             "the end is found",
		"owner = $sub $x":              `at character 14, "$x" is found where and, or, or the end`,
		"(owner = $sub":                "the end is found where ) is wanted",
		"owner = 'x'":                  `"'" is found`,
		"owner = \"x":                  "a text such as",
		"owner = 1.5":                  `"." is found where and`,
		"owner = 99999999999999999999": "a whole number",
		"owner > 3":                    `">" is found where =, != or in`,
		"in = 3":                       `"in" is found`,
		"$ = 3":                        `"$" is found`,
		strings.Repeat("(", 9999):      "nested less deeply",
		"\xff = 3":                     "is found where",
	} {
		if _, err := Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40s: %v, want %q", text, err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("a = 1 or b != null and not c in $d")
	f.Fuzz(func(t *testing.T, text string) {
		e, err := Parse(text)
		if err != nil {
			return
		}
		if Comparisons(e, func(c Compare) error {
			if c.Op == "" {
				t.Errorf("%q has a comparison without an operator", text)
			}
			return nil
		}) != nil {
			t.Error("an error of nothing")
		}
	})
}
