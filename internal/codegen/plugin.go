package codegen

import (
	"fmt"
	"strings"

	gqlgen "github.com/99designs/gqlgen/codegen"
	"github.com/99designs/gqlgen/codegen/config"
	"github.com/99designs/gqlgen/codegen/templates"
	"github.com/99designs/gqlgen/plugin"
)

// resolverFile is where the generated resolvers are, relative to the directory of
// schema.graphqls.
const resolverFile = "resolvers/versioned.resolvers.go"

// gqlgenPlugin makes gqlgen generate the executor for a catalogue, and the resolvers.
type gqlgenPlugin struct{ catalogue *Catalogue }

var (
	_ plugin.ConfigMutator = (*gqlgenPlugin)(nil)
	_ plugin.CodeGenerator = (*gqlgenPlugin)(nil)
	_ plugin.Plugin        = (*gqlgenPlugin)(nil)
)

// newPlugin returns the plugin for a catalogue.
func newPlugin(c *Catalogue) *gqlgenPlugin { return &gqlgenPlugin{catalogue: c} }

// Name is the plugin's name in messages of gqlgen.
func (p *gqlgenPlugin) Name() string { return "asof" }

// MutateConfig binds the types of the schema to Go.
func (p *gqlgenPlugin) MutateConfig(cfg *config.Config) error {
	bindInputs(cfg.Models, cfg.Schema)
	return nil
}

// GenerateCode writes the resolvers. It also has the fields of an object resolved one after another,
// but for the root fields of a query: they come from bytes in memory, and references
// are loaded for all documents of a list at once, so that goroutines gain nothing.
func (p *gqlgenPlugin) GenerateCode(data *gqlgen.Data) error {
	for _, o := range data.Objects {
		o.DisableConcurrency = o.DisableConcurrency || !o.Root
	}
	objects, err := p.resolverObjects(data)
	if err != nil {
		return err
	}
	text, err := readTemplate("resolvers.go.tmpl")
	if err != nil {
		return err
	}
	return templates.Render(templates.Options{
		PackageName: "resolvers",
		Filename:    resolverFile,

		GeneratedHeader: true,
		Template:        text,
		Data:            map[string]any{"Objects": objects, "Root": p.catalogue.Root},
		Packages:        data.Config.Packages,
	})
}

// resolverObject is a type with fields that need resolvers.
type resolverObject struct {
	*gqlgen.Object
	Receiver string
	Fields   []resolverField
}

// resolverField is a field that needs a resolver, and the expression that it returns.
type resolverField struct {
	*gqlgen.Field
	Body string
}

func (p *gqlgenPlugin) resolverObjects(data *gqlgen.Data) ([]resolverObject, error) {
	bodies := p.catalogue.resolverBodies()
	var out []resolverObject
	for _, o := range data.Objects {
		if !o.HasResolvers() {
			continue
		}
		ro := resolverObject{Object: o, Receiver: templates.LcFirst(o.Name) + "Resolver"}
		for _, f := range o.Fields {
			if !f.IsResolver || strings.HasPrefix(f.Name, "__") {
				continue
			}
			body, ok := bodies[o.Name+"."+f.Name]
			if !ok {
				return nil, fmt.Errorf("%s.%s: package storage or the models do not have what the field is bound to", o.Name, f.Name)
			}
			ro.Fields = append(ro.Fields, resolverField{Field: f, Body: body})
		}
		out = append(out, ro)
	}
	return out, nil
}

// resolverBodies are the expressions that resolvers return, by type and field.
func (c *Catalogue) resolverBodies() map[string]string {
	page := "first, after, last, before"
	bodies := map[string]string{
		"Query.node":      "r.store.Node(ctx, id)",
		"Query.nodes":     "scalar.Nodes(ctx, r.store, ids)",
		"Query.changelog": "r.store.Changelog(ctx, where, " + page + ")",

		"Subscription.changes": "r.store.Changes(ctx, where, since)",
		"Query.changeGroup":    "r.store.ChangeGroup(ctx, id)",
		"Mutation.commit":      "storage.Commit(ctx, r.store, input)",
	}
	for _, d := range c.Documents {
		collection := "r.collections." + goName(d.Plural)
		bodies["Query."+d.Singular] = collection + ".State(ctx, key, asOf, version, draft, tag)"
		bodies["Query."+d.Plural] = collection + ".Page(ctx, where, orderBy, " + page + ", asOf, tag)"
		bodies["Query."+d.Singular+"History"] = collection + ".History(ctx, key)"
		bodies["Subscription."+d.Singular+"Changed"] = collection + ".DocumentChanged(ctx, key, since)"
		bodies["Subscription."+d.Plural+"Changed"] = collection + ".DocumentsChanged(ctx, where, since)"
		bodies["Query."+d.Singular+"Draft"] = collection + ".Draft(ctx, id)"
		bodies["Query."+d.Singular+"Drafts"] = collection + ".Drafts(ctx, where, " + page + ")"
		for _, verb := range []string{"Start", "Save", "Approve", "Discard"} {
			bodies["Mutation."+strings.ToLower(verb)+d.Name+"Draft"] = collection + "." + verb + "Draft(ctx, input)"
		}
		bodies["Mutation.tag"+d.Name+"Version"] = collection + ".TagVersion(ctx, input)"
		bodies["Mutation.untag"+d.Name+"Version"] = collection + ".UntagVersion(ctx, input)"
		for _, verb := range mutationVerbs() {
			bodies["Mutation."+strings.ToLower(verb)+d.Name] = collection + "." + verb + "(ctx, input)"
		}
		bodies["Mutation.erase"+d.Name] = collection + ".Erase(ctx, input)"
		for name, document := range map[string]string{d.Name: "obj.Base()", d.Name + "History": "obj.Document"} {
			bodies[name+".versions"] = collection + ".Versions(ctx, " + document + ", from, to, author, fields, " + page + ")"
			bodies[name+".changelog"] = "r.store.DocumentChangelog(ctx, " + document + ", fields, author, from, to, " + page + ")"
			bodies[name+".blame"] = "r.store.Blame(ctx, " + document + ", fields)"
			bodies[name+".diff"] = "r.store.Diff(ctx, " + document + ", from, to)"
		}
		for _, f := range d.Copies {
			name, _ := accessor(f.Kind)
			bodies[d.Name+"."+f.Name] = fmt.Sprintf("dataloader.Copy(ctx, r.store, obj.Base(), %q, (*storage.Object).Opt%s)", f.Name, name)
		}
		for _, f := range d.Refs() {
			load := "dataloader.Ref"
			if f.List {
				load = "scalar.Refs"
			}
			bodies[d.Name+"."+f.Name] = fmt.Sprintf("%s(ctx, r.collections.%s, obj.Base(), model.%s, asOf)",
				load, goName(f.Ref.Plural), fieldIndex(d.Name, f))
		}
	}
	return bodies
}
