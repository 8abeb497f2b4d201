package mongostore

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/mongostore/mongotest"
)

// keysOf writes indexes as their fields, with a minus where they descend.
func keysOf(t *testing.T, models []mongo.IndexModel) (list []string) {
	t.Helper()
	names := make(map[string]string)
	for _, m := range models {
		var o options.IndexOptions
		for _, set := range m.Options.List() {
			if err := set(&o); err != nil {
				t.Fatal(err)
			}
		}
		var fields []string
		for _, e := range m.Keys.(bson.D) {
			name := e.Key
			if e.Value == int32(-1) {
				name = "-" + name
			}
			fields = append(fields, name)
		}
		keys := strings.Join(fields, " ")
		if other, there := names[*o.Name]; there {
			t.Errorf("%s and %s have one name, %s", other, keys, *o.Name)
		}
		names[*o.Name] = keys
		list = append(list, keys)
	}
	return list
}

// Fields that are sorted by have an index for each direction, with ascending keys.
func TestIndexes(t *testing.T) {
	main, history := (&collection{}).indexes([]driver.Index{
		{Path: []string{"stars"}, Kind: driver.KindInt},
		{Path: []string{"tags"}, Kind: driver.KindString, List: true},
		{Path: []string{"release", strings.Repeat("a long name ", 20)}, Kind: driver.KindDate},
	})
	long := fmt.Sprintf("x.release.o.%s.d", strings.Repeat("a long name ", 20))
	if diff := cmp.Diff([]string{
		"current.at _id current.v current.del", "current.at -_id", "prev.at",
		"current.x.stars.i _id", "prev.x.stars.i",
		"current.x.tags.l.s _id", "prev.x.tags.l.s",
		"current." + long + " _id", "prev." + long,
		"current.x.stars.i -_id", "current." + long + " -_id",
	}, keysOf(t, main)); diff != "" {
		t.Errorf("of documents (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{
		"k n last", "k from to", "to from", "vs.x.stars.i", "vs.x.tags.l.s", "vs." + long,
	}, keysOf(t, history)); diff != "" {
		t.Errorf("of the overflow (-want +got):\n%s", diff)
	}
}

// A type with many indexes has those for descending orders as far as MongoDB lets it.
func TestIndexesAreNotTooMany(t *testing.T) {
	const most = 64 // with that of _id
	for _, test := range []struct{ declared, want int }{{0, 4}, {19, 61}, {20, most}, {29, most}} {
		var declared []driver.Index
		for i := range test.declared {
			declared = append(declared, driver.Index{Path: []string{fmt.Sprint("f", i)}, Kind: driver.KindInt})
		}
		main, _ := (&collection{}).indexes(declared)
		if n := len(main) + 1; n != test.want {
			t.Errorf("%d declared indexes make %d, want %d", test.declared, n, test.want)
		}
	}
}

// Indexes that take longer to make than a call may otherwise are waited for, which
// the log says.
func TestIndexesAreWaitedFor(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	proxy, uri, _ := mongotest.NewServer(t).Behind(t)
	const timeout = time.Second
	log := &logLines{text: make(chan string, 100)}
	awaitTold := sync.OnceFunc(func() {
		for text := ""; ctx.Err() == nil && !strings.Contains(text, "indexes of a large collection"); {
			select {
			case text = <-log.text:
			case <-ctx.Done():
			}
		}
	})
	proxy.Set(func(c mongotest.Command) mongotest.Answer {
		if c.Name == "createIndexes" {
			awaitTold()
		}
		return mongotest.Pass()
	})
	s := newServerOf(t, uri, Options{Timeout: timeout, Logger: slog.New(slog.NewTextHandler(log, nil))})
	if err := s.Ping(ctx); err != nil {
		t.Error(err)
	}
}

// logLines hands on what is logged.
type logLines struct{ text chan string }

func (l *logLines) Write(line []byte) (int, error) {
	select {
	case l.text <- string(line):
	default:
	}
	return len(line), nil
}

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
			list = append(list, strings.Join(fields, " "))
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
