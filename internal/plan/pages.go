package plan

import (
	"github.com/99designs/gqlgen/graphql"

	"github.com/asof/asof/storage"
)

// edge is a place on a page.
type edge struct {
	page  *storage.Page
	place int
}

func (e edge) node() *storage.Object { return &e.page.Docs[e.place].Object }

// connection compiles what a field asks of a page of documents of a type, or of
// their versions.
func connection(b *planning, of graphql.CollectedField, t *storage.Type) *selection[*storage.Page] {
	return selectionOf(b, of.Definition.Type.Name(), of.Selections, func(b *planning, f graphql.CollectedField, s *selection[*storage.Page]) writer[*storage.Page] {
		switch f.Name {
		case "nodes":
			return many(documentSelection(b, t, f.Selections), s, edge.node)
		case "edges":
			return many(edgeSelection(b, f, t), s, func(e edge) edge { return e })
		case "pageInfo":
			return one(selectionOf(b, "PageInfo", f.Selections, table(pageInfoFields)), s, func(p *storage.Page) *storage.Page { return p })
		case "totalCount":
			return totalCount
		default:
			return nil
		}
	})
}

func edgeSelection(b *planning, of graphql.CollectedField, t *storage.Type) *selection[edge] {
	return selectionOf(b, of.Definition.Type.Name(), of.Selections, func(b *planning, f graphql.CollectedField, s *selection[edge]) writer[edge] {
		switch f.Name {
		case "cursor":
			return func(r *run, _ *place, e edge) bool { return r.cursor(e.page, e.place) }
		case "node":
			return one(documentSelection(b, t, f.Selections), s, edge.node)
		default: // the changes of a version
			return nil
		}
	})
}

// many makes the writer of a list of objects, one from each place of a page. It is
// to lists what one is to single objects.
func many[Q any](inner *selection[Q], s *selection[*storage.Page], of func(e edge) Q) writer[*storage.Page] {
	below(s, inner, func(all []Q, p *storage.Page) []Q {
		for i := range p.Docs {
			all = append(all, of(edge{p, i}))
		}
		return all
	})
	return func(r *run, at *place, p *storage.Page) bool {
		return writeList(r, at, len(p.Docs), true, func(i int) bool { return inner.write(r, of(edge{p, i})) })
	}
}

// pageInfoFields are the fields of PageInfo.
var pageInfoFields = map[string]writer[*storage.Page]{
	"hasNextPage":     func(r *run, _ *place, p *storage.Page) bool { return r.bool(p.HasNextPage) },
	"hasPreviousPage": func(r *run, _ *place, p *storage.Page) bool { return r.bool(p.HasPreviousPage) },
	"startCursor":     func(r *run, _ *place, p *storage.Page) bool { return len(p.Docs) > 0 && r.cursor(p, 0) },
	"endCursor":       func(r *run, _ *place, p *storage.Page) bool { return len(p.Docs) > 0 && r.cursor(p, len(p.Docs)-1) },
}

// totalCount counts a whole list.
func totalCount(r *run, at *place, p *storage.Page) (ok bool) {
	defer r.recovered(at, len(r.path), len(r.out), &ok)
	n, err := p.TotalCount(r.ctx)
	if err != nil {
		r.fail(at, err)
		return false
	}
	return r.int(n)
}
