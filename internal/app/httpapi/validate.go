package httpapi

import (
	"context"
	"slices"
	"strings"

	"github.com/99designs/gqlgen/graphql/errcode"
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
	plain  []core.Rule // which do not tell names of the schema that are similar
	hints  []core.Rule // which do
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
	errcode.Set(err, errcode.ValidationFailed)
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
		b.end(refuse(CodeTooComplex, "to check the query takes more steps than this server allows (ten for each of --max-tokens): "+
			"spread fragments in fewer others and at fewer places, and send fewer operations, variables and values in a document"))
	case before != b.left/stepsPerLook && b.ctx.Err() != nil:
		b.end(unfinished(b.ctx, nil))
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
// value and with the values in it, and returns about how long its text is.
func (b *budget) value(v *ast.Value) (length int) {
	if b.spend(1); v.Kind == ast.ObjectValue {
		b.spend(2) // for a map
	}
	length = len(v.Raw)
	for _, child := range v.Children {
		length += len(child.Name) + b.value(child.Value)
	}
	b.spend(length / bytesPerStep)
	return length
}
