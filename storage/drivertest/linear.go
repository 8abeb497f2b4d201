package drivertest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

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
