package codegen

import (
	"strings"
	"testing"

	"github.com/vektah/gqlparser/v2"
	"github.com/vektah/gqlparser/v2/ast"
)

// What GraphQL does not allow, be it here or in what is made of it, is named with its place.
func TestProblemsOfGraphQL(t *testing.T) {
	const twice = "type Project @versioned { a: Int }\n"
	tests := []struct{ name, sdl, want string }{
		{"not UTF-8", "type A @versioned {\r\n  \"é \xff\"\n  a: Int\n}", "2:1: this line is not UTF-8; save the file as UTF-8"},
		{"not UTF-8 in a stored name", "type A @versioned { a: Int @stored(as: \"\xc3\") }", "1:1: this line is not UTF-8; save the file as UTF-8"},
		{"unterminated", "type A @versioned(collection: \"a) {\n  a: Int\n}", "1:36: Unterminated string."},
		{"escape", `type A @versioned(collection: "\q") { a: Int }`, `1:33: Invalid character escape sequence: \q.`},
		{"syntax", "type A @versioned { a: [Int }", "1:29: Expected ], found }"},
		{"unknown type", "type A @versioned {\n  a: Strin\n}", "2:6: Undefined type Strin. Did you mean String?"},
		{"unknown reference", "type A @versioned { a: Tog @ref }", "1:24: Undefined type Tog. The scalars are Boolean, Date, DateTime, Decimal, Float, ID, Int, JSON, String"},
		{"unknown time", "type A @versioned { a: Time }", "1:24: Undefined type Time. The scalars are Boolean, Date, DateTime, Decimal, Float, ID, Int, JSON, String"},
		{"a type that is like another", "type Writer @versioned { a: [Writr] @ref }", "1:30: Undefined type Writr. Did you mean Writer?"},
		{"a scalar that there is", "scalar DateTime type A @versioned { a: DateTime }", "1:8: Cannot redeclare type DateTime. It is built in; leave the line out"},
		{"a default of GraphQL", "type A @versioned {\n  n: [Int!]! = 4\n}", "2:14: Expected Name, found =; defaults are written @default(value: 4)"},
		{"a number alone", "type A @versioned { n: Int @default(4) }", "1:37: Expected Name, found Int; defaults are written @default(value: 4)"},
		{"a name alone", "type A @versioned { n: B @default(ON) }", "1:37: Expected :, found ); defaults are written @default(value: 4)"},
		{"a value of an enum", "type A @versioned { n: Int }\nenum B { C = 1 }", "2:12: Expected Name, found ="},
		{"unknown directive", "type A @versioned { a: Int @indexed }", "1:29: Undefined directive indexed. Did you mean @index?"},
		{"unknown directive of a type", "type A @version { a: Int }", "1:9: Undefined directive version. Did you mean @versioned?"},
		{"misplaced directive", "type A @versioned { a: Int @versioned }", "1:29: Directive versioned is not applicable on FIELD_DEFINITION."},
		{"unknown argument", "type A @versioned(collections: \"a\") { a: Int }", "1:19: Undefined argument collections for directive versioned."},
		{"missing argument", "type A @versioned { a: Int @stored }", "1:29: Argument as for directive stored cannot be null."},
		{"a default that says nothing", "type A @versioned { a: Int @default(value: null) }", "1:29: Argument value for directive default cannot be null."},
		{"copies are not kept", `type A @versioned { a: A @ref b: Int @copy(from: "a.b", keep: LAZY) }`, "1:57: Undefined argument keep for directive copy."},
		{"a member given twice", "type A @versioned { a: JSON @default(value: {b: {c: 1, c: 2}}) }", `1:56: There can be only one input field named "c".`},
		{"declared twice", twice + twice, "2:6: Cannot redeclare type Project."},
		{"a field twice", "type A @versioned { a: Int a: Int }", "1:28: Field A.a can only be defined once."},
		{"no fields", "type A @versioned", "1:6: OBJECT A: must define one or more fields."},
		{"no name for a value", "type A @versioned { a: B } enum B { true }", "1:37: ENUM B: non-enum value true."},
		{"the name of a shared type", twice + "type PageInfo @versioned { a: Int }", "2:6: in the generated schema: Cannot redeclare type PageInfo. The API has a type of that name already; rename PageInfo"},
		{"the name of a generated type", twice + "type ProjectWhere @versioned { a: Int }", "2:6: in the generated schema: Cannot redeclare type ProjectWhere. The API has a type of that name already; rename ProjectWhere"},
		{"Document", "type Document @versioned { a: Int }", "1:6: in the generated schema: Cannot redeclare type DocumentVersionConnection. The API has a type of that name already; rename Document"},
		{"Commit", twice + "type Commit @versioned { a: Int }", "2:6: in the generated schema: Cannot redeclare type CommitConflict. The API has a type of that name already; rename Commit"},
		{"Change", "type Type @versioned { a: Int }\ntype Change @versioned { a: Int }", "2:6: in the generated schema: Cannot redeclare type ChangeEvent. The API has a type of that name already; rename Change"},
		{"a root type", twice + "type Query @versioned { a: Int }", "2:6: Query: only types and enums can be declared here, without interfaces; Query, Mutation, inputs and unions are generated from the @versioned types"},
		{"one field of the root", twice + `type Thing @versioned(plural: "projects", collection: "things") { a: Int }`, `1:6: in the generated schema: Field Query.projects can only be defined once. Choose another name for what it is made of, or another plural: @versioned(plural: "…")`},
		{"a generated field of the root", twice + `type Thing @versioned(plural: "changelog") { a: Int }`, `2:6: in the generated schema: Field Query.changelog can only be defined once. Choose another name for what it is made of, or another plural: @versioned(plural: "…")`},
		{"a field of results", "type Changed @versioned { a: Int }", "1:6: in the generated schema: Field ApproveChangedDraftSuccess.changed can only be defined once. Choose another name for what it is made of"},
		{"keys", "type A @versioned {\n  tags: [A]! @ref\n  tagKeys: [ID!]\n}", "3:3: in the generated schema: Field A.tagKeys can only be defined once. Choose another name for what it is made of"},
		{"no name for an order", "type A @versioned { false: Int }", "1:6: in the generated schema: ENUM AField: non-enum value false. Choose another name for what it is made of"},
		{"alike in Go", "type A @versioned {\n  webUrl: Int\n  web_url: Int\n}", "3:3: A.web_url and A.webUrl differ only in case or underscores, and would have the same name in Go; rename one"},
		{"results alike in Go", "type ClientMutationID @versioned { a: Int }", "1:6: ApproveClientMutationIDDraftSuccess.clientMutationId and ApproveClientMutationIDDraftSuccess.clientMutationID differ only in case or underscores, and would have the same name in Go; rename one"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := Read(&ast.Source{Name: "a.graphqls", Input: test.sdl})
			if err == nil {
				t.Fatal("no error")
			}
			if first, _, _ := strings.Cut(err.Error(), "\n"); first != "a.graphqls:"+test.want {
				t.Errorf("the error is\n%s\nnot\n%s", err, test.want)
			}
		})
	}
}

// What can be written in a string is kept as it is, also where it comes back in
// the schema.
func TestTextsAreKept(t *testing.T) {
	for _, written := range []string{
		`a\"b…`, `back\\slash`, `\\ud83d`, `\ud83d\udca1 💡`, `\ufffd �`, `two\nlines`, `{curly} <b>&`, `\"\"\"`,
	} {
		t.Run(written, func(t *testing.T) {
			sdl := `"Kept: ` + written + `" type A @versioned(collection: "` + written + `") { s: String @stored(as: "` + written + `") @default(value: "` + written + `") }`
			text, err := expand(&ast.Source{Name: "a.graphqls", Input: sdl})
			if err != nil {
				t.Fatal(err)
			}
			schema, err := gqlparser.LoadSchema(&ast.Source{Name: "expanded", Input: text})
			if err != nil {
				t.Fatal(err)
			}
			catalogue, err := Read(&ast.Source{Name: "a.graphqls", Input: sdl})
			if err != nil {
				t.Fatal(err)
			}
			want := catalogue.Documents[0].Collection
			got := schema.Types["DocumentType"].EnumValues[0].Description
			if got != "A, stored in the collection "+want+"." {
				t.Errorf("the collection %q is described as %q", want, got)
			}
			if got := schema.Types["A"].Description; got != "Kept: "+want {
				t.Errorf("the description of %q is %q", want, got)
			}
			if strings.Contains(want, "�") != strings.Contains(written, "�") {
				t.Errorf("%s was replaced: %q", written, want)
			}
			if stored := catalogue.Documents[0].Fields[0].Stored; stored != want {
				t.Errorf("the stored name is %q, the collection %q", stored, want)
			}
		})
	}
}
