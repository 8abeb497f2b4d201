package plantest

import (
	"iter"
	"slices"
)

// smallerThan are the operations that lack one thing that an operation has.
// Each is a copy of its own.
func smallerThan(o *Operation) iter.Seq[*Operation] {
	return func(yield func(*Operation) bool) {
		for i := range o.definitions {
			if !cut(o, yield, func(s *Operation) bool { return remove(&s.definitions, i, 1) }) {
				return
			}
		}
		selections := 0
		o.eachPlace(func(*[]*selection, int) { selections++ })
		for n := range selections {
			for _, change := range simplifications {
				if !cut(o, yield, func(s *Operation) bool { return s.change(n, change) }) {
					return
				}
			}
		}
		for i, d := range o.definitions {
			for j := range d.declared {
				if !cut(o, yield, func(s *Operation) bool { return remove(&s.definitions[i].declared, j, 0) }) {
					return
				}
			}
		}
		for i := range o.variables {
			if !cut(o, yield, func(s *Operation) bool { return remove(&s.variables, i, 0) }) {
				return
			}
		}
		_ = cut(o, yield, func(s *Operation) bool {
			was := s.named
			s.named = false
			return was
		})
	}
}

// cut yields a copy after a change, where there is one.
func cut(o *Operation, yield func(*Operation) bool, change func(*Operation) bool) bool {
	smaller := o.clone()
	return !change(smaller) || yield(smaller)
}

// remove takes an element out of a list that keeps at least so many.
func remove[T any](list *[]T, i, least int) bool {
	if len(*list) <= least || i >= len(*list) {
		return false
	}
	*list = slices.Delete(*list, i, i+1)
	return true
}

// simplifications change one selection of a set, and say whether they could.
var simplifications = []func(set *[]*selection, i int) bool{
	func(set *[]*selection, i int) bool { return remove(set, i, 1) },
	func(set *[]*selection, i int) bool { // what is in a fragment instead of it
		s := (*set)[i]
		if s.inline {
			*set = slices.Replace(*set, i, i+1, s.set...)
		}
		return s.inline
	},
	func(set *[]*selection, i int) bool { return remove(&(*set)[i].directives, 0, 0) },
	func(set *[]*selection, i int) bool { return remove(&(*set)[i].args, 0, 0) },
	func(set *[]*selection, i int) bool { return remove(&(*set)[i].args, len((*set)[i].args)-1, 1) },
	func(set *[]*selection, i int) bool { return remove(&(*set)[i].args, 1, 2) },
	func(set *[]*selection, i int) bool {
		s := (*set)[i]
		had := s.alias != ""
		s.alias = ""
		return had
	},
	func(set *[]*selection, i int) bool { return smallerValue((*set)[i].args, 0) },
	func(set *[]*selection, i int) bool { return smallerValue((*set)[i].args, 1) },
}

// smallerValue takes an element, the first or the last, out of a list or an
// object among arguments.
func smallerValue(args []argument, end int) bool {
	for i := range args {
		if shorten(&args[i].value, end) {
			return true
		}
	}
	return false
}

func shorten(v *value, end int) bool {
	n := len(v.elements)
	for i := range v.elements {
		if len(v.elements[i].elements) > 0 && shorten(&v.elements[i], end) {
			return true
		}
	}
	if n == 0 {
		return false
	}
	at := end * (n - 1)
	v.elements = slices.Delete(v.elements, at, at+1)
	if v.names != nil {
		v.names = slices.Delete(v.names, at, at+1)
	}
	return true
}

// eachPlace visits every selection, by the set that it is in and its index.
func (o *Operation) eachPlace(visit func(set *[]*selection, i int)) {
	var sets func(set *[]*selection)
	sets = func(set *[]*selection) {
		for i := range *set {
			visit(set, i)
		}
		for i := range *set {
			sets(&(*set)[i].set)
		}
	}
	for _, d := range o.definitions {
		sets(&d.set)
	}
}

// change changes the selection with a number.
func (o *Operation) change(n int, how func(set *[]*selection, i int) bool) bool {
	var set *[]*selection
	at := 0
	o.eachPlace(func(s *[]*selection, i int) {
		if n == 0 {
			set, at = s, i
		}
		n--
	})
	return how(set, at)
}

// clone copies an operation.
func (o *Operation) clone() *Operation {
	c := *o
	c.variables = slices.Clone(o.variables)
	c.definitions = make([]*definition, len(o.definitions))
	for i, d := range o.definitions {
		copied := *d
		copied.declared = slices.Clone(d.declared)
		copied.directives = slices.Clone(d.directives)
		copied.set = cloneSet(d.set)
		c.definitions[i] = &copied
	}
	return &c
}

func cloneSet(set []*selection) []*selection {
	if set == nil {
		return nil
	}
	out := make([]*selection, len(set))
	for i, s := range set {
		copied := *s
		copied.args = slices.Clone(s.args)
		for j := range copied.args {
			copied.args[j].value = s.args[j].value.clone()
		}
		copied.directives = slices.Clone(s.directives)
		copied.set = cloneSet(s.set)
		out[i] = &copied
	}
	return out
}

func (v value) clone() value {
	v.names = slices.Clone(v.names)
	v.elements = slices.Clone(v.elements)
	for i := range v.elements {
		v.elements[i] = v.elements[i].clone()
	}
	return v
}
