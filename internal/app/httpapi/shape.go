package httpapi

import (
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
		w.err = refuse(CodeTooComplex, format, args...)
	}
}

// introspectionDepth is how much deeper than other queries introspection may
// nest (ofType within ofType); the depth of everything else is checked again
// when the types are known.
const introspectionDepth = 20
