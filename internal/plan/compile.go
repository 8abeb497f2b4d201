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
	root   *selection[struct{}]
	args   []args.Field // of the fields that have some
	queues int          // fields that queue what they read
	// refs are, by type, the stored names that are read of documents reached by
	// references, whichever reference leads to them.
	refs map[*storage.Type]*names
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
		executable: e, plan: &plan{refs: map[*storage.Type]*names{}},
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
func (b *planning) arguments(f graphql.CollectedField, read func(g *args.Given) any) int {
	field, err := args.Of(f, read)
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
