package mongostore_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/mongostore"
)

func TestOpenRefuses(t *testing.T) {
	// A server that takes connections and never answers.
	silent, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	for _, c := range []struct {
		uri, text string
		code      driver.Code
	}{
		{"http://localhost/asof", "not valid", driver.CodeInvalid},
		{"mongodb://", "not valid", driver.CodeInvalid},
		{"mongodb://localhost", "names no database", driver.CodeInvalid},
		{"mongodb://ann:s3cret%zz@localhost/asof", "not valid", driver.CodeInvalid},
		{"mongodb://ann:s3cret/@localhost/asof", "not valid", driver.CodeInvalid},
		{"mongodb+srv://ann:s3cret@asof.invalid/asof", "cannot be found", driver.CodeUnavailable},
		{"mongodb://localhost/asof?w=nonsense&tls=maybe", "not valid", driver.CodeInvalid},
		{"mongodb://localhost/as%20of", `the database "as of"`, driver.CodeInvalid},
		{"mongodb://localhost/" + strings.Repeat("a", 64), "at most 63 bytes", driver.CodeInvalid},
		{"mongodb://localhost/asof?retryWrites=true&tlss=true", "has the option tlss, which", driver.CodeInvalid},
		{"mongodb://localhost/asof?minPoolSize=200", "minPoolSize", driver.CodeInvalid}, // more than there may be by default
		{"mongodb://127.0.0.1:1/" + strings.Repeat("a", 63) + "?retryWrites=true&w=majority&appName=asof&authSource=admin", "cannot be reached", driver.CodeUnavailable},
		{"mongodb://127.0.0.1:1/asof", "cannot be reached", driver.CodeUnavailable},
		{"mongodb://" + silent.Addr().String() + "/asof", "cannot be reached", driver.CodeUnavailable},
	} {
		wanted := says(c.code, c.text)
		err := withinSome(t, 300*time.Millisecond, c.uri, wanted, func(ctx context.Context) error {
			s, err := mongostore.Open(ctx, c.uri, mongostore.Options{})
			if s != nil {
				t.Errorf("%s: a store was opened", c.uri)
			}
			return err
		})
		if !wanted(err) {
			t.Errorf("%s: %v (%q), want %q with code %q", c.uri, err, driver.CodeOf(err), c.text, c.code)
		}
		if strings.Contains(fmt.Sprint(err), "s3cret") {
			t.Errorf("%s: the error tells the password: %v", c.uri, err)
		}
	}
}

// A server whose clock is wrong takes the times of the database's, about.
func TestClocksApart(t *testing.T) {
	server := newServer(t)
	for _, skew := range []time.Duration{-24 * time.Hour, 24 * time.Hour} {
		clock := func() time.Time { return time.Now().Add(skew) }
		began := time.Now()
		s, err := mongostore.Open(t.Context(), server.database(t), mongostore.Options{Clock: clock, MaxSkew: time.Second, Collections: []driver.Collection{{Name: "things"}}})
		if err != nil {
			t.Fatal(err)
		}
		v, err := driver.CommitOne(t.Context(), s, thing("a"))
		if err != nil || v.RecordedAt.Time().Before(began.Add(-time.Minute)) || v.RecordedAt.Time().After(time.Now().Add(time.Minute)) {
			t.Errorf("%v apart: %v, %v", skew, v, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A store of another layout is refused, and left as it is.
func TestOtherLayout(t *testing.T) {
	server := newServer(t)
	uri := server.database(t)
	meta := server.client.Database(databaseName(t, uri)).Collection("asof.meta")
	if _, err := meta.InsertOne(t.Context(), bson.D{{Key: "_id", Value: "store"}, {Key: "format", Value: int64(99)}}); err != nil {
		t.Fatal(err)
	}
	_, err := mongostore.Open(t.Context(), uri, mongostore.Options{Collections: []driver.Collection{{Name: "things"}}})
	if driver.CodeOf(err) != driver.CodeInvalid || !strings.Contains(err.Error(), "another version of asof (layout 99") {
		t.Errorf("a database of layout 99: %v", err)
	}
	kept, err := meta.FindOne(t.Context(), bson.D{}).Raw()
	if elements, _ := kept.Elements(); err != nil || len(elements) != 2 {
		t.Errorf("it was changed: %v, %v", kept, err)
	}
}

// A database in which another program keeps its documents is refused, and one
// without a store by who only reads; nothing is written into either.
func TestDatabaseOfAnother(t *testing.T) {
	server := newServer(t)
	things := []driver.Collection{{Name: "things"}}
	for _, c := range []struct {
		name    string
		foreign []any
		options mongostore.Options
		code    driver.Code
		text    string
	}{
		{"another program's", []any{bson.D{{Key: "_id", Value: "a"}, {Key: "name", Value: "theirs"}}}, mongostore.Options{Collections: things}, driver.CodeInvalid, "its collection things holds documents that are not asof's"},
		{"an empty one, to be read", nil, mongostore.Options{Collections: things, Existing: true}, driver.CodeNotFound, "there is no store in the database "},
		{"an empty one", nil, mongostore.Options{Collections: things}, "", ""},
	} {
		uri := server.database(t)
		database := server.client.Database(databaseName(t, uri))
		if c.foreign != nil {
			if _, err := database.Collection("things").InsertMany(t.Context(), c.foreign); err != nil {
				t.Fatal(err)
			}
		}
		s, err := mongostore.Open(t.Context(), uri, c.options)
		if driver.CodeOf(err) != c.code || err != nil && (!strings.Contains(err.Error(), c.text) || !strings.Contains(err.Error(), database.Name())) {
			t.Errorf("%s: %v (%q), want %q with code %q", c.name, err, driver.CodeOf(err), c.text, c.code)
		}
		if err == nil {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			c.options.Existing = true
			if s, err = mongostore.Open(t.Context(), uri, c.options); err != nil {
				t.Errorf("%s: when it was made: %v", c.name, err)
			} else if err := s.Close(); err != nil {
				t.Error(err)
			}
			continue
		}
		if n, err := database.Collection("asof.meta").CountDocuments(t.Context(), bson.D{}); err != nil || n != 0 {
			t.Errorf("%s: %d documents in asof.meta, %v", c.name, n, err)
		}
	}
}

// A server that is not a replica set is warned of once, when it is opened.
func TestWarnsOfASingleServer(t *testing.T) {
	server := newServer(t)
	var hello struct {
		SetName string `bson:"setName"`
	}
	if err := server.client.Database("admin").RunCommand(t.Context(), bson.D{{Key: "isMaster", Value: 1}}).Decode(&hello); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	s, err := mongostore.Open(t.Context(), server.database(t), mongostore.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	want := 1
	if hello.SetName != "" {
		want = 0
	}
	if got := strings.Count(log.String(), "not a replica set"); got != want {
		t.Errorf("%d warnings, want %d:\n%s", got, want, log.String())
	}
}

// What another program wrote into a collection is no document, is not written
// over, and is reported; the others are not disturbed.
func TestForeignDocuments(t *testing.T) {
	server := newServer(t)
	uri := server.database(t)
	s, err := mongostore.Open(t.Context(), uri, mongostore.Options{Collections: []driver.Collection{{Name: "things"}}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	ctx := t.Context()
	commit := func(key string) error {
		_, err := driver.CommitOne(ctx, s, &driver.Write{ID: "write " + key, Collection: "things", Key: key, Op: driver.OpCreate, Data: []byte(`{"n":1}`)})
		return err
	}
	if err := commit("ours"); err != nil {
		t.Fatal(err)
	}
	main := server.client.Database(databaseName(t, uri)).Collection("things")
	foreign := []any{
		bson.D{{Key: "_id", Value: "plain"}, {Key: "name", Value: "somebody else's"}},
		bson.D{{Key: "_id", Value: "odd"}, {Key: "current", Value: bson.D{{Key: "v", Value: "one"}}}},
		bson.D{{Key: "_id", Value: "dated"}, {Key: "current", Value: bson.D{{Key: "at", Value: time.Now()}}}},
	}
	if _, err := main.InsertMany(ctx, foreign); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"plain", "odd", "dated"} {
		_, err := s.Get(ctx, "things", []driver.Ref{{Key: key, At: driver.Forever}}, nil)
		if driver.CodeOf(err) != driver.CodeInternal || !strings.Contains(err.Error(), "layout of asof's documents") {
			t.Errorf("Get of %s: %v", key, err)
		}
		if err := commit(key); driver.CodeOf(err) != driver.CodeInternal {
			t.Errorf("Commit to %s: %v", key, err)
		}
	}
	vs, err := s.Query(ctx, &driver.Query{Collection: "things", At: driver.Forever})
	if err != nil || len(vs) != 1 || vs[0].Key != "ours" {
		t.Errorf("Query: %v, %v", vs, err)
	}
	problems := 0
	if err := s.Check(ctx, func(string) { problems++ }); err != nil || problems != len(foreign) {
		t.Errorf("Check: %d problems, %v; want %d", problems, err, len(foreign))
	}
	if again, err := mongostore.Open(ctx, uri, mongostore.Options{Collections: []driver.Collection{{Name: "things"}}}); err != nil {
		t.Errorf("opening the store again: %v", err)
	} else if err := again.Close(); err != nil {
		t.Error(err)
	}
	// Changed behind the store's back, what filters see is no longer the data.
	if _, err := main.UpdateOne(ctx, bson.D{{Key: "_id", Value: "ours"}}, bson.D{{Key: "$set", Value: bson.D{{Key: "current.data", Value: `{"n":2}`}}}}); err != nil {
		t.Fatal(err)
	}
	found := false
	if err := s.Check(ctx, func(p string) { found = found || strings.Contains(p, "not what the data says") }); err != nil || !found {
		t.Errorf("Check of a changed document: %v, %t", err, found)
	}
}

// A unique index that another program made keeps documents out. That is told,
// and not tried again for ever.
func TestForeignUniqueIndex(t *testing.T) {
	server := newServer(t)
	uri := server.database(t)
	s, err := mongostore.Open(t.Context(), uri, mongostore.Options{Collections: []driver.Collection{{Name: "things"}}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	_, err = server.client.Database(databaseName(t, uri)).Collection("things").Indexes().CreateOne(t.Context(), mongo.IndexModel{
		Keys: bson.D{{Key: "current.data", Value: 1}}, Options: options.Index().SetUnique(true),
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"first", "second"} {
		err := within(t, time.Minute, "Commit", func(ctx context.Context) error {
			_, err := driver.CommitOne(ctx, s, thing(key))
			return err
		})
		if key == "first" {
			if err != nil {
				t.Fatal(err)
			}
		} else if driver.CodeOf(err) != driver.CodeInternal || !strings.Contains(err.Error(), "unique index") {
			t.Errorf("Commit of the same data: %v", err)
		}
	}
	_, err = s.Load(t.Context(), []driver.Version{{Collection: "things", Key: "third", RecordedAt: 1_000_000, Op: driver.OpImport, Data: []byte(`{"n":1}`)}})
	if driver.CodeOf(err) != driver.CodeInternal || !strings.Contains(err.Error(), "unique index") {
		t.Errorf("Load of the same data: %v", err)
	}
}

// A database that is dropped under a running store is not ready, rather than
// an empty store that nobody made.
func TestDroppedDatabase(t *testing.T) {
	server := newServer(t)
	uri := server.database(t)
	s, err := mongostore.Open(t.Context(), uri, mongostore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err := s.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	if err := server.client.Database(databaseName(t, uri)).Drop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Ping(t.Context()); driver.CodeOf(err) != driver.CodeUnavailable || !strings.Contains(err.Error(), "was emptied") {
		t.Errorf("Ping: %v", err)
	}
}
