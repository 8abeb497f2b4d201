package plan

import (
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/ast"

	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/fault"
	"github.com/asof/asof/storage/record"
)

// mostFields is how many fields a plan has at most: fragments that are spread in
// many places are compiled in each.
const mostFields = 10_000

// plan is a compiled operation. It is made of functions that append fields to
// the answer, one for each field, in the order of the answer.
type plan struct {
	err    error // why there is none
	root   *selection[struct{}]
	args   []fieldArgs // of the fields that have some
	queues int         // fields that queue what they read
	// refs are, by type, the stored names that are read of documents reached by
	// references, whichever reference leads to them.
	refs map[*record.Type]*names
	size atomic.Int64 // of the last answers, in bytes
}

// names is a set of stored names.
type names []string

func (n *names) add(more ...string) {
	for _, name := range more {
		if !slices.Contains(*n, name) {
			*n = append(*n, name)
		}
	}
}

// compile returns the plan of the context's operation and the number of fields in its
// selections. The plan has an error where the operation has a field of an unknown
// kind.
func (e *executable) compile(oc *graphql.OperationContext) (made *plan, fields int) {
	b := &planning{
		executable: e, plan: &plan{refs: map[*record.Type]*names{}},
		// CollectFields keeps what it finds in its context, which must not be the
		// request's.
		oc: &graphql.OperationContext{Doc: oc.Doc, Operation: oc.Operation, Variables: oc.Variables},
	}
	defer func() {
		switch failure := recover().(type) {
		case nil:
		case unplanned:
			made, fields = &plan{err: failure}, 0
		case string: // of CollectFields, for a condition that is null
			made, fields = &plan{err: unplanned(failure)}, 0
		default:
			panic(failure)
		}
	}()
	b.plan.root = selectionOf(b, "Query", oc.Operation.SelectionSet, rootField)
	return b.plan, b.fields
}

// planning is a plan that is being made. Its functions must not hold it, as it
// holds a request's variables.
type planning struct {
	*executable
	plan   *plan
	oc     *graphql.OperationContext
	fields int
}

// giveUp ends compile by a panic with the reason for which there is no plan.
func (b *planning) giveUp(format string, args ...any) {
	panic(unplanned(fmt.Sprintf(format, args...)))
}

// queue returns the place of a new queue.
func (b *planning) queue() int {
	b.plan.queues++
	return b.plan.queues - 1
}

// arguments returns the place of a field's arguments in those of an execution.
func (b *planning) arguments(f graphql.CollectedField, read func(g *givenArgs) any) int {
	field, err := argsOf(f, read)
	if err != nil {
		b.giveUp("%v", err)
	}
	b.plan.args = append(b.plan.args, field)
	return len(b.plan.args) - 1
}

// selection is what is asked of objects of one type; P is how they are held.
type selection[P any] struct {
	fields []field[P]
	// loads read what fields need before they can be written, for all objects at
	// once.
	loads []func(r *run, objects []P)
	// need are the stored names that are looked at in documents; never nil, which
	// would be all.
	need names
}

// field is one field of a selection.
type field[P any] struct {
	place
	label    string // `"alias":`
	nonNull  bool
	repeated bool // another field before it has the same response name
	write    writer[P]
}

// writer appends the value of a field and returns true; for null it appends nothing
// and returns false.
type writer[P any] func(r *run, at *place, object P) bool

// place says where in an operation a field stands.
type place struct {
	object string // the type that it belongs to
	field  graphql.CollectedField
}

// kind makes the writer of a field; nil where it knows no such field.
type kind[P any] func(b *planning, f graphql.CollectedField, s *selection[P]) writer[P]

// table is a kind of fields that need nothing to be made.
func table[P any](writers map[string]writer[P]) kind[P] {
	return func(_ *planning, f graphql.CollectedField, _ *selection[P]) writer[P] { return writers[f.Name] }
}

// selectionOf compiles selections on objects of a type, all of whose fields are
// made by kind.
func selectionOf[P any](b *planning, typeName string, set ast.SelectionSet, kind kind[P]) *selection[P] {
	def := b.Schema().Types[typeName]
	collected := graphql.CollectFields(b.oc, set, append([]string{typeName}, def.Interfaces...))
	if b.fields += len(collected); b.fields > mostFields {
		b.giveUp("the operation has more than %d fields", mostFields)
	}
	s := &selection[P]{fields: make([]field[P], len(collected)), need: names{}}
	for i, f := range collected {
		to := &s.fields[i]
		to.place = place{object: typeName, field: f}
		to.label = `"` + f.Alias + `":`
		to.repeated = slices.ContainsFunc(collected[:i], func(c graphql.CollectedField) bool { return c.Alias == f.Alias })
		if len(f.Deferrables) > 0 {
			b.giveUp("@defer is not planned")
		}
		if f.Name == "__typename" {
			to.write = constant[P](`"` + typeName + `"`)
			continue
		}
		to.nonNull = def.Fields.ForName(f.Name).Type.NonNull
		if to.write = kind(b, f, s); to.write == nil {
			b.giveUp("%s.%s is not planned", typeName, f.Name)
		}
	}
	return s
}

// constant appends the same text each time.
func constant[P any](text string) writer[P] {
	return func(r *run, _ *place, _ P) bool {
		r.out = append(r.out, text...)
		return true
	}
}

// documentSelection compiles what is asked of documents of a type.
func documentSelection(b *planning, t *record.Type, set ast.SelectionSet) *selection[*storage.Object] {
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
			if c := t.Copy(f.Name); c != nil {
				return copiedField(b, f, s, t, c)
			}
			return storedField(b, f, s, t.Object)
		}
	})
}

// storedField makes the writer of a field that is stored in documents, or in
// objects nested in them, or of one that shows the keys of a reference.
func storedField(b *planning, f graphql.CollectedField, s *selection[*storage.Object], t *record.ObjectType) writer[*storage.Object] {
	i := slices.IndexFunc(t.Fields, func(stored record.Field) bool {
		return stored.Name == f.Name || stored.Kind == record.KindRef && stored.Keys == f.Name
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
	case stored.Kind == record.KindRef:
		return reference(b, f, s, stored, i)
	case stored.Kind == record.KindObject:
		return nested(b, f, stored, i)
	default:
		return copied(i, "")
	}
}

// nested makes the writer of an object, or a list of objects, in a document. Only
// documents refer to others: nothing is read for what is nested in them.
func nested(b *planning, f graphql.CollectedField, stored *record.Field, i int) writer[*storage.Object] {
	fields := func(b *planning, f graphql.CollectedField, s *selection[*storage.Object]) writer[*storage.Object] {
		return storedField(b, f, s, stored.Object)
	}
	inner := selectionOf(b, stored.Object.Name, f.Selections, fields)
	if stored.List {
		return nestedList(inner, i, stored.ElemNonNull)
	}
	return func(r *run, at *place, o *storage.Object) bool {
		child, err := o.Object(i)
		if err != nil {
			r.fail(at, err)
		}
		return child != nil && inner.writeIn(r, at, child)
	}
}

func nestedList(inner *selection[*storage.Object], i int, elemNonNull bool) writer[*storage.Object] {
	return func(r *run, at *place, o *storage.Object) bool {
		list := r.list(at, elemNonNull)
		there, err := o.EachObject(i, func(element *storage.Object) {
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

// versions makes the writer of a page of a document's versions.
func versions(b *planning, f graphql.CollectedField, s *selection[*storage.Object], t *record.Type) writer[*storage.Object] {
	inner := connection(b, f, t)
	id, given := b.queue(), b.arguments(f, ofVersions)
	s.loads = append(s.loads, func(r *run, objects []*storage.Object) { r.loadVersions(id, given, inner, objects) })
	return func(r *run, at *place, _ *storage.Object) bool {
		v := r.take(id, at)
		return v != nil && inner.writeIn(r, at, v.page)
	}
}

// pageBytes is about what a page of versions takes, beside the versions.
const pageBytes = 1 << 10

// loadVersions reads a page of the versions of each document.
func (r *run) loadVersions(id, given int, inner *selection[*storage.Page], objects []*storage.Object) {
	if r.loader.Follow(len(objects)) != nil {
		return
	}
	args, _ := r.args[given].(*storage.VersionsArgs)
	projected := *args
	projected.Members = inner.need
	q := &r.queues[id]
	if r.late == nil {
		r.late = r.of.Memory(r.ctx, len(objects)*pageBytes)
	}
	if r.late != nil {
		return // nothing is written then
	}
	visits, pages := make([]visit, len(objects)), make([]*storage.Page, 0, len(objects))
	r.of.store.Together(len(objects), func(i int) {
		v := &visits[i]
		if v.err = r.ctx.Err(); v.err != nil {
			return
		}
		_, v.err = r.call(func() error {
			found, err := r.of.store.Versions(r.ctx, objects[i].Of(), &projected)
			if err == nil {
				v.page = &found.Page
			}
			return err
		})
	})
	if over := r.ctx.Err(); over != nil {
		r.late = fault.Ended(over)
		return
	}
	for _, v := range visits {
		if v.page != nil {
			pages = append(pages, v.page)
		}
	}
	q.visits = append(q.visits, visits...)
	inner.load(r, pages)
}

// versionInfo makes the writer of what is known of the version that was read.
func versionInfo(b *planning, f graphql.CollectedField, s *selection[*storage.Object]) writer[*storage.Object] {
	return one(selectionOf(b, "VersionInfo", f.Selections, versionInfoField), s, func(o *storage.Object) storage.VersionInfo { return *o.Of().VersionInfo() })
}

func versionInfoField(b *planning, f graphql.CollectedField, s *selection[storage.VersionInfo]) writer[storage.VersionInfo] {
	switch f.Name {
	case "author":
		return one(selectionOf(b, "Actor", f.Selections, table(actorFields)), s, func(v storage.VersionInfo) storage.Actor { return *v.Author() })
	case "approvedBy":
		inner := selectionOf(b, "Actor", f.Selections, table(actorFields)) // reads nothing
		return func(r *run, at *place, v storage.VersionInfo) bool {
			by := v.ApprovedBy()
			return by != nil && inner.writeIn(r, at, *by)
		}
	}
	return versionInfoFields[f.Name]
}

var versionInfoFields = map[string]writer[storage.VersionInfo]{
	"number":     func(r *run, _ *place, v storage.VersionInfo) bool { return r.int(v.Number()) },
	"recordedAt": func(r *run, _ *place, v storage.VersionInfo) bool { return r.instant(v.RecordedAt()) },
	"supersededAt": func(r *run, _ *place, v storage.VersionInfo) bool {
		at := v.SupersededAt()
		return at != nil && r.instant(*at)
	},
	"message":     func(r *run, _ *place, v storage.VersionInfo) bool { return r.optional(v.Message()) },
	"operation":   func(r *run, _ *place, v storage.VersionInfo) bool { return r.string(string(v.Operation())) },
	"changeGroup": func(r *run, _ *place, v storage.VersionInfo) bool { return r.optional(v.ChangeGroup()) },
	"isCurrent":   func(r *run, _ *place, v storage.VersionInfo) bool { return r.bool(v.IsCurrent()) },
	"hash":        func(r *run, _ *place, v storage.VersionInfo) bool { return r.optional(v.Hash()) },
	"changedFields": func(r *run, at *place, v storage.VersionInfo) bool {
		fields, err := v.ChangedFields(r.ctx)
		if err != nil {
			r.fail(at, err)
			return false
		}
		return writeList(r, at, len(fields), true, func(i int) bool { return r.string(fields[i]) })
	},
}

// actorFields are those of who wrote or approved a version.
var actorFields = map[string]writer[storage.Actor]{
	"id": func(r *run, _ *place, a storage.Actor) bool { return r.string(a.ID) },
	"name": func(r *run, at *place, a storage.Actor) bool {
		name, err := a.LatestName(r.ctx)
		if err != nil {
			r.fail(at, err)
		}
		return r.optional(name)
	},
}

// edge is a place on a page.
type edge struct {
	page  *storage.Page
	place int
}

func (e edge) node() *storage.Object { return &e.page.Docs[e.place].Object }

// connection compiles what a field asks of a page of documents of a type, or of
// their versions.
func connection(b *planning, of graphql.CollectedField, t *record.Type) *selection[*storage.Page] {
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

func edgeSelection(b *planning, of graphql.CollectedField, t *record.Type) *selection[edge] {
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
