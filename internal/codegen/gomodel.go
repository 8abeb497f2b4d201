package codegen

import (
	"strconv"
	"strings"
)

// Getter is how a model reads one field: the Go type and the expression.
type Getter struct {
	Field  *Field
	Method string
	Type   string
	Expr   string
}

// accessor is what package storage calls the reading of one kind: the part of
// the method's name, and the Go type.
func accessor(k Kind) (name, goType string) {
	switch k {
	case kindInt:
		return "Int", "int"
	case kindFloat:
		return "Float", "float64"
	case kindBoolean:
		return "Bool", "bool"
	case kindDateTime:
		return "Instant", "driver.Instant"
	default: // everything else is text
		return "String", "string"
	}
}

// fieldGetter is the method of a model that reads a field; of a reference, the
// one that reads its keys. view is the expression for the *storage.Object that
// the model v is a view of.
func fieldGetter(owner, view string, f *Field) Getter {
	g := Getter{Field: f, Method: goName(f.Name)}
	index := fieldIndex(owner, f)
	switch {
	case f.Kind == kindRef && f.List:
		g.Method, g.Type, g.Expr = goName(f.KeyName), "[]string", view+".RefKeys("+index+")"
	case f.Kind == kindRef:
		g.Method, g.Type, g.Expr = goName(f.KeyName), "*string", view+".RefKey("+index+")"
	case f.Kind == kindObject && f.List:
		g.Type, g.Expr = "[]*"+f.TypeName(), "objects["+f.TypeName()+"]("+view+".Objects("+index+"))"
	case f.Kind == kindObject:
		g.Type, g.Expr = "*"+f.TypeName(), "object["+f.TypeName()+"]("+view+".Object("+index+"))"
	case f.Kind == kindJSON && f.List:
		g.Type, g.Expr = "[]json.RawMessage", view+".JSONs("+index+")"
	case f.Kind == kindJSON:
		g.Type, g.Expr = "json.RawMessage", view+".JSON("+index+")"
	default:
		name, goType := accessor(f.Kind)
		switch {
		case f.List && f.ElemNonNull:
			g.Type, g.Expr = "[]"+goType, view+"."+name+"s("+index+")"
		case f.List:
			g.Type, g.Expr = "[]*"+goType, view+".Opt"+name+"s("+index+")"
		case f.NonNull && !f.Erasable:
			g.Type, g.Expr = goType, view+"."+name+"("+index+")"
		default:
			g.Type, g.Expr = "*"+goType, view+".Opt"+name+"("+index+")"
		}
	}
	return g
}

// fieldIndex is the name of the constant for a field's place in the metadata.
func fieldIndex(owner string, f *Field) string { return owner + "Field" + goName(f.Name) }

// Getters are the methods of the document's model.
func (d *Document) Getters() []Getter {
	return getters(d.Name, "v.document.Object", d.Fields)
}

// Getters are the methods of the object's model.
func (o *Object) Getters() []Getter { return getters(o.Name, "v.element", o.Fields) }

func getters(owner, view string, fields []*Field) []Getter {
	out := make([]Getter, len(fields))
	for i, f := range fields {
		out[i] = fieldGetter(owner, view, f)
	}
	return out
}

// Metadata renders the field for record.Type.
func (f *Field) Metadata() string {
	parts := []string{
		"Name: " + strconv.Quote(f.Name), "Stored: " + strconv.Quote(f.Stored), "Kind: record.Kind" + string(f.Kind),
	}
	flag := func(name string, on bool) {
		if on {
			parts = append(parts, name+": true")
		}
	}
	flag("List", f.List)
	flag("NonNull", f.NonNull)
	flag("ElemNonNull", f.ElemNonNull)
	flag("Indexed", f.Indexed)
	flag("Immutable", f.Immutable)
	flag("Erasable", f.Erasable)
	switch f.Kind {
	case kindRef:
		parts = append(parts, "Ref: "+strconv.Quote(f.TypeName()), "Keys: "+strconv.Quote(f.KeyName))
	case kindObject:
		parts = append(parts, "Object: "+f.TypeName()+"Type")
	case kindEnum:
		values := make([]string, len(f.Enum.Values))
		for i, v := range f.Enum.Values {
			values[i] = v.Name
		}
		parts = append(parts, "Enum: []string{"+quotedList(values)+"}")
	default: // scalars have nothing more
	}
	if f.Default != "" {
		parts = append(parts, "Default: json.RawMessage("+strconv.Quote(f.Default)+")")
	}
	if was := f.wasMetadata(); was != "" {
		parts = append(parts, was)
	}
	if auth := f.Auth.Metadata(); auth != "" {
		parts = append(parts, auth)
	}
	return "{" + strings.Join(parts, ", ") + "}"
}
