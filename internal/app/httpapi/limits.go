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

// checkShape refuses a document by what can be seen before it is validated.
func checkShape(doc *ast.QueryDocument, limits *Limits) *gqlerror.Error {
	w := shapeWalk{limits: limits}
	for _, fragment := range doc.Fragments {
		w.selections(fragment.SelectionSet, 1)
	}
	for _, operation := range doc.Operations {
		w.selections(operation.SelectionSet, 1)
	}
	return w.err
}

// shapeWalk visits every field of a document once.
type shapeWalk struct {
	limits          *Limits
	fields, aliases int
	err             *gqlerror.Error
}

func (w *shapeWalk) selections(set ast.SelectionSet, depth int) {
	if depth > w.limits.Depth+introspectionDepth {
		w.fail("the query nests more than %d levels deep (%d are allowed outside of introspection), the limit of this server (--max-depth): ask for the rest in another operation", w.limits.Depth+introspectionDepth, w.limits.Depth)
	}
	for _, selection := range set {
		if w.err != nil {
			return
		}
		switch s := selection.(type) {
		case *ast.Field:
			w.fields++
			if s.Alias != s.Name {
				w.aliases++
			}
			if w.fields > w.limits.Fields {
				w.fail("the query has more than %d fields, the limit of this server (--max-fields): send several operations", w.limits.Fields)
			}
			if w.aliases > w.limits.Aliases {
				w.fail("the query has more than %d aliases, the limit of this server (--max-aliases): send several operations", w.limits.Aliases)
			}
			w.selections(s.SelectionSet, depth+1)
		case *ast.InlineFragment:
			w.selections(s.SelectionSet, depth+1)
		}
	}
}

func (w *shapeWalk) fail(format string, args ...any) {
	if w.err == nil {
		w.err = refuse(codeTooComplex, format, args...)
	}
}

// introspectionDepth is how much deeper than other queries introspection may
// nest (ofType within ofType); the depth of everything else is checked again
// when the types are known.
const introspectionDepth = 20

const (
	defaultPage = 20 // documents on a page when neither first nor last is given
	listFactor  = 5  // objects that are expected in a list that has no pages
	// quickCost is up to which cost an operation without pages is expected to be quick.
	quickCost = 500
)

// checkCost refuses an operation by what its answer may become, given the variables: depth,
// root fields, page sizes, and cost, which is the number of fields in the largest answer that
// is expected. A page counts its fields as often as first or last say, a list of identifiers
// as often as it is long, what a mutation returns of a list in its input at least that often,
// and any other list of objects listFactor times. A field that means work beyond what it returns has a weight, which counts like fields. Introspection counts its
// fields once; gqlparser's validation bounds its nesting.
func (e *executor) checkCost(op *operation, oc *graphql.OperationContext) *gqlerror.Error {
	w := costWalk{limits: e.limits, weights: e.weights, variables: oc.Variables, noIntrospection: oc.DisableIntrospection}
	total := w.set(oc.Operation.SelectionSet, listFactor)
	total.cost = plus(total.cost, total.once)
	op.expected = expected{pages: w.lists, mayBeLong: w.lists || total.cost > quickCost}
	limits := e.limits
	switch {
	case w.err != nil:
		return w.err
	case total.roots > limits.RootFields:
		return refuse(codeTooComplex, "the operation has %s root fields; at most %d are allowed (--max-root-fields): send several operations", roughly(total.roots), limits.RootFields)
	case total.depth > limits.Depth:
		return refuse(codeTooComplex, "the operation nests %d levels deep; at most %d are allowed (--max-depth): ask for the rest in another operation", total.depth, limits.Depth)
	case total.cost > limits.Cost:
		return refuse(codeTooComplex, "the operation may return %s fields; at most %d are allowed (--max-cost; what reads and compares versions counts for several): ask for smaller pages or fewer nested lists",
			roughly(total.cost), limits.Cost)
	}
	if !w.varies {
		op.document.weighed.Store(&weighed{oc.Operation, op.expected})
	}
	return nil
}

// expected is what is expected of an operation before it is executed.
type expected struct {
	pages     bool // it has lists with pages, which may read much
	mayBeLong bool // it lists documents or reads histories
}

// weighed is what is expected of an operation of a document, whatever its variables are.
type weighed struct {
	operation *ast.OperationDefinition
	expected  expected
}

// extent is how large a selection set is.
type extent struct {
	cost  int // saturates at math.MaxInt
	once  int // the weights of the leaves at its own level: a page has them once
	depth int
	roots int // fields at its own level; saturates too
}

type costWalk struct {
	limits    *Limits
	weights   map[*ast.FieldDefinition]int
	variables map[string]any
	fragments map[fragmentUse]extent
	lists     bool            // there are pages
	schema    bool            // the fields below ask for the schema
	varies    bool            // other variables may make it larger, or refuse it
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
		total.roots = plus(total.roots, e.roots)
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
	if len(f.SelectionSet) == 0 {
		return extent{cost: 1, once: w.weights[f.Definition], depth: 1, roots: 1}
	}
	if f.Name == "__schema" || f.Name == "__type" {
		if w.noIntrospection {
			w.fail(refuse(CodeForbidden, "introspection is turned off on this server (--no-introspection): it does not answer %s", f.Name), f.Position)
		}
		w.schema = true
		inner := w.set(f.SelectionSet, listFactor)
		w.schema = false
		return extent{cost: inner.cost, depth: 1, roots: 1}
	}
	times, isPage := w.times(f, elements)
	below := 1
	if !isPage {
		below = max(listFactor, w.longest(f, true))
	}
	inner := w.set(f.SelectionSet, below)
	cost := product(times, inner.cost)
	if isPage {
		cost = plus(cost, inner.once)
	} else {
		cost = plus(cost, product(times, inner.once))
	}
	return extent{cost: plus(plus(1, w.weights[f.Definition]), cost), depth: inner.depth + 1, roots: 1}
}

// checkConditions refuses @skip and @include with a variable that is null: a document may use
// a nullable one that has a default, which null replaces. gqlgen panics there.
func (w *costWalk) checkConditions(directives ast.DirectiveList) {
	for _, d := range directives {
		if d.Name != "skip" && d.Name != "include" {
			continue
		}
		condition := d.Arguments.ForName("if").Value
		if condition.Kind != ast.Variable {
			continue
		}
		w.varies = true
		if value, given := w.variables[condition.Raw]; given && value == nil {
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

// times is how often the fields below a field are expected in the answer, where lists have so
// many elements, and whether that already counts the lists directly below it.
func (w *costWalk) times(f *ast.Field, elements int) (int, bool) {
	if f.Definition.Arguments.ForName("first") != nil {
		w.lists = true
		size, given := 0, false
		for _, name := range [...]string{"first", "last"} {
			n, text, ok := w.integer(f, name)
			if !ok {
				continue
			}
			given = true
			size = max(size, n)
			if n > w.limits.PageSize {
				err := refuse(codeBadInput, "%s: %s is more than the largest page of this server, %d (--max-page); ask for less and follow pageInfo", name, shorten(text), w.limits.PageSize)
				err.Path = ast.Path{ast.PathName(f.Alias)}
				w.fail(err, f.Position)
			}
		}
		if !given {
			size = defaultPage
		}
		return max(size, 1), true
	}
	if f.Definition.Type.Elem == nil || w.schema {
		return 1, false
	}
	if longest := w.longest(f, false); longest > 0 && elements > 1 {
		return longest, false
	}
	return elements, false
}

// longest is how many elements the longest list has that is an argument of a field, or with
// inside a member of one.
func (w *costWalk) longest(f *ast.Field, inside bool) (longest int) {
	for _, argument := range f.Arguments {
		value := argument.Value
		if !inside {
			longest = max(longest, w.length(value))
			continue
		}
		for _, member := range value.Children {
			longest = max(longest, w.length(member.Value))
		}
		given, _ := w.compound(value).(map[string]any)
		for _, member := range given {
			list, _ := member.([]any)
			longest = max(longest, len(list))
		}
	}
	return longest
}

// integer is the value of an argument, within 32 bits, and as it was given; false
// where it has none, or null.
func (w *costWalk) integer(f *ast.Field, name string) (n int, text string, ok bool) {
	argument := f.Arguments.ForName(name)
	if argument == nil {
		return 0, "", false
	}
	switch argument.Value.Kind {
	case ast.IntValue:
		text = argument.Value.Raw
	case ast.Variable:
		w.varies = true
		switch v := w.variables[argument.Value.Raw].(type) {
		case int64:
			return saturate(v), strconv.FormatInt(v, 10), true
		case int:
			return saturate(int64(v)), strconv.Itoa(v), true
		case json.Number:
			text = v.String()
		default:
			return 0, "", false
		}
	default:
		return 0, "", false
	}
	value, err := strconv.ParseInt(text, 10, 64) // out of range: the nearest
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return 0, "", false
	}
	return saturate(value), text, true
}

// length is how many elements a list value has; 0 for other values.
func (w *costWalk) length(v *ast.Value) int {
	switch v.Kind {
	case ast.ListValue:
		return len(v.Children)
	case ast.Variable:
		list, _ := w.compound(v).([]any)
		return len(list)
	default:
		return 0
	}
}

// compound is the value of a variable whose type is that of lists or of input objects; nil for
// any other value.
func (w *costWalk) compound(v *ast.Value) any {
	of := v.VariableDefinition
	if v.Kind != ast.Variable || of != nil && of.Type.Elem == nil && of.Definition.IsLeafType() {
		return nil
	}
	w.varies = true
	return w.variables[v.Raw]
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

func saturate(n int64) int {
	return int(max(min(n, math.MaxInt32), math.MinInt32))
}

// roughly prints a number that may have been cut off.
func roughly(n int) string {
	if n == math.MaxInt {
		return "more than 10^18"
	}
	return strconv.Itoa(n)
}
