package drivertest

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/asof/asof/storage/driver"
)

// historyStep is one step of a history written by hand: a call begins, or returns.
type historyStep struct {
	call   string // its name; what is told of one name first is its begin
	write  *driver.Write
	key    string // of a read
	now    bool   // the read is at Now
	answer *driver.Version
	err    error
	at     driver.Instant
	hidden bool
}

func begins(call, id string, expected int64) historyStep {
	return historyStep{call: call, write: &driver.Write{ID: id, Author: id, Key: "k", Expected: expected}}
}

func removes(call, id string, expected int64) historyStep {
	return historyStep{call: call, write: &driver.Write{ID: id, Author: id, Key: "k", Expected: expected, Deleted: true}}
}

func reads(call string) historyStep    { return historyStep{call: call, key: "k"} }
func readsNow(call string) historyStep { return historyStep{call: call, key: "k", now: true} }

// version is number n of k, recorded at ten times n.
func version(n int64, id string) *driver.Version {
	return &driver.Version{Key: "k", Number: n, Author: id, RecordedAt: driver.Instant(10 * n)}
}

func tombstone(n int64, id string) *driver.Version {
	v := version(n, id)
	v.Deleted = true
	return v
}

func answers(call string, v *driver.Version) historyStep { return historyStep{call: call, answer: v} }

func answersAt(call string, at driver.Instant, v *driver.Version) historyStep {
	return historyStep{call: call, at: at, answer: v}
}

func loses(call string, actual int64) historyStep {
	return historyStep{call: call, err: &driver.ConflictError{Lost: []driver.Conflict{{Key: "k", Actual: actual}}}}
}
func fails(call string) historyStep { return historyStep{call: call, err: errors.New("no answer")} }

// What Check says of histories that were made up: nothing of those that an
// engine may produce, and the mistake of the others.
func TestHistoryCheck(t *testing.T) {
	v1, v2, v3 := version(1, "a"), version(2, "b"), version(3, "c")
	for _, c := range []struct {
		name  string
		steps []historyStep
		final []*driver.Version
		want  string // in the report; empty: nothing is wrong
	}{
		{name: "nothing"},
		{
			name: "one after the other",
			steps: []historyStep{
				begins("w", "a", 0), answers("w", v1), reads("r"), answers("r", v1), begins("x", "b", 1), answers("x", v2),
				begins("y", "c", 1), loses("y", 2), readsNow("n"), answersAt("n", 25, v2),
			},
			final: []*driver.Version{v1, v2},
		},
		{
			name: "a read during a write shows either",
			steps: []historyStep{
				begins("w", "a", 0), answers("w", v1), begins("x", "b", 1),
				reads("r"), reads("s"), answers("s", v1), answers("r", v2), answers("x", v2),
			},
			final: []*driver.Version{v1, v2},
		},
		{
			name:  "a read of the last version is ahead of Now",
			steps: []historyStep{begins("w", "a", 0), reads("r"), answers("r", v1), readsNow("n"), answersAt("n", 9, nil), answers("w", v1)},
			final: []*driver.Version{v1},
		},
		{
			name: "an unknown outcome, applied much later",
			steps: []historyStep{
				begins("w", "a", 0), answers("w", v1), begins("x", "b", 1), fails("x"), reads("r"), answers("r", v1),
				reads("s"), answers("s", v2), begins("y", "c", 2), answers("y", v3),
			},
			final: []*driver.Version{v1, v2, v3},
		},
		{
			name:  "an unknown outcome, never applied",
			steps: []historyStep{begins("w", "a", 0), answers("w", v1), begins("x", "b", 1), fails("x"), reads("r"), answers("r", v1)},
			final: []*driver.Version{v1},
		},
		{
			name:  "an unknown outcome, applied after the last read",
			steps: []historyStep{begins("w", "a", 0), fails("w"), reads("r"), answers("r", nil)},
			final: []*driver.Version{v1},
		},
		{
			name: "deleted and made again",
			steps: []historyStep{
				begins("w", "a", 0), answers("w", v1), removes("x", "b", 1), answers("x", tombstone(2, "b")),
				{call: "r", key: "k", now: true},
				{call: "r", at: 25, hidden: true},
				begins("y", "c", 0), answers("y", v3), begins("z", "d", 0), loses("z", 3),
			},
			final: []*driver.Version{v1, tombstone(2, "b"), v3},
		},
		{
			name:  "a stale read",
			steps: []historyStep{begins("w", "a", 0), answers("w", v1), begins("x", "b", 1), answers("x", v2), reads("r"), answers("r", v1)},
			final: []*driver.Version{v1, v2},
			want:  "reads of the last version explains",
		},
		{
			name: "reads that go back",
			steps: []historyStep{
				begins("w", "a", 0), answers("w", v1), begins("x", "b", 1), reads("r"), answers("r", v2), reads("s"), answers("s", v1), answers("x", v2),
			},
			final: []*driver.Version{v1, v2},
			want:  "reads of the last version explains",
		},
		{
			name:  "a read at Now that misses what was acknowledged",
			steps: []historyStep{begins("w", "a", 0), answers("w", v1), readsNow("n"), answersAt("n", 9, nil)},
			final: []*driver.Version{v1},
			want:  "reads at Now explains",
		},
		{
			name:  "a read at Now that later is another",
			steps: []historyStep{begins("w", "a", 0), readsNow("n"), answersAt("n", 15, nil), answers("w", v1)},
			final: []*driver.Version{v1},
			want:  "in the end it was",
		},
		{
			name:  "a write before it was sent",
			steps: []historyStep{reads("r"), answers("r", v1), begins("w", "a", 0), answers("w", v1)},
			final: []*driver.Version{v1},
			want:  "reads of the last version explains",
		},
		{
			name:  "two writes on the same version",
			steps: []historyStep{begins("w", "a", 0), answers("w", v1), begins("x", "b", 1), answers("x", v2), begins("y", "c", 1), answers("y", v3)},
			final: []*driver.Version{v1, v2, v3},
			want:  "reads of the last version explains",
		},
		{
			name:  "a lost update",
			steps: []historyStep{begins("w", "a", 0), answers("w", v1), begins("x", "b", 0), answers("x", version(1, "b"))},
			final: []*driver.Version{version(1, "b")},
			want:  "but it is not there",
		},
		{
			name:  "acknowledged and lost",
			steps: []historyStep{begins("w", "a", 0), answers("w", v1), begins("x", "b", 1), answers("x", v2)},
			final: []*driver.Version{v1},
			want:  "but it is not there",
		},
		{
			name:  "seen and lost",
			steps: []historyStep{begins("w", "a", 0), fails("w"), reads("r"), answers("r", v1), reads("s"), answers("s", nil)},
			final: nil,
			want:  "reads of the last version explains",
		},
		{
			name:  "applied twice",
			steps: []historyStep{begins("w", "a", 0), answers("w", v1)},
			final: []*driver.Version{v1, version(2, "a")},
			want:  "applied twice",
		},
		{
			name:  "a conflict with itself",
			steps: []historyStep{begins("w", "a", 0), fails("w"), loses("w", 1)},
			final: []*driver.Version{v1},
			want:  "but it made version 1",
		},
		{
			name:  "a conflict with a version that never was",
			steps: []historyStep{begins("w", "a", 0), answers("w", v1), begins("x", "b", 7), loses("x", 3)},
			final: []*driver.Version{v1},
			want:  "reads of the last version explains",
		},
		{
			name:  "a conflict where there is none",
			steps: []historyStep{begins("w", "a", 0), answers("w", v1), begins("x", "b", 1), loses("x", 1)},
			final: []*driver.Version{v1},
			want:  "reads of the last version explains",
		},
		{
			name:  "a number is skipped",
			steps: []historyStep{begins("w", "a", 0), answers("w", version(2, "a"))},
			final: []*driver.Version{version(2, "a")},
			want:  "version 2 at 20 is the 1th",
		},
		{
			name:  "another content",
			steps: []historyStep{begins("w", "a", 0), answers("w", v1)},
			final: []*driver.Version{{Key: "k", Number: 1, Author: "a", RecordedAt: 10, Data: []byte(`{}`)}},
			want:  "it was sent with",
		},
		{
			name:  "somebody else's version",
			steps: []historyStep{reads("r"), answers("r", nil)},
			final: []*driver.Version{v1},
			want:  "no such write was sent",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			h, calls := NewHistory(), make(map[string]*Call)
			for _, s := range c.steps {
				call, began := calls[s.call]
				switch {
				case !began && s.write != nil:
					calls[s.call] = h.Write(s.write)
				case !began && s.now:
					calls[s.call] = h.ReadNow(s.key)
				case !began:
					calls[s.call] = h.Read(s.key)
				case s.hidden:
					call.ListedAt(s.at, nil)
				case s.at != 0:
					call.ReturnedAt(s.at, s.answer, s.err)
				default:
					call.Returned(s.answer, s.err)
				}
			}
			var found []string
			h.Check(c.final, func(violation string) { found = append(found, violation) })
			all := strings.Join(found, "\n")
			switch {
			case c.want == "" && len(found) > 0:
				t.Errorf("nothing is wrong, but:\n%s", all)
			case c.want != "" && !strings.Contains(all, c.want):
				t.Errorf("want %q, found:\n%s", c.want, all)
			}
		})
	}
}

// Reads that are made again are compared with what they had answered.
func TestHistoryRepeat(t *testing.T) {
	m := newModel(newClock().now, declared())
	ctx := context.Background()
	v, err := driver.CommitOne(ctx, m, &driver.Write{ID: "a", Author: "a", Collection: collection, Key: "k", Op: driver.OpCreate, Data: []byte(`{}`)})
	if err != nil {
		t.Fatal(err)
	}
	h := NewHistory()
	h.ReadNow("k").ReturnedAt(v.RecordedAt, v, nil)
	h.ReadNow("k").ReturnedAt(v.RecordedAt-1, nil, nil)
	h.ReadNow("k").ListedAt(v.RecordedAt-1, nil)
	wrong := 0
	repeat := func() {
		if err := h.Repeat(ctx, m, collection, func(string) { wrong++ }); err != nil {
			t.Fatal(err)
		}
	}
	if repeat(); wrong != 0 {
		t.Errorf("%d reads differ, want none", wrong)
	}
	h.ReadNow("k").ReturnedAt(v.RecordedAt-1, v, nil)
	h.ReadNow("k").ListedAt(v.RecordedAt, nil)
	if repeat(); wrong != 2 {
		t.Errorf("%d reads differ, want 2", wrong)
	}
}
