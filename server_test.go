package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vektah/gqlparser/v2/ast"

	"github.com/asof/asof/graph/model"
	"github.com/asof/asof/internal/app"
	"github.com/asof/asof/internal/codegen"
	"github.com/asof/asof/resolvers"
	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/record"
	"github.com/asof/asof/storage/sqlitestore"
)

// What is generated is of today's schema.graphqls.
func TestGenerated(t *testing.T) {
	file := func(name string) string {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	catalogue, err := codegen.Read(&ast.Source{Name: "schema.graphqls", Input: file("schema.graphqls")})
	if err != nil {
		t.Fatal(err)
	}
	if catalogue.SDL != file("graph/versioned.graphqls") {
		t.Error("schema.graphqls has changed: run go generate ./...")
	}
}

// A document of each type in schema.graphqls, with a value in every field, is
// created, updated and deleted, and is afterwards still there as it was at first.
// The values are made from what the schema declares, whatever that is.
func TestEveryType(t *testing.T) {
	for _, typ := range model.Types { // nobody is known here: who may write is of no concern
		typ.Auth = record.Auth{}
		for i := range typ.Fields {
			typ.Fields[i].Auth = record.Auth{}
		}
	}
	for _, executor := range []string{"plan", "gqlgen"} {
		engine, err := sqlitestore.Open(t.Context(), filepath.Join(t.TempDir(), "asof.db"),
			sqlitestore.Options{Collections: storage.CollectionsOf(model.Types), Sync: sqlitestore.SyncOff})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = engine.Close() })
		m := app.Main{
			Types: model.Types, Schema: resolvers.NewSchema,
			Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: t.Output(), Now: time.Now,
		}
		handler, err := m.Handler(engine, "--log-level=warn", "--executor="+executor)
		if err != nil {
			t.Fatal(err)
		}
		for _, typ := range model.Types {
			t.Run(executor+"/"+typ.Name, func(t *testing.T) { live(t, handler, typ) })
		}
	}
}

// live creates, updates and deletes a document of a type, and reads it in between.
func live(t *testing.T, handler http.Handler, typ *record.Type) {
	t.Helper()
	write := func(verb string, input map[string]any) {
		t.Helper()
		input["key"] = "a"
		name := verb + typ.Name
		title := strings.ToUpper(verb[:1]) + verb[1:] + typ.Name
		got := ask(t, handler, fmt.Sprintf("mutation ($input: %sInput!) { %s(input: $input) { __typename } }", title, name), map[string]any{"input": input})
		if diff := cmp.Diff(any(map[string]any{"__typename": title + "Success"}), got[name]); diff != "" {
			t.Fatalf("%s (-want +got):\n%s", name, diff)
		}
	}
	// read returns the document, and apart from that its version and when that was
	// recorded.
	read := func(asOf any) (fields map[string]any, version, at any) {
		t.Helper()
		got := ask(t, handler, fmt.Sprintf("query ($asOf: DateTime) { %s(key: \"a\", asOf: $asOf) { version versionInfo { recordedAt } %s } }",
			typ.Singular, selection(typ.Fields)), map[string]any{"asOf": asOf})
		fields, ok := got[typ.Singular].(map[string]any)
		if !ok {
			return nil, nil, nil
		}
		version, at = fields["version"], fields["versionInfo"].(map[string]any)["recordedAt"]
		delete(fields, "version")
		delete(fields, "versionInfo")
		return fields, version, at
	}
	first, then := values(typ.Fields, 1), values(typ.Fields, 2)
	for _, f := range typ.Fields {
		if f.Immutable {
			then[f.Name] = first[f.Name]
		}
	}

	write("create", map[string]any{"data": first})
	got, version, created := read(nil)
	if diff := cmp.Diff(answered(typ.Fields, first), got); diff != "" {
		t.Errorf("created (-want +got):\n%s", diff)
	}
	write("update", map[string]any{"expectedVersion": version, "patch": then})
	got, version, _ = read(nil)
	if diff := cmp.Diff(answered(typ.Fields, then), got); diff != "" {
		t.Errorf("updated (-want +got):\n%s", diff)
	}
	write("delete", map[string]any{"expectedVersion": version})
	if got, _, _ = read(nil); got != nil {
		t.Errorf("deleted, and read: %v", got)
	}
	got, _, _ = read(created)
	if diff := cmp.Diff(answered(typ.Fields, first), got); diff != "" {
		t.Errorf("as it was (-want +got):\n%s", diff)
	}
}

// ask sends a request and returns the data of its answer, which has no errors.
func ask(t *testing.T, handler http.Handler, query string, variables map[string]any) map[string]any {
	t.Helper()
	body, err := json.Marshal(map[string]any{"query": query, "variables": variables})
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/graphql", bytes.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	var answer struct {
		Data   map[string]any
		Errors []any
	}
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || len(answer.Errors) > 0 {
		t.Fatalf("%s %s: %v: %s", query, body, err, w.Body)
	}
	return answer.Data
}

// selection asks for all fields; of references, for their keys.
func selection(fields []record.Field) string {
	var names []string
	for _, f := range fields {
		switch f.Kind {
		case record.KindRef:
			names = append(names, f.Keys)
		case record.KindObject:
			names = append(names, f.Name+" { "+selection(f.Object.Fields)+" }")
		default:
			names = append(names, f.Name)
		}
	}
	return strings.Join(names, " ")
}

// values are the nth values of fields, as they are sent.
func values(fields []record.Field, n int) map[string]any {
	all := make(map[string]any, len(fields))
	for _, f := range fields {
		all[f.Name] = value(f, n)
		if f.List {
			all[f.Name] = []any{value(f, n), value(f, n+1)}
		}
	}
	return all
}

// value is the nth value of a field, or of an element of its list, as JSON reads it.
func value(f record.Field, n int) any {
	switch f.Kind {
	case record.KindInt, record.KindFloat:
		return float64(n)
	case record.KindBoolean:
		return n%2 == 1
	case record.KindDateTime:
		return fmt.Sprintf("2024-03-%02dT12:30:00Z", n)
	case record.KindDate:
		return fmt.Sprintf("2024-03-%02d", n)
	case record.KindDecimal:
		return fmt.Sprintf("%d.5", n)
	case record.KindJSON:
		return map[string]any{"n": []any{float64(n), nil}}
	case record.KindEnum:
		return f.Enum[n%len(f.Enum)]
	case record.KindObject:
		return values(f.Object.Fields, n)
	default: // text, and keys
		return fmt.Sprint("text ", n)
	}
}

// answered is what was sent as it is read.
func answered(fields []record.Field, sent map[string]any) map[string]any {
	read := make(map[string]any, len(sent))
	for _, f := range fields {
		if f.Kind == record.KindRef {
			read[f.Keys] = sent[f.Name]
		} else {
			read[f.Name] = sent[f.Name]
		}
	}
	return read
}
