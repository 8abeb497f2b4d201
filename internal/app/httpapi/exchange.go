package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"

	"github.com/99designs/gqlgen/graphql"
	"github.com/99designs/gqlgen/graphql/handler/transport"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"
)

// exchange is one request and its one answer. It reads what was posted itself;
// requests by GET are read by gqlgen's transport, which executes on the exchange
// and writes to it. The exchange decides the status code and the media type and
// encodes the answer, which the transport does only for an empty stand-in. That
// leaves "data" out where nothing was executed, and saves passes over the data,
// which is JSON already.
type exchange struct {
	exec   guarded
	w      http.ResponseWriter
	r      *http.Request
	op     *operation
	media  string // of the answer
	get    bool
	debug  bool
	status int
	place  place
	body   bytes.Buffer     // the request's; later the answer's
	rest   io.LimitedReader // of the request's body, while it is read
	params graphql.RawParams
	answer *graphql.Response
	// executed says that the operation was begun, so that there is "data".
	executed bool
}

var (
	_ http.ResponseWriter   = (*exchange)(nil)
	_ graphql.GraphExecutor = (*exchange)(nil)
)

// Header returns the response's header.
func (x *exchange) Header() http.Header { return x.w.Header() }

// WriteHeader ignores the transport's status.
func (x *exchange) WriteHeader(int) {}

// Write sends the answer instead of the transport's stand-in.
func (x *exchange) Write(standIn []byte) (int, error) { return len(standIn), x.send() }

// send sends the answer.
func (x *exchange) send() error {
	if x.answer == nil {
		// The transport refused a request by itself, without a code.
		x.refuse(&problem{http.StatusBadRequest, CodeBadInput, "the request could not be decoded"})
	}
	x.body.Reset()
	if err := encode(&x.body, x.answer, x.executed, x.op.instant); err != nil {
		return err
	}
	if x.exec.recycle != nil && x.op.executor == executorPlan {
		x.exec.recycle(x.answer.Data)
		x.answer.Data = nil // it is in the body
	}
	header := x.w.Header()
	header["Content-Type"] = contentTypes[x.media]
	if x.debug {
		x.op.explain(header)
	}
	if x.body.Len() > shortAnswer {
		// A shorter one is measured by net/http: with one more, the header would
		// be copied to a larger map in each request, and again when it is sent.
		header["Content-Length"] = []string{strconv.Itoa(x.body.Len())}
	}
	x.place.executed(x.body.Len())
	if x.status == http.StatusServiceUnavailable {
		x.w.Header().Set("Retry-After", "1")
	}
	return writeAtOnce(x.r, x.w, x.status, x.body.Bytes())
}

// post executes what was posted.
func (x *exchange) post(ctx context.Context, r *http.Request) {
	if readParams(x.body.Bytes(), &x.params) != nil {
		x.refuse(&problem{http.StatusBadRequest, CodeBadInput, explainBody(x.body.Bytes())})
		_ = x.send() // where that fails, nobody is there any more
		return
	}
	x.params.Headers = r.Header
	oc, list := x.CreateOperationContext(ctx, &x.params)
	if list != nil {
		x.DispatchError(graphql.WithOperationContext(ctx, oc), list)
	} else {
		next, ctx := x.exec.DispatchOperation(ctx, oc)
		x.take(ctx, next)
	}
	_ = x.send() // as above
}

var contentTypes = map[string][]string{
	mediaJSON:    {mediaJSON + "; charset=utf-8"},
	mediaGraphQL: {mediaGraphQL + "; charset=utf-8"},
	mediaEvents:  {mediaJSON + "; charset=utf-8"}, // of refusals, before there are events
}

// refuse answers a request that is not executed.
func (x *exchange) refuse(p *problem) {
	x.status = p.status
	x.answer = &graphql.Response{Errors: p.list()}
	x.op.errors = x.answer.Errors
}

// CreateOperationContext is called when the transport has decoded the request.
func (x *exchange) CreateOperationContext(ctx context.Context, params *graphql.RawParams) (*graphql.OperationContext, gqlerror.List) {
	oc, list := x.exec.CreateOperationContext(ctx, params)
	x.op.understood(oc)
	switch {
	case params.Query == "":
		x.status = http.StatusBadRequest // not a GraphQL request
	case list != nil && x.media == mediaGraphQL:
		x.status = http.StatusBadRequest
	case list == nil && x.get && oc.Operation.Operation != ast.Query:
		x.status = http.StatusMethodNotAllowed
		x.Header().Set("Allow", "POST")
		return oc, gqlerror.List{refuse(CodeBadInput, "a %s cannot be sent by GET; send it by POST", oc.Operation.Operation)}
	}
	return oc, list
}

// DispatchOperation executes the operation.
func (x *exchange) DispatchOperation(ctx context.Context, oc *graphql.OperationContext) (graphql.ResponseHandler, context.Context) {
	next, ctx := x.exec.DispatchOperation(ctx, oc)
	return func(ctx context.Context) *graphql.Response {
		x.take(ctx, next)
		return &graphql.Response{}
	}, ctx
}

// take takes the first answer of an operation.
func (x *exchange) take(ctx context.Context, next graphql.ResponseHandler) {
	x.answer = next(ctx)
	x.exec.tell(ctx, x.op)
	x.op.errors = x.answer.Errors
	x.executed = x.answer.Data != nil
	if !x.executed {
		x.status = statusOf(x.answer.Errors)
		switch {
		case errors.Is(ctx.Err(), context.Canceled):
			x.status = statusCancelled
		case ctx.Err() != nil:
			x.status = http.StatusGatewayTimeout
		case x.status == http.StatusOK && x.media == mediaGraphQL:
			x.status = http.StatusBadRequest // there is no data
		}
	}
}

// DispatchError answers for a request that is not executed.
func (x *exchange) DispatchError(ctx context.Context, list gqlerror.List) *graphql.Response {
	x.answer = x.exec.DispatchError(ctx, list)
	x.op.errors = x.answer.Errors
	return &graphql.Response{}
}

// encodeAny writes a response of a stream, also a part of one that comes later
// than the first (@defer). The instant is that of encode.
func encodeAny(to *bytes.Buffer, r *graphql.Response, instant string) error {
	if r.HasNext == nil && r.Path == nil && r.Label == "" {
		return encode(to, r, r.Data != nil, instant)
	}
	addInstant(r, instant)
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	_, err = to.Write(text)
	return err
}

// addInstant adds the instant to the extensions, if there is one.
func addInstant(r *graphql.Response, instant string) {
	if instant == "" {
		return
	}
	if r.Extensions == nil {
		r.Extensions = make(map[string]any, 1)
	}
	r.Extensions["asOf"] = instant
}

// encode writes a response as JSON: errors first, data only where an operation
// was executed. The instant, whose text needs no escapes, is what the extensions
// say of it; "" for nothing. Mostly it is all that they say.
func encode(to *bytes.Buffer, r *graphql.Response, executed bool, instant string) error {
	extended := instant != "" || len(r.Extensions) > 0
	to.Grow(len(r.Data) + 64) // and what is around it
	to.WriteByte('{')
	if len(r.Errors) > 0 {
		errs, err := json.Marshal(r.Errors)
		if err != nil {
			return err
		}
		to.WriteString(`"errors":`)
		to.Write(errs)
		if executed || extended {
			to.WriteByte(',')
		}
	}
	if executed {
		to.WriteString(`"data":`)
		to.Write(r.Data)
		if extended {
			to.WriteByte(',')
		}
	}
	switch {
	case len(r.Extensions) > 0:
		addInstant(r, instant)
		text, err := json.Marshal(r.Extensions)
		if err != nil {
			return err
		}
		to.WriteString(`"extensions":`)
		to.Write(text)
	case extended:
		to.WriteString(`"extensions":{"asOf":"`)
		to.WriteString(instant)
		to.WriteString(`"}`)
	}
	to.WriteByte('}')
	return nil
}

// serve answers a request by POST or GET.
func (h *Handler) serve(w http.ResponseWriter, r *http.Request, op *operation) {
	x, _ := h.pool.Get().(*exchange)
	x.exec, x.w, x.r, x.op, x.debug = h.exec, w, r, op, h.cfg.Debug
	x.media, x.get, x.status = answerMedia(r), r.Method == http.MethodGet, http.StatusOK
	ctx, p := h.receive(w, r, x)
	if p == nil {
		if p = h.enter(ctx); p == nil {
			h.execute(ctx, w, r, x)
		}
	}
	if p != nil {
		x.refuse(p)
		_, _ = x.Write(nil)
	}
	op.status = x.status
	h.finish(r.Context(), op)
	h.release(x)
}

// receive reads a request and makes the context of its operation.
func (h *Handler) receive(w http.ResponseWriter, r *http.Request, x *exchange) (context.Context, *problem) {
	ctx := r.Context()
	if h.cfg.Identify != nil {
		var err error
		if ctx, x.op.actor, err = h.cfg.Identify(r); err != nil {
			return nil, &problem{http.StatusBadRequest, CodeBadInput, err.Error()}
		}
	}
	var p *problem
	if x.get {
		p = checkURL(r)
	} else {
		p = readBody(w, r, h.cfg.Limits.Body, &x.body, &x.rest)
	}
	if p != nil {
		return nil, p
	}
	return ctx, nil
}

// execute executes an operation that has a place, and sends its answer.
func (h *Handler) execute(ctx context.Context, w http.ResponseWriter, r *http.Request, x *exchange) {
	x.place = place{of: h, held: true}
	defer x.place.leave()
	timed := newTimed(ctx, x.op, h.cfg.Now, h.cfg.Limits.Time)
	defer timed.end()
	ctx = graphql.StartOperationTrace(timed)
	switch x.op.transport {
	case http.MethodGet:
		transport.GET{}.Do(x, r.WithContext(ctx), x)
	case transportEvents:
		h.serveEvents(ctx, w, r, x)
	default:
		x.post(ctx, r)
	}
}
