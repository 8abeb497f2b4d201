package httpapi

import (
	"encoding/json"
	"errors"
	"math"
	"strconv"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"
)

const (
	defaultPage = 20 // documents on a page when neither first nor last is given
	listFactor  = 5  // objects that are expected in a list that has no pages
	// quickCost is up to which cost an operation without pages is expected to be quick.
	quickCost = 500
	// readBytes is about how much memory a token of a document takes until it is parsed and
	// validated, in bytes: what is executed after that has it, too.
	readBytes = 1 << 10
)

// checkCost refuses an operation by what its answer may become, given the variables: depth,
// page sizes, and cost, which is the number of fields in the largest answer that is expected. A
// page counts its fields as often as first or last say, a list of identifiers as often as it is
// long, what a mutation returns of a list in its input at least that often, and any other list of
// objects listFactor times. A field that means work beyond what it returns has a weight, which
// counts like fields. Introspection counts its fields once; gqlparser's validation bounds its
// nesting. Values of variables are read again wherever they are used: what they take there, beyond
// once, counts for what the operation keeps, as the document does.
func (e *executor) checkCost(op *operation, oc *graphql.OperationContext) *gqlerror.Error {
	w := costWalk{limits: &e.Limits, weights: e.weights, variables: oc.Variables, noIntrospection: oc.DisableIntrospection}
	total := w.set(oc.Operation.SelectionSet, listFactor)
	cost := plus(total.cost, total.once)
	op.sizes = w.sizes
	op.expected = expected{reads: w.lists || w.heavy, mayBeLong: w.lists || cost > quickCost}
	limits := &e.Limits
	switch {
	case w.err != nil:
		return w.err
	case total.depth > limits.Depth:
		return refuse(codeTooComplex, "the operation nests %d levels deep; at most %d are allowed (--max-depth): ask for the rest in another operation", total.depth, limits.Depth)
	case cost > limits.Cost:
		return refuse(codeTooComplex, "the operation may return %s fields; at most %d are allowed (--max-cost; what reads and compares versions counts for several): ask for smaller pages or fewer nested lists",
			roughly(cost), limits.Cost)
	}
	again := total.values
	for _, size := range w.sizes {
		again -= size
	}
	again = max(again, 0)
	document := min(readBytes*int64(op.document.tokens), e.Limits.kept()/2)
	refused, _ := errors.AsType[*gqlerror.Error](op.keep(int64(again)+document, int64(again)))
	return refused
}

// expected is what is expected of an operation before it is executed.
type expected struct {
	reads     bool // it has lists with pages, or fields with a weight, which may read much
	mayBeLong bool // it lists documents or reads histories
}

// extent is how large a selection set is.
type extent struct {
	cost  int // saturates at math.MaxInt
	once  int // the weights of the leaves at its own level: a page has them once
	depth int
	// values is about how many bytes the values of variables take, as often as they are read.
	values int
}

type costWalk struct {
	limits    *Limits
	weights   map[*ast.FieldDefinition]int
	variables map[string]any
	sizes     map[string]int // of the values of variables that are used
	fragments map[fragmentUse]extent
	lists     bool            // there are pages
	heavy     bool            // there are fields with a weight
	schema    bool            // the fields below ask for the schema
	err       *gqlerror.Error // the first

	noIntrospection bool
}

// fragmentUse is a fragment with the number of elements that lists have there.
type fragmentUse struct {
	fragment *ast.FragmentDefinition
	elements int
}

// set measures a selection set, in which lists of objects are expected to have so many
// elements; 1 is for those that their parent has counted, the edges and nodes of a page.
func (w *costWalk) set(set ast.SelectionSet, elements int) extent {
	var total extent
	for _, selection := range set {
		var e extent
		switch s := selection.(type) {
		case *ast.Field:
			w.checkConditions(s.Directives)
			e = w.field(s, elements)
		case *ast.InlineFragment:
			w.checkConditions(s.Directives)
			e = w.set(s.SelectionSet, elements)
		case *ast.FragmentSpread:
			w.checkConditions(s.Directives)
			e = w.spread(s.Definition, elements)
		}
		total.cost = plus(total.cost, e.cost)
		total.once = plus(total.once, e.once)
		total.depth = max(total.depth, e.depth)
		total.values = plus(total.values, e.values)
	}
	return total
}

func (w *costWalk) spread(fragment *ast.FragmentDefinition, elements int) extent {
	use := fragmentUse{fragment, elements}
	if e, ok := w.fragments[use]; ok {
		return e
	}
	e := w.set(fragment.SelectionSet, elements)
	if w.fragments == nil {
		w.fragments = map[fragmentUse]extent{}
	}
	w.fragments[use] = e
	return e
}

func (w *costWalk) field(f *ast.Field, elements int) extent {
	values := 0
	for _, argument := range f.Arguments {
		values = plus(values, w.used(argument.Value))
	}
	w.heavy = w.heavy || w.weights[f.Definition] > 0
	if len(f.SelectionSet) == 0 {
		return extent{cost: 1, once: w.weights[f.Definition], depth: 1, values: values}
	}
	if f.Name == "__schema" || f.Name == "__type" {
		if w.noIntrospection {
			w.fail(refuse(CodeForbidden, "introspection is turned off on this server (--no-introspection): it does not answer %s", f.Name), f.Position)
		}
		w.schema = true
		inner := w.set(f.SelectionSet, listFactor)
		w.schema = false
		return extent{cost: inner.cost, depth: 1}
	}
	times, below := 1, 1
	isPage := f.Definition.Arguments.ForName("first") != nil
	if isPage {
		times = w.page(f)
	} else {
		list, inside := w.longest(f)
		below = max(listFactor, inside)
		switch {
		case f.Definition.Type.Elem == nil || w.schema:
		case list > 0 && elements > 1:
			times = list
		default:
			times = elements
		}
	}
	inner := w.set(f.SelectionSet, below)
	cost := product(times, inner.cost)
	if isPage {
		cost = plus(cost, inner.once)
	} else {
		cost = plus(cost, product(times, inner.once))
	}
	return extent{
		cost: plus(plus(1, w.weights[f.Definition]), cost), depth: inner.depth + 1, values: plus(values, product(times, inner.values)),
	}
}

// used is about how many bytes the values of the variables in a value take, each as often as it
// stands there.
func (w *costWalk) used(v *ast.Value) (bytes int) {
	if v.Kind != ast.Variable {
		for _, part := range v.Children {
			bytes = plus(bytes, w.used(part.Value))
		}
		return bytes
	}
	if _, known := w.sizes[v.Raw]; !known {
		if w.sizes == nil {
			w.sizes = map[string]int{}
		}
		w.sizes[v.Raw] = sizeOf(w.variables[v.Raw])
	}
	return w.sizes[v.Raw]
}

// sizeOf is about how many bytes a value takes when it is read: a text is copied twice.
func sizeOf(value any) int {
	size := otherBytes
	switch v := value.(type) {
	case map[string]any:
		size = objectBytes
		for name, member := range v {
			size += len(name) + sizeOf(member)
		}
	case []any:
		for _, element := range v {
			size += sizeOf(element)
		}
	case string:
		size += 3 * len(v)
	case json.Number:
		size += 3 * len(v)
	}
	return size
}

// checkConditions refuses @skip and @include with a variable that is null: a document may use
// a nullable one that has a default, which null replaces. gqlgen panics there.
func (w *costWalk) checkConditions(directives ast.DirectiveList) {
	for _, d := range directives {
		if d.Name != "skip" && d.Name != "include" {
			continue
		}
		condition := d.Arguments.ForName("if").Value
		if value, given := w.variables[condition.Raw]; given && value == nil && condition.Kind == ast.Variable {
			w.fail(refuse(codeBadInput, "variable %q cannot be null: it is a condition of @%s", "$"+condition.Raw, d.Name), d.Position)
		}
	}
}

// fail notes the first error, with its place.
func (w *costWalk) fail(err *gqlerror.Error, at *ast.Position) {
	if w.err == nil {
		err.Locations = []gqlerror.Location{{Line: at.Line, Column: at.Column}}
		w.err = err
	}
}

// weightsOf returns the weights of the fields of a schema that have some.
func weightsOf(schema *ast.Schema, weight func(parent, field, result string) int) map[*ast.FieldDefinition]int {
	weights := map[*ast.FieldDefinition]int{}
	for _, def := range schema.Types {
		for _, f := range def.Fields {
			if w := weight(def.Name, f.Name, f.Type.Name()); w != 0 {
				weights[f] = w
			}
		}
	}
	return weights
}

// page is how many elements a page has at most.
func (w *costWalk) page(f *ast.Field) int {
	w.lists = true
	size, given := 0, false
	for _, name := range [...]string{"first", "last"} {
		n, ok := w.value(f.Arguments.ForName(name)).(int64)
		if !ok {
			continue
		}
		given, size = true, max(size, int(min(n, math.MaxInt32)))
		if n > int64(w.limits.PageSize) {
			err := refuse(codeBadInput, "%s: %d is more than the largest page of this server, %d (--max-page); ask for less and follow pageInfo", name, n, w.limits.PageSize)
			err.Path = ast.Path{ast.PathName(f.Alias)}
			w.fail(err, f.Position)
		}
	}
	if !given {
		size = defaultPage
	}
	return max(size, 1)
}

// value is the value of an argument; nil where it has none.
func (w *costWalk) value(argument *ast.Argument) any {
	if argument == nil {
		return nil
	}
	value, _ := argument.Value.Value(w.variables) // numbers that are too large were refused
	return value
}

// longest is how many elements the longest list has that is an argument of a field, and the
// longest that is a member of one.
func (w *costWalk) longest(f *ast.Field) (list, inside int) {
	for _, argument := range f.Arguments {
		switch value := w.value(argument).(type) {
		case []any:
			list = max(list, len(value))
		case map[string]any:
			for _, member := range value {
				if member, ok := member.([]any); ok {
					inside = max(inside, len(member))
				}
			}
		}
	}
	return list, inside
}

func plus(a, b int) int {
	if a > math.MaxInt-b {
		return math.MaxInt
	}
	return a + b
}

// product multiplies; both factors are at least zero.
func product(a, b int) int {
	if a != 0 && b > math.MaxInt/a {
		return math.MaxInt
	}
	return a * b
}

// roughly prints a number that may have been cut off.
func roughly(n int) string {
	if n == math.MaxInt {
		return "more than 10^18"
	}
	return strconv.Itoa(n)
}
