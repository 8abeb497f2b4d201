package codegen

import (
	"strings"

	"github.com/99designs/gqlgen/codegen/config"
	"github.com/vektah/gqlparser/v2/ast"
)

// Import paths of what generated code uses.
const (
	modulePath  = "github.com/asof/asof/"
	storagePath = modulePath + "storage."
	scalarPath  = modulePath + "internal/scalar."
	gqlgenPath  = "github.com/99designs/gqlgen/graphql."
)

// bindings maps the names of all GraphQL types to Go.
func (c *Catalogue) bindings() config.TypeMap {
	m := config.TypeMap{}
	modelPath := c.modelPath()
	bind := func(model string, names ...string) {
		for _, n := range names {
			m[n] = config.TypeMapEntry{Model: config.StringList{model}}
		}
	}
	for _, s := range []string{"String", "ID", "Int", "Float", "DateTime", "Date", "Decimal", "JSON"} {
		bind(scalarPath+s, s)
	}
	bind(gqlgenPath+"Boolean", "Boolean")
	bind(storagePath+"Node", "Node")
	bind(storagePath+"AnyDocument", "Document")
	bind(modelPath+"Result", "CommitResult")
	bind(modelPath+"CommitInput", "CommitInput")
	for _, n := range []string{
		"VersionInfo", "Actor", "VersionRef", "FieldChange", "ChangeOp", "FieldChangeConnection",
		"FieldChangeEdge", "FieldBlame", "DocumentDiff", "ChangelogWhere", "EventKind", "Since", "PageInfo", "VersionConflict",
		"CommitSuccess", "CommitConflict", "ChangeResult", "ChangeGroup", "DocumentVersionConnection", "DocumentVersionEdge",
		"EraseInput", "VersionRange", "StartDraftInput", "ApproveDraftInput", "DiscardDraftInput", "DiscardDraftSuccess", "DraftProblem", "DraftSave", "DraftSaveConnection", "DraftSaveEdge",
		"VersionTag", "TagVersionInput", "UntagVersionInput", "VersionTagSuccess",
	} {
		bind(storagePath+n, n)
	}
	m["Actor"] = config.TypeMapEntry{Model: m["Actor"].Model, Fields: map[string]config.TypeMapField{"name": {FieldName: "LatestName"}}}
	for _, n := range []string{"Operation", "OrderDirection", "ConflictPolicy"} {
		bind(scalarPath+n, n)
	}
	bind(storagePath+"Event", "ChangeEvent")
	bind(gqlgenPath+"String", "DocumentType")
	for _, e := range c.Enums {
		bind(gqlgenPath+"String", e.Name)
	}
	for _, o := range c.Objects {
		bind(modelPath+o.Name, o.Name)
		m[o.Name] = withFields(m[o.Name], o.Fields)
	}
	change := map[string]config.TypeMapField{}
	for _, d := range c.Documents {
		c.bindDocument(m, bind, d)
		for _, verb := range mutationVerbs() {
			change[strings.ToLower(verb)+d.Name] = config.TypeMapField{FieldName: verb + d.Name}
		}
		change["approve"+d.Name+"Draft"] = config.TypeMapField{FieldName: "Approve" + d.Name + "Draft"}
	}
	m["ChangeInput"] = config.TypeMapEntry{Model: config.StringList{modelPath + "ChangeInput"}, Fields: change}
	return m
}

// modelPath is the import path of the models, as bindings begin.
func (c *Catalogue) modelPath() string { return c.Root + "/graph/model." }

func (c *Catalogue) bindDocument(m config.TypeMap, bind func(string, ...string), d *Document) {
	n, modelPath := d.Name, c.modelPath()
	bind(modelPath+n, n)
	m[n] = withFields(m[n], d.Fields)
	for _, f := range d.Copies {
		m[n].Fields[f.Name] = config.TypeMapField{Resolver: true}
	}
	for _, name := range []string{"versions", "changelog", "blame", "diff"} {
		m[n].Fields[name] = config.TypeMapField{Resolver: true}
	}
	bind(modelPath+"Result", "Save"+n+"DraftResult", "Approve"+n+"DraftResult")
	for _, name := range []string{
		n + "Draft", n + "DraftConnection", n + "DraftEdge", n + "DraftSuccess", n + "DraftConflict",
		n + "Connection", n + "Edge", n + "VersionConnection", n + "VersionEdge", n + "Event", n + "Conflict",
	} {
		bind(modelPath+name, name)
	}
	history := config.TypeMapEntry{Model: config.StringList{modelPath + n + "History"}, Fields: map[string]config.TypeMapField{}}
	for _, name := range []string{"versions", "changelog", "blame", "diff"} {
		history.Fields[name] = config.TypeMapField{Resolver: true}
	}
	m[n+"History"] = history
	bind(gqlgenPath+"String", n+"Field", n+"OrderField")
	bind(storagePath+"OrderInput", n+"Order")
	success := config.TypeMapEntry{
		Model:  config.StringList{modelPath + n + "Success"},
		Fields: map[string]config.TypeMapField{d.Singular: {FieldName: "Document"}},
	}
	m["Approve"+n+"DraftSuccess"] = success
	if d.Erasable() {
		bind(modelPath+"Result", "Erase"+n+"Result")
		m["Erase"+n+"Success"] = success
	}
	for _, verb := range mutationVerbs() {
		bind(storagePath+verb+"Input", verb+n+"Input")
		bind(modelPath+"Result", verb+n+"Result")
		m[verb+n+"Success"] = success
	}
}

// withFields says which method of the model reads which field.
func withFields(e config.TypeMapEntry, fields []*Field) config.TypeMapEntry {
	e.Fields = map[string]config.TypeMapField{}
	for _, f := range fields {
		if f.IsRef() {
			e.Fields[f.Name] = config.TypeMapField{Resolver: true}
			e.Fields[f.KeyName] = config.TypeMapField{FieldName: goName(f.KeyName)}
			continue
		}
		e.Fields[f.Name] = config.TypeMapField{FieldName: goName(f.Name)}
	}
	return e
}

// bindInputs makes every input object that has no Go type of its own opaque
// for the executor, as a scalar is: it is handed to package storage as a
// map[string]any, without generated code per field. Only what the executor is
// generated from changes; clients see the input as it is.
func bindInputs(models config.TypeMap, schema *ast.Schema) {
	for name, def := range schema.Types {
		if def.Kind != ast.InputObject {
			continue
		}
		if _, bound := models[name]; bound {
			continue
		}
		def.Kind, def.Fields, def.Directives = ast.Scalar, nil, nil
		models[name] = config.TypeMapEntry{Model: config.StringList{scalarPath + "Input"}}
	}
}
