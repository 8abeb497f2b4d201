package storage

import (
	"context"
	"iter"
	"slices"
	"strings"

	"github.com/asof/asof/storage/diff"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/normal"
)

// maxCompared bounds the versions that are compared to find out whether a part of
// a field was changed; beyond it the part counts as changed if the field was.
const maxCompared = 1000

// overlap is a patch on a base that others have written after.
type overlap struct {
	store     *Store
	t         *Type
	base, cur *driver.Version // both are there, cur is live
	// again says that the document was deleted and created again in between: it
	// is another one, and everything overlaps.
	again bool
	// changed are the stored names of the fields that any version in between
	// changed, also where a later one put back what was there.
	changed map[string]bool
}

// since reads what happened between the versions.
func (o *overlap) since(ctx context.Context) error {
	if o.cur.Number == o.base.Number+1 {
		return nil // the difference tells it all
	}
	o.changed = map[string]bool{}
	q := o.log()
	q.Fields = []string{}
	for v, err := range o.store.readLog(ctx, q) {
		if err != nil {
			return err
		}
		o.again = o.again || v.Deleted
		for _, name := range v.Changed {
			o.changed[name] = true
		}
	}
	return nil
}

func (o *overlap) log() *driver.LogQuery {
	return &driver.LogQuery{
		Collections: []string{o.t.Collection}, Keys: []string{o.cur.Key},
		FromNumber: o.base.Number + 1, ToNumber: o.cur.Number + 1,
	}
}

// paths returns the paths of the patch that somebody changed since the base, and
// whose values are not what the patch sets. After is what the patch would make
// of the current document.
func (o *overlap) paths(ctx context.Context, after []byte, patch map[string]any) ([]string, error) {
	all := patchPaths(o.t.object, patch, "")
	if o.again {
		return append([]string{}, all...), nil
	}
	net := touchedBy(all, o.t.changes(o.base, o.cur))
	visibleNow, visibleAfter := o.t.object.visible(o.cur.Data), o.t.object.visible(after)
	out := []string{}
	var parts []string // of changed fields
	for _, path := range all {
		names, _ := diff.Split(path)
		a, b := valueAt(visibleNow, names), valueAt(visibleAfter, names)
		if (a == nil) == (b == nil) && (a == nil || normal.Equal(a, b)) {
			continue
		}
		f := o.t.object.field(names[0])
		switch {
		case net[path]:
			out = append(out, path)
		case !o.changed[f.Stored]:
		case f.Kind != KindObject:
			out = append(out, path)
		default:
			parts = append(parts, path)
		}
	}
	touched, err := o.parts(ctx, parts)
	if err != nil {
		return nil, err
	}
	out = append(out, touched...)
	slices.Sort(out)
	return out, nil
}

// parts returns those of some paths, of fields that were changed, which any
// version changed.
func (o *overlap) parts(ctx context.Context, paths []string) ([]string, error) {
	if len(paths) == 0 {
		return nil, nil
	}
	q := o.log()
	q.Backward = true
	for _, path := range paths {
		names, _ := diff.Split(path)
		if stored := o.t.object.field(names[0]).Stored; !slices.Contains(q.Hints.Changed, stored) {
			q.Hints.Changed = append(q.Hints.Changed, stored)
		}
	}
	var found []string
	compared := 0
	for e, err := range o.store.entries(ctx, q, true) {
		if err != nil {
			return nil, err
		}
		if compared++; compared > maxCompared {
			return append(found, paths...), nil
		}
		touched := touchedBy(paths, o.t.changes(e.before, e.version))
		paths = slices.DeleteFunc(paths, func(path string) bool {
			if touched[path] {
				found = append(found, path)
			}
			return touched[path]
		})
		if len(paths) == 0 {
			break
		}
	}
	return found, nil
}

// touchedBy returns those of some paths that a change is at, in, or around.
func touchedBy(paths []string, changes iter.Seq[change]) map[string]bool {
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
