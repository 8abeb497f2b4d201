package storage

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/asof/asof/storage/diff"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/fault"
	"github.com/asof/asof/storage/normal"
	"github.com/asof/asof/storage/rawjson"
	"github.com/asof/asof/storage/record"
)

// Blame says for each field that the document has, and for each leaf inside the
// fields that hold objects and lists, which version last set it. Elements of
// lists are followed while others come and go around them. It reads the history
// once, backward, and no further than it must. Of a deleted document it
// explains the state that was deleted.
func (s *Store) Blame(ctx context.Context, d *Document, fields []string) ([]*FieldBlame, error) {
	if err := ended(ctx); err != nil { // the work begins before the first read
		return nil, err
	}
	if err := s.detail(ctx, 0); err != nil { // nor is it begun for one too many
		return nil, err
	}
	if inDraft(d.t, d.v) {
		return nil, fault.BadInput("blame: no version has set what is in a draft; ask for its changesFromBase")
	}
	stored, err := storedNames(d.t, "fields", fields)
	if err != nil || noneOf(fields) {
		return []*FieldBlame{}, err
	}
	state := d.v
	if state.Deleted {
		if state, err = s.getOne(ctx, d.t, driver.Ref{Key: d.v.Key, Number: d.v.Number - 1}, nil); err != nil || state == nil {
			return []*FieldBlame{}, err
		}
	}
	b, err := newBlame(d.t, state.Data, fields, func(leaf bool) error {
		if leaf {
			return s.detail(ctx, 1)
		}
		return s.keep(ctx, trackedBytes)
	})
	if err != nil {
		return nil, err
	}
	q := logOf(d.t, d.v.Key, 0, state.Number)
	q.Hints.Changed = stored
	oldest, err := s.afterPruned(ctx, d.t, d.v.Key, state.Number)
	if err != nil {
		return nil, err
	}
	if oldest != nil { // who looks for changes of some fields is not stopped by a gap behind a version without any
		q.FromNumber = oldest.Number
	}
	var last *driver.Version
	if b.open > 0 {
		for e, err := range s.changesOf(ctx, q, b.unexplained) {
			if err != nil {
				return nil, err
			}
			if e.begins() { // also where it was pruned meanwhile
				oldest = e.version
				break
			}
			if b.version(e) {
				if err := s.keep(ctx, e.version.Size()-len(e.version.Data)); err != nil { // its message may be long
					return nil, err
				}
			}
			if last = e.version; b.open == 0 {
				break
			}
		}
	}
	if b.open > 0 { // the oldest version that is left holds the rest
		if last = cmp.Or(oldest, last); oldest == nil {
			first, err := s.getOne(ctx, d.t, driver.Ref{Key: d.v.Key, Number: 1}, nil)
			if err != nil {
				return nil, err
			}
			if live(first) { // else it may not be read
				last = first
			}
		}
		for _, f := range b.fields {
			if last != nil {
				f.explain(last)
			}
		}
	}
	entries := b.entries()
	for _, e := range entries {
		e.atOrBefore = e.v == oldest
	}
	return entries, nil
}

// blame is a state whose values are being explained.
type blame struct {
	t      *record.Type
	fields []*trackedField
	open   int // fields that are not fully explained
	// now and its index belong to the version that was looked at last.
	now   []byte
	nowAt []record.Span
}

// trackedField is a top-level field. The field itself is explained by the last
// version that changed anything in it, also by taking something away.
type trackedField struct {
	place int
	f     *record.Field
	entry *FieldBlame
	tree  *tracked
}

// unexplained are the stored names of the fields that are not fully explained.
func (b *blame) unexplained() (names []string) {
	for _, f := range b.fields {
		if !f.done() {
			names = append(names, f.f.Stored)
		}
	}
	return names
}

func (f *trackedField) done() bool { return f.entry.v != nil && f.tree.open == 0 }

func (f *trackedField) explain(v *driver.Version) {
	if f.entry.v == nil {
		f.entry.v = v
	}
	f.tree.explain(v)
}

// newBlame calls part for each part of a value that is looked at, which may be a leaf that is to be
// explained, and returns its error.
func newBlame(t *record.Type, state []byte, names []string, part func(leaf bool) error) (_ *blame, err error) {
	b := &blame{t: t}
	at := record.Index(t.Object, state)
	for i := range t.Object.Fields {
		f := &t.Object.Fields[i]
		raw := f.Visible(at[i].At(state))
		if raw == nil || len(names) > 0 && !slices.Contains(names, f.Name) {
			continue
		}
		shown, _ := rawjson.HideErased(raw)
		tf := &trackedField{place: i, f: f, entry: &FieldBlame{Path: diff.Join("", f.Name), Field: f.Name, Value: shown}}
		if tf.tree, err = track(tf.entry, diff.Room(tf.entry.Path), raw, part); err != nil {
			return nil, err
		}
		b.fields = append(b.fields, tf)
		b.open++
	}
	return b, nil
}

// version explains what the entry's version set, and reports whether it did. Entries come newest first.
func (b *blame) version(e entry) (explains bool) {
	var v *driver.Version
	now, nowAt := e.version.Data, b.nowAt
	if !bytes.Equal(b.now, now) || nowAt == nil {
		nowAt = record.Index(b.t.Object, now)
	}
	old := dataOf(e.before)
	oldAt := record.Index(b.t.Object, old)
	for _, f := range b.fields {
		if f.done() {
			continue
		}
		was, is := oldAt[f.place].At(old), nowAt[f.place].At(now)
		if bytes.Equal(was, is) && was != nil {
			continue
		}
		was, is = f.f.Visible(was), f.f.Visible(is)
		if was != nil && normal.Equal(was, is) {
			continue
		}
		if v == nil { // what is explained does not keep the document, which may be large
			head := *e.version
			head.Data, head.Notes = nil, nil
			v = &head
		}
		if f.entry.v == nil {
			f.entry.v, explains = v, true
		}
		open := f.tree.open
		f.tree.step(was, is, v)
		explains = explains || f.tree.open < open
		if f.done() {
			b.open--
		}
	}
	b.now, b.nowAt = old, oldAt
	return explains
}

func (b *blame) entries() []*FieldBlame {
	out := []*FieldBlame{}
	for _, f := range b.fields {
		if f.entry.v == nil {
			continue
		}
		out = append(out, f.entry)
		out = f.tree.leaves(out, f.entry)
	}
	return out
}

// tracked is a value that is being explained: a leaf, or the members or
// elements of which some are not explained yet.
type tracked struct {
	leaf    *FieldBlame
	name    string // of a member
	index   int    // of an element, in the version that is being looked at
	members []*tracked
	elems   []*tracked
	open    int // leaves that are not explained
}

// trackedBytes is what one takes, about, that is not a leaf.
const trackedBytes = 112

// track builds the tree of a value. The field's own entry is the leaf of a
// value that has no parts. Behind its path, what has room there is written.
func track(field *FieldBlame, path, raw []byte, part func(leaf bool) error) (*tracked, error) {
	n := &tracked{}
	whole := diff.Whole(rawjson.View(path), raw)
	switch {
	case raw[0] == '{' && len(raw) > 2 && !whole:
		for _, m := range diff.Members(raw) {
			child, err := track(field, diff.Append(path, m.Name), m.Value, part)
			if err != nil {
				return nil, err
			}
			child.name = m.Name
			n.members = append(n.members, child)
			n.open += child.open
		}
		return n, part(false)
	case raw[0] == '[' && len(raw) > 2 && !whole:
		for i, e := range diff.Elements(raw) {
			child, err := track(field, strconv.AppendInt(append(path, '/'), int64(i), 10), e, part)
			if err != nil {
				return nil, err
			}
			child.index = i
			n.elems = append(n.elems, child)
			n.open += child.open
		}
		return n, part(false)
	case len(path) == len(field.Path):
		n.leaf, n.open = field, 1
	default:
		shown, _ := rawjson.HideErased(raw)
		n.leaf, n.open = &FieldBlame{Path: string(path), Field: field.Field, Value: shown}, 1
	}
	return n, part(true)
}

// explain sets the version of every leaf that has none.
func (n *tracked) explain(v *driver.Version) {
	if n.leaf != nil && n.leaf.v == nil {
		n.leaf.v = v
	}
	for _, c := range n.members {
		c.explain(v)
	}
	for _, c := range n.elems {
		c.explain(v)
	}
	n.open = 0
}

// step explains what changed from one value to the next, and moves the indexes
// of what did not to where it was before.
func (n *tracked) step(old, now []byte, v *driver.Version) {
	switch {
	case n.open == 0 || bytes.Equal(old, now) && old != nil:
	case old == nil || n.leaf != nil && !normal.Equal(old, now):
		n.explain(v)
	case n.leaf != nil:
	case old[0] != now[0] || diff.Whole("", old, now):
		n.explain(v)
	case n.members != nil:
		n.stepMembers(old, now, v)
	default:
		n.stepElements(old, now, v)
	}
}

func (n *tracked) stepMembers(old, now []byte, v *driver.Version) {
	before, after := diff.Members(old), diff.Members(now)
	n.open = 0
	for _, c := range n.members {
		c.step(memberOf(before, c.name), memberOf(after, c.name), v)
		n.open += c.open
	}
}

func memberOf(sorted []diff.Member, name string) []byte {
	i, ok := slices.BinarySearchFunc(sorted, name, func(m diff.Member, name string) int { return strings.Compare(m.Name, name) })
	if !ok {
		return nil
	}
	return sorted[i].Value
}

func (n *tracked) stepElements(old, now []byte, v *driver.Version) {
	before, after := diff.Elements(old), diff.Elements(now)
	edits := make([]diff.Edit, len(after)) // by the index in the later list
	for e := range diff.Align(before, after) {
		if e.New >= 0 {
			edits[e.New] = e
		}
	}
	n.open = 0
	for _, c := range n.elems {
		if c.open > 0 {
			e := edits[c.index]
			if e.Old < 0 || !e.Alike && !normal.Equal(before[e.Old], after[e.New]) {
				c.explain(v)
			} else {
				c.step(before[e.Old], after[e.New], v)
				c.index = e.Old
			}
		}
		n.open += c.open
	}
}

// leaves appends the explained leaves, but for the field's own entry.
func (n *tracked) leaves(out []*FieldBlame, field *FieldBlame) []*FieldBlame {
	if n.leaf != nil && n.leaf != field && n.leaf.v != nil {
		out = append(out, n.leaf)
	}
	for _, c := range n.members {
		out = c.leaves(out, field)
	}
	for _, c := range n.elems {
		out = c.leaves(out, field)
	}
	return out
}
