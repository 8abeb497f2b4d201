package drivertest

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/asof/asof/storage/driver"
)

// Verify reads the versions of the history's documents from an engine and
// checks the history with them: see Check and Repeat.
func (h *History) Verify(ctx context.Context, e driver.Engine, collection string, report func(violation string)) error {
	h.mu.Lock()
	keys := make(map[string]bool)
	q := &driver.LogQuery{Collections: []string{collection}}
	for _, c := range h.calls {
		if !keys[c.key] {
			keys[c.key] = true
			q.Keys = append(q.Keys, c.key)
		}
	}
	h.mu.Unlock()
	if len(q.Keys) == 0 {
		return nil
	}
	var final []*driver.Version
	for v, err := range e.Log(ctx, q) {
		if err != nil {
			return err
		}
		final = append(final, v)
	}
	h.Check(final, report)
	return h.Repeat(ctx, e, collection, report)
}

// Check compares the history with all versions that its documents have in the
// end. It reports each version that is doubled, out of place or nobody's, each
// write that was acknowledged and is not there as it was told, or is there
// though its client was told that it lost, or has not the content that was
// sent, each read at an instant that does not show what was current then, and each document for which there is no
// order of the calls that explains the answers.
//
// The order is looked for twice. Reads of the last version, conflicts and
// writes are calls of one register. Reads at Now are calls of another: Now may
// be before a commit that has not been acknowledged yet, which a read of the
// last version may show already.
//
// A write with an unknown outcome is one that may take effect at any time after
// it was begun, if it is among the versions, and that had no effect otherwise.
func (h *History) Check(final []*driver.Version, report func(violation string)) {
	h.mu.Lock()
	calls := make(map[string][]Call)
	for _, c := range h.calls {
		calls[c.key] = append(calls[c.key], *c)
	}
	end := h.tick + 1
	h.mu.Unlock()
	versions := make(map[string][]*driver.Version)
	for _, v := range final {
		versions[v.Key] = append(versions[v.Key], v)
	}
	found := 0
	for key, of := range calls {
		d := &ending{key: key, calls: of, versions: versions[key], report: report}
		d.check(end)
		found += d.found
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.found = found
}

// ending is what became of one document.
type ending struct {
	key      string
	calls    []Call
	versions []*driver.Version // in the order of their times
	report   func(violation string)
	found    int // writes with an unknown outcome that made a version
}

func (d *ending) check(end int64) {
	written := make(map[string]bool)
	for i := range d.calls {
		if c := &d.calls[i]; c.kind == callWrite {
			written[c.write.ID] = true
		}
	}
	made := make(map[string]*driver.Version)
	for i, v := range d.versions {
		if v.Number != int64(i)+1 || i > 0 && v.RecordedAt <= d.versions[i-1].RecordedAt {
			d.report(fmt.Sprintf("%q: version %d at %d is the %dth", d.key, v.Number, v.RecordedAt, i+1))
		}
		if before := made[v.Author]; before != nil {
			d.report(fmt.Sprintf("%q: the write %s was applied twice, as version %d and as version %d", d.key, v.Author, before.Number, v.Number))
		}
		if !written[v.Author] {
			d.report(fmt.Sprintf("%q: version %d is by %q, and no such write was sent", d.key, v.Number, v.Author))
		}
		made[v.Author] = v
	}
	var last, stable []porcupine.Operation
	for i := range d.calls {
		c := &d.calls[i]
		switch c.kind {
		case callWrite:
			if !d.resolve(c, made[c.write.ID]) {
				continue
			}
			last = append(last, c.operation())
			if !c.conflict {
				stable = append(stable, c.operation())
			}
		case callRead:
			if c.returned != never {
				last = append(last, c.operation())
			}
		case callReadNow:
			if c.returned == never {
				continue
			}
			if v := versionAt(d.versions, c.at); !c.shows(v) {
				d.report(fmt.Sprintf("%s; in the end it was %s", c, describe(v)))
			}
			stable = append(stable, c.operation())
		}
	}
	finally := Call{kind: callRead, key: d.key, began: end, returned: end}
	if n := len(d.versions); n > 0 {
		v := d.versions[n-1]
		finally.number, finally.id, finally.deleted = v.Number, v.Author, v.Deleted
	}
	d.order("writes and reads of the last version", append(last, finally.operation()))
	d.order("writes and reads at Now", append(stable, finally.operation()))
}

// resolve completes an unknown outcome by the version that the write made, and
// compares a known one with it. It returns false where there was no effect.
func (d *ending) resolve(c *Call, v *driver.Version) bool {
	if v != nil && (!bytes.Equal(v.Data, c.write.Data) || v.Deleted != c.write.Deleted) {
		d.report(fmt.Sprintf("%s: it was sent with %s, and is %s", c, c.write.Data, describe(v)))
	}
	switch {
	case c.returned == never && v == nil:
		return false
	case c.returned == never:
		d.found++
		c.number, c.id, c.deleted, c.recorded = v.Number, v.Author, v.Deleted, v.RecordedAt
	case c.conflict && v != nil:
		d.report(fmt.Sprintf("%s, but it made version %d", c, v.Number))
	case c.conflict:
	case v == nil:
		d.report(fmt.Sprintf("%s, but it is not there", c))
	case !c.shows(v):
		d.report(fmt.Sprintf("%s, but it is %s", c, describe(v)))
	}
	return true
}

func (c *Call) operation() porcupine.Operation {
	return porcupine.Operation{Input: c, Call: c.began, Return: c.returned}
}

// register is the state of a document in the model: its last version.
type register struct {
	number  int64
	id      string
	deleted bool
}

// step says whether a call could give its answer in a state, and which state
// it leaves.
func (r register) step(c *Call) (possible bool, next register) {
	if c.kind != callWrite {
		if c.hidden {
			return r.number == 0 || r.deleted, r
		}
		return r == register{c.number, c.id, c.deleted}, r
	}
	expected := c.write.Expected == r.number || c.write.Expected == 0 && r.deleted
	if c.conflict {
		return !expected && c.number == r.number, r
	}
	return expected && c.number == r.number+1, register{c.number, c.write.ID, c.write.Deleted}
}

// orderTimeout bounds the search for an order, which is quick where there is
// one, and can take for ever where there is none.
const orderTimeout = 5 * time.Minute

// order looks for an order of the operations that explains their answers.
func (d *ending) order(of string, operations []porcupine.Operation) {
	model := porcupine.Model{
		Init: func() any { return register{} },
		Step: func(state, input, _ any) (bool, any) {
			return state.(register).step(input.(*Call))
		},
	}
	switch porcupine.CheckOperationsTimeout(model, operations, orderTimeout) {
	case porcupine.Ok:
	case porcupine.Unknown:
		d.report(fmt.Sprintf("%q: no order of its %d %s was found in %v", d.key, len(operations), of, orderTimeout))
	default:
		d.report(fmt.Sprintf("%q: no order of its %d %s explains the answers.\n%s", d.key, len(operations), of, stuck(model, operations)))
	}
}

// stuck shows where the longest order that there is ends.
func stuck(model porcupine.Model, operations []porcupine.Operation) string {
	_, info := porcupine.CheckOperationsVerbose(model, operations, orderTimeout)
	var longest []porcupine.Operation
	for _, part := range info.PartialLinearizationsOperations() {
		for _, order := range part {
			if len(order) > len(longest) {
				longest = order
			}
		}
	}
	placed := make(map[any]bool)
	for _, op := range longest {
		placed[op.Input] = true
	}
	var rest []porcupine.Operation
	for _, op := range operations {
		if !placed[op.Input] {
			rest = append(rest, op)
		}
	}
	slices.SortFunc(rest, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	const shown = 8
	var b strings.Builder
	for _, op := range longest[max(0, len(longest)-shown):] {
		fmt.Fprintf(&b, "\tthen %s\n", op.Input)
	}
	for _, op := range rest[:min(shown, len(rest))] {
		fmt.Fprintf(&b, "\tleft %s\n", op.Input)
	}
	return b.String()
}
