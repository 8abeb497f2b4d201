package plantest

import (
	"testing"

	"github.com/asof/asof/internal/fixture/graph/model"
	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/mongostore"
	"github.com/asof/asof/storage/mongostore/mongotest"
)

// mongodb opens databases that nothing else uses, on the server that the tests
// run on. They are dropped when the test ends.
func mongodb(t *testing.T) func() (driver.Engine, error) {
	t.Helper()
	server := mongotest.NewServer(t)
	return func() (driver.Engine, error) {
		uri, _ := server.Database(t)
		return mongostore.Open(t.Context(), uri, mongostore.Options{Collections: storage.CollectionsOf(model.Types)})
	}
}
