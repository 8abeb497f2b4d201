package capture_test

import (
	"fmt"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/asof/asof/internal/capture"
	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/mongostore/mongotest"
)

// BenchmarkCapture is how many changes in a second are captured that are there already, updates of documents of
// 600 bytes; bare: a program that reads the change stream, and inserts each event into a collection.
func BenchmarkCapture(b *testing.B) {
	written := func(b *testing.B) *mongotest.Streams {
		s := mongotest.NewStreams(b)
		for i := range b.N {
			d := bson.D{{Key: "state", Value: fmt.Sprint("s", i)}, {Key: "n", Value: int32(i)}, {Key: "text", Value: strings.Repeat("x", 600)}}
			s.Put(int32(i%500), d, true)
		}
		return s
	}
	rate := func(b *testing.B) { b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "changes/s") }
	b.Run("bare", func(b *testing.B) {
		server, s := mongotest.NewServer(b), written(b)
		_, name := server.Database(b)
		into := server.Client.Database(name).Collection("events")
		source, err := mongo.Connect(options.Client().ApplyURI(s.URI()))
		if err != nil {
			b.Fatal(err)
		}
		defer func() { _ = source.Disconnect(b.Context()) }()
		b.ResetTimer()
		stream, err := source.Database("shop").Collection("orders").Watch(b.Context(), mongo.Pipeline{}, options.ChangeStream().SetStartAtOperationTime(&bson.Timestamp{T: 1}))
		if err != nil {
			b.Fatal(err)
		}
		for range b.N {
			if !stream.Next(b.Context()) {
				b.Fatal(stream.Err())
			}
			if _, err := into.InsertOne(b.Context(), stream.Current); err != nil {
				b.Fatal(err)
			}
		}
		b.StopTimer()
		rate(b)
	})
	for name, open := range map[string]func(testing.TB) *storage.Store{"sqlite": onSQLite, "mongodb": onMongo} {
		b.Run(name, func(b *testing.B) {
			store := open(b)
			empty := mongotest.NewStreams(b)
			mustFollow(b, store, empty, capture.Options{}, "")
			s := written(b)
			c, err := begin(b, store, s, capture.Options{}, "")
			if err != nil {
				b.Fatal(err)
			}
			b.ResetTimer()
			for total := int64(0); total < int64(b.N); {
				added, idle, err := c.Step(b.Context())
				if total += added; err != nil || idle {
					b.Fatal(total, idle, err)
				}
			}
			b.StopTimer()
			rate(b)
		})
	}
}
