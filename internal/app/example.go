package app

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/vektah/gqlparser/v2/ast"

	"github.com/asof/asof/internal/demo"
	"github.com/asof/asof/internal/web"
	"github.com/asof/asof/storage"
)

// mostExampleFields is how many fields of a document the example asks for.
const mostExampleFields = 6

// playground is what the Playground has to know. Its ready queries are for the
// demo: where the schema does not answer them, or the store does not hold what they
// ask for, it begins with another query.
func (s *site) playground(types []*storage.Type) (web.Options, error) {
	fit, err := web.TabsFit(s.schema)
	if err != nil {
		return web.Options{}, err
	}
	options := web.Options{NoIntrospection: s.noSchema}
	if len(types) == 0 {
		return options, nil
	}
	options.Example = example(s.schema, types)
	if fit {
		options.IsDemo = s.holdsDemo
	}
	return options, nil
}

// holdsDemo reports whether the store holds the demo's catalogue. A store that cannot
// be asked may.
func (s *site) holdsDemo(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	filled, err := demo.Filled(ctx, s.engine)
	return filled || err != nil
}

// example is a query that any schema answers, made from the first type.
func example(schema *ast.Schema, types []*storage.Type) *web.Tab {
	first := types[0]
	about := fmt.Sprintf(`# First look: the documents of the type %s, now or at an instant in
# the variables, such as "2026-01-31T12:00:00Z", and what was done to each.
`, first.Name)
	query := fmt.Sprintf(`query FirstLook($asOf: DateTime) {
  %s(asOf: $asOf, first: 10) {
    totalCount
    nodes {
      %s
      versions(first: 3) {
        nodes { version versionInfo { recordedAt operation author { id } message } }
      }
    }
  }
}
`, first.Plural, strings.Join(exampleFields(schema, first), " "))
	return &web.Tab{Name: "first-look", Title: "First look", Query: about + query, Variables: json.RawMessage(`{"asOf": null}`)}
}

// exampleFields are fields of a type that need neither arguments nor fields.
func exampleFields(schema *ast.Schema, of *storage.Type) []string {
	fields := []string{"id", "version"}
	definition := schema.Types[of.Name]
	if definition == nil {
		return fields
	}
	for _, f := range of.Fields {
		declared := definition.Fields.ForName(f.Name)
		if declared == nil || len(declared.Arguments) > 0 || slices.Contains(fields, f.Name) {
			continue
		}
		if kind := schema.Types[declared.Type.Name()]; kind != nil && kind.IsLeafType() && len(fields) < mostExampleFields {
			fields = append(fields, f.Name)
		}
	}
	return fields
}
