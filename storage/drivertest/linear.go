package drivertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/asof/asof/storage/driver"
)

// History records what clients did to the documents of one collection, and
// when each call began and returned, so that Check can tell whether there is
// an order of the calls in which one register for each document would have
// given the same answers: whether the engine is linearizable.
//
// The history has a clock of its own that ticks at each begin and return; no
// time of any machine is involved. A call that began after another returned
// has a greater tick. Calls of History may come from any number of goroutines.
//
// So that a version tells who wrote it, a write's Author must be its ID.
type History struct {
	mu    sync.Mutex
	tick  int64
	calls []*Call
	found int
}

// NewHistory returns a history without calls.
func NewHistory() *History { return new(History) }

type callKind uint8

const (
	callWrite   callKind = iota + 1
	callRead             // of the last version there is, at Forever
	callReadNow          // of the version at an instant that Now returned
)

// never is when an open call returns.
const never = math.MaxInt64

// Call is one call of a client that was begun, and returned where it did.
type Call struct {
	history *History
	kind    callKind
	key     string
	batched bool // a write that was sent with others

	write    driver.Write   // of writes
	at       driver.Instant // of reads at an instant
	began    int64
	returned int64 // never: its outcome is unknown
	// What was answered: for writes a conflict or the version that was made,
	// for reads what was seen.
	conflict bool
	hidden   bool  // a read that shows live documents only showed none
	number   int64 // of the version, or the actual one of a conflict; 0: no version
	id       string
	deleted  bool
	recorded driver.Instant
}

func (h *History) begin(c *Call) *Call {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tick++
	c.history, c.began, c.returned = h, h.tick, never
	h.calls = append(h.calls, c)
	return c
}

// Write notes that a write is about to be sent. Sending it again, with the same
// ID, is part of the same call.
func (h *History) Write(w *driver.Write) *Call {
	return h.begin(&Call{kind: callWrite, key: w.Key, write: *w})
}

// Batch is the calls of one commit of several writes.
type Batch []*Call

// Batch notes that writes are about to be sent in one commit. Unknown leaves them out, since
// they may only be sent again together.
func (h *History) Batch(ws []driver.Write) Batch {
	calls := make(Batch, len(ws))
	for i, w := range ws {
		calls[i] = h.begin(&Call{kind: callWrite, key: w.Key, write: w, batched: true})
	}
	return calls
}

// Returned notes what the commit answered. Of one that met conflicts, the writes that did not
// are as if they had never been sent.
func (b Batch) Returned(vs []*driver.Version, err error) {
	var conflict *driver.ConflictError
	for i, c := range b {
		switch {
		case errors.As(err, &conflict):
			k := slices.IndexFunc(conflict.Lost, func(l driver.Conflict) bool { return l.Key == c.key })
			if k < 0 {
				c.drop()
				continue
			}
			c.Returned(nil, &driver.ConflictError{Lost: conflict.Lost[k : k+1]})
		case err != nil:
			c.Returned(nil, err)
		default:
			c.Returned(vs[i], nil)
		}
	}
}

// drop takes a call out of its history.
func (c *Call) drop() {
	c.history.mu.Lock()
	defer c.history.mu.Unlock()
	c.history.calls = slices.DeleteFunc(c.history.calls, func(other *Call) bool { return other == c })
}

// Read notes that the last version of a document is about to be read.
func (h *History) Read(key string) *Call { return h.begin(&Call{kind: callRead, key: key}) }

// ReadNow notes that Now is about to be asked, for a read at what it answers.
func (h *History) ReadNow(key string) *Call { return h.begin(&Call{kind: callReadNow, key: key}) }

// Returned notes what a call answered. A write that was answered with an error
// other than a conflict has an unknown outcome: it stays open, for ever or
// until it is sent again. A read that failed says nothing.
func (c *Call) Returned(v *driver.Version, err error) {
	var conflict *driver.ConflictError
	switch {
	case errors.As(err, &conflict):
		c.end(func() { c.conflict, c.number = true, conflict.Lost[0].Actual })
	case err != nil:
	case v == nil:
		c.end(func() {})
	default:
		c.end(func() { c.number, c.id, c.deleted, c.recorded = v.Number, v.Author, v.Deleted, v.RecordedAt })
	}
}

// ReturnedAt is Returned for a call of ReadNow, with the instant that Now gave.
func (c *Call) ReturnedAt(at driver.Instant, v *driver.Version, err error) {
	c.at = at
	c.Returned(v, err)
}

// ListedAt is ReturnedAt for a read that shows live documents only: nil stands
// for a document that does not exist or is deleted.
func (c *Call) ListedAt(at driver.Instant, v *driver.Version) {
	c.at = at
	if v == nil {
		c.end(func() { c.hidden = true })
		return
	}
	c.Returned(v, nil)
}

func (c *Call) end(answer func()) {
	c.history.mu.Lock()
	defer c.history.mu.Unlock()
	c.history.tick++
	c.returned = c.history.tick
	answer()
}

// Sent returns the write of a call.
func (c *Call) Sent() *driver.Write {
	w := c.write
	return &w
}

// Unknown returns the writes whose outcome is unknown. Once the clients that
// made them have given up, they may be sent again by anybody, who notes with
// Returned what came of it.
func (h *History) Unknown() []*Call {
	h.mu.Lock()
	defer h.mu.Unlock()
	var open []*Call
	for _, c := range h.calls {
		if c.kind == callWrite && c.returned == never && !c.batched {
			open = append(open, c)
		}
	}
	return open
}

// Counts says how many calls of a history there are of each kind: writes that
// made a version, that met a conflict, and whose outcome stayed unknown, and
// reads that were answered. Found are those of the unknown writes that Check
// found to have made a version.
type Counts struct{ Made, Conflicts, Unknown, Found, Reads int }

// Add adds up the calls of two histories.
func (n Counts) Add(m Counts) Counts {
	return Counts{n.Made + m.Made, n.Conflicts + m.Conflicts, n.Unknown + m.Unknown, n.Found + m.Found, n.Reads + m.Reads}
}

func (n Counts) String() string {
	return fmt.Sprintf("%d writes made a version, %d met a conflict, %d have an unknown outcome (%d of them made a version), %d reads",
		n.Made, n.Conflicts, n.Unknown, n.Found, n.Reads)
}

// Counts counts the calls so far.
func (h *History) Counts() Counts {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := Counts{Found: h.found}
	for _, c := range h.calls {
		switch {
		case c.kind == callWrite && c.returned == never:
			n.Unknown++
		case c.kind == callWrite && c.conflict:
			n.Conflicts++
		case c.kind == callWrite:
			n.Made++
		case c.returned != never:
			n.Reads++
		}
	}
	return n
}

// Drop forgets the documents for which the function returns true, when they
// were checked and are done with.
func (h *History) Drop(done func(key string) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	kept := h.calls[:0:0]
	for _, c := range h.calls {
		if !done(c.key) {
			kept = append(kept, c)
		}
	}
	h.calls = kept
}

// Repeat makes every read at an instant again and reports each whose answer is
// not what it was.
func (h *History) Repeat(ctx context.Context, e driver.Engine, collection string, report func(violation string)) error {
	h.mu.Lock()
	var reads []*Call
	for _, c := range h.calls {
		if c.kind == callReadNow && c.returned != never {
			reads = append(reads, c)
		}
	}
	h.mu.Unlock()
	const atOnce = 200
	for len(reads) > 0 {
		some := reads[:min(atOnce, len(reads))]
		reads = reads[len(some):]
		refs := make([]driver.Ref, len(some))
		for i, c := range some {
			refs[i] = driver.Ref{Key: c.key, At: c.at}
		}
		vs, err := e.Get(ctx, collection, refs, nil)
		if err != nil {
			return err
		}
		for i, c := range some {
			if !c.shows(vs[i]) {
				report(fmt.Sprintf("%s; read again, it is %s", c, describe(vs[i])))
			}
		}
	}
	return nil
}

// shows reports whether a read showed a version.
func (c *Call) shows(v *driver.Version) bool {
	if c.hidden {
		return v == nil || v.Deleted
	}
	if v == nil {
		return c.number == 0
	}
	return c.number == v.Number && c.id == v.Author && c.deleted == v.Deleted && c.recorded == v.RecordedAt
}

// String says what was asked, what was answered, and from which tick to which.
func (c *Call) String() string {
	var asked string
	switch c.kind {
	case callWrite:
		asked = fmt.Sprintf("write %s of %q expecting version %d", c.write.ID, c.key, c.write.Expected)
	case callRead:
		asked = fmt.Sprintf("read of %q", c.key)
	default:
		asked = fmt.Sprintf("read of %q at Now = %d", c.key, c.at)
	}
	if c.returned == never {
		return fmt.Sprintf("%s: unknown outcome [%d, …]", asked, c.began)
	}
	answer := fmt.Sprintf("version %d by %s at %d", c.number, c.id, c.recorded)
	switch {
	case c.conflict:
		answer = fmt.Sprintf("conflict with version %d", c.number)
	case c.hidden:
		answer = "no live document"
	case c.number == 0:
		answer = "no document"
	}
	return fmt.Sprintf("%s: %s [%d, %d]", asked, answer, c.began, c.returned)
}

// Verify reads the versions of the history's documents from an engine and
// checks the history with them: see Check and Repeat.
func (h *History) Verify(ctx context.Context, e driver.Engine, collection string, report func(violation string)) error {
	h.mu.Lock()
	keys := make(map[string]bool)
	q := &driver.LogQuery{Collections: []string{collection}}
	var last driver.Instant
	for _, c := range h.calls {
		last = max(last, c.recorded)
		if !keys[c.key] {
			keys[c.key] = true
			q.Keys = append(q.Keys, c.key)
		}
	}
	h.mu.Unlock()
	if len(q.Keys) == 0 {
		return nil
	}
	// Whose caller gave up may be in flight still: a read of the last version has shown it, and
	// the log ends before.
	if err := e.Settle(ctx, last); err != nil && driver.CodeOf(err) != driver.CodeInvalid {
		return err
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
