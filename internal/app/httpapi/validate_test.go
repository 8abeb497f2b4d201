package httpapi

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/vektah/gqlparser/v2"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/parser"
	"github.com/vektah/gqlparser/v2/validator"
	"github.com/vektah/gqlparser/v2/validator/rules"
)

const mergeSDL = `
interface Node { id: ID! same: String alike: String self(n: Int, list: [Int!], by: By): Node! }
interface Named implements Node { id: ID! same: String alike: String self(n: Int, list: [Int!], by: By): Node! name: String any: [Any!] }
type Cat implements Node & Named { id: ID! same: String alike: String self(n: Int, list: [Int!], by: By): Node! name: String any: [Any!] age: Int kind: Kind kitten: Cat friends: [Node!]! }
type Dog implements Node & Named { id: ID! same: String alike: String self(n: Int, list: [Int!], by: By): Node! name: String any: [Any!] age: Float kind: Kind kitten: [Cat!] friends: [Node!]! }
type Stone implements Node { id: ID! same: String alike: String self(n: Int, list: [Int!], by: By): Node! age: Int! kind: Other friends: Cat! }
union Any = Cat | Dog | Stone
enum Kind { A B }
enum Other { A B }
input By { field: Kind down: Boolean }
type Query { node(n: Int): Node named: Named any: Any cat: Cat dog: Dog nodes: [Node!]! }
`

// documentMaker makes documents that are valid but, more or less often, for fields
// that cannot be merged.
type documentMaker struct {
	*rand.Rand
	schema    *ast.Schema
	fragments []string // the text of those that are made
	types     []string // what each is on
	left      int      // selections
	aliases   int      // how many others a field may have
	plain     int      // of how many arguments one is given
}

func (m *documentMaker) document() string {
	m.fragments, m.types, m.left, m.aliases, m.plain = nil, nil, 4+m.IntN(40), m.IntN(3), 1+m.IntN(10)
	for range m.IntN(4) { // each may spread those before it
		on := m.pick("Node", "Named", "Cat", "Dog", "Stone", "Any", "Query")
		text := m.set(on, 2)
		m.fragments = append(m.fragments, fmt.Sprintf(" fragment F%d on %s %s", len(m.fragments), on, text))
		m.types = append(m.types, on)
	}
	text := strings.TrimSuffix(m.set("Query", 4), "}") + " v: node(n: $n) {__typename}"
	all := text + strings.Join(m.fragments, "")
	for i, on := range m.types { // none is unused
		switch {
		case strings.Contains(all, fmt.Sprintf("...F%d", i)):
		case on == "Query":
			text += fmt.Sprintf(" ...F%d", i)
		default:
			text += fmt.Sprintf(" %s: any {...F%d}", m.pick("any", "other"), i)
		}
	}
	return "query ($n: Int) " + text + "}" + strings.Join(m.fragments, "")
}

func (m *documentMaker) pick(texts ...string) string { return texts[m.IntN(len(texts))] }

func (m *documentMaker) set(on string, depth int) string {
	var b strings.Builder
	b.WriteString("{")
	for range 1 + m.IntN(5) {
		if m.left--; m.left < 0 {
			break
		}
		b.WriteString(" " + m.selection(on, depth))
	}
	return b.String() + " __typename}"
}

func (m *documentMaker) selection(on string, depth int) string {
	def := m.schema.Types[on]
	switch kind := m.IntN(10); {
	case kind < 2 && len(m.fragments) > 0:
		if i := m.IntN(len(m.fragments)); m.overlap(on, m.types[i]) {
			return fmt.Sprintf("...F%d", i)
		}
	case kind < 5 && depth > 0:
		if to := m.pick("Node", "Named", "Cat", "Dog", "Stone", "Any"); m.overlap(on, to) {
			return "... on " + to + " " + m.set(to, depth-1)
		}
		return "... " + m.set(on, depth-1)
	}
	if len(def.Fields) == 0 {
		return "__typename"
	}
	f := def.Fields[m.IntN(len(def.Fields))]
	if strings.HasPrefix(f.Name, "__") {
		return "__typename"
	}
	text := f.Name
	if m.IntN(4) == 0 {
		text = string(rune('a'+m.IntN(m.aliases+1))) + ": " + text
	}
	var arguments []string
	for _, a := range f.Arguments {
		if m.IntN(m.plain) == 0 {
			switch a.Name {
			case "n":
				arguments = append(arguments, m.pick("n: 1", "n: 2", "n: null", "n: $n"))
			case "list":
				arguments = append(arguments, m.pick("list: []", "list: [1]", "list: 1", "list: [1, 2]", "list: [2, 1]"))
			default:
				arguments = append(arguments, m.pick("by: {}", "by: {field: A, down: true}", "by: {down: true, field: A}", "by: {field: B}"))
			}
		}
	}
	if len(arguments) > 0 {
		m.Shuffle(len(arguments), func(i, j int) { arguments[i], arguments[j] = arguments[j], arguments[i] })
		text += "(" + strings.Join(arguments, ", ") + ")"
	}
	if !m.schema.Types[f.Type.Name()].IsLeafType() {
		text += " " + m.set(f.Type.Name(), depth-1)
	}
	return text
}

// overlap reports whether an object can be of both types.
func (m *documentMaker) overlap(a, b string) bool {
	for _, one := range m.schema.GetPossibleTypes(m.schema.Types[a]) {
		if slices.Contains(m.schema.GetPossibleTypes(m.schema.Types[b]), one) {
			return true
		}
	}
	return false
}

// Whether the fields of a document can be merged is what gqlparser says, which
// compares them all with each other.
func TestMergingAgreesWithGqlparser(t *testing.T) {
	schema, err := gqlparser.LoadSchema(&ast.Source{Input: mergeSDL})
	if err != nil {
		t.Fatal(err)
	}
	limits := defaultLimits()
	ours := newValidation(schema, &limits)
	m := &documentMaker{Rand: rand.New(rand.NewPCG(20261122, 13)), schema: schema}
	documents := 5_000
	merged, conflicting := 0, 0
	rare := []string{
		`{node {... on Cat {a: same} ... on Dog {a: same} a: alike}}`,
		`{node {... on Cat {a: same} ... on Dog {a: alike}}}`,
		`{node {... on Cat {self {a: same}} ... on Dog {self {a: same}} self {a: alike}}}`,
		`{cat {self(by: {field: A, down: true}) {id} self(by: {down: true, field: A}) {id}}}`,
		`{cat {self(by: {field: A, down: true}) {id} self(by: {down: false, field: A}) {id}}}`,
		`{cat {self(list: [1, 2]) {id} self(list: [1]) {id}}}`,
		`{cat {self(list: [1]) {id} self(list: [1, 2]) {id}}}`,
		`{cat {self(by: {field: A}) {id} self(by: {down: true}) {id}}}`,
	}
	for i := range documents {
		text := ""
		if i < len(rare) {
			text = rare[i]
		} else {
			text = m.document()
		}
		parsed := func() *ast.QueryDocument {
			doc, err := parser.ParseQuery(&ast.Source{Input: text})
			if err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			return doc
		}
		want := validator.ValidateWithRules(schema, parsed(), nil)
		for _, err := range want {
			if err.Rule != rules.OverlappingFieldsCanBeMergedRule.Name {
				t.Fatalf("%s: %v", text, err)
			}
		}
		got := ours.check(t.Context(), parsed(), true)
		switch {
		case (len(want) == 0) != (len(got) == 0):
			t.Fatalf("%s\ngqlparser: %v\nhere: %v", text, want, got)
		case len(want) == 0:
			merged++
		default:
			conflicting++
			if len(got) != 1 || got[0].Rule != want[0].Rule {
				t.Fatalf("%s\ngqlparser: %v\nhere: %v", text, want, got)
			}
		}
	}
	if merged < documents/5 || conflicting < documents/5 {
		t.Errorf("of %d documents %d can be merged, and %d cannot", documents, merged, conflicting)
	}
	t.Logf("%d documents can be merged, %d cannot", merged, conflicting)
}
