package mongostore

import (
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/mongostore/mongotest"
)

var update = flag.Bool("update", false, "write what the tests see into their golden files")

// recorder collects the commands that a store sends.
type recorder struct {
	mu       sync.Mutex
	commands []bson.D
	returned atomic.Int64 // documents
}

func (r *recorder) succeeded(_ context.Context, e *event.CommandSucceededEvent) {
	for _, batch := range []string{"firstBatch", "nextBatch"} {
		if list, ok := e.Reply.Lookup("cursor", batch).ArrayOK(); ok {
			values, _ := list.Values()
			r.returned.Add(int64(len(values)))
		}
	}
}

func (r *recorder) started(_ context.Context, e *event.CommandStartedEvent) {
	var d bson.D
	if bson.Unmarshal(e.Command, &d) != nil {
		return
	}
	if len(d) > 0 && d[0].Value == metaName {
		return // what servers tell each other in the background
	}
	kept := bson.D{}
	for _, field := range d {
		switch field.Key {
		case "lsid", "$db", "$clusterTime", "txnNumber", "$readPreference", "readConcern", "writeConcern", "comment":
		default:
			kept = append(kept, field)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.commands = append(r.commands, kept)
}

func (r *recorder) take() []bson.D {
	r.mu.Lock()
	defer r.mu.Unlock()
	commands := r.commands
	r.commands = nil
	return commands
}

// shown writes a command for the golden file, behind the indexes that bound what
// it reads; false where there is none.
func shown(t *testing.T, command bson.D, keys indexKeys) (text string, bounded bool) {
	t.Helper()
	body, err := bson.MarshalExtJSONIndent(command, false, false, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	if by := keys.narrowedBy(command); by != nil {
		lines = append(lines, "--- by "+strings.Join(by, ", or "))
	}
	if order := keys.orderedBy(command); order != "" {
		lines = append(lines, "--- in the order of "+order)
	}
	reads := slices.Contains([]string{"find", "aggregate", "update", "delete"}, command[0].Key)
	if bounded = len(lines) > 0 || !reads; !bounded {
		lines = append(lines, "--- reads the whole collection")
	}
	return strings.Join(append(lines, string(body)), "\n"), bounded
}

// TestCommands holds the commands that each kind of call sends against a
// golden file, so that a change of how an index is used is seen. The first stage of each is bounded by an
// index, but where the call says otherwise; those of the present leave the history
// alone, and none fetches what filters see.
func TestCommands(t *testing.T) {
	uri := mongotest.URI(t)
	ctx := t.Context()
	recorded := &recorder{}
	client, err := mongo.Connect(options.Client().ApplyURI(uri).SetMonitor(&event.CommandMonitor{Started: recorded.started}))
	if err != nil {
		t.Fatal(err)
	}
	var now atomic.Int64 // in microseconds; the store looks at it at any time
	now.Store(1_000_000)
	database := "asof_test_" + rand.Text()
	declared := []driver.Index{
		{Path: []string{"stars"}, Kind: driver.KindInt}, {Path: []string{"tags"}, Kind: driver.KindString, List: true},
	}
	s, err := open(ctx, client, database, Options{
		Clock:       func() time.Time { return time.UnixMicro(now.Load()).UTC() },
		timing:      unhurried,
		Bounds:      map[string]Bounds{"tools": {Versions: 2}},
		Collections: []driver.Collection{{Name: "tools", Indexes: declared}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(ctx)
		if err := client.Database(database).Drop(ctx); err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	number := int64(0)
	write := func(expected int64) {
		t.Helper()
		number++
		now.Add(1_000_000)
		_, err := driver.CommitOne(ctx, s, &driver.Write{
			ID: fmt.Sprint("write ", number), Collection: "tools", Key: "go", Expected: expected, Op: driver.OpUpdate,
			Changed: []string{"stars"}, Data: fmt.Appendf(nil, `{"stars":%d,"tags":["a"]}`, number),
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	query := func(q driver.Query) {
		t.Helper()
		q.Collection = "tools"
		if _, err := s.Query(ctx, &q); err != nil {
			t.Fatal(err)
		}
	}
	get := func(refs ...driver.Ref) {
		t.Helper()
		if _, err := s.Get(ctx, "tools", refs, nil); err != nil {
			t.Fatal(err)
		}
	}
	log := func(q driver.LogQuery) {
		t.Helper()
		for _, err := range s.Log(ctx, &q) {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	load := func(at driver.Instant, keys ...string) {
		t.Helper()
		var versions []driver.Version
		for _, key := range keys {
			for i := range driver.Instant(3) {
				versions = append(versions, driver.Version{
					Collection: "tools", Key: key, RecordedAt: at + i, Op: driver.OpImport, Data: fmt.Appendf(nil, `{"stars":%d}`, i),
				})
			}
		}
		if result, err := s.Load(ctx, versions); err != nil || result.Added != int64(len(versions)) {
			t.Fatalf("%+v, %v", result, err)
		}
	}
	count := func(q driver.Query) {
		t.Helper()
		q.Collection = "tools"
		if _, err := s.Count(ctx, &q); err != nil {
			t.Fatal(err)
		}
	}
	lose := func(expected int64) {
		t.Helper()
		_, err := driver.CommitOne(ctx, s, &driver.Write{ID: "too late", Collection: "tools", Key: "go", Expected: expected, Op: driver.OpUpdate, Data: []byte(`{}`)})
		if driver.CodeOf(err) != driver.CodeConflict {
			t.Fatal(err)
		}
	}
	stars := driver.Field{Path: []string{"stars"}, Kind: driver.KindInt}
	many := driver.Compare{Field: stars, Op: driver.Ge, Value: int64(3)}
	tagged := driver.Any{Field: driver.Field{Path: []string{"tags"}}, Filter: driver.Compare{Field: driver.Field{Kind: driver.KindString}, Op: driver.Eq, Value: "a"}}
	named := driver.Text{Field: driver.Field{Path: []string{"name"}, Kind: driver.KindString}, Op: driver.Contains, Value: "Go*", Fold: true}
	begins := driver.Text{Field: driver.Field{Meta: driver.MetaKey, Kind: driver.KindString}, Op: driver.HasPrefix, Value: "g"}
	byStars := []driver.Order{{Field: stars, Desc: true}}
	tools := s.collections["tools"]
	main, history := tools.indexes(declared)
	indexes := indexKeysOf(t, tools, main, history)
	var seen strings.Builder
	for _, c := range []struct {
		name string
		call func()
		// present: it is about the present, and looks at no history.
		present bool
		// all: no index says what it is about.
		all bool
	}{
		{"a create", func() { write(0) }, true, false},
		{"an update on a version that this server read or wrote last", func() { write(1) }, false, false},
		{"the next one", func() { write(2) }, false, false},
		{"one before which history moves to the overflow", func() { write(3) }, false, false},
		{"one on a version that this server has not seen, or not remembered", func() { tools.forget("go"); write(4) }, false, false},
		{"an update on the version before the last, a conflict", func() { lose(4) }, false, false},
		{"a current document", func() { get(driver.Ref{Key: "go", At: driver.Forever}) }, true, false},
		{"several current documents, up to 1,000", func() { get(driver.Ref{Key: "go", At: driver.Forever}, driver.Ref{Key: "c", At: driver.Forever}) }, true, false},
		{"a document as of a recent instant", func() { get(driver.Ref{Key: "go", At: 5_500_000}) }, false, false},
		{"a document as of an instant of long ago", func() { get(driver.Ref{Key: "go", At: 2_500_000}) }, false, false},
		{"a document by a recent number", func() { get(driver.Ref{Key: "go", Number: 4}) }, false, false},
		{"a document by a number of long ago", func() { get(driver.Ref{Key: "go", Number: 1}) }, false, false},
		{"a page of the present, by an index", func() {
			query(driver.Query{At: 9_000_000, Filter: many, Order: byStars, Limit: 10})
		}, true, false},
		{"the next page", func() {
			query(driver.Query{At: 9_000_000, Order: byStars, Limit: 10, After: &driver.Position{Values: []driver.Value{int64(4)}, Key: "go"}})
		}, true, false},
		{"a page of the present, of those with an element in a list", func() {
			query(driver.Query{At: 9_000_000, Filter: tagged, Limit: 10})
		}, true, false},
		{"a page of the present, by a text in any case", func() { query(driver.Query{At: 9_000_000, Filter: named, Limit: 10}) }, true, true},
		{"a page of the past, by an index", func() {
			tools.latest.Store(0)
			query(driver.Query{At: 3_500_000, Filter: driver.And{many, tagged}, Order: byStars, Limit: 10})
		}, false, false},
		{"another one of that instant or of one before", func() {
			query(driver.Query{At: 3_500_000, Filter: driver.And{many, tagged}, Order: byStars, Limit: 10})
		}, false, false},
		{"a page of the past, by a text in any case", func() { tools.latest.Store(0); query(driver.Query{At: 3_500_000, Filter: named, Limit: 10}) }, false, true},
		{"a page of the present, by a beginning of keys", func() { query(driver.Query{At: 9_000_000, Filter: begins, Limit: 10}) }, true, false},
		{"a page of the past, by a beginning of keys", func() { query(driver.Query{At: 3_500_000, Filter: begins, Limit: 10}) }, false, false},
		{"how many there are, by an index", func() { count(driver.Query{At: 9_000_000, Filter: many}) }, true, false},
		{"how many there were, by an index", func() { tools.latest.Store(0); count(driver.Query{At: 3_500_000, Filter: many}) }, false, false},
		{"how many at that instant or at one before", func() { count(driver.Query{At: 3_500_000, Filter: many}) }, false, false},
		{"the changelog of a type, a page of the newest", func() { log(driver.LogQuery{Backward: true, Limit: 1}) }, false, false},
		{"the changelog of a type, a page of what an author did", func() { log(driver.LogQuery{Hints: driver.Hints{Authors: []string{"ada"}}, Backward: true, Limit: 1}) }, false, true},
		{"the changelog of a type between two instants, a page of the oldest", func() { log(driver.LogQuery{From: 2_500_000, To: 4_500_000, Limit: 2}) }, false, false},
		{"the changelog of several documents, a page", func() {
			log(driver.LogQuery{Collections: []string{"tools"}, Keys: []string{"go", "c"}, Limit: 2})
		}, false, false},
		{"the history of one document, a page", func() {
			log(driver.LogQuery{Collections: []string{"tools"}, Keys: []string{"go"}, Backward: true, Limit: 2})
		}, false, false},
		{"a page of it in the overflow", func() {
			log(driver.LogQuery{Collections: []string{"tools"}, Keys: []string{"go"}, Limit: 2})
		}, false, false},
		{"the last versions of several documents, up to 1,000", func() {
			get(driver.Ref{Key: "go", Number: 6}, driver.Ref{Key: "go", Number: 5}, driver.Ref{Key: "go", Number: 4}, driver.Ref{Key: "c", Number: 1})
		}, false, false},
		{"versions of several documents of long ago", func() {
			get(driver.Ref{Key: "go", Number: 2}, driver.Ref{Key: "go", Number: 1}, driver.Ref{Key: "c", Number: 1})
		}, false, false},
		{"how much there is, for each type and once more", func() {
			if _, err := s.Stats(ctx); err != nil {
				t.Fatal(err)
			}
		}, true, false},
		{"an import of new documents, with history that moves", func() { load(1, "a", "b") }, false, false},
		{"an import of more versions of them", func() { load(4, "a", "b") }, false, false},
	} {
		recorded.take()
		c.call()
		commands := recorded.take()
		fmt.Fprintf(&seen, "=== %s\n", c.name)
		all := false
		for _, command := range commands {
			text, bounded := shown(t, command, indexes)
			all = all || !bounded
			if c.present && strings.Contains(text, `"prev`) {
				t.Errorf("%s: it looks at the history:\n%s", c.name, text)
			}
			if fetches(command, "x") {
				t.Errorf("%s: it fetches what filters see:\n%s", c.name, text)
			}
			seen.WriteString(text + "\n")
		}
		if all != c.all {
			t.Errorf("%s: it reads a whole collection: %t, want %t", c.name, all, c.all)
		}
	}
	// What is left of a deadline depends on how fast the machine is, and on when the end of
	// a flight's life.
	differs := regexp.MustCompile(`"(maxTimeMS|\$date|base64)": (\d+|"[^"]*")`)
	same := func(text string) string { return differs.ReplaceAllString(text, `"$1": …`) }
	const golden = "testdata/commands.golden"
	if *update {
		if err := os.WriteFile(golden, []byte(same(seen.String())), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(same(string(want)), same(seen.String())); diff != "" {
		t.Errorf("the commands have changed; look at the difference, and run the test with -update if it is right (-want +got):\n%s", diff)
	}
}

// fetches reports whether what a command answers has a member of versions. Its
// projection is the last, and names either what it has or what it has not.
func fetches(command bson.D, name string) bool {
	projection, _ := memberOf(command, "projection").(bson.D)
	if stages, ok := memberOf(command, "pipeline").(bson.A); ok {
		for _, stage := range stages {
			if p, ok := memberOf(stage.(bson.D), "$project").(bson.D); ok {
				projection = p
			}
		}
	}
	out, named := false, false
	for _, e := range projection {
		_, member, _ := strings.Cut(e.Key, ".")
		out = out || member != "" && fmt.Sprint(e.Value) == "0"
		named = named || member == name
	}
	return out != named
}
