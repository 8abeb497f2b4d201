package codegen

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/vektah/gqlparser/v2/ast"
)

// declareCopy reads a field with @copy, and adds it to the document's copies. What it is
// copied from is found when all fields are known, see copied.
func (r *reader) declareCopy(d *Document, fd *ast.FieldDefinition) {
	dirs := r.directives(fd.Directives, "a copied field", "copy", "index", "deprecated")
	f := &Field{Name: fd.Name, Stored: fd.Name, Description: fd.Description, NonNull: fd.Type.NonNull, Deprecated: deprecated(dirs), typ: fd.Type, pos: fd.Position}
	_, f.Indexed = dirs["index"]
	if len(fd.Arguments) > 0 {
		r.problems.add(fd.Position, "%s.%s: fields of documents take no arguments", d.Name, fd.Name)
	}
	if from := dirs["copy"]["from"]; from != nil {
		f.From = strings.Split(from.Raw, ".")
		f.Description = strings.Join(append(sentences(f.Description), fmt.Sprintf("It is %s, at the same instant.", from.Raw)), " ")
		d.Copies = append(d.Copies, f)
	}
}

// copied finds what a field is copied from, and returns why it is nothing that can be copied; ""
// where it can.
func (d *Document) copied(f *Field) string {
	wrong := fmt.Sprintf
	if len(f.From) < 2 {
		return wrong("name a reference of %s and a field of the document that it refers to, as in \"license.name\"", d.Name)
	}
	in, fields, copies := d.Name, d.Fields, d.Copies
	var ref, source *Field
	for i, name := range f.From {
		find := func(list []*Field) *Field {
			if at := slices.IndexFunc(list, func(f *Field) bool { return f.Name == name }); at >= 0 {
				return list[at]
			}
			return nil
		}
		source = find(fields)
		switch {
		case source == nil && find(copies) != nil:
			return wrong("%s.%s is a copy itself, and copies of copies, which could be cycles, are not possible; declare a reference to what holds the value", in, name)
		case source == nil:
			return wrong("%s has no field %s", in, name)
		case i == 0 && source.Kind != kindRef:
			return wrong("%s.%s is no reference; begin with a field that has @ref", in, name)
		case source.List:
			return wrong("%s.%s is a list, and what is copied is one value of one document; filter by %s instead, or store the keys that meet your condition", in, name, name)
		case i == 0:
			ref, in, fields, copies = source, source.Ref.Name, source.Ref.Fields, source.Ref.Copies
		case i < len(f.From)-1 && source.Kind != kindObject:
			return wrong("%s.%s has no fields that could be copied: one reference is followed, and then nested types", in, name)
		case i < len(f.From)-1:
			in, fields, copies = source.Object.Name, source.Object.Fields, nil
		}
	}
	switch {
	case source.Kind == kindObject || source.Kind == kindRef || source.Kind == kindJSON:
		return wrong("a %s cannot be copied; copy a scalar or an enum", map[Kind]string{kindObject: "nested type", kindRef: "reference", kindJSON: "JSON value"}[source.Kind])
	case f.typ.Elem != nil || f.TypeName() != source.TypeName():
		return wrong("that is %s, and the field %s; write %s", article(source.TypeName()), f.Type(), source.TypeName())
	case f.NonNull:
		return wrong("a copy must be nullable, since the document may not exist at the instant that is read; write %s", source.TypeName())
	case f.Indexed && !(source.Indexed && ref.Indexed):
		return wrong("documents are found by the indexes of %s.%s and %s.%s: give both @index, or leave it out here", d.Name, ref.Name, in, source.Name)
	}
	f.Kind, f.Enum = source.Kind, source.Enum
	return ""
}

// Shown are the fields as they are read: the document's own, and then the copied ones.
func (d *Document) Shown() []*Field { return slices.Concat(d.Fields, d.Copies) }

// CopyMetadata renders a copied field for storage.Type.
func (f *Field) CopyMetadata() string {
	return fmt.Sprintf("{Name: %q, From: %s}", f.Name, "[]string{"+strings.Join(quoted(f.From), ", ")+"}")
}

func quoted(names []string) []string {
	out := make([]string, len(names))
	for i, name := range names {
		out[i] = strconv.Quote(name)
	}
	return out
}
