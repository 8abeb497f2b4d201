package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"strings"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"
	"github.com/vektah/gqlparser/v2/validator"
	"github.com/vektah/gqlparser/v2/validator/rules"
)

// executor reads operations, checks them against the limits, and executes them by a schema.
// gqlgen's own executor parses by itself, and its extensions wrap what is called directly here.
type executor struct {
	schema     graphql.ExecutableSchema
	limits     *Limits
	weight     func(parent, field, result string) int
	operations Operations
	documents  *documents
	present    graphql.ErrorPresenterFunc
	recover    graphql.RecoverFunc
	redactor   redactor // where introspection is off
	// recycle takes the memory of an answer's data that a plan has written and that is not
	// used any more; nil: there are no plans.
	recycle func(data []byte)
}

// recycler is a schema that can use the memory of an answer's data again.
type recycler interface{ Recycle(data []byte) }

func newExecutor(cfg *Config, present graphql.ErrorPresenterFunc) *executor {
	e := &executor{
		schema:     cfg.Schema,
		limits:     &cfg.Limits,
		weight:     cfg.Weight,
		operations: cfg.Operations,
		documents:  newDocuments(cfg),
		recover:    cfg.Recover,
	}
	if !cfg.Introspection {
		e.redactor = newRedactor(cfg.Schema.Schema())
	}
	e.present = e.redactor.presenter(present)
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
		return nil, e.finishErrors(list, params)
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
		Doc:                    op.document,
		Operation:              op.document.Operations.ForName(params.OperationName),
		DisableIntrospection:   e.redactor.names != nil,
		RecoverFunc:            e.recover,
		ResolverMiddleware:     func(ctx context.Context, next graphql.Resolver) (any, error) { return next(ctx) },
		RootResolverMiddleware: func(ctx context.Context, next graphql.RootResolver) graphql.Marshaler { return next(ctx) },
	}
	if oc.Operation == nil {
		return nil, gqlerror.List{unknownOperation(op.document, params.OperationName)}
	}
	var err error
	oc.Variables, err = validator.VariableValues(e.schema.Schema(), oc.Operation, params.Variables)
	if wrong, ok := errors.AsType[*gqlerror.Error](err); ok {
		return oc, gqlerror.List{variableError(oc.Operation, wrong)}
	}
	for _, v := range oc.Operation.VariableDefinitions {
		if way := wrongOneOf(e.schema.Schema(), v.Type, params.Variables[v.Variable], ast.Path{ast.PathName("$" + v.Variable)}); way != nil {
			return oc, gqlerror.List{refuse(codeBadInput, "variable %q: of an input that takes one of several fields exactly one must be given, and not be null", way.String())}
		}
	}
	if err := e.checkCost(op, oc); err != nil {
		return oc, gqlerror.List{err}
	}
	return oc, nil
}

// finishErrors returns each of the errors of a request once, with a code, clipped, and without
// what the client is not to know.
func (e *executor) finishErrors(list gqlerror.List, params *graphql.RawParams) gqlerror.List {
	sent := params.Query
	if e.redactor.names != nil {
		if variables, err := json.Marshal(params.Variables); err == nil { // they were JSON
			sent += string(variables)
		}
	}
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
		err.Message = Clip(e.redactor.redact(err.Message, sent))
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
	begun, err := e.operations.Begin(ctx)
	switch {
	case err != nil:
		response.Errors = gqlerror.List{e.present(ctx, err)}
	case ctx.Err() != nil:
		response.Errors = gqlerror.List{timeoutError(ctx, nil)}
	default:
		ctx = graphql.WithResponseContext(begun, e.present, e.recover)
		next := e.schema.Exec(ctx)
		if oc.Operation.Operation != ast.Subscription || len(graphql.GetErrors(ctx)) == 0 { // else there is nothing to call
			if answer := next(ctx); answer != nil {
				response = answer
			}
		}
		response.Errors = append(response.Errors, graphql.GetErrors(ctx)...)
		response.Extensions = graphql.GetExtensions(ctx)
		boundAnswer(op, oc, response, e.limits.Answer)
		op.instant = e.operations.Instant(ctx)
	}
	if oc.Operation.Operation != ast.Mutation && contextEnded(ctx, op, response.Errors) {
		response.Data, response.Errors = nil, gqlerror.List{timeoutError(ctx, response.Errors)}
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

// redactor removes from errors the names of the schema that the client has not sent, on a
// server without introspection.
type redactor struct {
	names   map[string]bool // nil: nothing is removed
	pattern *regexp.Regexp  // a name, with a character before it that marks it as one
}

// newRedactor returns the redactor of a schema.
func newRedactor(schema *ast.Schema) redactor {
	r := redactor{map[string]bool{}, regexp.MustCompile(`["\[.@]?[_A-Za-z][_0-9A-Za-z]*`)}
	for _, def := range schema.Types {
		if def.BuiltIn {
			continue
		}
		r.names[def.Name] = true
		for _, value := range def.EnumValues {
			r.names[value.Name] = true
		}
		for _, field := range def.Fields {
			r.names[field.Name] = true
			for _, argument := range field.Arguments {
				r.names[argument.Name] = true
			}
		}
	}
	return r
}

// redact returns a message without the names that the client has not sent. A word in
// lower case is a name if it is in quotes, after a dot, or in a list.
func (r redactor) redact(message, sent string) string {
	if r.names == nil {
		return message
	}
	const most = 4_000 // bytes; of longer messages less is shown, with whole names
	if len(message) > most {
		message = message[:most/2] + "…" + message[len(message)-most/2:]
	}
	return r.pattern.ReplaceAllStringFunc(message, func(found string) string {
		name := strings.TrimLeft(found, `"[.@`)
		if !r.names[name] || name == found && name == strings.ToLower(name) || hasWord(sent, name) {
			return found
		}
		return strings.TrimSuffix(found, name) + "…"
	})
}

// presenter returns a presenter of errors that redacts what fields say of a request that is refused.
func (r redactor) presenter(present graphql.ErrorPresenterFunc) graphql.ErrorPresenterFunc {
	if r.names == nil {
		return present
	}
	return func(ctx context.Context, err error) *gqlerror.Error {
		shown := present(ctx, err)
		if shown != nil && slices.Contains([]string{codeBadInput, codeTooComplex, CodeForbidden}, codeOf(shown)) && graphql.GetFieldContext(ctx) != nil {
			shown.Message = r.redact(shown.Message, graphql.GetOperationContext(ctx).RawQuery)
		}
		return shown
	}
}

// hasWord reports whether a text has a name that is not a part of another.
func hasWord(text, name string) bool {
	letter := func(at int) bool {
		return at >= 0 && at < len(text) && (text[at] == '_' || text[at] >= '0' && text[at] <= '9' || text[at]|0x20 >= 'a' && text[at]|0x20 <= 'z')
	}
	for at := 0; ; at++ {
		next := strings.Index(text[at:], name)
		if next < 0 {
			return false
		}
		if at += next; !letter(at-1) && !letter(at+len(name)) {
			return true
		}
	}
}
