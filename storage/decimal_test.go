package storage_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/asof/asof/storage"
)

// A Decimal keeps every digit, or is refused with the reason.
func TestDecimalsAreExact(t *testing.T) {
	const digits = "0.1234567890123456789012345"
	for name, tt := range map[string]struct {
		given any
		want  string // in the store, or
		err   string
	}{
		"text":                 {digits, `"price":"` + digits + `"`, ""},
		"number of a variable": {json.Number(digits), `"price":"` + digits + `"`, ""},
		"integer of a query":   {int64(12), `"price":"12"`, ""},
		"fraction of a query":  {0.5, "", `input.data.price: a Decimal with a fraction or an exponent is written as a string, so that nothing is rounded: "0.5"`},
		"no number":            {"abc", "", `input.data.price: expected a decimal number, like "12.50", got "abc"`},
		"too large":            {"1e10000", "", "an exponent of at most 9999"},
		"no exponent":          {"1e+-1", "", `like "12.50", got "1e+-1"`},
		"too long":             {strings.Repeat("1", 1001), "", "at most 1000 characters, not 1001"},
	} {
		e := newEnv(t)
		_, err := e.projects.Create(e.begin(), storage.CreateInput{Key: "a", Data: object{"name": "A", "price": tt.given}})
		if tt.err != "" {
			wantError(t, err, storage.CodeBadUserInput, tt.err)
			continue
		}
		if err != nil || !strings.Contains(e.stored("a"), tt.want) {
			t.Errorf("%s: %v, %s", name, err, e.stored("a"))
		}
	}
	e := newEnv(t)
	_, err := e.projects.Page(e.begin(), object{"price": object{"gt": 0.1}}, nil, nil, nil, nil, nil, nil)
	wantError(t, err, storage.CodeBadUserInput, "where.price.gt: a Decimal", `"0.1"`)
}
