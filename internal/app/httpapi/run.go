package httpapi

import (
	"bytes"
	"context"
	"errors"
	"net/http"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"

	"github.com/asof/asof/internal/app/admission"
)

// run is one operation on its way: it is read, has a place, is executed, and gives its
// answer. All transports execute by it.
type run struct {
	h     *Handler
	op    *operation
	place *admission.Place // nil: none any more
	ctx   context.Context  // that answers are asked for with; nil: it is not read yet
	next  graphql.ResponseHandler
	// refused says that the answer is why the operation is not executed; status is the
	// HTTP status for that, 0: the usual one.
	refused bool
	status  int
}

// longRequest is the size of a request, in bytes, from which on reading it takes long.
const longRequest = 128 << 10

// documentFactor is how many times as much memory a parsed document takes as its text, at
// most, if it has not as many tokens as it may.
const documentFactor = 110

// begin waits for memory, and then for a place, for the text that a client has sent, reads
// it by decode, and begins to execute it. A problem says that nothing was begun; otherwise
// end has to be called after the answer was sent.
func (h *Handler) begin(ctx context.Context, op *operation, text []byte, params *graphql.RawParams, decode func() *problem) (_ *run, p *problem) {
	if !h.running.TryAcquire(1) {
		return nil, &problem{http.StatusServiceUnavailable, CodeUnavailable, "the server is shutting down; nothing was executed"}
	}
	r := &run{h: h, op: op}
	begun := false
	defer func() {
		if !begun { // refused, or panicked
			r.end()
		}
	}()
	if p := h.wait(ctx, op.hold, decodedSize(text)); p != nil {
		return nil, p
	}
	var err error
	if r.place, err = h.gate.Enter(ctx, op.client, len(text) >= longRequest); err != nil {
		return nil, busy()
	}
	r.ctx = newTimed(ctx, op, h.cfg.Now, r.place.Began().Add(h.cfg.Limits.Time))
	if p := decode(); p != nil {
		return nil, p
	}
	if params.Query != "" && !h.exec.documents.find(ctx, op, params) {
		if err := r.place.Unknown(ctx); err != nil {
			r.place = nil
			return nil, busy()
		}
		if op.hold.Grow(int64(min(documentFactor*len(params.Query), len(params.Query)+tokenBytes*h.cfg.Limits.Tokens))) != nil {
			return nil, starved()
		}
	}
	if p := r.start(params); p != nil {
		return nil, p
	}
	begun = true
	return r, nil
}

// start begins to execute what was read.
func (r *run) start(params *graphql.RawParams) *problem {
	ctx, exec := graphql.StartOperationTrace(r.ctx), &r.h.exec
	oc, list := exec.CreateOperationContext(ctx, params)
	r.op.understood(oc)
	if params.Query == "" {
		r.status = http.StatusBadRequest // not a GraphQL request
	}
	if list == nil && r.op.get && oc.Operation.Operation != ast.Query {
		r.status = http.StatusMethodNotAllowed
		list = gqlerror.List{refuse(CodeBadInput, "a %s cannot be sent by GET; send it by POST", oc.Operation.Operation)}
	}
	if list != nil {
		r.refused = true
		r.ctx = graphql.WithOperationContext(ctx, oc)
		r.next = graphql.OneShot(exec.DispatchError(r.ctx, list))
		return nil
	}
	write := oc.Operation.Operation == ast.Mutation
	// The request's context, since who waits with the operation's starts its timer.
	if err := r.place.Operation(r.op.timed.Context, oc.Operation.Name, oc.RawQuery, r.op.mayBeLong, write); err != nil {
		r.place = nil
		return busy()
	}
	if r.h.cfg.CPU != nil {
		r.op.timed.execute(r.place.Began(), r.h.cfg.Limits.Execution, &r.h.processor, write)
	}
	r.next, r.ctx = exec.DispatchOperation(ctx, oc)
	return nil
}

// answer returns the answer, with the number of its bytes noted as held until end.
func (r *run) answer() *graphql.Response {
	response := r.next(r.ctx)
	r.h.exec.tell(r.ctx, r.op)
	r.op.errors = response.Errors
	held := len(response.Data)
	if room := cap(response.Data); room > mostCopied { // a shorter one is copied, and its buffer used again
		held = room
	}
	r.executed(held, r.op.code() != CodeUnavailable)
	return response
}

// executed gives back the place, and the memory that an answer of so many bytes does not
// need: a client that takes its time keeps only that. Whole says that nothing broke off the
// operation.
func (r *run) executed(bytes int, whole bool) {
	if r.place != nil {
		r.place.Leave(whole)
		r.place = nil
	}
	r.op.hold.Set(int64(bytes))
}

// end gives back what the operation still has.
func (r *run) end() {
	r.executed(0, false)
	if r.ctx != nil {
		r.op.timed.end()
	}
	r.h.running.Release(1)
}

// busy is what is said where there is no place.
func busy() *problem {
	return &problem{http.StatusServiceUnavailable, CodeUnavailable, "the server is busy (--max-concurrent, --max-slow); nothing was executed; try again in a moment"}
}

// wait takes memory for a request that has no place yet, when there is some within the time
// for that.
func (h *Handler) wait(ctx context.Context, hold *admission.Hold, bytes int64) *problem {
	if hold.GrowWait(ctx, bytes, h.cfg.Limits.Wait) != nil {
		return starved()
	}
	return nil
}

// starved is what is said where there is no memory.
func starved() *problem {
	return &problem{http.StatusServiceUnavailable, CodeUnavailable, noMemory + "; nothing was executed; try again in a moment"}
}

const noMemory = "the server holds as much for the requests of all clients, or of this one, as its memory allows (--max-memory)"

// CountMemory counts bytes that the context's operation holds beside what CountRead
// counts. The error says that there is no room for them; the operation's answer will say so
// whatever becomes of the error.
func CountMemory(ctx context.Context, bytes int) error {
	op := operationOf(ctx)
	if op == nil || op.hold == nil || op.hold.Grow(int64(bytes)) == nil {
		return nil
	}
	op.starved.Store(true)
	return errors.New(noMemory)
}

// decodedSize estimates the bytes that a JSON text takes when it is decoded: a map takes
// some 350 with its first members, whatever they are, and any other value some 60.
func decodedSize(text []byte) int64 {
	const object, other = 350, 64
	count := func(c string) int64 { return int64(bytes.Count(text, []byte(c))) }
	return int64(len(text)) + object*count("{") + other*(count("[")+count(",")+count(":"))
}
