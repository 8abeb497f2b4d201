package plan

import (
	"github.com/99designs/gqlgen/graphql"

	"github.com/asof/asof/internal/plan/args"
	"github.com/asof/asof/storage"
)

// versions makes the writer of a page of a document's versions.
func versions(b *planning, f graphql.CollectedField, s *selection[*storage.Object], t *storage.Type) writer[*storage.Object] {
	inner := connection(b, f, t)
	id, given := b.queue(), b.arguments(f, args.OfVersions)
	s.loads = append(s.loads, func(r *run, objects []*storage.Object) { r.loadVersions(id, given, inner, objects) })
	return func(r *run, at *place, _ *storage.Object) bool {
		v := r.take(id, at)
		return v != nil && inner.writeIn(r, at, v.page)
	}
}

// loadVersions reads a page of the versions of each document, in one call of the
// store.
func (r *run) loadVersions(id, given int, inner *selection[*storage.Page], objects []*storage.Object) {
	if r.loader.Follow(len(objects)) != nil {
		return
	}
	docs := make([]*storage.Document, len(objects))
	for i, o := range objects {
		docs[i] = o.Of()
	}
	args, _ := r.args[given].(*storage.VersionsArgs)
	projected := *args
	projected.Members = inner.need
	var found []storage.VersionsOf
	_, err := r.call(func() error {
		found = r.of.store.VersionsTogether(r.ctx, docs, &projected)
		return nil
	})
	q := &r.queues[id]
	var pages []*storage.Page
	for i := range docs {
		v := visit{err: err}
		switch {
		case err != nil:
			err = errElsewhere()
		case found[i].Err != nil:
			v.err = found[i].Err
		default:
			v.page = &found[i].Page.Page
			pages = append(pages, v.page)
		}
		q.visits = append(q.visits, v)
	}
	inner.load(r, pages)
}
