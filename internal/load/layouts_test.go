package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/asof/asof/storage/mongostore/mongotest"
)

// sides are the databases that there are, in turn.
func sides(t *testing.T, test func(t *testing.T, s *side)) {
	t.Run("sqlite", func(t *testing.T) { test(t, sqlSide(t.TempDir())) })
	t.Run("mongodb", func(t *testing.T) { test(t, mongoSide(mongotest.URI(t))) })
}

// All layouts answer alike on random histories: what was written last, and at each
// instant what was current then, also when opened again. An update that comes too late
// changes nothing.
func TestLayoutsAgree(t *testing.T) {
	sides(t, func(t *testing.T, s *side) {
		for _, v := range s.variants {
			t.Run(v.name, func(t *testing.T) { testLayout(t, s, v) })
		}
	})
}

func testLayout(t *testing.T, s *side, v variant) {
	const documents, updates = pageSize + 10, 200
	ctx, random := t.Context(), rand.New(rand.NewPCG(3, 0))
	place, remove, err := s.place()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := remove(); err != nil {
			t.Error(err)
		}
	}()
	l, err := v.open(ctx, place)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.close() }()
	all := make([][]version, documents) // what was written, by number
	for i := range all {
		all[i] = history(fmt.Sprintf("document-%04d", i), 1+random.IntN(6), random)
		if err := l.fill(ctx, all[i]); err != nil {
			t.Fatal(err)
		}
	}
	for range updates {
		i := random.IntN(documents)
		n := len(all[i])
		old := all[i][n-1]
		next := version{old.key, old.number + 1, old.at + 1 + random.Int64N(layoutStep), all[random.IntN(documents)][0].data}
		if random.IntN(3) == 0 { // other members than before
			next.data = fmt.Sprintf(`{"a":{"b":[%d]},"name":"n"}`, random.IntN(3))
		}
		if n > 1 && random.IntN(4) == 0 {
			late := next
			late.number--
			if _, err := l.update(ctx, all[i][n-2], late); !errors.Is(err, errLost) {
				t.Fatalf("an update that is late: %v", err)
			}
		}
		made, err := l.update(ctx, old, next)
		if err != nil {
			t.Fatal(err)
		}
		next.at = made.at // asof has its own clock
		if made != next || made.at <= old.at {
			t.Fatalf("made %v\nwant %v", made, next)
		}
		all[i] = append(all[i], made)
		judge(ctx, t, l, all, random)
	}
	if err := l.close(); err != nil {
		t.Fatal(err)
	}
	if l, err = v.open(ctx, place); err != nil {
		t.Fatal(err)
	}
	for range 3 * documents {
		judge(ctx, t, l, all, random)
	}
}

// judge compares the answers about some document with what was written.
func judge(ctx context.Context, t *testing.T, l layout, all [][]version, random *rand.Rand) {
	t.Helper()
	i := random.IntN(len(all))
	past := all[i]
	last := past[len(past)-1]
	if now, err := l.current(ctx, last.key); err != nil || now != last {
		t.Fatalf("now %v, %v\nwant %v", now, err, last)
	}
	n := random.IntN(len(past))
	for at, want := range map[int64]version{past[n].at: past[n], past[n].at - 1: append([]version{{}}, past...)[n]} {
		if then, err := l.then(ctx, last.key, at); err != nil || then != want {
			t.Fatalf("as of %d %v, %v\nwant %v", at, then, err, want)
		}
	}
	var want []version
	for _, next := range all[i+1 : min(len(all), i+1+pageSize)] {
		want = append(want, next[len(next)-1])
	}
	if page, err := l.page(ctx, last.key); err != nil || !slices.Equal(page, want) {
		t.Fatalf("a page after %s: %v, %v\nwant %v", last.key, page, err, want)
	}
}

// The command prints a row for each layout and number.
func TestCompareLayouts(t *testing.T) {
	out, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	if err := compareLayouts(t.Context(), []string{"-rounds", "1", "-length", "1ns", "-documents", "51", "2", "3"}, out); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(out.Name())
	if err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]int{"\n| 2 | ": 6, "\n| 3 | ": 6, "\n": 2 + 12} {
		if got := strings.Count(string(text), line); got != want {
			t.Errorf("%d times %q, want %d, in\n%s", got, line, want, text)
		}
	}
	for _, args := range [][]string{{"1"}, {"x"}, {"-documents", "50"}, {"-rounds", "0"}} {
		if err := compareLayouts(t.Context(), args, out); err == nil {
			t.Errorf("%q was measured", args)
		}
	}
}
