package plancache

import (
	"fmt"

	"github.com/vektah/gqlparser/v2/ast"
)

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
