package storage

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strconv"

	"github.com/asof/asof/internal/rule"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/normal"
	"github.com/asof/asof/storage/rawjson"
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
	t      *Type
	rule   rule.Expr  // of rows; nil: none
	needs  []string   // the stored names of what it looks at
	fields []*Field   // those with rules
	of     *protected // of drafts: the type that they are of; nil of other documents
}

// trustedKey is the key of contexts of what the program reads for itself.
type trustedKey struct{}

// trusted returns a context that sees everything.
func trusted(ctx context.Context) context.Context { return context.WithValue(ctx, trustedKey{}, true) }

// protect puts a guard in front of an engine, if any type has rules.
func protect(engine driver.Engine, types []*Type) (driver.Engine, *guard, error) {
	g := &guard{Engine: engine, types: map[string]*protected{}}
	for _, t := range types {
		p := &protected{t: t}
		for i := range t.object.Fields {
			if f := &t.object.Fields[i]; f.Auth.Read != nil || f.Auth.Write != nil {
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
			if d := t.drafts; d != nil {
				author := d.object.Fields[draftAuthor].Stored
				g.types[d.Collection] = &protected{t: d, of: p, needs: []string{author}}
			}
		}
	}
	if len(g.types) == 0 {
		return engine, g, nil
	}
	return g, g, nil
}

func (p *protected) parse() error {
	e, err := rule.Parse(p.t.Auth.Rows)
	if err != nil {
		return err
	}
	p.rule = e
	return rule.Check(e, func(name string) (rule.Kind, bool, bool) {
		f := p.t.object.field(name)
		if f == nil {
			return "", false, false
		}
		p.needs = append(p.needs, f.Stored)
		switch kind := f.driverKind(); {
		case f.Default != nil || f.Kind == KindObject || f.Kind == KindJSON:
		case kind == driver.KindString:
			return rule.Text, f.List, true
		case kind == driver.KindInt:
			return rule.Number, f.List, true
		case kind == driver.KindBool:
			return rule.Truth, f.List, true
		}
		return rule.Other, f.List, true
	})
}

// Unwrap returns the engine that is guarded.
func (g *guard) Unwrap() driver.Engine { return g.Engine }

// view is what an actor may do with the documents of a type.
type view struct {
	*protected
	none   bool          // nothing may be read
	past   bool          // the past may be read
	writes bool          // documents may be written
	hidden []string      // the stored names of fields that may not be read, sorted
	fixed  []*Field      // fields that may not be written, also those
	rows   driver.Filter // what documents meet that may be read; nil: all
}

// view returns what the context's actor may do with a collection; nil: everything.
func (g *guard) view(ctx context.Context, collection string) *view {
	p := g.types[collection]
	if p == nil || ctx.Value(trustedKey{}) != nil {
		return nil
	}
	a := actorOf(ctx)
	may := func(roles []string) bool {
		return roles == nil || slices.ContainsFunc(roles, func(role string) bool { return slices.Contains(a.Roles, role) })
	}
	if p.of != nil { // a draft is its author's copy, whatever rules say of the document
		own := driver.In{Field: driver.Field{Path: p.needs, Kind: driver.KindString}, Values: []driver.Value{a.ID}}
		return &view{protected: p, past: true, writes: may(p.of.t.Auth.Read) && may(p.of.t.Auth.Write), rows: own}
	}
	auth := p.t.Auth
	w := &view{protected: p, none: !may(auth.Read), past: may(auth.History), writes: may(auth.Read) && may(auth.Write)}
	for _, f := range p.fields {
		if !may(f.Auth.Read) {
			w.hidden = append(w.hidden, f.Stored)
		}
		if !may(f.Auth.Read) || !may(f.Auth.Write) {
			w.fixed = append(w.fixed, f)
		}
	}
	slices.Sort(w.hidden)
	if p.rule != nil {
		w.rows = p.condition(&a, p.rule, false)
	}
	return w
}

// condition returns the filter for a rule, or for its opposite. A comparison with a claim that
// the actor does not have is never met, nor is its opposite.
func (p *protected) condition(a *Actor, e rule.Expr, not bool) driver.Filter {
	switch e := e.(type) {
	case rule.Not:
		return p.condition(a, e.Of, !not)
	case rule.And:
		both := []driver.Filter{p.condition(a, e.A, not), p.condition(a, e.B, not)}
		if not {
			return driver.Or(both)
		}
		return driver.And(both)
	case rule.Or:
		both := []driver.Filter{p.condition(a, e.A, not), p.condition(a, e.B, not)}
		if not {
			return driver.And(both)
		}
		return driver.Or(both)
	case rule.Compare:
		f := p.comparison(a, e)
		if not = not != (e.Op == rule.Unequal); not && f != nil {
			return driver.Not{Filter: f}
		}
		if f != nil {
			return f
		}
	}
	return driver.Or{}
}

// comparison returns the filter for =, for != too, or for in; nil where a claim is missing.
func (p *protected) comparison(a *Actor, c rule.Compare) driver.Filter {
	of, with := c.A, c.B
	if of.Field == "" {
		of, with = with, of
	}
	values, ok := a.values(with)
	if of.Field == "" { // of claims alone
		others, known := a.values(of)
		switch same := slices.ContainsFunc(values, func(v any) bool { return slices.Contains(others, v) }); {
		case !ok || !known:
			return nil
		case same:
			return driver.And{}
		default:
			return driver.Or{}
		}
	}
	f := p.t.object.field(of.Field)
	field := driver.Field{Path: []string{f.Stored}, Kind: f.driverKind()}
	switch {
	case !ok:
		return nil
	case with.Claim == "" && with.Literal == nil:
		return driver.Not{Filter: driver.Present{Field: field}}
	case f.List:
		return driver.Any{Field: driver.Field{Path: field.Path}, Filter: in(driver.Field{Kind: field.Kind}, values)}
	case c.Op != rule.In && len(values) != 1: // a list is no value
		return nil
	}
	return in(field, values)
}

// in is driver.In with those values that are of the field's kind.
func in(f driver.Field, values []any) driver.Filter {
	fits := []driver.Value{}
	for _, v := range values {
		switch v.(type) {
		case string:
			if f.Kind == driver.KindString {
				fits = append(fits, v)
			}
		case int64:
			if f.Kind == driver.KindInt {
				fits = append(fits, v)
			}
		case bool:
			if f.Kind == driver.KindBool {
				fits = append(fits, v)
			}
		}
	}
	return driver.In{Field: f, Values: fits}
}

// values returns what a claim or a literal is: one value, or those of a list; false for a
// claim that the actor does not have.
func (a *Actor) values(v rule.Value) ([]any, bool) {
	var claim any
	switch v.Claim {
	case "":
		return []any{v.Literal}, true
	case "sub":
		return []any{a.ID}, a.ID != Anonymous
	case "roles":
		out := make([]any, len(a.Roles))
		for i, role := range a.Roles {
			out[i] = role
		}
		return out, true
	default:
		claim = a.Claims[v.Claim]
	}
	list, ok := claim.([]any)
	if !ok {
		list = []any{claim}
	}
	var out []any
	for _, v := range list {
		switch v := v.(type) {
		case string, bool:
			out = append(out, v)
		case float64:
			if n := int64(v); float64(n) == v {
				out = append(out, n)
			}
		}
	}
	return out, ok || out != nil
}

// holds reports whether a document meets a condition, as engines evaluate it: one that
// condition makes.
func holds(f driver.Filter, data []byte) bool {
	all := func(list []driver.Filter, want bool) bool {
		for _, f := range list {
			if holds(f, data) != want {
				return !want
			}
		}
		return want
	}
	switch f := f.(type) {
	case driver.And:
		return all(f, true)
	case driver.Or:
		return all(f, false)
	case driver.Not:
		return !holds(f.Filter, data)
	case driver.Present:
		return valueOf(f.Field.Kind, valueAt(data, f.Field.Path)) != nil
	case driver.In:
		v := valueOf(f.Field.Kind, valueAt(data, f.Field.Path))
		return v != nil && slices.Contains(f.Values, v)
	case driver.Any:
		found := false
		rawjson.Elements(valueAt(data, f.Field.Path), func(start, end int) bool {
			in, _ := f.Filter.(driver.In)
			raw := valueAt(data, f.Field.Path)[start:end]
			v := valueOf(in.Field.Kind, raw)
			found = v != nil && slices.Contains(in.Values, v)
			return !found
		})
		return found
	}
	return false
}

// valueOf returns a stored value as filters compare it; nil where it is not of the kind.
func valueOf(kind driver.Kind, raw []byte) driver.Value {
	if len(raw) == 0 {
		return nil
	}
	switch kind {
	case driver.KindString:
		if s, ok := rawjson.Unquote(raw); ok {
			return s
		}
	case driver.KindBool:
		if b, ok := readBool(nil, raw); ok {
			return b
		}
	case driver.KindInt:
		if n, err := strconv.ParseInt(string(raw), 10, 64); err == nil {
			return n
		}
	default: // rules have no others
	}
	return nil
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
	case w.none:
		return false, nil
	case w.rows == nil:
		return true, nil
	case !v.Deleted:
		return holds(w.rows, v.Data), nil
	}
	before, err := g.before(ctx, w, v)
	return before != nil && !before.Deleted && holds(w.rows, before.Data), err
}

// before returns the version before another one, as far as it is judged; nil for the first.
func (g *guard) before(ctx context.Context, w *view, v *driver.Version) (*driver.Version, error) {
	if v.Number <= 1 {
		return nil, nil
	}
	vs, err := g.Engine.Get(ctx, v.Collection, []driver.Ref{{Key: v.Key, Number: v.Number - 1}}, w.needs)
	if err != nil {
		return nil, err
	}
	return vs[0], nil
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
	shown.Data = without(v.Data, w.hidden)
	shown.Changed = slices.DeleteFunc(slices.Clone(v.Changed), func(name string) bool { return slices.Contains(w.hidden, name) })
	return &shown
}

// without returns an object without some members.
func without(data []byte, names []string) []byte {
	for _, name := range names {
		if valueAt(data, []string{name}) != nil {
			data = setAt(data, []string{name}, nil)
		}
	}
	return data
}

// looksAt are the stored names that are read for a caller of some: nil is all.
func (w *view) looksAt(fields []string) []string {
	if fields == nil || w.rows == nil {
		return fields
	}
	return append(slices.Clone(fields), w.needs...)
}

func forbidden(format string, args ...any) error { return errorf(CodeForbidden, format, args...) }

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
	out := make([]*driver.Version, len(vs))
	for i, v := range vs {
		if v == nil {
			continue
		}
		seen, err := g.sees(ctx, w, v)
		switch {
		case err != nil:
			return nil, err
		case seen && !w.past && v.SupersededAt <= begin:
			return nil, w.noPast()
		case seen:
			out[i] = w.mask(v)
		case refs[i].Number > 0:
			out[i] = unseen(v)
		}
	}
	return out, nil
}

// Query is driver.Engine's.
func (g *guard) Query(ctx context.Context, q *driver.Query) ([]*driver.Version, error) {
	w := g.view(ctx, q.Collection)
	if w == nil {
		return g.Engine.Query(ctx, q)
	}
	asked, err := w.query(ctx, q)
	if err != nil || w.none {
		return nil, err
	}
	vs, err := g.Engine.Query(ctx, asked)
	if err != nil {
		return nil, err
	}
	out := make([]*driver.Version, len(vs))
	for i, v := range vs {
		out[i] = w.mask(v)
	}
	return out, nil
}

// Count is driver.Engine's.
func (g *guard) Count(ctx context.Context, q *driver.Query) (int64, error) {
	w := g.view(ctx, q.Collection)
	if w == nil {
		return g.Engine.Count(ctx, q)
	}
	asked, err := w.query(ctx, q)
	if err != nil || w.none {
		return 0, err
	}
	return g.Engine.Count(ctx, asked)
}

// query returns a query for what may be read.
func (w *view) query(ctx context.Context, q *driver.Query) (*driver.Query, error) {
	if !w.past && q.At < beginOf(ctx) {
		return nil, w.noPast()
	}
	err := w.looks(q.Filter)
	for _, o := range q.Order {
		if err == nil {
			err = w.looksField(o.Field)
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
	return &asked, err
}

// looks refuses a condition on what may not be read.
func (w *view) looks(f driver.Filter) error {
	several := func(list []driver.Filter) error {
		for _, f := range list {
			if err := w.looks(f); err != nil {
				return err
			}
		}
		return nil
	}
	switch f := f.(type) {
	case driver.And:
		return several(f)
	case driver.Or:
		return several(f)
	case driver.Not:
		return w.looks(f.Filter)
	case driver.Compare:
		return w.looksField(f.Field)
	case driver.In:
		return w.looksField(f.Field)
	case driver.Text:
		return w.looksField(f.Field)
	case driver.Present:
		return w.looksField(f.Field)
	case driver.Any: // its filter is about the elements
		return w.looksField(f.Field)
	}
	return nil
}

func (w *view) looksField(f driver.Field) error {
	if len(f.Path) > 0 && slices.Contains(w.hidden, f.Path[0]) {
		return forbidden("%s.%s may be read by others only, so that it can be neither a condition nor an order", w.t.Name, w.t.object.Fields[w.t.object.byStored[f.Path[0]]].Name)
	}
	return nil
}

// Log is driver.Engine's.
func (g *guard) Log(ctx context.Context, q *driver.LogQuery) iter.Seq2[*driver.Version, error] {
	asked := *q
	asked.Collections = nil
	views := map[string]*view{}
	for _, name := range q.Collections {
		w := g.view(ctx, name)
		switch {
		case w == nil:
		case w.none:
			continue
		case !w.past && len(q.Collections) == 1:
			return func(yield func(*driver.Version, error) bool) { yield(nil, w.noPast()) }
		case !w.past:
			continue
		default:
			views[name] = w
			asked.Fields = w.looksAt(asked.Fields)
			if w.rows != nil {
				asked.Limit = 0 // some are left out
			}
		}
		asked.Collections = append(asked.Collections, name)
	}
	if len(asked.Collections) == 0 {
		return func(func(*driver.Version, error) bool) {}
	}
	if len(views) == 0 {
		return g.Engine.Log(ctx, &asked)
	}
	return func(yield func(*driver.Version, error) bool) {
		n := 0
		for v, err := range g.Engine.Log(ctx, &asked) {
			if err == nil {
				v, err = g.show(ctx, views[v.Collection], v)
			}
			if err == nil && v == nil {
				continue
			}
			if n++; !yield(v, err) || err != nil || n == q.Limit {
				return
			}
		}
	}
}

// arrived returns a version that was committed as the context's actor may be told of it; nil
// where he may not.
func (g *guard) arrived(ctx context.Context, v *driver.Version) (*driver.Version, error) {
	w := g.view(ctx, v.Collection)
	if w != nil && !w.past {
		return nil, nil
	}
	return g.show(ctx, w, v)
}

// maySeePast reports whether the context's actor may read the past of a type.
func (g *guard) maySeePast(ctx context.Context, t *Type) bool {
	w := g.view(ctx, t.Collection)
	return w == nil || w.past
}

// show returns a version of a log as it may be read; nil where it is left out.
func (g *guard) show(ctx context.Context, w *view, v *driver.Version) (*driver.Version, error) {
	if w == nil {
		return v, nil
	}
	seen, err := g.sees(ctx, w, v)
	if seen || err != nil {
		return w.mask(v), err
	}
	before, err := g.before(ctx, w, v)
	if err != nil || before == nil || before.Deleted || !holds(w.rows, before.Data) {
		return nil, err
	}
	return unseen(v), nil
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
	if !w.writes {
		return forbidden("documents of %s may be written by others only", w.t.Name)
	}
	if write.Compare {
		return nil // it is a version that he has read
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
		if w.rows != nil && !holds(w.rows, old) {
			return forbidden("the %s with the key %s may be written by others only", w.t.Name, quoteShort(write.Key))
		}
	}
	if write.Deleted || write.Expected == 0 && old != nil { // the engine says that it is there
		return nil
	}
	for _, f := range w.fixed {
		path := []string{f.Stored}
		is, was := valueAt(write.Data, path), valueAt(old, path)
		if is == nil && slices.Contains(w.hidden, f.Stored) {
			if was != nil {
				write.Data = setAt(write.Data, path, was)
			}
			continue
		}
		if (is == nil) != (was == nil) || is != nil && !normal.Equal(is, was) {
			return forbidden("%s.%s may be written by others only", w.t.Name, f.Name)
		}
	}
	if w.rows != nil && !holds(w.rows, write.Data) {
		return forbidden("who writes this %s could not read it afterwards: it would not meet the rule of its type", w.t.Name)
	}
	return nil
}
