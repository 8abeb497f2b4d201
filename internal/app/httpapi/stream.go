package httpapi

import (
	"context"
	"fmt"
	"net/http"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"
	"golang.org/x/sync/semaphore"
)

// serveEvents answers one operation with server-sent events (graphql-sse,
// distinct connections): "next" with each answer, then "complete".
func (h *Handler) serveEvents(ctx context.Context, w http.ResponseWriter, r *http.Request, x *exchange) {
	if readParams(x.body.Bytes(), &x.params) != nil {
		x.refuse(&problem{http.StatusBadRequest, CodeBadInput, explainBody(x.body.Bytes())})
		_ = x.send() // where that fails, nobody is there any more
		return
	}
	x.params.Headers = r.Header
	e := &events{w: w, x: x}
	oc, list := x.exec.CreateOperationContext(ctx, &x.params)
	x.op.understood(oc)
	ctx = graphql.WithOperationContext(ctx, oc)
	e.begin()
	defer func() {
		failure := recover()
		switch failure {
		case nil:
		case any(http.ErrAbortHandler):
			panic(failure)
		default: // the header was sent: the stream itself has to say it, and to end
			x.body.Reset() // it may have a part of an event
			e.next(&graphql.Response{Errors: h.panicked(ctx, x.op.request, failure).list()})
			e.complete()
		}
	}()
	if list != nil {
		e.next(x.exec.DispatchError(ctx, list))
	} else {
		next, ctx := x.exec.DispatchOperation(ctx, oc)
		for response := next(ctx); response != nil; response = next(ctx) {
			e.next(response)
		}
	}
	e.complete()
}

// events writes server-sent events.
type events struct {
	w http.ResponseWriter
	x *exchange
}

// begin sends the header, before anything is executed.
func (e *events) begin() {
	header := e.w.Header()
	header.Set("Cache-Control", "no-cache")
	header.Set("Connection", "keep-alive")
	header.Set("Content-Type", mediaEvents)
	e.x.body.Reset()
	e.x.body.WriteString(":\n\n")
	e.flush()
}

// next sends an answer.
func (e *events) next(response *graphql.Response) {
	e.x.op.errors = response.Errors
	to := &e.x.body
	to.WriteString("event: next\ndata: ")
	if err := encodeAny(to, response, e.x.op.instant); err != nil {
		panic(err) // an extension that is no JSON
	}
	to.WriteString("\n\n")
	if response.HasNext == nil && e.x.op.kind != string(ast.Subscription) {
		e.x.place.executed(to.Len())
	}
	e.flush()
}

func (e *events) complete() {
	e.x.body.WriteString("event: complete\n\n")
	e.flush()
}

// flush sends what was written. Errors mean that nobody is there any more.
func (e *events) flush() {
	_, _ = e.w.Write(e.x.body.Bytes())
	_ = http.NewResponseController(e.w).Flush()
	e.x.body.Reset()
}

// connection executes the operations of one WebSocket.
type connection struct {
	h       *Handler
	request string
	actor   string
	places  *semaphore.Weighted // for its operations, which also take the handler's
	answers *answers
}

// running is an operation on a WebSocket, from its message to its end.
type running struct {
	op    *operation
	leave func()
}

// runningExtension is where gqlgen carries a running operation.
const runningExtension = "asofRunning"

func (c *connection) CreateOperationContext(ctx context.Context, params *graphql.RawParams) (*graphql.OperationContext, gqlerror.List) {
	run := &running{op: &operation{
		start: c.h.cfg.Now(), transport: "WebSocket", request: c.request, actor: c.actor, most: c.h.cfg.Limits.Read,
	}}
	leave, busy := c.enter(ctx)
	if busy != nil {
		oc := &graphql.OperationContext{}
		oc.Stats.SetExtension(runningExtension, run)
		return oc, gqlerror.List{refuse(busy.code, "%s", busy.message)}
	}
	run.leave = leave
	oc, list := c.h.exec.CreateOperationContext(ctx, params)
	run.op.understood(oc)
	oc.Stats.SetExtension(runningExtension, run)
	return oc, list
}

// enter waits for a place among the connection's operations, and among all.
func (c *connection) enter(ctx context.Context) (leave func(), p *problem) {
	if !c.h.acquire(ctx, c.places) {
		return nil, &problem{http.StatusServiceUnavailable, CodeUnavailable, fmt.Sprintf(
			"this connection has %d operations running, the most that it may have; wait until one of them is complete", c.h.cfg.Limits.PerSocket)}
	}
	if p := c.h.enter(ctx); p != nil {
		c.places.Release(1)
		return nil, p
	}
	return func() { c.h.leave(); c.places.Release(1) }, nil
}

func (c *connection) DispatchError(ctx context.Context, list gqlerror.List) *graphql.Response {
	response := c.h.exec.DispatchError(ctx, list)
	if run := runningOf(graphql.GetOperationContext(ctx)); run != nil {
		run.op.errors = response.Errors
		c.end(ctx, run)
	}
	return response
}

func (c *connection) DispatchOperation(socket context.Context, oc *graphql.OperationContext) (graphql.ResponseHandler, context.Context) {
	run := runningOf(oc)
	ctx := newTimed(socket, run.op, c.h.cfg.Now, c.h.cfg.Limits.Time)
	ended := false
	end := func() {
		if !ended {
			ended = true
			ctx.end()
			c.end(ctx, run)
		}
	}
	defer func() {
		if failure := recover(); failure != nil {
			end()
			panic(failure)
		}
	}()
	next, inner := c.h.exec.DispatchOperation(ctx, oc)
	return func(ctx context.Context) *graphql.Response {
		finished := false
		defer func() {
			if !finished {
				end()
			}
		}()
		response := next(ctx)
		if response == nil {
			return nil
		}
		run.op.errors = response.Errors
		standIn, err := c.answers.keep(response, run.op.instant)
		if err != nil {
			panic(err) // an extension that is no JSON
		}
		finished = true // not yet: the transport asks again
		return standIn
	}, inner
}

func runningOf(oc *graphql.OperationContext) *running {
	run, _ := oc.Stats.GetExtension(runningExtension).(*running)
	return run
}

func (c *connection) end(ctx context.Context, run *running) {
	if run.leave != nil {
		run.leave()
	}
	c.h.finish(ctx, run.op)
}
