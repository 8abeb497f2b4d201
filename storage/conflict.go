package storage

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/asof/asof/storage/diff"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/fault"
	"github.com/asof/asof/storage/normal"
	"github.com/asof/asof/storage/rawjson"
	"github.com/asof/asof/storage/record"
)

// maxSince and maxSinceBytes bound the changes that a conflict lists, and the versions that
// it compares for them.
const (
	maxSince      = 1000
	maxSinceBytes = 2 << 20
)

// conflict is a Conflict whose documents have no model yet.
type conflict struct {
	key              string
	message          string
	expected, actual int
	at               driver.Instant // at which the current document is shown
	current, base    *Document
	overlapping      []string
	mergeable        bool
	since            func(context.Context) ([]*FieldChange, error)
}

// conflict returns a conflict with models.
func (c *Collection[T]) conflict(k *conflict) VersionConflict {
	return &Conflict[T]{
		Key: k.key, Message: k.message, ExpectedVersion: k.expected, ActualVersion: k.actual, Current: c.Wrap(k.current), Base: c.Wrap(k.base),
		OverlappingPaths: k.overlapping, Mergeable: k.mergeable, since: k.since,
	}
}

// newConflict describes why a write found another version than it expected; cur
// is what it found, nil for nothing. The patch is nil for writes that have none.
func (s *Store) newConflict(ctx context.Context, op *operation, m *mutation, cur *driver.Version) (*conflict, error) {
	t, key, expected, patch := m.t, m.key, m.expected, m.patch
	k := &conflict{key: key, expected: expected, overlapping: []string{}}
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
	if !s.guard.maySeePast(ctx, t) {
		return k, nil
	}
	base, err := s.getOne(ctx, t, driver.Ref{Key: key, Number: int64(expected)}, nil)
	if pruned, ok := errors.AsType[*fault.Error](err); ok && pruned.Code == fault.CodeHistoryPruned {
		k.message += "; that was pruned, and perhaps more of what changed since"
		base, err = &driver.Version{Number: int64(expected), Deleted: true}, nil
	}
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
	done, err := s.compare(ctx, base, cur)
	if err != nil {
		return nil, err
	}
	defer done()
	after, _, err := s.patched(t, cur.Key, cur.Data, patch, "input.patch")
	fits := err == nil
	if !fits { // what the document has become; by itself the patch may be good
		if after, _, err = s.patched(t, cur.Key, base.Data, patch, "input.patch"); err != nil {
			return nil, err
		}
	}
	over, again, err := s.overlap(ctx, t, base, cur, after, patch)
	if err != nil {
		return nil, err
	}
	const most = 3 // paths that the message names
	switch k.overlapping = over; {
	case again:
		k.message += ", and was deleted and created again in between"
	case m.merge && len(over) > 0:
		k.message += ", and the changes since overlap at " + strings.Join(over[:min(len(over), most)], ", ")
		if more := len(over) - most; more > 0 {
			k.message += fmt.Sprintf(", and %d more", more)
		}
	}
	k.mergeable = fits && len(over) == 0 && !again
	return k, nil
}

// largeCompared is from how many bytes on documents are compared few at a time, and
// comparedTogether is how many, since that takes many times their memory.
const (
	largeCompared    = 128 << 10
	comparedTogether = 2
)

// compare waits until two documents may be compared, if they are large. The caller calls done
// when they were.
func (s *Store) compare(ctx context.Context, a, b *driver.Version) (done func(), err error) {
	if len(a.Data)+len(b.Data) < largeCompared {
		return func() {}, nil
	}
	select {
	case s.comparing <- struct{}{}:
		return func() { <-s.comparing }, nil
	case <-ctx.Done():
		return nil, fromDriver(ctx, driver.GivenUp(ctx.Err()))
	}
}

func conflictMessage(t *record.Type, key string, expected int, cur *driver.Version) string {
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
// oldest first; of more than maxSince, or in more than maxSinceBytes, the newest.
func (s *Store) changesSince(ctx context.Context, t *record.Type, base, cur *driver.Version, seen driver.Instant) ([]*FieldChange, error) {
	q := logOf(t, cur.Key, base.Number+1, cur.Number)
	q.Backward = true
	if err := s.detail(ctx, 0); err != nil {
		return nil, err
	}
	done, err := s.compare(ctx, base, cur)
	if err != nil {
		return nil, err
	}
	defer done()
	out := []*FieldChange{}
	size := 0
	for e, err := range s.entries(ctx, q) {
		if err != nil {
			return nil, err
		}
		if e.begins() {
			break
		}
		size += len(e.version.Data)
		n := 0
		var last []record.Change // of the version
		for c := range t.Object.Changes(dataOf(e.before), dataOf(e.version)) {
			if last = append(last, c); len(last) == 2*maxSince {
				last = append(last[:0], last[maxSince:]...)
			}
			if n++; n%64 == 1 && s.spent(ctx, 1) {
				return nil, fault.Errorf(fault.CodeUnavailable, "what changed since takes longer to compare than this server allows (--max-execution): ask for the changelog")
			}
		}
		for _, c := range slices.Backward(last) {
			if len(out) < maxSince {
				out = append(out, s.fieldChange(t, c, e.version, seen))
			}
		}
		if len(out) >= maxSince || size >= maxSinceBytes {
			break
		}
	}
	slices.Reverse(out)
	return out, s.detail(ctx, len(out))
}

// maxCompared bounds the versions that are compared to find out whether a part of
// a field was changed; beyond it the part counts as changed if the field was.
const maxCompared = 1000

// overlap returns the paths of a patch that any version changed after the base, also where a later
// one put back what was there, and whose values are not what the patch sets: after is what that would
// make of the current document, which is there, as the base is. Where the document was deleted and
// created again in between, it is another one, and everything overlaps. So it does where there are more
// versions in between than details that an operation may tell of, which are not looked at.
func (s *Store) overlap(ctx context.Context, t *record.Type, base, cur *driver.Version, after []byte, patch map[string]any) (out []string, again bool, err error) {
	all := record.PatchPaths(t.Object, patch, "")
	q := logOf(t, cur.Key, base.Number+1, cur.Number)
	q.Backward, q.Fields = true, []string{}
	fields := make([]*record.Field, len(all))
	for i, path := range all {
		names, _ := diff.Split(path)
		if fields[i] = t.Object.Field(names[0]); fields[i].Kind == record.KindObject && !slices.Contains(q.Fields, fields[i].Stored) {
			q.Fields = append(q.Fields, fields[i].Stored) // versions are compared for their parts
		}
	}
	touched, compared := make([]bool, len(all)), 0
	next := cur.Number == base.Number+1 // all of both is here
	look := func(e entry) {
		again = again || e.version.Deleted
		var parts []string
		for i, path := range all {
			switch {
			case touched[i] || !e.begins() && !slices.Contains(e.version.Changed, fields[i].Stored):
			case (next || fields[i].Kind == record.KindObject) && !e.begins() && compared < maxCompared:
				parts = append(parts, path)
			default:
				touched[i] = true
			}
		}
		if len(parts) == 0 {
			return
		}
		compared++
		found := touchedBy(parts, t.Object.Changes(dataOf(e.before), dataOf(e.version)))
		for i, path := range all {
			touched[i] = touched[i] || found[path]
		}
	}
	switch {
	case next:
		look(entry{cur, base})
	case cur.Number-base.Number > int64(s.limits.Details):
		touched = slices.Repeat([]bool{true}, len(all))
	case len(q.Fields) == 0: // the names of what each changed are enough
		n := base.Number
		for v, err := range s.readLog(ctx, q) {
			if err != nil {
				return nil, false, err
			}
			look(entry{version: v})
			n++
		}
		for i := range all {
			touched[i] = touched[i] || n < cur.Number // by what was pruned
		}
	default:
		for e, err := range s.entries(ctx, q) {
			if err != nil {
				return nil, false, err
			}
			look(e)
		}
	}
	if again {
		return append([]string{}, all...), true, nil
	}
	now, then := t.Object.Visible(cur.Data), t.Object.Visible(after)
	out = []string{}
	for i, path := range all {
		names, _ := diff.Split(path)
		a, b := rawjson.Find(now, names), rawjson.Find(then, names)
		if touched[i] && ((a == nil) != (b == nil) || a != nil && !normal.Equal(a, b)) {
			out = append(out, path)
		}
	}
	slices.Sort(out)
	return out, false, nil
}

// touchedBy returns those of some paths that a change is at, in, or around.
func touchedBy(paths []string, changes iter.Seq[record.Change]) map[string]bool {
	found := map[string]bool{}
	for c := range changes {
		for _, path := range paths {
			if c.Path == path || strings.HasPrefix(c.Path, path) && c.Path[len(path)] == '/' || strings.HasPrefix(path, c.Path) && path[len(c.Path)] == '/' {
				found[path] = true
			}
		}
		if len(found) == len(paths) {
			break
		}
	}
	return found
}
