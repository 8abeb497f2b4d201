package codegen

import (
	"bytes"
	"cmp"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strings"

	gqlgen "github.com/99designs/gqlgen/codegen"
)

// tuning is what is changed in the executor that gqlgen generates, for what it
// has no option: objects whose fields all come from memory are answered without
// the machinery for concurrent, deferred and intercepted fields. Stored values
// are copied to the answer as they are.
type tuning struct {
	// objects are the functions that answer objects, by name.
	objects []string
	// leaves are new bodies of functions that answer fields without children,
	// by name.
	leaves map[string]string
}

// tuneFor decides what is changed, from what gqlgen is about to generate.
func (c *Catalogue) tuneFor(data *gqlgen.Data) tuning {
	t := tuning{leaves: map[string]string{}}
	stored := c.storedFields()
	for _, o := range data.Objects {
		if o.Root || o.IsReserved() {
			continue
		}
		t.objects = append(t.objects, "_"+o.Name)
		for _, f := range o.Fields {
			if len(f.Args) > 0 || f.IsResolver || f.MethodHasContext || !f.TypeReference.Definition.IsLeafType() {
				continue
			}
			t.leaves["_"+o.Name+"_"+f.Name] = leafBody(o, f, stored[o.Name+"."+f.Name])
		}
	}
	return t
}

// leafBody answers a field without children: from the stored bytes, where an
// index of the metadata is given, and otherwise from what it is bound to.
func leafBody(o *gqlgen.Object, f *gqlgen.Field, stored storedField) string {
	if stored.index != "" {
		return fmt.Sprintf("raw, err := obj.RawField(model.%s)\nreturn scalar.%s(ctx, ec.OperationContext, field, %q, raw, err)",
			stored.index, stored.function, o.Name)
	}
	marshal := "ec." + f.TypeReference.MarshalFunc() + "(ctx, field.Selections, "
	switch {
	case !f.IsMethod():
		return "return " + marshal + "obj." + f.GoFieldName + ")"
	case f.NoErr:
		return "return " + marshal + "obj." + f.GoFieldName + "())"
	default:
		return fmt.Sprintf("res, err := obj.%s()\nif err != nil {\nreturn scalar.Failed(ctx, ec.OperationContext, field, %q, err)\n}\nreturn %sres)",
			f.GoFieldName, o.Name, marshal)
	}
}

// storedField says how a field is copied from the stored document.
type storedField struct{ index, function string }

// storedFields are the fields that can be copied, by type and name.
func (c *Catalogue) storedFields() map[string]storedField {
	out := map[string]storedField{}
	add := func(owner string, fields []*Field) {
		for _, f := range fields {
			switch {
			case f.Kind == KindObject:
			case f.IsRef() && f.List:
				out[owner+"."+f.KeyName] = storedField{fieldIndex(owner, f), "StoredList"}
			case f.IsRef():
				out[owner+"."+f.KeyName] = storedField{fieldIndex(owner, f), "Stored"}
			case f.List && f.NonNull:
				out[owner+"."+f.Name] = storedField{fieldIndex(owner, f), "StoredList"}
			default:
				out[owner+"."+f.Name] = storedField{fieldIndex(owner, f), "Stored"}
			}
		}
	}
	for _, d := range c.Documents {
		add(d.Name, d.Fields)
	}
	for _, o := range c.Objects {
		add(o.Name, o.Fields)
	}
	return out
}

// edit replaces a part of a file.
type edit struct {
	from, to int // bytes
	text     string
}

// apply changes the executor in a file.
func (t tuning) apply(file string) error {
	src, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read %s: %w", file, err)
	}
	src = bytes.ReplaceAll(src, []byte("graphql.MarshalSliceConcurrently("), []byte("scalar.MarshalList("))
	fset := token.NewFileSet()
	parsed, err := parser.ParseFile(fset, file, src, parser.SkipObjectResolution)
	if err != nil {
		return fmt.Errorf("parse %s: %w", file, err)
	}
	functions := map[string]*ast.FuncDecl{}
	for _, d := range parsed.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil {
			functions[f.Name.Name] = f
		}
	}
	offset := func(p token.Pos) int { return fset.Position(p).Offset }
	var edits []edit
	for name, body := range t.leaves {
		f := functions[name]
		if f == nil {
			return changed(file, name)
		}
		edits = append(edits, edit{offset(f.Body.Lbrace) + 1, offset(f.Body.Rbrace), "\n" + body + "\n"})
	}
	for _, name := range t.objects {
		f := functions[name]
		if f == nil {
			return changed(file, name)
		}
		cuts := objectEdits(f, src, offset)
		if len(cuts) != len(concurrentParts()) {
			return changed(file, name)
		}
		edits = append(edits, cuts...)
	}
	out, err := format.Source(splice(src, edits))
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return write(file, out)
}

func changed(file, function string) error {
	return fmt.Errorf("%s: %s is not what gqlgen v0.17.95 generates; adapt internal/codegen/tune.go", file, function)
}

// concurrentParts are the beginnings of the statements of an object's function
// that are only there for concurrent and deferred fields, and what takes their
// place.
func concurrentParts() map[string]string {
	return map[string]string{
		"out := graphql.NewFieldSet(fields)":              "out := scalar.NewFields(fields)",
		"deferredFieldSet := graphql.NewFieldSet(nil)":    "",
		"deferLabelToView := make(map[string]*graphql.Fi": "",
		"out.Dispatch(ctx)":                               "",
		"atomic.AddInt32(&ec.Deferred, ":                  "",
		"ec.ProcessDeferredGroup(":                        "",
	}
}

func objectEdits(f *ast.FuncDecl, src []byte, offset func(token.Pos) int) []edit {
	var edits []edit
	for _, s := range f.Body.List {
		from, to := offset(s.Pos()), offset(s.End())
		for beginning, text := range concurrentParts() {
			if strings.HasPrefix(string(src[from:to]), beginning) {
				edits = append(edits, edit{from, to, text})
			}
		}
	}
	return edits
}

// splice applies edits that do not overlap.
func splice(src []byte, edits []edit) []byte {
	slices.SortFunc(edits, func(a, b edit) int { return cmp.Compare(a.from, b.from) })
	var out bytes.Buffer
	at := 0
	for _, e := range edits {
		out.Write(src[at:e.from])
		out.WriteString(e.text)
		at = e.to
	}
	out.Write(src[at:])
	return out.Bytes()
}
