package storage_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/sqlitestore"
)

// BenchmarkArchive is 64 writers at full speed on an embedded store, alone and with an archive that follows
// in the same process: how many versions they write in a second, how far the archive is behind when half
// is written and at the end, in milliseconds of commits, and how long it takes for the rest.
func BenchmarkArchive(b *testing.B) {
	for _, followed := range []bool{false, true} {
		b.Run(map[bool]string{false: "alone", true: "followed"}[followed], func(b *testing.B) {
			from, to := newBenchStore(b, fixtureTypes(), sqlitestore.SyncNormal), newBenchStore(b, fixtureTypes(), sqlitestore.SyncNormal)
			ctx, cancel := context.WithCancel(b.Context())
			defer cancel()
			a, err := storage.NewArchive(ctx, from, to)
			if err != nil {
				b.Fatal(err)
			}
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				for followed && ctx.Err() == nil {
					if _, err := a.Follow(ctx); err != nil && ctx.Err() == nil {
						b.Error(err)
					}
					select { // it pauses as the program does
					case <-ctx.Done():
					case <-time.After(100 * time.Millisecond):
					}
				}
			}()
			behind := func() float64 {
				now, err := from.Engine().Now(b.Context())
				if err != nil {
					b.Fatal(err)
				}
				return float64(now-a.Reached()) / 1000
			}
			var keys, done atomic.Int64
			var half atomic.Value
			data := []byte(benchDocument(1, 1))
			b.SetParallelism(64)
			b.ResetTimer()
			b.RunParallel(func(p *testing.PB) {
				key := fmt.Sprint(keys.Add(1))
				for n := int64(0); p.Next(); n++ {
					w := driver.Write{ID: fmt.Sprint(key, ".", n), Collection: "software", Key: key, Expected: n, Op: driver.OpUpdate, Author: "ann", Data: data}
					if _, err := driver.CommitOne(b.Context(), from.Engine(), &w); err != nil {
						b.Error(err)
						return
					}
					if followed && done.Add(1) == int64(b.N/2) {
						half.Store(behind())
					}
				}
			})
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "versions/s")
			cancel()
			<-ended
			if !followed {
				return
			}
			if at, ok := half.Load().(float64); ok {
				b.ReportMetric(at, "ms-behind-at-half")
			}
			b.ReportMetric(behind(), "ms-behind")
			began := time.Now()
			if _, err := a.Follow(b.Context()); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(time.Since(began).Microseconds())/1000, "ms-for-the-rest")
			if differences, err := a.Verify(b.Context()); err != nil || len(differences) > 0 {
				b.Error(differences, err)
			}
		})
	}
}
