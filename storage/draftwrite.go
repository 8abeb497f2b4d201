package storage

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/asof/asof/internal/scalar/literal"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/fault"
	"github.com/asof/asof/storage/record"
)

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
	cur, err := s.getOne(ctx, c.t, driver.Ref{Key: in.Key, At: op.now(nil)})
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
	if message == nil {
		message, _ = d.OptString(record.DraftTitle)
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
