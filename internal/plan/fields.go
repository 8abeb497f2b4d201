package plan

import (
	"errors"
	"fmt"
	"slices"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/ast"

	"github.com/asof/asof/internal/scalar"
	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/normal"
	"github.com/asof/asof/storage/record"
)

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

// errUnreadable is the error of arguments that cannot be read.
var errUnreadable = errors.New("arguments cannot be read")

// fieldArgs is the arguments of one field of an operation.
type fieldArgs struct {
	field graphql.CollectedField
	read  func(g *givenArgs) any
	fixed any // nil: they depend on variables
	// constants are the values of those that do not.
	constants map[string]any
}

// argsOf returns the arguments of a field. Read turns them into one value, never nil.
func argsOf(f graphql.CollectedField, read func(g *givenArgs) any) (fieldArgs, error) {
	args := fieldArgs{field: f, read: read, constants: map[string]any{}}
	value, err := args.with(&givenArgs{compiling: true}, nil)
	if !slices.ContainsFunc(f.Arguments, func(a *ast.Argument) bool { return hasVariable(a.Value) }) {
		args.fixed = value
	}
	return args, err
}

// value returns what the field's read makes of its arguments. It is shared between
// requests where the arguments name no variable. It uses the memory of g.
func (f *fieldArgs) value(g *givenArgs, variables map[string]any) (any, error) {
	if f.fixed != nil {
		return f.fixed, nil
	}
	return f.with(g, variables)
}

func (f *fieldArgs) with(g *givenArgs, variables map[string]any) (any, error) {
	g.field, g.variables, g.constants = f.field, variables, f.constants
	value := f.read(g)
	if g.err != nil {
		return nil, fmt.Errorf("%s: %w", f.field.Name, errUnreadable)
	}
	return value, nil
}

func hasVariable(v *ast.Value) bool {
	if v.Kind == ast.Variable {
		return true
	}
	for _, child := range v.Children {
		if hasVariable(child.Value) {
			return true
		}
	}
	return false
}

// givenArgs is what a request gives a field. The zero value is ready for use.
type givenArgs struct {
	field     graphql.CollectedField
	variables map[string]any
	constants map[string]any
	compiling bool // constants are read, and nothing else
	err       error
}

// value is what an argument was given; false where it was not.
func (g *givenArgs) value(name string) (v any, ok bool) {
	var err error
	if a := g.field.Arguments.ForName(name); a != nil {
		if a.Value.Kind == ast.Variable {
			v, ok = g.variables[a.Value.Raw]
		} else {
			v, err = a.Value.Value(g.variables)
			ok = true
		}
	}
	if def := g.field.Definition.Arguments.ForName(name); !ok && def != nil && def.DefaultValue != nil {
		v, err = def.DefaultValue.Value(g.variables)
		ok = true
	}
	g.fail(err)
	return v, ok
}

func (g *givenArgs) fail(err error) {
	if g.err == nil {
		g.err = err
	}
}

// argument reads an argument once, if it is constant, and otherwise for each
// request.
func argument[T any](g *givenArgs, name string, convert func(v any, ok bool) (T, error)) (value T) {
	if known, ok := g.constants[name].(T); ok {
		return known
	}
	a := g.field.Arguments.ForName(name)
	constant := a == nil || !hasVariable(a.Value)
	if g.compiling && !constant {
		return value
	}
	v, ok := g.value(name)
	value, err := convert(v, ok)
	g.fail(err)
	if g.compiling {
		g.constants[name] = value
	}
	return value
}

// optionalArg reads an argument that may be null or left out: nil.
func optionalArg[T any](g *givenArgs, name string, convert func(any) (T, error)) *T {
	return argument(g, name, func(v any, _ bool) (*T, error) {
		if v == nil {
			return nil, nil
		}
		value, err := convert(v)
		return &value, err
	})
}

// requiredArg reads an argument that validation has seen.
func requiredArg[T any](g *givenArgs, name string, convert func(any) (T, error)) T {
	return argument(g, name, func(v any, ok bool) (value T, err error) {
		if ok {
			value, err = convert(v)
		}
		return value, err
	})
}

// listArg reads an argument that is a list, or one value in its place; nil for null.
func listArg[T any](g *givenArgs, name string, convert func(any) (T, error)) []T {
	return argument(g, name, func(v any, _ bool) (values []T, err error) {
		if v == nil {
			return nil, nil
		}
		elements := graphql.CoerceList(v)
		values = make([]T, len(elements))
		for i, e := range elements {
			if values[i], err = convert(e); err != nil {
				return nil, err
			}
		}
		return values, nil
	})
}

// What follows is given to argsOf, and says what a field's Value is.

// documentArgs names one document.
type documentArgs struct {
	Key     string
	AsOf    *driver.Instant
	Version *int
}

// ofDocument reads the arguments of a document: a *documentArgs.
func ofDocument(g *givenArgs) any {
	return &documentArgs{
		Key:     requiredArg(g, "key", scalar.UnmarshalID),
		AsOf:    optionalArg(g, "asOf", scalar.UnmarshalDateTime),
		Version: optionalArg(g, "version", scalar.UnmarshalInt),
	}
}

// ofPage reads the arguments of a page of documents: a *storage.PageArgs.
func ofPage(g *givenArgs) any {
	a := &storage.PageArgs{
		OrderBy: listArg(g, "orderBy", readOrder),
		First:   optionalArg(g, "first", scalar.UnmarshalInt),
		After:   optionalArg(g, "after", scalar.UnmarshalString),
		Last:    optionalArg(g, "last", scalar.UnmarshalInt),
		Before:  optionalArg(g, "before", scalar.UnmarshalString),
		AsOf:    optionalArg(g, "asOf", scalar.UnmarshalDateTime),
	}
	if where := optionalArg(g, "where", scalar.UnmarshalInput); where != nil {
		a.Where = *where
	}
	return a
}

func readOrder(v any) (*storage.OrderInput, error) {
	fields, ok := v.(map[string]any)
	if !ok {
		return nil, errUnreadable
	}
	order := &storage.OrderInput{Direction: storage.Asc}
	var err error
	if order.Field, err = graphql.UnmarshalString(fields["field"]); err != nil {
		return nil, err
	}
	if direction, ok := fields["direction"]; ok {
		order.Direction, err = scalar.UnmarshalOrderDirection(direction)
	}
	return order, err
}

// ofVersions reads the arguments of a document's versions: a *storage.VersionsArgs.
func ofVersions(g *givenArgs) any {
	return &storage.VersionsArgs{
		From:   optionalArg(g, "from", scalar.UnmarshalDateTime),
		To:     optionalArg(g, "to", scalar.UnmarshalDateTime),
		Author: optionalArg(g, "author", scalar.UnmarshalID),
		Fields: listArg(g, "fields", graphql.UnmarshalString),
		First:  optionalArg(g, "first", scalar.UnmarshalInt),
		After:  optionalArg(g, "after", scalar.UnmarshalString),
		Last:   optionalArg(g, "last", scalar.UnmarshalInt),
		Before: optionalArg(g, "before", scalar.UnmarshalString),
	}
}

// referenceArgs says at which instant a reference is to be read; nil: that of its
// document.
type referenceArgs struct{ AsOf *driver.Instant }

// ofReference reads the argument of a reference: a referenceArgs.
func ofReference(g *givenArgs) any {
	return referenceArgs{AsOf: optionalArg(g, "asOf", scalar.UnmarshalDateTime)}
}

// ofNode reads the argument of node: a string.
func ofNode(g *givenArgs) any { return requiredArg(g, "id", scalar.UnmarshalID) }

// ofNodes reads the argument of nodes: strings.
func ofNodes(g *givenArgs) any { return listArg(g, "ids", scalar.UnmarshalID) }
