package httpapi

import (
	"context"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"
	"github.com/vektah/gqlparser/v2/parser"
)

// shapeLimit refuses documents by what can be seen before they are validated:
// validation compares fields with each other, so its cost must be bounded too.
// It runs only for documents that are not in the cache of valid ones.
type shapeLimit struct {
	limits Limits
	known  graphql.Cache[*ast.QueryDocument]
}

var _ interface {
	graphql.HandlerExtension
	graphql.OperationParameterMutator
} = (*shapeLimit)(nil)

func (*shapeLimit) ExtensionName() string { return "ShapeLimit" }

func (*shapeLimit) Validate(graphql.ExecutableSchema) error { return nil }

func (s *shapeLimit) MutateOperationParameters(ctx context.Context, params *graphql.RawParams) *gqlerror.Error {
	if _, ok := s.known.Get(ctx, params.Query); ok {
		return nil
	}
	if len(params.Query) > s.limits.Query {
		return refuse(CodeTooComplex, "the query has %d bytes; at most %d are allowed", len(params.Query), s.limits.Query)
	}
	source := &ast.Source{Input: params.Query}
	doc, err := parser.ParseQueryWithTokenLimit(source, s.limits.Tokens)
	if err != nil {
		return s.syntaxProblem(source, err) // nil: the executor reports it, with its place
	}
	if err := halfPair(params.Query); err != nil {
		return err
	}
	if err := hugeNumber(source); err != nil {
		return err
	}
	w := shapeWalk{limits: s.limits}
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
	limits          Limits
	fields, aliases int
	err             *gqlerror.Error
}

func (w *shapeWalk) selections(set ast.SelectionSet, depth int) {
	if depth > w.limits.Depth+introspectionDepth {
		w.fail("the query nests more than %d levels deep (%d are allowed outside of introspection)", w.limits.Depth+introspectionDepth, w.limits.Depth)
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
				w.fail("the query has more than %d fields", w.limits.Fields)
			}
			if w.aliases > w.limits.Aliases {
				w.fail("the query has more than %d aliases", w.limits.Aliases)
			}
			w.selections(s.SelectionSet, depth+1)
		case *ast.InlineFragment:
			w.selections(s.SelectionSet, depth+1)
		}
	}
}

func (w *shapeWalk) fail(format string, args ...any) {
	if w.err == nil {
		w.err = refuse(CodeTooComplex, format+", the limit of this server", args...)
	}
}

// introspectionDepth is how much deeper than other queries introspection may
// nest (ofType within ofType); the depth of everything else is checked again
// when the types are known.
const introspectionDepth = 20
