// Package plan answers common queries straight from stored bytes.
//
// It wraps an executable schema. An operation whose every field is of a kind
// that it knows is compiled once to a plan, which is kept by the parsed
// operation; every other operation goes to the wrapped schema, whole. An
// execution of a plan reads first and writes then:
//
//	bytes ─▶ operation (httpapi/exchange.go: parsed, validated, limited)
//	      ─▶ plan, arguments (plan.go)
//	           read   store.Page / Document ─▶ documents   (load.go)
//	                  references, level by level, one call of the store for each (load.go)
//	           write  stored bytes ─▶ appended to one buffer ─▶ graphql.Response.Data (write.go)
//	      ─▶ bytes (httpapi/exchange.go)
//
// That is the way of a request. How a plan is made and kept is in plan.go, and the
// kinds of fields and their arguments in fields.go, but for references and root fields
// (load.go).
//
// Invariants:
//
//   - The answer is the wrapped schema's, byte for byte: data, errors and their
//     order within a root field, null where a non-null field has no value. Only
//     what is refused while it is executed, as it follows too many references or
//     its time is over, may be refused elsewhere.
//   - What versions and instants mean is decided in package storage; nothing here
//     compares times.
//   - An operation is planned whole or not at all, and that is decided before
//     anything is read. Arguments that cannot be read are left to the wrapped
//     schema, which words the errors. They are read by the functions that the generated
//     code reads them with, and in its order.
//   - A plan is never changed once it is made, and holds nothing of a request but
//     the values of variables in @skip and @include, of which it depends.
//   - A plan reads the same things in the same order as it writes them: what was
//     read waits in queues, one for each field that reads (load.go).
//   - The memory of the plans that are kept is bounded, by an estimate. No request waits
//     for the compiler of another: what several need at once may be compiled more than
//     once, and is kept once.
//   - Fields have no contexts: interceptors of operations, responses and root
//     fields see planned operations, those of fields would not: there are none.
package plan

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/ast"

	"github.com/asof/asof/internal/lru"
	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/record"
)

// Config is what a schema with plans needs, all of it.
type Config struct {
	// Observe is called for each operation, before it is executed: why is
	// the reason for which it was not planned, or "".
	Observe func(ctx context.Context, why string)
	// MaxAnswer bounds the memory that an answer takes, in bytes. Longer data
	// is cut and no valid JSON, but still longer: the caller has to refuse such an
	// answer by its length. What interceptors of root fields return for a value
	// that was cut is ignored.
	MaxAnswer int
	// MaxErrors is how many errors of an answer are told with their places. What follows is reported
	// too, for who counts it.
	MaxErrors int
	// Memory is called while an answer is written, with the bytes that it has grown by
	// since the last call. Its error ends the writing and is an error of the answer.
	Memory func(ctx context.Context, bytes int) error
}

// New returns a schema that answers as inner does, whose documents are in the
// store, and compiles the queries that it knows how to. The store's operation
// (storage.Store.Begin) has to be in the context of an execution, as for inner.
func New(inner graphql.ExecutableSchema, store *storage.Store, c Config) graphql.ExecutableSchema {
	e := &executable{ExecutableSchema: inner, Config: c, store: store}
	e.plans = newCache(e.compile)
	return e
}

// executable is an executable schema with plans.
type executable struct {
	graphql.ExecutableSchema
	Config

	store   *storage.Store
	plans   *planCache[*plan]
	runs    sync.Pool // of *run
	buffers sync.Pool // of *[]byte, for answers
}

// Exec executes the context's operation.
func (e *executable) Exec(ctx context.Context) graphql.ResponseHandler {
	x := &execution{of: e, oc: graphql.GetOperationContext(ctx)}
	if err := e.prepare(x); err != nil {
		e.Observe(ctx, err.Error())
		return e.ExecutableSchema.Exec(ctx)
	}
	e.Observe(ctx, "")
	return x.respond
}

// prepare finds the operation's plan, and the values of its arguments; an error
// says why there is none.
func (e *executable) prepare(x *execution) (err error) {
	if kind := x.oc.Operation.Operation; kind != ast.Query {
		return unplanned("a " + string(kind) + " is not planned")
	}
	if x.plan, err = e.plans.of(x.oc); err != nil {
		return err
	}
	if x.plan.err != nil {
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
	first    rootCall
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

// mostFields is how many fields a plan has at most: fragments that are spread in
// many places are compiled in each.
const mostFields = 10_000

// plan is a compiled operation. It is made of functions that append fields to
// the answer, one for each field, in the order of the answer.
type plan struct {
	err    error // why there is none
	root   *selection[struct{}]
	args   []fieldArgs // of the fields that have some
	queues int         // fields that queue what they read
	// refs are, by type, the stored names that are read of documents reached by
	// references, whichever reference leads to them.
	refs map[*record.Type]*names
	size atomic.Int64 // of the last answers, in bytes
}

// names is a set of stored names.
type names []string

func (n *names) add(more ...string) {
	for _, name := range more {
		if !slices.Contains(*n, name) {
			*n = append(*n, name)
		}
	}
}

// compile returns the plan of the context's operation and the number of fields in its
// selections. The plan has an error where the operation has a field of an unknown
// kind.
func (e *executable) compile(oc *graphql.OperationContext) (made *plan, fields int) {
	b := &planning{
		executable: e, plan: &plan{refs: map[*record.Type]*names{}},
		// CollectFields keeps what it finds in its context, which must not be the
		// request's.
		oc: &graphql.OperationContext{Doc: oc.Doc, Operation: oc.Operation, Variables: oc.Variables},
	}
	defer func() {
		switch failure := recover().(type) {
		case nil:
		case unplanned:
			made, fields = &plan{err: failure}, 0
		default:
			panic(failure)
		}
	}()
	b.plan.root = selectionOf(b, "Query", oc.Operation.SelectionSet, rootField)
	return b.plan, b.fields
}

// planning is a plan that is being made. Its functions must not hold it, as it
// holds a request's variables.
type planning struct {
	*executable
	plan   *plan
	oc     *graphql.OperationContext
	fields int
}

// giveUp ends compile by a panic with the reason for which there is no plan.
func (b *planning) giveUp(format string, args ...any) {
	panic(unplanned(fmt.Sprintf(format, args...)))
}

// queue returns the place of a new queue.
func (b *planning) queue() int {
	b.plan.queues++
	return b.plan.queues - 1
}

// arguments returns the place of a field's arguments in those of an execution.
func (b *planning) arguments(f graphql.CollectedField, read func(g *givenArgs) any) int {
	field, err := argsOf(f, read)
	if err != nil {
		b.giveUp("%v", err)
	}
	b.plan.args = append(b.plan.args, field)
	return len(b.plan.args) - 1
}

// selection is what is asked of objects of one type; P is how they are held.
type selection[P any] struct {
	fields []field[P]
	// loads read what fields need before they can be written, for all objects at
	// once.
	loads []func(r *run, objects []P)
	// need are the stored names that are looked at in documents; never nil, which
	// would be all.
	need names
}

// field is one field of a selection.
type field[P any] struct {
	place
	label    string // `"alias":`
	nonNull  bool
	repeated bool // another field before it has the same response name
	write    writer[P]
}

// writer appends the value of a field and returns true; for null it appends nothing
// and returns false.
type writer[P any] func(r *run, at *place, object P) bool

// place says where in an operation a field stands.
type place struct {
	object string // the type that it belongs to
	field  graphql.CollectedField
}

// kind makes the writer of a field; nil where it knows no such field.
type kind[P any] func(b *planning, f graphql.CollectedField, s *selection[P]) writer[P]

// table is a kind of fields that need nothing to be made.
func table[P any](writers map[string]writer[P]) kind[P] {
	return func(_ *planning, f graphql.CollectedField, _ *selection[P]) writer[P] { return writers[f.Name] }
}

// selectionOf compiles selections on objects of a type, all of whose fields are
// made by kind.
func selectionOf[P any](b *planning, typeName string, set ast.SelectionSet, kind kind[P]) *selection[P] {
	def := b.Schema().Types[typeName]
	collected := graphql.CollectFields(b.oc, set, append([]string{typeName}, def.Interfaces...))
	if b.fields += len(collected); b.fields > mostFields {
		b.giveUp("the operation has more than %d fields", mostFields)
	}
	s := &selection[P]{fields: make([]field[P], len(collected)), need: names{}}
	for i, f := range collected {
		to := &s.fields[i]
		to.place = place{object: typeName, field: f}
		to.label = `"` + f.Alias + `":`
		to.repeated = slices.ContainsFunc(collected[:i], func(c graphql.CollectedField) bool { return c.Alias == f.Alias })
		if f.Name == "__typename" {
			to.write = constant[P](`"` + typeName + `"`)
			continue
		}
		to.nonNull = def.Fields.ForName(f.Name).Type.NonNull
		if to.write = kind(b, f, s); to.write == nil {
			b.giveUp("%s.%s is not planned", typeName, f.Name)
		}
	}
	return s
}

// constant appends the same text each time.
func constant[P any](text string) writer[P] {
	return func(r *run, _ *place, _ P) bool {
		r.out = append(r.out, text...)
		return true
	}
}

// What is kept at most, in bytes. A plan refers to the parsed document, in which a
// field, an argument or a value takes about nodeBytes. A field of a plan takes about
// fieldBytes: fragments that are spread in many places are compiled in each, so
// that this can be much more.
const (
	cachedBytes    = 12 << 20
	cachedEntry    = cachedBytes / 4 // of one operation
	cachedVariants = 16              // of one operation
	nodeBytes      = 250
	fieldBytes     = 256
)

// planCache keeps a P for each operation, and for each combination of its conditions.
type planCache[P any] struct {
	compile func(oc *graphql.OperationContext) (made P, fields int)
	mu      sync.Mutex // held for look-ups and changes only
	entries *lru.Cache[*ast.OperationDefinition, *known[P]]
}

// newCache returns an empty cache of what compile returns, with the number of its fields.
func newCache[P any](compile func(oc *graphql.OperationContext) (made P, fields int)) *planCache[P] {
	return &planCache[P]{compile: compile, entries: lru.New[*ast.OperationDefinition, *known[P]](cachedBytes)}
}

// known is what is known of an operation without its variables.
type known[P any] struct {
	examination
	// The cache's mutex guards what follows, and the size, which is also that of them.
	variants map[string]P // by the values of the conditions
}

// of returns what is compiled from the context's operation. It returns an error where
// that is not possible: the operation has directives other than @skip and @include,
// or a condition is no boolean.
func (c *planCache[P]) of(oc *graphql.OperationContext) (made P, err error) {
	k := c.known(oc)
	if k.err != nil {
		return made, k.err
	}
	var buf [64]byte
	values := buf[:0]
	for _, name := range k.conditions {
		on, ok := oc.Variables[name].(bool)
		switch {
		case !ok:
			return made, fmt.Errorf("the variable $%s of a condition is not a boolean", name)
		case on:
			values = append(values, '1')
		default:
			values = append(values, '0')
		}
	}
	c.mu.Lock()
	made, ok := k.variants[string(values)]
	c.mu.Unlock()
	if !ok {
		var fields int
		made, fields = c.compile(oc)
		c.keep(oc.Operation, k, string(values), made, fields)
	}
	return made, nil
}

// known returns what is known of the context's operation. For a document that is too
// large for the cache it is computed each time.
func (c *planCache[P]) known(oc *graphql.OperationContext) *known[P] {
	c.mu.Lock()
	k, ok := c.entries.Get(oc.Operation)
	c.mu.Unlock()
	if ok {
		return k
	}
	k = &known[P]{examination: examine(oc.Operation)}
	if k.size += len(oc.RawQuery); k.size > cachedEntry {
		return k
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if other, ok := c.entries.Get(oc.Operation); ok {
		return other // found out at the same time
	}
	c.entries.Add(oc.Operation, k, k.size)
	return k
}

// keep adds a variant to the cache, unless its operation was evicted meanwhile or has
// as many as it may.
func (c *planCache[P]) keep(operation *ast.OperationDefinition, k *known[P], values string, made P, fields int) {
	size := (fields + 1) * fieldBytes
	c.mu.Lock()
	defer c.mu.Unlock()
	if kept, _ := c.entries.Peek(operation); kept != k || len(k.variants) >= cachedVariants || k.size+size > cachedEntry {
		return
	}
	if _, ok := k.variants[values]; ok {
		return // made at the same time
	}
	if k.variants == nil {
		k.variants = map[string]P{}
	}
	k.variants[values] = made
	k.size += size
	c.entries.Resize(operation, k.size)
}

// examination is what is known of an operation by its document.
type examination struct {
	size       int      // an estimate of what it takes, in bytes
	err        error    // names a directive that is not known here
	conditions []string // the variables in @skip and @include
}

func examine(operation *ast.OperationDefinition) examination {
	w := walk{seen: map[*ast.FragmentDefinition]bool{}}
	for _, v := range operation.VariableDefinitions {
		w.size += nodeBytes
		if v.DefaultValue != nil {
			w.value(v.DefaultValue)
		}
	}
	w.directives(operation.Directives)
	w.set(operation.SelectionSet)
	return w.examination
}

type walk struct {
	examination
	seen map[*ast.FragmentDefinition]bool
}

func (w *walk) set(set ast.SelectionSet) {
	for _, s := range set {
		w.size += nodeBytes
		switch s := s.(type) {
		case *ast.Field:
			w.arguments(s.Arguments)
			w.directives(s.Directives)
			w.set(s.SelectionSet)
		case *ast.InlineFragment:
			w.directives(s.Directives)
			w.set(s.SelectionSet)
		case *ast.FragmentSpread:
			w.directives(s.Directives)
			if s.Definition != nil && !w.seen[s.Definition] {
				w.seen[s.Definition] = true
				w.directives(s.Definition.Directives)
				w.set(s.Definition.SelectionSet)
			}
		}
	}
}

func (w *walk) directives(list ast.DirectiveList) {
	for _, d := range list {
		w.size += nodeBytes
		w.arguments(d.Arguments)
		if d.Name != "skip" && d.Name != "include" {
			w.err = fmt.Errorf("the directive @%s is not planned", d.Name)
			continue
		}
		for _, a := range d.Arguments {
			if a.Value.Kind == ast.Variable {
				w.conditions = append(w.conditions, a.Value.Raw)
			}
		}
	}
}

func (w *walk) arguments(list ast.ArgumentList) {
	for _, a := range list {
		w.size += nodeBytes
		w.value(a.Value)
	}
}

func (w *walk) value(v *ast.Value) {
	w.size += nodeBytes
	for _, child := range v.Children {
		w.value(child.Value)
	}
}
