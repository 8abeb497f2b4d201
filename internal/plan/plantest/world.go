package plantest

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/normal"
	"github.com/asof/asof/storage/rawjson"
)

// World is what the servers that are compared read: documents with random
// histories, in a real engine whose clock stands still.
type World struct {
	choices *Choices
	engine  *frozen
	store   *storage.Store // it only loads
	docs    []*history
	last    driver.Instant // of the newest version
	times   []driver.Instant
	keys    []string // that documents and references have
	wild    int      // one value in so many does not fit the schema; 0: all do
}

// history is the state of one document, to make its next version from.
type history struct {
	typ   *storage.Type
	key   string
	alive bool
	data  []byte           // of its last version
	times []driver.Instant // of its versions
}

// beginning is when the histories begin.
const beginning driver.Instant = 1_704_067_200_000_000 // 2024-01-01

// NewWorld fills an empty engine that has the collections of the types. Wild
// says how many values are right for one that does not fit the schema; 0: all are.
func NewWorld(ctx context.Context, engine driver.Engine, types []*storage.Type, c *Choices, wild, versions int) (*World, error) {
	store, err := storage.New(engine, types)
	if err != nil {
		return nil, err
	}
	w := &World{choices: c, engine: &frozen{Engine: engine}, store: store, last: beginning, wild: wild}
	w.keys = keys
	some := 6 + c.Below(8)
	if c.Chance(4) { // enough for several pages
		some = 60
		w.keys = slices.Clone(keys)
		for i := range 60 {
			w.keys = append(w.keys, "k"+strconv.Itoa(i))
		}
	}
	for _, t := range types {
		for _, i := range pick(c, len(w.keys), some) {
			w.docs = append(w.docs, &history{typ: t, key: w.keys[i]})
		}
	}
	if err := w.Grow(ctx, versions); err != nil {
		return nil, err
	}
	return w, nil
}

// pick chooses some of the numbers below n.
func pick(c *Choices, n, some int) []int {
	all := make([]int, n)
	for i := range all {
		j := c.Below(i + 1)
		all[i] = all[j]
		all[j] = i
	}
	return all[:min(some, n)]
}

// Grow adds versions behind all that there are, and moves the clock: mostly
// behind them, sometimes only to one of them.
func (w *World) Grow(ctx context.Context, versions int) error {
	c := w.choices
	vs := make([]driver.Version, 0, versions)
	before := w.last
	for len(vs) < versions {
		d := OneOf(c, w.docs)
		at := w.last + w.step()
		if n := len(d.times); n > 0 && at <= d.times[n-1] {
			at = d.times[n-1] + 1
		}
		v := driver.Version{
			Collection: d.typ.Collection, Key: d.key, RecordedAt: at, Op: driver.OpImport,
			Author: OneOf(c, authors), Message: OneOf(c, messages), Group: OneOf(c, groups),
		}
		switch {
		case d.alive && c.Chance(8):
			d.alive = false
			v.Op, v.Deleted = driver.OpDelete, true
		default:
			data, err := normal.Object([]byte(w.next(d)))
			if err != nil {
				return fmt.Errorf("plantest: a generated document: %w", err)
			}
			if c.Chance(3) {
				v.Op = OneOf(c, []driver.Op{driver.OpCreate, driver.OpUpdate, driver.OpRestore})
			}
			d.alive, d.data, v.Data = true, data, data
		}
		d.times = append(d.times, at)
		w.times = append(w.times, at)
		w.last = at
		vs = append(vs, v)
	}
	if _, err := w.store.Load(ctx, vs); err != nil {
		return fmt.Errorf("plantest: loading a history: %w", err)
	}
	now := w.last
	switch c.Below(6) {
	case 0:
		now = OneOf(c, w.times)
	case 1:
		now += driver.Instant(1 + c.Below(2_000_000))
	}
	w.engine.at.Store(int64(max(now, before, w.engine.instant()))) // it never goes back
	return nil
}

// Fault makes the engine fail in one of the collections, or in none.
func (w *World) Fault() {
	c := w.choices
	w.engine.fault.Store(nil)
	if c.Chance(5) {
		w.engine.fault.Store(&fault{OneOf(c, w.docs).typ.Collection, OneOf(c, []error{
			driver.Errorf(driver.CodeUnavailable, "the disk has gone"), driver.Errorf(driver.CodeInternal, "the disk is on fire"), context.DeadlineExceeded, nil,
		})})
	}
}

// step is the time to the next version; that of another document can have the
// same time.
func (w *World) step() driver.Instant {
	switch w.choices.Below(6) {
	case 0:
		return 0
	case 1:
		return 1
	case 2:
		return 1_000_000
	default:
		return driver.Instant(1 + w.choices.Below(3_600_000_000))
	}
}

// next makes the data of a document's next version: the last one's with some
// members made anew, or all.
func (w *World) next(d *history) string {
	c := w.choices
	fields := d.typ.Fields
	if !d.alive || c.Chance(10) {
		return w.object(fields, 0)
	}
	anew := map[string]bool{}
	var members []string
	for range 1 + c.Below(3) {
		f := &fields[c.Below(len(fields))]
		name := storedName(f)
		if anew[name] {
			continue
		}
		anew[name] = true
		if value := w.stored(f, 0); value != "" {
			members = append(members, quote(c, name)+":"+value)
		}
	}
	rawjson.Members(d.data, func(name []byte, start, end int) bool {
		if text := rawjson.Name(name); !anew[text] {
			members = append(members, string(rawjson.AppendString(nil, text))+":"+string(d.data[start:end]))
		}
		return true
	})
	return "{" + strings.Join(members, ",") + "}"
}

// typeOf returns the type of documents with a name; nil where there is none.
func (w *World) typeOf(name string) *storage.Type {
	for _, t := range w.store.Types() {
		if t.Name == name {
			return t
		}
	}
	return nil
}

// docsOf are the documents of a type that have a version.
func (w *World) docsOf(typ string) []*history {
	var docs []*history
	for _, d := range w.docs {
		if d.typ.Name == typ && len(d.times) > 0 {
			docs = append(docs, d)
		}
	}
	return docs
}
