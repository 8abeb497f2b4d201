package plantest

import (
	"sync"
	"testing"

	"github.com/asof/asof/internal/fixture/graph/model"
)

// FuzzPlan makes operations of bytes and compares the answers, on one history:
//
//	go test ./internal/plan/plantest -run none -fuzz FuzzPlan -fuzztime 10m -fuzzminimizetime 1x
func FuzzPlan(f *testing.F) {
	const wild = 12 // many values do not fit the schema
	cfg := config(f, sqlite(f))
	engine, err := cfg.Open()
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = engine.Close() })
	w, err := NewWorld(f.Context(), engine, model.Types, Seeded(1, 1), wild, ofVersions)
	if err != nil {
		f.Fatal(err)
	}
	pair, err := cfg.Serve(w.engine)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(pair.Close)
	known, err := pair.probe(f.Context(), Seeded(1, 2), w, cfg.Schema)
	if err != nil {
		f.Fatal(err)
	}
	for seed := range uint64(40) {
		c := Seeded(2, seed)
		b := make([]byte, 40+c.Below(400))
		for i := range b {
			b[i] = byte(c.Below(256))
		}
		f.Add(b)
	}
	var one sync.Mutex // a fault is the world's
	f.Fuzz(func(t *testing.T, b []byte) {
		one.Lock()
		defer one.Unlock()
		c := FromBytes(b)
		w.choices = c
		w.Fault()
		way := OneOf(c, []Transport{Post, Post, Get, Events, Gzip, GraphQL})
		op := Generate(c, w, cfg.Schema, known)
		if way == Get && op.mutates() {
			way = Post
		}
		_, _, d, err := pair.compare(t.Context(), op, way, 1)
		if err != nil {
			t.Fatal(err)
		}
		if d != nil {
			t.Error(pair.shrink(t.Context(), d))
		}
	})
}
