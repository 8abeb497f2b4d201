package mongostore_test

import (
	"context"
	"crypto/rand"
	"net/url"
	"os"
	"testing"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// server is the MongoDB server that the tests run on.
type server struct {
	uri    *url.URL
	client *mongo.Client
}

// newServer finds the server, or skips the test.
func newServer(t *testing.T) *server {
	t.Helper()
	name := os.Getenv("ASOF_TEST_MONGODB_URI")
	if name == "" {
		t.Skip("needs a MongoDB server: set ASOF_TEST_MONGODB_URI, such as mongodb://127.0.0.1:27017; the tests make databases of their own and drop them")
	}
	uri, err := url.Parse(name)
	if err != nil {
		t.Fatalf("ASOF_TEST_MONGODB_URI=%q: %v", name, err)
	}
	client, err := mongo.Connect(options.Client().ApplyURI(name))
	if err != nil {
		t.Fatalf("ASOF_TEST_MONGODB_URI=%q: %v", name, err)
	}
	t.Cleanup(func() {
		if err := client.Disconnect(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("Disconnect: %v", err)
		}
	})
	return &server{uri: uri, client: client}
}

// database returns the URI of a database that no other test uses, and that is
// dropped when the test ends.
func (s *server) database(t *testing.T) string {
	t.Helper()
	name := "asof_test_" + rand.Text()
	t.Cleanup(func() {
		if err := s.client.Database(name).Drop(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("dropping the database of the test: %v", err)
		}
	})
	uri := *s.uri
	uri.Path = "/" + name
	return uri.String()
}
