package plan

import (
	"sync"

	"github.com/99designs/gqlgen/graphql"
	"github.com/hashicorp/golang-lru/v2/simplelru"
	"github.com/vektah/gqlparser/v2/ast"
)

// What the cache holds at most, in bytes. A parsed document, which a plan refers
// to, takes about thirty times the memory of its text, and a field of a plan
// about fieldBytes: fragments that are spread in many places are compiled in
// each, so that this can be much more.
const (
	cachedOperations = 1_000
	cachedBytes      = 64 << 20
	cachedEntry      = cachedBytes / 8 // of one operation
	cachedVariants   = 16              // of one operation
	documentFactor   = 30
	fieldBytes       = 256
)

// cache keeps what is known of parsed operations, those used last.
type cache struct {
	mu      sync.Mutex // held for look-ups and changes only
	entries *simplelru.LRU[*ast.OperationDefinition, *known]
	size    int // of all entries
}

func newCache() *cache {
	c := &cache{}
	entries, err := simplelru.NewLRU(cachedOperations, func(_ *ast.OperationDefinition, k *known) { c.size -= k.size })
	if err != nil {
		panic(err) // only for a size below one
	}
	c.entries = entries
	return c
}

// of returns what is known of the context's operation. What a document that is
// too large for the cache needs is found out each time.
func (c *cache) of(oc *graphql.OperationContext) *known {
	c.mu.Lock()
	k, ok := c.entries.Get(oc.Operation)
	c.mu.Unlock()
	if ok {
		return k
	}
	k = examine(oc)
	if k.size = documentFactor * len(oc.RawQuery); k.size > cachedEntry {
		return k
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if other, ok := c.entries.Get(oc.Operation); ok {
		return other // found out at the same time
	}
	c.size += k.size
	c.entries.Add(oc.Operation, k)
	c.shrink()
	return k
}

// shrink forgets what was used longest ago.
func (c *cache) shrink() {
	for c.size > cachedBytes {
		c.entries.RemoveOldest()
	}
}

// known is what is known of an operation without its variables.
type known struct {
	err error // why it can never be planned
	// conditions are the variables in @skip and @include.
	conditions []string
	// The cache's mutex guards what follows.
	size     int              // bytes
	variants map[string]*plan // by the values of the conditions
}

// plan returns the plan for the context's variables, compiled if need be. Others
// do not wait for that.
func (c *cache) plan(k *known, compiler *compiler, oc *graphql.OperationContext) *plan {
	var buf [64]byte
	values := buf[:0]
	for _, name := range k.conditions {
		on, ok := oc.Variables[name].(bool)
		switch {
		case !ok:
			return &plan{err: unplanned("the variable $" + name + " of a condition is not a boolean")}
		case on:
			values = append(values, '1')
		default:
			values = append(values, '0')
		}
	}
	c.mu.Lock()
	p := k.variants[string(values)]
	c.mu.Unlock()
	if p == nil {
		p = compiler.compile(oc)
		c.keep(oc.Operation, k, string(values), p)
	}
	return p
}

// keep keeps a plan, unless its operation is not kept or has enough of them.
func (c *cache) keep(operation *ast.OperationDefinition, k *known, values string, p *plan) {
	size := (p.fields + 1) * fieldBytes
	c.mu.Lock()
	defer c.mu.Unlock()
	if kept, _ := c.entries.Peek(operation); kept != k || len(k.variants) >= cachedVariants || k.size+size > cachedEntry {
		return
	}
	if k.variants[values] != nil {
		return // compiled at the same time
	}
	if k.variants == nil {
		k.variants = map[string]*plan{}
	}
	k.variants[values] = p
	k.size += size
	c.size += size
	c.shrink()
}

// examine looks for what no plan can have, and for conditions.
func examine(oc *graphql.OperationContext) *known {
	x := examination{known: &known{}, seen: map[*ast.FragmentDefinition]bool{}}
	x.directives(oc.Operation.Directives)
	x.set(oc.Operation.SelectionSet)
	return x.known
}

type examination struct {
	*known
	seen map[*ast.FragmentDefinition]bool
}

func (x *examination) set(set ast.SelectionSet) {
	for _, s := range set {
		switch s := s.(type) {
		case *ast.Field:
			x.directives(s.Directives)
			x.set(s.SelectionSet)
		case *ast.InlineFragment:
			x.directives(s.Directives)
			x.set(s.SelectionSet)
		case *ast.FragmentSpread:
			x.directives(s.Directives)
			if s.Definition != nil && !x.seen[s.Definition] {
				x.seen[s.Definition] = true
				x.directives(s.Definition.Directives)
				x.set(s.Definition.SelectionSet)
			}
		}
	}
}

func (x *examination) directives(list ast.DirectiveList) {
	for _, d := range list {
		if d.Name != "skip" && d.Name != "include" {
			x.err = unplanned("the directive @" + d.Name + " is not planned")
			continue
		}
		for _, a := range d.Arguments {
			if a.Value.Kind == ast.Variable {
				x.conditions = append(x.conditions, a.Value.Raw)
			}
		}
	}
}
