package app

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/asof/asof/internal/fixture/resolvers"
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
	if lines := changedSchema(resolvers.SDL, resolvers.SDL); len(lines) > 0 {
		t.Errorf("the same: %v", lines)
	}
	if lines := changedSchema("", resolvers.SDL); len(lines) != len(declared(resolvers.SDL)) || len(lines) < 20 {
		t.Errorf("all is new: %v", lines)
	}
}
