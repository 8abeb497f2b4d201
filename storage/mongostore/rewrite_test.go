package mongostore

import (
	"bytes"
	"crypto/rand"
	"fmt"
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
