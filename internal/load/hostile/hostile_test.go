package hostile

import (
	"os"
	"strings"
	"testing"
	"time"
)

// The attacker is this program, as it is the command's when that runs.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "hostile" {
		if err := Main(nil, os.Args[2:], os.Stdout); err != nil {
			_, _ = os.Stderr.WriteString(err.Error() + "\n")
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// The short form of the attacks: the server lives, keeps its budget of memory,
// answers as it should, and a normal client is served meanwhile. How much slower
// is measured by the command: here the median has a bound that a busy machine
// keeps, if not at once then when it is tried again.
func TestAttacks(t *testing.T) {
	if _, err := os.Stat("/proc/self/status"); err != nil {
		t.Skip("it needs /proc to see what the server uses")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b, err := newBench(t.Context(), Config{
		Memory: 512 << 20, Length: 400 * time.Millisecond, Rounds: 1, Quantile: .5, Slack: 20,
		Only: func(string) bool { return true }, Self: []string{self, "hostile"},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer b.close()
	var short []attack
	for _, a := range attacks() {
		if a.short {
			short = append(short, a)
		}
	}
	const tries = 5 // each twice as long: a busy machine may not let an attacker begin
	for try := 1; len(short) > 0; try++ {
		var table strings.Builder
		results, err := b.attack(t.Context(), short, &table)
		t.Log("\n" + table.String())
		if err != nil {
			t.Fatal(err)
		}
		var again []attack
		for i, r := range results {
			if len(r.Broken) > 0 {
				again = append(again, short[i])
			}
			for _, why := range r.Broken {
				if try == tries {
					t.Errorf("%s: %s", r.Name, why)
				}
			}
		}
		if try == tries {
			break
		}
		short = again
		b.Length *= 2
	}
}

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
