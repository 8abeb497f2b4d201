package plan

import (
	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/ast"

	"github.com/asof/asof/internal/scalar"
	"github.com/asof/asof/storage"
)

// documentSelection compiles what is asked of documents of a type. The stored
// names that it looks at are added to need.
func documentSelection(b *planning, t *storage.Type, set ast.SelectionSet, need *names) *selection[*storage.Object] {
	return selectionOf(b, t.Name, set, func(b *planning, f graphql.CollectedField, s *selection[*storage.Object]) writer[*storage.Object] {
		switch f.Name {
		case "id":
			return writeID
		case "key":
			return writeKey
		case "version":
			return writeVersion
		case "versionInfo":
			return versionInfo(b, f, s)
		case "versions":
			return versions(b, f, s, t)
		default:
			return storedField(b, f, s, t.Object(), need)
		}
	})
}

// objectSelection compiles what is asked of objects nested in documents.
func objectSelection(b *planning, t *storage.ObjectType, set ast.SelectionSet) *selection[*storage.Object] {
	return selectionOf(b, t.Name, set, func(b *planning, f graphql.CollectedField, s *selection[*storage.Object]) writer[*storage.Object] {
		return storedField(b, f, s, t, &names{})
	})
}

func writeID(r *run, _ *place, o *storage.Object) bool {
	r.text = o.Of().AppendID(r.text[:0])
	r.out = scalar.AppendString(r.out, r.text)
	return true
}

func writeKey(r *run, _ *place, o *storage.Object) bool {
	r.out = scalar.AppendString(r.out, o.Of().Key())
	return true
}

func writeVersion(r *run, _ *place, o *storage.Object) bool { return r.int(o.Of().Version()) }

// storedField makes the writer of a field that is stored in documents, or of one
// that shows the keys of a reference.
func storedField(b *planning, f graphql.CollectedField, s *selection[*storage.Object], t *storage.ObjectType, need *names) writer[*storage.Object] {
	for i := range t.Fields {
		stored := &t.Fields[i]
		switch {
		case stored.Kind == storage.KindRef && stored.Keys == f.Name:
			need.add(stored.Stored)
			if stored.List {
				return copied(i, "[]") // never null
			}
			return copied(i, "")
		case stored.Name != f.Name:
			continue
		}
		need.add(stored.Stored)
		switch stored.Kind {
		case storage.KindRef:
			return reference(b, f, s, stored, i)
		case storage.KindObject:
			return nested(b, f, s, stored, i)
		default:
			return copied(i, "")
		}
	}
	return nil
}

// nested makes the writer of an object, or a list of objects, in a document.
func nested(b *planning, f graphql.CollectedField, s *selection[*storage.Object], stored *storage.Field, i int) writer[*storage.Object] {
	inner := objectSelection(b, stored.Object, f.Selections)
	if inner == nil {
		return nil
	}
	if len(inner.loads) > 0 {
		id := b.queue()
		s.loads = append(s.loads, func(r *run, objects []*storage.Object) { r.loadNested(id, inner, stored, i, objects) })
		return queued(id, inner, stored.List, stored.ElemNonNull)
	}
	if stored.List {
		return nestedList(inner, i, stored.ElemNonNull)
	}
	return func(r *run, at *place, o *storage.Object) bool {
		child := r.borrow()
		defer r.giveBack()
		there, err := o.Nested(child, i)
		if err != nil {
			r.fail(at, err)
		}
		if !there {
			return false
		}
		r.enter(at)
		defer r.leave()
		return inner.write(r, child)
	}
}

func nestedList(inner *selection[*storage.Object], i int, elemNonNull bool) writer[*storage.Object] {
	return func(r *run, at *place, o *storage.Object) bool {
		child := r.borrow()
		defer r.giveBack()
		r.enter(at)
		list := r.list(elemNonNull)
		there, err := o.EachNested(child, i, func(element *storage.Object) {
			list.next()
			list.done(element != nil && inner.write(r, element))
		})
		ok := list.end()
		r.leave()
		if err != nil {
			r.fail(at, err)
		}
		if ok && !there {
			r.back(list.start)
		}
		return ok && there
	}
}

// reference makes the writer of a reference, or a list of references: null for
// a document that does not exist.
func reference(b *planning, f graphql.CollectedField, s *selection[*storage.Object], stored *storage.Field, i int) writer[*storage.Object] {
	t := b.types[stored.Ref]
	inner := documentSelection(b, t, f.Selections, b.reached(t))
	if inner == nil {
		return nil
	}
	id, asOf := b.queue(), b.arguments(f, asOfArgument)
	s.loads = append(s.loads, func(r *run, objects []*storage.Object) { r.loadRefs(id, asOf, t, inner, i, objects) })
	return queued(id, inner, stored.List, false)
}

// queued makes the writer of a field whose objects were read before and wait.
func queued(id int, inner *selection[*storage.Object], list, elemNonNull bool) writer[*storage.Object] {
	return func(r *run, at *place, _ *storage.Object) bool {
		v, objects := r.queues[id].take()
		if !r.there(at, v) {
			return false
		}
		r.enter(at)
		defer r.leave()
		if !list {
			return objects[0] != nil && inner.write(r, objects[0])
		}
		return writeList(r, len(objects), elemNonNull, func(k int) bool {
			return objects[k] != nil && inner.write(r, objects[k])
		})
	}
}
