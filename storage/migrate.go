package storage

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/asof/asof/storage/condition"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/fault"
	"github.com/asof/asof/storage/normal"
	"github.com/asof/asof/storage/rawjson"
	"github.com/asof/asof/storage/record"
	"github.com/asof/asof/storage/seal"
)

// Migration returns what a document that was written under an earlier schema is in today's form, in the
// names under which it is stored. It gets what is stored after what @was says was done. From
// is the number of that schema, as "asof schema list" has it; 0: it is not known, as of versions that were imported.
// It is called from any number of goroutines. What is in today's form already it has to return as it is, where it is told no
// schema. What was erased is an object ({"asof:erased": …}), which it moves as any value; where it fails for a version of which
// something was erased, that is read without it.
type Migration func(old json.RawMessage, from uint32) (json.RawMessage, error)

// migrating is an engine that returns documents in today's form, whatever schema they were written
// under. So filters, histories, differences, permissions and drafts, which are above
// it, know of no other. What is stored stays as it is: seals are about that, and so exports, archives and
// imports are below.
type migrating struct {
	driver.Engine
	types  map[string]*migrated // by collection; those of which documents may have another form
	schema *schema
}

// migrated is a type of which documents may have another form.
type migrated struct {
	*record.Type
	hook    Migration // nil: none
	private bool      // not everybody may read all of it
	inside  string    // the member that holds the document, in a draft; "": it is the document
	touched []string  // stored names of members that may have another form; nil: all
}

// migrate returns an engine in front of another one, which has no types where none needs it.
func migrate(engine driver.Engine, types []*record.Type, hooks map[string]Migration, of *schema) (*migrating, error) {
	e := &migrating{Engine: engine, types: map[string]*migrated{}, schema: of}
	for name := range hooks {
		if !slices.ContainsFunc(types, func(t *record.Type) bool { return t.Name == name }) {
			return nil, fmt.Errorf("storage: there is a migration of the type %s, which does not exist", name)
		}
	}
	for _, t := range types {
		m := &migrated{Type: t, hook: hooks[t.Name], private: t.Auth.Read != nil || t.Auth.History != nil || t.Auth.Rows != ""}
		for i := range t.Fields {
			m.private = m.private || t.Fields[i].Auth.Read != nil
		}
		if t.Object.Was() == nil && m.hook == nil {
			continue
		}
		if m.hook == nil {
			for _, i := range t.Object.Was() {
				f := &t.Object.Fields[i]
				m.touched = append(append(m.touched, f.Stored), f.Was.Members...)
			}
		}
		e.types[t.Collection] = m
		content := t.Drafts.Object.Fields[record.DraftContent].Stored
		e.types[t.Drafts.Collection] = &migrated{Type: t.Drafts, hook: m.hook, private: true, inside: content, touched: []string{content}}
	}
	return e, nil
}

// Unwrap is for driver.As.
func (e *migrating) Unwrap() driver.Engine { return e.Engine }

// upgraded is what is kept beside a version in another form.
type upgraded struct {
	of    *byte // the first byte of the data
	err   error
	to    driver.Version // in today's form, unless there is an error
	notes driver.Notes   // of that
}

// today returns a version in today's form; without its data where that was not asked for, and beside an error: that
// says that the version has none.
func (e *migrating) today(v *driver.Version, dataless bool) (*driver.Version, error) {
	if v == nil || v.Op == driver.OpPruned {
		return v, nil
	}
	m, from := e.types[v.Collection], seal.Schema(v.Seal)
	if m == nil {
		return v, nil
	}
	if from != 0 && from == e.schema.number {
		return m.after(v), nil
	}
	if dataless {
		to := *v
		to.Changed, to.Data, to.Notes = m.changed(v.Changed), nil, nil
		return &to, nil
	}
	var of *byte
	if len(v.Data) > 0 {
		of = &v.Data[0]
	}
	if u, ok := v.Notes.Get().(*upgraded); ok && u.of == of && u.to.SupersededAt == v.SupersededAt {
		return u.result()
	}
	u := &upgraded{of: of, to: *v}
	u.to.Changed = m.changed(v.Changed)
	if v.Notes != nil {
		u.to.Notes = &u.notes
	}
	if of != nil {
		u.to.Data, u.err = m.upgrade(v.Data, from)
	}
	switch {
	case u.err == nil:
	case seal.Erased(v.Seal) && m.Auth.Rows == "": // the migration need not know of what was erased, but a rule may look at what it makes
		u.to.Data, u.err = m.Object.Today(v.Data), nil
	default:
		u.err = m.unreadable(v, u.err)
	}
	v.Notes.Keep(u)
	return u.result()
}

func (u *upgraded) result() (*driver.Version, error) { return &u.to, u.err }

// unreadableError is the cause of errors of one version, which has no form of today.
type unreadableError struct{ text string }

func (e *unreadableError) Error() string { return e.text }

// isUnreadable reports whether an error is of one version.
func isUnreadable(err error) bool {
	_, is := errors.AsType[*unreadableError](err)
	return is
}

// unreadable returns the error of a version of which a migration makes nothing. Whether a client may read the
// version cannot be told, so of types that not everybody may read, its key and what the migration says are for the log.
func (m *migrated) unreadable(v *driver.Version, why error) error {
	text := fmt.Sprintf("%s %q, version %d, cannot be read in today's form: its migration %v; correct it in resolvers/migrations.go", m.Name, v.Key, v.Number, why)
	shown := text
	if m.private {
		shown = fmt.Sprintf("a %s cannot be read in today's form: the log of the server says which one, and why", m.Name)
	}
	return &fault.Error{Code: fault.CodeInternal, Message: shown, Cause: &unreadableError{text}}
}

// after is a version in today's form, which may follow on one in an earlier form: of that, it says which
// members it has changed.
func (m *migrated) after(v *driver.Version) *driver.Version {
	if m.touched == nil {
		return v
	}
	changed := m.changed(v.Changed)
	if slices.Equal(changed, v.Changed) {
		return v
	}
	to := *v
	to.Changed = changed
	return &to
}

// changed are the names of the members that a version may have changed, in today's form.
func (m *migrated) changed(names []string) []string {
	if len(names) == 0 && m.touched != nil {
		return names
	}
	if m.touched == nil { // only the migration knows, which may make members of none
		names = nil
		for i := range m.Object.Fields {
			names = append(names, m.Object.Fields[i].Stored)
		}
		slices.Sort(names)
		return names
	}
	to := slices.Clone(names)
	for _, i := range m.Object.Was() {
		f := &m.Object.Fields[i]
		for n, name := range to {
			if slices.Contains(f.Was.Members, name) {
				to[n] = f.Stored
			}
		}
	}
	slices.Sort(to)
	return slices.Compact(to)
}

// Today returns the data of a version in today's form. The error is that of its migration, for operators.
func (s *Store) Today(v *driver.Version) ([]byte, error) {
	to, err := s.migrating.today(v, false)
	if unreadable, ok := errors.AsType[*unreadableError](err); ok { // with what clients may not be told
		return nil, unreadable
	}
	return to.Data, err
}

// rewritten returns a version as it is stored in today's form; nil where its migration fails.
func (e *migrating) rewritten(v *driver.Version) *driver.Version {
	m, from := e.types[v.Collection], seal.Schema(v.Seal)
	switch {
	case m == nil || len(v.Data) == 0:
		return v
	case from != 0 && from == e.schema.number:
		return m.after(v)
	}
	to := *v
	to.Changed, to.Schema = m.changed(v.Changed), e.schema.number
	var err error
	if to.Data, err = m.upgrade(v.Data, from); err != nil {
		return nil
	}
	return &to
}

// upgrade returns data in today's form.
func (m *migrated) upgrade(data []byte, from uint32) ([]byte, error) {
	data = m.Object.Today(data)
	if m.hook == nil {
		return data, nil
	}
	if m.inside == "" {
		return hooked(m.hook, data, from)
	}
	content := rawjson.Find(data, []string{m.inside})
	if rawjson.IsNull(content) {
		return data, nil
	}
	content, err := hooked(m.hook, content, from)
	return rawjson.Set(data, []string{m.inside}, content), err
}

// hooked calls a migration, which may do what it likes.
func hooked(hook Migration, data []byte, from uint32) (to []byte, err error) {
	defer func() {
		if r := recover(); r != nil {
			to, err = nil, fmt.Errorf("panicked: %v", r)
		}
	}()
	out, err := hook(bytes.Clone(data), from)
	if err != nil {
		return nil, fmt.Errorf("failed: %w", err)
	}
	if to, err = normal.Object(out); err != nil {
		return nil, fmt.Errorf("returned no JSON object: %w", err)
	}
	return to, nil
}

// all are versions in today's form.
func (e *migrating) all(vs []*driver.Version, dataless bool) (out []*driver.Version, err error) {
	out = make([]*driver.Version, len(vs))
	for i, v := range vs {
		if out[i], err = e.today(v, dataless); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// fields are the names that have to be read where a caller looks at some.
func (m *migrated) fields(names []string) []string {
	switch {
	case len(names) == 0: // all, or none
		return names
	case m.touched == nil:
		return nil
	case slices.ContainsFunc(names, func(name string) bool { return slices.Contains(m.touched, name) }):
		return append(slices.Clone(names), m.touched...)
	}
	return names
}

// Get is driver.Engine's.
func (e *migrating) Get(ctx context.Context, collection string, refs []driver.Ref, fields []string) ([]*driver.Version, error) {
	m := e.types[collection]
	if m == nil {
		return e.Engine.Get(ctx, collection, refs, fields)
	}
	vs, err := e.Engine.Get(ctx, collection, refs, m.fields(fields))
	if err != nil {
		return nil, err
	}
	return e.all(vs, none(fields))
}

// none reports whether a caller looks at no data.
func none(fields []string) bool { return fields != nil && len(fields) == 0 }

// getEach is Get of the engine, which fails for each version alone where one cannot be read.
func (s *Store) getEach(ctx context.Context, collection string, refs []driver.Ref, fields []string) (vs []*driver.Version, failed map[int]error, err error) {
	vs, err = s.engine.Get(ctx, collection, refs, fields)
	if !isUnreadable(err) {
		return vs, nil, err
	}
	vs, failed = make([]*driver.Version, len(refs)), map[int]error{}
	for i, ref := range refs {
		one, err := s.engine.Get(ctx, collection, []driver.Ref{ref}, fields)
		switch {
		case isUnreadable(err):
			failed[i] = err
		case err != nil:
			return nil, nil, err
		default:
			vs[i] = one[0]
		}
	}
	return vs, failed, nil
}

// Log is driver.Engine's. A version that is beside an error has that alone: the log goes on behind it.
func (e *migrating) Log(ctx context.Context, q *driver.LogQuery) iter.Seq2[*driver.Version, error] {
	asked := *q
	for name, m := range e.types {
		if len(q.Collections) == 0 || slices.Contains(q.Collections, name) {
			asked.Hints.Changed = nil // it may be in other members
			asked.Fields = m.fields(asked.Fields)
		}
	}
	return func(yield func(*driver.Version, error) bool) {
		for v, err := range e.Engine.Log(ctx, &asked) {
			if err == nil {
				v, err = e.today(v, none(q.Fields))
			}
			if !yield(v, err) {
				return
			}
		}
	}
}

// How many documents are read at once where all are: at first, and at most, and bytes of them.
const (
	first      = 4
	few        = 32
	chunk      = 500
	chunkBytes = 1 << 20
)

// matching calls fn with each document that meets a query's conditions, in no order: all documents are read, whose
// number --max-read bounds, as the engine's filters and indexes are about what is stored.
func (e *migrating) matching(ctx context.Context, m *migrated, q *driver.Query, fn func(*driver.Version)) error {
	asked, over := &driver.Query{Collection: q.Collection, At: q.At, Limit: first, Filter: m.ofEngine(q.Filter)}, endedAtTimes(ctx)
	for {
		vs, err := e.Engine.Query(ctx, asked)
		if err != nil {
			return err
		}
		size := 1
		for _, v := range vs {
			asked.After, size = &driver.Position{Key: v.Key}, size+v.Size()
			if v, err = e.today(v, false); err != nil {
				return err
			}
			if q.Filter == nil || condition.HoldsUntil(over, q.Filter, v, v.Data) {
				fn(v)
			}
		}
		if err := ended(ctx); err != nil || len(vs) < asked.Limit {
			return err
		}
		asked.Limit = min(len(vs)*chunkBytes/size+1, chunk)
	}
}

// ofEngine are those of a filter's conditions, all of which must hold, that the engine can tell.
func (m *migrated) ofEngine(f driver.Filter) driver.Filter {
	all, ok := f.(driver.And)
	if !ok {
		all = driver.And{f}
	}
	var own driver.And
	for _, f := range all {
		if f != nil && !m.touches(driver.Fields(f)) {
			own = append(own, f)
		}
	}
	return own
}

// touches reports whether any field may have another form.
func (m *migrated) touches(fields []driver.Field) bool {
	return slices.ContainsFunc(fields, func(f driver.Field) bool {
		return len(f.Path) > 0 && (m.touched == nil || slices.Contains(m.touched, f.Path[0]))
	})
}

// byEngine reports whether the engine can filter and sort: nothing is asked that may have another form, or
// all documents were rewritten before that instant.
func (e *migrating) byEngine(ctx context.Context, m *migrated, q *driver.Query) (bool, error) {
	fields := driver.Fields(q.Filter)
	for _, o := range q.Order {
		fields = append(fields, o.Field)
	}
	if !m.touches(fields) {
		return true, nil
	}
	return e.schema.rewritten(ctx, e.Engine, m.Collection, q.At)
}

// Query is driver.Engine's.
func (e *migrating) Query(ctx context.Context, q *driver.Query) ([]*driver.Version, error) {
	m := e.types[q.Collection]
	if m == nil {
		return e.Engine.Query(ctx, q)
	}
	switch can, err := e.byEngine(ctx, m, q); {
	case err != nil:
		return nil, err
	case can:
		asked := *q
		asked.Fields = m.fields(q.Fields)
		vs, err := e.Engine.Query(ctx, &asked)
		if err != nil {
			return nil, err
		}
		return e.all(vs, none(q.Fields))
	}
	var found []*driver.Version
	err := e.matching(ctx, m, q, func(v *driver.Version) {
		if found = append(found, v); q.Limit > 0 && len(found) >= 2*q.Limit+chunk { // no more is kept
			found = pageOf(m.Type, found, q)
		}
	})
	return pageOf(m.Type, found, q), err
}

// Count is driver.Engine's.
func (e *migrating) Count(ctx context.Context, q *driver.Query) (n int64, err error) {
	m := e.types[q.Collection]
	if m == nil {
		return e.Engine.Count(ctx, q)
	}
	if can, err := e.byEngine(ctx, m, q); can || err != nil {
		if err != nil {
			return 0, err
		}
		return e.Engine.Count(ctx, q)
	}
	err = e.matching(ctx, m, q, func(*driver.Version) { n++ })
	return n, err
}

// pageOf returns the part of documents that a query asks for, in its order.
func pageOf(t *record.Type, found []*driver.Version, q *driver.Query) []*driver.Version {
	type placed struct {
		v  *driver.Version
		at driver.Position
	}
	list := make([]placed, 0, len(found))
	for _, v := range found {
		p := placed{v, position((*Store)(nil).newDocument(t, v, 0, 0, false), q.Order)}
		if q.After != nil && condition.ComparePositions(q.Order, &p.at, q.After) <= 0 || q.Before != nil && condition.ComparePositions(q.Order, &p.at, q.Before) >= 0 {
			continue
		}
		list = append(list, p)
	}
	slices.SortFunc(list, func(a, b placed) int { return condition.ComparePositions(q.Order, &a.at, &b.at) })
	if over := len(list) - q.Limit; q.Limit > 0 && over > 0 && q.Backward {
		list = list[over:]
	} else if q.Limit > 0 && over > 0 {
		list = list[:q.Limit]
	}
	out := make([]*driver.Version, len(list))
	for i, p := range list {
		out[i] = p.v
	}
	return out
}

// Commit is driver.Engine's. What a version changes is said of what is stored.
func (e *migrating) Commit(ctx context.Context, ws []driver.Write) ([]*driver.Version, error) {
	asked, refs, places := slices.Clone(ws), map[string][]driver.Ref{}, map[string][]int{}
	for i, w := range asked {
		if e.types[w.Collection] != nil && !w.Compare && w.Expected > 0 {
			refs[w.Collection], places[w.Collection] = append(refs[w.Collection], driver.Ref{Key: w.Key, Number: w.Expected}), append(places[w.Collection], i)
		}
	}
	for collection, rs := range refs {
		before, err := e.Engine.Get(ctx, collection, rs, nil)
		if err != nil {
			return nil, err
		}
		for n, i := range places[collection] {
			asked[i].Changed = normal.Changed(dataOf(before[n]), asked[i].Data)
		}
	}
	return e.Engine.Commit(ctx, asked)
}
