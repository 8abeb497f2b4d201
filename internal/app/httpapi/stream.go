package httpapi

import (
	"context"
	"net/http"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"
)

// serveEvents answers one operation with server-sent events (graphql-sse,
// distinct connections): "next" with each answer, then "complete". By GET it is
// what a browser's EventSource asks for; that has to be closed when the operation
// is complete, or it asks again.
func (h *Handler) serveEvents(ctx context.Context, w http.ResponseWriter, r *http.Request, x *exchange) {
	oc, list, p := x.subscribe(ctx, r)
	if p != nil {
		x.refuse(p)
		_ = x.send() // where that fails, nobody is there any more
		return
	}
	ctx = graphql.WithOperationContext(ctx, oc)
	e := &events{w: w, x: x}
	defer func() {
		failure := recover()
		switch failure {
		case nil:
		case any(http.ErrAbortHandler):
			panic(failure)
		default: // the header was sent: the stream itself has to say it, and to end
			e.begin()
			x.body.Reset() // it may have a part of an event
			e.next(&graphql.Response{Errors: h.panicked(ctx, x.op.request, failure).list()})
			e.complete()
		}
	}()
	if list != nil {
		e.begin()
		e.next(x.exec.DispatchError(ctx, list))
	} else {
		next, ctx := x.exec.DispatchOperation(ctx, oc)
		e.begin()
		for response := next(ctx); response != nil; response = next(ctx) {
			x.exec.tell(ctx, x.op)
			e.next(response)
		}
	}
	e.complete()
}

// subscribe reads the operation whose answers are to be events. What is no request,
// or may not be sent so, is no stream.
func (x *exchange) subscribe(ctx context.Context, r *http.Request) (*graphql.OperationContext, gqlerror.List, *problem) {
	if x.get {
		if err := readURL(r, &x.params); err != nil { // checkURL has let it through
			return nil, nil, &problem{http.StatusBadRequest, CodeBadInput, err.Error()}
		}
	} else if readParams(x.body.Bytes(), &x.params) != nil {
		return nil, nil, &problem{http.StatusBadRequest, CodeBadInput, explainBody(x.body.Bytes())}
	}
	x.params.Headers = r.Header
	oc, list := x.exec.CreateOperationContext(ctx, &x.params)
	x.op.understood(oc)
	if list == nil && x.get && oc.Operation.Operation == ast.Mutation {
		x.Header().Set("Allow", "POST")
		return nil, nil, &problem{http.StatusMethodNotAllowed, CodeBadInput, "a mutation cannot be sent by GET; send it by POST"}
	}
	return oc, list, nil
}

// events writes server-sent events.
type events struct {
	w     http.ResponseWriter
	x     *exchange
	begun bool
}

// begin sends the header, unless it was sent: before anything is read, but when it
// is known what executes the operation.
func (e *events) begin() {
	if e.begun {
		return
	}
	e.begun = true
	header := e.w.Header()
	header.Set("Cache-Control", "no-cache")
	header.Set("Connection", "keep-alive")
	header.Set("Content-Type", mediaEvents)
	if e.x.debug {
		e.x.op.explain(header)
	}
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
