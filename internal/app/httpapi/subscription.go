package httpapi

import (
	"bytes"
	"context"
	"crypto/sha256"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"

	"github.com/asof/asof/internal/lru"
)

// Event is an event of a subscription.
type Event interface {
	// ID is equal for the same event of any subscriptions; it can be compared.
	ID() any
	// Position is where to go on behind the event.
	Position() string
	// Context returns the context that the subscription is executed in to tell the event.
	Context(ctx context.Context) context.Context
}

const (
	// subscriptionBytes is what a subscription holds, about, beside its document.
	subscriptionBytes = 32 << 10
	// answeredBytes is how much of what events were answered with is kept, for other
	// subscriptions with the same selection.
	answeredBytes = 8 << 20
	// turn is how long a subscription may take to tell an event before others begin.
	turn = 5 * time.Millisecond
	// beginning is the type of the argument that says where a subscription begins: it
	// changes nothing of what an event is told with.
	beginning = "Since"
)

// selection identifies what a subscription is told of an event: its document, and the values
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

// answered are the answers to events that subscriptions share.
type answered struct {
	mu   sync.Mutex
	kept *lru.Cache[answeredKey, *eventAnswer]
}

type answeredKey struct {
	selection selection
	event     any // its ID
}

// eventAnswer is the answer to an event. What follows done is known once that is closed.
type eventAnswer struct {
	done chan struct{}
	text []byte // nil: the event is not for these subscriptions
	err  gqlerror.List
}

// of returns the answer to an event, and whether it is the caller's to make.
func (a *answered) of(key answeredKey) (answer *eventAnswer, mine bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	answer, ok := a.kept.Get(key)
	if !ok {
		answer = &eventAnswer{done: make(chan struct{})}
		a.kept.Add(key, answer, 0)
	}
	return answer, !ok
}

// made notes that the answer is known; one with an error is not kept.
func (a *answered) made(key answeredKey, answer *eventAnswer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if answer.err == nil {
		a.kept.Resize(key, len(answer.text))
	} else {
		a.kept.Remove(key)
	}
	close(answer.done)
}

// subscribes reports whether the operation is a subscription that is to be followed.
func (r *run) subscribes() bool {
	return r.refused == nil && r.oc.Operation.Operation == ast.Subscription
}

// follow executes a subscription: next sends the answer to an event, and returns false where
// nobody waits for more. It returns the errors that end the subscription; nil where
// the context has ended, which is the client's, or the server stops.
func (r *run) follow(ctx context.Context, next func(text []byte) bool) gqlerror.List {
	h := r.h
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(h.stopping, cancel)()
	begin, events := h.cfg.Subscribe(r.ctx)
	if r.op.errors = h.exec.execute(begin, r.op, r.oc).Errors; len(r.op.errors) > 0 {
		return r.op.errors
	}
	r.op.took = h.cfg.Now().Sub(r.op.start)
	same := selectionOf(r.oc)
	r.executed(0, true)
	r.op.opContext.end()
	if r.op.hold.Grow(subscriptionBytes+int64(len(r.oc.RawQuery))+decodedSize(mustEncode(r.params.Variables))) != nil {
		r.op.errors = outOfMemory().list()
		return r.op.errors
	}
	r.oc, r.op.document, r.follows = nil, nil, true
	h.running.Release(1)
	h.metrics.subscriptions.Inc()
	defer h.metrics.subscriptions.Dec()
	var last Event
	for event, err := range events(ctx) {
		var wrong gqlerror.List
		if err != nil {
			wrong = gqlerror.List{h.exec.present(ctx, err)}
		} else {
			done := h.takeTurn(ctx)
			answer := r.answerTo(ctx, answeredKey{same, event.ID()}, event)
			if wrong = answer.err; answer.text != nil && !next(answer.text) {
				cancel()
			}
			done()
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case wrong != nil && last != nil:
			ended := *wrong[0] // others may have the same
			ended.Extensions = map[string]any{"position": last.Position()}
			maps.Copy(ended.Extensions, wrong[0].Extensions)
			wrong = gqlerror.List{&ended}
			fallthrough
		case wrong != nil:
			r.op.errors = wrong
			return wrong
		}
		last = event
	}
	return nil
}

// takeTurn waits until few enough others tell an event: together they would keep the processors
// from those who write. The turn ends with the function that is returned, or after a time:
// who waits for a place or for a client holds up nobody.
func (h *Handler) takeTurn(ctx context.Context) (done func()) {
	if h.telling.Acquire(ctx, 1) != nil {
		return func() {}
	}
	over := sync.OnceFunc(func() { h.telling.Release(1) })
	timer := time.AfterFunc(turn, over)
	return func() {
		timer.Stop()
		over()
	}
}

// answerTo returns the answer to an event, which the first of the subscriptions with the same
// selection makes.
func (r *run) answerTo(ctx context.Context, key answeredKey, event Event) *eventAnswer {
	for {
		answer, mine := r.h.answered.of(key)
		if mine {
			r.makeAnswer(ctx, key, answer, event)
			return answer
		}
		select {
		case <-answer.done:
		case <-ctx.Done():
			return &eventAnswer{}
		}
		if answer.err == nil {
			return answer
		} // it may be about the other
	}
}

// makeAnswer executes the operation in the event's context, also where the client leaves meanwhile:
// others may wait. What fails because the server is busy, or its store away, is no answer
// but an error.
func (r *run) makeAnswer(ctx context.Context, key answeredKey, answer *eventAnswer, event Event) {
	h := r.h
	answer.err = gqlerror.List{refuse(codeInternal, "internal error")} // where it panics
	defer h.answered.made(key, answer)
	op := &operation{
		start: h.cfg.Now(), transport: r.op.transport, request: r.op.request, actor: r.op.actor,
		most: r.op.most, client: r.op.client, hold: h.memory.Hold(r.op.client),
	}
	ctx = event.Context(context.WithoutCancel(ctx))
	defer func() {
		op.hold.Set(0)
		h.finish(ctx, op)
	}()
	params := *r.params
	one, p := h.begin(ctx, op, nil, &params, func() *problem { return nil })
	if p != nil {
		op.errors = p.list()
		answer.err = op.errors
		return
	}
	defer one.end()
	response := one.answer()
	if one.refused != nil || slices.ContainsFunc(response.Errors, func(err *gqlerror.Error) bool { return codeOf(err) == CodeUnavailable }) {
		answer.err = response.Errors
		return
	}
	answer.err = nil
	if response.Data == nil && len(response.Errors) == 0 {
		return
	}
	if response.Extensions == nil {
		response.Extensions = map[string]any{}
	}
	response.Extensions["position"] = event.Position()
	var buf bytes.Buffer
	text := encode(&buf, response, response.Data != nil, op.instant)
	answer.text = slices.Concat(text.before, text.data, text.after)
}

// comment is what clients pass over; by it both sides notice that the other is gone.
const comment = ":\n\n"

// eventStream is an answer of server-sent events that goes on.
type eventStream struct {
	h     *Handler
	w     http.ResponseWriter
	mu    sync.Mutex
	timer *time.Timer // for comments, and to look at the credentials
	ended bool
}

// follow answers a subscription with server-sent events: "next" for each event, and at
// the end "next" with the errors and "complete". Where the server stops there is neither, so
// that clients connect again.
func (x *exchange) follow(run *run) {
	x.body = bytes.Buffer{}
	_ = http.NewResponseController(x.w).SetReadDeadline(time.Time{})
	ctx, cancel := context.WithCancel(run.op.opContext.Context)
	defer cancel()
	s := &eventStream{h: x.h, w: x.w}
	h, r := x.h, x.r // the exchange may be another request's when the timer's function ends
	s.timer = time.AfterFunc(pingInterval, func() {
		if _, denied := h.identify(r); denied != nil && denied.Status != http.StatusServiceUnavailable {
			cancel() // as for WebSockets: credentials expire
		}
		if s.send([]byte(comment)) {
			s.again()
		}
	})
	defer s.end()
	s.send([]byte(comment))
	list := run.follow(ctx, s.write)
	if list != nil {
		text := encode(new(bytes.Buffer), &graphql.Response{Errors: list}, false, "")
		s.write(slices.Concat(text.before, text.after))
		s.send([]byte(complete))
	}
}

// write sends an answer, and reports whether the client takes it.
func (s *eventStream) write(answer []byte) bool {
	return s.send(slices.Concat([]byte("event: next\ndata: "), answer, []byte("\n\n")))
}

// send sends a part of the stream, and reports whether the client takes it.
func (s *eventStream) send(text []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return false
	}
	s.h.setWriteDeadline(s.w, len(text))
	_, err := s.w.Write(text)
	s.ended = err != nil || http.NewResponseController(s.w).Flush() != nil
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
