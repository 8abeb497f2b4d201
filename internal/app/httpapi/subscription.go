package httpapi

import (
	"bytes"
	"context"
	"crypto/sha256"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"

	"github.com/asof/asof/internal/lru"
)

// Watch is where the events come from that may be for a subscription.
type Watch interface {
	// Next has events taken, in their order, until there is none or take returns false, which
	// leaves the event to the next call. It reports whether there may be more at once;
	// otherwise there may be when Config.Notify says so.
	Next(ctx context.Context, take func(Event) bool) (more bool, err error)
	// Position is where to go on behind the events that were taken.
	Position() string
	// Past reports whether what comes next was there before the watch began.
	Past() bool
	// Place is equal where watches of the same selection go on with the same events; it can be
	// compared.
	Place() any
	// Follow goes to the place that another watch reached from an equal one.
	Follow(place any)
}

// Event is an event of a subscription.
type Event interface {
	// Position is where to go on behind the event.
	Position() string
	// Context returns the context that the subscription is executed in to answer the event.
	Context(ctx context.Context) context.Context
}

const (
	// subscriptionBytes is what a subscription holds, about, beside its document.
	subscriptionBytes = 32 << 10
	// pastBytes is what it holds more, about, while it reads what was there before it began: a part
	// of the log.
	pastBytes = 3 << 20
	// batchesBytes is how much is kept of what subscriptions were sent, for others with the same
	// selection.
	batchesBytes = 2 << 20
	// beginning is the type of the argument that says where a subscription begins: it
	// changes nothing of the answer to an event.
	beginning = "Since"
)

// selection identifies what a subscription answers to an event: its document, and the values
// of its variables. Who asks is not a part of it, as everybody may read everything.
type selection [sha256.Size]byte

func selectionOf(oc *graphql.OperationContext) selection {
	variables := make(map[string]any, len(oc.Variables))
	for _, d := range oc.Operation.VariableDefinitions {
		if value, given := oc.Variables[d.Variable]; given && d.Type.Name() != beginning {
			variables[d.Variable] = value
		}
	}
	return sha256.Sum256(slices.Concat(mustEncode([]string{oc.RawQuery, oc.OperationName}), mustEncode(variables)))
}

// batch is what subscriptions with the same selection are sent from the same place on: one of
// them reads and answers the events, and the others, of which most are where it was, follow it.
type batch struct {
	answers []answerText
	size    int    // of what holds all answers, in bytes
	end     any    // the place behind it; nil: there is nothing to follow
	cut     bool   // by the end of a turn
	more    bool   // there may be more at once
	grown   uint64 // scheduler.grown when it was begun

	done chan struct{} // what is above is known once it is closed
}

type batchKey struct {
	selection selection
	begin     any // a Watch's Place
}

// batches are what subscriptions were sent lately, or wait for.
type batches struct {
	mu   sync.Mutex
	kept *lru.Cache[batchKey, *batch]
}

// from returns the batch that begins at a place, and whether it is the caller's to read.
func (c *batches) from(key batchKey) (b *batch, mine bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b, ok := c.kept.Get(key)
	if !ok {
		b = &batch{done: make(chan struct{})}
		c.kept.Add(key, b, 0)
	}
	return b, !ok
}

// read notes that a batch was read. Where there is nothing to follow it is not kept.
func (c *batches) read(key batchKey, b *batch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if b.end == nil || b.end == key.begin {
		b.end = nil
		c.kept.Remove(key)
	} else {
		c.kept.Resize(key, b.size)
	}
	close(b.done)
}

// subscribes reports whether the operation is a subscription that is to be followed.
func (r *run) subscribes() bool {
	return r.refused == nil && r.oc.Operation.Operation == ast.Subscription
}

// follow begins a subscription. send is called with the answers to events, and returns false
// where nobody waits for more, by one goroutine at a time. At the end ended is called,
// with the errors that ended the subscription: nil where the context has ended, by the client, or by
// cancel as the server stops.
func (r *run) follow(ctx context.Context, cancel context.CancelFunc, send func(events []*batch) bool, ended func(wrong gqlerror.List)) {
	h := r.h
	begin, watch := h.cfg.Subscribe(r.ctx)
	if r.op.errors = h.exec.execute(begin, r.op, r.oc).Errors; len(r.op.errors) > 0 {
		ended(r.op.errors)
		return
	}
	s := &subscription{run: r, ctx: ctx, same: selectionOf(r.oc), send: send}
	var err error
	if s.watch, err = watch(ctx); err != nil {
		r.op.errors = gqlerror.List{h.exec.present(r.ctx, err)}
		ended(r.op.errors)
		return
	}
	r.op.took = h.cfg.Now().Sub(r.op.start)
	r.executed(0, false) // how long it took to begin says nothing of its events
	r.op.opContext.end()
	r.base = subscriptionBytes + int64(len(r.oc.RawQuery)) + decodedSize(mustEncode([]any{r.params.Variables, r.params.Extensions}))
	if r.op.hold.Grow(r.base) != nil {
		r.op.errors = outOfMemory().list()
		ended(r.op.errors)
		return
	}
	r.oc, r.op.document, r.follows = nil, nil, true
	h.running.Release(1)
	h.metrics.subscriptions.Inc()
	stopping := context.AfterFunc(h.stopping, cancel)
	s.stop = func() {
		stopping()
		cancel()
	}
	s.ended = func(wrong gqlerror.List) {
		h.metrics.subscriptions.Dec()
		r.op.errors = wrong
		ended(wrong)
	}
	h.scheduler.add(s)
}

// answerTo executes the operation in the context of an event, with the time of execution that is
// left, and returns the answer; nil: the event is not for the subscription. Its memory is held
// until it is sent. What fails because the server is busy, or its store away, is an error. It
// also returns how long it was executed: all that was left where that was too little.
func (r *run) answerTo(ctx context.Context, event Event, left time.Duration) (text *answerText, took time.Duration, wrong gqlerror.List) {
	h := r.h
	op := &operation{
		start: h.cfg.Now(), transport: r.op.transport, request: r.op.request, actor: r.op.actor,
		limits: r.op.limits.halfAnswer(), client: r.op.client, event: true, left: left, hold: h.memory.Hold(r.op.client),
	}
	ctx = event.Context(ctx)
	defer func() {
		op.hold.Set(0)
		h.finish(ctx, op)
	}()
	params := *r.params
	one, p := h.begin(ctx, op, nil, &params, func() *problem { return nil })
	if p != nil {
		op.errors = p.list()
		return nil, 0, op.errors
	}
	defer one.end()
	place := one.place
	response := one.answer()
	if took = place.Used(); one.ctx.Err() != nil {
		took = max(took, left)
	}
	if one.refused != nil || slices.ContainsFunc(response.Errors, func(err *gqlerror.Error) bool { return codeOf(err) == CodeUnavailable }) {
		return nil, took, response.Errors
	}
	if response.Data == nil && len(response.Errors) == 0 {
		return nil, took, nil
	}
	if len(response.Errors) > 0 && (response.Data == nil || rootFailed(one.oc, response.Data)) {
		response.Data = []byte("null")
	}
	if response.Extensions == nil {
		response.Extensions = map[string]any{}
	}
	response.Extensions["position"] = event.Position()
	if cap(response.Data) > 2*len(response.Data) { // a long answer's buffer has room for the longest
		response.Data = bytes.Clone(response.Data)
	}
	parts := encode(new(bytes.Buffer), response, response.Data != nil, op.instant)
	parts.after = slices.Clip(parts.after) // several may append to it
	op.hold.Set(0)
	if r.op.hold.Grow(int64(parts.size())) != nil { // to wait with it would be to hold it
		return nil, took, outOfMemory().list()
	}
	return &parts, took, nil
}

// rootFailed reports whether the root field of a subscription is null and must not be: gqlgen
// writes it as it is.
func rootFailed(oc *graphql.OperationContext, data []byte) bool {
	root := graphql.CollectFields(oc, oc.Operation.SelectionSet, []string{"Subscription"})[0]
	return root.Definition.Type.NonNull && string(data) == `{"`+root.Alias+`":null}`
}

// comment is what clients pass over; by it both sides notice that the other is gone. An answer
// is an event between the two others.
var comment, beforeEvent, afterEvent = []byte(":\n\n"), []byte("event: next\ndata: "), []byte("\n\n")

// eventStream is an answer of server-sent events that goes on.
type eventStream struct {
	h     *Handler
	w     http.ResponseWriter
	mu    sync.Mutex
	timer *time.Timer // for comments, and to look at the credentials
	ended bool
}

// follow answers a subscription with server-sent events: "next" for each event, and at
// the end, when this has returned, "next" with the errors and "complete". Where the server stops there
// is neither, so that clients connect again.
func (x *exchange) follow(run *run) {
	x.body = bytes.Buffer{}
	_ = http.NewResponseController(x.w).SetReadDeadline(time.Time{})
	ctx, cancel := context.WithCancel(run.op.opContext.Context)
	s := &eventStream{h: x.h, w: x.w}
	h, r, op := x.h, x.r, x.op
	s.timer = time.AfterFunc(pingInterval, func() {
		if _, denied := h.identify(r); denied != nil && denied.Status != http.StatusServiceUnavailable {
			cancel() // as for WebSockets: credentials expire
		}
		if s.send(comment) {
			s.again()
		}
	})
	followed := false
	defer func() {
		if !followed { // it panics
			s.end()
		}
	}()
	s.send(comment)
	run.follow(ctx, cancel, s.write, func(wrong gqlerror.List) {
		if wrong != nil {
			text := encode(new(bytes.Buffer), &graphql.Response{Errors: wrong}, false, "")
			s.send(beforeEvent, text.before, text.after, afterEvent, []byte(complete))
		}
		s.end()
		cancel()
		run.end()
		op.hold.Set(0)
		h.finish(r.Context(), op)
		close(op.answered)
	})
	followed = true
}

// write sends answers at once, and reports whether the client takes them.
func (s *eventStream) write(events []*batch) bool {
	var parts [][]byte
	for _, b := range events {
		for _, text := range b.answers {
			parts = append(parts, beforeEvent, text.before, text.data, text.after, afterEvent)
		}
	}
	return s.send(parts...)
}

// send sends parts of the stream, and reports whether the client takes them.
func (s *eventStream) send(parts ...[]byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return false
	}
	length := 0
	for _, part := range parts {
		length += len(part)
	}
	s.h.setWriteDeadline(s.w, length)
	if len(parts) > 1 && length <= mostCopied {
		parts = [][]byte{slices.Concat(parts...)} // at once, for fewer system calls
	}
	for _, part := range parts {
		if _, err := s.w.Write(part); err != nil {
			s.ended = true
			return false
		}
	}
	s.ended = http.NewResponseController(s.w).Flush() != nil
	return !s.ended
}

// again starts the timer again. What is sent meanwhile does not: credentials are looked at
// also where there is always an event.
func (s *eventStream) again() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.timer.Reset(pingInterval)
	}
}

func (s *eventStream) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	s.timer.Stop()
}
