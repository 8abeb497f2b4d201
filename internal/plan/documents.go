package plan

import (
	"slices"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/ast"

	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/normal"
)

// documentSelection compiles what is asked of documents of a type.
func documentSelection(b *planning, t *storage.Type, set ast.SelectionSet) *selection[*storage.Object] {
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
			return storedField(b, f, s, t.Object())
		}
	})
}

func writeID(r *run, _ *place, o *storage.Object) bool {
	r.text = o.Of().AppendID(r.text[:0])
	if normal.IsPlain(r.text) {
		r.out = append(append(append(r.out, '"'), r.text...), '"')
		return true
	}
	return r.string(string(r.text))
}

func writeKey(r *run, _ *place, o *storage.Object) bool { return r.string(o.Of().Key()) }

func writeVersion(r *run, _ *place, o *storage.Object) bool { return r.int(o.Of().Version()) }

// storedField makes the writer of a field that is stored in documents, or in
// objects nested in them, or of one that shows the keys of a reference.
func storedField(b *planning, f graphql.CollectedField, s *selection[*storage.Object], t *storage.ObjectType) writer[*storage.Object] {
	i := slices.IndexFunc(t.Fields, func(stored storage.Field) bool {
		return stored.Name == f.Name || stored.Kind == storage.KindRef && stored.Keys == f.Name
	})
	if i < 0 {
		return nil
	}
	stored := &t.Fields[i]
	s.need.add(stored.Stored)
	switch {
	case stored.Name != f.Name && stored.List: // keys
		return copied(i, "[]") // never null
	case stored.Name != f.Name:
		return copied(i, "")
	case stored.Kind == storage.KindRef:
		return reference(b, f, s, stored, i)
	case stored.Kind == storage.KindObject:
		return nested(b, f, stored, i)
	default:
		return copied(i, "")
	}
}

// nested makes the writer of an object, or a list of objects, in a document. Only
// documents refer to others: nothing is read for what is nested in them.
func nested(b *planning, f graphql.CollectedField, stored *storage.Field, i int) writer[*storage.Object] {
	fields := func(b *planning, f graphql.CollectedField, s *selection[*storage.Object]) writer[*storage.Object] {
		return storedField(b, f, s, stored.Object)
	}
	inner := selectionOf(b, stored.Object.Name, f.Selections, fields)
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
		return there && inner.writeIn(r, at, child)
	}
}

func nestedList(inner *selection[*storage.Object], i int, elemNonNull bool) writer[*storage.Object] {
	return func(r *run, at *place, o *storage.Object) bool {
		child := r.borrow()
		defer r.giveBack()
		list := r.list(at, elemNonNull)
		there, err := o.EachNested(child, i, func(element *storage.Object) {
			list.next()
			list.done(element != nil && inner.write(r, element))
		})
		ok := list.end()
		if err != nil {
			r.fail(at, err)
		}
		if ok && !there {
			r.back(list.start)
		}
		return ok && there
	}
}
