package drivertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/asof/asof/storage/driver"
)

func (s *suite) randomTests() []test {
	return []test{
		{"Operations", func(t *testing.T) {
			for i := range s.rounds(4) {
				if !s.metamorphic(t, i, variant{name: "few documents", keys: 12, steps: 260}) {
					return
				}
			}
			s.metamorphic(t, 100, variant{name: "two documents, many versions", keys: 2, steps: 1500, fewReads: true})
			many := s.tries(1500)
			s.metamorphic(t, 200, variant{name: "many documents", keys: many, preload: many, steps: 120})
		}},
		{"LongIndexHistories", s.testLongIndexHistories},
		{"ManyDocumentsByIndex", s.testManyDocumentsByIndex},
		{"ReadersAndWriters", s.testReadersAndWriters},
	}
}

// variant is a kind of random history.
type variant struct {
	name     string
	keys     int
	preload  int // versions loaded at first, over the first half of the keys
	steps    int
	fewReads bool
}

// metamorphic performs random operations on an engine and on the model and
// compares what each returns, and then every way to read.
func (s *suite) metamorphic(t *testing.T, stream uint64, v variant) (same bool) {
	return t.Run(fmt.Sprintf("%s, seed %d.%d", v.name, s.seed, stream), func(t *testing.T) {
		gen := newGenerator(s.seed, 1000+stream)
		declared := []driver.Collection{{Name: collection, Indexes: indexes(gen.shape)}, {Name: "others"}}
		r := &operations{pair: s.pair(t, gen, declared...), variant: v, all: declared, writes: make(map[driver.LogPosition]*driver.Write)}
		r.preloadVersions()
		for range s.tries(v.steps) {
			r.step()
			if t.Failed() {
				return
			}
		}
		r.compareEverything()
		r.reopen(r.all...)
		r.compareEverything()
		for range 150 {
			r.read()
		}
	})
}

// operations is the state of one random history.
type operations struct {
	*pair
	variant
	all    []driver.Collection
	writes map[driver.LogPosition]*driver.Write // that were committed
	recent []driver.LogPosition
	floor  driver.Instant // what Now returned last
}

func (r *operations) key() string { return fmt.Sprintf("k%d", r.gen.IntN(r.keys)) }

func (r *operations) preloadVersions() {
	at := driver.Instant(1_000_000)
	var vs []driver.Version
	for i := range r.preload {
		at += driver.Instant(r.gen.IntN(5))
		key := fmt.Sprintf("k%d", r.gen.IntN(max(1, r.keys/2)))
		if last := r.model.last(collection, key); last != nil && last.RecordedAt >= at {
			at = last.RecordedAt + 1
		}
		if slices.ContainsFunc(vs, func(v driver.Version) bool { return v.Key == key && v.RecordedAt >= at }) {
			at++
		}
		vs = append(vs, r.version(key, at))
		if len(vs) == 500 || i == r.preload-1 {
			r.load(vs)
			vs = nil
		}
	}
}

func (r *operations) step() {
	switch n := r.gen.IntN(100); {
	case n < 40:
		r.randomCommit()
	case n < 45:
		r.randomBatch()
	case n < 50:
		r.repeatCommit()
	case n < 57:
		r.randomLoad()
	case n < 61:
		r.randomRewrite()
	case n < 65:
		r.moveClock()
	case n < 68:
		now := r.now()
		if now < r.floor {
			r.Fatalf("Now is %d, was %d", now, r.floor)
		}
		r.floor = now
		r.gen.times = append(r.gen.times, now)
	case n < 70 && !r.fewReads || n == 68 && r.gen.chance(10):
		r.reopenRandomly()
	case r.fewReads && n < 90:
		r.randomCommit()
	default:
		r.read()
	}
}

// moveClock goes forward as a rule, and sometimes back.
func (r *operations) moveClock() {
	d := []time.Duration{time.Nanosecond, time.Microsecond, 7 * time.Microsecond, time.Millisecond, time.Second, time.Hour, 24 * time.Hour}
	by := pick(r.gen, d)
	if r.gen.chance(25) {
		by = -by
	}
	r.clock.move(by)
}

func (r *operations) randomCommit() {
	g := r.gen
	name := collection
	if g.chance(5) {
		name = "others"
	}
	v := r.version(r.key(), 0)
	last := r.model.last(name, v.Key)
	w := &driver.Write{
		ID: r.id(), Collection: name, Key: v.Key, Expected: numberOf(last), Op: v.Op, Deleted: v.Deleted,
		Author: v.Author, Message: v.Message, Group: v.Group, Changed: v.Changed, Data: v.Data,
	}
	absent := last == nil || last.Deleted
	switch n := g.IntN(10); {
	case n == 0:
		w.Expected = pick(g, []int64{int64(g.IntN(int(numberOf(last)) + 3)), 1 << 62})
	case n < 4 && absent:
		w.Expected = 0
	}
	made, err := driver.CommitOne(r.ctx, r.engine, w)
	if w.Expected != numberOf(last) && !(w.Expected == 0 && absent) {
		want := []driver.Conflict{{Collection: name, Key: w.Key, Expected: w.Expected, Actual: numberOf(last)}}
		var conflict *driver.ConflictError
		if !errors.As(err, &conflict) || !slices.Equal(conflict.Lost, want) {
			r.Fatalf("Commit expecting version %d of %q, which is at %d: %+v, %v", w.Expected, w.Key, numberOf(last), made, err)
		}
		if g.chance(50) {
			return
		}
		w.Expected = numberOf(last) // a refused write has not used up its ID
		made, err = driver.CommitOne(r.ctx, r.engine, w)
	}
	if err != nil {
		r.Fatalf("Commit expecting version %d of %q: %v", w.Expected, w.Key, err)
	}
	if made.RecordedAt <= r.floor || last != nil && made.RecordedAt <= last.RecordedAt || made.Number != numberOf(last)+1 {
		r.Fatalf("Commit made version %d at %d, after %s, with Now at %d", made.Number, made.RecordedAt, describe(last), r.floor)
	}
	r.mirror(made)
	r.writes[made.Position()] = w
	r.recent = append(r.recent, made.Position())
}

// randomBatch commits several writes at once, of which some may expect another version.
func (r *operations) randomBatch() {
	g := r.gen
	var ws []driver.Write
	var lost []driver.Conflict
	for range min(1+g.IntN(5), maxWrites(r.engine)) {
		v := r.version(r.key(), 0)
		if slices.ContainsFunc(ws, func(w driver.Write) bool { return w.Key == v.Key }) {
			continue
		}
		last := r.model.last(collection, v.Key)
		w := driver.Write{
			ID: r.id(), Collection: collection, Key: v.Key, Expected: numberOf(last), Op: v.Op, Deleted: v.Deleted,
			Author: v.Author, Message: v.Message, Group: v.Group, Changed: v.Changed, Data: v.Data,
		}
		if g.chance(7) {
			w.Expected += 1 + int64(g.IntN(2))
			lost = append(lost, driver.Conflict{Collection: collection, Key: w.Key, Expected: w.Expected, Actual: numberOf(last)})
		}
		ws = append(ws, w)
	}
	made, err := r.engine.Commit(r.ctx, ws)
	if len(lost) > 0 {
		var conflict *driver.ConflictError
		if !errors.As(err, &conflict) || !slices.Equal(conflict.Lost, lost) {
			r.Fatalf("Commit of %d writes: %v, want the conflicts %+v", len(ws), err, lost)
		}
		return
	}
	if err != nil {
		r.Fatalf("Commit of %d writes: %v", len(ws), err)
	}
	for i, v := range made {
		r.mirror(v)
		r.writes[v.Position()] = &ws[i]
		r.recent = append(r.recent, v.Position())
	}
}

func (r *operations) repeatCommit() {
	if len(r.recent) == 0 {
		return
	}
	p := pick(r.gen, r.recent)
	got, err := driver.CommitOne(r.ctx, r.engine, r.writes[p])
	want := r.model.documents[p.Collection][p.Key][p.Number-1]
	if err != nil || !same(got, want) {
		r.Fatalf("the write that made %s, again: %s, %v", describe(want), describe(got), err)
	}
}

// randomLoad loads new documents with times of the past, adds to old ones,
// repeats what is there, and makes mistakes.
func (r *operations) randomLoad() {
	g := r.gen
	var vs []driver.Version
	now := min(r.now(), driver.InstantOf(r.clock.now()))
	for range 1 + g.IntN(6) {
		key := r.key()
		last := r.model.last(collection, key)
		switch {
		case g.chance(20) && last != nil:
			again := *pick(g, r.model.documents[collection][key])
			vs = append(vs, again)
			continue
		case g.chance(4):
			// The model's clock is far ahead: only for ever is later for both.
			// At or before 1970 is malformed, and refused before the others are looked at.
			at := max(1, g.instant())
			if at != driver.Forever {
				at = min(at, now)
			}
			vs = append(vs, r.version(key, at))
			continue
		}
		at := driver.Instant(1 + g.Int64N(int64(now)))
		if len(g.times) > 0 && g.chance(50) {
			at = max(1, pick(g, g.times)+driver.Instant(g.IntN(3)-1))
		}
		if last != nil {
			at = max(at, last.RecordedAt+1)
		}
		if at > now {
			continue
		}
		for range 1 + g.IntN(4) {
			vs = append(vs, r.version(key, at))
			at += 1 + driver.Instant(g.IntN(1000))
			if at > now {
				break
			}
		}
	}
	r.load(vs)
}

// randomRewrite prunes versions of a document, or gives them other content.
func (r *operations) randomRewrite() {
	key := r.key()
	last := r.model.last(collection, key)
	var vs []driver.Version
	for n := int64(1); n <= numberOf(last); n++ {
		if !r.gen.chance(40) || n == numberOf(last) && r.gen.chance(90) {
			continue
		}
		v := driver.Version{Number: n, Op: driver.OpPruned, Deleted: true}
		if r.gen.chance(50) {
			v = r.version(key, 0)
			v.Number = n
		}
		vs = append(vs, v)
	}
	want, err := r.model.Rewrite(r.ctx, collection, key, vs), r.engine.Rewrite(r.ctx, collection, key, vs)
	if driver.CodeOf(err) != driver.CodeOf(want) {
		r.Fatalf("Rewrite of %d versions of %q, which is at %d: %v, want %v", len(vs), key, numberOf(last), err, want)
	}
	r.recent = slices.DeleteFunc(r.recent, func(p driver.LogPosition) bool { return p.Collection == collection && p.Key == key })
}

// reopenRandomly opens again with some of the indexes.
func (r *operations) reopenRandomly() {
	c := r.all[0]
	c.Indexes = slices.DeleteFunc(slices.Clone(c.Indexes), func(driver.Index) bool { return r.gen.chance(30) })
	r.reopen(c, r.all[1])
}

func (r *operations) read() {
	g := r.gen
	switch g.IntN(5) {
	case 0:
		var refs []driver.Ref
		for range g.IntN(12) {
			ref := driver.Ref{Key: r.key(), At: g.instant()}
			switch n := g.IntN(100); {
			case n < 30:
				ref.Number = int64(g.IntN(int(numberOf(r.model.last(collection, ref.Key))) + 3))
			case n < 35:
				ref.Number = pick(g, []int64{-1, 1 << 62})
			case n < 40:
				ref.Key = pick(g, []string{"", "K1", "k1 ", "k1\x00", "\xff"})
			}
			refs = append(refs, ref)
		}
		r.compareGet(refs)
	case 1:
		r.compareLog(r.randomLogQuery())
	default:
		r.compareQuery(r.randomQuery())
	}
}

func (r *operations) randomLogQuery() *driver.LogQuery {
	g := r.gen
	q := &driver.LogQuery{Backward: g.chance(40)}
	if g.chance(40) {
		q.Fields = g.fields()
	}
	if g.chance(60) {
		q.Collections = []string{collection}
		for range g.IntN(4) {
			q.Keys = append(q.Keys, r.key())
		}
	} else if g.chance(50) {
		q.Collections = []string{"others", collection}
	}
	for range g.IntN(8) - 5 {
		q.Hints.Authors = append(q.Hints.Authors, pick(g, g.authors))
	}
	for range g.IntN(10) - 7 {
		q.Hints.Ops = append(q.Hints.Ops, driver.Op(1+g.IntN(int(driver.OpImport))))
	}
	for range g.IntN(10) - 7 {
		q.Hints.Groups = append(q.Hints.Groups, pick(g, g.authors)) // which groups are taken from, too
	}
	for range g.IntN(8) - 5 {
		q.Hints.Changed = append(q.Hints.Changed, pick(g, g.shape).name)
	}
	if g.chance(30) {
		q.From = g.instant()
	}
	if g.chance(30) {
		q.To = g.instant()
	}
	if g.chance(15) {
		q.FromNumber = int64(g.IntN(6))
	}
	if g.chance(15) {
		q.ToNumber = int64(g.IntN(8))
	}
	if g.chance(60) {
		q.Limit = 1 + g.IntN(20)
	}
	if g.chance(40) {
		q.After = &driver.LogPosition{At: g.instant(), Collection: pick(g, []string{"", "others", collection}), Key: r.key(), Number: int64(g.IntN(4))}
		if len(r.recent) > 0 && g.chance(60) {
			*q.After = pick(g, r.recent)
		}
	}
	return q
}

// Readers compare what they see with itself while writers commit and load.
func (s *suite) testReadersAndWriters(t *testing.T) {
	gen := newGenerator(s.seed, 5000)
	f := s.fixture(t, driver.Collection{Name: collection, Indexes: indexes(gen.shape)})
	const workers, keys = 8, 6
	ctx, cancel := context.WithCancel(f.ctx)
	defer cancel()
	parallel(workers, func(i int) {
		g := newGenerator(s.seed, 5000+uint64(i))
		for n := range 60 * s.scale {
			key := fmt.Sprintf("k%d", g.IntN(keys))
			var err error
			switch {
			case i < 3:
				vs, getErr := f.engine.Get(ctx, collection, []driver.Ref{{Key: key, At: driver.Forever}}, nil)
				if err = getErr; err == nil {
					_, err = driver.CommitOne(ctx, f.engine, &driver.Write{
						ID: f.id(), Collection: collection, Key: key, Expected: numberOf(vs[0]), Op: driver.OpUpdate, Data: []byte(g.document()),
					})
				}
				if driver.CodeOf(err) == driver.CodeConflict {
					err = nil
				}
				f.clock.move(time.Microsecond)
			case i == 3:
				_, _, err = f.loadAgain(ctx, []driver.Version{loaded(fmt.Sprintf("load%d", n/3), driver.Instant(n+1), g.document())})
			case i == 4:
				last := int64(0)
				for v, logErr := range f.engine.Log(ctx, &driver.LogQuery{Collections: []string{collection}, Keys: []string{key}}) {
					if err = logErr; err == nil {
						if last++; v.Number != last {
							t.Errorf("the log of %q has number %d after %d", v.Key, v.Number, last-1)
						}
					}
				}
			default:
				err = f.readTwice(ctx, g)
			}
			if err != nil {
				t.Errorf("worker %d: %v", i, err)
				return
			}
		}
	})
}

// readTwice makes a random query and its complement at one instant: together
// they are all documents that there are, except those loaded in between.
func (f *fixture) readTwice(ctx context.Context, g *generator) error {
	at, err := f.engine.Now(ctx)
	if err != nil {
		return err
	}
	meta := driver.Field{Meta: driver.MetaKey, Kind: driver.KindString}
	committed := driver.Text{Field: meta, Op: driver.HasPrefix, Value: "k"}
	filter := g.filter(2, g.shape, nil)
	q := driver.Query{Collection: collection, At: at, Order: g.order()}
	var keys []string
	for _, f1 := range []driver.Filter{filter, driver.Not{Filter: filter}} {
		part := q
		part.Filter = driver.And{committed, f1}
		vs, err := f.engine.Query(ctx, &part)
		if err != nil {
			return err
		}
		keys = append(keys, keysOf(vs)...)
	}
	all := q
	all.Filter = committed
	n, err := f.engine.Count(ctx, &all)
	if err != nil {
		return err
	}
	if slices.Sort(keys); int64(len(keys)) != n || len(slices.Compact(slices.Clone(keys))) != len(keys) {
		f.Errorf("at %d, %#v and its opposite find %q, of %d documents", at, filter, keys, n)
	}
	return nil
}
