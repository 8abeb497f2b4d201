package mongostore

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/asof/asof/storage/mongostore/mongotest"
)

// A single bit that is another one, in any member of a version that reads depend on, is found:
// of the current version, of one beside it and of one in a run.
func TestFlippedBitsAreFound(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	uri, _ := mongotest.NewServer(t).Database(t)
	s := newServerOf(t, uri, Options{Bounds: map[string]Bounds{"things": {Versions: 4}}})
	c := s.collections["things"]
	for n := range 9 {
		w := write("a", fmt.Sprint(n), int64(n))
		w.Author, w.Message, w.Group, w.Changed, w.Data = "ann", "first", "g", []string{"n"}, []byte(`{"n":"text"}`)
		if _, err := commitAgain(ctx, s, w); err != nil {
			t.Fatal(err)
		}
	}
	random := rand.New(rand.NewPCG(1, 3))
	flipped := func(v bson.RawValue) bson.RawValue {
		v.Value = bytes.Clone(v.Value)
		from, to := 0, len(v.Value)
		switch v.Type { //nolint:exhaustive // the others are no members of versions
		case bson.TypeString:
			from, to = 4, to-1 // between the length and the end
		case bson.TypeBinary:
			from = 5
		case bson.TypeArray: // of a text: its last letter
			from, to = to-3, to-2
		case bson.TypeEmbeddedDocument: // that ends with one with a text
			from, to = to-4, to-3
		case bson.TypeBoolean:
			v.Value[0] ^= 1
			return v
		}
		v.Value[from+random.IntN(to-from)] ^= 1 << random.IntN(7)
		return v
	}
	flips := 0
	for _, place := range []struct {
		source *mongo.Collection
		list   string
	}{{c.main, "current"}, {c.main, "prev.0"}, {c.history, "vs.0"}} {
		raw, err := place.source.FindOne(ctx, bson.D{}).Raw()
		if err != nil {
			t.Fatal(err)
		}
		version, _ := raw.Lookup(strings.Split(place.list, ".")...).DocumentOK()
		elements, err := version.Elements()
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range elements {
			if e.Key() == "id" { // of the write, by which a repeated one is known
				continue
			}
			set := func(v bson.RawValue) {
				t.Helper()
				if _, err := place.source.UpdateOne(ctx, bson.D{{Key: "_id", Value: raw.Lookup("_id")}}, bson.D{{Key: "$set", Value: bson.D{{Key: place.list + "." + e.Key(), Value: v}}}}); err != nil {
					t.Fatal(err)
				}
			}
			set(flipped(e.Value()))
			if problems := checkSays(ctx, t, s); len(problems) == 0 {
				t.Errorf("nothing is wrong after a bit of %s.%s was changed", place.list, e.Key())
			}
			set(e.Value())
			flips++
		}
	}
	if problems := checkSays(ctx, t, s); len(problems) > 0 || flips < 30 {
		t.Errorf("after %d flips that were undone: %q", flips, problems)
	}
}
