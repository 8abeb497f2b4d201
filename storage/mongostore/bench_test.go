package mongostore

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/asof/asof/storage/driver"
)

// newBench opens a store in a database of its own, with two documents: one of
// 10 versions and one of 10,000.
func newBench(b *testing.B) *Store {
	b.Helper()
	uri := os.Getenv("ASOF_TEST_MONGODB_URI")
	if uri == "" {
		b.Skip("needs a MongoDB server: set ASOF_TEST_MONGODB_URI, such as mongodb://127.0.0.1:27017")
	}
	ctx := context.WithoutCancel(b.Context())
	client, err := mongo.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		b.Fatal(err)
	}
	s, err := open(ctx, client, "asof_bench_"+rand.Text(), Options{Collections: []driver.Collection{{Name: "tools"}}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := s.db.Drop(ctx); err != nil {
			b.Error(err)
		}
		if err := s.Close(); err != nil {
			b.Error(err)
		}
	})
	for key, n := range map[string]int{"short": 10, "long": 10_000} {
		versions := make([]driver.Version, n)
		for i := range versions {
			versions[i] = driver.Version{
				Collection: "tools", Key: key, RecordedAt: driver.Instant(i + 1), Op: driver.OpImport, Author: "ada", Data: benchData(i),
			}
		}
		if _, err := s.Load(ctx, versions); err != nil {
			b.Fatal(err)
		}
	}
	return s
}

// benchPrev is how many versions of these are in prev on average.
const benchPrev = 12

func benchData(i int) []byte {
	return fmt.Appendf(nil, `{"name":"Tool","description":"%0400d","stars":%d,"tags":["a","b"],"release":{"tag":"1.0","published_at":"2024-01-01"}}`, 0, i)
}

// A point read, beside a bare FindOne with the same projection. How the two
// compare is what counts; run them with -count 10 or so, in turn.
func BenchmarkGet(b *testing.B) {
	s := newBench(b)
	ctx := b.Context()
	b.Run("bare FindOne", func(b *testing.B) {
		b.ReportAllocs()
		c := s.collections["tools"]
		for b.Loop() {
			if _, err := c.main.FindOne(ctx, byKey("short"), options.FindOne().SetProjection(headFields())).Raw(); err != nil {
				b.Fatal(err)
			}
		}
	})
	for _, r := range []struct {
		name string
		ref  driver.Ref
	}{
		{"current", driver.Ref{Key: "short", At: driver.Forever}},
		{"current of 10,000 versions", driver.Ref{Key: "long", At: driver.Forever}},
		{"in prev", driver.Ref{Key: "short", At: 5}},
		{"in the overflow", driver.Ref{Key: "long", At: 5000}},
	} {
		b.Run(r.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if found, err := s.Get(ctx, "tools", []driver.Ref{r.ref}, nil); err != nil || found[0] == nil {
					b.Fatal(found, err)
				}
			}
		})
	}
}

// An update, beside a bare guarded update that writes the same, without history
// that moves on: it forgets it.
func BenchmarkCommit(b *testing.B) {
	s := newBench(b)
	ctx := b.Context()
	b.Run("bare guarded update", func(b *testing.B) {
		b.ReportAllocs()
		c := s.collections["tools"]
		r := record{id: rand.Text(), Version: driver.Version{Number: 1, RecordedAt: 1, SupersededAt: driver.Forever, Op: driver.OpUpdate, Author: "ada", Data: benchData(0)}}
		if _, err := c.main.InsertOne(ctx, bson.D{{Key: "_id", Value: "bare"}, {Key: "current", Value: encodeVersion(&r)}}); err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			next := r
			next.Number, next.RecordedAt = r.Number+1, r.RecordedAt+1
			result, err := c.main.UpdateOne(ctx, guard("bare", r.Number, r.RecordedAt), bson.D{
				{Key: "$set", Value: bson.D{{Key: "current", Value: encodeVersion(&next)}, {Key: "n", Value: int64(0)}, {Key: "size", Value: int64(0)}}},
				{Key: "$push", Value: bson.D{{Key: "prev", Value: bson.D{
					{Key: "$each", Value: bson.A{supersede(&r, next.RecordedAt).raw}}, {Key: "$slice", Value: -benchPrev},
				}}}},
			})
			if err != nil || result.MatchedCount != 1 {
				b.Fatal(result, err)
			}
			r = next
		}
	})
	for _, key := range []string{"short", "long"} {
		b.Run(key, func(b *testing.B) {
			b.ReportAllocs()
			found, err := s.Get(ctx, "tools", []driver.Ref{{Key: key, At: driver.Forever}}, nil)
			if err != nil {
				b.Fatal(err)
			}
			v := found[0]
			for b.Loop() {
				v, err = driver.CommitOne(ctx, s, &driver.Write{
					ID: rand.Text(), Collection: "tools", Key: key, Expected: v.Number, Op: driver.OpUpdate, Author: "ada", Data: v.Data,
				})
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// Rewriting a whole history part by part, as an erasure does.
//
//	go test -run - -bench Rewrite -benchtime 3x ./storage/mongostore
func BenchmarkRewrite(b *testing.B) {
	const part = 128
	s := newBench(b)
	ctx := b.Context()
	for _, n := range []int64{5_000, 20_000, 40_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			key := fmt.Sprint(n, " versions")
			for from := range n / 1000 {
				vs := make([]driver.Version, 1000)
				for i := range vs {
					number := 1000*int(from) + i + 1
					vs[i] = driver.Version{Collection: "tools", Key: key, RecordedAt: driver.Instant(number), Op: driver.OpImport, Author: "ada", Data: benchData(number)}
				}
				if _, err := s.Load(ctx, vs); err != nil {
					b.Fatal(err)
				}
			}
			for b.Loop() {
				for from := int64(1); from < n; from += part {
					var vs []driver.Version
					q := &driver.LogQuery{Collections: []string{"tools"}, Keys: []string{key}, FromNumber: from, ToNumber: n, Limit: part}
					for v, err := range s.Log(ctx, q) {
						if err != nil {
							b.Fatal(err)
						}
						vs = append(vs, driver.Version{Number: v.Number, Op: v.Op, Author: v.Author, Data: v.Data})
					}
					if err := s.Rewrite(ctx, "tools", key, vs); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}
