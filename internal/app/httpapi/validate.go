package httpapi

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"
	"github.com/vektah/gqlparser/v2/validator/core"
	"github.com/vektah/gqlparser/v2/validator/rules"
)

const (
	// stepsPerToken is how many steps the validation of a document may take for each
	// token that a document may have. It visits what is in a fragment once more for
	// each operation and each fragment that spreads it, also through others.
	stepsPerToken = 10
	// stepsPerLook is after how many steps the time is looked at.
	stepsPerLook = 256
	// bytesPerStep is how much text a step may copy.
	bytesPerStep = 1 << 10
	// namesPerStep is how many names of a list are compared with one in a step.
	namesPerStep = 32
	// mostInvalid is how many errors of a document are found.
	mostInvalid = 20
	// longestHint is the longest name, in bytes, for which a similar one is looked for:
	// that takes as many steps as it is long, for each name that there is.
	longestHint = 50
)

// validation checks documents against a schema by gqlparser's rules, and by its own
// for fields that are merged.
type validation struct {
	schema *ast.Schema
	steps  int
	plain  []core.Rule // without suggestions of similar names
	hints  []core.Rule // with suggestions
}

func newValidation(schema *ast.Schema, limits *Limits) *validation {
	return &validation{
		schema: schema,
		steps:  stepsPerToken * limits.Tokens,
		hints:  rulesWith(),
		plain: rulesWith(rules.FieldsOnCorrectTypeRuleWithoutSuggestions, rules.KnownArgumentNamesRuleWithoutSuggestions,
			rules.KnownTypeNamesRuleWithoutSuggestions, rules.ScalarLeafsRuleWithoutSuggestions, rules.ValuesOfCorrectTypeRuleWithoutSuggestions),
	}
}

// rulesWith returns gqlparser's rules, some replaced by those without suggestions, in
// the order of their names.
func rulesWith(replaced ...core.Rule) []core.Rule {
	set := rules.NewDefaultRules()
	set.RemoveRule(rules.OverlappingFieldsCanBeMergedRule.Name) // see merging
	for _, rule := range replaced {
		set.RemoveRule(strings.TrimSuffix(rule.Name, "WithoutSuggestions"))
		set.AddRule(rule.Name, rule.RuleFunc)
	}
	var list []core.Rule
	for name, run := range set.GetInner() {
		list = append(list, core.Rule{Name: name, RuleFunc: run})
	}
	slices.SortFunc(list, func(a, b core.Rule) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// check returns the first errors of a document that parses; nil: it is valid. Where
// the steps are used up, or the context has ended, before there is one, the error says
// so. It notes in the document what its names mean.
func (v *validation) check(ctx context.Context, doc *ast.QueryDocument, hints bool) gqlerror.List {
	b := &budget{ctx: ctx, left: v.steps}
	list := v.plain
	if hints {
		list = v.hints
	}
	b.run(func() {
		events := &core.Events{}
		b.observe(events)
		for _, rule := range list {
			rule.RuleFunc(events, func(options ...core.ErrorOption) {
				err := &gqlerror.Error{Rule: rule.Name}
				for _, set := range options {
					set(err)
				}
				b.add(err)
			})
		}
		core.Walk(v.schema, doc, events)
		if b.errs == nil { // so that names mean something, and fragments have no cycles
			(&merging{budget: b, schema: v.schema}).document(doc)
		}
	})
	return b.errs
}

// budget is what the validation of one document may take. gqlparser's walk can be
// ended only by a panic, which run recovers.
type budget struct {
	ctx  context.Context
	left int // steps
	errs gqlerror.List
}

type usedUp struct{}

// run runs a function that uses the budget, until its end or that of the budget.
func (b *budget) run(fn func()) {
	defer func() {
		if failure := recover(); failure != nil && failure != any(usedUp{}) {
			panic(failure)
		}
	}()
	fn()
}

// add adds an error.
func (b *budget) add(err *gqlerror.Error) {
	if b.errs = append(b.errs, err); len(b.errs) >= mostInvalid {
		panic(usedUp{})
	}
}

// end ends the work, with an error if there was none.
func (b *budget) end(err *gqlerror.Error) {
	if b.errs == nil {
		b.errs = gqlerror.List{err}
	}
	panic(usedUp{})
}

// spend takes some steps.
func (b *budget) spend(steps int) {
	before := b.left / stepsPerLook
	b.left -= steps
	switch {
	case b.left < 0:
		b.end(refuse(codeTooComplex, "to check the query takes more steps than this server allows (ten for each of --max-tokens): "+
			"spread fragments in fewer others and at fewer places, and send fewer operations, variables and values in a document"))
	case before != b.left/stepsPerLook && b.ctx.Err() != nil:
		b.end(timeoutError(b.ctx, nil))
	}
}

// observe takes a step for everything that a walk visits. It comes before the rules.
func (b *budget) observe(events *core.Events) {
	events.OnOperation(func(_ *core.Walker, o *ast.OperationDefinition) { b.spend(1 + len(o.VariableDefinitions)) })
	events.OnFragment(func(*core.Walker, *ast.FragmentDefinition) { b.spend(1) })
	events.OnField(func(_ *core.Walker, f *ast.Field) { b.spend(1 + len(f.Arguments)) })
	events.OnInlineFragment(func(*core.Walker, *ast.InlineFragment) { b.spend(1) })
	events.OnFragmentSpread(func(*core.Walker, *ast.FragmentSpread) { b.spend(1) })
	events.OnDirective(func(_ *core.Walker, d *ast.Directive) { b.spend(1 + len(d.Arguments)) })
	events.OnVariable(func(*core.Walker, *ast.VariableDefinition) { b.spend(1) })
	events.OnValue(func(w *core.Walker, v *ast.Value) {
		b.value(v)
		if v.Kind == ast.Variable && w.CurrentOperation != nil { // it was looked for among all
			b.spend(len(w.CurrentOperation.VariableDefinitions) / namesPerStep)
		}
	})
}

// value takes the steps of converting and printing a value, as the rules do with every
// value and with the values in it, and returns about how long its text is. In the place of a
// variable they convert its default.
func (b *budget) value(v *ast.Value) (length int) {
	if b.spend(1); v.Kind == ast.ObjectValue {
		b.spend(2) // for a map
	}
	if v.Kind == ast.Variable && v.VariableDefinition != nil && v.VariableDefinition.DefaultValue != nil {
		b.value(v.VariableDefinition.DefaultValue)
	}
	length = len(v.Raw)
	for _, child := range v.Children {
		length += len(child.Name) + b.value(child.Value)
	}
	b.spend(length / bytesPerStep)
	return length
}

// merging checks that the fields of one response name can be merged: that they have
// one type in the answer, and are the same field with the same arguments where they
// can be those of one object. GraphQL's specification words that for all pairs of
// fields, and gqlparser compares all pairs. Here each field is compared with the first
// of those that it may be merged with, what is selected of them is merged, and so on,
// as Simon Adameit has found for Sangria. It takes a step for each field, as often as
// the fragments with it are spread at different places, and ends at the first conflict.
// The document is valid otherwise.
type merging struct {
	*budget
	schema *ast.Schema
	path   []string // response names, from the root
}

func (m *merging) document(doc *ast.QueryDocument) {
	for _, operation := range doc.Operations {
		root := []*ast.Field{{SelectionSet: operation.SelectionSet}}
		m.merge(root, m.sameMeaning)
		m.merge(root, m.sameShape)
	}
}

// merge checks what is selected of fields together: the fields of each response name by a
// function, which divides them, and then what is selected of each part.
func (m *merging) merge(fields []*ast.Field, check func([]*ast.Field) [][]*ast.Field) {
	for _, same := range m.collect(fields) {
		m.path = append(m.path, same.name)
		for _, part := range check(same.fields) {
			m.merge(part, check)
		}
		m.path = m.path[:len(m.path)-1]
	}
}

// fieldGroup is the fields of one response name.
type fieldGroup struct {
	name   string
	fields []*ast.Field
}

// collect returns what is selected of some fields, in the order of the document.
func (m *merging) collect(fields []*ast.Field) []fieldGroup {
	var (
		list   []fieldGroup
		places map[string]int
		spread map[*ast.FragmentDefinition]bool
		add    func(set ast.SelectionSet)
	)
	add = func(set ast.SelectionSet) {
		for _, selection := range set {
			m.spend(1)
			switch s := selection.(type) {
			case *ast.Field:
				name := cmp.Or(s.Alias, s.Name)
				if places == nil {
					m.spend(2) // for what follows
					places = map[string]int{}
				}
				at, ok := places[name]
				if !ok {
					at = len(list)
					places[name] = at
					list = append(list, fieldGroup{name: name})
				}
				list[at].fields = append(list[at].fields, s)
			case *ast.InlineFragment:
				add(s.SelectionSet)
			case *ast.FragmentSpread:
				if !spread[s.Definition] {
					if spread == nil {
						spread = map[*ast.FragmentDefinition]bool{}
					}
					spread[s.Definition] = true
					add(s.Definition.SelectionSet)
				}
			}
		}
	}
	for _, f := range fields {
		add(f.SelectionSet)
	}
	return list
}

// overlapping divides fields by the object types that they belong to: those of a type
// with those of interfaces and unions, which any object may have.
func (m *merging) overlapping(fields []*ast.Field) [][]*ast.Field {
	parent := func(f *ast.Field) *ast.Definition {
		if f.ObjectDefinition.Kind == ast.Object {
			return f.ObjectDefinition
		}
		return nil // for all
	}
	var parents []*ast.Definition
	for _, f := range fields {
		if p := parent(f); p != nil && !slices.Contains(parents, p) {
			m.spend(1 + len(parents)/namesPerStep)
			parents = append(parents, p)
		}
	}
	if len(parents) < 2 {
		return [][]*ast.Field{fields}
	}
	m.spend(len(parents) * len(fields) / namesPerStep)
	groups := make([][]*ast.Field, len(parents))
	for i, of := range parents {
		for _, f := range fields {
			if p := parent(f); p == nil || p == of {
				groups[i] = append(groups[i], f)
			}
		}
	}
	return groups
}

// sameMeaning checks that fields that can be those of one object are one, with the same arguments.
func (m *merging) sameMeaning(fields []*ast.Field) [][]*ast.Field {
	groups := m.overlapping(fields)
	for _, group := range groups {
		first := group[0]
		for _, f := range group[1:] {
			switch {
			case f.Name != first.Name:
				m.conflict(f, `"%s" and "%s" are different fields`, first.Name, f.Name)
			case !m.sameArguments(first.Arguments, f.Arguments):
				m.conflict(f, "they have differing arguments")
			}
		}
	}
	return groups
}

func (m *merging) sameArguments(a, b ast.ArgumentList) bool {
	if len(a) != len(b) {
		return false
	}
	for _, argument := range a {
		other := b.ForName(argument.Name)
		if other == nil || !m.sameValue(argument.Value, other.Value) {
			return false
		}
	}
	return true
}

// sameValue compares values as they are written; the fields of an object may be in
// another order.
func (m *merging) sameValue(a, b *ast.Value) bool {
	m.spend(1 + len(a.Raw)/bytesPerStep)
	if a.Kind != b.Kind || a.Raw != b.Raw || len(a.Children) != len(b.Children) {
		return false
	}
	for i, child := range a.Children {
		other := b.Children[i].Value
		if a.Kind == ast.ObjectValue {
			m.spend(len(b.Children) / namesPerStep)
			other = b.Children.ForName(child.Name)
		}
		if other == nil || !m.sameValue(child.Value, other) {
			return false
		}
	}
	return true
}

// sameShape checks that the values of all fields look alike in the answer.
func (m *merging) sameShape(fields []*ast.Field) [][]*ast.Field {
	first := fields[0].Definition.Type
	for _, f := range fields[1:] {
		if !m.alike(first, f.Definition.Type) {
			m.conflict(f, `they return conflicting types "%s" and "%s"`, first, f.Definition.Type)
		}
	}
	return [][]*ast.Field{fields}
}

// alike reports whether two types are lists of the same depth and as often null, of
// the same scalar or enum, or of any objects.
func (m *merging) alike(a, b *ast.Type) bool {
	if a.NonNull != b.NonNull || (a.Elem == nil) != (b.Elem == nil) {
		return false
	}
	if a.Elem != nil {
		return m.alike(a.Elem, b.Elem)
	}
	return a.NamedType == b.NamedType || !m.schema.Types[a.NamedType].IsLeafType() && !m.schema.Types[b.NamedType].IsLeafType()
}

// conflict ends the work with the error that a field cannot be merged.
func (m *merging) conflict(f *ast.Field, why string, args ...any) {
	err := &gqlerror.Error{
		Rule: rules.OverlappingFieldsCanBeMergedRule.Name,
		Message: fmt.Sprintf(`Fields "%s" conflict because %s. Use different aliases on the fields to fetch both if this was intentional.`,
			strings.Join(m.path, `" conflict because subfields "`), fmt.Sprintf(why, args...)),
		Locations: []gqlerror.Location{{Line: f.Position.Line, Column: f.Position.Column}},
	}
	m.end(err)
}
