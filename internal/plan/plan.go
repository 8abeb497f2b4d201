// Package plan answers common queries straight from stored bytes.
//
// It wraps an executable schema. An operation whose every field is of a kind
// that it knows is compiled once to a plan, which is kept by the parsed
// operation; every other operation goes to the wrapped schema, whole. An
// execution of a plan reads first and writes then:
//
//	bytes ─▶ operation (httpapi/exchange.go: parsed, validated, limited)
//	      ─▶ plan, arguments (plan.go)
//	           read   store.Page / Document ─▶ documents   (write.go)
//	                  references, level by level, one call of the store for each (load.go)
//	           write  stored bytes ─▶ appended to one buffer ─▶ graphql.Response.Data (write.go)
//	      ─▶ bytes (httpapi/exchange.go)
//
// That is the way of a request. How plans are kept is in plan.go, and how they are made of the
// kinds of fields in fields.go, but for references (load.go) and root fields (write.go).
//
// Invariants:
//
//   - The answer is the wrapped schema's, byte for byte: data, errors and their
//     order within a root field, null where a non-null field has no value. Only
//     what is refused while it is executed, as it follows too many references or its
//     time is over, may be refused elsewhere.
//   - What versions and instants mean is decided in package storage; nothing here
//     compares times.
//   - An operation is planned whole or not at all, and that is decided before
//     anything is read. Arguments that cannot be read are left to the wrapped
//     schema, which words the errors. They are read with the grammar that the generated
//     code reads them with, and in its order.
//   - A plan is never changed once it is made, and holds nothing of a request but
//     the values of boolean variables, of which @skip and @include may depend.
//   - A plan reads the same things in the same order as it writes them: what was
//     read waits in queues, one for each field that reads (load.go).
//   - The memory of the plans that are kept is bounded, by an estimate. No request waits
//     for the compiler of another: what several need at once may be compiled more than
//     once, and is kept once.
//   - Fields have no contexts: interceptors of operations and responses see planned
//     operations, those of fields would not: there are none.
package plan

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/ast"

	"github.com/asof/asof/internal/lru"
	"github.com/asof/asof/internal/scalar"
	"github.com/asof/asof/internal/scalar/literal"
	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
)

// Config is what a schema with plans needs, all of it.
type Config struct {
	// Observe is called for each operation, before it is executed: why is
	// the reason for which it was not planned, or "".
	Observe func(ctx context.Context, why string)
	// MaxAnswer bounds the memory that an answer takes, in bytes. Longer data
	// is cut and no valid JSON, but still longer: the caller has to refuse such an
	// answer by its length.
	MaxAnswer int
	// MaxErrors is how many errors of an answer are told with their places. What follows is reported
	// too, for who counts it.
	MaxErrors int
	// Document is what the parsed document of the context's operation takes, in bytes.
	Document func(ctx context.Context) int
	// Memory is called while an answer is written, with the bytes that it has grown by
	// since the last call. Its error ends the writing and is an error of the answer.
	Memory func(ctx context.Context, bytes int) error
}

// New returns a schema that answers as inner does, whose documents are in the
// store, and compiles the queries that it knows how to. The store's operation
// (storage.Store.Begin) has to be in the context of an execution, as for inner.
func New(inner graphql.ExecutableSchema, store *storage.Store, c Config) graphql.ExecutableSchema {
	return &executable{ExecutableSchema: inner, Config: c, store: store, plans: lru.New[planKey, *plan](keptBytes)}
}

// executable is an executable schema with plans.
type executable struct {
	graphql.ExecutableSchema
	Config

	store   *storage.Store
	mu      sync.Mutex // guards plans; held for look-ups and changes only
	plans   *lru.Cache[planKey, *plan]
	runs    sync.Pool // of *run
	buffers sync.Pool // of *[]byte, for answers
}

// Exec executes the context's operation.
func (e *executable) Exec(ctx context.Context) graphql.ResponseHandler {
	x := &execution{of: e, oc: graphql.GetOperationContext(ctx)}
	if err := e.prepare(ctx, x); err != nil {
		e.Observe(ctx, err.Error())
		return e.ExecutableSchema.Exec(ctx)
	}
	e.Observe(ctx, "")
	return x.respond
}

// prepare finds the operation's plan, and the values of its arguments; an error
// says why there is none.
func (e *executable) prepare(ctx context.Context, x *execution) error {
	if kind := x.oc.Operation.Operation; kind != ast.Query {
		return unplanned("a " + string(kind) + " is not planned")
	}
	if x.plan = e.planOf(ctx, x.oc); x.plan.err != nil {
		return x.plan.err
	}
	x.args = x.few[:0]
	for i := range x.plan.args {
		value, err := x.plan.args[i].value(&x.given, x.oc.Variables)
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
	few      [4]any
	given    givenArgs
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

// The memory of an answer that was sent is used for another one, unless it is
// too small to be worth it or too large to be kept, in bytes. A new one gets as
// much as the last answer of the same plan took, which may have been much longer,
// up to a bound.
const (
	leastRecycled = 1 << 10
	mostRecycled  = 64 << 10
	largestStart  = 256 << 10
)

// Recycle takes back the data of a plan's answer that is not used any more. Without
// the call the collector frees it.
func (e *executable) Recycle(data []byte) {
	if cap(data) >= leastRecycled && cap(data) <= mostRecycled {
		e.buffers.Put(&data)
	}
}

// buffer returns memory for an answer of about size bytes.
func (e *executable) buffer(size int64) []byte {
	if data, ok := e.buffers.Get().(*[]byte); ok {
		if int64(cap(*data)) >= size {
			return (*data)[:0]
		}
		e.buffers.Put(data)
	}
	return make([]byte, 0, min(size+size/8+64, largestStart))
}

// What is kept at most, in bytes. A plan keeps its parsed document, and a field of it takes
// about fieldBytes: fragments that are spread in many places are compiled in each, so that
// this can be much more.
const (
	keptBytes  = 12 << 20
	keptEntry  = keptBytes / 4 // of one plan
	fieldBytes = 256
)

// planKey is what a plan is kept by: the conditions in an operation depend on its boolean variables.
type planKey struct {
	operation *ast.OperationDefinition
	booleans  string
}

// planOf returns the plan of the context's operation: one that is kept, or a new one.
func (e *executable) planOf(ctx context.Context, oc *graphql.OperationContext) *plan {
	var booleans []byte
	for _, v := range oc.Operation.VariableDefinitions {
		if v.Type.NamedType != "Boolean" {
			continue
		}
		switch oc.Variables[v.Variable] {
		case true:
			booleans = append(booleans, '1')
		case false:
			booleans = append(booleans, '0')
		default:
			booleans = append(booleans, '-')
		}
	}
	key := planKey{oc.Operation, string(booleans)}
	e.mu.Lock()
	p, ok := e.plans.Get(key)
	e.mu.Unlock()
	if ok {
		return p
	}
	p, fields := e.compile(oc)
	if size := e.Document(ctx) + (fields+1)*fieldBytes; size <= keptEntry {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.plans.Add(key, p, size)
	}
	return p
}

// errUnreadable is the error of arguments that cannot be read.
var errUnreadable = errors.New("arguments cannot be read")

// fieldArgs is the arguments of one field of an operation.
type fieldArgs struct {
	field graphql.CollectedField
	read  func(g *givenArgs) any
	fixed any // nil: they depend on variables
}

// argsOf returns the arguments of a field. Read turns them into one value, never nil.
func argsOf(f graphql.CollectedField, read func(g *givenArgs) any) (args fieldArgs, err error) {
	args = fieldArgs{field: f, read: read}
	if !slices.ContainsFunc(f.Arguments, func(a *ast.Argument) bool { return hasVariable(a.Value) }) {
		args.fixed, err = args.value(&givenArgs{}, nil)
	}
	return args, err
}

// value returns what the field's read makes of its arguments. It is shared between
// requests where the arguments name no variable. It uses the memory of g.
func (f *fieldArgs) value(g *givenArgs, variables map[string]any) (any, error) {
	if f.fixed != nil {
		return f.fixed, nil
	}
	*g = givenArgs{field: f.field, variables: variables}
	value := f.read(g)
	if g.err != nil {
		return nil, fmt.Errorf("%s: %w", f.field.Name, errUnreadable)
	}
	return value, nil
}

func hasVariable(v *ast.Value) bool {
	if v.Kind == ast.Variable {
		return true
	}
	for _, child := range v.Children {
		if hasVariable(child.Value) {
			return true
		}
	}
	return false
}

// givenArgs is what a request gives a field. The zero value is ready for use.
type givenArgs struct {
	field     graphql.CollectedField
	variables map[string]any
	err       error
}

// value is what an argument was given; false where it was not.
func (g *givenArgs) value(name string) (v any, ok bool) {
	var err error
	if a := g.field.Arguments.ForName(name); a != nil {
		if a.Value.Kind == ast.Variable {
			v, ok = g.variables[a.Value.Raw]
		} else {
			v, err = a.Value.Value(g.variables)
			ok = true
		}
	}
	if def := g.field.Definition.Arguments.ForName(name); !ok && def != nil && def.DefaultValue != nil {
		v, err = def.DefaultValue.Value(g.variables)
		ok = true
	}
	g.fail(err)
	return v, ok
}

func (g *givenArgs) fail(err error) {
	if g.err == nil {
		g.err = err
	}
}

// argument reads an argument.
func argument[T any](g *givenArgs, name string, convert func(v any, ok bool) (T, error)) T {
	value, err := convert(g.value(name))
	g.fail(err)
	return value
}

// optionalArg reads an argument that may be null or left out: nil.
func optionalArg[T any](g *givenArgs, name string, convert func(any) (T, error)) *T {
	return argument(g, name, func(v any, _ bool) (*T, error) {
		if v == nil {
			return nil, nil
		}
		value, err := convert(v)
		return &value, err
	})
}

// requiredArg reads an argument that validation has seen.
func requiredArg[T any](g *givenArgs, name string, convert func(any) (T, error)) T {
	return argument(g, name, func(v any, ok bool) (value T, err error) {
		if ok {
			value, err = convert(v)
		}
		return value, err
	})
}

// listArg reads an argument that is a list, or one value in its place; nil for null.
func listArg[T any](g *givenArgs, name string, convert func(any) (T, error)) []T {
	return argument(g, name, func(v any, _ bool) (values []T, err error) {
		if v == nil {
			return nil, nil
		}
		elements := graphql.CoerceList(v)
		values = make([]T, len(elements))
		for i, e := range elements {
			if values[i], err = convert(e); err != nil {
				return nil, err
			}
		}
		return values, nil
	})
}

// What follows is given to argsOf, and says what a field's Value is.

// documentArgs names one document.
type documentArgs struct {
	Key     string
	AsOf    *driver.Instant
	Version *int
}

// ofDocument reads the arguments of a document: a *documentArgs.
func ofDocument(g *givenArgs) any {
	return &documentArgs{
		Key:     requiredArg(g, "key", literal.ID),
		AsOf:    optionalArg(g, "asOf", readInstant),
		Version: optionalArg(g, "version", literal.Int),
	}
}

// ofPage reads the arguments of a page of documents: a *storage.PageArgs.
func ofPage(g *givenArgs) any {
	a := &storage.PageArgs{
		OrderBy: listArg(g, "orderBy", readOrder),
		First:   optionalArg(g, "first", literal.Int),
		After:   optionalArg(g, "after", scalar.UnmarshalString),
		Last:    optionalArg(g, "last", literal.Int),
		Before:  optionalArg(g, "before", scalar.UnmarshalString),
		AsOf:    optionalArg(g, "asOf", readInstant),
	}
	if where := optionalArg(g, "where", scalar.UnmarshalInput); where != nil {
		a.Where = *where
	}
	return a
}

func readInstant(v any) (driver.Instant, error) {
	t, err := literal.DateTime(v)
	return driver.InstantOf(t), err
}

func readOrder(v any) (*storage.OrderInput, error) {
	fields, ok := v.(map[string]any)
	if !ok {
		return nil, errUnreadable
	}
	order := &storage.OrderInput{Direction: storage.Asc}
	var err error
	if order.Field, err = graphql.UnmarshalString(fields["field"]); err != nil {
		return nil, err
	}
	if direction, ok := fields["direction"]; ok {
		order.Direction, err = scalar.UnmarshalOrderDirection(direction)
	}
	return order, err
}

// ofVersions reads the arguments of a document's versions: a *storage.VersionsArgs.
func ofVersions(g *givenArgs) any {
	return &storage.VersionsArgs{
		From:   optionalArg(g, "from", readInstant),
		To:     optionalArg(g, "to", readInstant),
		Author: optionalArg(g, "author", literal.ID),
		Fields: listArg(g, "fields", graphql.UnmarshalString),
		First:  optionalArg(g, "first", literal.Int),
		After:  optionalArg(g, "after", scalar.UnmarshalString),
		Last:   optionalArg(g, "last", literal.Int),
		Before: optionalArg(g, "before", scalar.UnmarshalString),
	}
}

// referenceArgs says at which instant a reference is to be read; nil: that of its
// document.
type referenceArgs struct{ AsOf *driver.Instant }

// ofReference reads the argument of a reference: a referenceArgs.
func ofReference(g *givenArgs) any {
	return referenceArgs{AsOf: optionalArg(g, "asOf", readInstant)}
}

// ofNode reads the argument of node: a string.
func ofNode(g *givenArgs) any { return requiredArg(g, "id", literal.ID) }

// ofNodes reads the argument of nodes: strings.
func ofNodes(g *givenArgs) any { return listArg(g, "ids", literal.ID) }
