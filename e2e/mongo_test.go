package e2e

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"go.mongodb.org/mongo-driver/v2/bson"
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

// --mongodb-embed says how much history stays inside the documents of a type, and
// may be another one at each start: all versions are there whatever it was.
func TestBoundsOfTypes(t *testing.T) {
	server := mongotest.NewServer(t)
	uri, database := server.Database(t)
	file := filepath.Join(t.TempDir(), "history.ndjson")
	var want bytes.Buffer
	grow := func(from int) {
		for i := from; i < from+10; i++ {
			for _, collection := range []string{"platforms", "tags"} {
				fmt.Fprintf(&want, `{"collection":%q,"id":"a","at":"2024-01-01T00:00:%02dZ","by":"ada","op":"put","data":{"name":"n%d","description":""}}`+"\n", collection, i, i)
			}
		}
		if err := os.WriteFile(file, want.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	inside := func(collection string) int64 {
		var document struct {
			N int64 `bson:"n"`
		}
		if err := server.Client.Database(database).Collection(collection).FindOne(t.Context(), bson.D{{Key: "_id", Value: "a"}}).Decode(&document); err != nil {
			t.Fatal(err)
		}
		return document.N
	}
	for i, c := range []struct {
		args            []string
		variable        string
		platforms, tags int64 // the most that may be inside
	}{
		{[]string{"--mongodb-embed", "Tag=4"}, "", 9, 4},
		{[]string{"--mongodb-embed", "Tag=8", "--mongodb-embed", "3:1KB"}, "", 3, 8},
		{nil, "Platform=5,Tag=2", 5, 2},
	} {
		grow(10 * i)
		t.Setenv("ASOF_MONGODB_EMBED", c.variable)
		run(t, program, append([]string{"import", "--store", uri, file}, c.args...)...)
		for collection, most := range map[string]int64{"platforms": c.platforms, "tags": c.tags} {
			if n := inside(collection); n > most || n == 0 || i == 0 && collection == "platforms" && n != most {
				t.Errorf("%v %s: %d versions of %s are inside the document, at most %d may be", c.args, c.variable, n, collection, most)
			}
		}
		got := regexp.MustCompile(`,"seal":"[^"]*"`).ReplaceAllString(export(t, uri), "") // the file has none
		if got != want.String() {
			t.Errorf("%v %s: the export has %d bytes, want %d", c.args, c.variable, len(got), want.Len())
		}
	}
}
