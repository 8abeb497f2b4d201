package app

import (
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vektah/gqlparser/v2"
	"github.com/vektah/gqlparser/v2/ast"

	"github.com/asof/asof/internal/fixture/graph/model"
	"github.com/asof/asof/internal/fixture/resolvers"
)

// greeting is what the server says at its start with a schema (nil: its own), a
// store and flags.
func greeting(t *testing.T, schema *ast.Schema, store string, args ...string) string {
	t.Helper()
	m := Main{Types: model.Types, Schema: resolvers.NewSchema, Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: io.Discard, Now: time.Now}
	if _, err := m.ParseFlags(append([]string{"serve", "--sync=off", "--store=sqlite:" + store}, args...)); err != nil {
		t.Fatal(err)
	}
	opened, err := m.openStore(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = opened.Engine().Close() }()
	if m.flags.Serve.Demo {
		if err := m.fill(t.Context(), opened.Engine()); err != nil {
			t.Fatal(err)
		}
	}
	stats, err := opened.Engine().Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if schema == nil {
		schema = resolvers.NewSchema(opened).Schema()
	}
	text, err := m.greeting(t.Context(), "127.0.0.1:8080", opened.Engine(), stats, schema)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestGreeting(t *testing.T) {
	store := filepath.Join(t.TempDir(), "asof.db")
	if got := greeting(t, nil, store); !strings.Contains(got, "The store is empty") {
		t.Error(got)
	}
	for range 2 { // filled, and as it was
		if got := greeting(t, nil, store, "--demo"); !strings.Contains(got, "curl -sG http://127.0.0.1:8080/graphql") || !strings.Contains(got, "(68 documents, 1948 versions)") {
			t.Error(got)
		}
	}
	// A store of the demo under a schema that lacks what the query asks for.
	if got := greeting(t, gqlparser.MustLoadSchema(&ast.Source{Input: `type Query { tags: [ID!] }`}), store, "--demo"); strings.Contains(got, "curl") || strings.Contains(got, "left it") {
		t.Error(got)
	}
	other := filepath.Join(t.TempDir(), "asof.db")
	const line = `{"collection":"tags","id":"a","at":"2025-01-01T00:00:00Z","by":"ada","op":"put","data":{"name":"A","description":""}}` + "\n"
	if status, _, stderr := run(t, line, "import", "-", "--store=sqlite:"+other); status != 0 {
		t.Fatal(stderr)
	}
	if got := greeting(t, nil, other, "--demo"); !strings.Contains(got, "--demo left it as it is") || strings.Contains(got, "curl") {
		t.Error(got)
	}
}

// The first query is what the greeting promises.
func TestFirstQuery(t *testing.T) {
	p := serve(t, "--demo")
	_, rest, _ := strings.Cut(firstQuery(p.url), "'query=")
	document, _, _ := strings.Cut(rest, "'")
	got := p.query(t, document).body
	for _, text := range []string{`"summer":{"version":`, `"name":"MIT License"`, `"name":"GNU Affero General Public License v3.0"`, `"changedBy":{"id":"`} {
		if !strings.Contains(got, text) {
			t.Errorf("no %s in %s", text, got)
		}
	}
	p.stop()
	if log := p.stderr.String(); !strings.Contains(log, "msg=operation") || strings.Contains(log, "not planned") {
		t.Errorf("what everybody sees first is logged as if something were wrong: %s", log)
	}
}
