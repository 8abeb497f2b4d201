package e2e

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/asof/asof/storage/mongostore/mongotest"
)

// mongoStore names a store of its own for a script.
func mongoStore(env *testscript.Env, _ string) string { return mongoDatabase(env.T(), env.Defer) }

// mongoDatabase names a database that nothing else uses, on the server that
// ASOF_TEST_MONGODB_URI names. It is dropped later.
func mongoDatabase(t mongotest.T, later func(func())) string {
	name := mongotest.URI(t)
	database := "asof_e2e_" + rand.Text()
	later(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		defer cancel()
		client, err := mongo.Connect(options.Client().ApplyURI(name))
		if err != nil {
			t.Fatal("dropping the database: ", err)
		}
		defer func() { _ = client.Disconnect(ctx) }()
		if err := client.Database(database).Drop(ctx); err != nil {
			t.Fatal("dropping the database: ", err)
		}
	})
	uri, err := mongotest.WithDatabase(name, database)
	if err != nil {
		t.Fatal(err)
	}
	return uri
}

// What one engine exports, the other imports, and exports the same bytes.
func TestExportsAreTheSame(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	events := filepath.Join(dir, "events.ndjson")
	if err := os.WriteFile(events, aThird(unzip(t, filepath.Join(dataDir(t), catalog().events))), 0o600); err != nil {
		t.Fatal(err)
	}
	stores := []string{
		"sqlite:" + filepath.Join(dir, "first.db"), mongoDatabase(t, t.Cleanup), "sqlite:" + filepath.Join(dir, "second.db"),
	}
	var first []byte
	for i, store := range stores {
		run(t, program, "import", "--store", store, events)
		events = filepath.Join(dir, fmt.Sprintf("export%d.ndjson", i))
		run(t, program, "export", "--store", store, events)
		data, err := os.ReadFile(events)
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			first = data
		}
		if len(data) == 0 || !bytes.Equal(data, first) {
			t.Errorf("export %d has %d bytes that are not those of the first export, of %d bytes", i+1, len(data), len(first))
		}
	}
}
