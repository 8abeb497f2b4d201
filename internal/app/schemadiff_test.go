package app

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/asof/asof/storage"
)

func TestDiffSchemas(t *testing.T) {
	const before = `type Person @versioned(collection: "people") {
  name: String  age: Int  phones: String  notes: String  nick: String  town: String  size: Int  state: State  first: Old  other: Int!
  license: License @ref  licenseName: String @copy(from: "license.name")
}
type Gone @versioned { name: String }
type Old { x: Int }
enum State { ON OFF }`
	const after = `type Person @versioned(collection: "persons") {
  name: String!  age: Float  phones: [String!] @was(single: true)  notes: [String!]  called: String @stored(as: "nick")  home: Home @was(members: ["town"])
  size: String  state: State  first: New  other: Int
  a: Int  b: Int! @default(value: 1)  c: [Int!]!  d: Int!
  license: License @ref  called2: String @was(name: "nik")  work: Home @was(members: ["city"])  ownerName: String @copy(from: "license.name")
}
type Home { town: String }
type New { x: Int  y: Int! }
enum State { ON  OUT @was(name: "OFF")  MAYBE @was(name: "PERHAPS") }
type Note @versioned @was(name: "Remark") { text: String }`
	lines, err := diffSchemas(before, after, map[string]storage.Migration{"Person": nil})
	if err != nil {
		t.Fatal(err)
	}
	want := `Person: its documents are stored in the collection "persons" now; those in "people" are not found: write @versioned(collection: "people")
Person.name is required now: versions without it are an error where it is read; give it a @default
Person.age is Float, and was Int: what is stored reads as before
Person.phones is [String!], and was String: what is stored reads as a list of one
Person.notes is [String!], and was String: versions that hold one value are an error where it is read; write @was(single: true)
Person.called was nick: its values are found as before
Person.home is new: versions that lack it read as null
Person.size is String, and was Int: versions that hold what does not fit are an error where it is read; write a migration
Person.a is new: versions that lack it read as null
Person.b is new: versions that lack it read as its @default
Person.c is new: versions that lack it read as an empty list
Person.d is new: versions that lack it read as an error: declare it nullable, or give it a @default
Person.called2 is new, and nothing was stored under its name, "nik": versions that lack it read as null
Person.work: nothing was stored as "city" beside it, as its @was(members:) says
Person.work is new: versions that lack it read as null
Person.town is in Person.home now: versions in which it is not read as if it were
State.MAYBE is new: no value was called PERHAPS, as its @was says
State.OUT was OFF: what is stored reads as the new value
Note is new: no type was called Remark, as its @was says
Gone is gone: its documents stay stored and in exports, and cannot be read
Person has a migration, in resolvers/migrations.go: what versions of it read as is what that makes of them`
	if diff := cmp.Diff(strings.Split(want, "\n"), lines); diff != "" {
		t.Error(diff)
	}
	if lines, err := diffSchemas(after, after, nil); err != nil || lines != nil {
		t.Errorf("the same: %v, %v", lines, err)
	}
}
