package storage

import (
	"context"
	"math"
	"slices"
	"sync"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/fault"
	"github.com/asof/asof/storage/record"
)

// VersionsArgs are the arguments of a list of versions; they are only read.
type VersionsArgs struct {
	From, To *driver.Instant
	Author   *string
	Fields   []string // names of the GraphQL schema
	First    *int
	After    *string
	Last     *int
	Before   *string
	// Members are the stored names of the top-level members that the caller will
	// look at; nil: all, and the changes of each version, too.
	Members []string
}

// VersionPage is a page of the versions of one document, newest first.
type VersionPage struct {
	Page
	entries []entry
}

// VersionsOf is a page of versions, or why there is none.
type VersionsOf struct {
	Page *VersionPage
	Err  error
}

// VersionLoader reads the versions of documents that were read together at once.
type VersionLoader interface {
	// Versions is Store.Versions.
	Versions(ctx context.Context, d *Document, args *VersionsArgs) (*VersionPage, error)
}

// VersionLoaderKey is the key of a context's value for the operation's VersionLoader.
type VersionLoaderKey struct{}

// Versions is Collection.Versions without models.
func (s *Store) Versions(ctx context.Context, d *Document, args *VersionsArgs) (*VersionPage, error) {
	found := s.VersionsTogether(ctx, []*Document{d}, args)
	return found[0].Page, found[0].Err
}

// VersionsTogether is Versions for several documents of one type, read of the engine
// together. The result has one element for each
// document; those of which the same can be known share a page.
func (s *Store) VersionsTogether(ctx context.Context, docs []*Document, args *VersionsArgs) []VersionsOf {
	out := make([]VersionsOf, len(docs))
	if len(docs) == 0 {
		return out
	}
	l, err := s.versionLists(ctx, docs[0].t, args)
	if err == nil {
		for i, d := range docs {
			out[i] = l.page(ctx, d)
		}
		err = l.read(ctx)
	}
	if err != nil {
		for i := range out {
			if out[i].Err == nil {
				out[i] = VersionsOf{Err: err}
			}
		}
	}
	return out
}

// versionLists are lists of the versions of several documents, by the same
// arguments.
type versionLists struct {
	store  *Store
	op     *operation
	t      *record.Type
	args   *VersionsArgs
	p      paging
	log    driver.LogQuery // what all lists are selected by
	empty  bool            // nothing can be in them
	prunes bool            // some versions may not be there any more
	gaps   bool            // some versions may not be read, or are not there any more, so that numbers tell little
	lists  []*versionList
	known  map[listKey]*versionList // where there are several documents

	counting sync.Mutex
	counted  []int // of each list, once they were counted; only with hints
}

// versionList is the versions of a document as they are seen from an instant.
type versionList struct {
	of    *versionLists
	place int // in lists
	key   string
	doc   *Document
	seen  driver.Instant
	hash  func() string
	// The list has the numbers from first to last, and the page is of those from
	// from on and before to, 0 for no bound, as the cursors say.
	first, last int64
	from, to    int64
	page        *VersionPage
}

type listKey struct {
	key  string
	seen driver.Instant
}

// versionLists checks the arguments.
func (s *Store) versionLists(ctx context.Context, t *record.Type, args *VersionsArgs) (*versionLists, error) {
	op, p, err := s.paging(ctx, args.First, args.After, args.Last, args.Before)
	if err != nil {
		return nil, err
	}
	c := &changelog{}
	empty, err := c.ofType(t, args.Fields, args.Author, args.From, args.To)
	if err != nil {
		return nil, err
	}
	prunes := s.prunes(t)
	w := s.guard.view(ctx, t.Collection)
	return &versionLists{store: s, op: op, t: t, args: args, p: p, log: c.log, empty: empty, prunes: prunes, gaps: w != nil && w.rows != nil || prunes}, nil
}

// page returns the page of a document's versions, which is filled when all are
// read.
func (l *versionLists) page(ctx context.Context, d *Document) VersionsOf {
	if err := ctx.Err(); err != nil { // many cursors take long to read
		return VersionsOf{Err: fault.Ended(err)}
	}
	one := &versionList{of: l, key: d.v.Key, doc: d, seen: d.seen, page: &VersionPage{}}
	one.hash = sync.OnceValue(func() string {
		return argsHash("versions", l.t.Name, one.key, l.args.From, l.args.To, l.args.Author, l.args.Fields)
	})
	if err := one.bound(); err != nil {
		return VersionsOf{Err: err}
	}
	if err := l.store.settled(ctx, l.op, one.seen); err != nil {
		return VersionsOf{Err: err}
	}
	k := listKey{one.key, one.seen}
	if before := l.known[k]; before != nil {
		return VersionsOf{Page: before.page}
	}
	if l.known == nil {
		l.known = map[listKey]*versionList{}
	}
	l.known[k] = one
	one.place = len(l.lists)
	l.lists = append(l.lists, one)
	return VersionsOf{Page: one.page}
}

// bound reads the cursors, and pins the list to their instant.
func (o *versionList) bound() error {
	op := o.of.op
	after, before, seen, err := o.of.p.places(o.hash, o.seen, false, op.latest(o.seen), numberKinds, nil)
	o.seen = seen
	if after != nil {
		o.to = after[0].(int64)
	}
	if before != nil {
		o.from = before[0].(int64) + 1
	}
	return err
}

// read fills the pages.
func (l *versionLists) read(ctx context.Context) error {
	if !l.empty {
		if err := l.numbers(ctx); err != nil {
			return err
		}
		read := l.readNumbers
		if l.log.Hints.Any() || l.gaps {
			read = l.readLogs
		}
		if err := read(ctx); err != nil {
			return err
		}
		if err := l.fillDeleted(ctx); err != nil {
			return err
		}
		for _, one := range l.lists {
			if err := l.complete(ctx, one); err != nil {
				return err
			}
		}
	}
	n := 0
	for _, one := range l.lists {
		one.fill()
		n += len(one.page.Docs)
	}
	together := make([]*Document, 0, n)
	for _, one := range l.lists {
		together = append(together, one.page.Docs...)
	}
	if len(l.args.Members) > 0 {
		indexTogether(l.t, together...)
	}
	inBatch(together)
	return nil
}

// numbers finds the first and the last number of each list: numbers have no gaps,
// so that the versions current at its two ends tell.
func (l *versionLists) numbers(ctx context.Context) error {
	var refs []driver.Ref
	var found []func(*driver.Version)
	for _, one := range l.lists {
		if l.gaps {
			one.first, one.last = 1, math.MaxInt64-1
			continue
		}
		end := one.seen
		if to := l.log.To; to != 0 {
			end = min(end, to-1)
		}
		if v := one.doc.v; v.RecordedAt <= end && (end < v.SupersededAt && v.SupersededAt != driver.Forever || end == one.doc.at) {
			one.last = v.Number // it was current then
		} else {
			refs = append(refs, driver.Ref{Key: one.key, At: end})
			found = append(found, func(v *driver.Version) { one.last = v.Number })
		}
		one.first = 1
		if l.log.From > 0 {
			refs = append(refs, driver.Ref{Key: one.key, At: l.log.From - 1})
			found = append(found, func(v *driver.Version) { one.first = v.Number + 1 })
		}
	}
	if refs == nil {
		return nil
	}
	vs, err := l.store.engine.Get(ctx, l.t.Collection, refs, []string{})
	if err != nil {
		return fromDriver(ctx, err)
	}
	for i, v := range vs {
		if v != nil {
			found[i](v)
		}
	}
	return nil
}

// within are the first and the last number between the cursors.
func (o *versionList) within() (first, last int64) {
	first, last = max(o.first, o.from), o.last
	if o.to != 0 {
		last = min(last, o.to-1)
	}
	return first, last
}

// complete refuses a list that is asked for what was pruned: from an instant on, or behind
// a version.
func (l *versionLists) complete(ctx context.Context, one *versionList) error {
	begins := l.log.From
	if one.to > 1 && l.prunes {
		v, err := l.store.getOne(ctx, l.t, driver.Ref{Key: one.key, Number: one.to - 1})
		if err != nil {
			return err
		}
		if v != nil && (begins == 0 || v.RecordedAt < begins) {
			begins = v.RecordedAt
		}
	}
	if begins == 0 {
		return nil
	}
	return l.store.complete(ctx, l.t, one.key, begins)
}

// withBefore reports whether what is before each version is looked at.
func (l *versionLists) withBefore() bool { return l.args.Members == nil }

// fillDeleted reads what deletions have deleted, which is shown in their place.
func (l *versionLists) fillDeleted(ctx context.Context) error {
	if l.args.Members != nil && len(l.args.Members) == 0 {
		return nil
	}
	var refs []driver.Ref
	var lack []*entry
	for _, one := range l.lists {
		for i := range one.page.entries {
			if e := &one.page.entries[i]; e.version.Deleted && e.before == nil && e.version.Number > 1 {
				refs = append(refs, driver.Ref{Key: one.key, Number: e.version.Number - 1})
				lack = append(lack, e)
			}
		}
	}
	if refs == nil {
		return nil
	}
	vs, err := l.store.engine.Get(ctx, l.t.Collection, refs, l.args.Members)
	if err != nil {
		return fromDriver(ctx, err)
	}
	for i, v := range vs {
		lack[i].before = v
	}
	return nil
}

// readNumbers reads pages whose numbers are known: those of one list are a stretch
// of its log, those of several are read by number at once.
func (l *versionLists) readNumbers(ctx context.Context) error {
	var refs []driver.Ref
	ends := make([]int, len(l.lists)) // of each page, in refs
	firsts := make([]int64, len(l.lists))
	for i, one := range l.lists {
		first, last := one.within()
		limit := int64(l.p.limit) + 1
		if l.p.backward {
			last = min(last, first+limit-1)
		} else {
			first = max(first, last-limit+1)
		}
		firsts[i] = first
		if first > last {
			ends[i] = len(refs)
			continue
		}
		if l.withBefore() && first > 1 {
			first--
		}
		for n := first; n <= last; n++ {
			refs = append(refs, driver.Ref{Key: one.key, Number: n})
		}
		ends[i] = len(refs)
	}
	if len(refs) == 0 {
		return nil
	}
	var vs []*driver.Version
	if len(l.lists) == 1 {
		q := l.logOf(l.lists[0], refs[0].Number, refs[len(refs)-1].Number)
		q.Fields = l.args.Members
		for v, err := range l.store.readLog(ctx, q) {
			if err != nil {
				return err
			}
			vs = append(vs, v)
		}
	} else {
		var err error
		if vs, err = l.store.engine.Get(ctx, l.t.Collection, refs, l.args.Members); err != nil {
			return fromDriver(ctx, err)
		}
	}
	if len(vs) != len(refs) || slices.Contains(vs, nil) {
		return fromDriver(ctx, driver.Errorf(driver.CodeInternal, "%s: a version is missing in the middle of a history", l.t.Collection))
	}
	at := 0
	for i, one := range l.lists {
		var before *driver.Version
		for _, v := range vs[at:ends[i]] {
			if v.Number >= firsts[i] {
				one.page.entries = append(one.page.entries, entry{v, before})
			}
			before = v
		}
		at = ends[i]
		if !l.p.backward {
			slices.Reverse(one.page.entries)
		}
	}
	return nil
}

// readLogs reads pages of which the hints say more than the numbers, one after
// another.
func (l *versionLists) readLogs(ctx context.Context) error {
	for _, one := range l.lists {
		first, last := one.within()
		if first > last {
			continue
		}
		q := l.logOf(one, first, last)
		q.Backward, q.Limit, q.Fields = !l.p.backward, l.p.limit+1, l.args.Members
		for e, err := range l.store.entries(ctx, q, l.withBefore()) {
			if err != nil {
				return err
			}
			one.page.entries = append(one.page.entries, e)
		}
	}
	return nil
}

// logOf is the log of a list, between two numbers.
func (l *versionLists) logOf(one *versionList, first, last int64) *driver.LogQuery {
	q := &driver.LogQuery{Collections: l.log.Collections, Keys: []string{one.key}, FromNumber: first, ToNumber: last + 1, Hints: l.log.Hints}
	if l.gaps {
		q.From, q.To = l.log.From, one.seen+1
		if l.log.To != 0 {
			q.To = min(q.To, l.log.To)
		}
	}
	return q
}

// fill makes the page of its entries.
func (o *versionList) fill() {
	pg, l := o.page, o.of
	if l.p.backward {
		slices.Reverse(pg.entries)
	}
	more := false
	pg.entries, more = trim(l.p, pg.entries)
	pg.HasNextPage, pg.HasPreviousPage = l.p.around(more)
	pg.cursor = func(dst []byte, d *Document) []byte {
		return appendCursor(dst, o.hash(), o.seen, d.v.Number)
	}
	known := -1
	switch {
	case l.empty:
		known = 0
	case !l.log.Hints.Any() && !l.gaps:
		known = int(max(0, o.last-o.first+1))
	case l.p.after == nil && l.p.before == nil && !more:
		known = len(pg.entries)
	}
	pg.count = func(ctx context.Context) (int, error) {
		if known >= 0 {
			return known, nil
		}
		return l.count(ctx, o.place)
	}
	docs := make([]Document, len(pg.entries))
	pg.Docs = make([]*Document, len(pg.entries))
	for i, e := range pg.entries {
		pg.Docs[i] = &docs[i]
		l.store.fillDocument(pg.Docs[i], l.t, e.version, e.version.RecordedAt, o.seen, true)
		if e.version.Deleted && e.before != nil {
			pg.Docs[i].raw = e.before.Data
		}
	}
}

// count counts all versions in a list, and in all others. It is done for pages
// that do not show the whole list.
func (l *versionLists) count(ctx context.Context, place int) (int, error) {
	l.counting.Lock()
	defer l.counting.Unlock()
	if l.counted != nil {
		return l.counted[place], nil
	}
	counted := make([]int, len(l.lists))
	for i, one := range l.lists {
		if one.first > one.last {
			continue
		}
		q := l.logOf(one, one.first, one.last)
		q.Fields = []string{}
		for _, err := range l.store.readLog(ctx, q) {
			if err != nil {
				return 0, err
			}
			counted[i]++
		}
	}
	l.counted = counted
	return counted[place], nil
}
