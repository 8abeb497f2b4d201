package storage_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/fault"
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
		"fraction of a query":  {0.5, "", `input.data.price: Decimal cannot be 0.5; write it in quotes, as "19.90", so that nothing is rounded`},
		"no number":            {"abc", "", `input.data.price: Decimal cannot be "abc": it must begin with a digit`},
		"too large":            {"1e10000", "", "its exponent is beyond 9999"},
		"no exponent":          {"1e+-1", "", `"1e+-1": a digit must follow "+"`},
		"too long":             {strings.Repeat("1", 1001), "", "it has 1001 characters, and at most 1000 are possible"},
	} {
		e := newEnv(t)
		_, err := e.projects.Create(e.begin(), storage.CreateInput{Key: "a", Data: object{"name": "A", "price": tt.given}})
		if tt.err != "" {
			wantError(t, err, fault.CodeBadUserInput, tt.err)
			continue
		}
		if err != nil || !strings.Contains(e.stored("a"), tt.want) {
			t.Errorf("%s: %v, %s", name, err, e.stored("a"))
		}
	}
	e := newEnv(t)
	_, err := e.projects.Page(e.begin(), object{"price": object{"gt": 0.1}}, nil, nil, nil, nil, nil, nil, nil)
	wantError(t, err, fault.CodeBadUserInput, "where.price.gt: Decimal cannot be 0.1; write it in quotes")
}
