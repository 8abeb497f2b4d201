package codegen_test

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/asof/asof/internal/codegen/codegentest"
	"github.com/asof/asof/internal/load/process"
)

// codeBlocks are the GraphQL code blocks of a Markdown file, in order, without
// their indentation.
func codeBlocks(t *testing.T, file string) []string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var blocks []string
	for _, m := range regexp.MustCompile("(?ms)^ *```graphql\n(.*?)^ *```$").FindAllStringSubmatch(string(b), -1) {
		blocks = append(blocks, regexp.MustCompile(`(?m)^   `).ReplaceAllString(m[1], ""))
	}
	return blocks
}

// TestBuiltServer builds one server for an example of a schema, the types that the
// README and docs/adding-a-type.md add, types with every kind of field, and fields
// and types with every name that Go has already, and uses it. The module's own
// schema is not read: who has added a type to it would find it here twice.
func TestBuiltServer(t *testing.T) {
	root := codegentest.Root(t)
	blocks := codeBlocks(t, filepath.Join(root, "docs", "adding-a-type.md"))
	if len(blocks) != 4 {
		t.Fatalf("the document has %d code blocks, not a type, a mutation, a query, and a type that has changed", len(blocks))
	}
	var sdl strings.Builder
	for _, file := range []string{
		"testdata/expand/kinds.graphqls", "testdata/expand/nested.graphqls", "testdata/expand/refs.graphqls",
		"testdata/expand/gonames.graphqls", "testdata/expand/deprecated.graphqls",
	} {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		sdl.Write(append(b, '\n'))
	}
	sdl.WriteString("type Project @versioned { name: String! }\n" + blocks[0] + blocks[3])
	readme := codeBlocks(t, filepath.Join(root, "README.md"))
	sdl.WriteString(readme[len(readme)-1])
	protected := codeBlocks(t, filepath.Join(root, "docs", "permissions.md"))
	sdl.WriteString(protected[0])
	dir := codegentest.ModuleWithTests(t)
	writeFile(t, dir, "schema.graphqls", sdl.String())
	codegentest.Generate(t, dir)
	server, err := process.Start(t.Context(), io.Discard, codegentest.Compile(t, dir), "serve", "--store", "sqlite:"+filepath.Join(t.TempDir(), "test.db"), "--addr", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	url := server.URL
	t.Run("adding a type", func(t *testing.T) { addingAType(t, url, blocks[1], blocks[2]) })
	t.Run("the README's type", func(t *testing.T) { readmeType(t, url) })
	t.Run("the type in docs/permissions.md", func(t *testing.T) { protectedType(t, url) })
	t.Run("every kind", func(t *testing.T) { everyKind(t, url) })
	t.Run("every name", func(t *testing.T) { everyName(t, url) })
	// Whoever replaces the module's own schema by another one finds its tests green.
	// Only those at the root know what is generated from it; for the others the linter
	// sees to that.
	t.Run("the tests at the root", func(t *testing.T) {
		codegentest.Run(t, dir, "go", "vet", ".", "./graph/...", "./resolvers", "./internal/plan/plantest/cmd")
		codegentest.Run(t, dir, "go", "test", "-vet=off", ".")
	})
}

// Following docs/adding-a-type.md leads to a server that has the type.
func addingAType(t *testing.T, url, mutation, query string) {
	t.Helper()
	want := map[string]any{"createMaintainer": map[string]any{
		"version": 1.0,
		"maintainer": map[string]any{
			"id": "Maintainer:ada", "name": "Ada", "role": "MEMBER", "projectKeys": []any{"lanternfish"},
		},
	}}
	if diff := cmp.Diff(want, codegentest.Query(t, url, mutation)); diff != "" {
		t.Errorf("the mutation's answer (-want +got):\n%s", diff)
	}
	got := codegentest.Query(t, url, query)
	nodes, _ := got["maintainers"].(map[string]any)["nodes"].([]any)
	if len(nodes) != 1 {
		t.Fatalf("the query's answer is %v", got)
	}
	node, _ := nodes[0].(map[string]any)
	info, _ := node["versionInfo"].(map[string]any)
	if at, _ := info["recordedAt"].(string); !strings.HasSuffix(at, "Z") {
		t.Errorf("recordedAt is %q", at)
	}
	delete(info, "recordedAt")
	changes := node["changelog"].(map[string]any)["nodes"]
	delete(node, "changelog")
	wantNode := map[string]any{
		"key": "ada", "name": "Ada", "since": "2024-03-01",
		"versionInfo": map[string]any{"author": map[string]any{"id": "ada"}, "message": "Welcome"},
	}
	if diff := cmp.Diff(wantNode, node); diff != "" {
		t.Errorf("the query's answer (-want +got):\n%s", diff)
	}
	if list, _ := changes.([]any); !containsChange(list, "/name", "Ada") {
		t.Errorf("the changelog %v has no /name", changes)
	}
}

// The type in the README has the root fields that it promises.
func readmeType(t *testing.T, url string) {
	t.Helper()
	made := codegentest.Query(t, url, `mutation { createRecipe(input: {key: "soup", data: {title: "Soup", goesWith: ["soup"],
		ingredients: [{name: "Leek", amount: "2.5"}]}}) { ... on CreateRecipeSuccess { recipe { servings goesWithKeys ingredients { amount } } } } }`)
	recipe := map[string]any{"servings": 4.0, "goesWithKeys": []any{"soup"}, "ingredients": []any{map[string]any{"amount": "2.5"}}}
	if diff := cmp.Diff(map[string]any{"createRecipe": map[string]any{"recipe": recipe}}, made); diff != "" {
		t.Errorf("the mutation's answer (-want +got):\n%s", diff)
	}
	got := codegentest.Query(t, url, `{ recipe(key: "soup") { title } recipes { totalCount } recipeHistory(key: "soup") { versions { totalCount } } }`)
	want := map[string]any{
		"recipe": map[string]any{"title": "Soup"}, "recipes": map[string]any{"totalCount": 1.0},
		"recipeHistory": map[string]any{"versions": map[string]any{"totalCount": 1.0}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the query's answer (-want +got):\n%s", diff)
	}
}

// Rules hold where nobody is known.
func protectedType(t *testing.T, url string) {
	t.Helper()
	const create = `{"query": "mutation {createContract(input: {key: \"a\", data: {title: \"A\", published: true}}) {__typename}}"}`
	response, err := http.Post(url, "application/json", strings.NewReader(create))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if text, err := io.ReadAll(response.Body); err != nil || !strings.Contains(string(text), `"FORBIDDEN"`) {
		t.Errorf("created: %s, %v", text, err)
	}
	if diff := cmp.Diff(map[string]any{"contracts": map[string]any{"totalCount": 0.0}}, codegentest.Query(t, url, `{contracts {totalCount}}`)); diff != "" {
		t.Errorf("the query's answer (-want +got):\n%s", diff)
	}
}

func containsChange(changes []any, path string, value any) bool {
	for _, c := range changes {
		if m, ok := c.(map[string]any); ok && m["path"] == path && m["newValue"] == value {
			return true
		}
	}
	return false
}
