package plan

import (
	"context"
	"math"
	"sync"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/ast"

	"github.com/asof/asof/internal/plan/args"
	"github.com/asof/asof/internal/plan/plancache"
	"github.com/asof/asof/storage"
)

// Option configures what New returns.
type Option func(*executable)

// WithObserver has fn called for each operation, before it is executed: why is
// the reason for which it was not planned, or "".
func WithObserver(fn func(ctx context.Context, why string)) Option {
	return func(e *executable) { e.observe = fn }
}

// WithMaxAnswer bounds the memory that an answer takes. Data of more than n bytes
// is cut and no valid JSON, but still longer than n: the caller has to refuse such an
// answer by its length. What interceptors of root fields return for a value
// that was cut is ignored.
func WithMaxAnswer(n int) Option {
	return func(e *executable) { e.most = n }
}

// WithMemory has fn called while an answer is written, with the bytes that it has grown by
// since the last call. An error of fn ends the writing and is an error of the answer.
func WithMemory(fn func(ctx context.Context, bytes int) error) Option {
	return func(e *executable) { e.memory = fn }
}

// New returns a schema that answers as inner does, whose documents are in the
// store, and compiles the queries that it knows how to. The store's operation
// (storage.Store.Begin) has to be in the context of an execution, as for inner.
func New(inner graphql.ExecutableSchema, store *storage.Store, options ...Option) graphql.ExecutableSchema {
	e := &executable{
		ExecutableSchema: inner,
		store:            store,
		observe:          func(context.Context, string) {},
		most:             math.MaxInt,
		memory:           func(context.Context, int) error { return nil },
	}
	e.plans = plancache.New(e.compile)
	for _, o := range options {
		o(e)
	}
	return e
}

// executable is an executable schema with plans.
type executable struct {
	graphql.ExecutableSchema
	store   *storage.Store
	plans   *plancache.Cache[*plan]
	runs    sync.Pool // of *run
	buffers sync.Pool // of *[]byte, for answers
	observe func(ctx context.Context, why string)
	most    int // bytes of an answer's data
	memory  func(ctx context.Context, bytes int) error
}

// Exec executes the context's operation.
func (e *executable) Exec(ctx context.Context) graphql.ResponseHandler {
	x := &execution{of: e, oc: graphql.GetOperationContext(ctx)}
	if err := e.prepare(x); err != nil {
		e.observe(ctx, err.Error())
		return e.ExecutableSchema.Exec(ctx)
	}
	e.observe(ctx, "")
	return x.respond
}

// prepare finds the operation's plan, and the values of its arguments; an error
// says why there is none.
func (e *executable) prepare(x *execution) (err error) {
	if kind := x.oc.Operation.Operation; kind != ast.Query {
		return unplanned("a " + string(kind) + " is not planned")
	}
	if x.plan, err = e.plans.Of(x.oc); err != nil {
		return err
	}
	if x.plan.err != nil {
		return x.plan.err
	}
	x.args = x.few[:0]
	for i := range x.plan.args {
		value, err := x.plan.args[i].Value(&x.given, x.oc.Variables)
		if err != nil {
			return err
		}
		x.args = append(x.args, value)
	}
	return nil
}

// execution is one execution of a plan, from Exec to its response.
type execution struct {
	of       *executable
	plan     *plan
	oc       *graphql.OperationContext
	args     []any // the values of plan.args
	answered bool
	// What most executions need once is allocated with them.
	query    graphql.FieldContext
	first    rootCall
	few      [4]any
	given    args.Given
	response graphql.Response
}

// respond returns the one response, and then nil.
func (x *execution) respond(ctx context.Context) *graphql.Response {
	if x.answered {
		return nil
	}
	x.answered = true
	x.response.Data = x.answer(ctx)
	return &x.response
}

// unplanned is the reason for which an operation has no plan.
type unplanned string

func (u unplanned) Error() string { return string(u) }
