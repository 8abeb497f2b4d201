package plantest

import (
	"context"
	"fmt"
	"io"
	"iter"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/99designs/gqlgen/graphql"

	"github.com/asof/asof/internal/app"
	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/normal"
	"github.com/asof/asof/storage/rawjson"
	"github.com/asof/asof/storage/record"
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
	typ   *record.Type
	key   string
	alive bool
	data  []byte           // of its last version
	times []driver.Instant // of its versions
}

// beginning is when the histories begin.
const beginning driver.Instant = 1_704_067_200_000_000 // 2024-01-01

// NewWorld fills an empty engine that has the collections of the types. Wild
// says how many values are right for one that does not fit the schema; 0: all are.
func NewWorld(ctx context.Context, engine driver.Engine, types []*record.Type, c *Choices, wild, versions int) (*World, error) {
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
func (w *World) typeOf(name string) *record.Type {
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

// Servers makes the pair that matters: the program's own handler with gqlgen's
// executor, and with plans, for a schema that code was generated from; both with
// these flags.
func Servers(types []*record.Type, schema func(*storage.Store) graphql.ExecutableSchema, flags ...string) func(driver.Engine) (*Pair, error) {
	// program is what `asof serve` serves. Its clock stands, as what it measures is in
	// no answer.
	program := func(engine driver.Engine, executor string) (http.Handler, error) {
		m := &app.Main{
			Types: types, Schema: schema,
			Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: io.Discard,
			Now: beginning.Time,
		}
		h, err := m.Handler(engine, append([]string{"--log-level=error", "--executor=" + executor}, flags...)...)
		if err != nil {
			return nil, fmt.Errorf("plantest: the program with %s and %q: %w", executor, flags, err)
		}
		return h, nil
	}
	return func(engine driver.Engine) (*Pair, error) {
		trusted, err := program(engine, "gqlgen")
		if err != nil {
			return nil, err
		}
		other, err := program(engine, "plan")
		if err != nil {
			return nil, err
		}
		return &Pair{Trusted: trusted, Other: other}, nil
	}
}

// frozen is an engine whose clock stands until it is moved, so that two servers
// over it begin their operations at the same instant. It refuses commits: the
// second server would find what the first one wrote.
type frozen struct {
	driver.Engine
	at    atomic.Int64 // an Instant
	fault atomic.Pointer[fault]
}

// fault makes an engine fail where it reads one collection: for both servers,
// whatever they read at once.
type fault struct {
	collection string
	how        error // nil: it panics
}

// hits fails, or does not.
func (f *frozen) hits(collection string) error {
	fault := f.fault.Load()
	if fault == nil || fault.collection != collection {
		return nil
	}
	if fault.how == nil {
		panic("plantest: a fault in " + collection)
	}
	return fault.how
}

func (f *frozen) Get(ctx context.Context, collection string, refs []driver.Ref, fields []string) ([]*driver.Version, error) {
	if err := f.hits(collection); err != nil {
		return nil, err
	}
	return f.Engine.Get(ctx, collection, refs, fields)
}

func (f *frozen) Query(ctx context.Context, q *driver.Query) ([]*driver.Version, error) {
	if err := f.hits(q.Collection); err != nil {
		return nil, err
	}
	return f.Engine.Query(ctx, q)
}

func (f *frozen) Count(ctx context.Context, q *driver.Query) (int64, error) {
	if err := f.hits(q.Collection); err != nil {
		return 0, err
	}
	return f.Engine.Count(ctx, q)
}

func (f *frozen) Log(ctx context.Context, q *driver.LogQuery) iter.Seq2[*driver.Version, error] {
	for _, collection := range q.Collections {
		if err := f.hits(collection); err != nil {
			return func(yield func(*driver.Version, error) bool) { yield(nil, err) }
		}
	}
	return f.Engine.Log(ctx, q)
}

func (f *frozen) instant() driver.Instant { return driver.Instant(f.at.Load()) }

func (f *frozen) Now(ctx context.Context) (driver.Instant, error) {
	if err := ctx.Err(); err != nil {
		return 0, driver.Errorf(driver.CodeUnavailable, "the clock: %w", err)
	}
	return f.instant(), nil
}

func (f *frozen) Settle(_ context.Context, at driver.Instant) error {
	if now := f.instant(); at > now {
		return driver.Errorf(driver.CodeInvalid, "%s is later than the clock, %s", at, now)
	}
	return nil
}

func (*frozen) Commit(context.Context, []driver.Write) ([]*driver.Version, error) {
	return nil, driver.Errorf(driver.CodeUnavailable, "this engine only reads")
}
