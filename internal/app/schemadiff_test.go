package app

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/asof/asof/internal/fixture/resolvers"
	"github.com/asof/asof/storage/mongostore"
)

func TestChangedSchema(t *testing.T) {
	const before = `type Person @versioned(collection: "people") {
  name: String
  nick: String
  age: Int
}
type Gone @versioned(collection: "gone") {
  name: String
}
enum State {
  ON
  OFF
}
`
	const after = `type Person @versioned(collection: "people") {
  name: String
  called: String @stored(as: "nick")
  age: Float
}
enum State {
  ON
  OUT @was(name: "OFF")
}
`
	const stored = "type A @versioned(collection: \"as\") {\n  n: Int! @default(value: \"1\")\n  s: String @stored(as: \"@default\") @default(value: \"\\\"x\\\"\")\n  e: [State!] @default(value: \"[\\\"ON\\\",\\\"OUT\\\"]\")\n}\n"
	if diff := cmp.Diff([]string{`+ A.e: [State!] @default(value: [ON,OUT])`, `+ A.n: Int! @default(value: 1)`, `+ A.s: String @stored(as: "@default") @default(value: "x")`, `+ type A @versioned(collection: "as")`}, changedSchema("", stored)); diff != "" {
		t.Error(diff)
	}
	for after, want := range map[string][]string{
		"  name: String\n  nick: Int":                            nil,
		"  name: String\n  called: String":                       {`if Person.nick was renamed to called, declare called with @was(name: "nick")`},
		"  name: String\n  called: String @stored(as: \"nick\")": nil, // it is so already
		"  called: String\n  known: String":                      nil,
	} {
		got := renamedFields(changedSchema("type Person {\n  name: String\n  nick: String\n}\n", "type Person {\n"+after+"\n}\n"))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", after, diff)
		}
	}
	want := `- Gone.name: String
+ Person.age: Float
- Person.age: Int
+ Person.called: String @stored(as: "nick")
- Person.nick: String
- State.OFF
+ State.OUT @was(name: "OFF")
- type Gone @versioned(collection: "gone")`
	if diff := cmp.Diff(strings.Split(want, "\n"), changedSchema(before, after)); diff != "" {
		t.Error(diff)
	}
	for store, want := range map[string]string{
		"sqlite:./asof.db":            "asof schema diff 90d186de (stop the server first)",
		"sqlite:b.db":                 "asof schema diff 90d186de --store sqlite:b.db (stop the server first)",
		"mongodb://me:secret@host/db": "asof schema diff 90d186de --store " + mongostore.Name("mongodb://me:secret@host/db"),
	} {
		m := &Main{}
		m.flags.Store = store
		if got := m.diffCommand("90d186de"); got != want || strings.Contains(got, "secret") {
			t.Errorf("%s: %s", store, got)
		}
	}
	if lines := changedSchema(resolvers.SDL, resolvers.SDL); len(lines) > 0 {
		t.Errorf("the same: %v", lines)
	}
	if lines := changedSchema("", resolvers.SDL); len(lines) != len(declared(resolvers.SDL)) || len(lines) < 20 {
		t.Errorf("all is new: %v", lines)
	}
}
