package plan

import (
	"context"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/ast"

	"github.com/asof/asof/storage"
)

// Option configures what New returns.
type Option func(*executable)

// WithObserver has fn called for each operation, before it is executed: why is
// the reason for which it was not planned, or "".
func WithObserver(fn func(ctx context.Context, why string)) Option {
	return func(e *executable) { e.observe = fn }
}

// New returns a schema that answers as inner does, whose documents are in the
// store, and compiles the queries that it knows how to. The store's operation
// (storage.Store.Begin) has to be in the context of an execution, as for inner.
func New(inner graphql.ExecutableSchema, store *storage.Store, options ...Option) graphql.ExecutableSchema {
	e := &executable{
		ExecutableSchema: inner,
		compiler:         newCompiler(inner.Schema(), store),
		plans:            newCache(),
		observe:          func(context.Context, string) {},
	}
	for _, o := range options {
		o(e)
	}
	return e
}

// executable is an executable schema with plans.
type executable struct {
	graphql.ExecutableSchema
	compiler *compiler
	plans    *cache
	observe  func(ctx context.Context, why string)
}

// Exec executes the context's operation.
func (e *executable) Exec(ctx context.Context) graphql.ResponseHandler {
	oc := graphql.GetOperationContext(ctx)
	p, args, err := e.prepare(oc)
	if err != nil {
		e.observe(ctx, err.Error())
		return e.ExecutableSchema.Exec(ctx)
	}
	e.observe(ctx, "")
	answered := false
	return func(ctx context.Context) *graphql.Response {
		if answered {
			return nil
		}
		answered = true
		return &graphql.Response{Data: p.answer(ctx, oc, args)}
	}
}

// prepare returns the operation's plan and the values of its arguments; an error
// says why there is none.
func (e *executable) prepare(oc *graphql.OperationContext) (*plan, []any, error) {
	if oc.Operation.Operation != ast.Query {
		return nil, nil, unplanned("a " + string(oc.Operation.Operation) + " is not planned")
	}
	known := e.plans.of(oc)
	if known.err != nil {
		return nil, nil, known.err
	}
	p := known.plan(e.compiler, oc)
	if p.err != nil {
		return nil, nil, p.err
	}
	args, err := p.arguments(oc.Variables)
	return p, args, err
}

// unplanned is the reason for which an operation has no plan.
type unplanned string

func (u unplanned) Error() string { return string(u) }
