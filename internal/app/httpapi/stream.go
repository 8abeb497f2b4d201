package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/99designs/gqlgen/graphql"
	"github.com/99designs/gqlgen/graphql/handler/transport"
	"github.com/vektah/gqlparser/v2/gqlerror"
	"golang.org/x/sync/semaphore"
)

// serveEvents answers one operation with server-sent events (graphql-sse,
// distinct connections): "next" with the answer, then "complete".
func (h *Handler) serveEvents(w http.ResponseWriter, r *http.Request, x *exchange) {
	var params graphql.RawParams
	if json.Unmarshal(x.body.Bytes(), &params) != nil {
		x.refuse(&problem{http.StatusBadRequest, CodeBadInput, explainBody(x.body.Bytes())})
		_, _ = x.Write(nil)
		return
	}
	transport.SSE{}.Do(w, r, &events{x})
}

// events executes for the SSE transport, which answers by itself.
type events struct{ x *exchange }

func (e *events) CreateOperationContext(ctx context.Context, params *graphql.RawParams) (*graphql.OperationContext, gqlerror.List) {
	oc, list := e.x.exec.CreateOperationContext(ctx, params)
	e.x.op.understood(oc)
	return oc, list
}

func (e *events) DispatchOperation(ctx context.Context, oc *graphql.OperationContext) (graphql.ResponseHandler, context.Context) {
	next, ctx := e.x.exec.DispatchOperation(ctx, oc)
	return func(ctx context.Context) *graphql.Response {
		response := next(ctx)
		if response != nil {
			e.x.op.errors = response.Errors
		}
		return response
	}, ctx
}

func (e *events) DispatchError(ctx context.Context, list gqlerror.List) *graphql.Response {
	response := e.x.exec.DispatchError(ctx, list)
	e.x.op.errors = response.Errors
	return response
}

// connection executes the operations of one WebSocket.
type connection struct {
	h       *Handler
	request string
	actor   string
	places  *semaphore.Weighted // for its operations, which also take the handler's
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
	free, p := c.h.enter(ctx)
	if p != nil {
		c.places.Release(1)
		return nil, p
	}
	return func() { free(); c.places.Release(1) }, nil
}

func (c *connection) DispatchError(ctx context.Context, list gqlerror.List) *graphql.Response {
	response := c.h.exec.DispatchError(ctx, list)
	if run := runningOf(graphql.GetOperationContext(ctx)); run != nil {
		run.op.errors = response.Errors
		c.end(ctx, run)
	}
	return response
}

func (c *connection) DispatchOperation(ctx context.Context, oc *graphql.OperationContext) (graphql.ResponseHandler, context.Context) {
	run := runningOf(oc)
	ctx, cancel := context.WithTimeout(ctx, c.h.cfg.Limits.Time)
	ended := false
	end := func() {
		if !ended {
			ended = true
			cancel()
			c.end(ctx, run)
		}
	}
	defer func() {
		if failure := recover(); failure != nil {
			end()
			panic(failure)
		}
	}()
	next, inner := c.h.exec.DispatchOperation(context.WithValue(ctx, operationKey{}, run.op), oc)
	return func(ctx context.Context) *graphql.Response {
		finished := false
		defer func() {
			if !finished {
				end()
			}
		}()
		response := next(ctx)
		if response != nil {
			run.op.errors = response.Errors
			finished = true // not yet: the transport asks again
		}
		return response
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
