// Package literal holds the grammar of numbers, decimals, moments and calendar
// dates, for what clients send and for what documents hold.
//
// Clients' values arrive as string, bool, json.Number, int64, float64, []any,
// map[string]any or nil: numbers as json.Number from variables, and as int64 or
// float64 from the text of a query.
//
// Invariants: what is accepted from clients is exact (nothing is rounded or cut),
// unambiguous (a moment has an offset) and real (no 30th of February); a string is
// not a number, a number is not a string. An error names what was given and shows a
// good example. The package has no state and imports nothing of the project.
package literal

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Int returns a client's value as an integer of 32 bits. A number without a
// fraction, such as 1.0 or 1e3, is not one in GraphQL's grammar.
func Int(v any) (int, error) {
	var n int64
	var err error
	switch v := v.(type) {
	case int64:
		n = v
	case int:
		n = int64(v)
	case int32:
		n = int64(v)
	case float64:
		if n = int64(v); float64(n) != v || math.Abs(v) > 1<<53 {
			err = strconv.ErrSyntax
		}
	case json.Number:
		n, err = strconv.ParseInt(v.String(), 10, 64)
	default:
		err = strconv.ErrSyntax
	}
	switch {
	case errors.Is(err, strconv.ErrSyntax):
		return 0, fmt.Errorf("Int cannot be %s; write a whole number without quotes, as 42", Show(v))
	case err != nil || n < math.MinInt32 || n > math.MaxInt32:
		return 0, fmt.Errorf("Int cannot be %s; it has 32 bits: %d to %d", Show(v), math.MinInt32, math.MaxInt32)
	}
	return int(n), nil
}

// Float returns a client's value as a finite number.
func Float(v any) (float64, error) {
	var x float64
	var err error
	switch v := v.(type) {
	case float64:
		x = v
	case int64:
		x = float64(v)
	case int:
		x = float64(v)
	case int32:
		x = float64(v)
	case json.Number:
		x, err = strconv.ParseFloat(v.String(), 64)
	default:
		err = strconv.ErrSyntax
	}
	switch {
	case errors.Is(err, strconv.ErrRange):
		return 0, fmt.Errorf("Float cannot be %s; the largest is about 1.8e308", Show(v))
	case err != nil || math.IsInf(x, 0) || math.IsNaN(x):
		return 0, fmt.Errorf("Float cannot be %s; write a number without quotes, as 0.5", Show(v))
	}
	return x, nil
}

// ID returns a client's value as an id: a string, or an integer of any length,
// which becomes its decimal digits.
func ID(v any) (string, error) {
	switch v := v.(type) {
	case string:
		return v, nil
	case int64:
		return strconv.FormatInt(v, 10), nil
	case int:
		return strconv.Itoa(v), nil
	case json.Number:
		if n, integer, err := Scan(v.String()); err == nil && integer && n == len(v) {
			return v.String(), nil
		}
	}
	return "", fmt.Errorf("ID cannot be %s; write it as a string, as \"vaultwarden\", or as an integer", Show(v))
}

// Show describes a client's value for an error, cut where it is long.
func Show(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case json.Number:
		return cut(v.String())
	case string:
		return strconv.Quote(cut(v))
	case []any:
		return "a list"
	case map[string]any:
		return "an object"
	default:
		return cut(fmt.Sprint(v))
	}
}

func cut(s string) string {
	const limit = 60
	if len(s) > limit {
		return strings.ToValidUTF8(s[:limit], "") + "…"
	}
	return s
}
