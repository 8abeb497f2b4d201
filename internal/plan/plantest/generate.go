package plantest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/vektah/gqlparser/v2/ast"
)

// generator makes one operation.
type generator struct {
	choices *Choices
	world   *World
	schema  *ast.Schema
	lists   *lists
	op      *Operation

	declared  []declared
	fragments []*definition
	cursors   []string          // of the list at hand
	meaning   map[string]string // of each response key: the field and its arguments
	aliases   int
	left      int // fields that may still be added

	faulty  bool // mistakes are made
	history bool // fields that compare versions are asked for
	defers  bool // a fragment is deferred
}

// Generate makes an operation that reads, mostly: valid or with a mistake, of
// any size.
func Generate(c *Choices, w *World, schema *ast.Schema, known *lists) *Operation {
	g := &generator{
		choices: c, world: w, schema: schema, lists: known, op: &Operation{}, meaning: map[string]string{},
		left:   OneOf(c, []int{6, 15, 15, 40, 90}),
		faulty: c.Chance(7), history: c.Chance(7), defers: c.Chance(60),
	}
	g.op.flat = c.Chance(5)
	if c.Chance(30) {
		g.op.persisted = OneOf(c, []persistence{persists, persists, persisted})
	}
	kind, root := "query", schema.Query
	if schema.Mutation != nil && c.Chance(40) {
		kind, root = "mutation", schema.Mutation
	}
	operations := []*definition{g.operation(kind, root)}
	if c.Chance(12) {
		for range 1 + c.Below(2) {
			operations = append(operations, g.operation("query", schema.Query))
		}
	}
	g.name(operations)
	g.op.definitions = operations
	if c.Chance(3) {
		g.op.definitions = append(slices.Clone(g.fragments), operations...)
	} else {
		g.op.definitions = append(g.op.definitions, g.fragments...)
	}
	g.declare(operations)
	if g.faulty && c.Chance(3) {
		g.spoil(operations[0])
	}
	return g.op
}

// operation makes a definition of an operation.
func (g *generator) operation(kind string, root *ast.Definition) *definition {
	c := g.choices
	d := &definition{kind: kind, directives: nil}
	most := OneOf(c, []int{1, 1, 1, 2, 3, 5})
	for len(d.set) < most {
		if len(d.set) > 0 && c.Chance(10) {
			d.set = append(d.set, g.again(root, OneOf(c, d.set), 0))
			continue
		}
		d.set = append(d.set, g.root(root)...)
	}
	return d
}

// root makes selections at the root of an operation.
func (g *generator) root(root *ast.Definition) []*selection {
	c := g.choices
	switch {
	case c.Chance(30):
		return []*selection{{name: "__typename", alias: OneOf(c, []string{"", "", "kind"})}}
	case c.Chance(150) && root == g.schema.Query:
		return []*selection{{name: "__type", alias: OneOf(c, []string{"", "kinds"}), args: []argument{{"name", stringOf(OneOf(c, []string{"Project", "PageInfo", "Nothing"}))}}, set: []*selection{{name: "name"}, {name: "kind"}}}}
	case c.Chance(15) && root == g.schema.Query && len(g.lists.versions) > 0:
		return []*selection{g.versionsPage()}
	case c.Chance(20):
		return []*selection{g.within(root, root, 0)}
	case c.Chance(25):
		return []*selection{g.spread(root, 0)}
	}
	return []*selection{g.field(root, g.chooseField(root, 0), 0)}
}

// name gives the operations names, and says which one is executed.
func (g *generator) name(operations []*definition) {
	c := g.choices
	if len(operations) == 1 && operations[0].kind == "query" && c.Chance(3) {
		operations[0].kind = ""
	}
	for i, d := range operations {
		if d.kind != "" && (len(operations) > 1 || c.Chance(2)) {
			d.name = "Q" + strconv.Itoa(i)
		}
	}
	named := OneOf(c, operations).name
	if named != "" && (len(operations) > 1 || c.Chance(2)) {
		g.op.name, g.op.named = named, true
	}
	if g.faulty && c.Chance(6) {
		g.op.name, g.op.named = OneOf(c, []string{"Nothing", ""}), c.Chance(2)
	}
}

// declare puts the definitions of the variables that an operation uses, also in
// its fragments, at its head.
func (g *generator) declare(operations []*definition) {
	for _, o := range operations {
		used := map[string]bool{}
		g.usedIn(o, used, map[string]bool{})
		for _, v := range g.declared {
			if used[v.name] {
				o.declared = append(o.declared, v)
			}
		}
		if len(o.declared) > 0 && o.kind == "" {
			o.kind = "query"
		}
	}
}

func (g *generator) usedIn(d *definition, used, seen map[string]bool) {
	walk(d.set, func(s *selection) {
		for _, a := range s.args {
			a.value.addVariables(used)
		}
		for _, directive := range s.directives {
			for _, a := range directive.args {
				a.value.addVariables(used)
			}
		}
		for _, f := range g.fragments {
			if f.name == s.spread && !seen[f.name] {
				seen[f.name] = true
				g.usedIn(f, used, seen)
			}
		}
	})
}

func (v value) addVariables(used map[string]bool) {
	if v.kind == variableValue {
		used[v.text] = true
	}
	for _, e := range v.elements {
		e.addVariables(used)
	}
}

// walk visits every selection of a set.
func walk(set []*selection, visit func(*selection)) {
	for _, s := range set {
		visit(s)
		walk(s.set, visit)
	}
}

// spoil makes a mistake in a document.
func (g *generator) spoil(d *definition) {
	c := g.choices
	var all []*selection
	walk(d.set, func(s *selection) { all = append(all, s) })
	s := OneOf(c, all)
	switch c.Below(14) {
	case 0:
		s.name, s.alias = "nonsense", ""
	case 1:
		s.args = append(s.args, argument{"nonsense", literal("1")})
	case 2:
		s.args = nil
	case 3:
		s.set = append(s.set, &selection{name: "__typename"})
	case 4:
		s.set = nil
	case 5:
		s.set = append(s.set, &selection{spread: "Nowhere"})
	case 6:
		s.set = append(s.set, &selection{inline: true, on: OneOf(c, []string{"Nowhere", "String", "PageInfo", "Query"}), set: []*selection{{name: "__typename"}}})
	case 7:
		d.declared = append(d.declared, declared{name: "unused", typ: OneOf(c, []string{"Int", "Nowhere", "Project", "[ID!]!"})})
	case 8:
		s.args = append(s.args, argument{"key", variable("undeclared")})
	case 9:
		s.directives = append(s.directives, directive{name: OneOf(c, []string{"skip", "nonsense", "deprecated"})})
	case 10:
		if len(g.fragments) > 0 { // a cycle
			f := g.fragments[0]
			f.set = append(f.set, &selection{spread: f.name})
		}
	case 11:
		g.op.broken = OneOf(c, []string{" {", "}", " query", "\u0000", " fragment F on Query { __typename }", "\"", " # a comment", ",,,", "\xff"})
	case 12:
		s.args = append(s.args, s.args...)
	case 13:
		s.alias = "__x"
	}
}

// slow are the types of fields that compare versions: no plan is made for them.
func slow(f *ast.FieldDefinition) bool {
	switch name := f.Type.Name(); name {
	case "FieldChangeConnection", "FieldBlame", "DocumentDiff", "FieldChange":
		return true
	default:
		return strings.HasSuffix(name, "History")
	}
}

// chooseField chooses a field of a type that may be asked for at a depth.
func (g *generator) chooseField(def *ast.Definition, depth int) *ast.FieldDefinition {
	c := g.choices
	var leaves, others []*ast.FieldDefinition
	for _, f := range def.Fields {
		switch {
		case strings.HasPrefix(f.Name, "__"), !g.history && (slow(f) || strings.HasSuffix(f.Type.Name(), "VersionConnection") && !c.Chance(6)), unplanned(f) && !c.Chance(12):
		case g.isLeaf(f.Type):
			leaves = append(leaves, f)
		case depth < 7 && g.left > 0:
			others = append(others, f)
		}
	}
	if len(others) > 0 && (len(leaves) == 0 || c.Chance(3)) {
		return OneOf(c, others)
	}
	if len(leaves) == 0 {
		return &ast.FieldDefinition{Name: "__typename", Type: ast.NonNullNamedType("String", nil)}
	}
	return OneOf(c, leaves)
}

// unplanned are fields for which there are no plans: an operation with one compares nothing.
func unplanned(f *ast.FieldDefinition) bool {
	name := f.Type.Name()
	return f.Name == "changeGroup" || name == "VersionTag" || strings.HasSuffix(name, "Draft") || strings.HasSuffix(name, "DraftConnection")
}

func (g *generator) isLeaf(t *ast.Type) bool {
	def := g.schema.Types[t.Name()]
	return def == nil || def.IsLeafType()
}

// set makes the selections of an object.
func (g *generator) set(def *ast.Definition, depth int) []*selection {
	c := g.choices
	var set []*selection
	most := 1 + c.Below(min(5, 1+len(def.Fields)))
	if c.Chance(12) { // all that costs little
		for _, f := range def.Fields {
			if g.isLeaf(f.Type) && !strings.HasPrefix(f.Name, "__") {
				set = append(set, g.field(def, f, depth))
			}
		}
	}
	for len(set) < most {
		switch kind := c.Below(20); {
		case kind == 0:
			set = append(set, g.aliased(&selection{name: "__typename"}, def.Name, 3))
		case kind == 1 && g.left > 0:
			set = append(set, g.within(def, g.condition(def), depth))
		case kind == 2 && g.left > 0:
			set = append(set, g.spread(g.condition(def), depth))
		case kind == 3 && len(set) > 0:
			set = append(set, g.again(def, OneOf(c, set), depth))
		case def.IsAbstractType() && kind < 10 && g.left > 0:
			set = append(set, g.within(def, g.condition(def), depth))
		default:
			set = append(set, g.field(def, g.chooseField(def, depth), depth))
		}
	}
	return set
}

// again asks for a field a second time: what both select is merged.
func (g *generator) again(def *ast.Definition, s *selection, depth int) *selection {
	if s.name == "" {
		return &selection{name: "__typename"}
	}
	twin := &selection{alias: s.alias, name: s.name, args: s.args, directives: g.directives()}
	if f := def.Fields.ForName(s.name); f != nil && len(s.set) > 0 {
		twin.set = g.set(g.schema.Types[f.Type.Name()], depth+1)
	}
	return twin
}

// condition chooses a type that a fragment within another type can be about.
func (g *generator) condition(def *ast.Definition) *ast.Definition {
	c := g.choices
	fitting := []*ast.Definition{def}
	if def.IsAbstractType() {
		fitting = append(fitting, g.schema.GetPossibleTypes(def)...)
	}
	for _, name := range def.Interfaces {
		fitting = append(fitting, g.schema.Types[name])
	}
	return OneOf(c, fitting)
}

// within makes an inline fragment.
func (g *generator) within(def, on *ast.Definition, depth int) *selection {
	s := &selection{inline: true, on: on.Name, directives: g.deferred(g.directives())}
	if on == def && g.choices.Chance(2) {
		s.on = ""
	}
	if on == g.schema.Query || on == g.schema.Mutation {
		s.set = []*selection{g.field(on, g.chooseField(on, depth), depth)}
	} else {
		s.set = g.set(on, depth)
	}
	return s
}

// spread makes a named fragment, or uses one that is there.
func (g *generator) spread(on *ast.Definition, depth int) *selection {
	c := g.choices
	if i := slices.IndexFunc(g.fragments, func(f *definition) bool { return f.on == on.Name }); i >= 0 && c.Chance(2) {
		return &selection{spread: g.fragments[i].name, directives: g.directives()}
	}
	f := &definition{kind: "fragment", on: on.Name}
	if on == g.schema.Query || on == g.schema.Mutation {
		f.set = []*selection{g.field(on, g.chooseField(on, depth), depth)}
	} else {
		f.set = g.set(on, depth)
	}
	f.name = fmt.Sprintf("F%d", len(g.fragments)) // known only now, so that no fragment holds itself
	g.fragments = append(g.fragments, f)
	return &selection{spread: f.name, directives: g.deferred(g.directives())}
}

// field asks for a field with arguments and what is in it.
func (g *generator) field(def *ast.Definition, f *ast.FieldDefinition, depth int) *selection {
	g.left--
	s := &selection{name: f.Name, directives: g.directives()}
	result := g.schema.Types[f.Type.Name()]
	g.arguments(s, f)
	if result != nil && !result.IsLeafType() {
		s.set = g.set(result, depth+1)
	}
	return g.aliased(s, def.Name, 8)
}

// aliased gives a field an alias where it needs one, or by chance. Two fields
// of one response key are the same, mostly: otherwise the document would not be
// valid.
func (g *generator) aliased(s *selection, parent string, oneIn int) *selection {
	c := g.choices
	meaning := s.name + argumentsText(s.args)
	if c.Chance(oneIn) {
		s.alias = OneOf(c, []string{"a", "b", "name", "id", "nodes", "title", "x1", "_"})
		meaning = parent + "." + meaning
	}
	key := s.alias
	if key == "" {
		key = s.name
	}
	if known, ok := g.meaning[key]; ok && known != meaning && !(g.faulty && c.Chance(4)) {
		g.aliases++
		s.alias = "n" + strconv.Itoa(g.aliases)
		return s
	}
	g.meaning[key] = meaning
	return s
}

// deferred adds @defer, which this server accepts and answers at once.
func (g *generator) deferred(list []directive) []directive {
	if !g.defers {
		return list
	}
	g.defers = false
	return append(list, directive{name: "defer"})
}

// directives are @skip and @include, now and then.
func (g *generator) directives() []directive {
	c := g.choices
	if !c.Chance(16) {
		return nil
	}
	var list []directive
	for range 1 + c.Below(2) {
		name := OneOf(c, []string{"skip", "include"})
		if len(list) > 0 && list[0].name == name && !g.faulty {
			continue
		}
		likely := literal(strconv.FormatBool((name == "include") != c.Chance(3)))
		if c.Chance(2) {
			likely = g.variableFor(ast.NonNullNamedType("Boolean", nil), likely, literal(strconv.FormatBool(likely.text != "true")))
		}
		list = append(list, directive{name, []argument{{"if", likely}}})
	}
	return list
}

// Choices are the decisions behind a history or an operation: the same ones
// lead to the same result. They come from a seed, or from bytes that a fuzzer
// changes; when these are used up, every further choice is the first.
type Choices struct {
	random *rand.Rand
	bytes  []byte
	spent  bool // the bytes are
}

// Seeded returns the choices that belong to two numbers: that of a run, and
// that of something in it.
func Seeded(seed, number uint64) *Choices {
	return &Choices{random: rand.New(rand.NewPCG(seed, number))}
}

// FromBytes returns the choices that bytes stand for.
func FromBytes(b []byte) *Choices { return &Choices{bytes: b} }

// Below chooses one of the numbers from 0 to n-1; 0 where n is below 2.
func (c *Choices) Below(n int) int {
	if n < 2 {
		return 0
	}
	if c.random != nil {
		return c.random.IntN(n)
	}
	value := 0
	for most := n - 1; most > 0; most >>= 8 {
		if len(c.bytes) == 0 {
			c.spent = true
			return 0
		}
		value = value<<8 | int(c.bytes[0])
		c.bytes = c.bytes[1:]
	}
	return value % n
}

// Chance is true once in n times; never when the bytes are used up, so that
// what is made of them ends.
func (c *Choices) Chance(n int) bool { return c.Below(n) == n-1 && !c.spent }

// OneOf chooses an element of a list, which is not empty.
func OneOf[T any](c *Choices, list []T) T { return list[c.Below(len(list))] }
