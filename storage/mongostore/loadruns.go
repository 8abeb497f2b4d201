package mongostore

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/mongo"
)

// moving is versions of a part, of which the first n go to the overflow.
type moving struct {
	*loadPart
	versions []superseded
	n        int
}

// overflow writes versions into runs, and says how many are there: more than there
// should be, where other runs are there. Each run of a document is written after the one
// before, those of many documents together, so that who commits meanwhile, and moves the
// same versions, goes on behind them: no version is in two runs.
func (g *loadGroup) overflow(ctx context.Context, list []*moving) error {
	rest := make(map[*moving][][]superseded)
	for _, m := range list {
		rest[m] = m.bounds().runs(m.versions[:m.n])
	}
	for len(rest) > 0 {
		write := &bulk{store: g.c.store, target: g.c.history}
		var round []*moving
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
func (g *loadGroup) follow(ctx context.Context, m *moving) error {
	ctx, cancel := g.c.store.step(ctx)
	defer cancel()
	n, err := g.c.overflow(ctx, m.bounds(), m.key, m.versions, m.n, false)
	m.n = n
	return err
}
