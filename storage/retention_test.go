package storage_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/fault"
	"github.com/asof/asof/storage/record"
)

// keepTypes is the fixture's types with a Keep of the projects.
func keepTypes(k *record.Keep) []*record.Type {
	types := fixtureTypes()
	types[0].Keep = k
	return types
}

// pruneAll prunes all that is due, and returns how many versions.
func pruneAll(t *testing.T, e *env, dry bool) (n int) {
	t.Helper()
	p := e.store.NewPruner(e.store.Types()[0], dry)
	for {
		done, err := p.Step(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if n += done.Versions; !done.More {
			return n
		}
	}
}

// earliestOf returns the instant that HISTORY_PRUNED tells; 0 for no error.
func earliestOf(t *testing.T, err error) driver.Instant {
	t.Helper()
	var e *fault.Error
	switch {
	case err == nil:
		return 0
	case errors.As(err, &e) && e.Code == fault.CodeHistoryPruned && e.Earliest > 0:
		return e.Earliest
	}
	t.Fatalf("got %v, want HISTORY_PRUNED with the earliest instant", err)
	return 0
}

// A store that prunes answers as one that does not, or says that the past was pruned: never
// anything else, and never of what has to be kept.
func TestRetention(t *testing.T) {
	for name, keep := range map[string]*record.Keep{
		"by number":           {Versions: 3},
		"the last one":        {Versions: 1},
		"by time":             {For: record.Period{Days: 2}},
		"by number and time":  {Versions: 2, For: record.Period{Days: 1, Time: 6 * time.Hour}},
		"by calendar":         {For: record.Period{Months: 1}},
		"more than there are": {Versions: 1000},
	} {
		t.Run(name, func(t *testing.T) {
			e, twin := newEnvOf(t, keepTypes(keep), nil), newEnv(t)
			r := rand.New(rand.NewPCG(7, uint64(len(name))))
			versions := map[string][]driver.Instant{} // by key
			keys := []string{"a", "b", "c", "d"}
			var times []driver.Instant
			write := func(n int) {
				for range n {
					wait := time.Duration(r.Int64N(int64(16 * time.Hour)))
					e.clock.advance(wait)
					twin.clock.advance(wait)
					key := keys[min(r.IntN(len(keys)), r.IntN(len(keys)))]
					data := fmt.Sprintf(`{"name":"%d","stargazers_count":%d,"tags":["t%d"]}`, r.IntN(3), r.IntN(3), r.IntN(2))
					if r.IntN(8) == 0 && len(versions[key]) > 0 {
						data = ""
					}
					at := e.load("software", key, data)
					if other := twin.load("software", key, data); other != at {
						t.Fatal("the clocks differ")
					}
					versions[key] = append(versions[key], at)
					times = append(times, at, at-1)
				}
			}
			pruned := 0
			for range 4 {
				write(40)
				e.clock.advance(record.Grace)
				twin.clock.advance(record.Grace)
				due := pruneAll(t, e, true)
				n := pruneAll(t, e, false)
				if n != due {
					t.Errorf("%d versions were pruned, %d were said to be due", n, due)
				}
				if again := pruneAll(t, e, false); again != 0 {
					t.Errorf("%d more were pruned at once", again)
				}
				pruned += n
				e.compare(t, twin, keep, keys, versions, times)
			}
			if (pruned == 0) != (keep.Versions == 1000) {
				t.Errorf("%d versions were pruned", pruned)
			}
		})
	}
}

// compare compares every way to read with a store that keeps all.
func (e *env) compare(t *testing.T, twin *env, keep *record.Keep, keys []string, versions map[string][]driver.Instant, times []driver.Instant) {
	t.Helper()
	ctx, all := e.begin(), twin.begin()
	now, _ := storage.InstantOf(ctx)
	project := e.store.Types()[0]
	kept := func(key string, n int) bool { // what Keep promises
		of := versions[key]
		if n >= len(of) {
			return true
		}
		superseded := of[n].Time()
		from := now.Time().AddDate(0, -keep.For.Months, -keep.For.Days).Add(-keep.For.Time)
		return keep.Versions > 0 && n > len(of)-keep.Versions ||
			keep.For != (record.Period{}) && superseded.After(from)
	}
	horizon := driver.Instant(0)
	for _, key := range keys {
		complete := driver.Instant(0)
		for n := range versions[key] {
			if n++; !kept(key, n) {
				complete = versions[key][n]
			}
		}
		horizon = max(horizon, complete)
		for _, at := range times {
			got, err := e.store.Document(ctx, project, key, &at, nil, nil)
			want, wantErr := twin.store.Document(all, twin.store.Types()[0], key, &at, nil, nil)
			if wantErr != nil {
				t.Fatal(wantErr)
			}
			first := len(versions[key]) == 0 || at < versions[key][0]
			if earliest := earliestOf(t, err); (earliest != 0) != (at < complete && !first) || earliest != 0 && earliest != complete {
				t.Fatalf("%s as of %s: %v; it is complete from %s on", key, at, err, complete)
			} else if earliest == 0 && !sameDocument(got, want) {
				t.Fatalf("%s as of %s: %v, want %v", key, at, got, want)
			}
		}
		for n := 1; n <= len(versions[key]); n++ {
			got, err := e.store.Document(ctx, project, key, nil, &n, nil)
			want, _ := twin.store.Document(all, twin.store.Types()[0], key, nil, &n, nil)
			if earliest := earliestOf(t, err); (earliest != 0) == kept(key, n) || earliest == 0 && !sameDocument(got, want) {
				t.Fatalf("%s, version %d: %v, %v, want %v", key, n, got, err, want)
			}
		}
		e.compareHistory(t, twin, key, complete)
	}
	for _, at := range times {
		args := &storage.PageArgs{AsOf: &at, Where: map[string]any{"stars": map[string]any{"lt": 2}}, OrderBy: []*storage.OrderInput{{Field: "name", Direction: "ASC"}}}
		got, err := e.store.Page(ctx, project, args)
		want, wantErr := twin.store.Page(all, twin.store.Types()[0], args)
		if wantErr != nil {
			t.Fatal(wantErr)
		}
		if earliest := earliestOf(t, err); (earliest != 0) != (at < horizon) || earliest != 0 && earliest != horizon {
			t.Fatalf("a list as of %s: %v; the horizon is %s", at, err, horizon)
		} else if earliest == 0 && !slices.EqualFunc(got.Docs, want.Docs, sameDocument) {
			t.Fatalf("a list as of %s: %d documents, want %d", at, len(got.Docs), len(want.Docs))
		}
		args.CountOnly = true
		if _, err := e.store.Page(ctx, project, args); (earliestOf(t, err) != 0) != (at < horizon) {
			t.Fatalf("a total as of %s: %v; the horizon is %s", at, err, horizon)
		}
	}
}

// compareHistory compares what is told of a document's past: all that is not before an instant.
func (e *env) compareHistory(t *testing.T, twin *env, key string, complete driver.Instant) {
	t.Helper()
	ctx, all := e.begin(), twin.begin()
	got, want := must(e.projects.History(ctx, key))(t), must(twin.projects.History(all, key))(t)
	if got == nil {
		return
	}
	if earliest := must(got.Earliest(ctx))(t); complete != 0 && earliest != complete {
		t.Fatalf("the earliest of %s is %s, want %s", key, earliest, complete)
	}
	changes := must(e.store.DocumentChangelog(ctx, got.Document, nil, nil, nil, nil, ptr(500), nil, nil, nil))(t)
	wanted := must(twin.store.DocumentChangelog(all, want.Document, nil, nil, nil, nil, ptr(500), nil, nil, nil))(t)
	if complete != 0 { // what the first version that is left has changed, nobody knows
		wanted.Nodes = slices.DeleteFunc(wanted.Nodes, func(c *storage.FieldChange) bool { return c.ChangedAt() <= complete })
	}
	if len(changes.Nodes) != len(wanted.Nodes) {
		t.Fatalf("the changelog of %s has %d changes, want %d", key, len(changes.Nodes), len(wanted.Nodes))
	}
	for i, c := range changes.Nodes {
		if w := wanted.Nodes[i]; c.Path != w.Path || c.Version() != w.Version() || string(c.NewValue) != string(w.NewValue) || string(c.OldValue) != string(w.OldValue) {
			t.Fatalf("change %d of %s: %+v, want %+v", i, key, c, w)
		}
	}
	list := must(e.store.Versions(ctx, got.Document, &storage.VersionsArgs{First: ptr(500)}))(t)
	total := must(list.TotalCount(ctx))(t)
	full := must(twin.store.Versions(all, want.Document, &storage.VersionsArgs{First: ptr(500)}))(t)
	if pruned := must(got.PrunedVersions(ctx))(t); total != len(list.Docs) || total+pruned != len(full.Docs) {
		t.Fatalf("%s has %d versions, total %d, and %d were pruned, of %d", key, len(list.Docs), total, pruned, len(full.Docs))
	}
	blame, err := e.store.Blame(ctx, got.Document, nil)
	if err != nil && got.Current == nil { // what was deleted was pruned
		earliestOf(t, err)
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	blamed := must(twin.store.Blame(all, want.Document, nil))(t)
	for i, b := range blame {
		if w := blamed[i]; b.Path != w.Path || b.Version() != w.Version() && !(b.AtOrBefore() && b.Version() > w.Version()) || b.AtOrBefore() && complete == 0 {
			t.Fatalf("%s of %s: version %d (or before: %t), want %d", b.Path, key, b.Version(), b.AtOrBefore(), w.Version())
		}
	}
	if complete == 0 {
		return
	}
	before := complete - 1
	_, err = e.store.DocumentChangelog(ctx, got.Document, nil, nil, &before, nil, nil, nil, nil, nil)
	if earliestOf(t, err) != complete {
		t.Errorf("a changelog from before: %v", err)
	}
	if _, err = e.store.Versions(ctx, got.Document, &storage.VersionsArgs{From: &before}); earliestOf(t, err) != complete {
		t.Errorf("versions from before: %v", err)
	}
	oldest := string(list.AppendCursor(nil, len(list.Docs)-1))
	if _, err = e.store.Versions(ctx, got.Document, &storage.VersionsArgs{After: &oldest}); earliestOf(t, err) != complete {
		t.Errorf("versions behind the oldest that is left: %v", err)
	}
	if _, err = e.store.Diff(ctx, got.Document, storage.VersionRef{AsOf: &before}, nil); earliestOf(t, err) != complete {
		t.Errorf("a difference with before: %v", err)
	}
	if _, err = e.store.Node(ctx, "Project:"+key+"@1"); earliestOf(t, err) != complete {
		t.Errorf("a node: %v", err)
	}
	docs, bad, err := e.store.Nodes(ctx, []string{"Project:" + key, "Project:" + key + "@1"})
	if err != nil || len(bad) != 1 || bad[0].Index != 1 || earliestOf(t, bad[0].Err) != complete || (docs[0] == nil) != (got.Current == nil) {
		t.Errorf("nodes: %v, %v, %v", docs, bad, err)
	}
}

func sameDocument(a, b *storage.Document) bool {
	if a == nil || b == nil {
		return a == b
	}
	text := func(d *storage.Document) string {
		name, _ := d.String(fName)
		stars, _ := d.OptInt(fStars)
		return fmt.Sprint(d.ID(), d.Version(), name, stars == nil || *stars == 0, d.VersionInfo().RecordedAt(), d.VersionInfo().SupersededAt())
	}
	return text(a) == text(b)
}

// A watch that begins where versions were pruned is told to begin anew.
func TestWatchOfThePruned(t *testing.T) {
	e := newEnvOf(t, keepTypes(&record.Keep{Versions: 1}), nil)
	first := e.load("software", "a", `{"name":"1","tags":[]}`)
	for i := range 5 {
		e.load("software", "a", fmt.Sprintf(`{"name":"%d","tags":[]}`, i))
	}
	e.clock.advance(2 * record.Grace)
	if n := pruneAll(t, e, false); n != 5 {
		t.Fatalf("%d were pruned", n)
	}
	for _, collections := range [][]string{nil, {"software"}} {
		for _, err := range e.follow(t.Context(), storage.WatchQuery{Collections: collections, Since: &first}) {
			var resync *storage.ResyncError
			if !errors.As(err, &resync) || !resync.Pruned {
				t.Errorf("of %v: %v", collections, err)
			}
			break
		}
	}
	for ev, err := range e.follow(t.Context(), storage.WatchQuery{Collections: []string{"tags"}, Since: &first}) {
		if err != nil || !ev.Begins() {
			t.Errorf("of tags: %v", err)
		}
		break
	}
}

// What is loaded into the past is pruned as what was there, and what is due in a step that two
// make at once is pruned by one.
func TestPrunedAgain(t *testing.T) {
	e := newEnvOf(t, keepTypes(&record.Keep{For: record.Period{Days: 1}}), nil)
	e.load("software", "a", `{"name":"1","tags":[]}`)
	e.load("software", "a", `{"name":"2","tags":[]}`)
	e.clock.advance(48 * time.Hour)
	p, other := e.store.NewPruner(e.store.Types()[0], false), e.store.NewPruner(e.store.Types()[0], false)
	meanwhile := func() {
		if _, err := other.Step(t.Context()); err != nil {
			t.Error(err)
		}
	}
	e.engine.beforeCommit = meanwhile
	if _, err := p.Step(t.Context()); err == nil {
		t.Error("both have raised the horizon")
	}
	if n := pruneAll(t, e, false); n != 0 {
		t.Errorf("%d were pruned again", n)
	}
	at := driver.InstantOf(e.clock.Now().Add(-48 * time.Hour))
	if _, err := e.store.Document(e.begin(), e.store.Types()[0], "a", &at, nil, nil); err != nil {
		t.Error(err)
	}
	old := driver.InstantOf(e.clock.Now().Add(-24 * 365 * time.Hour))
	vs := []driver.Version{{Collection: "software", Key: "b", RecordedAt: old, Data: []byte(`{"name":"1","tags":[]}`)}, {Collection: "software", Key: "b", RecordedAt: old + 1, Data: []byte(`{"name":"2","tags":[]}`)}}
	if _, err := e.store.Load(t.Context(), vs); err != nil {
		t.Fatal(err)
	}
	e.engine.beforeCommit = meanwhile
	for range 3 { // the horizon does not rise
		if _, err := p.Step(t.Context()); err != nil {
			t.Error(err)
		}
	}
	at = old
	if _, err := e.store.Document(e.begin(), e.store.Types()[0], "b", &at, nil, nil); earliestOf(t, err) != old+1 {
		t.Errorf("as of %s: %v", old, err)
	}
	if n := pruneAll(t, e, false); n != 0 {
		t.Errorf("%d were pruned again", n)
	}
}

// A version stays for an hour after it was superseded, whatever is declared.
func TestGrace(t *testing.T) {
	e := newEnvOf(t, keepTypes(&record.Keep{Versions: 1}), nil)
	e.load("software", "a", `{"name":"1","tags":[]}`)
	e.load("software", "a", `{"name":"2","tags":[]}`)
	e.clock.advance(record.Grace - time.Minute)
	e.load("software", "a", `{"name":"3","tags":[]}`)
	for i, want := range []int{0, 1, 1, 0} {
		if n := pruneAll(t, e, false); n != want {
			t.Errorf("step %d: %d were pruned, want %d", i, n, want)
		}
		e.clock.advance(30 * time.Minute)
	}
}

// A period that begins before all times keeps all.
func TestKeptForEver(t *testing.T) {
	for _, years := range []int{2000, 300_000, 1_000_000} {
		e := newEnvOf(t, keepTypes(&record.Keep{For: record.Period{Years: years}}), nil)
		e.load("software", "a", `{"name":"1","tags":[]}`)
		e.load("software", "a", `{"name":"2","tags":[]}`)
		e.clock.advance(48 * time.Hour)
		if n := pruneAll(t, e, false); n != 0 {
			t.Errorf("of what is kept for %d years, %d versions were pruned", years, n)
		}
	}
}

// What another declaration has kept is pruned, and what one has pruned is missed under any other.
func TestKeepChanges(t *testing.T) {
	e := newEnvOf(t, keepTypes(&record.Keep{Versions: 4}), nil)
	begin := e.load("software", "a", `{"name":"0","tags":[]}`)
	for i := range 5 {
		e.load("software", "a", fmt.Sprintf(`{"name":"%d","tags":[]}`, i))
	}
	e.clock.advance(2 * record.Grace)
	for _, c := range []struct {
		keep *record.Keep
		want int
	}{{&record.Keep{Versions: 4}, 2}, {&record.Keep{Versions: 2}, 2}, {&record.Keep{For: record.Period{Time: time.Hour}}, 1}} {
		e.open(keepTypes(c.keep))
		if n := pruneAll(t, e, false); n != c.want {
			t.Errorf("%+v prunes %d versions, want %d", c.keep, n, c.want)
		}
	}
	e.open(keepTypes(nil))
	if err := e.store.LearnPruned(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, project := e.begin(), e.store.Types()[0]
	if _, err := e.store.Page(ctx, project, &storage.PageArgs{AsOf: &begin}); earliestOf(t, err) == 0 {
		t.Error("a list as of what was pruned, by a type that keeps all")
	}
	history := must(e.projects.History(ctx, "a"))(t)
	if n := must(history.PrunedVersions(ctx))(t); n != 5 {
		t.Errorf("%d versions were pruned, want 5", n)
	}
	list := must(e.store.Versions(ctx, history.Document, &storage.VersionsArgs{First: ptr(10)}))(t)
	if n := must(list.TotalCount(ctx))(t); n != 1 || len(list.Docs) != 1 {
		t.Errorf("%d versions, total %d, want 1", len(list.Docs), n)
	}
}

// open has the store opened with other types.
func (e *env) open(types []*record.Type) {
	e.t.Helper()
	store, err := storage.New(e.engine, types)
	if err != nil {
		e.t.Fatal(err)
	}
	e.store, e.projects = store, storage.NewCollection(store, types[0], func(d *storage.Document) *project { return &project{d} })
}

// Who expects a version that was pruned gets a conflict.
func TestConflictWithThePruned(t *testing.T) {
	e := newEnvOf(t, keepTypes(&record.Keep{Versions: 2}), nil)
	for i := range 4 {
		e.load("software", "a", fmt.Sprintf(`{"name":"%d","tags":[]}`, i))
	}
	e.clock.advance(2 * record.Grace)
	if n := pruneAll(t, e, false); n != 2 {
		t.Fatalf("%d were pruned", n)
	}
	ctx := e.begin()
	got := must(e.projects.Update(ctx, storage.UpdateInput{Key: "a", ExpectedVersion: 1, Patch: object{"name": "x"}}))(t)
	c, ok := got.(*storage.Conflict[*project])
	if !ok || c.ActualVersion != 4 || c.Mergeable || c.Current == nil {
		t.Fatalf("got %+v, want a conflict with version 4", got)
	}
	since := must(c.ChangesSince(ctx))(t)
	if len(since) != 1 || since[0].Version() != 4 || string(since[0].OldValue) != `"2"` {
		t.Errorf("changed since: %v", lines(since))
	}
}

// A document of which only pruned versions are loaded as yet is hidden where a rule hides some.
func TestOnlyThePrunedIsLoaded(t *testing.T) {
	types := keepTypes(&record.Keep{Versions: 1})
	types[0].Auth.Rows = "description = $sub"
	e := newEnvOf(t, types, nil)
	at := e.clock.advance(time.Second)
	if _, err := e.store.Load(t.Context(), []driver.Version{{Collection: "software", Key: "a", Number: 1, RecordedAt: at, Op: driver.OpPruned, Deleted: true}}); err != nil {
		t.Fatal(err)
	}
	if d, err := e.store.Document(e.as("ann"), types[0], "a", &at, nil, nil); d != nil || err != nil {
		t.Errorf("got %v, %v", d, err)
	}
}

// What is pruned while an operation, or a watch, goes on is not left out.
func TestPrunedMeanwhile(t *testing.T) {
	prepare := func() (e *env, times []driver.Instant) {
		e = newEnvOf(t, keepTypes(&record.Keep{Versions: 1}), nil)
		e.create("a", object{"name": "0"})
		for i := range 5 {
			times = append(times, e.get("a").VersionInfo().RecordedAt())
			e.update("ann", "a", i+1, object{"name": fmt.Sprint(i + 1)})
		}
		return e, times
	}
	prune := func(e *env, n int) {
		t.Helper()
		if got := pruneAll(t, e, false); got != n {
			t.Fatalf("%d were pruned, want %d", got, n)
		}
	}
	next := func(w *storage.Watch, most int) error {
		t.Helper()
		for {
			more, err := w.Next(t.Context(), func(*storage.Event) bool {
				most--
				return most >= 0
			})
			if err != nil || most <= 0 || !more {
				return err
			}
		}
	}
	watch := func(e *env, q storage.WatchQuery) *storage.Watch {
		return must(e.store.Watch(t.Context(), q))(t)
	}
	resync := func(err error) {
		t.Helper()
		if e, ok := errors.AsType[*storage.ResyncError](err); !ok || !e.Pruned {
			t.Errorf("got %v, want that versions were pruned", err)
		}
	}

	e, times := prepare()
	w := watch(e, storage.WatchQuery{Since: &times[0]})
	e.clock.advance(2 * record.Grace)
	prune(e, 5)
	resync(next(w, 10))

	e, times = prepare() // others have read what comes later
	later := watch(e, storage.WatchQuery{})
	e.create("b", object{"name": "0"})
	if err := next(later, 1); err != nil {
		t.Fatal(err)
	}
	w = watch(e, storage.WatchQuery{Since: &times[0]})
	if err := next(w, 1); err != nil {
		t.Fatal(err)
	}
	e.clock.advance(2 * record.Grace)
	prune(e, 5)
	resync(next(w, 10))

	e, times = prepare()
	at := times[4] // of the version before the last one
	e.clock.advance(record.Grace - 10*time.Second)
	ctx := e.begin()
	e.clock.advance(time.Minute)
	prune(e, 5)
	p, err := e.store.Page(ctx, e.store.Types()[0], &storage.PageArgs{AsOf: &at})
	if earliestOf(t, err) == 0 && len(p.Docs) != 1 {
		t.Errorf("a list as of %s has %d documents", at, len(p.Docs))
	}
}

// What was pruned elsewhere is missed where it is loaded into a type that keeps all, unless it is
// there in full.
func TestThePrunedIsLoaded(t *testing.T) {
	for name, of := range map[string]struct {
		batches int
		full    bool
	}{"at once": {1, false}, "one by one": {2, false}, "what is there": {2, true}} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			first, second := e.clock.advance(time.Second), e.clock.advance(time.Second)
			whole := []driver.Version{
				{Collection: "software", Key: "a", RecordedAt: first, Data: []byte(`{"name":"1","tags":[]}`)},
				{Collection: "software", Key: "a", RecordedAt: second, Data: []byte(`{"name":"2","tags":[]}`)},
			}
			lines := slices.Clone(whole)
			lines[0] = driver.Version{Collection: "software", Key: "a", RecordedAt: first, Op: driver.OpPruned, Deleted: true}
			if of.full {
				must(e.store.Load(t.Context(), slices.Clone(whole)))(t)
				e.open(fixtureTypes()) // which remembers nothing of that
			}
			for batch := range slices.Chunk(lines, 2/of.batches) {
				must(e.store.Load(t.Context(), batch))(t)
			}
			e.clock.advance(2 * record.Grace)
			for _, reopened := range []bool{false, true} {
				if reopened {
					e.open(fixtureTypes())
					if err := e.store.LearnPruned(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				ctx, project := e.begin(), e.store.Types()[0]
				want := second
				if of.full {
					want = 0
				}
				_, err := e.store.Page(ctx, project, &storage.PageArgs{AsOf: &first})
				if got := earliestOf(t, err); got != want {
					t.Errorf("a list: %v, want that it is complete from %s on", err, want)
				}
				if _, err := e.store.Document(ctx, project, "a", &first, nil, nil); earliestOf(t, err) != want {
					t.Errorf("the document: %v, want that it is complete from %s on", err, want)
				}
				if _, err := e.store.Page(ctx, project, &storage.PageArgs{AsOf: &second}); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
