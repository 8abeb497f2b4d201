package storage_test

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/record"
	"github.com/asof/asof/storage/sqlitestore"
)

// BenchmarkWhilePruning reads and updates documents in two embedded stores in turn, one of which
// prunes 1,000 versions a second meanwhile, and reports how many of them it does beside that,
// as a part of those that the other one does.
func BenchmarkWhilePruning(b *testing.B) {
	const documents, versions, turn = 4000, 40, 2 * time.Second
	open := func(keep *record.Keep) (*storage.Store, *storage.Collection[*project]) {
		types := keepTypes(keep)
		engine, err := sqlitestore.Open(b.Context(), filepath.Join(b.TempDir(), "asof.db"), sqlitestore.Options{Collections: storage.CollectionsOf(types), Clock: time.Now})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = engine.Close() })
		s, err := storage.New(engine, types)
		if err != nil {
			b.Fatal(err)
		}
		begin := driver.InstantOf(time.Now().Add(-1000 * time.Hour))
		for n := range versions {
			vs := make([]driver.Version, documents)
			for i := range vs {
				vs[i] = driver.Version{Collection: "software", Key: fmt.Sprint("k", i), RecordedAt: begin + driver.Instant(n*documents+i), Author: "ann", Data: fmt.Appendf(nil, `{"name":"%d","tags":[]}`, n)}
			}
			if _, err := s.Load(b.Context(), vs); err != nil {
				b.Fatal(err)
			}
		}
		return s, storage.NewCollection(s, types[0], func(d *storage.Document) *project { return &project{d} })
	}
	for name, do := range map[string]func(s *storage.Collection[*project], ctx context.Context, key string) error{
		"read": func(s *storage.Collection[*project], ctx context.Context, key string) error {
			return second(s.Get(ctx, key, nil, nil))
		},
		"update": func(s *storage.Collection[*project], ctx context.Context, key string) error {
			d, err := s.Get(ctx, key, nil, nil)
			if err != nil {
				return err
			}
			return second(s.Update(ctx, storage.UpdateInput{Key: key, ExpectedVersion: d.Version(), Patch: object{"stars": d.Version()}}))
		},
	} {
		b.Run(name, func(b *testing.B) {
			pruned, prunedDocs := open(&record.Keep{Versions: 10})
			_, plainDocs := open(nil)
			pruner := pruned.NewPruner(pruned.Types()[0], false)
			for begun := false; !begun; {
				step, err := pruner.Step(b.Context())
				if err != nil {
					b.Fatal(err)
				}
				begun = step.Versions > 0
			}
			var turnOfPlain sync.Mutex // no transaction prunes in it
			ended, end := context.WithCancel(b.Context())
			var pruning sync.WaitGroup
			pruning.Go(func() { // as a server does
				turnOfPlain.Lock()
				defer turnOfPlain.Unlock()
				began := time.Now()
				rest := func(d time.Duration) {
					turnOfPlain.Unlock()
					select {
					case <-ended.Done():
					case <-time.After(d):
					}
					turnOfPlain.Lock()
					began = time.Now()
				}
				pruner.Rest = func() { rest(9 * time.Since(began)) }
				for ended.Err() == nil {
					first := time.Now()
					step, err := pruner.Step(context.WithoutCancel(ended))
					if err != nil || !step.More {
						b.Errorf("pruned all: %v", err)
						return
					}
					rest(time.Duration(step.Versions)*time.Millisecond - time.Since(first))
				}
			})
			var done [2]int
			for b.Loop() {
				for i, docs := range []*storage.Collection[*project]{plainDocs, prunedDocs} {
					if i == 0 {
						turnOfPlain.Lock()
					}
					for start := time.Now(); time.Since(start) < turn; done[i]++ {
						op, err := docs.Store().Begin(b.Context())
						if err == nil {
							err = do(docs, op, fmt.Sprint("k", done[i]%documents))
						}
						if err != nil {
							b.Fatal(err)
						}
					}
					if i == 0 {
						turnOfPlain.Unlock()
					}
				}
			}
			end()
			pruning.Wait()
			b.ReportMetric(float64(done[1])/float64(done[0]), "of-the-rate")
		})
	}
}
