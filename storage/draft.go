package storage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/asof/asof/internal/scalar/literal"
	"github.com/asof/asof/storage/condition"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/fault"
	"github.com/asof/asof/storage/record"
)

// A draft is a document of a collection beside that of its type, and its saves are the
// versions of it. Nothing but what is in this file reads that
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
	v, err := d.c.store.getOne(ctx, d.d.t, driver.Ref{Key: d.d.v.Key, Number: 1}, []string{})
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
	cur, err := d.c.store.getOne(ctx, d.c.t, driver.Ref{Key: contentOf(d.c.t, d.d.v).Key, At: d.d.seen}, nil)
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
	first, err := s.getOne(ctx, t.Drafts, driver.Ref{Key: draft.Key, Number: 1}, nil)
	return contentOf(t, first), err
}

// DraftProblem is what the approval of a draft would be refused for.
type DraftProblem struct{ Path, Message string }

// Problems are what keeps the draft from being approved; none, if it can be.
func (d *Draft[T]) Problems(ctx context.Context) ([]*DraftProblem, error) {
	if err := ended(ctx); err != nil { // that of a new document has no base to read
		return nil, err
	}
	base, err := d.c.store.draftBase(ctx, d.c.t, d.d.v)
	if err != nil {
		return nil, err
	}
	content := contentOf(d.c.t, d.d.v)
	problems, err := draftProblems(d.c.t, base, content)
	if why := d.c.store.outgrown(d.c.t, content.Key, dataOf(base), content.Data); why != "" {
		problems = append(problems, &DraftProblem{"", why})
	}
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
	conn := connect(&pg.Page, func(d *Document) *DraftSave { return &DraftSave{save: save{t, d}} })
	conn.changes = func(place int) ([]*FieldChange, error) {
		e := pg.entries[place]
		now := contentOf(t, e.version)
		return s.listChanges(ctx, t, contentOf(t, e.before), now, now, pg.Docs[place].seen)
	}
	for i, save := range conn.Nodes {
		save.changes = conn.Edges[i].Changes
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
	v, err := s.getOne(ctx, t.Drafts, driver.Ref{Key: id, At: at}, nil)
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

// StartDraftInput starts a draft of a document, or of a new one.
type StartDraftInput struct {
	Key              string
	Title            *string
	Shared           *bool           // nil: false
	ExpiresAt        *driver.Instant // nil: never
	ClientMutationID *string
}

// ApproveDraftInput makes a version of a draft.
type ApproveDraftInput struct {
	Draft            string
	ExpectedRevision *int            // nil: whichever is the last
	Message          *string         // nil: the draft's title
	OnConflict       *ConflictPolicy // nil: Reject
	ClientMutationID *string
}

// DiscardDraftInput ends a draft.
type DiscardDraftInput struct {
	Draft            string
	ClientMutationID *string
}

// DraftSuccess is what starting or saving a draft returns.
type DraftSuccess[T AnyDocument] struct {
	Draft            *Draft[T]
	Changed          bool // false where the save would have changed nothing, and was not made
	ClientMutationID *string
}

// DraftConflict is a save that found another revision than it expected. Nothing was saved.
type DraftConflict[T AnyDocument] struct {
	Message          string
	ExpectedRevision int
	Draft            *Draft[T] // as it is now
}

// DiscardDraftSuccess is what discarding a draft returns.
type DiscardDraftSuccess struct {
	DeletedID        string
	ClientMutationID *string
}

// noDraft does not tell drafts of others from those that never were.
func noDraft(t *record.Type, id string) error {
	return fault.Errorf(fault.CodeNotFound, "input.draft: there is no draft %s of a %s that you could use: it was approved or discarded, has expired, or is of another author who does not share it", fault.QuoteShort(id), t.Name)
}

func otherRevision(is, expected int64) error {
	return fault.BadInput("input.draft: the draft is at revision %d, not at revision %d: read again what you approve", is, expected)
}

// checkDraft checks what a client sets of a draft beside its content.
func checkDraft(t *record.Type, op *operation, set map[string]any) error {
	if title, ok := record.Text(set["title"]); ok && len(title) > MaxMessage {
		return fault.BadInput("input.title: a title has at most %d bytes", MaxMessage)
	}
	if set["expiresAt"] == nil {
		return nil
	}
	v, err := t.Drafts.Object.Fields[record.DraftExpires].Operand("input.expiresAt", set["expiresAt"])
	if at, ok := v.(driver.Instant); ok && err == nil && at <= op.begin {
		return fault.BadInput("input.expiresAt: %s is past; name a moment in the future", at)
	}
	return err
}

// StartDraft copies the document as it is now into a new draft; where it does not exist, the
// draft is of a new one. Errors: BAD_USER_INPUT.
func (c *Collection[T]) StartDraft(ctx context.Context, in StartDraftInput) (*DraftSuccess[T], error) {
	s := c.store
	op, err := s.operation(ctx)
	if err != nil {
		return nil, Unwritten(err)
	}
	set := map[string]any{}
	if in.Title != nil {
		set["title"] = *in.Title
	}
	if in.Shared != nil {
		set["shared"] = *in.Shared
	}
	if in.ExpiresAt != nil {
		set["expiresAt"] = in.ExpiresAt.String()
	}
	if err := checkDraft(c.t, op, set); err != nil {
		return nil, err
	}
	if why := driver.KeyProblem(in.Key); why != "" {
		return nil, fault.BadInput("input.key: the key %s", why)
	}
	cur, err := s.getOne(ctx, c.t, driver.Ref{Key: in.Key, At: op.now(nil)}, nil)
	if err != nil {
		return nil, Unwritten(err)
	}
	set["documentKey"], set["author"], set["baseVersion"], set["document"] = in.Key, actorOf(ctx).ID, 0, map[string]any{}
	if live(cur) {
		set["baseVersion"], set["document"] = int(cur.Number), record.Stored(cur.Data)
	}
	m, err := s.creation(c.t.Drafts, &CreateInput{Key: newID(), Data: set})
	if err != nil { // such as that it is too large with what a draft has beside the document
		return nil, renamed(err, "input.data", "input")
	}
	outs, err := s.mutate(ctx, op, op.group(), m)
	if err != nil {
		return nil, Unwritten(err)
	}
	return &DraftSuccess[T]{c.draft(outs[0].doc), true, in.ClientMutationID}, nil
}

// SaveDraft patches a draft, and its title, expiresAt and shared, as an update patches a
// document: a *DraftSuccess[T], or a *DraftConflict[T] if it is not at the expected revision. What
// is required may be null or missing. The input is that of the GraphQL schema, as null and what is
// absent differ. Errors: NOT_FOUND for what is no draft that the actor may read, BAD_USER_INPUT.
func (c *Collection[T]) SaveDraft(ctx context.Context, in map[string]any) (any, error) {
	s := c.store
	op, err := s.operation(ctx)
	if err != nil {
		return nil, Unwritten(err)
	}
	id, err := literal.ID(in["draft"])
	if err != nil {
		return nil, fault.BadInput("input.draft: %v", err)
	}
	expected, err := literal.Int(in["expectedRevision"])
	if err != nil {
		return nil, fault.BadInput("input.expectedRevision: %v", err)
	}
	set := map[string]any{}
	for _, name := range []string{"title", "shared", "expiresAt"} {
		if v, given := in[name]; given {
			set[name] = v
		}
	}
	if patch, ok := in["patch"].(map[string]any); ok {
		set["document"] = patch
	}
	err = checkDraft(c.t, op, set)
	switch {
	case err != nil:
		return nil, err
	case driver.KeyProblem(id) != "":
		return nil, noDraft(c.t, id)
	case expected < 1:
		return nil, fault.BadInput("input.expectedRevision: %d is not the number of a revision: they are counted from 1", expected)
	}
	m, err := s.revision(c.t.Drafts, &UpdateInput{Key: id, ExpectedVersion: expected, Patch: set})
	if err != nil {
		return nil, err
	}
	m.patch = nil // what was saved meanwhile is not compared with it
	next := m.next
	m.next = func(ctx context.Context, op *operation, cur *driver.Version) (*driver.Write, error) {
		if !showsDraft(ctx, c.t, cur, op.begin) {
			return nil, noDraft(c.t, id)
		}
		w, err := next(ctx, op, cur)
		return w, renamed(err, "input.patch.document", "input.patch", "input.patch.", "input.")
	}
	outs, err := s.mutate(ctx, op, op.group(), m)
	if err != nil {
		return nil, Unwritten(err)
	}
	o := outs[0]
	if o.conflict == nil {
		success := &DraftSuccess[T]{Draft: c.draft(o.doc), Changed: o.changed}
		if given, ok := record.Text(in["clientMutationId"]); ok {
			success.ClientMutationID = &given
		}
		return success, nil
	}
	if !showsDraft(ctx, c.t, o.before, op.begin) {
		return nil, noDraft(c.t, id)
	}
	return &DraftConflict[T]{
		Message:          fmt.Sprintf("The draft is at revision %d, not at revision %d", o.before.Number, expected),
		ExpectedRevision: expected, Draft: c.draft(o.conflict.current),
	}, nil
}

// renamed returns an error of an input of a document of the type of drafts, in the words of the
// client's input: pairs of what is replaced, and by what.
func renamed(err error, pairs ...string) error {
	if e, ok := errors.AsType[*fault.Error](err); ok {
		return &fault.Error{Code: e.Code, Message: strings.NewReplacer(pairs...).Replace(e.Message), Cause: e.Cause}
	}
	return err
}

// DiscardDraft ends a draft. Errors: NOT_FOUND for what is no draft that the actor may read.
func (c *Collection[T]) DiscardDraft(ctx context.Context, in DiscardDraftInput) (*DiscardDraftSuccess, error) {
	s := c.store
	op, err := s.operation(ctx)
	if err != nil {
		return nil, Unwritten(err)
	}
	for {
		d, err := s.readDraft(ctx, c.t, in.Draft, latest, op.begin)
		if err != nil {
			return nil, Unwritten(err)
		}
		if d == nil {
			return nil, noDraft(c.t, in.Draft)
		}
		outs, err := s.mutate(ctx, op, op.group(), s.ending(c.t.Drafts, d.v, nil))
		switch {
		case err != nil:
			return nil, Unwritten(err)
		case outs[0].conflict == nil: // else it was saved meanwhile
			return &DiscardDraftSuccess{in.Draft, in.ClientMutationID}, nil
		}
	}
}

// ApproveDraft makes a version of a draft, which ends, in one commit: a *Success[T], or a
// *Conflict[T] if the document is not at the version that the draft was started from and the
// draft could or should not be merged. The author is who saved the draft last. Errors: NOT_FOUND for
// what is no draft that the actor may read, BAD_USER_INPUT for all that an update would be
// refused for.
func (c *Collection[T]) ApproveDraft(ctx context.Context, in ApproveDraftInput) (any, error) {
	m, err := c.store.approval(ctx, c.t, &in)
	return c.alone(ctx, m, err)
}

// approval is the mutation of ApproveDraft.
func (s *Store) approval(ctx context.Context, t *record.Type, in *ApproveDraftInput) (*mutation, error) {
	m := new(mutation)
	op, err := s.operation(ctx)
	if err != nil {
		return m, err
	}
	d, err := s.readDraft(ctx, t, in.Draft, latest, op.begin)
	if err != nil {
		return m, err
	}
	if d == nil {
		return m, noDraft(t, in.Draft)
	}
	if n := in.ExpectedRevision; n != nil && int64(*n) != d.v.Number {
		return m, otherRevision(d.v.Number, int64(*n))
	}
	content := contentOf(t, d.v)
	base, err := s.draftBase(ctx, t, d.v)
	if err != nil {
		return m, err
	}
	problems, err := draftProblems(t, base, content)
	if err != nil {
		return m, fromDriver(ctx, err)
	}
	if len(problems) > 0 {
		return m, fault.BadInput("input.draft: the draft cannot be approved as it is: %s", listed(problems))
	}
	message := in.Message
	if title, _ := d.OptString(record.DraftTitle); message == nil && title != nil {
		own := strings.Clone(*title) // else it would keep the whole draft
		message = &own
	}
	patch := t.Object.PatchTo(dataOf(base), content.Data)
	if content.Number == 0 {
		m, err = s.creation(t, &CreateInput{Key: content.Key, Data: patch, Message: message, ClientMutationID: in.ClientMutationID})
	} else {
		m, err = s.revision(t, &UpdateInput{
			Key: content.Key, ExpectedVersion: int(content.Number), Patch: patch, Message: message, OnConflict: in.OnConflict, ClientMutationID: in.ClientMutationID,
		})
	}
	if err != nil {
		return m, err
	}
	m.draft, m.author, m.approval = d.v, d.v.Author, approvalOf(d.v, actorOf(ctx).ID)
	return m, nil
}

// listed puts problems into one sentence.
func listed(problems []*DraftProblem) string {
	const most = 20
	var out []string
	for _, p := range problems[:min(len(problems), most)] {
		out = append(out, p.Path+": "+p.Message)
	}
	if more := len(problems) - most; more > 0 {
		out = append(out, fmt.Sprintf("and %d more, which problems of the draft tells", more))
	}
	return strings.Join(out, "; ")
}
