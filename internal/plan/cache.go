package plan

import (
	"sync"

	"github.com/99designs/gqlgen/graphql"
	"github.com/hashicorp/golang-lru/v2/simplelru"
	"github.com/vektah/gqlparser/v2/ast"
)

// What the cache holds at most. A parsed document, which a plan refers to,
// takes about thirty times the memory of its text, and its plans as much again.
const (
	cachedOperations = 1_000
	cachedText       = 1 << 20 // bytes
	cachedVariants   = 16      // of one operation
)

// cache keeps what is known of parsed operations, those used last.
type cache struct {
	mu      sync.Mutex
	entries *simplelru.LRU[*ast.OperationDefinition, *known]
	text    int
}

func newCache() *cache {
	c := &cache{}
	entries, err := simplelru.NewLRU(cachedOperations, func(_ *ast.OperationDefinition, k *known) { c.text -= k.size })
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
	defer c.mu.Unlock()
	if k, ok := c.entries.Get(oc.Operation); ok {
		return k
	}
	k := examine(oc)
	if k.size = len(oc.RawQuery); k.size > cachedText/8 {
		return k
	}
	c.text += k.size
	c.entries.Add(oc.Operation, k)
	for c.text > cachedText {
		c.entries.RemoveOldest()
	}
	return k
}

// known is what is known of an operation without its variables.
type known struct {
	size int
	err  error // why it can never be planned
	// conditions are the variables in @skip and @include.
	conditions []string

	mu       sync.Mutex
	variants map[string]*plan // by the values of the conditions
}

// plan returns the plan for the context's variables, compiled if need be.
func (k *known) plan(c *compiler, oc *graphql.OperationContext) *plan {
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
	k.mu.Lock()
	defer k.mu.Unlock()
	if p := k.variants[string(values)]; p != nil {
		return p
	}
	p := c.compile(oc)
	if k.variants == nil {
		k.variants = map[string]*plan{}
	}
	if len(k.variants) < cachedVariants {
		k.variants[string(values)] = p
	}
	return p
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
