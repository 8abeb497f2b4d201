package storage

import (
	"context"
	"slices"
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
// counts that had the same effect on the list: that set the same value, or removed
// the same element, and each change of a version explains one difference. Where there
// is none, as what was added was changed later, it is the last one that changed the
// same part of any element, or anything in the list.
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
		if name := t.object.field(c.Field).Stored; !slices.Contains(q.Changed, name) {
			q.Changed = append(q.Changed, name)
		}
	}
	all := open
	for e, err := range s.engine.Log(ctx, q) {
		if err != nil {
			return fromDriver(ctx, err)
		}
		if err := ended(ctx); err != nil {
			return err
		}
		made := newEffects(s.changesBetween(t, e.Previous, e.Version, e.Version, e.Version.RecordedAt))
		if open = made.explain(open); len(open) == 0 {
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
	element  bool   // of a list, by the schema: in JSON, names can look like places
	old, now []byte // in the order in which versions were made
	best     *driver.Version
	how      likeness // of the best
}

// likeness says how much a version's change is like the difference.
type likeness int

const (
	unlike likeness = iota
	near            // it lies above the path, or below it
	alike           // at the path, with places in lists left open
	exact           // it had the same effect
)

func newDifference(c *FieldChange, back bool) *difference {
	d := &difference{change: c, old: c.OldValue, now: c.NewValue}
	if back {
		d.old, d.now = c.NewValue, c.OldValue
	}
	d.pattern, d.inList = patternOf(c.Path)
	d.element = strings.HasSuffix(d.pattern, "/*") && c.typ.object.field(c.Field).Kind != KindJSON
	return d
}

// effects are the changes of one version, found by what they did: looking one
// up takes the same time however many there are.
type effects struct {
	whole, part map[effect]int // how many changes did this and explain nothing yet
	patterns    map[string]bool
	above       map[string]bool // the patterns above those
	v           *driver.Version
}

// effect is what a change did at a pattern: it removed the old value, set the new
// one, or did both. Each of these is a part of it.
type effect struct{ pattern, old, now string }

func effectOf(pattern string, old, now []byte) effect {
	return effect{pattern, string(old), string(now)}
}

func newEffects(changes []*FieldChange) *effects {
	made := &effects{whole: map[effect]int{}, part: map[effect]int{}, patterns: map[string]bool{}, above: map[string]bool{}}
	for _, c := range changes {
		pattern, _ := patternOf(c.Path)
		made.count(effectOf(pattern, c.OldValue, c.NewValue), 1)
		made.patterns[pattern] = true
		for up := parentOf(pattern); up != "" && !made.above[up]; up = parentOf(up) {
			made.above[up] = true
		}
		made.v = c.v
	}
	return made
}

// count adds so many changes of an effect.
func (made *effects) count(e effect, n int) {
	made.whole[e] += n
	made.part[effect{pattern: e.pattern, old: e.old}] += n
	made.part[effect{pattern: e.pattern, now: e.now}] += n
}

// explain notes which of the differences the version made, and returns those for
// which earlier versions must be looked at. Versions come newest first. Changes
// that are the same in old and new value are given out before those that only set
// the same value, or put something else in the place of the same element.
func (made *effects) explain(open []*difference) (left []*difference) {
	if made.v == nil { // nothing visible
		return open
	}
	for _, d := range open {
		if e := effectOf(d.pattern, d.old, d.now); made.whole[e] > 0 {
			made.count(e, -1)
			d.how, d.best = exact, made.v
		}
	}
	for _, d := range open {
		if d.how == exact {
			continue
		}
		e := effectOf(d.pattern, d.old, d.now)
		if d.now != nil {
			e.old = ""
		}
		if (d.now != nil || d.element) && made.part[e] > 0 {
			made.part[e]--
			d.how, d.best = exact, made.v
		} else if how := made.like(d.pattern); how > d.how {
			d.how, d.best = how, made.v
		}
		if d.how != exact && (d.how == unlike || d.inList) {
			left = append(left, d)
		}
	}
	return left
}

func (made *effects) like(pattern string) likeness {
	if made.patterns[pattern] {
		return alike
	}
	if made.above[pattern] {
		return near
	}
	for up := parentOf(pattern); up != ""; up = parentOf(up) {
		if made.patterns[up] {
			return near
		}
	}
	return unlike
}

// parentOf is the pattern above; "" above a field.
func parentOf(pattern string) string { return pattern[:strings.LastIndexByte(pattern, '/')] }

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
