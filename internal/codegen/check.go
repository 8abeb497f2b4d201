package codegen

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"
	"github.com/vektah/gqlparser/v2/validator"
	"github.com/vektah/gqlparser/v2/validator/core"

	"github.com/asof/asof/internal/scalar/literal"
)

// check looks for what no single field or type can see.
func (r *reader) check() {
	c := r.catalogue
	collections := map[string]*Document{}
	was := map[string]*Document{}
	for _, d := range c.Documents {
		r.checkFields(d.Name, d.Shown(), false)
		r.checkRows(d)
		if other := collections[d.Collection]; other != nil {
			r.problems.add(d.pos, "type %s is stored in the collection %q, and so is %s (%s); every type needs its own", d.Name, d.Collection, other.Name, place(other.pos))
		}
		if strings.HasSuffix(d.Collection, ".drafts") || strings.HasSuffix(d.Collection, ".tags") || strings.HasPrefix(d.Collection, "asof_") {
			r.problems.add(d.pos, "type %s: a collection of the name %q would be one of drafts, of tags, or of the store's own notes; choose another one with @versioned(collection:)", d.Name, d.Collection)
		}
		if other := was[d.Was]; d.Was != "" && (r.defs[d.Was] != nil || other != nil) {
			r.problems.add(d.pos, "type %s: @was(name: %q) is the name of another type, or was, which ids name by it", d.Name, d.Was)
		}
		collections[d.Collection], was[d.Was] = d, d
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
}

// checkFields checks the fields of one type, and what they are stored as.
func (r *reader) checkFields(typ string, fields []*Field, nested bool) {
	stored := map[string]*Field{}
	for _, f := range fields {
		where := typ + "." + f.Name
		switch {
		case f.Name[0] == '_':
			r.problems.add(f.pos, "%s: names of fields begin with a letter; choose another one for GraphQL and keep the stored name with @stored(as: %q)", where, f.Stored)
		case !nested && (strings.EqualFold(f.Name, "id") || strings.EqualFold(f.Name, "key")):
			r.problems.add(f.pos, "%s: every document has id and key already: leave it out; the key is given to create%s. A stored member of that name can be called otherwise, with @stored(as: %q)", where, typ, f.Stored)
		case isReserved(f.Name, nested):
			r.problems.add(f.pos, "%s: the name %s is reserved; choose another one for GraphQL and keep the stored name with @stored(as: %q)", where, f.Name, f.Stored)
		}
		if other := stored[f.Stored]; f.From == nil && other != nil {
			r.problems.add(f.pos, "%s is stored as %q, and so is %s.%s; give one of them another name with @stored(as:)", where, f.Stored, typ, other.Name)
		} else if f.From == nil {
			stored[f.Stored] = f
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

// checkNames looks in the complete schema, which has all that types make, for names that are
// there twice, and for those of fields that Go cannot tell apart.
func (r *reader) checkNames() {
	schema, err := validator.LoadSchema(validator.Prelude, &ast.Source{Input: r.catalogue.SDL})
	if err != nil {
		message, advice := problemOf(err).Message, "Choose another name for what it is made of"
		about, taken := strings.CutPrefix(message, "Cannot redeclare type ")
		pos, name := r.madeBy(about)
		switch {
		case taken:
			advice = "The API has a type of that name already; rename " + name
		case strings.Contains(message, "Query."):
			advice += `, or another plural: @versioned(plural: "…")`
		}
		r.problems.add(pos, "in the generated schema: %s %s", message, advice)
		return
	}
	for _, name := range slices.Sorted(maps.Keys(schema.Types)) {
		first := map[string]string{}
		for _, f := range schema.Types[name].Fields {
			if schema.Types[name].Kind != ast.Object || strings.HasPrefix(f.Name, "__") {
				continue
			}
			key := strings.ToLower(goName(f.Name))
			if other := first[key]; other != "" {
				message := fmt.Sprintf("%s.%s and %[1]s.%[3]s differ only in case or underscores, and would have the same name in Go; rename one", name, f.Name, other)
				pos, _ := r.madeBy(message)
				r.problems.add(pos, "%s", message)
			}
			first[key] = f.Name
		}
	}
}

// madeBy is the place and the name of what was written that a message about generated names is about: of
// what has the longest name in it.
func (r *reader) madeBy(message string) (pos *ast.Position, of string) {
	c, longest := r.catalogue, 0
	pos, of = c.Documents[0].pos, c.Documents[0].Name
	look := func(at *ast.Position, names ...string) {
		for _, name := range names {
			if len(name) > longest && strings.Contains(message, name) {
				longest, pos, of = len(name), at, names[0]
			}
		}
	}
	fields := func(typ string, list []*Field) {
		for _, f := range list {
			look(f.pos, typ+"."+f.Name)
		}
	}
	for _, d := range c.Documents {
		look(d.pos, d.Name, d.Singular, d.Plural)
		fields(d.Name, d.Shown())
	}
	for _, o := range c.Objects {
		look(o.pos, o.Name)
		fields(o.Name, o.Fields)
	}
	for _, e := range c.Enums {
		look(e.pos, e.Name)
	}
	return pos, of
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

// defaultElsewhere matches a line with a default as GraphQL has it, or without the name of the argument.
var defaultElsewhere = regexp.MustCompile(`:\s*[\w\[\]!]+\s*=|@default\(\s*(?:true|false|[^\sa-z)])`)

// advised is what gqlparser says of a text, or, where that is empty, of all, with what to write instead.
func advised(err error, text string, all *ast.SchemaDocument) Problem {
	p := problemOf(err)
	words, lines := strings.Fields(strings.TrimSuffix(p.Message, ".")), strings.Split(text, "\n")
	what, name := strings.Join(words[:len(words)-1], " "), words[len(words)-1]
	var names []string
	switch {
	case words[0] == "Expected" && defaultElsewhere.MatchString(lines[min(p.Line, len(lines))-1]):
		p.Message += "; defaults are written @default(value: 4)"
	case what == "Cannot redeclare type" && scalarKinds()[name] != "":
		p.Message += " It is built in; leave the line out"
	case what == "Undefined type":
		for _, def := range all.Definitions {
			if def.Kind != ast.InputObject && def.Name[0] != '_' {
				names = append(names, def.Name)
			}
		}
	case what == "Undefined directive":
		name = "@" + name
		for _, d := range all.Directives {
			names = append(names, "@"+d.Name)
		}
	}
	if near := core.SuggestionList(name, names); len(near) > 0 {
		p.Message += " Did you mean " + near[0] + "?"
	} else if what == "Undefined type" {
		p.Message += " The scalars are " + strings.Join(slices.Sorted(maps.Keys(scalarKinds())), ", ")
	}
	return p
}

// problemOf is what gqlparser says.
func problemOf(err error) Problem {
	p := Problem{Line: 1, Column: 1, Message: err.Error()}
	if g, ok := errors.AsType[*gqlerror.Error](err); ok {
		p.Message = g.Message
		p.File, _ = g.Extensions["file"].(string)
		if len(g.Locations) > 0 {
			p.Line, p.Column = g.Locations[0].Line, g.Locations[0].Column
		}
	}
	return p
}

// fieldDefault checks @default(value:) against the field's type and keeps it
// as JSON.
func (r *reader) fieldDefault(def *ast.Definition, f *Field, v *ast.Value) {
	where := def.Name + "." + f.Name
	switch f.Kind {
	case kindRef:
		r.problems.add(v.Position, "%s: references cannot have a @default", where)
		return
	case kindObject:
		r.problems.add(v.Position, "%s: nested types cannot have a @default; give one to the fields of %s", where, f.TypeName())
		return
	default: // of any other kind there are literals
	}
	text, problem := defaultJSON(f, v)
	if problem != "" {
		r.problems.add(v.Position, "%s: @default(value:) does not fit %s: %s", where, f.Type(), problem)
		return
	}
	f.Default = text
}

// defaultJSON renders the literal as JSON, or says why it does not fit.
func defaultJSON(f *Field, v *ast.Value) (text, problem string) {
	if !f.List {
		return scalarJSON(f, v)
	}
	if v.Kind != ast.ListValue {
		return "", fmt.Sprintf("%s is not a list", v)
	}
	elems := make([]string, len(v.Children))
	for i, c := range v.Children {
		if c.Value.Kind == ast.NullValue {
			if f.ElemNonNull {
				return "", "its elements cannot be null"
			}
			elems[i] = "null"
			continue
		}
		if elems[i], problem = scalarJSON(f, c.Value); problem != "" {
			return "", problem
		}
	}
	return "[" + strings.Join(elems, ",") + "]", ""
}

func scalarJSON(f *Field, v *ast.Value) (text, problem string) {
	isText := v.Kind == ast.StringValue || v.Kind == ast.BlockValue
	mismatch := fmt.Sprintf("%s is not %s", v, article(f.TypeName()))
	switch f.Kind {
	case kindString, kindID:
		if !isText {
			return "", mismatch
		}
		return quote(v.Raw), ""
	case kindInt:
		n, err := strconv.ParseInt(v.Raw, 10, 32)
		if v.Kind != ast.IntValue || err != nil {
			return "", mismatch + " of 32 bits"
		}
		return strconv.FormatInt(n, 10), ""
	case kindFloat:
		n, err := strconv.ParseFloat(v.Raw, 64)
		if v.Kind != ast.IntValue && v.Kind != ast.FloatValue || err != nil || math.IsInf(n, 0) {
			return "", mismatch
		}
		return v.Raw, ""
	case kindBoolean:
		if v.Kind != ast.BooleanValue {
			return "", mismatch
		}
		return v.Raw, ""
	case kindEnum:
		for _, e := range f.Enum.Values {
			if v.Kind == ast.EnumValue && v.Raw == e.Name {
				return quote(v.Raw), ""
			}
		}
		return "", mismatch + "; " + enumNames(f.Enum)
	case kindDateTime, kindDate, kindDecimal:
		if !isText {
			return "", mismatch + ", which is written in quotes"
		}
		return specialJSON(f.Kind, v.Raw)
	case kindJSON:
		value, err := v.Value(nil)
		if err != nil {
			return "", err.Error()
		}
		b, err := json.Marshal(value)
		if err != nil {
			return "", err.Error()
		}
		return string(b), ""
	default: // kindObject and kindRef have no defaults
		return "", mismatch
	}
}

// specialJSON renders the scalars that GraphQL lacks, in their normal form.
func specialJSON(kind Kind, raw string) (text, problem string) {
	var err error
	switch kind {
	case kindDateTime:
		t, e := literal.DateTime(raw)
		raw, err = t.Format("2006-01-02T15:04:05.999999Z07:00"), e
	case kindDate:
		_, err = literal.Date(raw)
	default:
		_, err = literal.Decimal(raw)
	}
	if err != nil {
		return "", err.Error()
	}
	return quote(raw), ""
}

func enumNames(e *Enum) string {
	names := make([]string, len(e.Values))
	for i, v := range e.Values {
		names[i] = v.Name
	}
	return "its values are " + strings.Join(names, ", ")
}

// article puts "a" or "an" before a type's name.
func article(name string) string {
	lower := strings.ToLower(name)
	begins := func(with string) bool { return strings.HasPrefix(lower, with) }
	vowel := strings.ContainsAny(lower[:1], "aeiou")
	switch {
	case slices.ContainsFunc([]string{"unin", "unim"}, begins), slices.ContainsFunc([]string{"heir", "hono", "hour"}, begins):
		vowel = true
	case slices.ContainsFunc([]string{"eu", "one", "ubi", "uni", "us", "uti"}, begins): // spoken with a consonant
		vowel = false
	}
	if vowel {
		return "an " + name
	}
	return "a " + name
}
