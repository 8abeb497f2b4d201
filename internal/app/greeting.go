package app

import (
	"context"
	"fmt"
	"strings"

	"github.com/vektah/gqlparser/v2"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/validator/rules"

	"github.com/asof/asof/internal/demo"
	"github.com/asof/asof/storage/driver"
)

// fill puts the demo's catalogue into an empty store.
func (m *Main) fill(ctx context.Context, engine driver.Engine) error {
	stats, err := engine.Stats(ctx)
	if err != nil {
		return err
	}
	if stats.Versions > 0 {
		return nil
	}
	versions, err := demo.Versions()
	if err != nil {
		return err
	}
	_, err = engine.Load(ctx, versions)
	return err
}

// greeting says where the server is and what to ask first.
func (m *Main) greeting(ctx context.Context, addr string, engine driver.Engine, stats driver.Stats, schema *ast.Schema) (string, error) {
	base := "http://" + addr
	text := fmt.Sprintf("asof serves %s (%s, %s)\n\n  Playground  %s/\n  GraphQL     %s/graphql\n",
		m.storeName(), plural(stats.Documents, "document"), plural(stats.Versions, "version"), base, base)
	switch {
	case stats.Versions == 0 && demo.Fits(m.Types) == nil:
		text += "\nThe store is empty. Fill it with \"asof import FILE\", or start with --demo to look around.\n"
	case stats.Versions == 0:
		text += "\nThe store is empty. Fill it with \"asof import FILE\" or by mutations; the Playground has a first query.\n"
	case m.flags.Serve.Demo:
		there, err := hasDemo(ctx, engine)
		if err != nil {
			return "", err
		}
		switch query := firstQuery(base); {
		case there && answers(schema, query):
			text += query
		case !there:
			text += "\nThe store has documents of its own, so --demo left it as it is. For the demo, name another one with --store.\n"
		}
	}
	return text, nil
}

// hasDemo reports whether the store holds what the first query asks for.
func hasDemo(ctx context.Context, engine driver.Engine) (bool, error) {
	now, err := engine.Now(ctx)
	if err != nil {
		return false, err
	}
	found, err := engine.Get(ctx, "software", []driver.Ref{{Key: "lanternfish", At: now}}, nil)
	return err == nil && found[0] != nil, err
}

// answers reports whether the schema has all that a text's query asks for.
func answers(schema *ast.Schema, text string) bool {
	_, rest, _ := strings.Cut(text, "'query=")
	document, _, ok := strings.Cut(rest, "'")
	if !ok {
		return false
	}
	_, err := gqlparser.LoadQueryWithRules(schema, document, rules.NewDefaultRules())
	return err == nil
}

// firstQuery shows what a document was and is, and who changed it.
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
