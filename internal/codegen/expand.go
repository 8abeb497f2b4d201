// Package codegen turns schema.graphqls, where people name their documents,
// into the whole program around them: the expanded schema, the models and the
// resolvers.
//
// Invariants:
//
//   - [Read] makes SDL of SDL, and does nothing else. Everything that can be wrong
//     with what people wrote is found there, with file and line: the first that GraphQL itself
//     does not allow, or all of the rest at once.
//   - What is generated depends on schema.graphqls alone: running twice gives
//     the same bytes. Nothing is written where it is wrong; a run that ends later, as it is
//     interrupted, is run again.
//   - This package imports neither graph nor resolvers nor storage, and never
//     reads the resolvers, so that broken code there cannot block regenerating.
//   - Templates render and do not decide: whatever differs between two types
//     is computed in Go and has a name.
package codegen

import (
	"embed"
	"fmt"
	"slices"
	"strings"
	"text/template"
	"unicode/utf8"

	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/lexer"
)

//go:embed templates
var templateFiles embed.FS

const expansionHeader = `# Generated from schema.graphqls by "go generate ./..."; do not edit.
# This is the whole schema that clients see.
`

// expand renders the complete schema.
func (c *Catalogue) expand() (string, error) {
	shared := sharedSections()
	w := &expander{}
	w.text(expansionHeader)
	w.section("Reading and writing")
	w.render("roots.tmpl", "schema", c.roots())
	w.render("roots.tmpl", "query", c.roots())
	w.render("roots.tmpl", "mutation", c.roots())
	w.render("roots.tmpl", "subscription", c.roots())
	for _, d := range c.Documents {
		w.section(d.Name)
		for _, part := range []string{"type", "connections", "history", "event", "reading", "writing", "drafts"} {
			w.render("document.tmpl", part, d)
		}
	}
	if len(c.Objects) > 0 {
		w.section("Nested types")
	}
	for _, o := range c.Objects {
		w.render("nested.tmpl", "type", o)
		w.render("nested.tmpl", "input", o)
		if o.Single {
			w.render("nested.tmpl", "patch", o)
		}
		w.render("nested.tmpl", "where", o)
		if o.InList {
			w.render("nested.tmpl", "objectList", o)
		}
	}
	if len(c.Enums) > 0 {
		w.section("Enums")
	}
	for _, e := range c.Enums {
		w.render("nested.tmpl", "enumType", e)
	}
	w.section("Several documents at once")
	w.render("roots.tmpl", "change", c.roots())
	w.text(shared["commits"])
	if slices.ContainsFunc(c.Documents, (*Document).Erasable) {
		w.section("Erasing")
		w.text(shared["erasing"])
	}
	w.section("Documents and their versions")
	w.render("roots.tmpl", "documentType", c.roots())
	w.text(shared["interfaces"], shared["versions"], shared["changes"], shared["events"], shared["drafts"], shared["tags"], shared["pages"])
	w.section("Filters")
	c.filters(w, shared)
	w.section("Scalars")
	w.text(shared["scalars"])
	if w.err != nil {
		return "", w.err
	}
	return w.b.String(), nil
}

// roots is what the templates of the root types need.
func (c *Catalogue) roots() map[string]any {
	return map[string]any{"Documents": c.Documents, "Example": c.Documents[0].Name, "First": c.Documents[0]}
}

// filters renders the filters of the kinds that are used, and no others.
func (c *Catalogue) filters(w *expander, shared map[string]string) {
	used := c.usedFilters()
	for _, name := range []string{"String", "ID"} {
		w.text(shared[name+"Filter"]) // versionInfo and key need them always
	}
	for _, o := range orderedFilters() {
		if used[o.Name+"Filter"] {
			w.render("filters.tmpl", "ordered", o)
		}
	}
	for _, name := range []string{"BooleanFilter", "JSONFilter", "RefFilter", "RefListFilter", "JSONListFilter"} {
		if used[name] {
			w.text(shared[name])
		}
	}
	for _, name := range []string{"String", "ID", "Int", "Float", "Boolean", "DateTime", "Date", "Decimal"} {
		if used[name+"ListFilter"] {
			w.render("filters.tmpl", "list", map[string]string{"Name": name})
		}
	}
	for _, e := range c.Enums {
		if e.Single {
			w.render("filters.tmpl", "enum", map[string]string{"Name": e.Name, "A": article(e.Name)})
		}
		if e.InList {
			w.render("filters.tmpl", "list", map[string]string{"Name": e.Name})
		}
	}
}

// usedFilters are the filter inputs that where inputs refer to.
func (c *Catalogue) usedFilters() map[string]bool {
	used := map[string]bool{"IntFilter": true, "DateTimeFilter": true, "BooleanFilter": true} // of versionInfo and drafts
	for _, d := range c.Documents {
		for _, f := range d.Fields {
			used[f.FilterType()] = true
		}
	}
	for _, o := range c.Objects {
		for _, f := range o.Fields {
			used[f.FilterType()] = true
		}
	}
	return used
}

// orderedFilter describes the filter of a scalar whose values have an order.
type orderedFilter struct{ Name, A, Example, Less, Greater string }

func orderedFilters() []orderedFilter {
	return []orderedFilter{
		{"Int", "an integer", ": {eq: 100}", "Less than", "Greater than"},
		{"Float", "a number", ": {eq: 0.5}", "Less than", "Greater than"},
		{"DateTime", "a moment", `: {eq: \"2024-03-01T12:30:00Z\"}`, "Before", "After"},
		{"Date", "a day", `: {eq: \"2024-03-01\"}`, "Before", "After"},
		{"Decimal", "an exact decimal number", `: {eq: \"19.90\"}; \"1.0\" equals \"1.00\"`, "Less than", "Greater than"},
	}
}

// sharedSections splits templates/shared.graphqls at its "#: name" lines.
func sharedSections() map[string]string {
	raw, err := templateFiles.ReadFile("templates/shared.graphqls")
	if err != nil {
		return nil // embedded files are always there
	}
	sections := map[string]string{}
	for part := range strings.SplitSeq(string(raw), "#: ") {
		if name, text, ok := strings.Cut(part, "\n"); ok {
			sections[strings.TrimSpace(name)] = strings.TrimSpace(text)
		}
	}
	return sections
}

// expander collects the parts of the schema, separated by empty lines.
type expander struct {
	b   strings.Builder
	err error
}

func (w *expander) text(parts ...string) {
	for _, p := range parts {
		if w.b.Len() > 0 {
			w.b.WriteByte('\n')
		}
		w.b.WriteString(strings.TrimSpace(p))
		w.b.WriteByte('\n')
	}
}

// section writes a heading.
func (w *expander) section(title string) {
	w.text("# " + strings.Repeat("-", max(4, 76-len(title))) + " " + title)
}

// render executes one named template of a file.
func (w *expander) render(file, name string, data any) {
	if w.err != nil {
		return
	}
	t, err := template.New(file).Funcs(sdlFuncs()).ParseFS(templateFiles, "templates/"+file)
	if err != nil {
		w.err = fmt.Errorf("template %s: %w", file, err)
		return
	}
	var b strings.Builder
	if err := t.ExecuteTemplate(&b, name, data); err != nil {
		w.err = fmt.Errorf("template %s of %s: %w", name, file, err)
		return
	}
	w.text(b.String())
}

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
		parts = append(parts, fmt.Sprintf("Keys of documents of type %s, not their ids.", f.TypeName()))
	} else if f.IsRef() {
		parts = append(parts, fmt.Sprintf("The key of a document of type %s, not its id.", f.TypeName()))
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
