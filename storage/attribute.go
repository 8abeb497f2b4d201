package storage

import (
	"bytes"
	"context"
	"strings"

	"github.com/asof/asof/storage/driver"
)

// attribute finds out which versions made the differences between two versions of
// a document, older (nil: the document did not exist yet) and newer: of each the
// last one that changed what lies at its path. The differences lead from older to
// newer, or back. It reads the versions between once, backward, and no further
// than it must.
//
// Elements of lists have other places in each version, so there the last version
// counts that had the same effect on the list: that set or removed the same value.
// Where there is none, as what was added was changed later, it is the last one that
// changed the same part of any element, or anything in the list.
func (s *Store) attribute(ctx context.Context, t *Type, older, newer *driver.Version, changes []*FieldChange, back bool) error {
	first := int64(0)
	if older != nil {
		first = older.Number
	}
	if newer.Number == first+1 { // the usual case needs no look
		for _, c := range changes {
			c.v = newer
		}
		return nil
	}
	q := &driver.LogQuery{
		Collections: []string{t.Collection}, Keys: []string{newer.Key},
		FromNumber: first + 1, ToNumber: newer.Number + 1, Backward: true, Previous: true,
	}
	open := make([]*difference, len(changes))
	for i, c := range changes {
		open[i] = newDifference(c, back)
		q.Changed = append(q.Changed, t.object.field(c.Field).Stored)
	}
	all := open
	for e, err := range s.engine.Log(ctx, q) {
		if err != nil {
			return fromDriver(err)
		}
		if err := ended(ctx); err != nil {
			return err
		}
		made := s.changesBetween(t, e.Previous, e.Version, e.Version, e.Version.RecordedAt)
		left := open[:0:0]
		for _, d := range open {
			if !d.madeBy(made) {
				left = append(left, d)
			}
		}
		if open = left; len(open) == 0 {
			break
		}
	}
	for _, d := range all {
		if d.best != nil {
			d.change.v = d.best
		}
	}
	return nil
}

// difference is a change whose version is looked for.
type difference struct {
	change   *FieldChange
	pattern  string
	inList   bool
	old, now []byte // in the order in which versions were made
	best     *driver.Version
	how      likeness // of the best
}

// likeness says how much a version's change is like the difference.
type likeness int

const (
	unlike likeness = iota
	near            // it lies at the path, above it or below it
	alike           // at the path, with places in lists left open
	exact           // it had the same effect
)

func newDifference(c *FieldChange, back bool) *difference {
	d := &difference{change: c, old: c.OldValue, now: c.NewValue}
	if back {
		d.old, d.now = c.NewValue, c.OldValue
	}
	d.pattern, d.inList = patternOf(c.Path)
	return d
}

// madeBy looks at the changes of a version, and reports whether it has to be the
// one that is looked for. Versions come newest first.
func (d *difference) madeBy(changes []*FieldChange) bool {
	for _, c := range changes {
		if how := d.like(c); how > d.how {
			d.how, d.best = how, c.v
		}
	}
	return d.how == exact || d.how > unlike && !d.inList
}

func (d *difference) like(c *FieldChange) likeness {
	if c.Field != d.change.Field {
		return unlike
	}
	pattern, _ := patternOf(c.Path)
	switch {
	case pattern == d.pattern && (d.now != nil && bytes.Equal(d.now, c.NewValue) || d.now == nil && bytes.Equal(d.old, c.OldValue)):
		return exact
	case pattern == d.pattern:
		return alike
	case strings.HasPrefix(pattern, d.pattern+"/") || strings.HasPrefix(d.pattern, pattern+"/"):
		return near
	default:
		return unlike
	}
}

// patternOf is a JSON Pointer with a star for each segment that can be a place in
// a list; inList reports whether there is one.
func patternOf(path string) (pattern string, inList bool) {
	segments := strings.Split(path, "/")
	for i, s := range segments {
		if s != "" && strings.Trim(s, "0123456789") == "" {
			segments[i], inList = "*", true
		}
	}
	return strings.Join(segments, "/"), inList
}
