package codegen

import (
	"strings"
	"testing"

	"github.com/vektah/gqlparser/v2"
	"github.com/vektah/gqlparser/v2/ast"
)

func TestTextProblems(t *testing.T) {
	tests := []struct{ name, sdl, want string }{
		{"not UTF-8 in a description", "type A @versioned {\r\n  \"é \xff\"\n  a: Int\n}", "a.graphqls:2:6: the byte 0xff is not UTF-8; save the file as UTF-8"},
		{"not UTF-8 in a stored name", "type A @versioned { a: Int @stored(as: \"\xc3\") }", "a.graphqls:1:41: the byte 0xc3 is not UTF-8; save the file as UTF-8"},
		{"not UTF-8 in a comment", "# \xe9\ntype A @versioned { a: Int }", "a.graphqls:1:3: the byte 0xe9 is not UTF-8; save the file as UTF-8"},
		{"letter in a name", "type A @versioned {\n  é: Int }", `a.graphqls:2:3: syntax error: the character "é" can only stand in a string or a comment; names have the letters A to Z, a to z, digits and _`},
		{
			"unterminated", "type A @versioned(collection: \"a) {\n  a: Int\n}",
			`a.graphqls:1:31: syntax error: the string that begins here does not end on its line; close it with ", or begin and end it with """ where it has several lines`,
		},
		{
			"unterminated block", "type A @versioned {\n  \"\"\"\n  About \"a\".\n  a: Int\n}\n",
			`a.graphqls:2:3: syntax error: the string that begins here does not end; close it with """`,
		},
		{"unterminated at the end", `type A @versioned { a: Int @deprecated(reason: "`, `a.graphqls:1:48: syntax error: the string that begins here does not end on its line; close it with ", or begin and end it with """ where it has several lines`},
		{"escape", `type A @versioned(collection: "\q") { a: Int }`, `a.graphqls:1:33: syntax error: Invalid character escape sequence: \q.`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := Read(&ast.Source{Name: "a.graphqls", Input: test.sdl})
			if err == nil {
				t.Fatal("no error")
			}
			if err.Error() != test.want {
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
