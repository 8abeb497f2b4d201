package plantest

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/tidwall/gjson"
	"github.com/vektah/gqlparser/v2/ast"

	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
)

// Config says what is compared.
type Config struct {
	Types  []*storage.Type
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
	case 6:
		return Zstd
	case 7, 8:
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
