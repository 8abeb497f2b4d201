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
