package capture_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/asof/asof/internal/capture"
	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/mongostore"
	"github.com/asof/asof/storage/mongostore/mongotest"
	"github.com/asof/asof/storage/record"
	"github.com/asof/asof/storage/sqlitestore"
)

func orderTypes() []*record.Type {
	return []*record.Type{{Name: "Order", Collection: "orders", Fields: []record.Field{{Name: "state", Kind: record.KindString}}}}
}

func newStore(t testing.TB, engine driver.Engine, err error) *storage.Store {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = engine.Close() })
	store, err := storage.New(engine, orderTypes())
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func onSQLite(t testing.TB) *storage.Store {
	t.Helper()
	engine, err := sqlitestore.Open(t.Context(), filepath.Join(t.TempDir(), "asof.db"), sqlitestore.Options{Collections: storage.CollectionsOf(orderTypes()), Sync: sqlitestore.SyncOff})
	return newStore(t, engine, err)
}

func onMongo(t testing.TB) *storage.Store {
	t.Helper()
	uri, _ := mongotest.NewServer(t).Database(t)
	engine, err := mongostore.Open(t.Context(), uri, mongostore.Options{Collections: storage.CollectionsOf(orderTypes())})
	return newStore(t, engine, err)
}

// begin begins a capture; the one before may have ended anywhere.
func begin(t testing.TB, store *storage.Store, s *mongotest.Streams, o capture.Options, filter string) (*capture.Capture, error) {
	t.Helper()
	source, err := mongostore.OpenSource(t.Context(), s.URI(), "orders", filter)
	if err != nil {
		return nil, err
	}
	t.Cleanup(source.Close)
	source.Wait = 20 * time.Millisecond
	o.Type, o.Now, o.Filtered = store.Types()[0], time.Now, filter != ""
	return capture.New(t.Context(), store, source, o)
}

// follow captures until there is nothing more.
func follow(t testing.TB, store *storage.Store, s *mongotest.Streams, o capture.Options, filter string) error {
	t.Helper()
	c, err := begin(t, store, s, o, filter)
	for idle := false; err == nil && !idle; {
		_, idle, err = c.Step(t.Context())
	}
	if err == nil {
		err = c.Note(t.Context())
	}
	return err
}

func mustFollow(t testing.TB, store *storage.Store, s *mongotest.Streams, o capture.Options, filter string) {
	t.Helper()
	if err := follow(t, store, s, o, filter); err != nil {
		t.Fatal(err)
	}
}

// lines are all versions of the store by key, in their order.
func lines(t testing.TB, store *storage.Store) map[string][]*driver.Version {
	t.Helper()
	all := map[string][]*driver.Version{}
	for v, err := range store.Engine().Log(t.Context(), &driver.LogQuery{Collections: []string{"orders"}}) {
		if err != nil {
			t.Fatal(err)
		}
		all[v.Key] = append(all[v.Key], v)
	}
	return all
}

// Nobody is the author of what no member names: also not one whose name is empty.
func TestAuthorOfNoMember(t *testing.T) {
	store, s := onSQLite(t), mongotest.NewStreams(t)
	s.Put("a", bson.D{{Key: "", Value: "ann"}}, false)
	mustFollow(t, store, s, capture.Options{}, "")
	if vs := lines(t, store)["a"]; len(vs) != 1 || vs[0].Author != capture.Author {
		t.Errorf("%+v", vs)
	}
}

func TestOptions(t *testing.T) {
	store, s := onSQLite(t), mongotest.NewStreams(t)
	put := func(id any, update bool, d bson.D) { t.Helper(); s.Put(id, d, update) }
	o := capture.Options{Drop: []string{"secret"}, Rename: map[string]string{"status": "state"}, AuthorField: "by"}
	filter := `{"$or": [{"shop": "a"}, {"shop": "b"}]}`
	put("found", false, bson.D{{Key: "status", Value: "new"}, {Key: "shop", Value: "a"}, {Key: "secret", Value: int32(1)}, {Key: "by", Value: "ann"}})
	put("left out", false, bson.D{{Key: "shop", Value: "c"}})
	mustFollow(t, store, s, o, filter)
	put("found", true, bson.D{{Key: "status", Value: "paid"}, {Key: "shop", Value: "a"}, {Key: "secret", Value: int32(2)}, {Key: "by", Value: int32(7)}})
	put("found", true, bson.D{{Key: "status", Value: "paid"}, {Key: "shop", Value: "a"}, {Key: "secret", Value: int32(3)}, {Key: "by", Value: int32(7)}})
	put("left out", true, bson.D{{Key: "shop", Value: "c"}, {Key: "x", Value: true}})
	put(bson.D{{Key: "odd", Value: true}}, false, bson.D{{Key: "shop", Value: "c"}})
	s.Delete(bson.D{{Key: "odd", Value: true}})
	put("later", false, bson.D{{Key: "shop", Value: "b"}})
	s.Delete("later")
	mustFollow(t, store, s, o, filter)
	var got []string
	all := lines(t, store)
	for _, key := range slices.Sorted(maps.Keys(all)) {
		for _, v := range all[key] {
			got = append(got, fmt.Sprint(key, " ", v.Op, " ", v.Author, " ", v.Changed, " ", string(v.Data)))
		}
	}
	want := []string{
		`found 5 ann [by shop state] {"by":"ann","shop":"a","state":"new"}`,
		`found 2 7 [by state] {"by":7,"shop":"a","state":"paid"}`,
		`later 1 capture [shop] {"shop":"b"}`,
		`later 3 capture [shop] `,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// A capture that begins beside a transaction has what that leaves.
func TestBesideATransaction(t *testing.T) {
	store, s := onSQLite(t), mongotest.NewStreams(t)
	put := func(state string) { s.Put("a", bson.D{{Key: "state", Value: state}}, true) }
	put("before")
	s.Transaction(func() {
		put("within")
		mustFollow(t, store, s, capture.Options{}, "")
		put("after")
	})
	mustFollow(t, store, s, capture.Options{}, "")
	if versions := compare(t, store, s); versions != 2 {
		t.Errorf("%d versions, want those before and after", versions)
	}
}

// What lies deeper is left out, too, whatever an update says of it.
func TestDropped(t *testing.T) {
	store, s := onSQLite(t), mongotest.NewStreams(t)
	o := capture.Options{Drop: []string{"card.number", "lines.secret", "a.b.c"}}
	document := func(n int32, paid any) bson.D {
		line := func(n int32) bson.D {
			return bson.D{{Key: "n", Value: n}, {Key: "secret", Value: bson.D{{Key: "x", Value: n}}}}
		}
		return bson.D{
			{Key: "card", Value: bson.D{{Key: "number", Value: n}, {Key: "kind", Value: "k"}, {Key: "paid", Value: paid}}},
			{Key: "lines", Value: bson.A{line(1), line(n), "text"}},
			{Key: "number", Value: n},
			{Key: "a", Value: bson.D{{Key: "b", Value: n}}},
		}
	}
	s.Put("a", document(1, nil), false)
	mustFollow(t, store, s, o, "")
	s.Put("a", document(2, nil), true)
	s.Put("a", document(2, true), true)
	s.Put("a", bson.D{{Key: "card", Value: int32(1)}, {Key: "lines", Value: bson.A{}}}, true)
	s.Put("a", document(3, true), true)
	mustFollow(t, store, s, o, "")
	var got []string
	for _, v := range lines(t, store)["a"] {
		got = append(got, sorted(t, v.Data))
	}
	want := []string{
		`{"a":{"b":1},"card":{"kind":"k","paid":null},"lines":[{"n":1},{"n":1},"text"],"number":1}`,
		`{"a":{"b":2},"card":{"kind":"k","paid":null},"lines":[{"n":1},{"n":2},"text"],"number":2}`,
		`{"a":{"b":2},"card":{"kind":"k","paid":true},"lines":[{"n":1},{"n":2},"text"],"number":2}`,
		`{"card":1,"lines":[]}`,
		`{"a":{"b":3},"card":{"kind":"k","paid":true},"lines":[{"n":1},{"n":3},"text"],"number":3}`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// What is left out is the same whether the source tells a change by its differences, or the whole document.
func TestDroppedFromUpdates(t *testing.T) {
	updates, wholes := mongotest.NewStreams(t), mongotest.NewStreams(t)
	o := capture.Options{Drop: []string{"x.a", "x.b.c", "1.a.b", "z.1", "z.b"}, Rename: map[string]string{"z": "2"}}
	random := rand.New(rand.NewPCG(16, 9))
	names := []string{"a", "b", "c", "1", "2"}
	var value func(before any) any
	value = func(before any) any {
		switch before := before.(type) {
		case bson.D:
			after := slices.Clone(before)
			name := names[random.IntN(len(names))]
			i := slices.IndexFunc(after, func(e bson.E) bool { return e.Key == name })
			switch {
			case i < 0:
				return append(after, bson.E{Key: name, Value: value(nil)})
			case random.IntN(4) == 0:
				return slices.Delete(after, i, i+1)
			}
			after[i].Value = value(after[i].Value)
			return after
		case bson.A:
			after := slices.Clone(before)
			i := random.IntN(len(after) + 1)
			if i == len(after) {
				return append(after, value(nil))
			}
			after[i] = value(after[i])
			return after[:i+1+random.IntN(len(after)-i)]
		}
		if n := random.IntN(6); n > 1 {
			return []any{bson.D{}, bson.A{}}[n%2]
		}
		return int32(random.IntN(100))
	}
	d := bson.D{{Key: "state", Value: "new"}, {Key: "x", Value: bson.D{}}, {Key: "1", Value: bson.D{}}, {Key: "z", Value: bson.D{}}}
	put := func() {
		updates.Put("a", d, true)
		wholes.Put("a", d, false)
	}
	put()
	stores := map[*mongotest.Streams]*storage.Store{updates: onSQLite(t), wholes: onSQLite(t)}
	all := func(s *mongotest.Streams) (all []string) {
		mustFollow(t, stores[s], s, o, "")
		for _, v := range lines(t, stores[s])["a"] {
			all = append(all, sorted(t, v.Data))
		}
		return all
	}
	all(updates)
	all(wholes)
	for range 2000 {
		d = slices.Clone(d)
		i := 1 + random.IntN(len(d)-1)
		if d[i].Value = value(d[i].Value); random.IntN(50) == 0 {
			d[i].Value = bson.D{}
		}
		put()
	}
	want, got := all(wholes), all(updates)
	if len(want) < 500 {
		t.Fatalf("only %d versions", len(want))
	}
	for i := range want {
		if i == len(got) || got[i] != want[i] {
			t.Fatalf("version %d (-whole +updates):\n%s", i+1, cmp.Diff(want[i:i+1], got[i:min(i+1, len(got))]))
		}
	}
}

// loads is an engine that notes how much it is given at once.
type loads struct {
	driver.Engine
	most, times int
}

func (l *loads) Load(ctx context.Context, vs []driver.Version) (driver.LoadResult, error) {
	n := 0
	for i := range vs {
		n += vs[i].Size()
	}
	l.most, l.times = max(l.most, n), l.times+1
	return l.Engine.Load(ctx, vs)
}

// Small updates of a large document are large versions, of which not all are held in memory.
func TestManyVersionsOfLargeDocuments(t *testing.T) {
	engine := &loads{Engine: onSQLite(t).Engine()}
	store, s := newStore(t, engine, nil), mongotest.NewStreams(t)
	const updates, size = 20, 1 << 20
	for i := range updates + 1 {
		s.Put("a", bson.D{{Key: "state", Value: fmt.Sprint(i)}, {Key: "text", Value: strings.Repeat("x", size)}}, true)
	}
	mustFollow(t, store, s, capture.Options{}, "")
	if n := len(lines(t, store)["a"]); n != 1 {
		t.Fatalf("%d versions, which were all there when the capture began", n)
	}
	for i := range updates {
		s.Put("a", bson.D{{Key: "state", Value: fmt.Sprint("again", i)}, {Key: "text", Value: strings.Repeat("x", size)}}, true)
	}
	mustFollow(t, store, s, capture.Options{}, "")
	if n := len(lines(t, store)["a"]); n != updates+1 || engine.most > 18<<20 || engine.times < 3 {
		t.Errorf("%d versions, at most %d bytes of them at once, in %d loads", n, engine.most, engine.times)
	}
}

// ending is an engine that notes whether commits end by themselves.
type ending struct {
	driver.Engine
	ends []bool
}

func (e *ending) Commit(ctx context.Context, ws []driver.Write) ([]*driver.Version, error) {
	_, ends := ctx.Deadline()
	e.ends = append(e.ends, ends && ctx.Err() == nil)
	return e.Engine.Commit(ctx, ws)
}

// A capture that ends notes where, and does not wait for a store that is away.
func TestEnd(t *testing.T) {
	engine := &ending{Engine: onSQLite(t).Engine()}
	store, s := newStore(t, engine, nil), mongotest.NewStreams(t)
	mustFollow(t, store, s, capture.Options{}, "")
	c, err := begin(t, store, s, capture.Options{}, "")
	if err != nil {
		t.Fatal(err)
	}
	s.Put("a", bson.D{{Key: "state", Value: "new"}}, false)
	if _, _, err := c.Step(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	engine.ends = nil
	if err := c.End(ctx); err != nil || !slices.Equal(engine.ends, []bool{true}) {
		t.Errorf("%v; commits with an end: %v", err, engine.ends)
	}
}

// A capture goes on, before what it has noted, where the versions that it made since are pruned.
func TestAfterPruning(t *testing.T) {
	store, s := onSQLite(t), mongotest.NewStreams(t)
	store.Types()[0].Keep = &record.Keep{Versions: 1}
	put := func(state string) {
		s.Put("a", bson.D{{Key: "state", Value: state}, {Key: "n", Value: int32(1)}}, true)
	}
	for _, state := range []string{"new", "paid"} {
		put(state)
	}
	if _, err := begin(t, store, s, capture.Options{}, ""); err != nil { // before it is found
		t.Fatal(err)
	}
	mustFollow(t, store, s, capture.Options{}, "")
	killed, err := begin(t, store, s, capture.Options{}, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, state := range []string{"packed", "sent", "lost"} {
		put(state)
	}
	if _, _, err := killed.Step(t.Context()); err != nil { // what is noted lies before
		t.Fatal(err)
	}
	pruner := store.NewPruner(store.Types()[0], false)
	for more := true; more; {
		done, err := pruner.Step(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		more = done.More
	}
	put("found")
	mustFollow(t, store, s, capture.Options{}, "")
	var got []string
	for _, v := range lines(t, store)["a"] {
		got = append(got, fmt.Sprint(v.Op == driver.OpPruned, " ", string(v.Data)))
	}
	want := []string{"true ", "true ", "true ", `false {"n":1,"state":"lost"}`, `false {"n":1,"state":"found"}`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// What cannot be captured ends with what to do; what was captured stays.
func TestRefused(t *testing.T) {
	first := bson.D{{Key: "state", Value: "new"}}
	for name, c := range map[string]struct {
		before func(*mongotest.Streams)
		then   func(*testing.T, *storage.Store, *mongotest.Streams)
		o      capture.Options
		filter string
		want   string
		kept   string // the key of what is captured all the same
	}{
		"dropped":      {then: func(_ *testing.T, _ *storage.Store, s *mongotest.Streams) { s.Put("b", first, false); s.End("drop") }, want: "shop.orders ended at 2023-11-14T22:13:20.000003Z (drop)", kept: "b"},
		"renamed":      {then: func(_ *testing.T, _ *storage.Store, s *mongotest.Streams) { s.End("rename") }, want: "(rename); what was captured before is there"},
		"lost":         {then: func(_ *testing.T, _ *storage.Store, s *mongotest.Streams) { s.Put("b", first, false); s.Forget() }, want: "give the source a larger oplog"},
		"an odd _id":   {before: func(s *mongotest.Streams) { s.Put(bson.D{{Key: "a", Value: int32(1)}}, first, false) }, want: `whose _id, {"a": {"$numberInt":"1"}}, is of the type embedded document; keys are made of`},
		"an empty _id": {then: func(_ *testing.T, _ *storage.Store, s *mongotest.Streams) { s.Put("", first, false) }, want: `the _id "" is empty, and so cannot be a key`},
		"one key":      {before: func(s *mongotest.Streams) { s.Put(int32(5), first, false); s.Put("5", first, false) }, want: `shop.orders has the _id "5", a string, beside others like it that are of the type number: both would be the key "5"; leave it out with --filter`},
		"another type": {then: func(_ *testing.T, _ *storage.Store, s *mongotest.Streams) {
			s.Put("b", bson.D{{Key: "state", Value: int32(5)}}, false)
		}, want: `Order "b" of 2023-11-14T22:13:20.000002Z: state: expected String, found the number 5; declare it so in the schema, or use --lenient`},
		"two names": {o: capture.Options{Rename: map[string]string{"x": "n"}}, then: func(_ *testing.T, _ *storage.Store, s *mongotest.Streams) {
			s.Put("b", bson.D{{Key: "n", Value: "a"}, {Key: "x", Value: "b"}}, false)
		}, want: `it has the member "n", and "x" gets that name; drop or rename it, too`},
		"a name that another one gets": {o: capture.Options{Rename: map[string]string{"x": "n"}}, then: func(_ *testing.T, _ *storage.Store, s *mongotest.Streams) {
			s.Put("a", bson.D{{Key: "state", Value: "new"}, {Key: "n", Value: "a"}}, true)
		}, want: `it has the member "n", and "x" gets that name`},
		"one name for two":            {o: capture.Options{Rename: map[string]string{"x": "n", "y": "n"}}, want: `"x" and "y" would both get the name "n"`},
		"a filter that is none":       {filter: `{"a":`, want: "the filter is no condition"},
		"a filter that cannot be had": {filter: `{"$expr": true}`, want: "the filter has $expr"},
		"another writer": {then: func(t *testing.T, store *storage.Store, s *mongotest.Streams) {
			s.Put("a", bson.D{{Key: "state", Value: "paid"}}, true)
			load(t, store, driver.Version{Collection: "orders", Key: "a", RecordedAt: instant(bson.Timestamp{T: 1_700_000_001}), Author: "eve", Data: []byte(`{}`)})
		}, want: "the store does not hold what was captured"},
		"something lacks": {then: func(t *testing.T, store *storage.Store, s *mongotest.Streams) {
			s.Put("b", first, false)
			load(t, store, driver.Version{Collection: "orders", Key: "a", RecordedAt: instant(bson.Timestamp{T: 1_700_000_000, I: 2}), Author: "eve", Deleted: true, Op: driver.OpDelete})
			s.Put("a", bson.D{{Key: "state", Value: "sent"}}, true)
		}, want: "it was changed, and is not there"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, s := onSQLite(t), mongotest.NewStreams(t)
			if s.Put("a", first, false); c.before != nil {
				c.before(s)
			}
			err := follow(t, store, s, c.o, c.filter)
			if c.then != nil && err == nil {
				c.then(t, store, s)
				err = follow(t, store, s, c.o, c.filter)
			}
			if err == nil || !strings.Contains(err.Error(), c.want) || driver.CodeOf(err) != driver.CodeInvalid {
				t.Errorf("%v (%s); want %q", err, driver.CodeOf(err), c.want)
			}
			if c.kept != "" && lines(t, store)[c.kept] == nil {
				t.Errorf("%q was not captured", c.kept)
			}
		})
	}
}

func load(t *testing.T, store *storage.Store, v driver.Version) {
	t.Helper()
	if _, err := store.Load(t.Context(), []driver.Version{v}); err != nil {
		t.Fatal(err)
	}
}

// A store with documents of its own is not captured into, and a server without change streams not captured.
func TestBegin(t *testing.T) {
	store, s := onSQLite(t), mongotest.NewStreams(t)
	load(t, store, driver.Version{Collection: "orders", Key: "a", RecordedAt: 1, Author: "eve", Data: []byte(`{}`)})
	if _, err := begin(t, store, s, capture.Options{}, ""); err == nil || !strings.Contains(err.Error(), "not captured: capture into another type") {
		t.Error(err)
	}
	store = onSQLite(t)
	if _, err := begin(t, store, s, capture.Options{}, ""); err != nil {
		t.Error(err)
	}
	other, err := mongostore.OpenSource(t.Context(), s.URI(), "others", "")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if _, err := capture.New(t.Context(), store, other, capture.Options{Type: store.Types()[0], Now: time.Now}); err == nil || !strings.Contains(err.Error(), "captured from shop.orders, and not from shop.others") {
		t.Error(err)
	}
	server := mongotest.NewServer(t)
	set, _, err := server.ReplicaSet(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	uri, _ := server.Database(t)
	another, err := mongostore.OpenSource(t.Context(), uri, "orders", "")
	switch {
	case err == nil:
		if another.Close(); set == "" {
			t.Error("a server without change streams was opened")
		}
	case set != "" || driver.CodeOf(err) != driver.CodeInvalid || !strings.Contains(err.Error(), "it must be a replica set"):
		t.Error(err)
	}
}

// Two captures at once make each version once, and who notes last is told of the other one.
func TestTwoAtOnce(t *testing.T) {
	store, s := onSQLite(t), mongotest.NewStreams(t)
	put := func(n int) {
		for i := range 20 {
			s.Put(int32(i), bson.D{{Key: "state", Value: fmt.Sprint(n)}}, true)
		}
	}
	put(0)
	var both [2]*capture.Capture
	for i := range both {
		var err error
		if both[i], err = begin(t, store, s, capture.Options{}, ""); err != nil {
			t.Fatal(err)
		}
	}
	var failed error
	for n := 1; n < 20 && failed == nil; n++ {
		put(n)
		if _, _, failed = both[n%2].Step(t.Context()); failed == nil && n%6 == 0 {
			failed = both[n/6%2].Note(t.Context())
		}
	}
	if driver.CodeOf(failed) != driver.CodeConflict {
		t.Errorf("both note how far they are: %v", failed)
	}
	mustFollow(t, store, s, capture.Options{}, "")
	compare(t, store, s)
}
