package codegen

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"
	"golang.org/x/tools/go/packages"
)

// check looks for what no single field or type can see: clashes of names, and
// nested types that hold themselves.
func (r *reader) check() {
	c := r.catalogue
	for _, d := range c.Documents {
		r.checkFields(d.Name, d.Shown(), false)
		r.checkKeyNames(d)
		r.checkRows(d)
	}
	for _, o := range c.Objects {
		r.checkFields(o.Name, o.Fields, true)
		r.checkRecursion(o)
		if !o.InList && !o.Single {
			r.problems.add(o.pos, "type %s is not used; add @versioned, or a field that holds it", o.Name)
		}
	}
	for _, e := range c.Enums {
		if !e.InList && !e.Single {
			r.problems.add(e.pos, "enum %s is not used by any field", e.Name)
		}
	}
	r.checkCollections()
	r.checkRootFields()
	r.checkTypeNames()
	r.checkConstants()
}

// checkFields checks the fields of one type, and what they are stored as.
func (r *reader) checkFields(typ string, fields []*Field, nested bool) {
	stored := map[string]*Field{}
	goNames := map[string]*Field{}
	for _, f := range fields {
		where := typ + "." + f.Name
		switch {
		case strings.HasPrefix(f.Name, "__"):
			r.problems.add(f.pos, "%s: names that begin with __ belong to GraphQL", where)
		case isReserved(f.Name, nested):
			r.problems.add(f.pos, "%s: the name %s is reserved; choose another one for GraphQL and keep the stored name with @stored(as: %q)", where, f.Name, f.Stored)
		case slices.Contains(notEnumValues(), f.Name):
			r.problems.add(f.pos, "%s: true, false and null cannot name fields, as the names become enum values; choose another one and keep the stored name with @stored(as: %q)", where, f.Stored)
		case slices.Contains(notResolved(), f.Name), f.IsRef() && !isMethod(f.Name):
			r.problems.add(f.pos, "%s: the executor cannot have a field of the name %s; begin it with a letter, and keep the stored name with @stored(as: %q)", where, f.Name, f.Stored)
		}
		if other := stored[f.Stored]; f.From == nil && other != nil {
			r.problems.add(f.pos, "%s is stored as %q, and so is %s.%s; give one of them another name with @stored(as:)", where, f.Stored, typ, other.Name)
		} else if f.From == nil {
			stored[f.Stored] = f
		}
		if other := goNames[strings.ToLower(goName(f.Name))]; other != nil {
			r.problems.add(f.pos, "%s and %s.%s differ only in case or underscores, and would have the same name in Go; rename one", where, typ, other.Name)
		} else {
			goNames[strings.ToLower(goName(f.Name))] = f
		}
		r.checkIndex(where, f, nested)
	}
	for _, f := range fields {
		r.checkWas(typ, f, stored)
	}
}

func (r *reader) checkIndex(where string, f *Field, nested bool) {
	switch {
	case !f.Indexed:
	case nested:
		r.problems.add(f.pos, "%s: @index is only possible on fields of @versioned types", where)
	case f.Kind == kindObject && f.List:
		r.problems.add(f.pos, "%s: @index on a list of objects is not possible; index a scalar, an enum, a reference, or a list of those", where)
	case f.Kind == kindObject:
		r.problems.add(f.pos, "%s: @index on an object is not possible; index a scalar, an enum, a reference, or a list of those", where)
	case f.Kind == kindJSON:
		r.problems.add(f.pos, "%s: @index on JSON is not possible; declare the part that you look for as a field of its own", where)
	}
}

// checkKeyNames looks for fields that have the name of a generated field of keys.
func (r *reader) checkKeyNames(d *Document) {
	taken := map[string]*Field{}
	for _, f := range d.Shown() {
		taken[strings.ToLower(goName(f.Name))] = f
	}
	for _, f := range d.Refs() {
		switch other := taken[strings.ToLower(goName(f.KeyName))]; {
		case other != nil:
			r.problems.add(other.pos, "%s.%s: the generator adds %s for the keys of %s.%s; rename one of the fields", d.Name, other.Name, f.KeyName, d.Name, f.Name)
		case isReserved(f.KeyName, false):
			r.problems.add(f.pos, "%s.%s: the field of its keys would be called %s, which is reserved; rename it", d.Name, f.Name, f.KeyName)
		default:
			taken[strings.ToLower(goName(f.KeyName))] = f
		}
	}
}

// checkRecursion reports a nested type that holds itself, directly or not.
func (r *reader) checkRecursion(start *Object) {
	var path []string
	seen := map[*Object]bool{}
	var visit func(o *Object) bool
	visit = func(o *Object) bool {
		if seen[o] {
			return false
		}
		seen[o] = true
		for _, f := range o.Fields {
			if f.Object == nil {
				continue
			}
			path = append(path, o.Name+"."+f.Name)
			if f.Object == start || visit(f.Object) {
				return true
			}
			path = path[:len(path)-1]
		}
		return false
	}
	if visit(start) {
		r.problems.add(start.pos, "type %s holds itself through %s; nested types cannot be recursive: use JSON, or a @versioned type and @ref", start.Name, strings.Join(path, ", "))
	}
}

func (r *reader) checkCollections() {
	first := map[string]*Document{}
	for _, d := range r.catalogue.Documents {
		if other := first[d.Collection]; other != nil {
			r.problems.add(d.pos, "type %s is stored in the collection %q, and so is %s (%s); every type needs its own", d.Name, d.Collection, other.Name, place(other.pos))
			continue
		}
		first[d.Collection] = d
	}
}

// checkRootFields looks for two fields of one name, of the root and of the results of
// mutations.
func (r *reader) checkRootFields() {
	taken := map[string]string{"node": "the generated field node", "nodes": "the generated field nodes", "changelog": "the generated field changelog", "changegroup": "the generated field changeGroup"}
	for _, d := range r.catalogue.Documents {
		if other := slices.IndexFunc(writeFields(), func(f string) bool { return strings.EqualFold(goName(f), goName(d.Singular)) }); other >= 0 {
			r.problems.add(d.pos, "type %s: the results of its mutations hold the document as %s, and have a field %s already; rename the type", d.Name, d.Singular, writeFields()[other])
		}
		for _, name := range []string{d.Singular, d.Plural, d.Singular + "History", d.Singular + "Draft", d.Singular + "Drafts"} {
			if slices.Contains(notResolved(), name) || !isMethod(name) {
				r.problems.add(d.pos, "type %s: the executor cannot have a root field of the name %s; begin @versioned(plural:) with a letter", d.Name, name)
			}
			key := strings.ToLower(goName(name)) // resolvers are methods in Go
			switch by := taken[key]; by {
			case "":
				taken[key] = "type " + d.Name
			case "type " + d.Name:
				r.problems.add(d.pos, "type %s: one and many of it would both be the root field %q; name the latter with @versioned(plural: \"all%s\")", d.Name, name, d.Name)
			default:
				r.problems.add(d.pos, "type %s: its root field %q is taken by %s; rename the type, or choose @versioned(plural:)", d.Name, name, by)
			}
		}
	}
}

// checkTypeNames looks for two types of one name among those that were
// written and those that are generated.
func (r *reader) checkTypeNames() {
	owners := map[string]string{}
	for _, name := range sharedTypeNames() {
		owners[name] = "a type that the generator adds"
	}
	c := r.catalogue
	type written struct {
		name string
		pos  *ast.Position
		made []string
	}
	var all []written
	for _, d := range c.Documents {
		all = append(all, written{d.Name, d.pos, documentTypeNames(d.Name)})
	}
	for _, o := range c.Objects {
		all = append(all, written{o.Name, o.pos, objectTypeNames(o.Name)})
	}
	for _, e := range c.Enums {
		all = append(all, written{e.Name, e.pos, enumTypeNames(e.Name)})
	}
	for _, w := range all {
		switch by := owners[w.name]; {
		case strings.HasPrefix(w.name, "__"):
			r.problems.add(w.pos, "type %s: names that begin with __ belong to GraphQL", w.name)
		case w.name[0] < 'A' || w.name[0] > 'Z':
			r.problems.add(w.pos, "type %s: names of types begin with a capital letter", w.name)
		case by != "":
			r.problems.add(w.pos, "type %s has the name of %s; choose another one", w.name, by)
		default:
			owners[w.name] = "type " + w.name
		}
	}
	for _, d := range c.Documents {
		if by := owners[d.Was]; d.Was != "" && by != "" {
			r.problems.add(d.pos, "type %s: @was(name: %q) is the name of %s, which ids name by it", d.Name, d.Was, by)
		} else if d.Was != "" {
			owners[d.Was] = "what type " + d.Name + " was"
		}
	}
	for _, w := range all {
		for _, name := range w.made {
			if by := owners[name]; by != "" {
				r.problems.add(w.pos, "type %s makes the generated type %s, which is also %s; rename one of them", w.name, name, by)
				continue
			}
			owners[name] = "generated for type " + w.name
		}
	}
}

// checkConstants looks for constants of the places of fields that have the name
// of something else in package model.
func (r *reader) checkConstants() {
	owners := map[string]string{}
	own := func(typ string, made []string) {
		for _, name := range append(made, typ) {
			owners[name] = "a name that type " + typ + " has in Go"
		}
	}
	for _, d := range r.catalogue.Documents {
		own(d.Name, goDocumentNames(d.Name))
	}
	for _, o := range r.catalogue.Objects {
		own(o.Name, goObjectNames(o.Name))
	}
	check := func(typ string, fields []*Field) {
		for _, f := range fields {
			name, self := fieldIndex(typ, f), "the constant of a field of type "+typ
			switch by := owners[name]; by {
			case "":
				owners[name] = self
			case self: // fields that differ only in case have been reported
			default:
				r.problems.add(f.pos, "%s.%s has the constant %s in Go, which is also %s; rename one of them", typ, f.Name, name, by)
			}
		}
	}
	for _, d := range r.catalogue.Documents {
		check(d.Name, d.Fields)
	}
	for _, o := range r.catalogue.Objects {
		check(o.Name, o.Fields)
	}
}

// didYouMean suggests a type for an unknown name.
func (r *reader) didYouMean(name string) string {
	best, distance := "", 3
	candidates := make([]string, 0, len(r.defs)+len(scalarKinds()))
	for n := range r.defs {
		candidates = append(candidates, n)
	}
	for n := range scalarKinds() {
		candidates = append(candidates, n)
	}
	slices.Sort(candidates)
	for _, n := range candidates {
		if d := levenshtein.ComputeDistance(strings.ToLower(name), strings.ToLower(n)); d < distance {
			best, distance = n, d
		}
	}
	if best == "" {
		return ""
	}
	return "; did you mean " + best + "?"
}

// Problem is one thing that is wrong with the SDL.
type Problem struct {
	File         string
	Line, Column int // from 1
	Message      string
}

func (p Problem) String() string {
	return fmt.Sprintf("%s:%d:%d: %s", p.File, p.Line, p.Column, p.Message)
}

// Problems is everything that is wrong with the SDL, in the order of the
// files; it is the type of the errors that Read returns.
type Problems []Problem

func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// add records a problem at a position; the same one is recorded once.
func (ps *Problems) add(pos *ast.Position, format string, args ...any) {
	p := Problem{Message: fmt.Sprintf(format, args...)}
	if pos != nil {
		p.Line, p.Column = pos.Line, pos.Column
		if pos.Src != nil {
			p.File = pos.Src.Name
		}
	}
	if !slices.Contains(*ps, p) {
		*ps = append(*ps, p)
	}
}

// err returns the problems as an error, sorted, or nil. Files come in the
// order in which they were given.
func (ps Problems) err(sources []*ast.Source) error {
	if len(ps) == 0 {
		return nil
	}
	order := make(map[string]int, len(sources))
	for i, s := range sources {
		order[s.Name] = i
	}
	slices.SortStableFunc(ps, func(a, b Problem) int {
		return cmp.Or(
			cmp.Compare(order[a.File], order[b.File]),
			cmp.Compare(a.Line, b.Line),
			cmp.Compare(a.Column, b.Column),
			cmp.Compare(a.Message, b.Message),
		)
	})
	return ps
}

// syntaxProblem converts what gqlparser says about SDL that it cannot parse.
func syntaxProblem(src *ast.Source, err error) Problem {
	p := Problem{File: src.Name, Line: 1, Column: 1, Message: err.Error()}
	var g *gqlerror.Error
	if errors.As(err, &g) {
		p.Message = "syntax error: " + g.Message
		if len(g.Locations) > 0 {
			p.Line, p.Column = g.Locations[0].Line, g.Locations[0].Column
		}
	}
	return p
}

// explain adds to an error of gqlgen what does not compile below the models:
// gqlgen looks at types, and says nothing of why one is invalid.
func explain(err error) error {
	const most = 10
	mode := packages.NeedName | packages.NeedTypes | packages.NeedSyntax | packages.NeedImports | packages.NeedDeps
	pkgs, loadErr := packages.Load(&packages.Config{Mode: mode}, "./graph/model")
	if loadErr != nil {
		return fmt.Errorf("%w; the models cannot be loaded: %w", err, loadErr)
	}
	var problems []string
	packages.Visit(pkgs, nil, func(p *packages.Package) {
		for _, e := range p.Errors {
			problems = append(problems, e.Error())
		}
	})
	if len(problems) == 0 {
		return err
	}
	return fmt.Errorf("%w\nThe models do not compile, or what they use does not:\n%s",
		err, strings.Join(problems[:min(len(problems), most)], "\n"))
}
