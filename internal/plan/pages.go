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
			return nodes(documentSelection(b, t, f.Selections, need), s)
		case "edges":
			return edges(edgeSelection(b, t, f, need), s)
		case "pageInfo":
			return pageInfo(b, f)
		case "totalCount":
			return totalCount
		default:
			return nil
		}
	})
}

func nodes(inner *selection[*storage.Object], s *selection[*storage.Page]) writer[*storage.Page] {
	if inner == nil {
		return nil
	}
	if len(inner.loads) > 0 {
		s.loads = append(s.loads, func(r *run, pages []*storage.Page) {
			var objects []*storage.Object
			for _, p := range pages {
				for _, d := range p.Docs {
					objects = append(objects, &d.Object)
				}
			}
			inner.load(r, objects)
		})
	}
	return func(r *run, at *place, p *storage.Page) bool {
		r.enter(at)
		defer r.leave()
		return writeList(r, len(p.Docs), true, func(i int) bool { return inner.write(r, &p.Docs[i].Object) })
	}
}

func edgeSelection(b *planning, t *storage.Type, of graphql.CollectedField, need *names) *selection[edge] {
	return selectionOf(b, of.Definition.Type.Name(), of.Selections, func(b *planning, f graphql.CollectedField, s *selection[edge]) writer[edge] {
		switch f.Name {
		case "cursor":
			return func(r *run, _ *place, e edge) bool { return r.cursor(e.page, e.place) }
		case "node":
			return edgeNode(documentSelection(b, t, f.Selections, need), s)
		default: // the changes of a version
			return nil
		}
	})
}

func edgeNode(inner *selection[*storage.Object], s *selection[edge]) writer[edge] {
	if inner == nil {
		return nil
	}
	if len(inner.loads) > 0 {
		s.loads = append(s.loads, func(r *run, edges []edge) {
			objects := make([]*storage.Object, len(edges))
			for i, e := range edges {
				objects[i] = &e.page.Docs[e.place].Object
			}
			inner.load(r, objects)
		})
	}
	return func(r *run, at *place, e edge) bool {
		r.enter(at)
		defer r.leave()
		return inner.write(r, &e.page.Docs[e.place].Object)
	}
}

func edges(inner *selection[edge], s *selection[*storage.Page]) writer[*storage.Page] {
	if inner == nil {
		return nil
	}
	if len(inner.loads) > 0 {
		s.loads = append(s.loads, func(r *run, pages []*storage.Page) {
			var all []edge
			for _, p := range pages {
				for i := range p.Docs {
					all = append(all, edge{p, i})
				}
			}
			inner.load(r, all)
		})
	}
	return func(r *run, at *place, p *storage.Page) bool {
		r.enter(at)
		defer r.leave()
		return writeList(r, len(p.Docs), true, func(i int) bool { return inner.write(r, edge{p, i}) })
	}
}

// pageInfo makes the writer of what lies around a page.
func pageInfo(b *planning, of graphql.CollectedField) writer[*storage.Page] {
	inner := selectionOf(b, "PageInfo", of.Selections, func(_ *planning, f graphql.CollectedField, _ *selection[*storage.Page]) writer[*storage.Page] {
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
	})
	if inner == nil {
		return nil
	}
	return func(r *run, at *place, p *storage.Page) bool {
		r.enter(at)
		defer r.leave()
		return inner.write(r, p)
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
	inner := connection(b, t, f.Definition.Type.Name(), f.Selections, &names{})
	if inner == nil {
		return nil
	}
	id, args := b.queue(), b.arguments(f, versionsArguments)
	s.loads = append(s.loads, func(r *run, objects []*storage.Object) { r.loadVersions(id, args, inner, objects) })
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
