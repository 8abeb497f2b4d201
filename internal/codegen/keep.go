package codegen

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/sosodev/duration"
	"github.com/vektah/gqlparser/v2/ast"
)

// Keep is how long versions are kept, as the arguments say; the zero one is for ever.
type Keep struct {
	Versions            int // 0: not by number
	Years, Months, Days int
	Seconds             int
}

// keep reads the argument of @versioned(keep:).
func (r *reader) keep(v *ast.Value) (k Keep) {
	if v == nil {
		return k
	}
	wrong := func(at *ast.Value, format string, args ...any) {
		r.problems.add(at.Position, "@versioned(keep:) "+format+"; write {versions: 10}, {for: \"P2Y\"}, or both", args...)
	}
	if v.Kind != ast.ObjectValue || len(v.Children) == 0 {
		wrong(v, "must be an object, not %s", v)
		return k
	}
	for _, c := range v.Children {
		switch c.Name {
		case "versions":
			n, err := strconv.ParseInt(c.Value.Raw, 10, 32)
			if c.Value.Kind != ast.IntValue || err != nil || n < 1 {
				wrong(c.Value, "keeps %s versions: of each document at least 1 stays", c.Value)
				return k
			}
			k.Versions = int(n)
		case "for":
			if c.Value.Kind != ast.StringValue || !k.period(c.Value.Raw) {
				wrong(c.Value, "keeps versions for %s, which is not a positive duration in whole years, months, weeks, days, hours, minutes and seconds (ISO 8601), such as \"P90D\" or \"PT12H\"", c.Value)
				return k
			}
		default:
			wrong(v, "has no member %q", c.Name)
		}
	}
	return k
}

// period reads a duration in the notation of ISO 8601; false if it is none, or not positive.
func (k *Keep) period(text string) bool {
	d, err := duration.Parse(text)
	if err != nil || d.Negative {
		return false
	}
	whole := func(to *int, of ...float64) bool {
		sum := 0.0
		for _, part := range of {
			if part != math.Trunc(part) || part < 0 || part > 1e6 {
				return false
			}
			sum += part
		}
		*to = int(sum)
		return true
	}
	return whole(&k.Years, d.Years) && whole(&k.Months, d.Months) && whole(&k.Days, 7*d.Weeks, d.Days) &&
		whole(&k.Seconds, 3600*d.Hours, 60*d.Minutes, d.Seconds) && k.Years+k.Months+k.Days+k.Seconds > 0
}

// Metadata renders it for storage.Type; "" where all is kept.
func (k Keep) Metadata() string {
	var parts, period []string
	if k.Versions > 0 {
		parts = append(parts, fmt.Sprintf("Versions: %d", k.Versions))
	}
	for _, p := range []struct {
		name string
		n    int
	}{{"Years", k.Years}, {"Months", k.Months}, {"Days", k.Days}} {
		if p.n > 0 {
			period = append(period, fmt.Sprintf("%s: %d", p.name, p.n))
		}
	}
	if k.Seconds > 0 {
		period = append(period, fmt.Sprintf("Time: %d_000_000_000", k.Seconds))
	}
	if period != nil {
		parts = append(parts, "For: storage.Period{"+strings.Join(period, ", ")+"}")
	}
	if parts == nil {
		return ""
	}
	return "Keep: &storage.Keep{" + strings.Join(parts, ", ") + "}"
}
