package mongostore

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/mongostore/mongotest"
)

// openOverflowing opens a store whose documents hold few versions, in a database
// of its own.
func openOverflowing(t *testing.T, b Bounds) *Store {
	t.Helper()
	return openRecorded(t, b, new(recorder))
}

// openRecorded is openOverflowing where it matters what the store sends.
func openRecorded(t *testing.T, b Bounds, sent *recorder) *Store {
	t.Helper()
	ctx := t.Context()
	client, err := mongo.Connect(options.Client().ApplyURI(mongotest.URI(t)).SetMonitor(&event.CommandMonitor{Started: sent.started, Succeeded: sent.succeeded}))
	if err != nil {
		t.Fatal(err)
	}
	now := time.UnixMicro(1_000_000).UTC()
	s, err := open(ctx, client, "asof_test_"+rand.Text(), Options{
		Clock: func() time.Time { return now }, timing: unhurried, Collections: []driver.Collection{{Name: "tools"}}, Bounds: map[string]Bounds{"tools": b},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.db.Drop(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// commitMore makes more versions of a document, each of so many bytes and more.
func commitMore(t *testing.T, s *Store, from, to int64, bytes int) {
	t.Helper()
	for n := from; n <= to; n++ {
		_, err := driver.CommitOne(t.Context(), s, &driver.Write{
			ID: rand.Text(), Collection: "tools", Key: "go", Expected: n - 1, Op: driver.OpUpdate, Data: fmt.Appendf(nil, `{"n":%d,"text":"%0*d"}`, n, bytes, 0),
		})
		if err != nil {
			t.Fatalf("version %d: %v", n, err)
		}
	}
}

// placed is where the versions of a document are, by number.
type placed struct {
	Runs [][]int64
	Prev []int64
}

func readPlaces(t *testing.T, s *Store) (places placed, n, size, bytes int64) {
	t.Helper()
	type numbered struct {
		Number int64 `bson:"v"`
	}
	numbers := func(list []numbered) (all []int64) {
		for _, v := range list {
			all = append(all, v.Number)
		}
		return all
	}
	c := s.collections["tools"]
	raw, err := c.main.FindOne(t.Context(), byKey("go")).Raw()
	if err != nil {
		t.Fatal(err)
	}
	var document struct {
		N    int64      `bson:"n"`
		Size int64      `bson:"size"`
		Prev []numbered `bson:"prev"`
	}
	if err := bson.Unmarshal(raw, &document); err != nil {
		t.Fatal(err)
	}
	prev, err := c.prevOf("go", raw)
	if err != nil {
		t.Fatal(err)
	}
	cursor, err := c.history.Find(t.Context(), bson.D{{Key: "k", Value: "go"}}, options.Find().SetSort(bson.D{{Key: "n", Value: 1}}))
	if err != nil {
		t.Fatal(err)
	}
	var runs []struct {
		Versions []numbered `bson:"vs"`
	}
	if err := cursor.All(t.Context(), &runs); err != nil {
		t.Fatal(err)
	}
	for _, run := range runs {
		places.Runs = append(places.Runs, numbers(run.Versions))
	}
	places.Prev = numbers(document.Prev)
	return places, document.N, document.Size, sizeOf(prev)
}

// numbersFrom lists the numbers from one to another.
func numbersFrom(from, to int64) (list []int64) {
	for n := from; n <= to; n++ {
		list = append(list, n)
	}
	return list
}

// All but a quarter of what a document may hold moves, so that it seldom does, and
// what the document says of its prev is right.
func TestOverflow(t *testing.T) {
	for _, test := range []struct {
		name     string
		bounds   Bounds
		versions int64
		bytes    int
		want     placed
	}{
		{"by number", Bounds{Versions: 8}, 17, 0, placed{[][]int64{numbersFrom(1, 7), numbersFrom(8, 14)}, numbersFrom(15, 16)}},
		{"at the bound", Bounds{Versions: 8}, 9, 0, placed{nil, numbersFrom(1, 8)}},
		{"one", Bounds{Versions: 1}, 4, 0, placed{[][]int64{{1}, {2}}, []int64{3}}},
		{"by size", Bounds{Bytes: 10_000}, 10, 1000, placed{[][]int64{numbersFrom(1, 4), numbersFrom(5, 8)}, []int64{9}}},
		{"larger than the bound", Bounds{Bytes: 500}, 11, 1000, placed{[][]int64{numbersFrom(1, 4), numbersFrom(5, 8)}, []int64{9, 10}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := openOverflowing(t, test.bounds)
			commitMore(t, s, 1, test.versions, test.bytes)
			got, n, size, bytes := readPlaces(t, s)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("where the versions are (-want +got):\n%s", diff)
			}
			if n != int64(len(got.Prev)) || size != bytes {
				t.Errorf("the document says that prev has %d versions and %d bytes; it has %d and %d", n, size, len(got.Prev), bytes)
			}
		})
	}
}

// A server with larger bounds was lost between writing a run and dropping its
// versions. No version is in two runs afterwards.
func TestRunIsThere(t *testing.T) {
	s := openOverflowing(t, Bounds{Versions: 8})
	ctx, c := t.Context(), s.collections["tools"]
	commitMore(t, s, 1, 9, 0)
	_, prev := readPrev(ctx, t, c)
	wide := s.newCollection("tools", Bounds{Versions: 64})
	if n, err := wide.overflow(ctx, wide.bounds, "go", prev, len(prev)); err != nil || n != 8 {
		t.Fatal(n, err)
	}
	commitMore(t, s, 10, 24, 0)
	got, _, _, _ := readPlaces(t, s)
	all := slices.Concat(append(slices.Clone(got.Runs), got.Prev)...)
	if diff := cmp.Diff(numbersFrom(1, 23), all); diff != "" {
		t.Errorf("the versions in runs and prev, %v (-want +got):\n%s", got, diff)
	}
}

// What a server knows of a document can be out of date in the number of versions
// in prev only, after a load that another server has ended. The update finds out.
func TestStaleNumberInPrev(t *testing.T) {
	s := openOverflowing(t, Bounds{Versions: 8})
	c := s.collections["tools"]
	commitMore(t, s, 1, 7, 0)
	h := c.cached("go", 7)
	if h == nil {
		t.Fatal("the head that was written last is not known")
	}
	stale := *h
	stale.n, stale.size = h.n+1, 10*h.size
	c.remember("go", &stale)
	commitMore(t, s, 8, 8, 0)
	got, n, size, bytes := readPlaces(t, s)
	if diff := cmp.Diff(placed{nil, numbersFrom(1, 7)}, got); diff != "" {
		t.Errorf("where the versions are (-want +got):\n%s", diff)
	}
	if n != int64(len(got.Prev)) || size != bytes {
		t.Errorf("the document says that prev has %d versions and %d bytes; it has %d and %d", n, size, len(got.Prev), bytes)
	}
}

// An update takes one command also where a few versions are larger than what a document
// holds of others: only now and then does history move.
func TestUpdatesOfLargerDocuments(t *testing.T) {
	const before, updates = 12, 24
	for _, bytes := range []int{2_000, 8_000, 20_000, 90_000} {
		var sent recorder
		s := openRecorded(t, Bounds{}, &sent)
		commitMore(t, s, 1, before, bytes)
		sent.take()
		commitMore(t, s, before+1, before+updates, bytes)
		if n := len(sent.take()); n > updates+updates/2 {
			t.Errorf("%d updates of %d bytes took %d commands", updates, bytes, n)
		}
	}
}

// readPrev reads the head and the versions in prev of the document "go".
func readPrev(ctx context.Context, t *testing.T, c *collection) (*head, []superseded) {
	t.Helper()
	h, err := c.readHead(ctx, "go")
	if err != nil {
		t.Fatal(err)
	}
	prev, still, err := c.readPrev(ctx, h)
	if err != nil || !still {
		t.Fatal(still, err)
	}
	return h, prev
}
