package storage

import (
	"context"
	"slices"
	"sync"

	"github.com/asof/asof/storage/driver"
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
	entries []driver.Entry
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

// VersionsTogether is Versions for several documents of one type, with one range
// read of the engine for all of them. The result has one element for each
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
	store *Store
	op    *operation
	t     *Type
	args  *VersionsArgs
	p     paging
	log   driver.LogQuery // what all lists are selected by
	empty bool            // nothing can be in them
	lists []*versionList
	known map[listKey]*versionList // where there are several documents

	counting sync.Mutex
	counted  []int // of each list, once they were counted
}

// versionList is the versions of a document as they are seen from an instant.
type versionList struct {
	of      *versionLists
	place   int // in lists
	key     string
	seen    driver.Instant
	hash    func() string
	history driver.History
	page    *VersionPage
}

type listKey struct {
	key  string
	seen driver.Instant
}

// versionLists checks the arguments.
func (s *Store) versionLists(ctx context.Context, t *Type, args *VersionsArgs) (*versionLists, error) {
	op, err := s.operation(ctx)
	if err != nil {
		return nil, err
	}
	p, err := s.paging(args.First, args.After, args.Last, args.Before)
	if err != nil {
		return nil, err
	}
	c := &changelog{log: driver.LogQuery{Collections: []string{t.Collection}}}
	if c.log.Changed, err = t.storedNames("fields", args.Fields); err != nil {
		return nil, err
	}
	if args.Author != nil {
		c.log.Authors = []string{*args.Author}
	}
	empty, err := c.between("", args.From, args.To)
	if err != nil {
		return nil, err
	}
	return &versionLists{store: s, op: op, t: t, args: args, p: p, log: c.log, empty: empty || noneOf(args.Fields)}, nil
}

// page returns the page of a document's versions, which is filled when all are
// read.
func (l *versionLists) page(ctx context.Context, d *Document) VersionsOf {
	one := &versionList{of: l, key: d.v.Key, seen: d.seen, history: driver.History{Key: d.v.Key}, page: &VersionPage{}}
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
	one.history.To = one.seen + 1
	l.lists = append(l.lists, one)
	return VersionsOf{Page: one.page}
}

// bound reads the cursors, and pins the list to their instant.
func (o *versionList) bound() error {
	pinned := false
	for _, cur := range []struct {
		arg    string
		cursor *string
		bound  func(number int64)
	}{
		{"after", o.of.p.after, func(n int64) { o.history.ToNumber = n }},
		{"before", o.of.p.before, func(n int64) { o.history.FromNumber = n + 1 }},
	} {
		if cur.cursor == nil {
			continue
		}
		seen, parts, err := decodeCursor(cur.arg, *cur.cursor, o.hash(), 1)
		if err != nil {
			return err
		}
		n, ok := number(parts[0])
		if !ok || n < 1 {
			return badInput("%s: %s is not a cursor of this list", cur.arg, quoteShort(*cur.cursor))
		}
		if pinned && seen != o.seen {
			return badInput("%s: the cursors belong to lists read at different instants", cur.arg)
		}
		if err := o.of.op.goesOn(cur.arg, seen, o.seen); err != nil {
			return err
		}
		o.seen, pinned = seen, true
		cur.bound(n)
	}
	return nil
}

// read fills the pages.
func (l *versionLists) read(ctx context.Context) error {
	q := l.log
	q.Backward, q.Limit = !l.p.backward, l.p.limit+1
	switch q.Fields = l.args.Members; {
	case q.Fields == nil:
		q.Previous = true
	case len(q.Fields) == 0:
		q.NoData = true
	default:
		q.PreviousOfDeleted = true
	}
	var asked []*versionList
	for _, one := range l.lists {
		if !l.empty && one.history.ToNumber != 1 { // nothing is before the first version
			asked = append(asked, one)
			q.Histories = append(q.Histories, one.history)
		}
	}
	if asked != nil {
		for e, err := range l.store.engine.Log(ctx, &q) {
			if err != nil {
				return fromDriver(ctx, err)
			}
			pg := asked[e.History].page
			pg.entries = append(pg.entries, e)
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
		return appendVersionCursor(dst, o.hash(), o.seen, d.v.Number)
	}
	known := -1
	if whole := l.p.after == nil && l.p.before == nil && !more; whole || l.empty {
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
		l.store.fillDocument(pg.Docs[i], l.t, e.Version, e.Version.RecordedAt, o.seen, true)
		if e.Version.Deleted && e.Previous != nil {
			pg.Docs[i].raw = e.Previous.Data
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
	q := l.log
	q.NoData = true
	for _, one := range l.lists {
		q.Histories = append(q.Histories, driver.History{Key: one.key, To: one.history.To})
	}
	count := l.countEach
	if len(q.Authors)+len(q.Ops)+len(q.Groups)+len(q.Changed) == 0 {
		count = l.countNumbers
	}
	counted, err := count(ctx, &q)
	if err != nil {
		return 0, err
	}
	l.counted = counted
	return counted[place], nil
}

// countEach counts the versions of histories with one range read.
func (l *versionLists) countEach(ctx context.Context, q *driver.LogQuery) ([]int, error) {
	counted := make([]int, len(l.lists))
	for e, err := range l.store.engine.Log(ctx, q) {
		if err != nil {
			return nil, fromDriver(ctx, err)
		}
		counted[e.History]++
	}
	return counted, nil
}

// countNumbers counts the versions of histories that nothing but times bounds.
// Numbers have no gaps, so that the last one tells, and where there is a beginning
// the first, however long the histories are.
func (l *versionLists) countNumbers(ctx context.Context, q *driver.LogQuery) ([]int, error) {
	counted := make([]int, len(l.lists))
	q.Limit = 1
	ends := func(backward bool, use func(*int, int)) error {
		q.Backward = backward
		for e, err := range l.store.engine.Log(ctx, q) {
			if err != nil {
				return fromDriver(ctx, err)
			}
			use(&counted[e.History], int(e.Version.Number))
		}
		return nil
	}
	if err := ends(true, func(n *int, last int) { *n = last }); err != nil || q.From == 0 {
		return counted, err
	}
	return counted, ends(false, func(n *int, first int) { *n -= first - 1 })
}
