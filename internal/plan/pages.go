package plan

import (
	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/ast"

	"github.com/asof/asof/storage"
)

// edge is a place on a page.
type edge struct {
	page  *storage.Page
	place int
}

// connection compiles what is asked of a page of documents of a type, or of
// their versions. The stored names that it looks at are added to need.
func connection(b *planning, t *storage.Type, typeName string, set ast.SelectionSet, need *names) *selection[*storage.Page] {
	return selectionOf(b, typeName, set, func(b *planning, f graphql.CollectedField, s *selection[*storage.Page]) writer[*storage.Page] {
		switch f.Name {
		case "nodes":
			return many(documentSelection(b, t, f.Selections, need), s, length, func(p *storage.Page, i int) *storage.Object { return &p.Docs[i].Object })
		case "edges":
			return many(edgeSelection(b, t, f, need), s, length, func(p *storage.Page, i int) edge { return edge{p, i} })
		case "pageInfo":
			return one(selectionOf(b, "PageInfo", f.Selections, pageInfoField), s, func(p *storage.Page) *storage.Page { return p })
		case "totalCount":
			return totalCount
		default:
			return nil
		}
	})
}

func length(p *storage.Page) int { return len(p.Docs) }

func edgeSelection(b *planning, t *storage.Type, of graphql.CollectedField, need *names) *selection[edge] {
	return selectionOf(b, of.Definition.Type.Name(), of.Selections, func(b *planning, f graphql.CollectedField, s *selection[edge]) writer[edge] {
		switch f.Name {
		case "cursor":
			return func(r *run, _ *place, e edge) bool { return r.cursor(e.page, e.place) }
		case "node":
			return one(documentSelection(b, t, f.Selections, need), s, func(e edge) *storage.Object { return &e.page.Docs[e.place].Object })
		default: // the changes of a version
			return nil
		}
	})
}

// pageInfoField is a field of what lies around a page.
func pageInfoField(_ *planning, f graphql.CollectedField, _ *selection[*storage.Page]) writer[*storage.Page] {
	switch f.Name {
	case "hasNextPage":
		return func(r *run, _ *place, p *storage.Page) bool { return r.bool(p.HasNextPage) }
	case "hasPreviousPage":
		return func(r *run, _ *place, p *storage.Page) bool { return r.bool(p.HasPreviousPage) }
	case "startCursor":
		return func(r *run, _ *place, p *storage.Page) bool { return len(p.Docs) > 0 && r.cursor(p, 0) }
	case "endCursor":
		return func(r *run, _ *place, p *storage.Page) bool { return len(p.Docs) > 0 && r.cursor(p, len(p.Docs)-1) }
	default:
		return nil
	}
}

// totalCount counts a whole list.
func totalCount(r *run, at *place, p *storage.Page) (ok bool) {
	defer r.recovered(at, &ok)
	n, err := p.TotalCount(r.ctx)
	if err != nil {
		r.fail(at, err)
		return false
	}
	return r.int(n)
}

// versions makes the writer of a page of a document's versions.
func versions(b *planning, f graphql.CollectedField, s *selection[*storage.Object], t *storage.Type) writer[*storage.Object] {
	need := &names{list: []string{}}
	inner := connection(b, t, f.Definition.Type.Name(), f.Selections, need)
	if inner == nil {
		return nil
	}
	id, args := b.queue(), b.arguments(f, versionsArguments)
	s.loads = append(s.loads, func(r *run, objects []*storage.Object) { r.loadVersions(id, args, need.list, inner, objects) })
	return func(r *run, at *place, _ *storage.Object) bool {
		v, _ := r.queues[id].take()
		if !r.there(at, v) {
			return false
		}
		r.enter(at)
		defer r.leave()
		return inner.write(r, v.page)
	}
}
