package plancache

import (
	"fmt"

	"github.com/vektah/gqlparser/v2/ast"
)

// examination is what the directives of an operation say.
type examination struct {
	err        error    // names one that is not known here
	conditions []string // the variables in @skip and @include
}

func examine(operation *ast.OperationDefinition) examination {
	w := walk{seen: map[*ast.FragmentDefinition]bool{}}
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
		switch s := s.(type) {
		case *ast.Field:
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
