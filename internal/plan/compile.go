package plan

import (
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/ast"

	"github.com/asof/asof/internal/plan/args"
	"github.com/asof/asof/storage"
)

// mostFields is how many fields a plan has at most: fragments that are spread in
// many places are compiled in each.
const mostFields = 10_000

// plan is a compiled operation. It is made of functions that append fields to
// the answer, one for each field, in the order of the answer.
type plan struct {
	err    error // why there is none
	store  *storage.Store
	root   *selection[struct{}]
	args   []args.Field // of the fields that have some
	queues int          // how many fields read something that waits
	// refs are the stored names that are looked at in documents of a type that
	// are reached by references; they are read once for all of these.
	refs map[*storage.Type]*names
	size atomic.Int64 // of the last answers, in bytes
}

// names is a set of stored names.
type names struct{ list []string }

// compiler makes plans for one schema and store.
type compiler struct {
	schema *ast.Schema
	store  *storage.Store
	types  map[string]*storage.Type // by name
	roots  map[string]rootKind      // by field
}

func newCompiler(schema *ast.Schema, store *storage.Store) *compiler {
	c := &compiler{schema: schema, store: store, types: map[string]*storage.Type{}, roots: map[string]rootKind{
		"node": nodeRoot, "nodes": nodesRoot,
	}}
	for _, t := range store.Types() {
		c.types[t.Name] = t
		c.roots[t.Singular] = func(p *planning, f graphql.CollectedField) rootField { return documentRoot(p, f, t) }
		c.roots[t.Plural] = func(p *planning, f graphql.CollectedField) rootField { return pageRoot(p, f, t) }
	}
	return c
}

// compile makes the plan of the context's operation, and says how many fields its
// selections have. It has an error where the operation has a field of an unknown
// kind.
func (c *compiler) compile(oc *graphql.OperationContext) (*plan, int) {
	b := &planning{
		compiler: c, plan: &plan{store: c.store, refs: map[*storage.Type]*names{}},
		// CollectFields keeps what it finds in its context, which must not be the
		// request's.
		oc: &graphql.OperationContext{Doc: oc.Doc, Operation: oc.Operation, Variables: oc.Variables},
	}
	b.plan.root = rootSelection(b)
	b.oc = nil // the plan's functions hold b, but must not hold a request's variables
	if b.plan.err != nil {
		return &plan{err: b.plan.err}, 0
	}
	return b.plan, b.fields
}

// planning is a plan that is being made. It goes on after an error, to no
// effect.
type planning struct {
	*compiler
	plan   *plan
	oc     *graphql.OperationContext
	fields int
}

// giveUp says why there will be no plan.
func (b *planning) giveUp(format string, args ...any) {
	if b.plan.err == nil {
		b.plan.err = unplanned(fmt.Sprintf(format, args...))
	}
}

// queue returns the place of a new queue.
func (b *planning) queue() int {
	b.plan.queues++
	return b.plan.queues - 1
}

// reached are the names that are looked at in documents reached by references.
func (b *planning) reached(t *storage.Type) *names {
	if b.plan.refs[t] == nil {
		b.plan.refs[t] = &names{list: []string{}}
	}
	return b.plan.refs[t]
}

func (n *names) add(name string) {
	if !slices.Contains(n.list, name) {
		n.list = append(n.list, name)
	}
}

// selection is what is asked of objects of one type; P is how they are held.
type selection[P any] struct {
	fields []field[P]
	// loads read what fields need before they can be written, for all objects at
	// once.
	loads []func(r *run, objects []P)
}

// field is one field of a selection.
type field[P any] struct {
	place
	label    string // `"alias":`
	nonNull  bool
	repeated bool // another field before it has the same response name
	write    writer[P]
}

// writer appends the value of a field; false stands for null, of which it
// appends nothing.
type writer[P any] func(r *run, at *place, object P) bool

// place says where in an operation a field stands.
type place struct {
	object string // the type that it belongs to
	field  graphql.CollectedField
}

// kind makes the writer of a field; nil where it knows no such field.
type kind[P any] func(b *planning, f graphql.CollectedField, s *selection[P]) writer[P]

// selectionOf compiles selections on objects of a type, all of whose fields are
// made by kind.
func selectionOf[P any](b *planning, typeName string, set ast.SelectionSet, kind kind[P]) *selection[P] {
	if b.plan.err != nil {
		return nil
	}
	collected := graphql.CollectFields(b.oc, set, b.satisfied(typeName))
	if b.fields += len(collected); b.fields > mostFields {
		b.giveUp("the operation has more than %d fields", mostFields)
		return nil
	}
	s := &selection[P]{fields: make([]field[P], len(collected))}
	for i, f := range collected {
		to := &s.fields[i]
		to.place = place{object: typeName, field: f}
		to.label = `"` + f.Alias + `":`
		to.repeated = slices.ContainsFunc(collected[:i], func(c graphql.CollectedField) bool { return c.Alias == f.Alias })
		if f.Name == "__typename" {
			to.write = constant[P](`"` + typeName + `"`)
			continue
		}
		if def := b.schema.Types[typeName].Fields.ForName(f.Name); def != nil {
			to.nonNull = def.Type.NonNull
			to.write = kind(b, f, s)
		}
		if to.write == nil {
			b.giveUp("%s.%s is not planned", typeName, f.Name)
			return nil
		}
	}
	return s
}

// satisfied are the type and the interfaces that it implements.
func (b *planning) satisfied(typeName string) []string {
	return append([]string{typeName}, b.schema.Types[typeName].Interfaces...)
}

// constant appends the same text each time.
func constant[P any](text string) writer[P] {
	return func(r *run, _ *place, _ P) bool {
		r.out = append(r.out, text...)
		return true
	}
}
