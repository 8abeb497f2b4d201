package httpapi

import (
	"bytes"
	"cmp"
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"

	"github.com/asof/asof/internal/app/admission"
)

// run is one operation on its way: it is read, has a place, is executed, and returns its
// answer. All transports execute by it.
type run struct {
	h       *Handler
	op      *operation
	place   *admission.Place // nil: none any more
	ctx     context.Context  // the operation's; nil: it is not read yet
	oc      *graphql.OperationContext
	params  *graphql.RawParams
	follows bool          // it is a subscription that waits for events
	base    int64         // bytes that it holds while it waits
	refused gqlerror.List // why the operation is not executed
	status  int           // the HTTP status for that; 0: the usual one
}

// longRequest is the decodedSize of a request from which on it takes long to read, and to write what
// it holds.
const longRequest = 256 << 10

// documentFactor is how many times as much memory a parsed document takes as its text, at
// most, if it has not as many tokens as it may.
const documentFactor = 110

// begin waits for memory, and then for a place, for the text that a client has sent, and reads
// it by decode. With a problem, there is nothing to execute; otherwise end has to be called
// after the answer was sent.
func (h *Handler) begin(ctx context.Context, op *operation, text []byte, params *graphql.RawParams, decode func() *problem) (_ *run, p *problem) {
	if !h.running.TryAcquire(1) {
		return nil, &problem{http.StatusServiceUnavailable, CodeUnavailable, "the server is shutting down; nothing was executed"}
	}
	r := &run{h: h, op: op, params: params}
	begun := false
	defer func() {
		if !begun { // refused, or panicked
			r.end()
		}
	}()
	size := decodedSize(text)
	if p := h.waitForMemory(ctx, op.hold, size); p != nil {
		return nil, p
	}
	var err error
	if op.event {
		r.place, err = h.gate.EnterUnasked(ctx, op.client)
	} else {
		r.place, err = h.gate.Enter(ctx, op.client, size >= longRequest)
	}
	if err != nil {
		return nil, busy()
	}
	r.ctx = newOpContext(ctx, op, h.cfg.Now, r.place.Began().Add(h.cfg.Limits.Time))
	if p := decode(); p != nil {
		return nil, p
	}
	if params.Query != "" && !h.exec.documents.find(op, params) {
		if err := r.place.ReadFirstTime(ctx); err != nil {
			r.place = nil
			return nil, busy()
		}
		if op.hold.Grow(int64(min(documentFactor*len(params.Query), len(params.Query)+tokenBytes*h.cfg.Limits.Tokens))) != nil {
			return nil, outOfMemory()
		}
	}
	if p := r.start(params); p != nil {
		return nil, p
	}
	begun = true
	return r, nil
}

// start reads the operation, and takes the place that it is executed in.
func (r *run) start(params *graphql.RawParams) *problem {
	r.oc, r.refused = r.h.exec.read(r.ctx, r.op, params)
	if params.Query == "" {
		r.status = http.StatusBadRequest // not a GraphQL request
	}
	if r.refused != nil {
		return nil
	}
	switch kind := r.oc.Operation.Operation; {
	case kind == ast.Subscription && r.op.transport != transportSocket && r.op.transport != transportEvents:
		r.refused = gqlerror.List{refuse(codeBadInput, "a subscription is answered by a stream: send it over a WebSocket (%s), or with the header Accept: %s", subprotocol, mediaEvents)}
		return nil
	case kind == ast.Subscription && len(graphql.CollectFields(r.oc, r.oc.Operation.SelectionSet, []string{"Subscription"})) != 1:
		r.refused = gqlerror.List{refuse(codeBadInput, "a subscription has exactly one field; send one operation for each")}
		return nil
	case kind == ast.Mutation && r.op.get:
		r.status = http.StatusMethodNotAllowed
		r.refused = gqlerror.List{refuse(codeBadInput, "a mutation cannot be sent by GET; send it by POST")}
		return nil
	case kind == ast.Mutation && r.op.readOnly != nil:
		r.status = r.op.readOnly.Status
		r.refused = gqlerror.List{refuse(r.op.readOnly.Code, "%s", r.op.readOnly.Message)}
		return nil
	}
	// A mutation that asks for pages of what it changed may read as much as a query, and has
	// a query's place and time.
	write := r.oc.Operation.Operation == ast.Mutation && !r.op.pages
	// The request's context: waiting with the operation's would start its timer.
	if err := r.place.Operation(r.op.opContext.Context, r.oc.Operation.Name, r.oc.RawQuery, r.op.mayBeLong, write); err != nil {
		r.place = nil
		return busy()
	}
	r.op.opContext.execute(r.place.Began(), cmp.Or(r.op.left, r.h.cfg.Limits.Execution), &r.h.processor, write)
	return nil
}

// answer executes the operation, unless it is refused, and returns the answer. Its bytes count
// as held until end.
func (r *run) answer() *graphql.Response {
	response := &graphql.Response{Errors: r.refused}
	if r.refused == nil {
		response = r.h.exec.execute(r.ctx, r.op, r.oc)
	}
	r.op.errors = response.Errors
	held := len(response.Data)
	if room := cap(response.Data); room > mostCopied { // a shorter one is copied, and its buffer used again
		held = room
	}
	r.executed(held, r.op.code() != CodeUnavailable)
	return response
}

// executed gives back the place, and the memory beyond the bytes of the answer, which a slow
// client keeps. completed is false for an operation that its context ended.
func (r *run) executed(bytes int, completed bool) {
	if r.place != nil {
		r.place.Leave(completed)
		r.place = nil
	}
	r.op.hold.Set(int64(bytes))
}

// end gives back the place and the memory of the operation.
func (r *run) end() {
	r.executed(0, false)
	if r.ctx != nil {
		r.op.opContext.end()
	}
	if !r.follows {
		r.h.running.Release(1)
	}
}

// busy is the answer where there is no place.
func busy() *problem {
	return &problem{http.StatusServiceUnavailable, CodeUnavailable, "the server is busy (--max-concurrent, --max-slow); nothing was executed; try again in a moment"}
}

// waitForMemory takes memory for a request that has no place yet, once there is some, within
// Limits.Wait.
func (h *Handler) waitForMemory(ctx context.Context, hold *admission.Hold, bytes int64) *problem {
	if hold.GrowWait(ctx, bytes, h.cfg.Limits.Wait) != nil {
		return outOfMemory()
	}
	return nil
}

// outOfMemory is the answer where there is no memory.
func outOfMemory() *problem {
	return &problem{http.StatusServiceUnavailable, CodeUnavailable, noMemory + "; nothing was executed; try again in a moment"}
}

const noMemory = "the server holds as much for the requests of all clients, or of this one, as its memory allows (--max-memory)"

// CountMemory counts bytes that the context's operation holds beside what CountRead
// counts. It returns an error where there is no room for them; the operation is then refused,
// even if the caller drops the error.
func CountMemory(ctx context.Context, bytes int) error {
	op := operationOf(ctx)
	if op == nil || op.hold == nil || op.hold.Grow(int64(bytes)) == nil {
		return nil
	}
	op.outOfMemory.Store(true)
	return refuse(CodeUnavailable, noMemory)
}

// decodedSize estimates the bytes that a JSON text takes when it is decoded: a map takes
// some 350 with its first members, whatever they are, and any other value some 60.
func decodedSize(text []byte) int64 {
	const object, other = 350, 64
	count := func(c string) int64 { return int64(bytes.Count(text, []byte(c))) }
	return int64(len(text)) + object*count("{") + other*(count("[")+count(",")+count(":"))
}

// opContext is the context of an operation: it has the operation among its values,
// and ends after a time, as a context of context.WithTimeout does. But it has no
// timer until Done is called: most operations are over soon, and only ask Err.
type opContext struct {
	context.Context // the parent
	op              *operation
	now             func() time.Time
	until           time.Time

	// What follows is of execution, see execute.
	executing  time.Time
	most, used time.Duration
	cpu        func() time.Duration
	finishes   bool

	starting sync.Mutex            // the timer
	timer    atomic.Pointer[timer] // nil: Done was not called
	ended    atomic.Pointer[error] // why it has ended; nil: it has not
}

// processor reads the processor time of the process, now and then.
type processor struct {
	now  func() time.Duration
	last atomic.Pointer[reading]
}

type reading struct {
	at   time.Time
	used time.Duration
}

// before returns the processor time used at some moment up to at, at most age before it: to
// read it is a system call, and most operations are over soon.
func (p *processor) before(at time.Time, age time.Duration) time.Duration {
	last := p.last.Load()
	if last == nil || at.Sub(last.at) > age {
		last = &reading{at, p.now()}
		p.last.Store(last)
	}
	return last.used
}

// inaccuracy is how many times longer an operation may take than what was asked for is old:
// it may have that much less time, for each processor, and never more.
const inaccuracy = 32

// execute notes when the execution began, and that it may take at most a time, both by the
// clock and by the processor time of the process: on a busy machine the clock alone tells
// nothing about an operation. With finishes, of a mutation, Err does not report that this time
// is over; no further root field is begun once half of it is. It is called before the context is shared.
func (c *opContext) execute(since time.Time, most time.Duration, p *processor, finishes bool) {
	c.executing, c.used, c.most, c.cpu, c.finishes = since, p.before(since, most/inaccuracy), most, p.now, finishes
}

// cpuExceeded reports whether the operation was executed for a time.
func (c *opContext) cpuExceeded(now time.Time, most time.Duration) bool {
	return c.cpu != nil && now.Sub(c.executing) >= most/3*2 && c.cpu()-c.used >= most
}

// Spent reports whether the context's operation was executed for a share of Limits.Execution.
func Spent(ctx context.Context, share float64) bool {
	op := operationOf(ctx)
	if op == nil {
		return false
	}
	c := &op.opContext
	return c.cpuExceeded(c.now(), time.Duration(share*float64(c.most)))
}

// timer is a context that ends as an opContext.
type timer struct {
	context.Context
	cancel context.CancelFunc
}

// newTimed makes an operation's context, which ends at a time, or with end.
func newOpContext(ctx context.Context, op *operation, now func() time.Time, until time.Time) *opContext {
	c := &op.opContext
	c.Context, c.op, c.now, c.until = ctx, op, now, until
	return c
}

// Deadline returns when the time is over, by the system's clock, which callers compare with.
func (c *opContext) Deadline() (time.Time, bool) { return c.running().Deadline() }

// Value returns the operation, or what the other context has.
func (c *opContext) Value(key any) any {
	if key == (operationKey{}) {
		return c.op
	}
	if running := c.timer.Load(); running != nil { // derived contexts look for the one that ends
		return running.Value(key)
	}
	return c.Context.Value(key)
}

// Done is closed when the context ends.
func (c *opContext) Done() <-chan struct{} { return c.running().Done() }

// running starts the timer, unless it runs.
func (c *opContext) running() *timer {
	if running := c.timer.Load(); running != nil {
		return running
	}
	c.starting.Lock()
	defer c.starting.Unlock()
	running := c.timer.Load()
	if running == nil {
		ctx, cancel := context.WithTimeout(c.Context, c.until.Sub(c.now()))
		running = &timer{ctx, cancel}
		c.timer.Store(running)
		if c.ended.Load() != nil {
			cancel()
		}
	}
	return running
}

// Err returns why the context has ended; nil: it has not.
func (c *opContext) Err() error {
	if ended := c.ended.Load(); ended != nil {
		return *ended
	}
	running, now := c.timer.Load(), c.now()
	var err error
	switch {
	case running != nil:
		err = running.Err()
	case !now.Before(c.until):
		err = context.DeadlineExceeded
	default:
		err = c.Context.Err()
	}
	if err == nil && !c.finishes && c.cpuExceeded(now, c.most) {
		err = context.DeadlineExceeded
	}
	if err == nil {
		return nil
	}
	ended := err // its address escapes
	return c.endWith(&ended)
}

// end ends the context, if it has not ended.
func (c *opContext) end() {
	if c.Err() == nil {
		_ = c.endWith(&context.Canceled)
	}
}

// endWith ends the context, unless something else did, also for those that wait, and
// returns why it has ended.
func (c *opContext) endWith(err *error) error {
	c.ended.CompareAndSwap(nil, err)
	if running := c.timer.Swap(nil); running != nil {
		running.cancel()
	}
	return *c.ended.Load()
}
