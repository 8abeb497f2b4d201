// Package plantest shows that plans and gqlgen's executor say the same: it makes
// random histories and random operations, asks two servers over one engine, and
// compares status, headers and body byte for byte.
//
// Invariants:
//
//   - Everything follows from a seed: histories, operations, transports and the
//     faults of the engine. A difference can be seen again.
//   - The servers are the program's own handlers (app.Main.Handler), over a real
//     engine whose clock stands (world.go): nothing that they may say depends on
//     when they are asked.
//   - Nothing is left out of the comparison but the order of errors of different
//     root fields, which gqlgen executes at the same time, and the header that
//     tells how the answer was made.
//   - Operations come from the schema and histories from the types' metadata, so
//     that a new type or kind of field is compared without a change here.
//   - What is found is made smaller before it is shown (shrink.go).
//
// The tests also make executors with one mistake each, which have to be found.
package plantest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/tidwall/gjson"
	"github.com/vektah/gqlparser/v2/ast"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/record"
)

// Config says what is compared.
type Config struct {
	Types  []*record.Type
	Schema *ast.Schema
	// Open opens an empty engine with the types' collections, which Run closes.
	Open func() (driver.Engine, error)
	// Serve makes the two servers over an engine.
	Serve func(driver.Engine) (*Pair, error)

	Seed       uint64
	Operations int
	World      uint64 // the number of the first history; 0: 1
	PerWorld   int    // operations on one history; 0: 2,000
	// Differences is how many are looked for before the run ends; 0: 1.
	Differences int
	AsFound     bool // differences are not made smaller
}

// How often what happens between operations, in operations.
const (
	perWorld   = 2000
	perGrowth  = 120 // versions are added
	perProbe   = 240 // cursors are taken from lists
	remembered = 300 // that are sent again with other variables
	together   = 40  // operations that are repeated at the same time
	ofVersions = 400 // a history begins with
)

// Run compares two servers, one random operation after the other, on random
// histories. The report says what was executed, also when there is an error.
func Run(ctx context.Context, cfg Config) (*Report, error) {
	report := newReport(cfg.Seed)
	if cfg.PerWorld == 0 {
		cfg.PerWorld = perWorld
	}
	for world := max(1, cfg.World); report.Operations < cfg.Operations && len(report.Differences) < max(1, cfg.Differences); world++ {
		if err := cfg.world(ctx, world, report); err != nil {
			return report, fmt.Errorf("world %d of seed %d: %w", world, cfg.Seed, err)
		}
	}
	return report, nil
}

// wildness is how many values of a world's documents fit the schema for one that
// does not; 0: all do.
func wildness(world uint64) int { return []int{0, 200, 12}[world%3] }

// world compares the servers on one history.
func (cfg *Config) world(ctx context.Context, number uint64, report *Report) (err error) {
	engine, err := cfg.Open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, engine.Close()) }()
	c := Seeded(cfg.Seed, number)
	w, err := NewWorld(ctx, engine, cfg.Types, c, wildness(number), ofVersions)
	if err != nil {
		return err
	}
	pair, err := cfg.Serve(w.engine)
	if err != nil {
		return err
	}
	defer pair.Close()
	known := &lists{}
	var recent []asked
	var older []*Operation
	for i := range min(cfg.PerWorld, cfg.Operations-report.Operations) {
		if i%perGrowth == perGrowth-1 {
			if err := pair.together(ctx, recent, number, report); err != nil {
				return err
			}
			if err := w.Grow(ctx, 1+c.Below(20)); err != nil {
				return err
			}
			recent = nil
			w.Fault()
		}
		if i%perProbe == 0 {
			if known, err = pair.probe(ctx, c, w, cfg.Schema); err != nil {
				return err
			}
		}
		var op *Operation
		if len(older) > 0 && c.Chance(5) { // known, but not what it says today
			op = OneOf(c, older).vary(c)
		} else {
			op = Generate(c, w, cfg.Schema, known)
			older = append(older[max(0, len(older)-remembered+1):], op)
		}
		way := wayFor(c, op)
		want, got, d, err := pair.compare(ctx, op, way, report.Operations)
		if err != nil {
			return fmt.Errorf("%s:\n%s\n%w", way, op, err)
		}
		report.add(op, way, want, got)
		if d != nil {
			if !cfg.AsFound {
				d = pair.shrink(ctx, d)
			}
			report.differ(d, number)
			if len(report.Differences) >= max(1, cfg.Differences) {
				return nil
			}
		}
		if recent = append(recent, asked{op, way, want}); len(recent) > together {
			recent = recent[1:]
		}
	}
	return pair.together(ctx, recent, number, report)
}

// wayFor chooses a transport: POST, mostly.
func wayFor(c *Choices, op *Operation) Transport {
	switch c.Below(40) {
	case 0, 1, 2:
		if !op.mutates() {
			return Get
		}
	case 3:
		return Events
	case 4:
		return WebSocket
	case 5:
		return Gzip
	case 6, 7:
		return GraphQL
	}
	return Post
}

// asked is an operation and what the trusted server said.
type asked struct {
	op   *Operation
	way  Transport
	want answer
}

// together asks the other server for operations again, all at the same time: it
// must say what the trusted one said before.
func (p *Pair) together(ctx context.Context, ops []asked, world uint64, report *Report) error {
	var group sync.WaitGroup
	got := make([]answer, len(ops))
	for i, a := range ops {
		if a.way != WebSocket {
			group.Go(func() { got[i] = send(ctx, p.Other, a.op, a.way, i) })
		}
	}
	group.Wait()
	for i, a := range ops {
		if a.way == WebSocket {
			continue
		}
		want := send(ctx, p.Trusted, a.op, a.way, i)
		if !want.same(got[i]) {
			report.differ(&Difference{Operation: a.op, Way: a.way, Want: want, Got: got[i], Concurrency: true}, world)
		}
		report.Together++
	}
	return nil
}

// probe reads the cursors of some lists.
func (p *Pair) probe(ctx context.Context, c *Choices, w *World, schema *ast.Schema) (*lists, error) {
	const some = 24
	known := &lists{}
	for i := range some {
		op, l := probe(c, w, schema, i%4 == 3)
		a := send(ctx, p.Trusted, op, Post, i)
		for _, cursor := range gjson.Get(a.body, "data|@dig:cursor").Array() {
			l.cursors = append(l.cursors, cursor.Str)
		}
		switch {
		case len(l.cursors) == 0:
		case l.versions:
			known.versions = append(known.versions, l)
		default:
			known.roots = append(known.roots, l)
		}
	}
	return known, ctx.Err()
}

// Report says what a run compared.
type Report struct {
	Seed        uint64
	Operations  int
	Together    int // of them that were repeated at the same time as others
	Executed    int // of them that were begun, and have data
	Whole       int // of those that have no error
	Nulled      int // of those whose data is null
	Reads       int // of those that are queries
	Planned     int // of these that were answered by a plan
	Ways        map[Transport]int
	Codes       map[string]int // of the first errors
	Unplanned   map[string]int // why the others were not
	Differences []*Difference
	Where       []string // how to see them again
}

func newReport(seed uint64) *Report {
	return &Report{Seed: seed, Ways: map[Transport]int{}, Codes: map[string]int{}, Unplanned: map[string]int{}}
}

// add counts an operation.
func (r *Report) add(op *Operation, way Transport, want, got answer) {
	r.Operations++
	r.Ways[way]++
	body := want.body
	if way == Events || way == WebSocket {
		return // counted by the ways whose answers are one object
	}
	code := gjson.Get(body, "errors.0.extensions.code")
	if code.Exists() {
		r.Codes[code.Str]++
	}
	if !want.executed() {
		return
	}
	r.Executed++
	if !code.Exists() {
		r.Whole++
	}
	if gjson.Get(body, "data").Type == gjson.Null {
		r.Nulled++
	}
	if op.mutates() {
		return
	}
	r.Reads++
	if reason, ok := strings.CutPrefix(got.how, "plan"); ok && reason == "" {
		r.Planned++
	} else {
		r.Unplanned[strings.TrimPrefix(got.how, "gqlgen; ")]++
	}
}

func (r *Report) differ(d *Difference, world uint64) {
	r.Differences = append(r.Differences, d)
	r.Where = append(r.Where, fmt.Sprintf("seed %d, world %d, operation %d", r.Seed, world, r.Operations))
}

// Worth returns an error where the comparison says little: where less than half
// of the reads were planned, so that gqlgen's executor was compared with itself,
// or where few operations were executed, or few of those without an error.
func (r *Report) Worth() error {
	var errs []error
	if r.Reads == 0 || 2*r.Planned < r.Reads {
		errs = append(errs, fmt.Errorf("plantest: of %d reads only %d were planned", r.Reads, r.Planned))
	}
	if 2*r.Executed < r.Operations*8/10 || 2*r.Whole < r.Executed {
		errs = append(errs, fmt.Errorf("plantest: of %d operations only %d were executed, and %d of them without an error", r.Operations, r.Executed, r.Whole))
	}
	return errors.Join(errs...)
}

// String is a summary of a few lines.
func (r *Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d: %d operations, %d more at the same time as others, %d differences\n", r.Seed, r.Operations, r.Together, len(r.Differences))
	fmt.Fprintf(&b, "%d executed, %d without error, %d with data null; of %d reads %d were planned\n", r.Executed, r.Whole, r.Nulled, r.Reads, r.Planned)
	counts(&b, "sent by", r.Ways)
	counts(&b, "first errors", r.Codes)
	counts(&b, "not planned", r.Unplanned)
	return b.String()
}

func counts[K ~string](b *strings.Builder, title string, m map[K]int) {
	if len(m) == 0 {
		return
	}
	fmt.Fprintf(b, "%s:", title)
	if len(m) > 12 {
		fmt.Fprintf(b, " (the most frequent of %d)", len(m))
	}
	for i, k := range slices.SortedFunc(maps.Keys(m), func(x, y K) int { return cmp.Or(m[y]-m[x], cmp.Compare(x, y)) }) {
		if i < 12 {
			fmt.Fprintf(b, " %s %d,", k, m[k])
		}
	}
	b.WriteString("\n")
}
