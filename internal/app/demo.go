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
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/record"
)

// greeting returns where the server listens, and a first query.
func (m *Main) greeting(ctx context.Context, addr string, engine driver.Engine, stats driver.Stats) (string, error) {
	base := "http://" + addr
	text := fmt.Sprintf("asof serves %s (%s, %s)\n\n  Playground  %s/\n  GraphQL     %s/graphql\n",
		m.storeName(), held(stats), heldVersions(stats), base, base)
	_, _, versions := storage.Held(stats)
	switch {
	case versions == 0 && demo.Fits(m.Types) == nil:
		text += "\nThe store is empty. Fill it with \"asof import FILE\", or start with --demo to look around.\n"
	case versions == 0:
		text += "\nThe store is empty. Fill it with \"asof import FILE\" or by mutations; the Playground has a first query.\n"
	case m.flags.Serve.Demo:
		there, err := demo.Filled(ctx, engine)
		if err != nil {
			return "", err
		}
		if there {
			text += firstQuery(base)
		} else {
			text += "\nThe store has documents of its own, so --demo left it as it is. For the demo, name another one with --store.\n"
		}
	}
	return text, nil
}

// firstQuery returns a query for a document in the past and now, and for who changed it.
func firstQuery(base string) string {
	return fmt.Sprintf(`
A first query, for the Playground or as it is here: the license of Lanternfish
in the summer of 2025 and now, and who changed it.

  curl -sG %s/graphql --data-urlencode 'query={
    summer: project(key: "lanternfish", asOf: "2025-07-01T00:00:00Z") { version licenses { name } }
    now: project(key: "lanternfish") { version licenses { name }
      blame(fields: [licenses]) { path changedBy { id } changedAt message } }
  }'
`, base)
}

// mostExampleFields is how many fields of a document the example asks for.
const mostExampleFields = 6

// playground is what the Playground has to know. Its ready queries are for the
// demo: where the schema does not answer them, or the store does not hold what they
// ask for, it begins with another query.
func (s *site) playground(types []*record.Type) (web.Options, error) {
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
func example(schema *ast.Schema, types []*record.Type) *web.Tab {
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
	return &web.Tab{Name: "first-look", Query: about + query, Variables: json.RawMessage(`{"asOf": null}`)}
}

// exampleFields are fields of a type that need neither arguments nor fields.
func exampleFields(schema *ast.Schema, of *record.Type) []string {
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
