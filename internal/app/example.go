package app

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/vektah/gqlparser/v2/ast"

	"github.com/asof/asof/internal/web"
	"github.com/asof/asof/storage"
)

// mostExampleFields is how many fields of a document the example asks for.
const mostExampleFields = 6

// example is the query with which the Playground begins where the schema does
// not answer its ready ones; nil where it does. It is made from the first type.
func example(schema *ast.Schema, types []*storage.Type) (*web.Tab, error) {
	if fit, err := web.TabsFit(schema); fit || err != nil || len(types) == 0 {
		return nil, err
	}
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
	return &web.Tab{Name: "first-look", Title: "First look", Query: about + query, Variables: json.RawMessage(`{"asOf": null}`)}, nil
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
