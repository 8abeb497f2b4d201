package mongostore

import (
	"context"
	"errors"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/asof/asof/storage/driver"
)

// Bounds of what a load reads and works out at once: documents, and bytes of their
// history; and how many bytes of versions one document gets at once, which is what
// its prev grows by until they have moved on.
const (
	maxLoadDocuments = 1000
	maxLoadBytes     = 8 << 20
	maxLoadPart      = 4 << 20
)

// write gives the documents their added versions, many documents at once.
func (l *loading) write(ctx context.Context) error {
	groups := make(map[*collection]*loadGroup)
	for _, d := range l.order {
		for rest := d.added; len(rest) > 0; {
			g := groups[d.c]
			p := d.part(rest)
			rest = rest[len(p.added):]
			if g != nil && !g.takes(p) {
				if err := g.write(ctx); err != nil {
					return err
				}
				g = nil
			}
			if g == nil {
				g = &loadGroup{c: d.c}
				groups[d.c] = g
			}
			g.parts = append(g.parts, p)
			g.bytes += p.bytes
		}
	}
	for _, g := range groups {
		if err := g.write(ctx); err != nil {
			return err
		}
	}
	return nil
}

// loadPart is versions that one document gets at once.
type loadPart struct {
	*loadedDocument
	added []*record
	bytes int64 // about what is read and written for it

	head  *head        // that they follow on; nil: no document
	prev  []superseded // of the document before, where it was read
	chain []superseded // what they add to prev
	made  *head        // that they make
	// current is made, encoded; alone: with what is in prev it would be too large
	// for one document, so that goes to the overflow first, as in a commit.
	current bson.Raw
	alone   bool
}

// part takes so many of the versions that a document still lacks as it may get
// at once; at least one.
func (d *loadedDocument) part(rest []*record) *loadPart {
	p := &loadPart{loadedDocument: d}
	size := func(r *record) int64 {
		const searchForm = 3 // data and x together, in sizes of data
		return 256 + searchForm*int64(len(r.Data))
	}
	if d.head != nil {
		p.bytes = d.head.size + size(&d.head.record)
	}
	for _, r := range rest {
		if len(p.added) > 0 && p.bytes+size(r) > maxLoadPart {
			break
		}
		p.added, p.bytes = append(p.added, r), p.bytes+size(r)
	}
	return p
}

// loadGroup is parts of different documents of one collection that are written
// together. What a load adds is first made part of the documents, and moves to
// the overflow afterwards: a run never holds a version that no document has
// had, wherever a load ends.
type loadGroup struct {
	c     *collection
	parts []*loadPart
	bytes int64
}

// takes reports whether a part may be written together with the group. Parts of
// one document come one after the other.
func (g *loadGroup) takes(p *loadPart) bool {
	last := len(g.parts) - 1
	return len(g.parts) < maxLoadDocuments && g.bytes+p.bytes <= maxLoadBytes && g.parts[last].loadedDocument != p.loadedDocument
}

func (g *loadGroup) write(ctx context.Context) error {
	if err := g.placeholders(ctx); err != nil {
		return err
	}
	// What the group adds arrives at an instant, as a commit does, see Loaded.
	clock := g.c.store.clock
	f, err := clock.begin(ctx, g.after(), clock.lifeOf(int(g.bytes), 0))
	if err != nil {
		return err
	}
	err = g.noteLoaded(ctx, f)
	if err == nil {
		err = g.commit(ctx, f)
	}
	if err != nil {
		if uncertain(err) && !errors.Is(err, errChanged) && !errors.Is(err, errRest) {
			g.resolveUncertain(f)
		} else {
			clock.end(f)
		}
		return err
	}
	clock.end(f)
	var over []*toOverflow
	for _, p := range g.parts {
		versions := append(p.prev, p.chain...)
		if n := p.bounds().cut(versions, p.made.size); n > 0 {
			over = append(over, &toOverflow{p, versions, n})
		}
	}
	if err := g.overflow(ctx, over); err != nil {
		return err
	}
	trim := &bulk{store: g.c.store, target: g.c.main}
	for _, m := range over {
		if err := trim.add(ctx, m.trim(), 0); err != nil {
			return err
		}
	}
	return trim.flush(ctx)
}

// noteLoaded notes when the load is, before Now can come to that.
func (g *loadGroup) noteLoaded(ctx context.Context, f *flight) error {
	ctx, cancel := g.c.store.step(ctx)
	defer cancel()
	_, err := g.c.store.meta.UpdateOne(ctx, bson.D{{Key: "_id", Value: storeID}}, bson.D{{Key: "$max", Value: bson.D{{Key: "loaded", Value: int64(f.at)}}}})
	return certain(err)
}

// placeholders makes those documents that are not there.
func (g *loadGroup) placeholders(ctx context.Context) error {
	placeholders := &bulk{store: g.c.store, target: g.c.main}
	for _, p := range g.parts {
		if p.loadedDocument.head == nil {
			if err := placeholders.add(ctx, mongo.NewInsertOneModel().SetDocument(placeholder(p.key)), int64(len(p.key))); err != nil {
				return err
			}
		}
	}
	return placeholders.flush(ctx)
}

// commit makes what the group adds part of the documents.
func (g *loadGroup) commit(ctx context.Context, f *flight) error {
	ctx, cancel := context.WithTimeout(ctx, f.run)
	defer cancel()
	var done error
	for _, p := range g.parts {
		for _, r := range p.added {
			r.loaded = f.at
		}
		p.plan()
		if p.alone && len(p.added) > 1 {
			p.added, done = p.added[:1], errRest
			p.plan()
		}
		g.c.forget(p.key)
	}
	if err := g.readPrev(ctx); err != nil {
		return certain(err)
	}
	var alone []*toOverflow
	for _, p := range g.parts {
		if p.alone {
			if len(p.prev) > 0 {
				alone = append(alone, &toOverflow{p, p.prev, len(p.prev)})
			}
			p.prev, p.made.n, p.made.size = nil, int64(len(p.chain)), sizeOf(p.chain)
		}
	}
	if err := g.overflow(ctx, alone); err != nil {
		return certain(err)
	}
	commit := &bulk{store: g.c.store, target: g.c.main}
	for _, p := range g.parts {
		if err := commit.add(ctx, p.commit(f), p.sent()); err != nil {
			return err
		}
	}
	if err := commit.flush(ctx); err != nil {
		return err
	}
	if commit.found < int64(len(g.parts)) {
		return errChanged
	}
	for _, p := range g.parts {
		p.loadedDocument.head = p.made
	}
	return done
}

// resolveUncertain ends the flight of a group of which it is not known what the database has carried
// out, when it does not carry out any more of it.
func (g *loadGroup) resolveUncertain(f *flight) {
	s := g.c.store
	go func() {
		for s.life.Err() == nil {
			if s.clock.awaitEnd(s.life, []*flight{f}) == nil {
				s.clock.end(f)
				return
			}
			pause(s.life, longestPause)
		}
	}()
}

// after is when the last of the versions arrived that the group's follow on.
func (g *loadGroup) after() driver.Instant {
	last := driver.Instant(0)
	for _, p := range g.parts {
		if h := p.loadedDocument.head; h != nil {
			last = max(last, h.arrived())
		}
	}
	return last
}

// plan works out which head the added versions make, and what goes to prev.
func (p *loadPart) plan() {
	p.head, p.chain = p.loadedDocument.head, nil
	last := p.added[len(p.added)-1]
	p.made = &head{record: *last}
	before := p.added
	if p.head != nil {
		p.made.n, p.made.size = p.head.n, p.head.size
		before = append([]*record{&p.head.record}, p.added...)
	}
	for i, r := range before[:len(before)-1] {
		old := supersede(r, before[i+1].RecordedAt)
		p.chain = append(p.chain, old)
		p.made.size += int64(len(old.raw))
	}
	p.made.n += int64(len(p.chain))
	p.current = encodeVersion(&p.made.record)
	p.alone = p.made.size+int64(len(p.current)) > maxDocument-64<<10
}

// bounds are those of the history beside what will be current.
func (p *loadPart) bounds() Bounds { return p.c.bounds.beside(len(p.current)) }

// sent is how large what commit sends is, in bytes.
func (p *loadPart) sent() int64 {
	bytes := int64(len(p.current))
	for _, old := range p.chain {
		bytes += int64(len(old.raw))
	}
	return bytes
}

// commit makes the last of the added versions current and the others history,
// on condition that the head is still current; without one, that there is a placeholder.
func (p *loadPart) commit(f *flight) mongo.WriteModel {
	fields := bson.D{
		{Key: "n", Value: p.made.n},
		{Key: "size", Value: p.made.size},
		{Key: "current", Value: p.current},
	}
	condition := unmade(p.key)
	if p.head != nil {
		condition = append(guard(p.key, p.head.Number, p.head.RecordedAt), bson.E{Key: "n", Value: p.head.n})
	}
	change := bson.D{{Key: "$set", Value: fields}}
	if p.alone {
		change = bson.D{{Key: "$set", Value: append(fields, bson.E{Key: "prev", Value: raws(p.chain)})}}
	} else if len(p.chain) > 0 {
		change = append(change, bson.E{Key: "$push", Value: bson.D{{Key: "prev", Value: bson.D{{Key: "$each", Value: raws(p.chain)}}}}})
	}
	return mongo.NewUpdateOneModel().SetFilter(append(condition, f.inTime())).SetUpdate(change)
}

// trim drops from prev what is in the overflow, unless it is not as it was: then it is
// there twice until the next time.
func (m *toOverflow) trim() mongo.WriteModel {
	as := append(guard(m.key, m.made.Number, m.made.RecordedAt), bson.E{Key: "n", Value: m.made.n})
	kept := m.versions[m.n:]
	m.made.n, m.made.size = int64(len(kept)), sizeOf(kept)
	return mongo.NewUpdateOneModel().SetFilter(as).SetUpdate(bson.D{
		{Key: "$set", Value: bson.D{{Key: "n", Value: m.made.n}, {Key: "size", Value: m.made.size}}},
		{Key: "$push", Value: bson.D{{Key: "prev", Value: bson.D{{Key: "$each", Value: bson.A{}}, {Key: "$slice", Value: -m.made.n}}}}},
	})
}

// readPrev reads what is in prev of those documents of which some will move to
// the overflow, with one command, on condition that their heads are current.
func (g *loadGroup) readPrev(ctx context.Context) error {
	parts := make(map[string]*loadPart)
	var ids bson.A
	for _, p := range g.parts {
		b := p.bounds()
		over := p.alone || p.made.n > int64(b.Versions) || p.made.size > int64(b.Bytes)
		if p.head != nil && p.head.n > 0 && over {
			parts[p.key] = p
			ids = append(ids, encodeString(p.key))
		}
	}
	if len(ids) == 0 {
		return nil
	}
	ctx, cancel := g.c.store.step(ctx)
	defer cancel()
	cursor, err := g.c.main.Find(ctx, bson.D{{Key: "_id", Value: in(ids)}}, options.Find().
		SetProjection(bson.D{{Key: "current.v", Value: 1}, {Key: "current.at", Value: 1}, {Key: "prev", Value: 1}}).SetBatchSize(int32(len(ids))))
	return each(ctx, cursor, err, func(raw bson.Raw) error {
		key, err := g.c.key(raw.Lookup("_id"))
		if err != nil {
			return err
		}
		number, _ := raw.Lookup("current", "v").Int64OK()
		var at driver.Instant
		p := parts[key]
		if p == nil || number != p.head.Number || !readInstant(&at, raw.Lookup("current", "at")) || at != p.head.RecordedAt {
			return errChanged
		}
		p.prev, err = g.c.prevOf(key, raw)
		return err
	})
}

// toOverflow is versions of a part, of which the first n go to the overflow.
type toOverflow struct {
	*loadPart
	versions []superseded
	n        int
}

// overflow writes versions into runs, and says how many are there: more than there
// should be, where other runs are there. Each run of a document is written after the one
// before, those of many documents together, so that who commits meanwhile, and moves the
// same versions, goes on behind them: no version is in two runs.
func (g *loadGroup) overflow(ctx context.Context, list []*toOverflow) error {
	rest := make(map[*toOverflow][][]superseded)
	for _, m := range list {
		rest[m] = m.bounds().runs(m.versions[:m.n])
	}
	for len(rest) > 0 {
		write := &bulk{store: g.c.store, target: g.c.history}
		var round []*toOverflow
		for _, m := range list {
			if len(rest[m]) == 0 {
				delete(rest, m)
				continue
			}
			run := rest[m][0]
			rest[m] = rest[m][1:]
			round = append(round, m)
			if err := write.add(ctx, mongo.NewInsertOneModel().SetDocument(runOf(m.key, run)), sizeOf(run)); err != nil {
				return err
			}
		}
		if err := write.flush(ctx); err != nil {
			return err
		}
		for _, i := range write.there {
			delete(rest, round[i])
			if err := g.follow(ctx, round[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// follow is overflow for a document of which other runs are there.
func (g *loadGroup) follow(ctx context.Context, m *toOverflow) error {
	ctx, cancel := g.c.store.step(ctx)
	defer cancel()
	n, err := g.c.overflow(ctx, m.bounds(), m.key, m.versions, m.n)
	m.n = n
	return err
}

// maxBulkBytes is what one command of a load sends at most, unless one write is larger.
const maxBulkBytes = 512 << 10

// bulk gathers writes of different documents and sends them together, in
// commands of a bounded size. Inserts may find that there is something already.
type bulk struct {
	target *mongo.Collection
	store  *Store
	models []mongo.WriteModel
	bytes  int64
	sent   int   // before models
	found  int64 // how many were made, or found what they are for
	there  []int // which of all that was added found something that was there before
}

func (b *bulk) add(ctx context.Context, model mongo.WriteModel, bytes int64) error {
	if len(b.models) > 0 && b.bytes+bytes > maxBulkBytes {
		if err := b.flush(ctx); err != nil {
			return err
		}
	}
	b.models, b.bytes = append(b.models, model), b.bytes+bytes
	return nil
}

func (b *bulk) flush(ctx context.Context) error {
	if len(b.models) == 0 {
		return nil
	}
	ctx, cancel := b.store.step(ctx)
	defer cancel()
	result, err := b.target.BulkWrite(ctx, b.models, options.BulkWrite().SetOrdered(false))
	sent := len(b.models)
	b.models, b.bytes = nil, 0
	there, err := onlyDuplicates(err)
	for _, i := range there {
		b.there = append(b.there, b.sent+i)
	}
	b.sent += sent
	if result != nil {
		b.found += result.InsertedCount + result.MatchedCount
	}
	return err
}

// onlyDuplicates takes errors of writes that found their document made by
// another out of the error of a bulk, and returns which those are.
func onlyDuplicates(err error) (which []int, rest error) {
	bulk, ok := errors.AsType[mongo.BulkWriteException](err)
	if !ok || bulk.WriteConcernError != nil {
		return nil, err
	}
	for _, e := range bulk.WriteErrors {
		if e.Code != duplicateKey || ofForeignIndex(e.WriteError) {
			return nil, err
		}
		which = append(which, e.Index)
	}
	return which, nil
}
