package web_test

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/vektah/gqlparser/v2"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/validator"
	"github.com/vektah/gqlparser/v2/validator/rules"

	"github.com/asof/asof/internal/web"
)

// catalogue is the schema that clients of the demo see.
func catalogue(t *testing.T) *ast.Schema {
	t.Helper()
	const file = "../fixture/graph/versioned.graphqls"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	schema, err := gqlparser.LoadSchema(&ast.Source{Name: file, Input: string(text)})
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

// Every ready query is valid in the program's schema, and so are its variables.
func TestTabsFitTheSchema(t *testing.T) {
	schema := catalogue(t)
	tabs, err := web.Tabs()
	if err != nil {
		t.Fatal(err)
	}
	if len(tabs) < 11 {
		t.Errorf("there are %d ready queries, want 11 or more", len(tabs))
	}
	operations := map[string]bool{}
	for _, tab := range tabs {
		t.Run(tab.Name, func(t *testing.T) {
			query, errs := gqlparser.LoadQueryWithRules(schema, tab.Query, rules.NewDefaultRules())
			if errs != nil {
				t.Fatal(errs)
			}
			if len(query.Operations) != 1 || query.Operations[0].Name == "" {
				t.Fatal("want one operation with a name: it is the title of the tab")
			}
			operation := query.Operations[0]
			if operations[operation.Name] {
				t.Errorf("there is another operation %s", operation.Name)
			}
			operations[operation.Name] = true
			var variables map[string]any
			if tab.Variables != nil {
				if err := json.Unmarshal(tab.Variables, &variables); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := validator.VariableValues(schema, operation, variables); err != nil {
				t.Error(err)
			}
			for name := range variables {
				if operation.VariableDefinitions.ForName(name) == nil {
					t.Errorf("the operation has no variable %s", name)
				}
			}
		})
	}
}
