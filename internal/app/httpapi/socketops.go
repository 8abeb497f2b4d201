package httpapi

import (
	"context"
	"fmt"
	"net/http"

	"github.com/99designs/gqlgen/graphql"
	"github.com/99designs/gqlgen/graphql/errcode"
	"github.com/vektah/gqlparser/v2/gqlerror"
	"golang.org/x/sync/semaphore"
)

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
		start: c.h.cfg.Now(), transport: transportSocket, request: c.request, actor: c.actor, most: c.h.cfg.Limits.Read,
	}}
	leave, busy := c.enter(ctx)
	if busy != nil {
		oc := &graphql.OperationContext{}
		oc.Stats.SetExtension(runningExtension, run)
		return oc, gqlerror.List{refuse(busy.code, "%s", busy.message)}
	}
	run.leave = leave
	understood := false
	defer func() {
		if !understood { // that panicked
			leave()
		}
	}()
	oc, list := c.h.exec.CreateOperationContext(ctx, params)
	run.op.understood(oc)
	oc.Stats.SetExtension(runningExtension, run)
	understood = true
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

// DispatchError answers for an operation that is not executed.
func (c *connection) DispatchError(ctx context.Context, list gqlerror.List) *graphql.Response {
	response := c.h.exec.DispatchError(ctx, list)
	if run := runningOf(graphql.GetOperationContext(ctx)); run != nil {
		run.op.errors = response.Errors
		c.end(ctx, run)
	}
	// By the code of what it has given, gqlgen's transport decides that this is an
	// error, and no answer that has errors.
	protocol := &gqlerror.Error{}
	errcode.Set(protocol, errcode.ValidationFailed)
	list[0] = protocol
	return response
}

// DispatchOperation executes an operation. A panic is an answer that says so, and
// the last.
func (c *connection) DispatchOperation(socket context.Context, oc *graphql.OperationContext) (graphql.ResponseHandler, context.Context) {
	run := runningOf(oc)
	timed := newTimed(socket, run.op, c.h.cfg.Now, c.h.cfg.Limits.Time)
	s := &succession{connection: c, run: run, socket: socket, timed: timed}
	return s.answer, s.begin(timed, oc)
}

// succession is the answers of one operation, up to its end.
type succession struct {
	*connection
	run    *running
	socket context.Context // ends when the client ends the operation
	timed  *timed
	next   graphql.ResponseHandler
	ended  bool
}

// begin begins to execute, and returns the context to ask for answers with.
func (s *succession) begin(ctx context.Context, oc *graphql.OperationContext) (inner context.Context) {
	defer func() {
		if failure := recover(); failure != nil {
			inner = ctx
			s.breakOff(ctx, failure)
		}
	}()
	s.next, inner = s.h.exec.DispatchOperation(ctx, oc)
	return inner
}

// answer returns the next answer's stand-in; nil at the end.
func (s *succession) answer(ctx context.Context) (standIn *graphql.Response) {
	if s.ended {
		return nil
	}
	defer func() {
		if failure := recover(); failure != nil {
			s.breakOff(ctx, failure)
			standIn = s.keep(s.next(ctx))
		}
	}()
	response := s.next(ctx)
	if response == nil {
		s.ended = true
		s.timed.end()
		s.end(s.socket, s.run)
		return nil
	}
	s.h.exec.tell(ctx, s.run.op)
	return s.keep(response)
}

// breakOff makes what a panic is told as the last answer.
func (s *succession) breakOff(ctx context.Context, failure any) {
	s.next = graphql.OneShot(&graphql.Response{Errors: s.h.panicked(ctx, s.request, failure).list()})
}

// keep keeps an answer until its message is written.
func (s *succession) keep(response *graphql.Response) *graphql.Response {
	s.run.op.errors = response.Errors
	standIn, err := s.answers.keep(response, s.run.op.instant)
	if err != nil {
		panic(err) // an extension that is no JSON
	}
	return standIn
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
