package storage

import (
	"context"
	"fmt"
	"slices"

	"github.com/asof/asof/storage/driver"
)

// maxSince bounds the changes that a conflict lists.
const maxSince = 1000

// conflict is a Conflict whose documents have no model yet.
type conflict struct {
	message          string
	expected, actual int
	at               driver.Instant // at which the current document is shown
	current, base    *Document
	overlapping      []string
	mergeable        bool
	since            func(context.Context) ([]*FieldChange, error)
}

// newConflict describes why a write found another version than it expected; cur
// is what it found, nil for nothing. The patch is nil for writes that have none.
func (s *Store) newConflict(ctx context.Context, op *operation, t *Type, key string, expected int, cur *driver.Version, patch map[string]any) (*conflict, error) {
	k := &conflict{expected: expected, overlapping: []string{}}
	k.since = func(context.Context) ([]*FieldChange, error) { return []*FieldChange{}, nil }
	at := op.now(cur)
	k.at = at
	if cur != nil {
		k.actual = int(cur.Number)
	}
	if live(cur) {
		k.current = s.newDocument(t, cur, at, at, false)
	}
	k.message = conflictMessage(t, key, expected, cur)
	if expected < 1 || expected >= k.actual {
		return k, nil
	}
	base, err := s.getOne(ctx, t, driver.Ref{Key: key, Number: int64(expected)})
	if err != nil || base == nil {
		return k, err
	}
	k.since = func(ctx context.Context) ([]*FieldChange, error) { return s.changesSince(ctx, t, base, cur, at) }
	if base.Deleted {
		return k, nil
	}
	k.base = s.newDocument(t, base, base.RecordedAt, at, true)
	if k.current == nil || patch == nil {
		return k, nil
	}
	after, err := s.patched(t, cur.Data, patch, "input.patch")
	fits := err == nil
	if !fits { // what the document has become; by itself the patch may be good
		if after, err = s.patched(t, base.Data, patch, "input.patch"); err != nil {
			return nil, err
		}
	}
	over := &overlap{store: s, t: t, base: base, cur: cur}
	if err := over.since(ctx); err != nil {
		return nil, err
	}
	if k.overlapping, err = over.paths(ctx, after, patch); err != nil {
		return nil, err
	}
	if over.again {
		k.message += ", and was deleted and created again in between"
	}
	k.mergeable = fits && len(k.overlapping) == 0 && !over.again
	return k, nil
}

// lost is the outcome of a write that was in conflict.
func (s *Store) lost(ctx context.Context, op *operation, k *conflict, err error) (*outcome, error) {
	if err == nil {
		err = s.shows(ctx, op, k.at)
	}
	return &outcome{conflict: k}, err
}

func conflictMessage(t *Type, key string, expected int, cur *driver.Version) string {
	switch {
	case cur == nil:
		return fmt.Sprintf("%s %q does not exist", t.Name, key)
	case expected == 0:
		return fmt.Sprintf("%s %q exists already, at version %d", t.Name, key, cur.Number)
	case cur.Deleted:
		return fmt.Sprintf("%s %q is deleted: version %d is its deletion, and the same write would fail again; bring it back with restore%s and expectedVersion %d, or create it again with create%s",
			t.Name, key, cur.Number, t.Name, cur.Number, t.Name)
	default:
		return fmt.Sprintf("%s %q is at version %d, not at version %d", t.Name, key, cur.Number, expected)
	}
}

// changesSince lists the changes after the base, up to the current version,
// oldest first; of more than maxSince the newest.
func (s *Store) changesSince(ctx context.Context, t *Type, base, cur *driver.Version, seen driver.Instant) ([]*FieldChange, error) {
	q := &driver.LogQuery{
		Collections: []string{t.Collection}, Keys: []string{cur.Key},
		FromNumber: base.Number + 1, ToNumber: cur.Number + 1, Backward: true,
	}
	out := []*FieldChange{}
	for e, err := range s.entries(ctx, q, true) {
		if err != nil {
			return nil, err
		}
		var last []change // of the version
		for c := range t.changes(e.before, e.version) {
			if last = append(last, c); len(last) == 2*maxSince {
				last = append(last[:0], last[maxSince:]...)
			}
		}
		for _, c := range slices.Backward(last) {
			if len(out) < maxSince {
				out = append(out, s.fieldChange(t, c, e.version, seen))
			}
		}
		if len(out) >= maxSince {
			break
		}
	}
	slices.Reverse(out)
	return out, s.detail(ctx, len(out))
}
