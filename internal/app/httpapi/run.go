package httpapi

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"net/http"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"
	"github.com/vektah/gqlparser/v2/validator"
	"github.com/vektah/gqlparser/v2/validator/rules"

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
	if r.oc.Operation.Operation == ast.Mutation {
		r.op.limits = r.op.limits.halfAnswer() // what it writes is in memory, too
	}
	if r.oc.Operation.Operation != ast.Subscription { // whose events are read as operations of their own
		params.Variables = nil // those that are not used are not kept
	}
	// A mutation that asks for pages, blames or differences of what it changed may read as much
	// as a query, and has a query's place and time.
	write := r.oc.Operation.Operation == ast.Mutation && !r.op.expected.reads
	// The request's context: waiting with the operation's would start its timer.
	if err := r.place.Operation(r.op.opContext.Context, r.oc.Operation.Name, r.oc.RawQuery, r.op.expected.mayBeLong, write); err != nil {
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

// CountAnswer counts bytes by which the answer of the context's operation has grown. It returns an
// error where there is no room for them; the operation is then refused, even if the caller drops
// the error.
func CountAnswer(ctx context.Context, bytes int) error {
	op := operationOf(ctx)
	if op == nil {
		return nil
	}
	return op.keep(int64(bytes), 2*int64(bytes)) // what grows is copied
}

// halfAnswer returns the limits for an event of a subscription and for a mutation, whose answers may be
// half as long: gqlgen's buffer for an event grows to the double again and again.
func (l *Limits) halfAnswer() *Limits {
	half := *l
	half.Answer /= 2
	return &half
}

// kept is how many bytes of documents, fields and answer an operation may have in memory at
// once. With the collector's share, and what is not counted, it takes three to four times as much.
func (l *Limits) kept() int64 { return (l.Read + int64(l.Answer)) / 3 }

// keepsTooMuch reports whether the operation is refused because of what it keeps.
func (o *operation) keepsTooMuch() bool { return o.kept.Load() > o.limits.kept() }

// keep counts bytes that the operation keeps until it ends, and those that it holds of the
// memory of all requests meanwhile. See CountAnswer.
func (o *operation) keep(bytes, held int64) error {
	switch {
	case o.kept.Add(bytes) > o.limits.kept():
		return o.tooMuch()
	case o.hold == nil || o.hold.Grow(held) == nil:
		return nil
	default:
		o.outOfMemory.Store(true)
		return refuse(CodeUnavailable, noMemory)
	}
}

func (o *operation) tooMuch() *gqlerror.Error {
	return refuse(codeTooComplex, "the operation has more than %d bytes of documents, fields, answer and values of variables (each as often as it is used) in memory, the limit of this server (a third of --max-read and --max-answer together): "+
		"ask for fewer documents or fields at a time; of a long list of references ask for the keys, and then for some of the documents (nodes)", o.limits.kept())
}

// boundAnswer refuses an answer whose data is too long, whatever executed the operation:
// instead of data and errors it has one error. No other limit knows how long an answer gets: a
// document is read once, and may be asked for under many aliases.
func boundAnswer(op *operation, oc *graphql.OperationContext, response *graphql.Response) {
	if len(response.Errors) > 0 && errors.Is(response.Errors[0].Err, errAloneInAnswer) {
		response.Errors = response.Errors[:1]
	}
	limit := "--max-answer"
	if op.event || oc.Operation.Operation == ast.Mutation {
		limit += ", of an event or a mutation half of it"
	}
	var refused *gqlerror.Error
	switch {
	case op.outOfMemory.Load():
		refused = refuse(CodeUnavailable, noMemory+": ask for less, or try again in a moment")
	case op.keepsTooMuch():
		refused = op.tooMuch()
	case len(response.Data) > op.limits.Answer || op.long.Load():
		refused = refuse(codeTooComplex, "the answer is longer than %d bytes, the limit of this server (%s): "+
			"ask for fewer documents, a smaller page or fewer fields and aliases", op.limits.Answer, limit)
	default:
		return
	}
	if oc.Operation.Operation == ast.Mutation {
		refused.Message += "; the mutation was executed, or a part of it: read what is there before you send it again"
	}
	response.Data, response.Errors = nil, gqlerror.List{refused}
}

// decodedSize estimates the bytes that a JSON text takes when it is decoded: a map takes
// some 350 with its first members, whatever they are, and any other value some 60.
func decodedSize(text []byte) int64 {
	count := func(c string) int64 { return int64(bytes.Count(text, []byte(c))) }
	return int64(len(text)) + objectBytes*count("{") + otherBytes*(count("[")+count(",")+count(":"))
}

const (
	objectBytes = 350
	otherBytes  = 64
)

// executor reads operations, checks them against the limits, and executes them by a schema.
// gqlgen's own executor parses by itself, and its extensions wrap what is called directly here.
type executor struct {
	*Config

	weights   map[*ast.FieldDefinition]int // see Config.Weight
	documents *documents
	present   graphql.ErrorPresenterFunc
	// recycle takes the memory of an answer's data that a plan has written and that is not
	// used any more; nil: there are no plans.
	recycle func(data []byte)
}

// recycler is a schema that can use the memory of an answer's data again.
type recycler interface{ Recycle(data []byte) }

func newExecutor(cfg *Config, present graphql.ErrorPresenterFunc) *executor {
	e := &executor{Config: cfg, weights: weightsOf(cfg.Schema.Schema(), cfg.Weight), documents: newDocuments(cfg), present: present}
	if r, ok := cfg.Schema.(recycler); ok {
		e.recycle = r.Recycle
	}
	return e
}

// read parses and validates an operation, with its variables, and refuses what exceeds the
// limits. It notes the operation's name and type.
func (e *executor) read(ctx context.Context, op *operation, params *graphql.RawParams) (*graphql.OperationContext, gqlerror.List) {
	oc, list := e.parse(ctx, op, params)
	if oc != nil {
		op.name, op.kind = oc.Operation.Name, string(oc.Operation.Operation)
	}
	if list != nil {
		return nil, finishErrors(list)
	}
	return oc, nil
}

// parse is read without the finishing of errors. With errors, the operation is returned if it
// was found.
func (e *executor) parse(ctx context.Context, op *operation, params *graphql.RawParams) (*graphql.OperationContext, gqlerror.List) {
	if params.Query == "" && op.documentID == "" && params.Extensions["persistedQuery"] == nil {
		return nil, gqlerror.List{refuse(codeBadInput, `the request has no "query"`)}
	}
	if list := e.documents.of(ctx, op, params); list != nil {
		return nil, list
	}
	oc := &graphql.OperationContext{
		RawQuery:               params.Query,
		OperationName:          params.OperationName,
		Extensions:             params.Extensions,
		Headers:                params.Headers,
		Doc:                    op.document.parsed,
		Operation:              op.document.parsed.Operations.ForName(params.OperationName),
		DisableIntrospection:   !e.Introspection,
		RecoverFunc:            e.Recover,
		ResolverMiddleware:     func(ctx context.Context, next graphql.Resolver) (any, error) { return next(ctx) },
		RootResolverMiddleware: func(ctx context.Context, next graphql.RootResolver) graphql.Marshaler { return next(ctx) },
	}
	if oc.Operation == nil {
		return nil, gqlerror.List{unknownOperation(oc.Doc, params.OperationName)}
	}
	var err error
	oc.Variables, err = validator.VariableValues(e.Schema.Schema(), oc.Operation, params.Variables)
	if wrong, ok := errors.AsType[*gqlerror.Error](err); ok {
		return oc, gqlerror.List{variableError(oc.Operation, wrong)}
	}
	plainLists(oc.Variables)
	if err := e.checkCost(op, oc); err != nil {
		return oc, gqlerror.List{err}
	}
	return oc, nil
}

// finishErrors returns each of the errors of a request once, with a code, and clipped.
func finishErrors(list gqlerror.List) gqlerror.List {
	type said struct {
		message string
		at      gqlerror.Location
	}
	seen := make(map[said]bool, len(list))
	finished := make(gqlerror.List, 0, len(list))
	for _, err := range list {
		if err.Rule == rules.MaxIntrospectionDepth.Name {
			err.Extensions = map[string]any{"code": codeTooComplex}
			err.Message = "the query asks for lists of the schema within each other more than 2 levels deep, the limit of introspection"
		}
		if codeOf(err) == "" { // gqlparser's
			err.Extensions = map[string]any{"code": codeBadInput}
		}
		err.Message = Clip(err.Message)
		this := said{message: err.Message}
		if len(err.Locations) > 0 {
			this.at = err.Locations[0]
		}
		if !seen[this] {
			seen[this] = true
			finished = append(finished, err)
		}
	}
	return finished
}

func unknownOperation(doc *ast.QueryDocument, name string) *gqlerror.Error {
	if name == "" {
		return refuse(codeBadInput, `the document has %d operations; say which one to execute in "operationName"`, len(doc.Operations))
	}
	return refuse(codeBadInput, "the document has no operation named %q", name)
}

// execute executes an operation that was read, at an instant of its own. A query that its
// context ended has one error, wherever that was noticed; a mutation reports what it did.
func (e *executor) execute(ctx context.Context, op *operation, oc *graphql.OperationContext) *graphql.Response {
	op.executor = executorGqlgen // unless NotePlan is called
	ctx = graphql.WithOperationContext(ctx, oc)
	response := &graphql.Response{}
	begun, err := e.Operations.Begin(ctx)
	switch {
	case err != nil:
		response.Errors = gqlerror.List{e.present(ctx, err)}
	case ctx.Err() != nil:
		response.Errors = gqlerror.List{timeoutError(ctx, nil)}
	default:
		ctx = graphql.WithResponseContext(begun, e.present, e.Recover)
		next := e.Schema.Exec(ctx)
		if oc.Operation.Operation != ast.Subscription || len(graphql.GetErrors(ctx)) == 0 { // else there is nothing to call
			if answer := next(ctx); answer != nil {
				response = answer
			}
		}
		response.Errors = append(response.Errors, graphql.GetErrors(ctx)...)
		response.Extensions = graphql.GetExtensions(ctx)
		boundAnswer(op, oc, response)
		op.instant = e.Operations.Instant(ctx)
	}
	switch mutation := oc.Operation.Operation == ast.Mutation; {
	case !mutation && contextEnded(ctx, op, response.Errors):
		response.Data, response.Errors = nil, gqlerror.List{timeoutError(ctx, response.Errors)}
	case mutation && op.listEnded.Load() && response.Data != nil:
		response.Data = []byte("null")
	}
	return response
}

// contextEnded reports whether one of the errors is that the operation's context has ended.
func contextEnded(ctx context.Context, op *operation, list gqlerror.List) bool {
	if len(list) == 0 || ctx.Err() == nil {
		return false
	}
	for _, err := range list {
		if errors.Is(err.Err, context.DeadlineExceeded) || errors.Is(err.Err, context.Canceled) {
			return true
		}
	}
	return op.timedOut.Load()
}

// timeoutError returns the error for an operation whose context ended before it was executed
// to its end: with the message of the first of its errors about that, if one was presented.
func timeoutError(ctx context.Context, list gqlerror.List) *gqlerror.Error {
	message := "the request was cancelled by its sender"
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		message = "the request took longer than this server allows (--max-execution, --max-time); ask for less at a time, or for a shorter time"
	}
	for _, err := range list {
		if errors.Is(err.Err, ctx.Err()) && err.Message != err.Err.Error() {
			message = err.Message
			break
		}
	}
	return refuse(CodeUnavailable, "%s", message)
}
