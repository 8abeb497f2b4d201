package codegen

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"
	"golang.org/x/tools/go/packages"
)

// Problem is one thing that is wrong with the SDL.
type Problem struct {
	File         string
	Line, Column int // from 1
	Message      string
}

func (p Problem) String() string {
	return fmt.Sprintf("%s:%d:%d: %s", p.File, p.Line, p.Column, p.Message)
}

// Problems is everything that is wrong with the SDL, in the order of the
// files; it is the type of the errors that Expand returns.
type Problems []Problem

func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// add records a problem at a position; the same one is recorded once.
func (ps *Problems) add(pos *ast.Position, format string, args ...any) {
	p := Problem{Message: fmt.Sprintf(format, args...)}
	if pos != nil {
		p.Line, p.Column = pos.Line, pos.Column
		if pos.Src != nil {
			p.File = pos.Src.Name
		}
	}
	if !slices.Contains(*ps, p) {
		*ps = append(*ps, p)
	}
}

// err returns the problems as an error, sorted, or nil. Files come in the
// order in which they were given.
func (ps Problems) err(sources []*ast.Source) error {
	if len(ps) == 0 {
		return nil
	}
	order := make(map[string]int, len(sources))
	for i, s := range sources {
		order[s.Name] = i
	}
	slices.SortStableFunc(ps, func(a, b Problem) int {
		return cmp.Or(
			cmp.Compare(order[a.File], order[b.File]),
			cmp.Compare(a.Line, b.Line),
			cmp.Compare(a.Column, b.Column),
			cmp.Compare(a.Message, b.Message),
		)
	})
	return ps
}

// syntaxProblem converts what gqlparser says about SDL that it cannot parse.
func syntaxProblem(src *ast.Source, err error) Problem {
	p := Problem{File: src.Name, Line: 1, Column: 1, Message: err.Error()}
	var g *gqlerror.Error
	if errors.As(err, &g) {
		p.Message = "syntax error: " + g.Message
		if len(g.Locations) > 0 {
			p.Line, p.Column = g.Locations[0].Line, g.Locations[0].Column
		}
	}
	return p
}

// explain adds to an error of gqlgen what does not compile below the models:
// gqlgen looks at types, and says nothing of why one is invalid.
func explain(err error) error {
	const most = 10
	mode := packages.NeedName | packages.NeedTypes | packages.NeedSyntax | packages.NeedImports | packages.NeedDeps
	pkgs, loadErr := packages.Load(&packages.Config{Mode: mode}, "./graph/model")
	if loadErr != nil {
		return fmt.Errorf("%w; the models cannot be loaded: %w", err, loadErr)
	}
	var problems []string
	packages.Visit(pkgs, nil, func(p *packages.Package) {
		for _, e := range p.Errors {
			problems = append(problems, e.Error())
		}
	})
	if len(problems) == 0 {
		return err
	}
	return fmt.Errorf("%w\nThe models do not compile, or what they use does not:\n%s",
		err, strings.Join(problems[:min(len(problems), most)], "\n"))
}
