package codegen

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/sosodev/duration"
	"github.com/vektah/gqlparser/v2/ast"
)

// directiveArg says what a directive's argument must be.
type directiveArg struct {
	name     string
	kinds    []ast.ValueKind // empty: any literal
	required bool
}

// directiveSpec says what the directive's arguments are and where it may stand.
type directiveSpec struct {
	on   string // "a type", "a field"
	args []directiveArg
}

// directiveSpecs are the directives that schema.graphqls may use.
func directiveSpecs() map[string]directiveSpec {
	text := []ast.ValueKind{ast.StringValue, ast.BlockValue}
	return map[string]directiveSpec{
		"versioned": {on: onType, args: []directiveArg{
			{name: "collection", kinds: text}, {name: "plural", kinds: text}, {name: "keep"},
		}},
		"ref":    {on: onField},
		"copy":   {on: "a field of a @versioned type", args: []directiveArg{{name: "from", kinds: text, required: true}}},
		"index":  {on: onField},
		"stored": {on: onField, args: []directiveArg{{name: "as", kinds: text, required: true}}},
		"was": {on: "a @versioned type, a field or an enum value", args: []directiveArg{
			{name: "name", kinds: text}, {name: "single"}, {name: "members"},
		}},
		"default":    {on: onField, args: []directiveArg{{name: "value", required: true}}},
		"deprecated": {on: onField, args: []directiveArg{{name: "reason", kinds: text}}},
		"auth": {on: "a @versioned type or a field of one", args: []directiveArg{
			{name: "read"}, {name: "write"}, {name: "history"}, {name: "erase"}, {name: "rows", kinds: text},
		}},
	}
}

// Where a directive may stand.
const (
	onType  = "a type"
	onField = "a field"
)

// directives checks the directives at one place and returns their arguments by
// directive and name.
func (r *reader) directives(list ast.DirectiveList, place string, allowed ...string) map[string]map[string]*ast.Value {
	specs := directiveSpecs()
	out := map[string]map[string]*ast.Value{}
	for _, d := range list {
		spec, known := specs[d.Name]
		switch {
		case !known:
			r.problems.add(d.Position, "unknown directive @%s; the directives are @versioned, @ref, @copy, @stored, @index, @default, @was, @auth and @deprecated", d.Name)
			continue
		case !slices.Contains(allowed, d.Name):
			r.problems.add(d.Position, "@%s cannot stand on %s; it belongs on %s", d.Name, place, spec.on)
			continue
		case out[d.Name] != nil:
			r.problems.add(d.Position, "@%s is given twice", d.Name)
			continue
		}
		out[d.Name] = r.directiveArgs(d, spec)
	}
	return out
}

func (r *reader) directiveArgs(d *ast.Directive, spec directiveSpec) map[string]*ast.Value {
	args := map[string]*ast.Value{}
	given := map[string]bool{}
	for _, a := range d.Arguments {
		again := given[a.Name]
		given[a.Name] = true
		i := slices.IndexFunc(spec.args, func(s directiveArg) bool { return s.name == a.Name })
		switch {
		case i < 0:
			r.problems.add(a.Position, "@%s has no argument %q; %s", d.Name, a.Name, argumentNames(spec))
			continue
		case again:
			r.problems.add(a.Position, "@%s(%s:) is given twice", d.Name, a.Name)
			continue
		case len(spec.args[i].kinds) > 0 && !slices.Contains(spec.args[i].kinds, a.Value.Kind):
			r.problems.add(a.Position, "@%s(%s:) must be a string in quotes, not %s", d.Name, a.Name, a.Value)
			continue
		case len(spec.args[i].kinds) > 0 && strings.TrimSpace(a.Value.Raw) == "":
			r.problems.add(a.Position, "@%s(%s:) must not be empty", d.Name, a.Name)
			continue
		}
		args[a.Name] = a.Value
	}
	for _, s := range spec.args {
		if s.required && d.Arguments.ForName(s.name) == nil {
			r.problems.add(d.Position, "@%s needs the argument %q", d.Name, s.name)
		}
	}
	return args
}

func argumentNames(spec directiveSpec) string {
	if len(spec.args) == 0 {
		return "it takes no arguments"
	}
	names := make([]string, len(spec.args))
	for i, a := range spec.args {
		names[i] = a.name
	}
	return "its arguments are " + strings.Join(names, ", ")
}

// directiveSDL declares the directives and scalars that schema.graphqls may
// use; editors read it from graph/directives.graphqls.
const directiveSDL = `"""
Every version of these documents is remembered. The generator adds queries,
mutations and history for the type.
"""
directive @versioned(
  "Where the versions are stored; default: the plural. Renaming a type keeps its history when the collection stays."
  collection: String
  "The root field for many of them; default: the plural of the type's name."
  plural: String
  "Which versions are kept; all of them, where nothing is said. A version stays while one of the two wants it, and the last one always."
  keep: Retention
) on OBJECT

"Which versions of a document are kept."
input Retention {
  "So many of the last ones."
  versions: Int
  "Those that were current within such a time, a duration as in ISO 8601: \"P2Y\", \"P90D\"."
  for: String
}

"The field refers to documents of another @versioned type, and is stored as their keys."
directive @ref on FIELD_DEFINITION

"""
The field is that of another document, which a reference leads to, at the instant at which this one is read. It is not
stored: it has no versions and no changes of its own, and cannot be written.
"""
directive @copy(
  "The reference and the field, as in: license.name. Between them may be fields that hold nested types."
  from: String!
) on FIELD_DEFINITION

"The field has another name in the stored document."
directive @stored(
  "The member's name in the stored document, as imports and exports show it."
  as: String!
) on FIELD_DEFINITION

"Filtering and ordering by the field is fast in large collections."
directive @index on FIELD_DEFINITION

"""
Who may read and write the documents of a type, or a field of them; everybody, where nothing is said. What somebody may not
read is absent from all answers. To write takes what it takes to read.
"""
directive @auth(
  "The roles of who may read, any of them."
  read: [String!]
  "The roles of who may write, any of them."
  write: [String!]
  "Of a type: the roles of who may read the past, any of them."
  history: [String!]
  "Of a type: the roles of who may erase values from its history, any of them; nobody, where nothing is said. Its required fields then read as null where they were erased."
  erase: [String!]
  "Of a type: which documents may be read and written, as in: owner = $sub. Names are fields, those after $ claims of who asks."
  rows: String
) on OBJECT | FIELD_DEFINITION

"What something was in versions that were written before; they are read as what it is now."
directive @was(
  "Its name. A type keeps its collection and the ids that begin with that name, a field its name in the stored document; an enum value that is stored reads as the new one."
  name: String
  "Of a list: it was one value, which reads as a list of that."
  single: Boolean
  "Of a field with a nested type: the stored names of fields that were beside it, and are in it now."
  members: [String!]
) on OBJECT | FIELD_DEFINITION | ENUM_VALUE

"The value that the field has in versions that lack it, and in new documents that do not give it."
directive @default(
  "A literal of the field's type."
  value: JSON!
) on FIELD_DEFINITION
`

// Keep is how long versions are kept, as the arguments say; the zero one is for ever.
type Keep struct {
	Versions            int // 0: not by number
	Years, Months, Days int
	Seconds             int
}

// keep reads the argument of @versioned(keep:).
func (r *reader) keep(v *ast.Value) (k Keep) {
	if v == nil {
		return k
	}
	wrong := func(at *ast.Value, format string, args ...any) {
		r.problems.add(at.Position, "@versioned(keep:) "+format+"; write {versions: 10}, {for: \"P2Y\"}, or both", args...)
	}
	if v.Kind != ast.ObjectValue || len(v.Children) == 0 {
		wrong(v, "must be an object, not %s", v)
		return k
	}
	for _, c := range v.Children {
		switch c.Name {
		case "versions":
			n, err := strconv.ParseInt(c.Value.Raw, 10, 32)
			if c.Value.Kind != ast.IntValue || err != nil || n < 1 {
				wrong(c.Value, "keeps %s versions: of each document at least 1 stays", c.Value)
				return k
			}
			k.Versions = int(n)
		case "for":
			if c.Value.Kind != ast.StringValue || !k.period(c.Value.Raw) {
				wrong(c.Value, "keeps versions for %s, which is not a positive duration in whole years, months, weeks, days, hours, minutes and seconds (ISO 8601), such as \"P90D\" or \"PT12H\"", c.Value)
				return k
			}
		default:
			wrong(v, "has no member %q", c.Name)
		}
	}
	return k
}

// period reads a duration in the notation of ISO 8601; false if it is none, or not positive.
func (k *Keep) period(text string) bool {
	d, err := duration.Parse(text)
	if err != nil || d.Negative {
		return false
	}
	whole := func(to *int, of ...float64) bool {
		sum := 0.0
		for _, part := range of {
			if part != math.Trunc(part) || part < 0 || part > 1e6 {
				return false
			}
			sum += part
		}
		*to = int(sum)
		return true
	}
	return whole(&k.Years, d.Years) && whole(&k.Months, d.Months) && whole(&k.Days, 7*d.Weeks, d.Days) &&
		whole(&k.Seconds, 3600*d.Hours, 60*d.Minutes, d.Seconds) && k.Years+k.Months+k.Days+k.Seconds > 0
}

// Metadata renders it for storage.Type; "" where all is kept.
func (k Keep) Metadata() string {
	var parts, period []string
	if k.Versions > 0 {
		parts = append(parts, fmt.Sprintf("Versions: %d", k.Versions))
	}
	for _, p := range []struct {
		name string
		n    int
	}{{"Years", k.Years}, {"Months", k.Months}, {"Days", k.Days}} {
		if p.n > 0 {
			period = append(period, fmt.Sprintf("%s: %d", p.name, p.n))
		}
	}
	if k.Seconds > 0 {
		period = append(period, fmt.Sprintf("Time: %d_000_000_000", k.Seconds))
	}
	if period != nil {
		parts = append(parts, "For: storage.Period{"+strings.Join(period, ", ")+"}")
	}
	if parts == nil {
		return ""
	}
	return "Keep: &storage.Keep{" + strings.Join(parts, ", ") + "}"
}
