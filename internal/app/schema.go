package app

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/parser"

	"github.com/asof/asof/storage"
)

type schemaFlags struct {
	Diff  schemaDiffFlags  `cmd:"" help:"Say what has changed since an earlier schema, and which stored versions cannot be read any more."`
	List  struct{}         `cmd:"" help:"List the schemas that the store was opened with, by their numbers, and how many versions were written under each."`
	Apply schemaApplyFlags `cmd:"" help:"Bring documents into the form of today's schema."`
}

type schemaDiffFlags struct {
	Old  string `arg:"" optional:"" help:"A file with an earlier schema.graphqls, or the number of a schema. Default: the one that the store was last opened with."`
	Data bool   `help:"Read all that is stored, and count what cannot be read. --no-data compares a file without a store." default:"true" negatable:""`
}

type schemaApplyFlags struct {
	Rewrite bool `help:"Write the documents that have another form than today's (@was, migrations) in that, as new versions. What does not fit the schema in any form stays: asof check says what. It can be stopped and repeated." required:""`
}

// Validate refuses to compare nothing.
func (f schemaDiffFlags) Validate() error {
	if !f.Data && f.Old == "" {
		return errors.New("--no-data needs a file with an earlier schema")
	}
	return nil
}

var schemaNumber = regexp.MustCompile(`^[0-9a-f]{8}$`)

// schemaDiff compares an earlier schema with today's, and today's with what is stored.
func (m *Main) schemaDiff(ctx context.Context) (err error) {
	f, old := &m.flags.Schema.Diff, ""
	if f.Old != "" && !schemaNumber.MatchString(f.Old) {
		text, err := os.ReadFile(f.Old)
		if err != nil {
			return usageError{fmt.Errorf("cannot read the earlier schema: %w", err)}
		}
		old = string(text)
	}
	var store *storage.Store
	if f.Data || old == "" {
		if store, err = m.openStore(ctx); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, store.Engine().Close()) }()
	}
	if old == "" {
		if old, err = m.knownSDL(ctx, store, f.Old); err != nil {
			return err
		}
	}
	lines, err := diffSchemas(old, m.SDL, m.Migrations)
	if err != nil {
		return usageError{fmt.Errorf("the earlier schema: %w", err)}
	}
	if len(lines) == 0 {
		lines = []string{"what documents can hold is the same"}
	}
	for _, line := range lines {
		if _, err := fmt.Fprintln(m.Stdout, line); err != nil {
			return err
		}
	}
	if !f.Data {
		return nil
	}
	unfit, err := m.printMismatches(ctx, store)
	if unfit > 0 && err == nil {
		err = fmt.Errorf("%s does not fit the schema in %s", m.storeName(), plural(unfit, "field"))
	}
	return err
}

// knownSDL returns a schema that the store was opened with; number "": the last one.
func (m *Main) knownSDL(ctx context.Context, store *storage.Store, number string) (string, error) {
	known, err := store.Schemas(ctx)
	if err != nil {
		return "", err
	}
	for _, k := range known {
		if k.SDL != "" && (k.Number == number || number == "" && k.Current) {
			return k.SDL, nil
		}
	}
	if number == "" {
		return "", usageError{fmt.Errorf("no server has opened %s with a schema yet; name a file with the earlier one", m.storeName())}
	}
	return "", usageError{fmt.Errorf("%s was not opened with a schema of the number %s; asof schema list has those that it was", m.storeName(), number)}
}

// schemaList lists the schemas that the store was opened with.
func (m *Main) schemaList(ctx context.Context) (err error) {
	store, err := m.openStore(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Engine().Close()) }()
	known, err := store.Schemas(ctx)
	if err != nil {
		return err
	}
	for _, k := range known {
		text := k.Number + "  not opened with it"
		switch {
		case k.Number == "":
			text = "unknown " + " imported, or written before schemas had numbers"
		case k.SDL != "":
			text = fmt.Sprintf("%s  since %s", k.Number, k.Since)
		}
		if k.Current {
			text += ", the last one"
		}
		if k.Number == fmt.Sprintf("%08x", storage.SchemaNumber(m.SDL)) {
			text += ", this program's"
		}
		if _, err := fmt.Fprintf(m.Stdout, "%s: %s\n", text, plural(k.Versions, "version")); err != nil {
			return err
		}
	}
	return nil
}

// schemaApply rewrites documents in today's form.
func (m *Main) schemaApply(ctx context.Context) (err error) {
	store, err := m.openStore(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Engine().Close()) }()
	for _, t := range store.Types() {
		n, err := store.Rewrite(ctx, t)
		if err != nil && ctx.Err() != nil {
			return interruptedError{fmt.Sprintf("interrupted after %s of %s; the same command goes on", plural(int64(n), "document"), t.Name)}
		}
		if err != nil {
			return fmt.Errorf("rewriting %s: %w", t.Name, err)
		}
		if _, err := fmt.Fprintf(m.Stdout, "%s: rewrote %s\n", t.Name, plural(int64(n), "document")); err != nil {
			return err
		}
	}
	return nil
}

// diffSchemas says what a change of schema.graphqls means for documents that are stored: what differs in what
// they can hold, a line each, in the order of the new schema; types with a migration are named. Whether the files are right is
// for package codegen; the error is that of text that is no SDL.
func diffSchemas(before, after string, migrations map[string]storage.Migration) ([]string, error) {
	var docs [2]*ast.SchemaDocument
	for i, text := range []string{before, after} {
		doc, err := parser.ParseSchema(&ast.Source{Name: "schema.graphqls", Input: text})
		if err != nil {
			return nil, err
		}
		docs[i] = doc
	}
	d := &schemaDiffer{before: docs[0], after: docs[1]}
	d.types()
	for _, name := range slices.Sorted(maps.Keys(migrations)) {
		d.say("%s has a migration, in resolvers/migrations.go: what versions of it read as is what that makes of them", name)
	}
	return d.lines, nil
}

type schemaDiffer struct {
	before, after *ast.SchemaDocument
	lines         []string
}

func (d *schemaDiffer) say(format string, args ...any) {
	d.lines = append(d.lines, fmt.Sprintf(format, args...))
}

func (d *schemaDiffer) types() {
	seen := map[*ast.Definition]bool{}
	for _, is := range d.after.Definitions {
		was := d.before.Definitions.ForName(is.Name)
		if name := directiveArg(is.Directives, "was", "name"); was == nil && name != "" {
			if was = d.before.Definitions.ForName(name); was != nil {
				d.say("%s was %s: its documents, and ids that begin with %[2]s, are found as before", is.Name, name)
			}
		}
		seen[was] = true
		switch name := directiveArg(is.Directives, "was", "name"); {
		case was == nil && name != "":
			d.say("%s is new: no type was called %s, as its @was says", is.Name, name)
		case was == nil && is.Directives.ForName("versioned") != nil:
			d.say("%s is new", is.Name)
		case was == nil: // said of the fields that hold it
		case is.Kind == ast.Enum:
			d.values(was, is)
		default:
			if a, b := directiveArg(was.Directives, "versioned", "collection"), directiveArg(is.Directives, "versioned", "collection"); a != b && a != "" {
				d.say("%s: its documents are stored in the collection %q now; those in %q are not found: write @versioned(collection: %[3]q)", is.Name, b, a)
			}
			d.fields(was, is)
		}
	}
	for _, was := range d.before.Definitions {
		if !seen[was] && was.Directives.ForName("versioned") != nil {
			d.say("%s is gone: its documents stay stored and in exports, and cannot be read", was.Name)
		}
	}
}

// values compares the values of an enum.
func (d *schemaDiffer) values(was, is *ast.Definition) {
	renamed := map[string]string{}
	for _, v := range is.EnumValues {
		name := directiveArg(v.Directives, "was", "name")
		if renamed[name] = v.Name; name != "" && was.EnumValues.ForName(name) == nil && was.EnumValues.ForName(v.Name) == nil {
			d.say("%s.%s is new: no value was called %s, as its @was says", is.Name, v.Name, name)
		}
	}
	for _, v := range was.EnumValues {
		switch to := renamed[v.Name]; {
		case is.EnumValues.ForName(v.Name) != nil:
		case to != "":
			d.say("%s.%s was %s: what is stored reads as the new value", is.Name, to, v.Name)
		default:
			d.say("%s.%s is gone: versions that hold it are an error where it is read; write @was(name: %[2]q) to the value that it is now", is.Name, v.Name)
		}
	}
}

// fields compares the fields of a type, by the names under which they are stored.
func (d *schemaDiffer) fields(was, is *ast.Definition) {
	stored, held := map[string]*ast.FieldDefinition{}, map[string]bool{}
	for _, f := range was.Fields {
		if f.Directives.ForName("copy") == nil { // nothing is stored of what is copied
			stored[storedName(f)], held[storedName(f)] = f, true
		}
	}
	moved := map[string]string{}
	for _, f := range is.Fields {
		if f.Directives.ForName("copy") != nil {
			continue
		}
		name := is.Name + "." + f.Name
		old := stored[storedName(f)]
		delete(stored, storedName(f))
		for _, member := range members(f) {
			if moved[member] = name; !held[member] && (old == nil || !slices.Contains(members(old), member)) {
				d.say("%s: nothing was stored as %q beside it, as its @was(members:) says", name, member)
			}
		}
		switch {
		case old == nil:
			d.added(name, f)
			continue
		case old.Name != f.Name:
			d.say("%s was %s: its values are found as before", name, old.Name)
		}
		d.retyped(name, old.Type, f)
	}
	for _, f := range was.Fields {
		name := storedName(f)
		switch to := moved[name]; {
		case stored[name] == nil:
		case to != "":
			d.say("%s.%s is in %s now: versions in which it is not read as if it were", is.Name, f.Name, to)
		default:
			d.say("%s.%s is gone: its values stay stored and in exports, and cannot be read; if it was renamed, write @was(name: %q) to the new field", is.Name, f.Name, name)
		}
	}
}

func (d *schemaDiffer) added(name string, f *ast.FieldDefinition) {
	reads := "null"
	switch value := directiveArg(f.Directives, "default", "value"); {
	case value != "":
		reads = "its @default"
	case f.Type.Elem != nil:
		reads = "an empty list"
	case f.Type.NonNull:
		reads = "an error: declare it nullable, or give it a @default"
	}
	called := ""
	if stored := storedName(f); stored != f.Name {
		called = fmt.Sprintf(", and nothing was stored under its name, %q", stored)
	}
	d.say("%s is new%s: versions that lack it read as %s", name, called, reads)
}

// retyped compares the type of a field that is there in both.
func (d *schemaDiffer) retyped(name string, was *ast.Type, f *ast.FieldDefinition) {
	is := f.Type
	required := is.NonNull && !was.NonNull && f.Directives.ForName("default") == nil
	switch {
	case was.Name() == "Int" && is.Name() == "Float" && (was.Elem == nil) == (is.Elem == nil):
		d.say("%s is %s, and was %s: what is stored reads as before", name, is, was)
	case was.Elem == nil && is.Elem != nil && directiveArg(f.Directives, "was", "single") == "true":
		d.say("%s is %s, and was %s: what is stored reads as a list of one", name, is, was)
	case was.Elem == nil && is.Elem != nil:
		d.say("%s is %s, and was %s: versions that hold one value are an error where it is read; write @was(single: true)", name, is, was)
	case was.Name() != is.Name() && d.renamed(was.Name(), is.Name()), was.Name() == is.Name() && (was.Elem == nil) == (is.Elem == nil):
	default:
		d.say("%s is %s, and was %s: versions that hold what does not fit are an error where it is read; write a migration", name, is, was)
	}
	if required {
		d.say("%s is required now: versions without it are an error where it is read; give it a @default", name)
	}
}

// renamed reports whether two names may be those of one type: the earlier one is gone, and both are enums, or objects.
func (d *schemaDiffer) renamed(was, is string) bool {
	a, b := d.before.Definitions.ForName(was), d.after.Definitions.ForName(is)
	return a != nil && b != nil && a.Kind == b.Kind
}

// storedName is the name under which a field is stored.
func storedName(f *ast.FieldDefinition) string {
	for _, name := range []string{directiveArg(f.Directives, "stored", "as"), directiveArg(f.Directives, "was", "name")} {
		if name != "" {
			return name
		}
	}
	return f.Name
}

// members are the stored names of what was beside a field, and is in it.
func members(f *ast.FieldDefinition) (names []string) {
	if was := f.Directives.ForName("was"); was != nil {
		if list := was.Arguments.ForName("members"); list != nil {
			for _, child := range list.Value.Children {
				names = append(names, child.Value.Raw)
			}
		}
	}
	return names
}

// directiveArg is the value of a directive's argument; "" where it is not given.
func directiveArg(list ast.DirectiveList, directive, name string) string {
	d := list.ForName(directive)
	if d == nil {
		return ""
	}
	if a := d.Arguments.ForName(name); a != nil {
		if a.Value.Kind == ast.StringValue || a.Value.Kind == ast.BlockValue {
			return a.Value.Raw
		}
		return strings.TrimSpace(a.Value.String())
	}
	return ""
}
