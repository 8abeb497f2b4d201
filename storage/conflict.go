package storage

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/asof/asof/storage/diff"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/normal"
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
	if err != nil {
		return nil, err
	}
	k.overlapping = overlapping(t, s.changesBetween(t, base, cur, cur, at), cur.Data, after, patch)
	k.mergeable = len(k.overlapping) == 0
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
		return fmt.Sprintf("%s %q is deleted: version %d is its deletion; restore it, or create it again", t.Name, key, cur.Number)
	default:
		return fmt.Sprintf("%s %q is at version %d, not at version %d", t.Name, key, cur.Number, expected)
	}
}

// overlapping returns the paths of the patch that were changed since the base,
// and to something else than the patch sets. Now is the current document, and
// after what the patch would make of it.
func overlapping(t *Type, changes []*FieldChange, now, after []byte, patch map[string]any) []string {
	out := []string{}
	visibleNow, visibleAfter := t.object.visible(now), t.object.visible(after)
	for _, path := range patchPaths(t.object, patch, "") {
		touched := slices.ContainsFunc(changes, func(c *FieldChange) bool {
			return c.Path == path || strings.HasPrefix(c.Path, path+"/") || strings.HasPrefix(path, c.Path+"/")
		})
		if !touched {
			continue
		}
		names, _ := diff.Split(path)
		a, b := valueAt(visibleNow, names), valueAt(visibleAfter, names)
		if (a == nil) != (b == nil) || a != nil && !normal.Equal(a, b) {
			out = append(out, path)
		}
	}
	return out
}

// changesSince lists the changes after the base, up to the current version,
// oldest first; of more than maxSince the newest.
func (s *Store) changesSince(ctx context.Context, t *Type, base, cur *driver.Version, seen driver.Instant) ([]*FieldChange, error) {
	q := &driver.LogQuery{
		Collections: []string{t.Collection}, Keys: []string{cur.Key},
		FromNumber: base.Number + 1, ToNumber: cur.Number + 1, Backward: true, Previous: true,
	}
	out := []*FieldChange{}
	for e, err := range s.engine.Log(ctx, q) {
		if err != nil {
			return nil, fromDriver(err)
		}
		changes := s.changesBetween(t, e.Previous, e.Version, e.Version, seen)
		slices.Reverse(changes)
		if out = append(out, changes...); len(out) >= maxSince {
			out = out[:maxSince]
			break
		}
	}
	slices.Reverse(out)
	return out, nil
}
