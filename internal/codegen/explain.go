package codegen

import (
	"fmt"
	"strings"

	"golang.org/x/tools/go/packages"
)

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
