// Package hostile attacks the server as a hostile client would, and measures what
// that does to others: a normal client reads at a steady rate from another
// address, in turn while nothing else happens and while an attack runs, so that a
// ratio of the two holds on a machine whose speed drifts. The attacker is a
// process of its own with a low priority, as it would not be on this machine.
//
//	go run ./internal/load hostile                        # on invented data, about 20 minutes
//	go run ./internal/load hostile -import FILE           # also on an imported catalogue
//	go run ./internal/load hostile -run 'bodies|scans'    # some of them
//	go run ./internal/load hostile -binary asof           # of another build
//
// Each attack has a server of its own, on a copy of a store. Everything stays on
// loopback, and every attack is bounded in time.
package hostile

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/asof/asof/internal/load/process"
)

// Config is what is measured, and how.
type Config struct {
	Binary string        // the program; "": it is built
	Import string        // a catalogue in the import format; "": what needs one is left out
	Memory int64         // the server's budget, in bytes; one that takes eight times as much is killed
	Length time.Duration // of the attack in a round, and of the time before it
	Rounds int
	// Quantile of the normal client's latencies is compared; its ratios may be Slack
	// times the limit. Short rounds on a busy machine have few requests, of which some
	// are slow for other reasons.
	Quantile, Slack float64
	Only            func(name string) bool
	// Self is the command that runs Main with the arguments that follow.
	Self []string
}

// Addresses of the clients. The server is at 127.0.0.1.
const (
	normalAddress   = "127.0.0.2"
	attackerAddress = "127.0.0.1"
)

// Main is the command: it prints a table, and fails where something was not held.
func Main(self, args []string, out io.Writer) error {
	if len(args) == 4 && args[0] == "attack" {
		return child(args[1], args[2], args[3], out)
	}
	c := Config{Self: self, Quantile: .99, Slack: 1}
	set := flag.NewFlagSet("hostile", flag.ContinueOnError)
	set.StringVar(&c.Binary, "binary", "", "the program to attack (default: it is built)")
	set.StringVar(&c.Import, "import", "", "an export of a catalogue with the schema of this repository; attacks that need one are left out without")
	set.Int64Var(&c.Memory, "memory", 512, "the server's --max-memory, in MiB")
	set.DurationVar(&c.Length, "length", 5*time.Second, "of one attack in one round, and of the time before it")
	set.IntVar(&c.Rounds, "rounds", 3, "rounds")
	only := set.String("run", "", "only attacks whose name this regular expression finds")
	if err := set.Parse(args); err != nil {
		return err
	}
	wanted, err := regexp.Compile(*only)
	if err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	c.Only = wanted.MatchString
	c.Memory <<= 20
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	b, err := newBench(ctx, c)
	if err != nil {
		return err
	}
	defer b.close()
	results, err := b.attack(ctx, attacks(), out)
	for _, r := range results {
		if len(r.Broken) > 0 {
			err = errors.Join(err, fmt.Errorf("%s: %s", r.Name, strings.Join(r.Broken, "; ")))
		}
	}
	return err
}

// bench is a program to attack, and stores for it.
type bench struct {
	Config

	dir string // of the stores; it is temporary
}

func newBench(ctx context.Context, c Config) (*bench, error) {
	b := &bench{Config: c}
	var err error
	if b.dir, err = os.MkdirTemp("", "hostile-"); err != nil {
		return nil, err
	}
	if b.Binary == "" {
		b.Binary = filepath.Join(b.dir, "asof")
		if built, err := exec.CommandContext(ctx, "go", "build", "-o", b.Binary, "github.com/asof/asof/internal/fixture").CombinedOutput(); err != nil {
			b.close()
			return nil, fmt.Errorf("building the server: %w\n%s", err, built)
		}
	}
	return b, nil
}

func (b *bench) close() { _ = os.RemoveAll(b.dir) }

// copyOf is a store of its own with this data.
func (b *bench) copyOf(ctx context.Context, data string) (string, error) {
	path, err := b.store(ctx, data)
	if err != nil {
		return "", err
	}
	from, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = from.Close() }()
	to, err := os.CreateTemp(b.dir, data+"-*.db")
	if err != nil {
		return "", err
	}
	_, err = io.Copy(to, from)
	return to.Name(), errors.Join(err, to.Close())
}

// serve starts the program on a copy of a store.
func (b *bench) serve(ctx context.Context, data string, log io.Writer) (*process.Server, error) {
	db, err := b.copyOf(ctx, data)
	if err != nil {
		return nil, err
	}
	return process.Start(ctx, log, b.Binary, "serve", "--addr", "127.0.0.1:0", "--store", "sqlite:"+db, fmt.Sprintf("--max-memory=%d", b.Memory))
}

// Result is what one attack did.
type Result struct {
	Name      string
	Idle      [classes]time.Duration // the quantile of the normal client, the median of the rounds
	Attacked  [classes]time.Duration
	IdleP50   time.Duration // of its point reads
	P50       time.Duration
	Failed    map[string]int // of the normal client under attack, by reason
	Requests  int            // of the normal client under attack
	Peak      int64          // resident memory of the server, in bytes
	CPU       time.Duration  // of the server in the attacks
	Wall      time.Duration  // of the attacks
	Settling  time.Duration  // the longest that the server worked on when an attack was over
	Logged    int64          // bytes of log in the attacks
	Answers   map[string]int // to the attacker
	Broken    []string       // what was not held
	overgrown atomic.Bool
	used      atomic.Int64 // CPU time of the server so far
}

// Ratio is how much slower a normal client's slowest requests of a class became.
func (r *Result) Ratio(class int) float64 {
	return float64(r.Attacked[class]) / float64(max(r.Idle[class], time.Microsecond))
}

// attack tries attacks one after another and prints a line for each.
func (b *bench) attack(ctx context.Context, list []attack, out io.Writer) ([]*Result, error) {
	_, _ = fmt.Fprintf(out, "| attack | p50 ms idle → under it | p%.0f ms of point reads | of pages | of scans | failed | peak MiB | CPU | log B each | answers | |\n|---|---|---|---|---|---|---|---|---|---|---|\n", 100*b.Quantile)
	var results []*Result
	for _, a := range list {
		if !b.Only(a.name) || a.data == catalogueData && b.Import == "" {
			continue
		}
		r, err := b.try(ctx, a)
		if err != nil {
			return results, fmt.Errorf("%s: %w", a.name, err)
		}
		results = append(results, r)
		_, _ = fmt.Fprintln(out, r)
		if ctx.Err() != nil {
			return results, ctx.Err()
		}
	}
	return results, nil
}

// counter counts what is written to it.
type counter struct{ n atomic.Int64 }

func (c *counter) Write(p []byte) (int, error) {
	c.n.Add(int64(len(p)))
	return len(p), nil
}

// ramp is how long an attack runs before the normal client is looked at.
const ramp = 500 * time.Millisecond

// try runs the rounds of one attack.
func (b *bench) try(ctx context.Context, a attack) (*Result, error) {
	var log counter
	s, err := b.serve(ctx, a.data, &log)
	if err != nil {
		return nil, err
	}
	defer s.Kill()
	source := normalAddress
	if a.same {
		source = attackerAddress
	}
	client, err := newNormal(s.URL, source)
	if err != nil {
		return nil, err
	}
	r := &Result{Name: a.name, Answers: map[string]int{}}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	go b.watch(watching, s, r)
	client.read(ctx, min(b.Length, time.Second)) // what it asks for first is not in memory
	settle(s, time.Minute)
	var idle, attacked []latencies
	for range b.Rounds {
		idle = append(idle, client.read(ctx, b.Length))
		before, logged, began := s.Usage().CPU, log.n.Load(), time.Now()
		done := make(chan error, 1)
		go func() { done <- b.launch(ctx, s.URL, a.name, r) }()
		time.Sleep(ramp)
		attacked = append(attacked, client.read(ctx, b.Length))
		if err := <-done; err != nil {
			return nil, err
		}
		r.Settling = max(r.Settling, settle(s, 2*time.Minute))
		r.Wall += time.Since(began)
		r.Logged += log.n.Load() - logged
		now := s.Usage()
		r.CPU += max(now.CPU, time.Duration(r.used.Load())) - before
		if !s.Alive() {
			break
		}
		r.Peak = max(r.Peak, now.Peak)
	}
	for class := range classes {
		r.Idle[class], r.Attacked[class] = middle(idle, class, b.Quantile), middle(attacked, class, b.Quantile)
	}
	r.IdleP50, r.P50 = middle(idle, pointReads, .5), middle(attacked, pointReads, .5)
	r.Failed = map[string]int{}
	for _, round := range attacked {
		r.Requests += round.total
		for why, n := range round.failed {
			r.Failed[why] += n
		}
	}
	r.judge(a, b.Memory, b.Slack, s.Alive())
	return r, nil
}

// settle waits until the server does nothing, which its CPU time shows over a
// while, or until the time is over, and returns how long that took.
func settle(s *process.Server, most time.Duration) time.Duration {
	const while, little = 300 * time.Millisecond, 20 * time.Millisecond
	began := time.Now()
	for time.Since(began) < most && s.Alive() {
		before := s.Usage().CPU
		time.Sleep(while)
		if s.Usage().CPU-before <= little {
			break
		}
	}
	return time.Since(began)
}

// watch kills a server that takes too much memory.
func (b *bench) watch(ctx context.Context, s *process.Server, r *Result) {
	for ctx.Err() == nil && s.Alive() {
		u := s.Usage()
		r.used.Store(max(int64(u.CPU), r.used.Load()))
		if u.RSS > 8*b.Memory {
			r.Peak = u.RSS
			r.overgrown.Store(true)
			s.Kill()
		}
		pause(ctx, 20*time.Millisecond)
	}
}

// launch runs the attacker for the length of an attack.
func (b *bench) launch(ctx context.Context, url, name string, r *Result) error {
	// Attackers have machines of their own: what they compute should cost the
	// server and the normal client as little as can be.
	command := []string{"nice", "-n", "19"}
	if _, err := exec.LookPath("chrt"); err == nil { // Linux: runs while nothing else does
		command = []string{"chrt", "--idle", "0"}
	}
	args := slices.Concat(command[1:], b.Self, []string{"attack", name, url, (b.Length + ramp).String()})
	attacker := exec.CommandContext(ctx, command[0], args...)
	attacker.Stderr = os.Stderr
	said, err := attacker.Output()
	if err != nil {
		return fmt.Errorf("the attacker: %w", err)
	}
	var answers map[string]int
	if err := json.Unmarshal(said, &answers); err != nil {
		return err
	}
	for answer, n := range answers {
		r.Answers[answer] += n
	}
	return nil
}

// child is the attacker: it attacks for so long, and prints what it was answered.
func child(name, url, length string, out io.Writer) error {
	took, err := time.ParseDuration(length)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), took)
	defer cancel()
	addr := strings.TrimSuffix(strings.TrimPrefix(url, "http://"), "/graphql")
	a := &attacker{addr: addr, said: map[string]int{}}
	a.number.Store(time.Now().UnixMicro() % 1e9) // other numbers in each round
	list := attacks()
	i := slices.IndexFunc(list, func(known attack) bool { return known.name == name })
	if i < 0 {
		return fmt.Errorf("there is no attack %q", name)
	}
	list[i].run(ctx, a)
	a.mu.Lock()
	defer a.mu.Unlock()
	return json.NewEncoder(out).Encode(a.said)
}

// mostLogged is how many bytes of log a request may make, on average.
const mostLogged = 4 << 10

// judge notes what was not held.
func (r *Result) judge(a attack, memory int64, slack float64, alive bool) {
	broken := func(format string, args ...any) { r.Broken = append(r.Broken, fmt.Sprintf(format, args...)) }
	switch {
	case r.overgrown.Load():
		broken("killed at %d MiB", r.Peak>>20)
	case !alive:
		broken("the server died")
	}
	most := a.ratio
	if most == 0 {
		most = usualRatio
	}
	if ratio := r.Ratio(pointReads); ratio > most*slack && !a.same {
		broken("point reads are %.1f times slower", ratio)
	}
	if r.Peak > memory+memory/10 && !r.overgrown.Load() {
		broken("%d MiB of memory", r.Peak>>20)
	}
	answers := 0
	for answer, n := range r.Answers {
		answers += n
		switch {
		case answer == saidOpen, answer == saidMessage, answer == "101", answer == "503", answer == "504", strings.HasPrefix(answer, "4"):
		case strings.HasPrefix(answer, "2") && !a.refused:
		case (answer == saidReset || answer == saidRefused) && a.drops:
		default:
			broken("%d × %s", n, answer)
		}
	}
	if answers == 0 && alive {
		broken("nothing was answered")
	}
	if each := r.Logged / int64(max(answers+r.Requests, 1)); each > mostLogged {
		broken("%d bytes of log for each request", each)
	}
	slices.Sort(r.Broken)
}

// String is the line of a table.
func (r *Result) String() string {
	ms := func(d time.Duration) string { return fmt.Sprintf("%.3g", float64(d.Microseconds())/1000) }
	counts := func(of map[string]int) string {
		var text []string
		for _, what := range slices.Sorted(maps.Keys(of)) {
			text = append(text, fmt.Sprintf("%d × %s", of[what], what))
		}
		return strings.Join(text, ", ")
	}
	answers := r.Requests
	for _, n := range r.Answers {
		answers += n
	}
	verdict := "held"
	if len(r.Broken) > 0 {
		verdict = strings.Join(r.Broken, "; ")
	}
	failed := counts(r.Failed)
	if failed != "" {
		failed += fmt.Sprintf(" of %d", r.Requests)
	}
	slowest := func(class int) string {
		return fmt.Sprintf("%s → %s (× %.1f)", ms(r.Idle[class]), ms(r.Attacked[class]), r.Ratio(class))
	}
	return fmt.Sprintf("| %s | %s → %s | %s | %s | %s | %s | %d | %.1f s in %.1f s, %.1f s after | %d | %s | %s |",
		r.Name, ms(r.IdleP50), ms(r.P50), slowest(pointReads), slowest(pageReads), slowest(scanReads),
		failed, r.Peak>>20, r.CPU.Seconds(), r.Wall.Seconds(), r.Settling.Seconds(), r.Logged/int64(max(answers, 1)), counts(r.Answers), verdict)
}
