package mongostore

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/mongostore/mongotest"
)

// Opening a store makes its indexes in the database, also those that are declared
// later, and keeps those that are no longer declared.
func TestIndexesAreMade(t *testing.T) {
	server := mongotest.NewServer(t)
	uri, name := server.Database(t)
	stars := driver.Index{Path: []string{"stars"}, Kind: driver.KindInt}
	tags := driver.Index{Path: []string{"tags"}, Kind: driver.KindString, List: true}
	made := func(c *mongo.Collection) (list []string) {
		specifications, err := c.Indexes().ListSpecifications(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range specifications {
			var keys bson.D
			if err := bson.Unmarshal(one.KeysDocument, &keys); err != nil {
				t.Fatal(err)
			}
			var fields []string
			for _, e := range keys {
				if direction, ok := e.Value.(int32); ok && direction < 0 {
					e.Key = "-" + e.Key
				}
				fields = append(fields, e.Key)
			}
			text := strings.Join(fields, " ")
			if one.Sparse != nil && *one.Sparse {
				text += " sparse"
			}
			list = append(list, text)
		}
		slices.Sort(list)
		return list
	}
	for _, declared := range [][]driver.Index{{stars}, {tags}} {
		s := newServerOf(t, uri, Options{Collections: []driver.Collection{{Name: "things", Indexes: declared}}})
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		all := []driver.Index{stars, tags}
		if !declared[0].List {
			all = declared
		}
		c := &collection{}
		main, history := c.indexes(all)
		for _, place := range []struct {
			name   string
			models []mongo.IndexModel
		}{{"things", main}, {"things.history", history}} {
			want := append(keysOf(t, place.models), "_id")
			slices.Sort(want)
			if diff := cmp.Diff(want, made(server.Client.Database(name).Collection(place.name))); diff != "" {
				t.Errorf("%s, with %v (-want +got):\n%s", place.name, declared, diff)
			}
		}
	}
}
