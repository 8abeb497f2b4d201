package storage

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"slices"

	"github.com/asof/asof/internal/rule"
	"github.com/asof/asof/storage/condition"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/fault"
	"github.com/asof/asof/storage/normal"
	"github.com/asof/asof/storage/rawjson"
	"github.com/asof/asof/storage/record"
)

// guard is an engine as somebody sees it who may not read and write everything: the actor of
// the context. Whatever is above it, histories, differences, filters, counts and conflicts,
// is made of what it returns, so that what may not be read is nowhere.
//
//   - A member that may not be read is in no version. A commit keeps it as it was.
//   - A document that may not be read does not exist. Each version is judged by itself: one
//     that may not be read, after one that may, is a deletion without an author; the others
//     are in no log.
//   - Of a draft of such a document only its author knows.
//   - A condition on, or an order by, what may not be read is FORBIDDEN, and so is a write of it.
type guard struct {
	driver.Engine
	types map[string]*protected // by collection; those that have rules
}

// protected is a type with rules.
type protected struct {
	t       *record.Type
	rule    rule.Expr       // of rows; nil: none
	needs   []string        // the stored names of what it looks at
	fields  []*record.Field // those with rules
	writers [][]string      // who writes has a role of each list that is not nil
}

// trustedKey is the key of contexts of what the program reads for itself.
type trustedKey struct{}

// trusted returns a context that sees everything.
func trusted(ctx context.Context) context.Context { return context.WithValue(ctx, trustedKey{}, true) }

// protect puts a guard in front of an engine, if any type has rules.
func protect(engine driver.Engine, types []*record.Type) (driver.Engine, *guard, error) {
	g := &guard{Engine: engine, types: map[string]*protected{}}
	for _, t := range types {
		p := &protected{t: t, writers: [][]string{t.Auth.Read, t.Auth.Write}}
		for i := range t.Object.Fields {
			if f := &t.Object.Fields[i]; f.Auth.Read != nil || f.Auth.Write != nil {
				p.fields = append(p.fields, f)
			}
		}
		if t.Auth.Rows != "" {
			if err := p.parse(); err != nil {
				return nil, nil, fmt.Errorf("storage: type %s: rule %q: %w", t.Name, t.Auth.Rows, err)
			}
		}
		if a := t.Auth; p.fields != nil || p.rule != nil || a.Read != nil || a.Write != nil || a.History != nil {
			g.types[t.Collection] = p
			g.types[t.Tags.Collection] = &protected{t: t.Tags, writers: p.writers}
			author := &t.Drafts.Object.Fields[record.DraftAuthor] // a draft is its author's copy, whatever rules say of the document
			g.types[t.Drafts.Collection] = &protected{
				t: t.Drafts, needs: []string{author.Stored}, writers: p.writers,
				rule: rule.Compare{Op: rule.Equal, A: rule.Value{Field: author.Name}, B: rule.Value{Claim: "sub"}},
			}
		}
	}
	if len(g.types) == 0 {
		return engine, g, nil
	}
	return g, g, nil
}

// Unwrap returns the engine that is guarded.
func (g *guard) Unwrap() driver.Engine { return g.Engine }

// view is what an actor may do with the documents of a type.
type view struct {
	*protected
	actor  Actor
	past   bool          // the past may be read
	hidden []string      // the stored names of fields that may not be read
	rows   driver.Filter // what documents meet that may be read; nil: all
}

// view returns what the context's actor may do with a collection; nil: everything.
func (g *guard) view(ctx context.Context, collection string) *view {
	p := g.types[collection]
	if p == nil || ctx.Value(trustedKey{}) != nil {
		return nil
	}
	w := &view{protected: p, actor: actorOf(ctx)}
	w.past = w.actor.hasAny(p.t.Auth.History)
	for _, f := range p.fields {
		if !w.actor.hasAny(f.Auth.Read) {
			if w.hidden == nil {
				w.hidden = make([]string, 0, len(p.fields))
			}
			w.hidden = append(w.hidden, f.Stored)
		}
	}
	switch {
	case !w.actor.hasAny(p.t.Auth.Read):
		w.rows = driver.Or{}
	case p.rule != nil:
		w.rows = p.condition(&w.actor, p.rule, false)
	}
	return w
}

// hasAny reports whether an actor has any of these roles; nil: everybody has.
func (a *Actor) hasAny(roles []string) bool {
	return roles == nil || slices.ContainsFunc(roles, func(role string) bool { return slices.Contains(a.Roles, role) })
}

// fingerprint is equal for actors that may read the same; empty where everybody may read all.
func (g *guard) fingerprint(ctx context.Context) string {
	if len(g.types) == 0 {
		return ""
	}
	a := actorOf(ctx)
	a.Name = ""
	text, err := json.Marshal(a) // what JSON decodes, it encodes
	if err != nil {
		return newID()
	}
	return string(text)
}

// sees reports whether a version may be read. A deletion is judged by what it deleted.
func (g *guard) sees(ctx context.Context, w *view, v *driver.Version) (bool, error) {
	switch {
	case w.rows == nil:
		return true, nil
	case v.Op == driver.OpPruned: // by what became of the document
		vs, err := g.Engine.Get(ctx, v.Collection, []driver.Ref{{Key: v.Key, At: latest}}, w.needs)
		if err != nil || vs[0] == nil || vs[0].Op == driver.OpPruned { // the last one: more is being loaded
			return false, err
		}
		return g.sees(ctx, w, vs[0])
	case !v.Deleted:
		return condition.Holds(w.rows, v, v.Data), nil
	case v.Number <= 1:
		return false, nil
	}
	vs, err := g.Engine.Get(ctx, v.Collection, []driver.Ref{{Key: v.Key, Number: v.Number - 1}}, w.needs)
	if err != nil || !live(vs[0]) {
		return false, err
	}
	data := vs[0].Data
	if v.Op == driver.OpErase { // as when all of it is erased, which may be done already or later
		data = erasedWhole(data, v.Number)
	}
	return condition.Holds(w.rows, vs[0], data), nil
}

// changed returns the stored names of the fields in which a version that may be read differs from
// the one before it: all that may be read, where that one may not.
func (g *guard) changed(ctx context.Context, v *driver.Version) ([]string, error) {
	w := g.view(ctx, v.Collection)
	if w == nil || w.past && w.rows == nil || v.Number <= 1 || v.Deleted {
		return v.Changed, nil
	}
	if w.past {
		vs, err := g.Engine.Get(ctx, v.Collection, []driver.Ref{{Key: v.Key, Number: v.Number - 1}}, w.needs)
		if err != nil {
			return nil, err
		}
		seen := false
		if vs[0] != nil {
			seen, err = g.sees(ctx, w, vs[0])
		}
		if seen || err != nil {
			return v.Changed, err
		}
	}
	var all []string
	for i := range w.t.Object.Fields {
		if name := w.t.Object.Fields[i].Stored; !slices.Contains(w.hidden, name) {
			all = append(all, name)
		}
	}
	return all, nil
}

// unseen is a version that may not be read, of a document that was there before.
func unseen(v *driver.Version) *driver.Version {
	return &driver.Version{
		Collection: v.Collection, Key: v.Key, Number: v.Number, RecordedAt: v.RecordedAt, SupersededAt: v.SupersededAt,
		Op: driver.OpDelete, Deleted: true,
	}
}

// mask returns a version without what may not be read of it.
func (w *view) mask(v *driver.Version) *driver.Version {
	if v == nil || len(w.hidden) == 0 {
		return v
	}
	shown := *v
	shown.Notes = nil // they are about all of the data
	shown.Data = rawjson.Without(v.Data, w.hidden)
	shown.Changed = slices.DeleteFunc(slices.Clone(v.Changed), func(name string) bool { return slices.Contains(w.hidden, name) })
	return &shown
}

// looksAt are the stored names that are read for a caller of some: nil is all.
func (w *view) looksAt(fields []string) []string {
	if fields == nil || w.rows == nil {
		return fields
	}
	return append(slices.Clip(fields), w.needs...)
}

func forbidden(format string, args ...any) error {
	return fault.Errorf(fault.CodeForbidden, format, args...)
}

func (w *view) noPast() error {
	return forbidden("the past of %s may be read by others only: leave out asOf and version, and ask for no histories, changes and differences", w.t.Name)
}

// beginOf is the instant that the context's operation reads at.
func beginOf(ctx context.Context) driver.Instant {
	if op, ok := ctx.Value(operationKey{}).(*operation); ok {
		return op.begin
	}
	return driver.Forever - 1
}

// Get is driver.Engine's. A version that is asked for by number, and may not be read, is a
// deletion: numbers have no gaps.
func (g *guard) Get(ctx context.Context, collection string, refs []driver.Ref, fields []string) ([]*driver.Version, error) {
	w := g.view(ctx, collection)
	if w == nil {
		return g.Engine.Get(ctx, collection, refs, fields)
	}
	vs, err := g.Engine.Get(ctx, collection, refs, w.looksAt(fields))
	if err != nil {
		return nil, err
	}
	begin := beginOf(ctx)
	out, past := make([]*driver.Version, len(vs)), []driver.Ref(nil)
	for i, v := range vs {
		if v == nil {
			continue
		}
		seen, err := g.sees(ctx, w, v)
		switch {
		case err != nil:
			return nil, err
		case !w.past && v.SupersededAt <= begin:
			past = append(past, driver.Ref{Key: v.Key, At: begin})
			seen = false
		}
		if seen {
			out[i] = w.mask(v)
		} else if refs[i].Number > 0 {
			out[i] = unseen(v)
		}
	}
	if len(past) == 0 {
		return out, nil
	}
	// Whether the past could be read by others, or there is none, depends on the document as it is: what it
	// was is not told.
	now, err := g.Engine.Get(ctx, collection, past, w.looksAt([]string{}))
	for _, v := range now {
		if err != nil || v == nil {
			continue
		}
		var seen bool
		if seen, err = g.sees(ctx, w, v); seen {
			return nil, w.noPast()
		}
	}
	return out, err
}

// Query is driver.Engine's.
func (g *guard) Query(ctx context.Context, q *driver.Query) ([]*driver.Version, error) {
	w := g.view(ctx, q.Collection)
	asked, err := w.query(ctx, q)
	if err != nil {
		return nil, err
	}
	vs, err := g.Engine.Query(ctx, asked)
	if w != nil && len(w.hidden) > 0 {
		vs = slices.Clone(vs)
		for i, v := range vs {
			vs[i] = w.mask(v)
		}
	}
	return vs, err
}

// Count is driver.Engine's.
func (g *guard) Count(ctx context.Context, q *driver.Query) (int64, error) {
	asked, err := g.view(ctx, q.Collection).query(ctx, q)
	if err != nil {
		return 0, err
	}
	return g.Engine.Count(ctx, asked)
}

// query returns a query for what may be read. It refuses a condition or an order that looks
// at what may not.
func (w *view) query(ctx context.Context, q *driver.Query) (*driver.Query, error) {
	if w == nil {
		return q, nil
	}
	if !w.past && q.At < beginOf(ctx) {
		return nil, w.noPast()
	}
	looks := driver.Fields(q.Filter)
	for _, o := range q.Order {
		looks = append(looks, o.Field)
	}
	for _, f := range looks {
		if len(f.Path) > 0 && slices.Contains(w.hidden, f.Path[0]) {
			return nil, forbidden("%s.%s may be read by others only, so that it can be neither a condition nor an order: leave it out of where and orderBy", w.t.Name, w.t.Object.Fields[w.t.Object.StoredAs(f.Path[0])].Name)
		}
	}
	asked := *q
	switch {
	case w.rows == nil:
	case q.Filter == nil:
		asked.Filter = w.rows
	default:
		asked.Filter = driver.And{q.Filter, w.rows}
	}
	return &asked, nil
}

// Log is driver.Engine's.
func (g *guard) Log(ctx context.Context, q *driver.LogQuery) iter.Seq2[*driver.Version, error] {
	asked := *q
	asked.Collections = nil
	views := map[string]*view{}
	for _, name := range q.Collections {
		switch w := g.view(ctx, name); {
		case w == nil:
			asked.Collections = append(asked.Collections, name)
		case w.nothing():
		case w.past:
			asked.Collections, views[name] = append(asked.Collections, name), w
			asked.Fields = w.looksAt(asked.Fields)
			named := func(name string) bool { return slices.Contains(q.Hints.Changed, name) }
			if w.rows != nil || slices.ContainsFunc(w.hidden, named) { // some are left out, and what changed is compared with what may be read
				asked.Limit, asked.Hints.Changed = 0, nil
			}
		case len(q.Collections) == 1:
			return func(yield func(*driver.Version, error) bool) { yield(nil, w.noPast()) }
		}
	}
	return func(yield func(*driver.Version, error) bool) {
		if len(asked.Collections) == 0 {
			return
		}
		n := 0
		for v, err := range g.Engine.Log(ctx, &asked) {
			if err == nil {
				v, err = g.show(ctx, views[v.Collection], v)
			}
			if err == nil && v != nil && len(q.Hints.Changed) > 0 {
				shown := *v
				shown.Changed, err = g.changed(ctx, v)
				v = &shown
			}
			if err == nil && (v == nil || !q.Hints.Hold(v)) {
				continue
			}
			if n++; !yield(v, err) || n == q.Limit {
				return
			}
		}
	}
}

// nothing reports whether it is known that nothing may be read.
func (w *view) nothing() bool {
	or, ok := w.rows.(driver.Or)
	return ok && len(or) == 0
}

// arrived returns a version that was committed as the context's actor may read it; nil
// where he may not. Of one that nobody can read, he is told the error, unless he may read none.
func (g *guard) arrived(ctx context.Context, v *driver.Version, failed error) (*driver.Version, error) {
	w := g.view(ctx, v.Collection)
	switch {
	case w != nil && (!w.past || w.nothing()):
		return nil, nil
	case failed != nil:
		return v, failed
	}
	return g.show(ctx, w, v)
}

// maySeePast reports whether the context's actor may read the past of a type.
func (g *guard) maySeePast(ctx context.Context, t *record.Type) bool {
	w := g.view(ctx, t.Collection)
	return w == nil || w.past
}

// mayPage reports whether the context's actor may read the past of a type, and of those that
// it copies from.
func (g *guard) mayPage(ctx context.Context, t *record.Type) bool {
	return g.maySeePast(ctx, t) && !slices.ContainsFunc(t.Copied(), func(c record.Copy) bool { return !g.maySeePast(ctx, c.Of) })
}

// show returns a version of a log as it may be read; nil where it is left out. Beside an error it is what that
// is about.
func (g *guard) show(ctx context.Context, w *view, v *driver.Version) (*driver.Version, error) {
	if w == nil {
		return v, nil
	}
	seen, err := g.sees(ctx, w, v)
	if seen || err != nil {
		return w.mask(v), err
	}
	if v.Op == driver.OpErase { // what was seen before is erased as well
		return nil, nil
	}
	if v.Op == driver.OpPruned { // nobody knows whether it was seen
		return nil, nil
	}
	gone := unseen(v)
	if seen, err = g.sees(ctx, w, gone); !seen && err == nil {
		return nil, nil
	}
	return gone, err
}

// Commit is driver.Engine's.
func (g *guard) Commit(ctx context.Context, ws []driver.Write) ([]*driver.Version, error) {
	asked := slices.Clone(ws)
	views := make([]*view, len(ws))
	for i := range asked {
		if views[i] = g.view(ctx, asked[i].Collection); views[i] != nil {
			if err := g.check(ctx, views[i], &asked[i]); err != nil {
				return nil, err
			}
		}
	}
	vs, err := g.Engine.Commit(ctx, asked)
	for i, v := range vs {
		if views[i] != nil {
			vs[i] = views[i].mask(v)
		}
	}
	return vs, err
}

// check refuses a write that the actor may not make, and adds what he cannot see and so
// leaves as it is.
func (g *guard) check(ctx context.Context, w *view, write *driver.Write) error {
	if slices.ContainsFunc(w.writers, func(roles []string) bool { return !w.actor.hasAny(roles) }) {
		return forbidden("documents of %s may be written by others only: use credentials that have a role for it", w.t.Name)
	}
	if write.Compare || write.Deleted && w.rows == nil {
		return nil // it is a version that he has read; or may read, whatever it holds
	}
	ref := driver.Ref{Key: write.Key, Number: write.Expected}
	if write.Expected == 0 {
		ref.At = driver.Forever
	}
	vs, err := g.Engine.Get(ctx, write.Collection, []driver.Ref{ref}, nil)
	if err != nil {
		return err
	}
	before := vs[0]
	if before != nil && before.Deleted && write.Op == driver.OpRestore { // what comes back
		if vs, err = g.Engine.Get(ctx, write.Collection, []driver.Ref{{Key: write.Key, Number: before.Number - 1}}, nil); err != nil {
			return err
		}
		before = vs[0]
	}
	var old []byte
	if before != nil && !before.Deleted {
		old = before.Data
		if w.rows != nil && !condition.Holds(w.rows, nil, old) {
			return forbidden("the %s with the key %s may be written by others only: use the credentials of somebody who may", w.t.Name, fault.QuoteShort(write.Key))
		}
	}
	if write.Deleted || write.Expected == 0 && old != nil { // the engine says that it is there
		return nil
	}
	for _, f := range w.fields {
		path := []string{f.Stored}
		is, was := rawjson.Find(write.Data, path), rawjson.Find(old, path)
		switch reads := w.actor.hasAny(f.Auth.Read); {
		case reads && w.actor.hasAny(f.Auth.Write):
		case is == nil && !reads:
			write.Data = rawjson.Set(write.Data, path, was)
		case !reads || (is == nil) != (was == nil) || is != nil && !normal.Equal(is, was): // where it cannot be read, also what is there: that it is would be told
			return forbidden("%s.%s may be written by others only: leave it as it is, or use credentials that have a role for it", w.t.Name, f.Name)
		}
	}
	if w.rows != nil && !condition.Holds(w.rows, nil, write.Data) {
		return forbidden("who writes this %s could not read it afterwards: it would not meet the rule of its type; write values that meet it", w.t.Name)
	}
	return nil
}
