package mongostore

import (
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
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
	commands []string
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
	text, err := bson.MarshalExtJSONIndent(kept, false, false, "", "  ")
	if err != nil {
		text = []byte(err.Error())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.commands = append(r.commands, string(text))
}

func (r *recorder) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	commands := r.commands
	r.commands = nil
	return commands
}

// TestCommands holds the commands that each kind of call sends against a
// golden file, so that a change of how an index is used, or of how many
// commands a call takes, is seen.
func TestCommands(t *testing.T) {
	uri := mongotest.URI(t)
	ctx := t.Context()
	recorded := &recorder{}
	client, err := mongo.Connect(options.Client().ApplyURI(uri).SetMonitor(&event.CommandMonitor{Started: recorded.started}))
	if err != nil {
		t.Fatal(err)
	}
	now := time.UnixMicro(1_000_000).UTC()
	database := "asof_test_" + rand.Text()
	s, err := open(ctx, client, database, Options{
		Clock:  func() time.Time { return now },
		Bounds: map[string]Bounds{"tools": {Versions: 2}},
		Collections: []driver.Collection{{Name: "tools", Indexes: []driver.Index{
			{Path: []string{"stars"}, Kind: driver.KindInt}, {Path: []string{"tags"}, Kind: driver.KindString, List: true},
		}}},
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
		now = now.Add(time.Second)
		_, err := s.Commit(ctx, &driver.Write{
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
	stars := driver.Field{Path: []string{"stars"}, Kind: driver.KindInt}
	many := driver.Compare{Field: stars, Op: driver.Ge, Value: int64(3)}
	tagged := driver.Any{Field: driver.Field{Path: []string{"tags"}}, Filter: driver.Compare{Field: driver.Field{Kind: driver.KindString}, Op: driver.Eq, Value: "a"}}
	byStars := []driver.Order{{Field: stars, Desc: true}}
	var seen strings.Builder
	for _, c := range []struct {
		name string
		call func()
		want int // how many commands it takes
	}{
		{"the first version", func() { write(0) }, 1},
		{"an update", func() { write(1) }, 1},
		{"another update", func() { write(2) }, 1},
		{"an update that moves history to the overflow", func() { write(3) }, 3},
		{"current versions of several documents", func() { get(driver.Ref{Key: "go", At: driver.Forever}, driver.Ref{Key: "c", At: driver.Forever}) }, 1},
		{"a recent version", func() { get(driver.Ref{Key: "go", At: 4_500_000}) }, 2},
		{"an old version", func() { get(driver.Ref{Key: "go", At: 2_500_000}) }, 3},
		{"a version by number", func() { get(driver.Ref{Key: "go", Number: 1}) }, 3},
		{"a page of the present, by an index", func() {
			query(driver.Query{At: 9_000_000, Filter: many, Order: byStars, Limit: 10})
		}, 2},
		{"the next page", func() {
			query(driver.Query{At: 9_000_000, Order: byStars, Limit: 10, After: &driver.Position{Values: []driver.Value{int64(4)}, Key: "go"}})
		}, 2},
		{"a page of the past, by an index", func() {
			query(driver.Query{At: 3_500_000, Filter: driver.And{many, tagged}, Order: byStars, Limit: 10})
		}, 4},
		{"a text in any case", func() {
			query(driver.Query{At: driver.Forever, Filter: driver.Text{Field: driver.Field{Path: []string{"name"}, Kind: driver.KindString}, Op: driver.Contains, Value: "Go*", Fold: true}})
		}, 1},
		{"what changed last", func() { log(driver.LogQuery{Backward: true, Limit: 2}) }, 4},
		{"the history of one document", func() {
			log(driver.LogQuery{Collections: []string{"tools"}, Keys: []string{"go"}, Backward: true, Limit: 2})
		}, 1},
		{"the same, with what was before each", func() {
			log(driver.LogQuery{Collections: []string{"tools"}, Keys: []string{"go"}, Backward: true, Limit: 1, Previous: true})
		}, 1},
		{"the last versions of several documents", func() {
			log(driver.LogQuery{
				Collections: []string{"tools"}, Histories: []driver.History{{Key: "go", To: 9_000_000}, {Key: "c", To: 9_000_000}}, Backward: true, Limit: 1,
			})
		}, 1},
		{"the first versions of several documents since an instant", func() {
			since := driver.InstantOf(now)
			log(driver.LogQuery{Collections: []string{"tools"}, Histories: []driver.History{{Key: "go", From: since}, {Key: "c", From: since}}, Limit: 1})
		}, 1},
		{"all versions of several documents, without data", func() {
			log(driver.LogQuery{Collections: []string{"tools"}, Histories: []driver.History{{Key: "go"}, {Key: "c"}}, NoData: true})
		}, 2},
		{"a load of new documents", func() { load(1, "a", "b") }, 4},
		{"a load of more versions of them", func() { load(4, "a", "b") }, 8},
	} {
		recorded.take()
		c.call()
		commands := recorded.take()
		if len(commands) != c.want {
			t.Errorf("%s: %d commands, want %d", c.name, len(commands), c.want)
		}
		fmt.Fprintf(&seen, "=== %s\n%s\n", c.name, strings.Join(commands, "\n"))
	}
	// What is left of a deadline depends on how fast the machine is; who loads,
	// and what it is called, is made up.
	differs := regexp.MustCompile(`"(maxTimeMS|load|owner|base64)": (\d+|"[^"]*")`)
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
