package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"strconv"
	"strings"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"
)

// costLimit refuses operations by what their answer may become, given the
// variables: depth, root fields, page sizes, and cost, which is the number of
// fields in the largest answer that is expected. A page counts its fields as
// often as first or last say, a list of identifiers as often as it is long,
// and any other list of objects listFactor times. A field that means work beyond
// what it returns has a weight, which counts like fields. Introspection counts
// its fields once; gqlparser's validation bounds its nesting.
type costLimit struct {
	limits Limits
	weight func(parent, field, result string) int
}

const (
	defaultPage = 20 // documents on a page when neither first nor last is given
	listFactor  = 5  // objects that are expected in a list that has no pages
	// quickCost is up to which cost an operation without pages is expected to be quick.
	quickCost = 500
)

// check refuses an operation that is too much.
func (c *costLimit) check(ctx context.Context, op *graphql.OperationContext) *gqlerror.Error {
	w := costWalk{limits: &c.limits, weight: c.weight, variables: op.Variables}
	total := w.set(op.Operation.SelectionSet, false)
	total.cost = plus(total.cost, total.once)
	if o := operationOf(ctx); o != nil {
		o.mayBeLong = w.lists || total.cost > quickCost
	}
	switch {
	case w.err != nil:
		return w.err
	case total.roots > c.limits.RootFields:
		return refuse(CodeTooComplex, "the operation has %s root fields; at most %d are allowed (--max-root-fields): send several operations", roughly(total.roots), c.limits.RootFields)
	case total.depth > c.limits.Depth:
		return refuse(CodeTooComplex, "the operation nests %d levels deep; at most %d are allowed (--max-depth): ask for the rest in another operation", total.depth, c.limits.Depth)
	case total.cost > c.limits.Cost:
		return refuse(CodeTooComplex, "the operation may return %s fields; at most %d are allowed (--max-cost; what reads and compares versions counts for several): ask for smaller pages or fewer nested lists",
			roughly(total.cost), c.limits.Cost)
	}
	return nil
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
	weight    func(parent, field, result string) int
	variables map[string]any
	fragments map[fragmentUse]extent
	lists     bool // there are pages
	err       *gqlerror.Error
}

// fragmentUse is a fragment in one of the two ways in which lists count.
type fragmentUse struct {
	fragment *ast.FragmentDefinition
	counted  bool
}

// set measures a selection set. counted says that the lists directly in it
// were counted by their parent: they are the edges and nodes of a page.
func (w *costWalk) set(set ast.SelectionSet, counted bool) extent {
	var total extent
	for _, selection := range set {
		var e extent
		switch s := selection.(type) {
		case *ast.Field:
			e = w.field(s, counted)
		case *ast.InlineFragment:
			e = w.set(s.SelectionSet, counted)
		case *ast.FragmentSpread:
			e = w.spread(s.Definition, counted)
		}
		total.cost = plus(total.cost, e.cost)
		total.once = plus(total.once, e.once)
		total.depth = max(total.depth, e.depth)
		total.roots = plus(total.roots, e.roots)
	}
	return total
}

func (w *costWalk) spread(fragment *ast.FragmentDefinition, counted bool) extent {
	use := fragmentUse{fragment, counted}
	if e, ok := w.fragments[use]; ok {
		return e
	}
	e := w.set(fragment.SelectionSet, counted)
	if w.fragments == nil {
		w.fragments = map[fragmentUse]extent{}
	}
	w.fragments[use] = e
	return e
}

func (w *costWalk) field(f *ast.Field, counted bool) extent {
	if len(f.SelectionSet) == 0 {
		return extent{cost: 1, once: w.extra(f), depth: 1, roots: 1}
	}
	if strings.HasPrefix(f.Name, "__") {
		return extent{cost: countFields(f.SelectionSet), depth: 1, roots: 1}
	}
	times, isPage := w.times(f, counted)
	inner := w.set(f.SelectionSet, isPage)
	cost := product(times, inner.cost)
	if isPage {
		cost = plus(cost, inner.once)
	} else {
		cost = plus(cost, product(times, inner.once))
	}
	return extent{cost: plus(plus(1, w.extra(f)), cost), depth: inner.depth + 1, roots: 1}
}

// extra is the weight of a field.
func (w *costWalk) extra(f *ast.Field) int {
	if w.weight == nil || f.ObjectDefinition == nil {
		return 0
	}
	return w.weight(f.ObjectDefinition.Name, f.Name, f.Definition.Type.Name())
}

// times is how often the fields below a field are expected in the answer, and
// whether that already counts the lists directly below it.
func (w *costWalk) times(f *ast.Field, counted bool) (int, bool) {
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
			if n > w.limits.PageSize && w.err == nil {
				w.err = pageTooLarge(f, name, text, w.limits.PageSize)
			}
		}
		if !given {
			size = defaultPage
		}
		return max(size, 1), true
	}
	if f.Definition.Type.Elem == nil || counted {
		return 1, false
	}
	longest := 0
	for _, argument := range f.Arguments {
		longest = max(longest, w.length(argument.Value))
	}
	if longest > 0 {
		return longest, false
	}
	return listFactor, false
}

func pageTooLarge(f *ast.Field, argument, n string, limit int) *gqlerror.Error {
	err := refuse(CodeBadInput, "%s: %s is more than the largest page of this server, %d (--max-page); ask for less and follow pageInfo", argument, shorten(n), limit)
	if f.Position != nil {
		err.Locations = []gqlerror.Location{{Line: f.Position.Line, Column: f.Position.Column}}
	}
	err.Path = ast.Path{ast.PathName(f.Alias)}
	return err
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
		list, _ := w.variables[v.Raw].([]any)
		return len(list)
	default:
		return 0
	}
}

// countFields counts the fields of a selection set, fragments not followed.
func countFields(set ast.SelectionSet) int {
	n := 0
	for _, selection := range set {
		switch s := selection.(type) {
		case *ast.Field:
			n += 1 + countFields(s.SelectionSet)
		case *ast.InlineFragment:
			n += countFields(s.SelectionSet)
		}
	}
	return n
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
