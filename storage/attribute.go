package storage

import (
	"bytes"
	"context"
	"iter"
	"slices"
	"strings"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/rawjson"
	"github.com/asof/asof/storage/record"
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
func (s *Store) attribute(ctx context.Context, t *record.Type, older, newer *driver.Version, changes []*FieldChange, back bool) error {
	first := int64(0)
	if older != nil {
		first = older.Number
	}
	for _, c := range changes {
		c.v = newer
	}
	if newer.Number == first+1 || newer.Deleted && newer.Changed == nil { // the usual case needs no look; nor does what became unreadable
		return nil
	}
	oldest, err := s.afterPruned(ctx, t, newer.Key, newer.Number)
	if err != nil {
		return err
	}
	if oldest != nil && oldest.Number > first+1 { // it is the first of which anything is known
		first = oldest.Number - 1
		for _, c := range changes {
			c.v = oldest
		}
	}
	open := make([]*difference, len(changes))
	for i, c := range changes {
		open[i] = newDifference(c, back)
	}
	members := func() (names []string) {
		for _, d := range open {
			if name := t.Object.Field(d.change.Field).Stored; !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
		return names
	}
	q := logOf(t, newer.Key, first+1, newer.Number)
	q.Hints.Changed = members()
	all, made := open, newEffects(open)
	for e, err := range s.changesOf(ctx, q, members) {
		if err != nil {
			return err
		}
		made.of(e.version, untilEnded(ctx, &err, t.Object.Changes(dataOf(e.before), dataOf(e.version))))
		if err != nil {
			return err
		}
		open = made.explain(open)
		if made.explains { // each change of it has the document that it left
			if err := s.keep(ctx, e.version.Size()); err != nil {
				return err
			}
		}
		if len(open) == 0 {
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
	change  *FieldChange
	effect  // between older and newer
	inList  bool
	element bool // of a list, by the schema: in JSON, names can look like places
	sets    bool // a value: it removes none
	best    *driver.Version
	how     likeness // of the best
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
	old, now := c.OldValue, c.NewValue
	if back {
		old, now = now, old
	}
	pattern, inList := appendPattern(nil, c.Path)
	d := &difference{change: c, effect: effect{string(pattern), rawjson.View(old), rawjson.View(now)}, inList: inList, sets: now != nil}
	d.element = strings.HasSuffix(d.pattern, "/*") && c.typ.Object.Field(c.Field).Kind != record.KindJSON
	return d
}

// part is what a change has to do at least to have the same effect.
func (d *difference) part() effect {
	if d.sets {
		return effect{pattern: d.pattern, now: d.now}
	}
	return d.effect
}

// effects are the changes of one version, as far as they have to do with differences.
// Looking one up takes the same time however many there are.
type effects struct {
	v           *driver.Version   // nil: it made no visible change
	explains    bool              // a difference, as far as is known
	whole, part map[effect]*int   // how many changes did this and explain nothing yet
	counts      []int             // which those are
	places      map[string]*place // patterns, and those above them
	found       []place           // which those are
	pattern     []byte
}

// place says whether something was changed at a pattern, and below it.
type place struct{ at, below bool }

// effect is what a change did at a pattern: it removed the old value, set the new
// one, or did both. Each of these is a part of it.
type effect struct{ pattern, old, now string }

// newEffects makes room for what has to do with some differences. Their number may be large: what
// is made is made at once.
func newEffects(open []*difference) *effects {
	places := 0
	for _, d := range open {
		places += strings.Count(d.pattern, "/")
	}
	made := &effects{
		whole: make(map[effect]*int, len(open)), part: make(map[effect]*int, len(open)), counts: make([]int, 2*len(open)),
		places: make(map[string]*place, places), found: make([]place, places),
	}
	for i, d := range open {
		made.whole[d.effect], made.part[d.part()] = &made.counts[2*i], &made.counts[2*i+1]
		for p := d.pattern; p != "" && made.places[p] == nil; p = parentOf(p) {
			made.places[p] = &made.found[len(made.places)]
		}
	}
	return made
}

// of looks at the changes of a version.
func (made *effects) of(v *driver.Version, changes iter.Seq[record.Change]) {
	clear(made.counts)
	clear(made.found)
	made.v, made.explains = nil, false
	for c := range changes {
		made.v = v
		made.pattern, _ = appendPattern(made.pattern[:0], c.Path)
		p := made.pattern
		// No text is copied to be looked up.
		add(made.whole[effect{string(p), string(c.Old), string(c.New)}], 1)
		add(made.part[effect{pattern: string(p), old: string(c.Old)}], 1)
		add(made.part[effect{pattern: string(p), now: string(c.New)}], 1)
		if found := made.places[string(p)]; found != nil {
			found.at = true
		}
		for p = p[:bytes.LastIndexByte(p, '/')]; len(p) > 0; p = p[:bytes.LastIndexByte(p, '/')] {
			if found := made.places[string(p)]; found != nil {
				found.below = true
			}
		}
	}
}

func add(count *int, n int) {
	if count != nil {
		*count += n
	}
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
		if n := made.whole[d.effect]; *n > 0 {
			*n--
			add(made.part[effect{pattern: d.pattern, old: d.old}], -1)
			add(made.part[effect{pattern: d.pattern, now: d.now}], -1)
			d.how, d.best, made.explains = exact, made.v, true
		}
	}
	for _, d := range open {
		if d.how == exact {
			continue
		}
		if n := made.part[d.part()]; (d.sets || d.element) && *n > 0 {
			*n--
			d.how, d.best, made.explains = exact, made.v, true
		} else if how := made.like(d.pattern); how > d.how {
			d.how, d.best, made.explains = how, made.v, true
		}
		if d.how != exact && (d.how == unlike || d.inList) {
			left = append(left, d)
		}
	}
	return left
}

func (made *effects) like(pattern string) likeness {
	switch found := made.places[pattern]; {
	case found.at:
		return alike
	case found.below:
		return near
	}
	for up := parentOf(pattern); up != ""; up = parentOf(up) {
		if made.places[up].at {
			return near
		}
	}
	return unlike
}

// parentOf is the pattern above; "" above a field.
func parentOf(pattern string) string { return pattern[:strings.LastIndexByte(pattern, '/')] }

// appendPattern appends a JSON Pointer with a star for each segment that can be a place
// in a list; inList reports whether there is one.
func appendPattern(dst []byte, path string) (_ []byte, inList bool) {
	for len(path) > 0 {
		segment := path[1:]
		if end := strings.IndexByte(segment, '/'); end >= 0 {
			segment = segment[:end]
		}
		path = path[1+len(segment):]
		if dst = append(dst, '/'); segment != "" && strings.Trim(segment, "0123456789") == "" {
			dst, inList = append(dst, '*'), true
		} else {
			dst = append(dst, segment...)
		}
	}
	return dst, inList
}
