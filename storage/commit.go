package storage

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/asof/asof/storage/fault"
	"github.com/asof/asof/storage/record"
)

// Change is what a commit does to one document.
type Change struct {
	Type  *record.Type
	Field string // its name in the input of the commit, as "createProject"
	Input any    // a *CreateInput, *UpdateInput, *DeleteInput, *RestoreInput or *ApproveDraftInput
}

// OneChange is the input of one change, which is generated from the types.
type OneChange interface {
	Given() []Change // has one element, where the input is valid
}

// CommitInput changes several documents, all or none.
type CommitInput[In OneChange] struct {
	Changes          []In
	Message          *string
	ClientMutationID *string
}

// CommitSuccess is what a commit that was not in conflict returns.
type CommitSuccess struct {
	// ChangeGroup is nil where nothing was changed.
	ChangeGroup      *ChangeGroup
	Changed          bool
	Results          []*ChangeResult // in the order of the changes
	ClientMutationID *string
}

// ChangeResult is what one change of a commit came to.
type ChangeResult = Success[AnyDocument]

// CommitConflict is a commit of which some documents were not at the versions that it
// expected. Nothing was written.
type CommitConflict struct {
	Message string
	// Conflicts are those of all documents that lost, in the order of the changes.
	Conflicts        []VersionConflict
	ClientMutationID *string
}

// Commit makes changes of different documents at one instant, all of them or none: a
// *CommitSuccess or a *CommitConflict. Errors: BAD_USER_INPUT for no changes, more
// than the engine takes, a document twice, and for what one change alone would be refused for;
// UNSUPPORTED for several on an engine that commits one write at a time.
func Commit[In OneChange](ctx context.Context, s *Store, in CommitInput[In]) (any, error) {
	changes := make([][]Change, len(in.Changes))
	for i, c := range in.Changes {
		changes[i] = c.Given()
	}
	op, err := s.operation(ctx)
	if err != nil {
		return nil, Unwritten(err)
	}
	ms, err := s.mutations(ctx, changes, in.Message)
	if err != nil {
		return nil, Unwritten(err)
	}
	approval := ""
	for _, m := range ms {
		approval = cmp.Or(m.approval, approval)
	}
	outs, err := s.mutateDrafts(ctx, op, newGroup(op.begin)+approval, ms...)
	if err != nil {
		return nil, Unwritten(err)
	}
	done, lost := &CommitSuccess{ClientMutationID: in.ClientMutationID}, &CommitConflict{ClientMutationID: in.ClientMutationID}
	for i, o := range outs {
		if o.conflict != nil {
			if lost.Conflicts == nil {
				lost.Message = o.conflict.message
			}
			lost.Conflicts = append(lost.Conflicts, s.models[ms[i].t.Name].conflict(o.conflict))
			continue
		}
		if o.changed && !done.Changed {
			from, to := groupSpan(o.version.Group)
			done.Changed, done.ChangeGroup = true, &ChangeGroup{store: s, last: o.version, seen: o.version.RecordedAt, from: from, to: to}
		}
	}
	if n := len(lost.Conflicts); n > 0 {
		lost.Message += fmt.Sprintf("; nothing was written (%d of %d changes are in conflict)", n, len(ms))
		return lost, nil
	}
	for i, o := range outs {
		done.Results = append(done.Results, success(ctx, s, ms[i].t, s.wrapAny, o, ms[i].clientMutationID))
	}
	return done, nil
}

// mutations checks changes and returns what each asks for. The message is that of the
// whole commit: all versions of a change group have one.
func (s *Store) mutations(ctx context.Context, changes [][]Change, message *string) ([]*mutation, error) {
	writes := len(changes)
	for _, given := range changes {
		if slices.ContainsFunc(given, func(c Change) bool { _, ok := c.Input.(*ApproveDraftInput); return ok }) {
			writes++ // the draft ends
		}
	}
	switch n := len(changes); {
	case n == 0:
		return nil, fault.BadInput("input.changes: a commit has at least one change")
	case n > 1 && s.maxWrites == 1:
		return nil, fault.Errorf(fault.CodeUnsupported, "input.changes: the store of this server cannot commit several documents at once, as MongoDB can only on a replica set or a sharded cluster; nothing was written: send one change at a time")
	case n > 1 && writes > s.maxWrites:
		return nil, fault.BadInput("input.changes: %d changes are given; a commit has at most %d, of which an approval counts as two: send several, each of which is whole by itself", n, s.maxWrites)
	}
	if err := checkMessage(message); err != nil {
		return nil, err
	}
	type document struct {
		t   *record.Type
		key string
	}
	ms, places := make([]*mutation, len(changes)), make(map[document]int, len(changes))
	for i, given := range changes {
		if len(given) != 1 {
			return nil, fault.BadInput("input.changes[%d]: a change names exactly one thing to do, not %d", i, len(given))
		}
		m, err := s.mutation(ctx, given[0])
		m.path = fmt.Sprintf("input.changes[%d].%s", i, given[0].Field)
		if err == nil && m.message != nil {
			err = fault.BadInput("input.message: a change has no message of its own; give one for the whole commit, input.message")
		}
		if err != nil {
			return nil, m.named(err)
		}
		m.message = message
		d := document{m.t, m.key}
		if first, twice := places[d]; twice {
			return nil, fault.BadInput("%s: %s %q is changed by input.changes[%d] already; a commit has one change for each document", m.path, m.t.Name, m.key, first)
		}
		ms[i], places[d] = m, i
	}
	return ms, nil
}

// mutation is never nil.
func (s *Store) mutation(ctx context.Context, c Change) (*mutation, error) {
	switch in := c.Input.(type) {
	case *CreateInput:
		return s.creation(c.Type, in)
	case *UpdateInput:
		return s.revision(c.Type, in)
	case *DeleteInput:
		return s.deletion(c.Type, in)
	case *RestoreInput:
		return s.restoration(c.Type, in)
	case *ApproveDraftInput:
		m, err := s.approval(ctx, c.Type, in)
		m.message = in.Message // the title is for a version by itself
		return m, err
	default:
		return new(mutation), fault.BadInput("input: this is no change")
	}
}
