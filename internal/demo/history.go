package demo

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/normal"
)

// id names a document.
type id struct{ collection, key string }

// history is what happened so far.
type history struct {
	versions []driver.Version
	current  map[id][]byte // nil: deleted
	past     map[id][]int  // indexes in versions
	last     driver.Instant
}

// Versions returns the demo's versions in the order of their times, which
// strictly increase, with the members that each one changed.
func Versions() ([]driver.Version, error) {
	steps := slices.Concat(beginning(), story(), newcomers(), starRobot(), releaseRobot())
	slices.SortStableFunc(steps, func(a, b step) int { return bytes.Compare([]byte(a.at), []byte(b.at)) })
	h := &history{current: make(map[id][]byte), past: make(map[id][]int)}
	for _, s := range steps {
		if err := h.add(s); err != nil {
			return nil, fmt.Errorf("demo: %s, %s: %w", s.at, s.by, err)
		}
	}
	return h.versions, nil
}

// add applies a step. Edits that change nothing make no version.
func (h *history) add(s step) error {
	t, err := time.Parse(time.RFC3339, s.at)
	if err != nil {
		return err
	}
	at, group := driver.InstantOf(t), s.group
	if group == "" && len(s.edits) > 1 {
		group = t.Format("2006-01-02") + "-" + s.by
	}
	for _, e := range s.edits {
		if err := h.edit(s, e, max(at, h.last+1), group); err != nil {
			return err
		}
	}
	return nil
}

func (h *history) edit(s step, e edit, at driver.Instant, group string) error {
	d := id{e.collection, e.key}
	before := h.current[d]
	var after []byte
	var err error
	if e.asOf != "" {
		after, err = h.read(d, e.asOf)
	} else {
		after, err = e.apply(before)
	}
	if err != nil || bytes.Equal(before, after) {
		return err
	}
	v := driver.Version{
		Collection: e.collection, Key: e.key, RecordedAt: at, Op: s.op,
		Author: s.by, Message: s.message, Group: group, Data: after, Deleted: after == nil,
		Changed: normal.Changed(before, after),
	}
	switch {
	case after == nil:
		v.Op = driver.OpDelete
	case v.Op != 0:
	case before == nil:
		v.Op = driver.OpCreate
	default:
		v.Op = driver.OpUpdate
	}
	h.past[d] = append(h.past[d], len(h.versions))
	h.versions = append(h.versions, v)
	h.current[d], h.last = after, at
	return nil
}

// read returns a document as it was at a time.
func (h *history) read(d id, at string) ([]byte, error) {
	t, err := time.Parse(time.RFC3339, at)
	if err != nil {
		return nil, err
	}
	for _, i := range slices.Backward(h.past[d]) {
		if v := h.versions[i]; v.RecordedAt <= driver.InstantOf(t) && !v.Deleted {
			return v.Data, nil
		}
	}
	return nil, fmt.Errorf("%s %q did not exist at %s", d.collection, d.key, at)
}

// beginning is the day on which the catalogue was opened.
func beginning() []step {
	var edits []edit
	for _, l := range openingLicenses {
		edits = append(edits, put(licenses, l.Identifier, l))
	}
	for _, p := range openingPlatforms {
		edits = append(edits, put(platforms, p.key, p.platform))
	}
	for _, t := range openingTags {
		edits = append(edits, put(tags, t.key, t.tag))
	}
	for _, r := range opening {
		edits = append(edits, put(software, r.key, r.document("2025-01-01")))
	}
	return []step{{
		at: "2025-01-01T09:00:00Z", by: "mira", message: "Open the catalogue", group: "opening", edits: edits,
	}}
}

// newcomers are the projects that joined later.
func newcomers() []step {
	var steps []step
	for _, a := range arrivals {
		steps = append(steps, step{
			at: a.at, by: a.by, message: "Add " + a.name,
			edits: []edit{put(software, a.key, a.document(a.at[:len("2025-01-01")]))},
		})
	}
	return steps
}
