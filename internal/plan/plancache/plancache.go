// Package plancache keeps what was compiled from parsed operations: those that were
// used last.
//
// Invariants:
//
//   - What is made depends on the operation and on the values of the variables in
//     its @skip and @include, and on nothing else of a request.
//   - The memory of what is kept is bounded, by an estimate of what it takes.
//   - No request waits for the compiler of another: what several need at once may be
//     compiled more than once, and is kept once.
package plancache

import (
	"fmt"
	"sync"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/ast"

	"github.com/asof/asof/internal/lru"
)

// What is kept at most, in bytes. A plan refers to the parsed document, in which a
// field, an argument or a value takes about nodeBytes. A field of a plan takes about
// fieldBytes: fragments that are spread in many places are compiled in each, so
// that this can be much more.
const (
	cachedBytes    = 12 << 20
	cachedEntry    = cachedBytes / 4 // of one operation
	cachedVariants = 16              // of one operation
	nodeBytes      = 250
	fieldBytes     = 256
)

// Cache keeps a P for each operation, and for each combination of its conditions.
type Cache[P any] struct {
	compile func(oc *graphql.OperationContext) (made P, fields int)
	mu      sync.Mutex // held for look-ups and changes only
	entries *lru.Cache[*ast.OperationDefinition, *known[P]]
}

// New returns an empty cache of what compile returns, with the number of its fields.
func New[P any](compile func(oc *graphql.OperationContext) (made P, fields int)) *Cache[P] {
	return &Cache[P]{compile: compile, entries: lru.New[*ast.OperationDefinition, *known[P]](cachedBytes)}
}

// known is what is known of an operation without its variables.
type known[P any] struct {
	examination
	// The cache's mutex guards what follows, and the size, which is also that of them.
	variants map[string]P // by the values of the conditions
}

// Of returns what is compiled from the context's operation. It returns an error where
// that is not possible: the operation has directives other than @skip and @include,
// or a condition is no boolean.
func (c *Cache[P]) Of(oc *graphql.OperationContext) (made P, err error) {
	k := c.known(oc)
	if k.err != nil {
		return made, k.err
	}
	var buf [64]byte
	values := buf[:0]
	for _, name := range k.conditions {
		on, ok := oc.Variables[name].(bool)
		switch {
		case !ok:
			return made, fmt.Errorf("the variable $%s of a condition is not a boolean", name)
		case on:
			values = append(values, '1')
		default:
			values = append(values, '0')
		}
	}
	c.mu.Lock()
	made, ok := k.variants[string(values)]
	c.mu.Unlock()
	if !ok {
		var fields int
		made, fields = c.compile(oc)
		c.keep(oc.Operation, k, string(values), made, fields)
	}
	return made, nil
}

// known returns what is known of the context's operation. For a document that is too
// large for the cache it is computed each time.
func (c *Cache[P]) known(oc *graphql.OperationContext) *known[P] {
	c.mu.Lock()
	k, ok := c.entries.Get(oc.Operation)
	c.mu.Unlock()
	if ok {
		return k
	}
	k = &known[P]{examination: examine(oc.Operation)}
	if k.size += len(oc.RawQuery); k.size > cachedEntry {
		return k
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if other, ok := c.entries.Get(oc.Operation); ok {
		return other // found out at the same time
	}
	c.entries.Add(oc.Operation, k, k.size)
	return k
}

// keep adds a variant to the cache, unless its operation was evicted meanwhile or has
// as many as it may.
func (c *Cache[P]) keep(operation *ast.OperationDefinition, k *known[P], values string, made P, fields int) {
	size := (fields + 1) * fieldBytes
	c.mu.Lock()
	defer c.mu.Unlock()
	if kept, _ := c.entries.Peek(operation); kept != k || len(k.variants) >= cachedVariants || k.size+size > cachedEntry {
		return
	}
	if _, ok := k.variants[values]; ok {
		return // made at the same time
	}
	if k.variants == nil {
		k.variants = map[string]P{}
	}
	k.variants[values] = made
	k.size += size
	c.entries.Resize(operation, k.size)
}

// examination is what is known of an operation by its document.
type examination struct {
	size       int      // an estimate of what it takes, in bytes
	err        error    // names a directive that is not known here
	conditions []string // the variables in @skip and @include
}

func examine(operation *ast.OperationDefinition) examination {
	w := walk{seen: map[*ast.FragmentDefinition]bool{}}
	for _, v := range operation.VariableDefinitions {
		w.size += nodeBytes
		if v.DefaultValue != nil {
			w.value(v.DefaultValue)
		}
	}
	w.directives(operation.Directives)
	w.set(operation.SelectionSet)
	return w.examination
}

type walk struct {
	examination
	seen map[*ast.FragmentDefinition]bool
}

func (w *walk) set(set ast.SelectionSet) {
	for _, s := range set {
		w.size += nodeBytes
		switch s := s.(type) {
		case *ast.Field:
			w.arguments(s.Arguments)
			w.directives(s.Directives)
			w.set(s.SelectionSet)
		case *ast.InlineFragment:
			w.directives(s.Directives)
			w.set(s.SelectionSet)
		case *ast.FragmentSpread:
			w.directives(s.Directives)
			if s.Definition != nil && !w.seen[s.Definition] {
				w.seen[s.Definition] = true
				w.directives(s.Definition.Directives)
				w.set(s.Definition.SelectionSet)
			}
		}
	}
}

func (w *walk) directives(list ast.DirectiveList) {
	for _, d := range list {
		w.size += nodeBytes
		w.arguments(d.Arguments)
		if d.Name != "skip" && d.Name != "include" {
			w.err = fmt.Errorf("the directive @%s is not planned", d.Name)
			continue
		}
		for _, a := range d.Arguments {
			if a.Value.Kind == ast.Variable {
				w.conditions = append(w.conditions, a.Value.Raw)
			}
		}
	}
}

func (w *walk) arguments(list ast.ArgumentList) {
	for _, a := range list {
		w.size += nodeBytes
		w.value(a.Value)
	}
}

func (w *walk) value(v *ast.Value) {
	w.size += nodeBytes
	for _, child := range v.Children {
		w.value(child.Value)
	}
}
