package mongostore

import (
	"context"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/asof/asof/storage/driver"
)

// moving is versions of a part, of which the first n go to the overflow.
type moving struct {
	*loadPart
	versions []superseded
	n        int
}

// overflow writes versions into runs, and says how many are there: more than there
// should be, where other runs were left behind. Those of a document follow on each
// other from the first of its versions on, so that only where a run begins with that
// it is looked at which there are, before more are written. Where others may write
// runs meanwhile, it is looked before each.
func (g *loadGroup) overflow(ctx context.Context, bind bindFunc, list []*moving) error {
	var first, rest []movingRun
	for _, m := range list {
		if g.beside {
			if err := g.follow(ctx, bind, m); err != nil {
				return err
			}
			continue
		}
		for i, run := range m.bounds().runs(m.versions[:m.n]) {
			if r := (movingRun{m, run}); i == 0 {
				first = append(first, r)
			} else {
				rest = append(rest, r)
			}
		}
	}
	there, err := g.insertRuns(ctx, bind, first)
	if err != nil {
		return err
	}
	begun, others := make(map[*moving]bool), make(map[*moving]bool)
	for _, r := range there {
		begun[r.moving] = true
	}
	look := there
	for _, r := range rest {
		if begun[r.moving] {
			look = append(look, r)
		}
	}
	ends, err := g.readEnds(ctx, look)
	if err != nil {
		return err
	}
	for i, r := range look {
		if end, is := ends[r.id()]; end != r.end() && (is || i < len(there)) {
			others[r.moving] = true
		}
	}
	rest = slices.DeleteFunc(rest, func(r movingRun) bool {
		_, is := ends[r.id()]
		return is || others[r.moving]
	})
	if there, err = g.insertRuns(ctx, bind, rest); err != nil {
		return err
	}
	for _, r := range there { // of an attempt without an answer, which came after all
		others[r.moving] = true
	}
	for _, m := range list {
		if others[m] {
			if err := g.follow(ctx, bind, m); err != nil {
				return err
			}
		}
	}
	return nil
}

// movingRun is a run of versions of a part.
type movingRun struct {
	*moving
	run []superseded
}

// runKey says which run it is, and runEnd where it ends.
type (
	runKey struct {
		Key   string `bson:"k"`
		First int64  `bson:"n"`
	}
	runEnd struct {
		Last int64          `bson:"last"`
		To   driver.Instant `bson:"to"`
	}
)

func (r movingRun) id() runKey { return runKey{encodeString(r.key), r.run[0].number} }

func (r movingRun) end() runEnd {
	last := r.run[len(r.run)-1]
	return runEnd{last.number, last.to}
}

// insertRuns writes runs, and returns those in whose place there is one already.
func (g *loadGroup) insertRuns(ctx context.Context, bind bindFunc, runs []movingRun) (there []movingRun, err error) {
	write := &bulk{bind: bind, size: &g.c.store.bulkSize, target: g.c.history, repeatable: true}
	for _, r := range runs {
		if err := write.add(ctx, mongo.NewInsertOneModel().SetDocument(runOf(r.key, r.run)), sizeOf(r.run)); err != nil {
			return nil, err
		}
	}
	err = write.flush(ctx)
	for _, i := range write.there {
		there = append(there, runs[i])
	}
	return there, err
}

// readEnds reads where runs end that are there.
func (g *loadGroup) readEnds(ctx context.Context, runs []movingRun) (map[runKey]runEnd, error) {
	ends := make(map[runKey]runEnd)
	for part := range slices.Chunk(runs, maxKeys) {
		ids := make(bson.A, len(part))
		for i, r := range part {
			ids[i] = runID(r.key, r.run[0].number)
		}
		if err := g.readSomeEnds(ctx, ids, ends); err != nil {
			return nil, err
		}
	}
	return ends, nil
}

func (g *loadGroup) readSomeEnds(ctx context.Context, ids bson.A, ends map[runKey]runEnd) error {
	ctx, cancel := g.c.store.step(ctx)
	defer cancel()
	cursor, err := g.c.history.Find(ctx, bson.D{{Key: "_id", Value: in(ids)}}, options.Find().
		SetProjection(bson.D{{Key: "last", Value: 1}, {Key: "to", Value: 1}}).SetBatchSize(int32(len(ids))))
	return each(ctx, cursor, err, func(raw bson.Raw) error {
		var run struct {
			ID  runKey `bson:"_id"`
			End runEnd `bson:",inline"`
		}
		err := bson.Unmarshal(raw, &run)
		ends[run.ID] = run.End
		return err
	})
}

// follow is overflow for a document of which other runs may be there.
func (g *loadGroup) follow(ctx context.Context, bind bindFunc, m *moving) error {
	ctx, cancel, err := bind(ctx, g.c.store.bulkSize.lenient.Load() > 0 || sizeOf(m.versions) > largeWrite)
	if err != nil {
		return err
	}
	defer cancel()
	m.n, err = g.c.overflow(ctx, m.bounds(), m.key, m.versions, m.n, false)
	return err
}
