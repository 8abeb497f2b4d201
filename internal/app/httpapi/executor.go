package httpapi

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/99designs/gqlgen/graphql"
	"github.com/99designs/gqlgen/graphql/executor"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"
	"github.com/vektah/gqlparser/v2/validator/rules"
)

// guarded is gqlgen's executor with the limits in front, and with this API's
// error codes.
type guarded struct {
	*executor.Executor
	schema     *ast.Schema
	operations Operations // nil: they have no instants
	documents  *documents
	cost       *costLimit
	secrecy    secrecy // where introspection is not answered
	// recycle takes the memory of an answer's data that was made by a plan and is
	// not used any more; nil: nobody does.
	recycle func(data []byte)
}

// recycler is a schema that can use the memory of an answer's data again.
type recycler interface{ Recycle(data []byte) }

func newExecutor(cfg *Config, present graphql.ErrorPresenterFunc) guarded {
	var secret secrecy
	if !cfg.Introspection {
		secret = keepSecret(cfg.Schema.Schema())
		present = secret.presenter(present)
	}
	exec := executor.New(cfg.Schema)
	exec.SetQueryCache(validDocument{})
	exec.SetErrorPresenter(present)
	if cfg.Recover != nil {
		exec.SetRecoverFunc(cfg.Recover)
	}
	if cfg.Operations != nil {
		exec.Use(&instants{operations: cfg.Operations, present: present})
	}
	exec.Use(answerLimit{cfg.Limits.Answer}) // the innermost: before anything copies an answer
	g := guarded{
		Executor:   exec,
		schema:     cfg.Schema.Schema(),
		operations: cfg.Operations,
		documents:  newDocuments(cfg),
		cost:       &costLimit{limits: cfg.Limits, weight: cfg.Weight},
		secrecy:    secret,
	}
	if again, ok := cfg.Schema.(recycler); ok {
		g.recycle = again.Recycle
	}
	return g
}

// CreateOperationContext parses and validates, and refuses what is too much.
func (g guarded) CreateOperationContext(ctx context.Context, params *graphql.RawParams) (*graphql.OperationContext, gqlerror.List) {
	if params.Query == "" && params.Extensions["persistedQuery"] == nil {
		return &graphql.OperationContext{}, gqlerror.List{refuse(CodeBadInput, `the request has no "query"`)}
	}
	if list := g.documents.of(ctx, params); list != nil {
		return &graphql.OperationContext{}, g.tidy(list, params)
	}
	oc, list := g.Executor.CreateOperationContext(ctx, params)
	switch {
	case list == nil:
		if err := g.check(ctx, oc); err != nil {
			list = gqlerror.List{err}
		}
	case oc.Operation == nil:
		list = gqlerror.List{unknownOperation(operationOf(ctx).document, params.OperationName)}
	default:
		for i, err := range list {
			list[i] = variableError(g.schema, oc.Operation, params.Variables, g.secrecy.names == nil, err)
		}
	}
	return oc, g.tidy(list, params)
}

// check refuses an operation by what its variables make of it.
func (g guarded) check(ctx context.Context, oc *graphql.OperationContext) *gqlerror.Error {
	if err := checkConditions(oc); err != nil {
		return err
	}
	if err := g.cost.check(ctx, oc); err != nil {
		return err
	}
	if oc.DisableIntrospection = g.secrecy.names != nil; !oc.DisableIntrospection {
		return nil
	}
	return checkNoIntrospection(oc.Operation)
}

// tidy says each of the errors of a request once, does not repeat at length what the
// client wrote, nor what it is not to know, and gives the limit of gqlparser's
// validation its code.
func (g guarded) tidy(list gqlerror.List, params *graphql.RawParams) gqlerror.List {
	if list == nil {
		return nil
	}
	sent := params.Query
	if g.secrecy.names != nil {
		if variables, err := json.Marshal(params.Variables); err == nil { // they were JSON
			sent += string(variables)
		}
	}
	type said struct {
		message string
		at      gqlerror.Location
	}
	seen := make(map[said]bool, len(list))
	tidied := make(gqlerror.List, 0, len(list))
	for _, err := range list {
		if err.Rule == rules.MaxIntrospectionDepth.Name {
			err.Err = limited{CodeTooComplex}
			err.Message = "the query asks for lists of the schema within each other more than 2 levels deep, the limit of introspection"
		}
		err.Message = Clip(g.secrecy.censor(err.Message, sent))
		this := said{message: err.Message}
		if len(err.Locations) > 0 {
			this.at = err.Locations[0]
		}
		if !seen[this] {
			seen[this] = true
			tidied = append(tidied, err)
		}
	}
	return tidied
}

func unknownOperation(doc *ast.QueryDocument, name string) *gqlerror.Error {
	if name == "" {
		return refuse(CodeBadInput, `the document has %d operations; say which one to execute in "operationName"`, len(doc.Operations))
	}
	return refuse(CodeBadInput, "the document has no operation named %q", name)
}

// DispatchOperation executes. The first response is never nil, not even when
// the time is over before the execution begins. A query that its context ended
// has one error, wherever that was noticed; what a mutation did is told.
func (g guarded) DispatchOperation(ctx context.Context, oc *graphql.OperationContext) (graphql.ResponseHandler, context.Context) {
	if op := operationOf(ctx); op != nil {
		op.executor = executorGqlgen // unless a plan is noted
	}
	next, ctx := g.Executor.DispatchOperation(ctx, oc)
	answered := false
	return func(ctx context.Context) *graphql.Response {
		response := next(ctx)
		switch {
		case response == nil && !answered:
			response = &graphql.Response{Errors: gqlerror.List{unfinished(ctx, nil)}}
		case response != nil && brokenOff(ctx, response.Errors):
			response.Data, response.Errors = nil, gqlerror.List{unfinished(ctx, response.Errors)}
		}
		answered = true
		return response
	}, ctx
}

// tell notes the instant of an operation that had begun, but was not executed. The
// context is that of its answer.
func (g guarded) tell(ctx context.Context, op *operation) {
	if op.instant == "" && g.operations != nil {
		op.instant = g.operations.Instant(ctx)
	}
}

// brokenOff reports whether one of the errors is that the context of a query has
// ended.
func brokenOff(ctx context.Context, list gqlerror.List) bool {
	if len(list) == 0 || ctx.Err() == nil || graphql.GetOperationContext(ctx).Operation.Operation != ast.Query {
		return false
	}
	for _, err := range list {
		if errors.Is(err.Err, context.DeadlineExceeded) || errors.Is(err.Err, context.Canceled) {
			return true
		}
	}
	op := operationOf(ctx)
	return op != nil && op.broken.Load()
}

// unfinished is the error for an operation that was not executed to its end: what
// the first of its errors says of that, where one was presented.
func unfinished(ctx context.Context, list gqlerror.List) *gqlerror.Error {
	message := "the request was given up by its sender"
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		message = "the request took longer than this server allows (--max-execution, --max-time); ask for less at a time, or for a shorter time"
	}
	for _, err := range list {
		if errors.Is(err.Err, ctx.Err()) && err.Message != err.Err.Error() {
			message = err.Message
			break
		}
	}
	return &gqlerror.Error{Message: message, Extensions: map[string]any{"code": CodeUnavailable}}
}

// DispatchError answers for an operation that is not executed.
func (g guarded) DispatchError(ctx context.Context, list gqlerror.List) *graphql.Response {
	response := g.Executor.DispatchError(ctx, list)
	finalCodes(response.Errors)
	return response
}
