package mongostore_test

import (
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/mongostore"
	"github.com/asof/asof/storage/mongostore/mongotest"
)

// An index is there when a majority of a replica set has made it, so that a store opens
// while a member is down. A server that is no member is asked for no majority.
func TestIndexesOfAMajority(t *testing.T) {
	for _, c := range []struct {
		name   string
		is     func(reply bson.Raw) bson.D
		quorum string
	}{
		{"a server alone", func(reply bson.Raw) bson.D {
			return without(member(reply, true), "setName", "setVersion", "me", "hosts")
		}, ""},
		{"a member", func(reply bson.Raw) bson.D { return member(reply, true) }, `"majority"`},
		{"mongos", func(reply bson.Raw) bson.D {
			return append(without(member(reply, true), "setName", "setVersion", "me", "hosts"), bson.E{Key: "msg", Value: "isdbgrid"})
		}, `"majority"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			proxy, uri := newServer(t).behind(t)
			var mu sync.Mutex
			asked := make(map[string]string)
			proxy.Set(func(command mongotest.Command) mongotest.Answer {
				if command.Hello() {
					return mongotest.Rewrite(c.is)
				}
				if command.Name == "createIndexes" {
					mu.Lock()
					defer mu.Unlock()
					asked[command.Collection()] = command.Body.Lookup("commitQuorum").String()
				}
				return mongotest.Pass()
			})
			s, err := mongostore.Open(t.Context(), uri, mongostore.Options{Collections: []driver.Collection{{Name: "things"}}})
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			if diff := cmp.Diff(map[string]string{"things": c.quorum, "things.history": c.quorum}, asked); diff != "" {
				t.Errorf("commitQuorum (-want +got):\n%s", diff)
			}
		})
	}
}

// without leaves members out of a document.
func without(d bson.D, names ...string) bson.D {
	return slices.DeleteFunc(d, func(e bson.E) bool { return slices.Contains(names, e.Key) })
}
