package storage

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/asof/asof/storage/condition"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/record"
)

// A draft is a document of a collection beside that of its type, and its saves are the
// versions of it. Nothing but what is in this file and in draftwrite.go reads that
// collection, so that drafts show nowhere else. A draft that was approved or discarded is a
// tombstone.

// Held returns how many documents an engine holds that are not deleted, how many drafts of
// documents, and how many versions of all but what asof notes for itself, by its statistics.
func Held(stats driver.Stats) (documents, drafts, versions int64) {
	for _, c := range stats.Collections {
		switch {
		case IsOwn(c.Name):
			continue
		case strings.HasSuffix(c.Name, record.DraftSuffix):
			drafts += c.Documents
		case !strings.HasSuffix(c.Name, record.TagSuffix):
			documents += c.Documents
		}
		versions += c.Versions
	}
	return documents, drafts, versions
}

// Draft is a draft of a document whose model is T, as one of its saves left it.
type Draft[T AnyDocument] struct {
	save
	c *Collection[T]
}

func (c *Collection[T]) draft(d *Document) *Draft[T] { return &Draft[T]{save{c.t, d}, c} }

// save is one save of a draft.
type save struct {
	t *record.Type
	d *Document // of the type of drafts
}

// Revision is the number of the save, from 1.
func (s save) Revision() int { return s.d.Version() }

// SavedAt is when it was made.
func (s save) SavedAt() driver.Instant { return s.d.v.RecordedAt }

// SavedBy is who made it.
func (s save) SavedBy() *Actor { return &Actor{ID: s.d.v.Author} }

// Content is the document in the names of the GraphQL schema, as far as it is complete.
func (s save) Content() json.RawMessage { return visibleState(s.t, contentOf(s.t, s.d.v)) }

// ID is the draft's own.
func (d *Draft[T]) ID() string { return d.d.v.Key }

// DocumentKey is the key of the document.
func (d *Draft[T]) DocumentKey() (string, error) { return d.d.String(record.DraftKey) }

// BaseVersion is the version that the draft was started from; 0: of a new document.
func (d *Draft[T]) BaseVersion() (int, error) { return d.d.Int(record.DraftBase) }

// Title says what the draft is about; nil for nothing.
func (d *Draft[T]) Title() (*string, error) { return d.d.OptString(record.DraftTitle) }

// Shared says that others than its author may read, save, approve and discard the draft.
func (d *Draft[T]) Shared() (bool, error) { return d.d.Bool(record.DraftShared) }

// ExpiresAt is when the draft ends; nil for never.
func (d *Draft[T]) ExpiresAt() (*driver.Instant, error) { return d.d.OptInstant(record.DraftExpires) }

// Author is who started the draft.
func (d *Draft[T]) Author() (*Actor, error) {
	id, err := d.d.String(record.DraftAuthor)
	return &Actor{ID: id}, err
}

// CreatedAt is when the draft was started.
func (d *Draft[T]) CreatedAt(ctx context.Context) (driver.Instant, error) {
	v, err := d.c.store.getFields(ctx, d.d.t, driver.Ref{Key: d.d.v.Key, Number: 1}, []string{})
	if err != nil || v == nil {
		return d.d.v.RecordedAt, err
	}
	return v.RecordedAt, nil
}

// Document is the document as the draft has it. A required field that it lacks is an error
// where it is read.
func (d *Draft[T]) Document() T { return d.c.Wrap(d.c.store.documentIn(d.c.t, d.d)) }

// ChangesFromBase are the differences from the version that the draft was started from.
func (d *Draft[T]) ChangesFromBase(ctx context.Context) ([]*FieldChange, error) {
	base, err := d.c.store.draftBase(ctx, d.c.t, d.d.v)
	return d.changesFrom(ctx, base, err)
}

// ChangesFromCurrent are the differences from the document as it is now.
func (d *Draft[T]) ChangesFromCurrent(ctx context.Context) ([]*FieldChange, error) {
	cur, err := d.c.store.getOne(ctx, d.c.t, driver.Ref{Key: contentOf(d.c.t, d.d.v).Key, At: d.d.seen})
	return d.changesFrom(ctx, cur, err)
}

func (d *Draft[T]) changesFrom(ctx context.Context, v *driver.Version, err error) ([]*FieldChange, error) {
	if err != nil {
		return nil, err
	}
	now := contentOf(d.c.t, d.d.v)
	return d.c.store.listChanges(ctx, d.c.t, v, now, now, d.d.seen)
}

// draftBase returns what a draft began with: the version of the document that it was started
// from, as its author could read it then. It is nil in a draft of a new document.
func (s *Store) draftBase(ctx context.Context, t *record.Type, draft *driver.Version) (*driver.Version, error) {
	if contentOf(t, draft).Number < 1 {
		return nil, nil
	}
	first, err := s.getOne(ctx, t.Drafts, driver.Ref{Key: draft.Key, Number: 1})
	return contentOf(t, first), err
}

// DraftProblem is what the approval of a draft would be refused for.
type DraftProblem struct{ Path, Message string }

// Problems are what keeps the draft from being approved; none, if it can be.
func (d *Draft[T]) Problems(ctx context.Context) ([]*DraftProblem, error) {
	base, err := d.c.store.draftBase(ctx, d.c.t, d.d.v)
	if err != nil {
		return nil, err
	}
	problems, err := draftProblems(d.c.t, base, contentOf(d.c.t, d.d.v))
	return problems, fromDriver(ctx, err)
}

// draftProblems are what cannot be read in a draft's content, and could be in its base.
func draftProblems(t *record.Type, base, content *driver.Version) ([]*DraftProblem, error) {
	found, err := t.NewMismatches(dataOf(base), content.Data)
	if err != nil {
		return nil, err
	}
	out := make([]*DraftProblem, len(found))
	pointer := strings.NewReplacer(".", "/", "[", "/", "]", "")
	for i, m := range found {
		out[i] = &DraftProblem{"/" + pointer.Replace(m.Path), "expected " + m.Expected + ", found " + m.Found}
	}
	return out, nil
}

// DraftSave is one save of a draft.
type DraftSave struct {
	save
	changes func() ([]*FieldChange, error)
}

// DraftSaveConnection is a page of the saves of a draft, newest first.
type DraftSaveConnection = VersionConnection[*DraftSave]

// DraftSaveEdge is one of them.
type DraftSaveEdge = VersionEdge[*DraftSave]

// Changes are the differences from the save before; of the first one, from nothing.
func (d *DraftSave) Changes() ([]*FieldChange, error) { return d.changes() }

// Saves returns a page of the draft's saves, newest first.
func (d *Draft[T]) Saves(ctx context.Context, first *int, after *string, last *int, before *string) (*DraftSaveConnection, error) {
	s, t := d.c.store, d.c.t
	pg, err := s.Versions(ctx, d.d, &VersionsArgs{First: first, After: after, Last: last, Before: before})
	if err != nil {
		return nil, err
	}
	conn := &DraftSaveConnection{Edges: []*DraftSaveEdge{}, Nodes: []*DraftSave{}, PageInfo: pg.info(), count: pg.count}
	for i, doc := range pg.Docs {
		changes := func() ([]*FieldChange, error) {
			now := contentOf(t, pg.entries[i].version)
			return s.listChanges(ctx, t, contentOf(t, pg.entries[i].before), now, now, doc.seen)
		}
		conn.Nodes = append(conn.Nodes, &DraftSave{save{t, doc}, changes})
		conn.Edges = append(conn.Edges, &DraftSaveEdge{Node: conn.Nodes[i], cursor: func() string { return pg.cursorOf(i) }, changes: changes})
	}
	return conn, nil
}

// contentOf returns the document in a draft's version as if it were a version of its own: of
// the collection of drafts, with the key of the document, the number of the base, and the
// draft's id in place of the group. It is nil for nothing.
func contentOf(t *record.Type, v *driver.Version) *driver.Version {
	if !live(v) {
		return nil
	}
	d := Document{v: v, t: t.Drafts}
	d.doc, d.typ, d.raw = &d, t.Drafts.Object, v.Data
	in := *v
	in.Key, _ = d.String(record.DraftKey)
	base, _ := d.Int(record.DraftBase)
	if in.Data = d.stored(record.DraftContent); len(in.Data) == 0 || in.Data[0] != '{' {
		in.Data = []byte("{}")
	}
	in.Number, in.Group, in.Changed, in.Notes = int64(base), v.Key, nil, nil
	return &in
}

// documentIn is the document as a draft has it.
func (s *Store) documentIn(t *record.Type, draft *Document) *Document {
	return s.newDocument(t, contentOf(t, draft.v), draft.at, draft.seen, false)
}

// groupOf is the group of a version; nil for none.
func groupOf(t *record.Type, v *driver.Version) *string {
	if inDraft(t, v) {
		return nil
	}
	return optional(v.Group)
}

// draftsShown is the condition on drafts that the actor of the context may read at an
// instant: their own and shared ones that have not expired.
func draftsShown(ctx context.Context, t *record.Type, at driver.Instant) driver.Filter {
	fields := t.Drafts.Object.Fields
	return driver.And{
		driver.Or{
			driver.Compare{Field: fields[record.DraftAuthor].Driver(), Op: driver.Eq, Value: actorOf(ctx).ID},
			driver.Compare{Field: fields[record.DraftShared].Driver(), Op: driver.Eq, Value: true},
		},
		driver.Not{Filter: driver.Compare{Field: fields[record.DraftExpires].Driver(), Op: driver.Le, Value: at}},
	}
}

// showsDraft is draftsShown of one draft.
func showsDraft(ctx context.Context, t *record.Type, v *driver.Version, at driver.Instant) bool {
	return live(v) && condition.Holds(draftsShown(ctx, t, at), v, v.Data)
}

// readDraft returns a draft as it was at an instant; nil where there is none that the actor may read.
func (s *Store) readDraft(ctx context.Context, t *record.Type, id string, at, now driver.Instant) (*Document, error) {
	if driver.KeyProblem(id) != "" {
		return nil, nil
	}
	v, err := s.getOne(ctx, t.Drafts, driver.Ref{Key: id, At: at})
	if err != nil || !showsDraft(ctx, t, v, now) {
		return nil, err
	}
	return s.newDocument(t.Drafts, v, now, now, false), nil
}

// Draft returns a draft; nil where there is none that the actor may read.
func (c *Collection[T]) Draft(ctx context.Context, id string) (*Draft[T], error) {
	op, err := c.store.operation(ctx)
	if err != nil {
		return nil, err
	}
	d, err := c.store.readDraft(ctx, c.t, id, op.begin, op.begin)
	if err != nil || d == nil {
		return nil, err
	}
	return c.draft(d), nil
}

// Drafts returns a page of the drafts that the actor may read, those that were started last
// first. Errors are as for Page.
func (c *Collection[T]) Drafts(ctx context.Context, where map[string]any, first *int, after *string, last *int, before *string) (*Connection[*Draft[T]], error) {
	op, err := c.store.operation(ctx)
	if err != nil {
		return nil, err
	}
	pg, err := c.store.Page(ctx, c.t.Drafts, &PageArgs{
		Where: where, First: first, After: after, Last: last, Before: before,
		OrderBy: []*OrderInput{{Field: "key", Direction: Desc}}, Only: draftsShown(ctx, c.t, op.begin),
	})
	if err != nil {
		return nil, err
	}
	return connect(pg, c.draft), nil
}

// The group of a version that was made by approving a draft has more behind its id: which
// revision of which draft was approved, and by whom. To those who read it, it is one id.
//
//	GROUP/draft/DRAFT/REVISION/APPROVER

// approvalOf is what the group of an approval has behind its id.
func approvalOf(draft *driver.Version, approver string) string {
	return "/draft/" + draft.Key + "/" + strconv.FormatInt(draft.Number, 10) + "/" + approver
}

// approverOf is who approved what was written in a group; nil where that was no draft.
func approverOf(group string) *Actor {
	parts := strings.SplitN(group, "/", 5)
	if len(parts) != 5 || parts[1] != "draft" || parts[4] == "" {
		return nil
	}
	return &Actor{ID: parts[4]}
}
