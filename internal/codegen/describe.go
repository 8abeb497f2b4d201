package codegen

import (
	"fmt"
	"strings"
	"text/template"
	"unicode/utf8"

	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/lexer"
)

// sdlFuncs are what the templates of the schema may call: they put things into
// words.
func sdlFuncs() template.FuncMap {
	return template.FuncMap{
		"description":       description,
		"fieldDescription":  fieldDescription,
		"filterDescription": filterDescription,
		"orderDescription":  orderDescription,
		"keysDescription":   keysDescription,
		"refers":            refers,
		"stored":            stored,
		"verbs":             verbs,
		"a":                 article,
		"upperFirst":        upperFirst,
	}
}

// description renders a description that people wrote, as a line of its own
// that ends in a newline; nothing for an empty one.
func description(text, indent string) string {
	text = strings.TrimSpace(text)
	if text == "" {
		return ""
	}
	if !strings.Contains(text, "\n") {
		return indent + quote(text) + "\n"
	}
	text = strings.ReplaceAll(text, `"""`, `\"""`)
	var b strings.Builder
	b.WriteString(indent + `"""` + "\n")
	for line := range strings.SplitSeq(text, "\n") {
		b.WriteString(strings.TrimRight(indent+line, " \t") + "\n")
	}
	b.WriteString(indent + `"""` + "\n")
	return b.String()
}

// fieldDescription describes a field where it is written or named: what it
// means, how references are given, and its default; as a line that ends in a
// newline, or nothing where there is nothing to say.
func fieldDescription(f *Field, indent string) string {
	return description(strings.Join(fieldSentences(f), " "), indent)
}

// orderDescription is fieldDescription where documents are sorted by the field.
func orderDescription(f *Field, indent string) string {
	parts := fieldSentences(f)
	if f.Default != "" {
		parts = append(parts, "A version that it is not stored in is sorted as by null: first, last with DESC.")
	}
	if f.From != nil {
		parts = append(parts, "Documents without it are last, also with DESC.")
	}
	return description(strings.Join(parts, " "), indent)
}

func fieldSentences(f *Field) []string {
	parts := sentences(f.Description)
	if f.IsRef() && f.List {
		parts = append(parts, fmt.Sprintf("Keys of documents of type %s.", f.TypeName()))
	} else if f.IsRef() {
		parts = append(parts, fmt.Sprintf("The key of a document of type %s.", f.TypeName()))
	}
	if f.Immutable {
		parts = append(parts, "A value cannot be changed while the document exists.")
	}
	if f.Default != "" {
		parts = append(parts, fmt.Sprintf("Default: %s.", f.Default))
	}
	return parts
}

// filterDescription describes a condition on a field.
func filterDescription(f *Field, indent string) string {
	text := fmt.Sprintf("Conditions on %s.", f.Name)
	if parts := sentences(f.Description); len(parts) > 0 {
		text = fmt.Sprintf("Conditions on %s: %s", f.Name, parts[0])
	}
	if f.Indexed {
		text += " Indexed: fast in large collections."
	}
	return strings.TrimSuffix(description(text, indent), "\n")
}

// sentences is the description on one line, ending in a full stop; nothing for
// an empty one.
func sentences(text string) []string {
	text = strings.Join(strings.Fields(text), " ")
	if text == "" {
		return nil
	}
	if !strings.ContainsAny(text[len(text)-1:], ".!?…)") {
		text += "."
	}
	return []string{text}
}

func keysDescription(f *Field) string {
	if f.List {
		return fmt.Sprintf("The keys that %s refers to, also of documents that do not exist.", f.Name)
	}
	return fmt.Sprintf("The key that %s refers to, also when no such document exists.", f.Name)
}

func refers(f *Field) string {
	if f.List {
		return "the documents referred to"
	}
	return "the document referred to"
}

// stored says where documents are stored.
func stored(d *Document) string {
	return fmt.Sprintf("%s, stored in the collection %s.", d.Name, d.Collection)
}

// outcome is what the templates need to know about one mutation's results.
type outcome struct{ Name, Singular, Done, Returns, Bang, Draft string }

// verbs are the mutations that make a version of a document, in the order of their names.
func verbs(d *Document) map[string]outcome {
	of := func(done, returns, bang string) outcome {
		return outcome{Name: d.Name, Singular: d.Singular, Done: done, Returns: returns, Bang: bang}
	}
	approved := of("updated, or created, from the draft", "The document as it is now.", "!")
	approved.Draft = "Draft"
	return map[string]outcome{
		"Approve": approved,
		"Create":  of("created", "The new document.", "!"),
		"Update":  of("updated", "The document as it is now.", "!"),
		"Delete":  of("deleted", "The document as it was before.", ""),
		"Restore": of("restored", "The document as it is now.", "!"),
	}
}

// textProblem is the first thing that is wrong with SDL as a text, before it is
// parsed; nil: nothing. The parser replaces what is not UTF-8, so that a stored name
// or a default would not be the one that was written, and hides why it cannot read a word.
func textProblem(src *ast.Source) *Problem {
	for i, line := range strings.Split(src.Input, "\n") {
		if !utf8.ValidString(line) {
			return &Problem{File: src.Name, Line: i + 1, Column: 1, Message: "this line is not UTF-8; save the file as UTF-8"}
		}
	}
	for tokens := lexer.New(src); ; {
		token, err := tokens.ReadToken()
		if err != nil {
			p := problemOf(err)
			return &p
		}
		if token.Kind == lexer.EOF {
			return nil
		}
	}
}
