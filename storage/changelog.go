package storage

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/asof/asof/storage/condition"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/fault"
	"github.com/asof/asof/storage/record"
)

// changelog is a list of changes: those of the versions that log selects,
// newest version first, each version's in the order of their application.
type changelog struct {
	store  *Store
	log    driver.LogQuery // without direction and place
	seen   driver.Instant
	fields []string // GraphQL names; none: all
	// whole says that it is a list of versions: each has one place, and no change.
	whole bool
}

// changePlace is the place of a change: its version, and the index among the
// version's changes.
type changePlace struct {
	driver.LogPosition
	index int
}

// each calls yield with the changes from one place to another (exclusive, nil:
// the end), newest first or in the exact reverse of that. Where not all of them are
// likely to be wanted, versions is how many probably have enough, and no fewer than are
// wanted of the changes; 0 for all, newest first. An engine that knows need not look for
// the others.
func (l *changelog) each(ctx context.Context, reverse bool, after, until *changePlace, versions int, yield func(changePlace, record.Change, entry) bool) error {
	q := l.log
	q.To, q.Limit, q.Backward = l.end(), versions, !reverse
	if after != nil {
		// The version of the place is read again: more of its changes may follow.
		from := after.LogPosition
		if reverse {
			from.Number--
		} else {
			from.Number++
		}
		q.After = &from
	}
	for {
		n := 0
		var last driver.LogPosition
		for e, err := range l.store.entries(ctx, &q) {
			if err != nil {
				return err
			}
			n, last = n+1, e.version.Position()
			if more, err := l.version(ctx, e, reverse, after, until, versions, yield); !more || err != nil {
				return err
			}
		}
		if q.Limit == 0 || n < q.Limit {
			return nil
		}
		q.After, q.Limit = &last, moreVersions*q.Limit
	}
}

// version calls yield with the changes of one version; false where no more are wanted.
func (l *changelog) version(ctx context.Context, e entry, reverse bool, after, until *changePlace, versions int, yield func(changePlace, record.Change, entry) bool) (more bool, err error) {
	v := e.version
	t := l.store.byCollection[v.Collection]
	if t == nil || e.begins() && !l.whole {
		return true, nil
	}
	place := changePlace{LogPosition: v.Position()}
	shown := func(c record.Change) bool {
		return (len(l.fields) == 0 || slices.Contains(l.fields, c.Field.Name)) && (after == nil || place.follows(*after, reverse))
	}
	wanted := func(c record.Change) bool {
		return (until == nil || until.follows(place, reverse)) && yield(place, c, e)
	}
	if l.whole {
		return !shown(record.Change{}) || wanted(record.Change{}), nil
	}
	changes := untilEnded(ctx, &err, t.Object.Changes(dataOf(e.before), dataOf(v)))
	if reverse {
		type indexed struct {
			record.Change
			index int
		}
		var last []indexed // the wanted ones, and some before them: a version may have very many
		for c := range changes {
			if shown(c) {
				if last = append(last, indexed{c, place.index}); len(last) == 2*versions {
					last = append(last[:0], last[versions:]...)
				}
			}
			place.index++
		}
		for _, c := range slices.Backward(last) {
			if place.index = c.index; err == nil && !wanted(c.Change) {
				return false, nil
			}
		}
		return true, err
	}
	for c := range changes {
		if shown(c) && !wanted(c) {
			return false, nil
		}
		place.index++
	}
	return true, err
}

// follows reports whether p comes after q in the list (or in its reverse).
func (p changePlace) follows(q changePlace, reverse bool) bool {
	if p.LogPosition == q.LogPosition {
		return p.index != q.index && p.index > q.index != reverse
	}
	return p.Compare(q.LogPosition) < 0 != reverse
}

// page reads a page of the list, with one range read where each version shows a
// change. The hash is that of the arguments.
func (l *changelog) page(ctx context.Context, op *operation, hash string, p paging) (*FieldChangeConnection, error) {
	items, more, count, err := l.items(ctx, op, hash, p)
	if err != nil {
		return nil, err
	}
	return connection(len(items), p.info(more), count, func(place int) string { return items[place].cursor() }, func(place int) *FieldChange {
		it := &items[place]
		return l.store.fieldChange(it.t, it.Change, it.version, l.seen)
	}), nil
}

// changeItem is a change in a page, or a version.
type changeItem struct {
	t *record.Type
	record.Change
	entry
	cursor func() string
}

// items reads a page, and says whether the list goes on behind it.
func (l *changelog) items(ctx context.Context, op *operation, hash string, p paging) (items []changeItem, more bool, count counter, err error) {
	from, to, err := l.places(op, hash, p)
	if err == nil {
		err = l.store.settled(ctx, op, l.seen)
	}
	if err != nil {
		return nil, false, nil, err
	}
	if p.backward {
		from, to = to, from
	}
	// Each version has a change or more, the one of the place and one behind the page too.
	var kept *driver.Version // the last that was counted: several changes have the same
	var full error
	err = l.each(ctx, p.backward, from, to, p.limit+2, func(at changePlace, c record.Change, e entry) bool {
		if e.version != kept {
			if full = l.store.keep(ctx, e.version.Size()+besideVersion); full != nil {
				return false
			}
			kept = e.version
		}
		items = append(items, changeItem{l.store.byCollection[e.version.Collection], c, e, func() string {
			return string(appendCursor(nil, hash, l.seen, at.At, at.Collection, at.Key, at.Number, int64(at.index)))
		}})
		return len(items) <= p.limit
	})
	if full != nil {
		return nil, false, nil, full
	}
	if err == nil {
		err = l.complete(ctx, p, from)
	}
	if err != nil {
		return nil, false, nil, err
	}
	if p.backward {
		slices.Reverse(items)
	}
	if items, more = trim(p, items); !more && from == nil && to == nil {
		return items, more, known(len(items)), nil
	}
	return items, more, l.count, nil
}

// count counts the whole list.
func (l *changelog) count(ctx context.Context) (n int, err error) {
	if !l.whole {
		err = l.each(ctx, false, nil, nil, 0, func(changePlace, record.Change, entry) bool { n++; return true })
		return n, err
	}
	q := l.log
	q.Fields, q.To = []string{}, l.end()
	t := l.store.byCollection[q.Collections[0]]
	if w := l.store.guard.view(ctx, t.Collection); len(q.Keys) == 1 && !q.Hints.Any() && !l.store.prunes(t) && (w == nil || w.rows == nil) {
		// Numbers have no gaps.
		vs, err := l.store.engine.Get(ctx, t.Collection, []driver.Ref{{Key: q.Keys[0], At: q.To - 1}, {Key: q.Keys[0], At: q.From - 1}}, q.Fields)
		for i, v := range vs {
			if v != nil {
				n += [...]int{1, -1}[i] * int(v.Number)
			}
		}
		return max(0, n), fromDriver(ctx, err)
	}
	for _, err := range l.store.readLog(ctx, &q) {
		if err != nil {
			return 0, err
		}
		n++
	}
	return n, nil
}

// end is the instant that the list ends before.
func (l *changelog) end() driver.Instant {
	if l.log.To == 0 {
		return l.seen + 1
	}
	return min(l.log.To, l.seen+1)
}

// complete refuses a page that is asked for what was pruned: from an instant on, or behind
// a place.
func (l *changelog) complete(ctx context.Context, p paging, place *changePlace) error {
	begins := l.log.From
	if place != nil && !p.backward {
		behind := place.At
		if l.whole && len(l.log.Keys) == 1 { // what is behind a version of a document is before it
			behind--
		}
		if begins == 0 || behind < begins {
			begins = behind
		}
	}
	if begins == 0 {
		return nil
	}
	keys := l.log.Keys
	if keys == nil {
		keys = []string{""}
	}
	for _, c := range l.log.Collections {
		for _, key := range keys {
			if err := l.store.complete(ctx, l.store.byCollection[c], key, begins); err != nil {
				return err
			}
		}
	}
	return nil
}

// places reads the cursors, and pins the list to their instant.
func (l *changelog) places(op *operation, hash string, p paging) (from, to *changePlace, err error) {
	after, before, seen, err := p.places(func() string { return hash }, l.seen, false, op.latest(l.seen), changeKinds, nil)
	l.seen = seen
	if after != nil {
		from = &changePlace{logPosition(after), int(after[4].(int64))}
	}
	if before != nil {
		to = &changePlace{logPosition(before), int(before[4].(int64))}
	}
	return from, to, err
}

// logPosition is a place in the log.
func logPosition(place []driver.Value) driver.LogPosition {
	return driver.LogPosition{At: place[0].(driver.Instant), Collection: place[1].(string), Key: place[2].(string), Number: place[3].(int64)}
}

// DocumentChangelog returns a page of the changes of one document, newest
// version first. What happened after the document was read does not show.
func (s *Store) DocumentChangelog(ctx context.Context, d *Document, fields []string, author *string, from, to *driver.Instant,
	first *int, after *string, last *int, before *string,
) (*FieldChangeConnection, error) {
	op, p, err := s.paging(ctx, first, after, last, before)
	if err != nil {
		return nil, err
	}
	l := &changelog{store: s, seen: d.seen, fields: fields}
	empty, err := l.ofType(d.t, fields, author, from, to)
	if err != nil {
		return nil, err
	}
	if empty {
		return emptyChanges(p), nil
	}
	l.log.Keys = []string{d.v.Key}
	return l.page(ctx, op, argsHash("changelog", d.t.Name, d.v.Key, fields, author, from, to), p)
}

// ofType applies the conditions of lists of documents of a type; it returns true if nothing can meet them.
func (l *changelog) ofType(t *record.Type, fields []string, author *string, from, to *driver.Instant) (empty bool, err error) {
	l.log.Collections = []string{t.Collection}
	if l.log.Hints.Changed, err = storedNames(t, "fields", fields); err != nil {
		return false, err
	}
	if author != nil {
		l.log.Hints.Authors = []string{*author}
	}
	empty, err = l.between("", from, to)
	return empty || noneOf(fields), err
}

// between bounds the list in time; it returns true if nothing can be in there.
// The arguments are those of the path at. Bounds in the wrong order are a
// mistake rather than an empty list.
func (l *changelog) between(at string, from, to *driver.Instant) (empty bool, err error) {
	if from != nil && to != nil && *from > *to {
		return false, fault.BadInput("%sfrom: %s is after to, %s: the list goes from the earlier moment to the later one", at, *from, *to)
	}
	if from != nil {
		l.log.From = *from
	}
	if to != nil {
		l.log.To = *to
	}
	return to != nil && (*to == 0 || from != nil && *from == *to), nil
}

func emptyChanges(p paging) *FieldChangeConnection {
	return connection[*FieldChange](0, p.info(false), known(0), nil, nil)
}

// Changelog returns a page of the changes of all documents, newest version
// first. Errors: BAD_USER_INPUT for unknown types and fields, and for keys
// without the one type that they belong to.
func (s *Store) Changelog(ctx context.Context, where *ChangelogWhere, first *int, after *string, last *int, before *string) (*FieldChangeConnection, error) {
	op, p, err := s.paging(ctx, first, after, last, before)
	if err != nil {
		return nil, err
	}
	if where == nil {
		where = &ChangelogWhere{}
	}
	l := &changelog{store: s, seen: op.begin}
	empty, err := l.where(where)
	if err != nil {
		return nil, err
	}
	if empty {
		return emptyChanges(p), nil
	}
	return l.page(ctx, op, argsHash("changelog", where), p)
}

// where applies the conditions; it returns true if no change can meet them.
func (l *changelog) where(w *ChangelogWhere) (empty bool, err error) {
	types := l.store.types
	if w.DocumentType != nil {
		types = nil
		for _, name := range w.DocumentType {
			t := l.store.byName[name]
			if t == nil {
				return false, fault.BadInput("where.documentType: there is no type %s", fault.QuoteShort(name))
			}
			if !slices.Contains(types, t) {
				types = append(types, t)
			}
		}
	}
	keys, keyed := both(w.Key, w.Keys)
	if keyed && len(types) != 1 {
		return false, fault.BadInput("where: a key belongs to one type of documents; give exactly one documentType with it")
	}
	fields, named := both(w.Field, w.Fields)
	authors, authored := both(w.Author, w.Authors)
	for _, o := range w.Operation {
		op, ok := condition.OpOf(string(o))
		if !ok {
			return false, fault.BadInput("where.operation: there is no operation %s", fault.QuoteShort(string(o)))
		}
		l.log.Hints.Ops = append(l.log.Hints.Ops, op)
	}
	if len(w.Keys)+len(w.Fields)+len(w.Authors)+len(w.DocumentType) > condition.MaxSize {
		return false, fault.BadInput("where: more than %d keys, fields, authors and types", condition.MaxSize)
	}
	if err := w.checkFields(types); err != nil {
		return false, err
	}
	l.fields = fields
	if w.ChangeGroup != nil {
		l.log.Hints.Groups = []string{*w.ChangeGroup}
	}
	l.log.Keys, l.log.Hints.Authors = keys, authors
	for _, t := range types {
		has := !named
		for _, name := range fields {
			if f := t.Object.Field(name); f != nil {
				has = true
				if !slices.Contains(l.log.Hints.Changed, f.Stored) {
					l.log.Hints.Changed = append(l.log.Hints.Changed, f.Stored)
				}
			}
		}
		if has {
			l.log.Collections = append(l.log.Collections, t.Collection)
		}
	}
	none := keyed && len(keys) == 0 || named && len(fields) == 0 || authored && len(authors) == 0 ||
		w.Operation != nil && len(w.Operation) == 0 || len(l.log.Collections) == 0
	empty, err = l.between("where.", w.From, w.To)
	return empty || none, err
}

// checkFields refuses names that none of the types that are asked for has.
func (w *ChangelogWhere) checkFields(types []*record.Type) error {
	check := func(arg, name string) error {
		if slices.ContainsFunc(types, func(t *record.Type) bool { return t.Object.Field(name) != nil }) {
			return nil
		}
		switch {
		case w.DocumentType == nil:
			return fault.BadInput("%s: no type of documents has a field %s", arg, fault.QuoteShort(name))
		case len(types) == 0: // nothing is asked for
			return nil
		case len(types) == 1:
			return fault.BadInput("%s: %s has no field %s", arg, types[0].Name, fault.QuoteShort(name))
		}
		names := make([]string, len(types))
		for i, t := range types {
			names[i] = t.Name
		}
		return fault.BadInput("%s: none of %s has a field %s", arg, strings.Join(names, ", "), fault.QuoteShort(name))
	}
	if w.Field != nil {
		if err := check("where.field", *w.Field); err != nil {
			return err
		}
	}
	for _, name := range w.Fields {
		if err := check("where.fields", name); err != nil {
			return err
		}
	}
	return nil
}

// both joins a condition on one value and its plural, which must both hold; given
// is false where neither is there. A list without elements holds for nothing.
func both(one *string, many []string) (all []string, given bool) {
	switch {
	case one == nil:
		return slices.Clone(many), many != nil
	case many == nil || slices.Contains(many, *one):
		return []string{*one}, true
	default:
		return nil, true
	}
}

// noneOf reports whether a list of alternatives is there and has none: nothing is
// one of them. A list that is not there asks for everything.
func noneOf(many []string) bool { return many != nil && len(many) == 0 }

// ChangeGroup is what was written together: by a commit, by the mutations of one
// request, or elsewhere, before it was imported.
type ChangeGroup struct {
	store *Store
	last  *driver.Version // its newest version
	seen  driver.Instant
	// Its versions were recorded in [from, to); 0 and 0: at any time.
	from, to driver.Instant
}

// LongestOperation is how long an operation may take. Change groups are found by it.
const LongestOperation = 15 * time.Minute

// ChangeGroup returns the change group with an id; nil where there is none.
func (s *Store) ChangeGroup(ctx context.Context, id string) (*ChangeGroup, error) {
	op, err := s.operation(ctx)
	if err != nil || id == "" {
		return nil, err
	}
	from, to := groupSpan(id)
	g := &ChangeGroup{store: s, last: &driver.Version{Group: id}, seen: op.begin, from: from, to: to}
	found, err := g.find(ctx)
	if !found && err == nil && to != 0 { // imported, with an id of another kind
		g.from, g.to = 0, 0
		found, err = g.find(ctx)
	}
	if !found {
		return nil, err
	}
	return g, nil
}

// find looks for its newest version.
func (g *ChangeGroup) find(ctx context.Context) (bool, error) {
	l := g.list()
	q := l.log
	q.To, q.Backward, q.Limit, q.Fields = l.end(), true, 1, []string{}
	if q.From >= q.To {
		return false, nil
	}
	for v, err := range g.store.readLog(ctx, &q) {
		if err != nil {
			return false, err
		}
		g.last = v
		return true, nil
	}
	return false, nil
}

// ID is the group of its versions.
func (g *ChangeGroup) ID() string { return g.last.Group }

// RecordedAt is when its newest version was recorded: all versions of a commit are
// recorded at one instant.
func (g *ChangeGroup) RecordedAt() driver.Instant { return g.last.RecordedAt }

// Author is who wrote its newest version.
func (g *ChangeGroup) Author() *Actor { return &Actor{ID: g.last.Author} }

// Message is that of its newest version; nil for none.
func (g *ChangeGroup) Message() *string { return optional(g.last.Message) }

// Changes returns a page of its changes, newest version first.
func (g *ChangeGroup) Changes(ctx context.Context, first *int, after *string, last *int, before *string) (*FieldChangeConnection, error) {
	op, p, err := g.store.paging(ctx, first, after, last, before)
	if err != nil {
		return nil, err
	}
	return g.list().page(ctx, op, argsHash("changeGroup.changes", g.last.Group), p)
}

// DocumentVersionConnection is a page of versions of documents of any type.
type DocumentVersionConnection = VersionConnection[AnyDocument]

// DocumentVersionEdge is one of them.
type DocumentVersionEdge = VersionEdge[AnyDocument]

// Versions returns a page of its versions, newest first.
func (g *ChangeGroup) Versions(ctx context.Context, first *int, after *string, last *int, before *string) (*DocumentVersionConnection, error) {
	op, p, err := g.store.paging(ctx, first, after, last, before)
	if err != nil {
		return nil, err
	}
	pg, err := g.list().versions(ctx, op, argsHash("changeGroup.versions", g.last.Group), p)
	if err != nil {
		return nil, err
	}
	return versionConnection(ctx, g.store, pg, g.store.wrapAny), nil
}

// list is the changes of the group's versions.
func (g *ChangeGroup) list() *changelog {
	return &changelog{store: g.store, seen: g.seen, log: driver.LogQuery{
		Collections: g.store.collections(), From: g.from, To: g.to, Hints: driver.Hints{Groups: []string{g.last.Group}},
	}}
}
