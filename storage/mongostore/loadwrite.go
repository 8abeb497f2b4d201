package mongostore

import (
	"context"
	"encoding/binary"
	"errors"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/asof/asof/storage/driver"
)

// Bounds of what a load writes at once: documents, and bytes of their history.
const (
	maxLoadDocuments = 1000
	maxLoadBytes     = 8 << 20
)

// write gives the documents their added versions, a part of each of many documents at once.
func (l *loading) write(ctx context.Context) error {
	for more := true; more; {
		more = false
		groups := make(map[*collection]*loadGroup)
		for _, d := range l.order {
			if len(d.added) == 0 {
				continue
			}
			more = true
			p, g := d.part(), groups[d.c]
			if g != nil && (len(g.parts) == maxLoadDocuments || g.bytes+p.bytes() > maxLoadBytes) {
				if err := g.write(ctx); err != nil {
					return err
				}
				g = nil
			}
			if g == nil {
				g = &loadGroup{c: d.c}
				groups[d.c] = g
			}
			g.parts, g.bytes = append(g.parts, p), g.bytes+p.bytes()
		}
		for _, g := range groups {
			if err := g.write(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// loadPart is the next versions of a document, as many as have room beside each other in
// prev, so that a load of many is like as many commits: what was in prev moves to the overflow
// before, unless there is room for both.
type loadPart struct {
	*loadedDocument
	n     int          // how many versions are added
	chain []superseded // what they add to prev
	made  *head        // that they make
	// current is made, encoded.
	current bson.Raw
	moves   bool         // what is in prev
	prev    []superseded // what that is
}

// part returns the next part of what a document still lacks.
func (d *loadedDocument) part() *loadPart {
	p := &loadPart{loadedDocument: d}
	var before *record
	if d.head != nil {
		before = &d.head.record
	}
	size := int64(0)
	for i, r := range d.added {
		if before != nil {
			old := supersede(before, r.RecordedAt)
			b := d.c.bounds.beside(len(old.raw))
			if i > 0 && (len(p.chain) == b.Versions || size+int64(len(old.raw)) > int64(b.Bytes)) {
				break
			}
			p.chain, size = append(p.chain, old), size+int64(len(old.raw))
		}
		before, p.n = r, i+1
		r.loaded = driver.Forever // until arrive
	}
	p.current = encodeVersion(before)
	p.made = &head{record: *before, n: int64(len(p.chain)), size: size}
	if h := d.head; h != nil && h.n > 0 {
		b := d.c.bounds.beside(len(p.current))
		if p.moves = h.n+p.made.n > int64(b.Versions) || h.size+size > int64(b.Bytes); !p.moves {
			p.made.n, p.made.size = h.n+p.made.n, h.size+size
		}
	}
	return p
}

// bytes is about what is read and written for the part.
func (p *loadPart) bytes() int64 {
	bytes := sizeOf(p.chain) + int64(len(p.current))
	if p.moves {
		bytes += p.head.size
	}
	return bytes
}

// arrive makes an instant the one at which the versions arrive.
func (p *loadPart) arrive(at driver.Instant) {
	p.made.loaded = at
	stored := []bson.Raw{p.current}
	for _, old := range p.chain[len(p.chain)-(p.n-1):] {
		stored = append(stored, old.raw)
	}
	for _, raw := range stored {
		binary.LittleEndian.PutUint64(raw.Lookup(loadedField).Value, uint64(at))
	}
}

// loadGroup is parts of different documents of one collection that are written together.
type loadGroup struct {
	c     *collection
	parts []*loadPart
	bytes int64
}

func (g *loadGroup) write(ctx context.Context) error {
	err := g.placeholders(ctx)
	if err == nil {
		err = g.readPrev(ctx)
	}
	if err == nil {
		err = g.overflow(ctx)
	}
	if err != nil {
		return err
	}
	// What the group adds arrives at an instant, as a commit does, see Loaded.
	clock := g.c.store.clock
	f, err := clock.begin(ctx, g.after(), clock.lifeOf(int(g.bytes), 0))
	if err != nil {
		return err
	}
	if err = g.noteLoaded(ctx, f); err == nil {
		err = g.commit(ctx, f)
	}
	if err != nil && uncertain(err) && !errors.Is(err, errChanged) {
		g.resolveUncertain(f)
	} else {
		clock.end(f)
	}
	return err
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
		if p.head == nil {
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
	commit := &bulk{store: g.c.store, target: g.c.main}
	for _, p := range g.parts {
		g.c.forget(p.key)
		p.arrive(f.at)
		if err := commit.add(ctx, p.commit(f), sizeOf(p.chain)+int64(len(p.current))); err != nil {
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
		p.loadedDocument.head, p.added = p.made, p.added[p.n:]
	}
	return nil
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
		if h := p.head; h != nil {
			last = max(last, h.arrived())
		}
	}
	return last
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
	if p.moves {
		change = bson.D{{Key: "$set", Value: append(fields, bson.E{Key: "prev", Value: raws(p.chain)})}}
	} else if len(p.chain) > 0 {
		change = append(change, bson.E{Key: "$push", Value: bson.D{{Key: "prev", Value: bson.D{{Key: "$each", Value: raws(p.chain)}}}}})
	}
	return mongo.NewUpdateOneModel().SetFilter(append(condition, f.inTime())).SetUpdate(change)
}

// readPrev reads what is in prev of those documents of which it moves to the overflow,
// with one command, on condition that their heads are current.
func (g *loadGroup) readPrev(ctx context.Context) error {
	parts := make(map[string]*loadPart)
	var ids bson.A
	for _, p := range g.parts {
		if p.moves {
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

// overflow writes what is in prev, and moves, into a run for each document, many in one command.
// Who commits meanwhile, and moves the same versions, goes on behind that run; so does this, where
// other runs of a document are there already: no version is in two.
func (g *loadGroup) overflow(ctx context.Context) error {
	write := &bulk{store: g.c.store, target: g.c.history}
	var moving []*loadPart
	for _, p := range g.parts {
		if len(p.prev) > 0 {
			moving = append(moving, p)
			if err := write.add(ctx, mongo.NewInsertOneModel().SetDocument(runOf(p.key, p.prev)), sizeOf(p.prev)); err != nil {
				return err
			}
		}
	}
	if err := write.flush(ctx); err != nil {
		return err
	}
	for _, i := range write.there {
		p := moving[i]
		step, cancel := g.c.store.step(ctx)
		_, err := g.c.overflow(step, g.c.bounds.beside(len(p.current)), p.key, p.prev, len(p.prev))
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
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
