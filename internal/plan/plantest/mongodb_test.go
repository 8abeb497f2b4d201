package plantest

import (
	"context"
	"crypto/rand"
	"net/url"
	"os"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/asof/asof/graph/model"
	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/mongostore"
)

// mongodb opens databases that nothing else uses, on the server that
// ASOF_TEST_MONGODB_URI names. They are dropped when the test ends.
func mongodb(t *testing.T) func() (driver.Engine, error) {
	t.Helper()
	name := os.Getenv("ASOF_TEST_MONGODB_URI")
	if name == "" {
		t.Skip("needs a MongoDB server: set ASOF_TEST_MONGODB_URI, such as mongodb://127.0.0.1:27017; the test makes databases of its own and drops them")
	}
	uri, err := url.Parse(name)
	if err != nil {
		t.Fatal("ASOF_TEST_MONGODB_URI: ", err)
	}
	return func() (driver.Engine, error) {
		database := "asof_plantest_" + rand.Text()
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			client, err := mongo.Connect(options.Client().ApplyURI(name))
			if err != nil {
				t.Error("dropping a database: ", err)
				return
			}
			defer func() { _ = client.Disconnect(ctx) }()
			if err := client.Database(database).Drop(ctx); err != nil {
				t.Error("dropping a database: ", err)
			}
		})
		uri.Path = "/" + database
		return mongostore.Open(t.Context(), uri.String(), mongostore.Options{Collections: storage.CollectionsOf(model.Types)})
	}
}
