package storage

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/asof/asof/storage/diff"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/fault"
	"github.com/asof/asof/storage/normal"
	"github.com/asof/asof/storage/rawjson"
	"github.com/asof/asof/storage/record"
)

// Erasing first makes an ordinary version, which says who erases, when and why, and in which what
// is erased is not there any more; so the last version is never rewritten. Then the versions before
// it are: of an erased value stays that there was one, and in which versions it was the same.
//
// What is to be rewritten is noted before. So what was stopped anywhere is finished by FinishErasures,
// of any server; that it is done twice does no harm. The note stays for Grace: it ends drafts that were
// started from what was read before, and refuses to restore that.

// EraseInput erases values of a document's versions.
type EraseInput struct {
	Key              string
	ExpectedVersion  int
	Reason           string
	Paths            []string      // JSON Pointers; none: the whole document, which is deleted
	Versions         *VersionRange // nil: all, with the current one
	Messages         *bool         // erase their messages, too
	ClientMutationID *string
}

// VersionRange names versions by their numbers, both ends included.
type VersionRange struct {
	From *int // nil: the first
	To   *int // nil: the current one
}

// erasure is what is erased in the versions before one, as it is noted.
type erasure struct {
	Collection string     `json:"collection"`
	Key        string     `json:"key"`
	Number     int64      `json:"number"` // of the version that says so
	Group      string     `json:"group"`  // its change group, which no other version has
	Paths      [][]string `json:"paths"`  // in stored names; nil: all members
	From       int64      `json:"from"`
	To         int64      `json:"to"`
	Messages   bool       `json:"messages"`
	Schema     uint32     `json:"schema"`         // of the server that noted it; 0: it is not known
	Done       bool       `json:"done,omitempty"` // all versions are rewritten

	fields []*record.Field // of Paths
}

// erasedMessage takes the place of a message that was erased by a version.
func erasedMessage(by int64) string { return "(erased by version " + strconv.FormatInt(by, 10) + ")" }

// messageErasedBy is the number of the version that has erased a message; 0: none has.
func messageErasedBy(message string) int64 {
	number, _ := strings.CutPrefix(message, "(erased by version ")
	n, err := strconv.ParseInt(strings.TrimSuffix(number, ")"), 10, 64)
	if err != nil || message != erasedMessage(n) {
		return 0
	}
	return n
}

// unbound is a context of an operation that work goes on in of which the operation is not charged.
type unbound struct{ context.Context }

func (unbound) Value(any) any { return nil }

// Erase erases values of a document: a *Success[T], with the zero T where the document is deleted,
// or a *Conflict[T]. When it returns without an error, no version that can be read holds them.
// Errors: FORBIDDEN, BAD_USER_INPUT, UNAVAILABLE, also where the versions are rewritten later.
func (c *Collection[T]) Erase(ctx context.Context, in EraseInput) (any, error) {
	s := c.store
	op, err := s.operation(ctx)
	if err != nil {
		return nil, Unwritten(err)
	}
	e, m, err := s.erasure(ctx, c.t, &in, newGroup(op.begin))
	if err != nil {
		return nil, err
	}
	o, w, err := s.prepare(ctx, op, m, true, true)
	if isUnreadable(err) && in.Paths != nil {
		return nil, &fault.Error{Code: fault.CodeInternal, Message: err.Error() + "; or leave paths out, to erase the whole document", Cause: err}
	}
	if err != nil {
		return nil, Unwritten(err)
	}
	outs := []*outcome{o}
	if o.conflict != nil {
		return c.result(ctx, m, outs, s.unwritten(ctx, op, []*mutation{m}, outs))
	}
	if view := s.guard.view(ctx, c.t.Collection); view != nil {
		w.Collection, w.Key, w.Expected = c.t.Collection, in.Key, o.before.Number
		if err := s.guard.check(ctx, view, w); err != nil {
			return nil, Unwritten(err)
		}
	}
	note, err := s.noteErasure(ctx, nil, e)
	if err != nil {
		return nil, Unwritten(fromDriver(ctx, err))
	}
	if outs, err = s.mutate(ctx, op, e.Group, m); err != nil || outs[0].conflict != nil {
		_ = s.finishErasure(unbound{ctx}, note) // or later
		return c.result(ctx, m, outs, err)
	}
	if err := s.finishErasure(unbound{ctx}, note); err != nil {
		return nil, &fault.Error{
			Code: fault.CodeUnavailable, Cause: err,
			Message: "version " + strconv.FormatInt(e.Number, 10) + " says what is erased; the versions before it could not all be rewritten yet, which the server goes on with by itself",
		}
	}
	return c.result(ctx, m, outs, nil)
}

// erasure checks an input, and returns what it erases, and the mutation that makes the version that
// says so.
func (s *Store) erasure(ctx context.Context, t *record.Type, in *EraseInput, group string) (*erasure, *mutation, error) {
	m := &mutation{t: t, key: in.Key, expected: in.ExpectedVersion, message: &in.Reason, clientMutationID: in.ClientMutationID, tombstone: true, blind: in.Paths == nil}
	e := &erasure{
		Collection: t.Collection, Key: in.Key, Number: int64(in.ExpectedVersion) + 1, Group: group,
		From: 1, To: int64(in.ExpectedVersion), Messages: in.Messages != nil && *in.Messages, Schema: s.schema.number,
	}
	actor := actorOf(ctx)
	if t.Auth.Erase == nil || !actor.hasAny(t.Auth.Erase) {
		return nil, nil, forbidden("documents of %s may be erased by others only: use credentials that have a role for it, see @auth(erase:)", t.Name)
	}
	if err := m.checkExpected(); err != nil {
		return nil, nil, err
	}
	if strings.TrimSpace(in.Reason) == "" {
		return nil, nil, fault.BadInput("input.reason: say why, without what is erased: the reason stays in the history")
	}
	if r := in.Versions; r != nil {
		if in.Paths == nil {
			return nil, nil, fault.BadInput("input.versions: name the paths that are erased in these versions; without paths all versions are erased, and the document is deleted")
		}
		if r.From != nil {
			e.From = int64(*r.From)
		}
		if r.To != nil {
			e.To = int64(*r.To)
		}
		if e.From < 1 || e.To < e.From || e.To >= e.Number {
			return nil, nil, fault.BadInput("input.versions: from %d to %d are not versions of the document up to the expected one, %d", e.From, e.To, in.ExpectedVersion)
		}
	}
	if err := e.paths(t, &actor, in.Paths); err != nil {
		return nil, nil, err
	}
	m.next = func(ctx context.Context, _ *operation, cur *driver.Version) (*driver.Write, error) {
		return s.erasing(ctx, t, e, cur)
	}
	return e, m, nil
}

// maxErased is how many paths can be erased at once.
const maxErased = 100

// paths reads the paths of an input.
func (e *erasure) paths(t *record.Type, actor *Actor, paths []string) error {
	if paths != nil && (len(paths) == 0 || len(paths) > maxErased) {
		return fault.BadInput("input.paths: name 1 to %d paths, or leave paths out to erase the whole document", maxErased)
	}
	for i, path := range paths {
		arg := "input.paths[" + strconv.Itoa(i) + "]"
		names, stored, f, err := storedPath(t, arg, path)
		if err != nil {
			return err
		}
		switch own := t.Object.Field(names[0]); {
		case !actor.hasAny(own.Auth.Read) || !actor.hasAny(own.Auth.Write):
			return forbidden("%s.%s may be written by others only: leave it out of input.paths, or use credentials that have a role for it", t.Name, own.Name)
		case f == nil:
			return fault.BadInput("%s: %s lies in a JSON value, which is erased as a whole", arg, path)
		case len(names) > 1 && f.NonNull && f.Default == nil && !f.List:
			return fault.BadInput("%s: %s is declared %s; erase the whole of %s", arg, path, f.TypeName(true), listPath(names[:len(names)-1]))
		}
		e.Paths, e.fields = append(e.Paths, stored), append(e.fields, f)
	}
	return nil
}

// erasing returns the version that says that something is erased in those until cur: without it, where cur
// is one of them, else as it is.
func (s *Store) erasing(ctx context.Context, t *record.Type, e *erasure, cur *driver.Version) (*driver.Write, error) {
	w := &driver.Write{Op: driver.OpErase, Deleted: cur.Deleted || e.Paths == nil}
	if !w.Deleted {
		w.Data = cur.Data
	}
	if err := s.whole(ctx, t, e, cur); err != nil {
		return nil, err
	}
	for i, path := range e.Paths {
		if w.Deleted || e.To < cur.Number {
			break
		}
		f := e.fields[i]
		if len(path) == 1 && f.NonNull && f.Default == nil && !f.List {
			return nil, fault.BadInput("input.paths[%d]: %s is declared %s, and the current version has a value; update it to another value first, and erase it in versions: {to: %d}", i, f.Name, f.TypeName(true), cur.Number)
		}
		if len(within(w.Data, path)) < len(path) {
			return nil, fault.BadInput("input.paths[%d]: what this lies in is not an object in the current version; erase the whole of that", i)
		}
		w.Data = rawjson.Set(w.Data, path, nil)
	}
	w.Changed = normal.Changed(dataOf(cur), w.Data)
	return w, nil
}

// erasedWhole returns a document of which all is erased by a version.
func erasedWhole(data []byte, by int64) []byte {
	e := erasure{Number: by}
	v, _ := e.of(&driver.Version{Number: 1, Data: data}, nil, map[string][]byte{})
	return v.Data
}

// whole refuses to erase a value in one version and not in the next to it: who can read it there has it.
func (s *Store) whole(ctx context.Context, t *record.Type, e *erasure, cur *driver.Version) error {
	var refs []driver.Ref
	for _, n := range []int64{e.From - 1, e.To} {
		if n >= 1 && n < cur.Number && e.Paths != nil {
			refs = append(refs, driver.Ref{Key: e.Key, Number: n}, driver.Ref{Key: e.Key, Number: n + 1})
		}
	}
	vs, err := s.migrating.Get(ctx, t.Collection, refs, nil)
	if err != nil {
		return fromDriver(ctx, err)
	}
	for i := 0; i+1 < len(vs); i += 2 {
		for n, path := range e.Paths {
			a, b := rawjson.Find(dataOf(vs[i]), within(dataOf(vs[i]), path)), rawjson.Find(dataOf(vs[i+1]), within(dataOf(vs[i+1]), path))
			if !rawjson.IsNull(a) && !rawjson.Erased(a) && len(b) > 0 && normal.Equal(a, b) {
				return fault.BadInput("input.versions: the versions %d and %d have the same value at the path %d: erase both, or none", vs[i].Number, vs[i+1].Number, n)
			}
		}
	}
	return nil
}

// noteErasure stores what is going to be erased, in place of the note before; nil: it is a new one.
func (s *Store) noteErasure(ctx context.Context, before *driver.Version, e *erasure) (*driver.Version, error) {
	key := newID()
	if before != nil {
		key = before.Key
	}
	return s.noteOwn(ctx, retentionCollection, key, before, map[string]*erasure{"erase": e})
}

// erasures calls fn with what is noted at an instant. It returns the errors of all calls.
func (s *Store) erasures(ctx context.Context, at driver.Instant, fn func(note *driver.Version, e *erasure) error) error {
	notes, err := s.all.Query(ctx, &driver.Query{Collection: retentionCollection, At: at})
	for _, note := range notes {
		e, failed := erasureOf(note)
		if e == nil {
			err = errors.Join(err, failed)
		} else if failed = fn(note, e); failed != nil {
			err = errors.Join(err, fmt.Errorf("%s %q, as version %d says: %w", e.Collection, e.Key, e.Number, failed))
		}
	}
	return err
}

// erasureOf returns what is noted; nil where it is how far a type is pruned.
func erasureOf(note *driver.Version) (*erasure, error) {
	var noted struct{ Erase *erasure }
	err := json.Unmarshal(note.Data, &noted)
	return noted.Erase, err
}

// FinishErasures finishes what was being erased when a server was stopped, as far as the schema declares it.
// Errors are the engines'.
func (s *Store) FinishErasures(ctx context.Context) error {
	now, err := s.all.Now(ctx)
	if err != nil {
		return err
	}
	return s.erasures(ctx, now, func(note *driver.Version, e *erasure) error {
		if e.Done && note.RecordedAt < now-longest && note.RecordedAt > record.GraceBefore(now) {
			return nil // what may still come is looked for at the end
		}
		if !e.Done && e.Schema != s.schema.number { // who has that schema knows best where values are
			is, err := s.schema.isCurrent(ctx, s.all)
			if err != nil || !is || note.RecordedAt >= now-longest {
				return cmp.Or(err, fmt.Errorf("a server with the schema %s has to finish it, or, after five minutes, one with the last schema", schemaKey(e.Schema)))
			}
		}
		return s.finishErasure(ctx, note)
	})
}

// longest is more than an operation takes, unless its server was stopped: for so long drafts that were started beside an
// erasure are looked for each time, and servers with another schema leave it alone.
const longest = driver.Instant(5 * time.Minute / time.Microsecond)

// finishErasure does what is noted, if the version that says so was made, and deletes the note when
// Grace has passed: until then that version, or a draft of what was there before, may still come.
func (s *Store) finishErasure(ctx context.Context, note *driver.Version) error {
	e, err := erasureOf(note)
	if err != nil || s.byCollection[e.Collection] == nil {
		return err
	}
	e = s.underToday(e)
	now, err := s.all.Now(ctx)
	if err != nil {
		return err
	}
	vs, err := s.all.Get(ctx, e.Collection, []driver.Ref{{Key: e.Key, Number: e.Number}}, []string{})
	if err != nil {
		return err
	}
	over := note.RecordedAt <= record.GraceBefore(now)
	switch v := vs[0]; {
	case v == nil:
	case v.Op == driver.OpPruned && !e.Done:
		return cmp.Or(s.remove(ctx, note), errors.New("that was pruned before all was erased; erase it once more"))
	case v.Op != driver.OpErase || v.Group != e.Group: // of another
		over = true
	default:
		if !e.Done {
			if err := s.eraseVersions(ctx, e); err != nil {
				return err
			}
			s.feed.erase(e.Collection, e.Key, e.Number)
		}
		if err := s.eraseDrafts(ctx, e, v.RecordedAt); err != nil {
			return err
		}
		if !e.Done && !over {
			e.Done = true
			_, err := s.noteErasure(ctx, note, e)
			return ignoreConflict(err)
		}
	}
	if !over {
		return nil
	}
	return s.remove(ctx, note)
}

// underToday returns what is erased in the forms of today: all, where the paths are of another schema, and versions may have
// other forms now.
func (s *Store) underToday(e *erasure) *erasure {
	if e.Schema == s.schema.number || s.migrating.types[e.Collection] == nil {
		return e
	}
	all := *e
	all.Paths = nil
	return &all
}

// ignoreConflict is for what another process has done already.
func ignoreConflict(err error) error {
	if isConflict(err) {
		return nil
	}
	return err
}

// isErasing reports whether something of a version is being erased at an instant, by a version until last.
func (s *Store) isErasing(ctx context.Context, at driver.Instant, v *driver.Version, last int64) (some bool, err error) {
	err = s.erasures(ctx, at, func(_ *driver.Version, e *erasure) error {
		if e.Collection == v.Collection && e.Key == v.Key && e.From <= v.Number && v.Number <= e.To && e.Number <= last {
			_, has := s.underToday(e).of(v, nil, map[string][]byte{})
			some = some || has
		}
		return nil
	})
	return some, fromDriver(ctx, err)
}

// remove deletes a document, unless that was done, by the program itself.
func (s *Store) remove(ctx context.Context, v *driver.Version) error {
	_, err := driver.CommitOne(ctx, s.all, &driver.Write{
		ID: newID(), Collection: v.Collection, Key: v.Key, Expected: v.Number, Op: driver.OpDelete, Deleted: true, Author: "asof", Changed: normal.Changed(v.Data, nil),
	})
	return ignoreConflict(err)
}

// eraseVersions rewrites versions, the first ones first, until nothing is left to do: what another
// erasure has rewritten since it was read stays as it is at first.
func (s *Store) eraseVersions(ctx context.Context, e *erasure) error {
	for {
		if more, err := s.eraseOnce(ctx, e); err != nil || !more {
			return err
		}
	}
}

// eraseOnce reports whether there was something to rewrite.
func (s *Store) eraseOnce(ctx context.Context, e *erasure) (some bool, err error) {
	first, draft := map[string][]byte{}, strings.HasSuffix(e.Collection, record.DraftSuffix)
	var before *driver.Version
	for next := e.From; next <= e.To; {
		q := &driver.LogQuery{Collections: []string{e.Collection}, Keys: []string{e.Key}, FromNumber: next, ToNumber: e.To + 1, Limit: mostEntries}
		var vs []driver.Version
		size, found := 0, false
		for v, err := range s.all.Log(ctx, q) {
			if err != nil {
				return some, err
			}
			of := e
			if !draft && e.Paths != nil { // they are of today's form
				if to := s.migrating.rewritten(v); to != nil {
					v = to
				} else { // where the value is, nobody knows
					of = &erasure{Number: e.Number, Messages: e.Messages}
				}
			}
			if erased, has := of.of(v, before, first); has {
				vs = append(vs, erased)
			}
			before, next, found = v, v.Number+1, true
			if size += len(v.Data); size > entryBytes {
				break
			}
		}
		if !found {
			break
		}
		if len(vs) > 0 {
			some = true
			if err := s.all.Rewrite(ctx, e.Collection, e.Key, vs); err != nil {
				return some, err
			}
		}
	}
	return some, nil
}

// of returns a version without what is erased; false where nothing is. It is given the one before, if
// that is erased, too, and what stands for the last value at each path, which it updates.
//
// That a value is the same as before follows from Changed, which stays as it is: what is before may be
// erased already. Of a value in an object it does not; there, where a server was stopped, one value
// may be taken for two.
func (e *erasure) of(v, before *driver.Version, last map[string][]byte) (driver.Version, bool) {
	out, some := *v, false
	if v.Op == driver.OpPruned {
		return out, false
	}
	if e.Messages && v.Message != "" && messageErasedBy(v.Message) == 0 {
		out.Message, some = erasedMessage(e.Number), true
	}
	paths := e.Paths
	if paths == nil {
		for _, m := range diff.Members(v.Data) {
			paths = append(paths, []string{m.Name})
		}
	}
	for _, path := range paths {
		path = within(out.Data, path)
		value, at := rawjson.Find(out.Data, path), listPath(path)
		if rawjson.IsNull(value) {
			continue
		}
		same := !slices.Contains(v.Changed, path[0]) || before != nil && len(path) > 1 && bytes.Equal(rawjson.Find(before.Data, path), value)
		switch {
		case same && last[at] != nil:
		case rawjson.Erased(value):
			last[at] = value
		default:
			last[at] = rawjson.AppendErased(nil, v.Number, e.Number)
		}
		if !bytes.Equal(value, last[at]) {
			out.Data, some = rawjson.Set(out.Data, path, last[at]), true
		}
	}
	return out, some
}

// within returns a path as far as it leads through objects.
func within(data []byte, path []string) []string {
	for n := 1; n < len(path); n++ {
		if raw := rawjson.Find(data, path[:n]); !rawjson.IsNull(raw) && (raw[0] != '{' || rawjson.Erased(raw)) {
			return path[:n]
		}
	}
	return path
}

// eraseDrafts ends the drafts of the document that were started until an instant, or from a version that is
// erased, and erases what they and those that have ended held.
func (s *Store) eraseDrafts(ctx context.Context, e *erasure, until driver.Instant) error {
	drafts := e.Collection + record.DraftSuffix
	if s.byCollection[drafts] == nil {
		return nil
	}
	q := &driver.LogQuery{Collections: []string{drafts}, Hints: driver.Hints{Ops: []driver.Op{driver.OpCreate}}, Fields: []string{"documentKey", "baseVersion"}}
	if e.Done {
		q.From = record.GraceBefore(until) // those before that were erased with the versions
	}
	for v, err := range s.all.Log(ctx, q) {
		if err != nil {
			return err
		}
		key, _ := rawjson.Unquote(rawjson.Find(v.Data, []string{"documentKey"}))
		base, _ := strconv.ParseInt(string(rawjson.Find(v.Data, []string{"baseVersion"})), 10, 64)
		if v.Op != driver.OpCreate || key != e.Key || v.RecordedAt > until && (base == 0 || base >= e.Number) {
			continue
		}
		for ended := false; !ended; {
			vs, err := s.all.Get(ctx, drafts, []driver.Ref{{Key: v.Key, At: latest}}, nil)
			if err != nil {
				return err
			}
			if last := vs[0]; last.Deleted {
				ended = true
				err = s.eraseVersions(ctx, &erasure{Collection: drafts, Key: v.Key, Number: e.Number, Paths: [][]string{{"document"}, {"title"}}, From: 1, To: last.Number - 1})
			} else {
				err = s.remove(ctx, last)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}
