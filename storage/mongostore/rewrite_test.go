package mongostore

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/asof/asof/storage/driver"
)

// Of what was rewritten, nothing is left in any document of the database, wherever the versions were.
func TestNothingIsLeftOfWhatIsRewritten(t *testing.T) {
	ctx, s := t.Context(), openOverflowing(t, Bounds{Versions: 20})
	var vs []driver.Version
	put := func(text string) {
		n := int64(len(vs))
		_, err := driver.CommitOne(ctx, s, &driver.Write{
			ID: rand.Text(), Collection: "tools", Key: "go", Expected: n, Op: driver.OpUpdate, Message: text, Data: fmt.Appendf(nil, `{"n":%d,"text":%q,"list":[{"of":%q}]}`, n, text, text),
		})
		if err != nil {
			t.Fatal(err)
		}
		vs = append(vs, driver.Version{Number: n + 1, Op: driver.OpUpdate, Data: []byte(`{"n":0}`)})
	}
	for range 50 {
		put("secret")
	}
	put("fine")
	left := func() (documents int) {
		names, err := s.db.ListCollectionNames(ctx, bson.D{})
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			cursor, err := s.db.Collection(name).Find(ctx, bson.D{})
			if err != nil {
				t.Fatal(err)
			}
			for cursor.Next(ctx) {
				if bytes.Contains(cursor.Current, []byte("secret")) {
					documents++
				}
			}
			if err := cursor.Err(); err != nil {
				t.Fatal(err)
			}
		}
		return documents
	}
	if n := left(); n < 3 {
		t.Errorf("%d documents hold it before", n)
	}
	if err := s.Rewrite(ctx, "tools", "go", vs[:50]); err != nil {
		t.Fatal(err)
	}
	if n := left(); n != 0 {
		t.Errorf("%d documents still hold it", n)
	}
}

// A document that says of its prev what is not so is put right by a rewrite, which ends.
func TestRewriteOfAWrongNumber(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), hangs/10)
	defer cancel()
	s := openOverflowing(t, Bounds{})
	if _, err := loadAgain(ctx, s, imported("go", 0, 4)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.collections["tools"].main.UpdateOne(ctx, byKey("go"), bson.D{{Key: "$set", Value: bson.D{{Key: "n", Value: int64(7)}}}}); err != nil {
		t.Fatal(err)
	}
	if err := s.Rewrite(ctx, "tools", "go", []driver.Version{{Number: 1, Op: driver.OpImport, Data: []byte(`{}`)}}); err != nil {
		t.Error(err)
	}
	checkAll(t, s)
}

// Who rewrites a history part by part, as an erasure does, reads each document as often, however long it is.
func TestRewritingIsLinear(t *testing.T) {
	const short, part = 200, 50
	work := func(versions int64) (commands, documents int64) {
		var sent recorder
		ctx, s := t.Context(), openRecorded(t, Bounds{Versions: 10}, &sent)
		if _, err := loadAgain(ctx, s, imported("go", 0, versions)); err != nil {
			t.Fatal(err)
		}
		sent.take()
		sent.returned.Store(0)
		for from := int64(1); from < versions; from += part {
			var vs []driver.Version
			for v, err := range s.Log(ctx, &driver.LogQuery{Collections: []string{"tools"}, Keys: []string{"go"}, FromNumber: from, ToNumber: versions, Limit: part}) {
				if err != nil {
					t.Fatal(err)
				}
				vs = append(vs, driver.Version{Number: v.Number, Op: v.Op, Data: []byte(`{}`)})
			}
			if err := s.Rewrite(ctx, "tools", "go", vs); err != nil {
				t.Fatal(err)
			}
		}
		documents = sent.returned.Load()
		for _, command := range sent.take() {
			commands++
			if filter, ok := memberOf(command, "filter").(bson.D); ok && command[0].Value == "tools.history" {
				documents += inVain(t, s.collections["tools"], filter)
			}
		}
		checkAll(t, s)
		return commands, documents
	}
	commands, documents := work(short)
	moreCommands, moreDocuments := work(4 * short)
	t.Logf("%d versions: %d commands read %d documents; %d: %d, %d", short, commands, documents, 4*short, moreCommands, moreDocuments)
	if moreCommands > 5*commands || moreDocuments > 5*documents {
		t.Errorf("four times the versions: %d commands instead of %d read %d documents instead of %d", moreCommands, commands, moreDocuments, documents)
	}
}

// inVain is how many runs a server reads for a filter and does not return: an index says too little about them. It takes
// the index that says most.
func inVain(t *testing.T, c *collection, filter bson.D) int64 {
	t.Helper()
	count := func(filter bson.D) int64 {
		n, err := c.history.CountDocuments(t.Context(), filter)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	least := int64(math.MaxInt64)
	_, indexes := c.indexes(nil)
	for _, index := range keysOf(t, indexes) {
		fields := strings.Fields(index)
		var bounds func(bson.D) bson.A
		bounds = func(filter bson.D) (all bson.A) {
			for _, e := range filter {
				if list, ok := e.Value.(bson.A); ok && e.Key == "$and" {
					for _, condition := range list {
						all = append(all, bounds(condition.(bson.D))...)
					}
				} else if slices.Contains(fields, e.Key) {
					all = append(all, bson.D{e})
				}
			}
			return all
		}
		least = min(least, count(bson.D{{Key: "$and", Value: append(bounds(filter), bson.D{})}}))
	}
	return least - count(filter)
}
