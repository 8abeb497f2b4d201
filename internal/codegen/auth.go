package codegen

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/vektah/gqlparser/v2/ast"

	"github.com/asof/asof/internal/rule"
)

// Auth is who may do what with a type or a field. Nil lists: everybody; empty ones: nobody.
type Auth struct {
	Read, Write, History []string
	Erase                []string // nil: nobody
	Rows                 string   // "": all documents

	pos *ast.Position
}

// auth reads the arguments of @auth.
func (r *reader) auth(args map[string]*ast.Value) Auth {
	var a Auth
	for name, to := range map[string]*[]string{"read": &a.Read, "write": &a.Write, "history": &a.History, "erase": &a.Erase} {
		if v := args[name]; v != nil {
			*to = r.roles(name, v)
		}
	}
	if v := args["rows"]; v != nil {
		a.Rows, a.pos = v.Raw, v.Position
	}
	return a
}

// roles reads a list of strings, or one.
func (r *reader) roles(name string, v *ast.Value) []string {
	children := v.Children
	if v.Kind == ast.StringValue {
		children = ast.ChildValueList{{Value: v}}
	} else if v.Kind != ast.ListValue {
		r.problems.add(v.Position, "@auth(%s:) must be a list of roles, such as [\"editor\"], not %s", name, v)
	}
	roles := []string{}
	for _, child := range children {
		if child.Value.Kind != ast.StringValue || child.Value.Raw == "" {
			r.problems.add(v.Position, "@auth(%s:) has %s; a role is a string in quotes, such as \"editor\"", name, child.Value)
			continue
		}
		roles = append(roles, child.Value.Raw)
	}
	return roles
}

// fieldAuth reads the @auth of a field.
func (r *reader) fieldAuth(def *ast.Definition, f *Field, args map[string]*ast.Value, nested bool) {
	where := def.Name + "." + f.Name
	f.Auth = r.auth(args)
	switch {
	case nested:
		r.problems.add(f.pos, "%s: @auth is only possible on @versioned types and their own fields; write it to the field that holds %s", where, def.Name)
	case args["history"] != nil || args["rows"] != nil || args["erase"] != nil:
		r.problems.add(f.pos, "%s: @auth(history:), @auth(erase:) and @auth(rows:) belong on the type", where)
	case f.Auth.Read != nil && (f.NonNull && !f.List || f.Default != ""):
		r.problems.add(f.pos, "%s: a field with @auth(read:) is absent for others, so it must be nullable and have no @default", where)
	}
}

// checkRows checks the rule of a type, once its fields are known.
func (r *reader) checkRows(d *Document) {
	if d.Auth.Rows == "" {
		return
	}
	fields := map[string]*Field{}
	for _, f := range d.Fields {
		fields[f.Name] = f
	}
	e, err := rule.Parse(d.Auth.Rows)
	if err == nil {
		err = rule.Check(e, func(name string) (rule.Kind, bool, bool) {
			f := fields[name]
			if f == nil {
				return "", false, false
			}
			return f.ruleKind(), f.List, true
		})
	}
	if err != nil {
		r.problems.add(d.Auth.pos, "%s: @auth(rows: %s): %v", d.Name, quote(d.Auth.Rows), err)
	}
}

func (f *Field) ruleKind() rule.Kind {
	switch {
	case f.List && f.Default != "":
		return rule.Other
	case f.Kind == kindString, f.Kind == kindID, f.Kind == kindEnum, f.Kind == kindRef:
		return rule.Text
	case f.Kind == kindInt:
		return rule.Number
	case f.Kind == kindBoolean:
		return rule.Truth
	}
	return rule.Other
}

// Metadata renders it for storage.Type and storage.Field; "" where nothing is said.
func (a Auth) Metadata() string {
	var parts []string
	for _, list := range []struct {
		name  string
		roles []string
	}{{"Read", a.Read}, {"Write", a.Write}, {"History", a.History}, {"Erase", a.Erase}} {
		if list.roles != nil {
			parts = append(parts, fmt.Sprintf("%s: %#v", list.name, list.roles))
		}
	}
	if a.Rows != "" {
		parts = append(parts, "Rows: "+strconv.Quote(a.Rows))
	}
	if parts == nil {
		return ""
	}
	return "Auth: storage.Auth{" + strings.Join(parts, ", ") + "}"
}
