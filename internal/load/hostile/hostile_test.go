package hostile

import (
	"strings"
	"testing"
	"time"
)

// What is judged is what was measured.
func TestJudged(t *testing.T) {
	const memory = 100 << 20
	fine := func() *Result {
		r := &Result{Answers: map[string]int{"200": 90, "400": 5, "503": 5}, Requests: 100, Peak: memory}
		r.Idle[pointReads], r.Attacked[pointReads] = time.Millisecond, 9*time.Millisecond
		return r
	}
	for name, c := range map[string]struct {
		attack attack
		change func(r *Result)
		dead   bool
		want   string // in what was not held; empty: nothing
	}{
		"held":                     {},
		"dead":                     {dead: true, want: "died"},
		"killed":                   {change: func(r *Result) { r.overgrown.Store(true) }, want: "killed"},
		"slow":                     {change: func(r *Result) { r.Attacked[pointReads] *= 2 }, want: "18.0 times slower"},
		"slow for its class":       {attack: attack{ratio: 5}, want: "9.0 times slower"},
		"slow from the same place": {attack: attack{same: true}, change: func(r *Result) { r.Attacked[pointReads] *= 9 }},
		"a tenth over the budget":  {change: func(r *Result) { r.Peak += memory / 10 }},
		"over the budget":          {change: func(r *Result) { r.Peak += memory / 5 }, want: "120 MiB"},
		"an internal error":        {change: func(r *Result) { r.Answers["500"] = 1 }, want: "1 × 500"},
		"no time to come back":     {change: func(r *Result) { r.Answers[saidHasty] = 2 }, want: "2 × 503"},
		"a reset":                  {change: func(r *Result) { r.Answers[saidReset] = 3 }, want: "3 × reset"},
		"a slow client is dropped": {attack: attack{drops: true}, change: func(r *Result) { r.Answers[saidReset] = 3 }},
		"answered another site":    {attack: attack{refused: true}, want: "90 × 200"},
		"said nothing":             {change: func(r *Result) { r.Answers = nil }, want: "nothing was answered"},
		"a long log":               {change: func(r *Result) { r.Logged = 200 * 5000 }, want: "5000 bytes of log"},
	} {
		r := fine()
		if c.change != nil {
			c.change(r)
		}
		r.judge(c.attack, memory, 1, !c.dead)
		said := strings.Join(r.Broken, "; ")
		if c.want == "" && said != "" || !strings.Contains(said, c.want) {
			t.Errorf("%s: %q, want %q", name, said, c.want)
		}
	}
}
