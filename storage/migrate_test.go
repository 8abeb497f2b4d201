package storage_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/fault"
	"github.com/asof/asof/storage/record"
	"github.com/asof/asof/storage/seal"
	"github.com/asof/asof/storage/transfer"
)

// movedTypes are the fixture's types, some of whose fields were in another form.
func movedTypes() []*record.Type {
	types := fixtureTypes()
	fields := types[0].Fields
	types[0].Was = "Software"
	fields[fRelease].Was.Members = []string{"tag", "published_at"}
	fields[fRelease].Object.Fields[2].Was.Single = true
	fields[fTags].Was.Single = true
	fields[fPlan].Was.Enum = map[string]string{"GOLD": "PAID", "SILVER": "PAID"}
	return types
}

// histories are the versions of documents as they are stored, and in today's form.
func histories() (was, is map[string][]string) {
	was = map[string][]string{
		"a": {
			`{"name":"a","tags":"x","plan":"GOLD","tag":"v1","published_at":"2020-01-01"}`,
			`{"name":"a","tags":"x","plan":"SILVER","tag":"v2","published_at":"2020-01-01"}`,
			`{"name":"a2","tags":["x","y"],"plan":"FREE","tag":null,"releases":[{"notes":"n"},{"notes":["m"]}]}`,
			``,
			`{"name":"a3","tags":["y"],"plan":"PAID","current_release":{"tag":"v3"}}`,
		},
		"b": {
			`{"name":"b","tags":null,"tag":"v1","current_release":{"notes":"old"},"stargazers_count":3}`,
			`{"name":"b","tags":"y","tag":"v9","current_release":{"tag":"v1","notes":"old"},"stargazers_count":4}`,
		},
		"c": {`{"name":"c"}`, `{"name":"c","plan":"GOLD","tags":["z"]}`, `{"name":"c","plan":"PAID","tags":"z"}`},
	}
	is = map[string][]string{
		"a": {
			`{"name":"a","tags":["x"],"plan":"PAID","current_release":{"tag":"v1","published_at":"2020-01-01"}}`,
			`{"name":"a","tags":["x"],"plan":"PAID","current_release":{"tag":"v2","published_at":"2020-01-01"}}`,
			`{"name":"a2","tags":["x","y"],"plan":"FREE","releases":[{"notes":["n"]},{"notes":["m"]}]}`,
			``,
			`{"name":"a3","tags":["y"],"plan":"PAID","current_release":{"tag":"v3"}}`,
		},
		"b": {
			`{"name":"b","tags":null,"stargazers_count":3,"current_release":{"notes":["old"],"tag":"v1"}}`,
			`{"name":"b","tags":["y"],"stargazers_count":4,"current_release":{"tag":"v1","notes":["old"]}}`,
		},
		"c": {`{"name":"c"}`, `{"name":"c","plan":"PAID","tags":["z"]}`, `{"name":"c","plan":"PAID","tags":["z"]}`},
	}
	return was, is
}

func (e *env) loadAll(histories map[string][]string) {
	for n := range 5 {
		for _, key := range []string{"a", "b", "c"} {
			if n < len(histories[key]) {
				e.load("software", key, histories[key][n])
			}
		}
	}
}

// told is everything that a store says of its projects, in lines.
func (e *env) told() (out []string) {
	e.t.Helper()
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	wheres := []object{
		nil,
		{"tags": object{"has": "x"}},
		{"tags": object{"isEmpty": true}},
		{"tags": object{"hasNone": []any{"y"}}},
		{"plan": object{"eq": "PAID"}},
		{"plan": object{"isNull": true}},
		{"not": object{"plan": object{"in": []any{"FREE"}}}},
		{"currentRelease": object{"tag": object{"eq": "v1"}}},
		{"currentRelease": object{"isNull": true}},
		{"releases": object{"some": object{"notes": object{"has": "n"}}}},
		{"stars": object{"gt": 3}},
		{"plan": object{"eq": "PAID"}, "name": object{"startsWith": "a"}},
	}
	orders := [][]*storage.OrderInput{nil, {{Field: "plan", Direction: storage.Desc}}, {{Field: "name", Direction: storage.Desc}}}
	start := e.clock.Now()
	for n := range 12 {
		at := driver.InstantOf(start) - driver.Instant(n)*1_000_000
		for w, where := range wheres {
			for o, order := range orders {
				ctx := e.begin()
				var keys []string
				var after *string
				for {
					conn := must(e.projects.Page(ctx, where, order, ptr(2), after, nil, nil, &at, nil))(e.t)
					keys = append(keys, keysOf(conn.Nodes)...)
					if after = conn.PageInfo.EndCursor(); !conn.PageInfo.HasNextPage {
						total := must(conn.TotalCount(ctx))(e.t)
						say("%d where %d order %d: %v of %d", n, w, o, keys, total)
						break
					}
				}
			}
		}
	}
	for _, key := range []string{"a", "b", "c"} {
		ctx := e.begin()
		h := must(e.projects.History(ctx, key))(e.t)
		for _, change := range must(e.store.DocumentChangelog(ctx, h.Document, nil, nil, nil, nil, ptr(100), nil, nil, nil))(e.t).Nodes {
			say("%s@%d %v", key, change.Version(), lines([]*storage.FieldChange{change}))
		}
		for _, fields := range [][]string{{"tags"}, {"currentRelease"}, {"plan"}} {
			for _, change := range must(e.store.DocumentChangelog(ctx, h.Document, fields, nil, nil, nil, ptr(100), nil, nil, nil))(e.t).Nodes {
				say("%s@%d of %v: %v", key, change.Version(), fields, lines([]*storage.FieldChange{change}))
			}
		}
		d := e.get(key)
		for _, b := range must(e.store.Blame(ctx, d.Document, nil))(e.t) {
			say("blame of %s: %s is %s of %d", key, b.Path, b.Value, b.Version())
		}
		diff := must(e.store.Diff(ctx, d.Document, storage.VersionRef{Version: ptr(1)}, nil))(e.t)
		for _, change := range must(diff.Changes())(e.t) {
			say("diff of %s: %v", key, lines([]*storage.FieldChange{change}))
		}
	}
	return out
}

// A history in earlier forms says all that the same history says in today's form; what is
// stored stays as it is.
func TestTodaysForm(t *testing.T) {
	was, is := histories()
	e, want := newEnvOf(t, movedTypes(), nil), newEnvOf(t, movedTypes(), nil)
	e.loadAll(was)
	want.loadAll(is)
	if diff := cmp.Diff(want.told(), e.told()); diff != "" {
		t.Errorf("in today's form (-), in earlier ones (+):\n%s", diff)
	}
	for v, err := range e.store.Engine().Log(t.Context(), &driver.LogQuery{Collections: []string{"software"}}) {
		if must(v, err)(t); !v.Deleted && string(v.Data) != was[v.Key][v.Number-1] {
			t.Errorf("%s@%d is stored as %s", v.Key, v.Number, v.Data)
		}
	}
	node := must(e.store.Node(e.begin(), "Software:a@1"))(t)
	if node == nil || node.ID() != "Project:a@1" {
		t.Errorf("by the earlier name of the type: %v", node)
	}
}

// under opens the same documents with other types, as a server with another schema does.
func (e *env) under(sdl string, types []*record.Type, opts ...storage.Option) *env {
	e.t.Helper()
	store := must(storage.New(e.engine, types, opts...))(e.t)
	if _, err := store.UseSchema(e.t.Context(), sdl, true); err != nil {
		e.t.Fatal(err)
	}
	return &env{
		t: e.t, engine: e.engine, store: store, clock: e.clock,
		projects: storage.NewCollection(store, types[0], func(d *storage.Document) *project { return &project{d} }),
		tags:     storage.NewCollection(store, types[1], func(d *storage.Document) *tag { return &tag{d} }),
	}
}

// stars returns the stars of a project, in a version.
func (e *env) stars(key string, version *int) (*int, error) {
	p, err := e.projects.Get(e.begin(), key, nil, version)
	if err != nil {
		return nil, err
	}
	return p.OptInt(fStars)
}

// A migration is called for what was written under other schemas, is told under which, and is not
// called for what is written afterwards.
func TestMigration(t *testing.T) {
	e := newEnv(t)
	e.load("software", "a", `{"name":"a","rank":1}`)
	older := e.under("one", fixtureTypes())
	older.update("ann", "a", 1, object{"name": "b"})
	froms := map[uint32]int{}
	newer := e.under("two", fixtureTypes(), storage.WithMigrations(map[string]storage.Migration{
		"Project": func(old json.RawMessage, from uint32) (json.RawMessage, error) {
			froms[from]++
			var doc map[string]any
			if err := json.Unmarshal(old, &doc); err != nil {
				return nil, err
			}
			for i := range old { // it is its own
				old[i] = 'x'
			}
			doc["stargazers_count"] = doc["rank"]
			delete(doc, "rank")
			return json.Marshal(doc)
		},
	}))
	for _, version := range []*int{ptr(1), ptr(2), nil} {
		if n := must(newer.stars("a", version))(t); n == nil || *n != 1 {
			t.Errorf("the migrated value is %v", n)
		}
	}
	if froms[0] == 0 || froms[storage.SchemaNumber("one")] == 0 || len(froms) != 2 {
		t.Errorf("the migration was told %v", froms)
	}
	changes := lines(must(newer.update("ann", "a", 2, object{"stars": 7}).Changes())(t))
	if diff := cmp.Diff([]string{"REPLACE /stars 1 -> 7"}, changes); diff != "" {
		t.Error(diff)
	}
	clear(froms)
	if n := must(newer.stars("a", nil))(t); *n != 7 || len(froms) > 0 {
		t.Errorf("%d stars, and the migration was called for %v", *n, froms)
	}
	conn := must(newer.projects.Page(newer.begin(), object{"stars": object{"gt": 6}}, nil, nil, nil, nil, nil, nil, nil))(t)
	if len(conn.Nodes) != 1 {
		t.Errorf("found %v", keysOf(conn.Nodes))
	}
	log := must(newer.store.Changelog(newer.begin(), &storage.ChangelogWhere{Fields: []string{"stars"}}, nil, nil, nil, nil))(t)
	if diff := cmp.Diff([]string{"REPLACE /stars 1 -> 7", "ADD /stars -> 1"}, lines(log.Nodes)); diff != "" {
		t.Error(diff)
	}
	if _, err := storage.New(e.engine, fixtureTypes(), storage.WithMigrations(map[string]storage.Migration{"Projcet": nil})); err == nil {
		t.Error("a migration of no type is taken")
	}
}

// What a migration cannot bring into today's form is an error of that version: lists that need it fail, references and
// nodes beside it do not.
func TestMigrationFails(t *testing.T) {
	e := newEnv(t)
	for _, key := range []string{"panic", "error", "text", "nothing", "fine"} {
		e.load("tags", key, `{"name":"`+key+`"}`)
	}
	e.load("software", "a", `{"name":"a","tags":["fine","panic"]}`)
	e = e.under("two", fixtureTypes(), storage.WithMigrations(map[string]storage.Migration{
		"Tag": func(old json.RawMessage, from uint32) (json.RawMessage, error) {
			switch text := string(old); {
			case strings.Contains(text, "panic"):
				return json.RawMessage(text[:99999]), nil
			case strings.Contains(text, "error"):
				return nil, errors.New("is not ready")
			case strings.Contains(text, "text"):
				return json.RawMessage(`"text"`), nil
			case strings.Contains(text, "nothing"):
				return nil, nil
			}
			return old, nil
		},
	}))
	for key, why := range map[string]string{"panic": "panicked", "error": "is not ready", "text": "no JSON object", "nothing": "no JSON object"} {
		_, err := e.tags.Get(e.begin(), key, nil, nil)
		wantError(t, err, fault.CodeInternal, "Tag", key, "version 1", why)
		_, err = e.tags.Update(e.begin(), storage.UpdateInput{Key: key, ExpectedVersion: 1, Patch: object{"name": "b"}})
		wantError(t, err, fault.CodeInternal, why)
	}
	_, err := e.tags.Page(e.begin(), nil, nil, nil, nil, nil, nil, nil, nil)
	wantError(t, err, fault.CodeInternal, "version 1")
	docs := must(e.store.GetKeys(e.begin(), e.tags.Type(), []storage.KeyAt{{Key: "fine", At: 1 << 60}, {Key: "panic", At: 1 << 60}}, nil))(t)
	if err := storage.PrunedError(e.begin(), docs[0]); err != nil {
		t.Error(err)
	}
	wantError(t, storage.PrunedError(e.begin(), docs[1]), fault.CodeInternal, "panicked")
	nodes, bad, err := e.store.Nodes(e.begin(), []string{"Tag:error", "Tag:fine"})
	if err != nil || nodes[1] == nil || len(bad) != 1 || bad[0].Index != 0 {
		t.Errorf("nodes: %v, %v, %v", nodes, bad, err)
	}
	found := 0
	if err := e.store.Mismatches(t.Context(), func(storage.Mismatch) { found++ }); err != nil || found != 4 {
		t.Errorf("%d do not fit: %v", found, err)
	}
}

// Of a type that not everybody may read, no client is told what a migration fails of, nor of which document.
func TestMigrationFailsInPrivate(t *testing.T) {
	types := fixtureTypes()
	types[0].Auth.Read = []string{"reader"}
	fails := map[string]storage.Migration{"Project": func(json.RawMessage, uint32) (json.RawMessage, error) { return nil, errors.New("secret") }}
	e := newEnvOf(t, types, nil, storage.WithMigrations(fails))
	e.load("software", "hidden", `{"name":"a"}`)
	_, err := e.projects.Get(e.begin(), "hidden", nil, nil)
	wantError(t, err, fault.CodeInternal, "Project", "the log of the server")
	if strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "hidden") {
		t.Error(err)
	}
	if cause := errors.Unwrap(err); cause == nil || !strings.Contains(cause.Error(), "secret") || !strings.Contains(cause.Error(), "hidden") {
		t.Errorf("the log is told %v", cause)
	}
	if _, err := e.store.Rewrite(t.Context(), e.projects.Type()); err == nil || !strings.Contains(err.Error(), `"hidden", version 1`) {
		t.Errorf("who rewrites is told %v", err)
	}
}

// What was loaded while documents were rewritten is found.
func TestRewriteDuringALoad(t *testing.T) {
	e := newEnv(t)
	e.load("software", "a", `{"name":"n","tags":"x"}`)
	newer := e.under("two", movedTypes())
	e.engine.beforeCommit = func() { // of the note: all was read
		e.engine.beforeCommit = func() { e.load("software", "b", `{"name":"n","tags":"x"}`) }
	}
	if n := must(newer.store.Rewrite(t.Context(), newer.projects.Type()))(t); n != 1 {
		t.Errorf("%d documents were rewritten", n)
	}
	conn := must(newer.projects.Page(newer.begin(), object{"tags": object{"has": "x"}}, nil, nil, nil, nil, nil, nil, nil))(t)
	if diff := cmp.Diff([]string{"a", "b"}, keysOf(conn.Nodes)); diff != "" {
		t.Error(diff)
	}
}

// Several that rewrite at once make one new version of each document.
func TestRewritesRace(t *testing.T) {
	e := newEnv(t)
	for n := range 40 {
		e.load("software", fmt.Sprint("k", n), `{"name":"n","tags":"x"}`)
	}
	newer := e.under("two", movedTypes())
	written := make(chan int)
	for range 3 {
		go func() {
			n, err := newer.store.Rewrite(t.Context(), newer.projects.Type())
			if err != nil {
				t.Error(err)
			}
			written <- n
		}()
	}
	if n := <-written + <-written + <-written; n != 40 {
		t.Errorf("%d versions were written of 40 documents", n)
	}
	for v, err := range e.engine.Log(t.Context(), &driver.LogQuery{Collections: []string{"software"}}) {
		if must(v, err)(t); v.Number > 2 || v.Number == 2 && string(v.Data) != `{"name":"n","tags":["x"]}` {
			t.Errorf("%s@%d: %s", v.Key, v.Number, v.Data)
		}
	}
}

// What is erased is gone from versions in earlier forms, too.
func TestEraseEarlierForms(t *testing.T) {
	types := movedTypes()
	types[0].Auth.Erase = []string{"eraser"}
	e := newEnvOf(t, types, nil)
	e.load("software", "a", `{"name":"a","tags":"secret1","tag":"secret2","published_at":"2020-01-01"}`)
	e.load("software", "a", `{"name":"a","tags":["x"],"tag":"secret3"}`)
	ctx := storage.WithActor(e.begin(), storage.Actor{ID: "ann", Roles: []string{"eraser"}})
	res := must(e.projects.Erase(ctx, storage.EraseInput{Key: "a", ExpectedVersion: 2, Reason: "asked", Paths: []string{"/tags", "/currentRelease/tag"}}))(t)
	if _, ok := res.(*storage.Success[*project]); !ok {
		t.Fatalf("%+v", res)
	}
	for v, err := range e.engine.Log(t.Context(), &driver.LogQuery{Collections: []string{"software"}}) {
		if must(v, err)(t); strings.Contains(string(v.Data), "secret") {
			t.Errorf("version %d still has %s", v.Number, v.Data)
		}
	}
	p := must(e.projects.Get(e.begin(), "a", nil, ptr(1)))(t)
	if tags, err := p.RefKeys(fTags); err != nil || len(tags) != 0 {
		t.Errorf("the tags that were erased: %v, %v", tags, err)
	}
	if day, err := must(p.Object.Object(fRelease))(t).OptString(1); err != nil || day == nil || *day != "2020-01-01" {
		t.Errorf("what was beside what was erased: %v, %v", day, err)
	}
	e.load("software", "b", `{"name":"b","plan":"GOLD","tag":"secret"}`)
	e.load("software", "b", `{"name":"b","plan":"GOLD","tag":"v2"}`)
	e.load("software", "b", `{"name":"b","plan":"GOLD","tag":"v3"}`)
	ctx = storage.WithActor(e.begin(), storage.Actor{ID: "ann", Roles: []string{"eraser"}})
	in := storage.EraseInput{Key: "b", ExpectedVersion: 3, Reason: "asked", Paths: []string{"/currentRelease/tag"}, Versions: &storage.VersionRange{To: ptr(1)}}
	if res := must(e.projects.Erase(ctx, in))(t); res.(*storage.Success[*project]).Version != 4 {
		t.Fatalf("%+v", res)
	}
	to := newTarget(t, nil)
	must(e.archive(to))(t)
	e.wantSame(to)
	var export strings.Builder
	must(transfer.Export(t.Context(), e.store, &export, transfer.ExportOptions{}))(t)
	imported := newTarget(t, nil)
	must(transfer.Import(t.Context(), imported.store, strings.NewReader(export.String()), transfer.ImportOptions{Lenient: true}))(t)
	e.wantSame(imported)
}

// Stores note their own schemas, so that an archive has none of its source's.
func TestArchiveHasItsOwnSchemas(t *testing.T) {
	e := newEnv(t)
	e.load("tags", "a", `{"name":"a"}`)
	e = e.under("one", fixtureTypes())
	to := newTarget(t, nil).under("two", fixtureTypes())
	must(e.archive(to))(t)
	to.under("three", fixtureTypes())
	e = e.under("four", fixtureTypes())
	e.load("tags", "a", `{"name":"b"}`)
	must(e.archive(to))(t)
	if differences, err := must(storage.NewArchive(t.Context(), e.store, to.store))(t).Verify(t.Context()); err != nil || len(differences) > 0 {
		t.Errorf("it differs: %q, %v", differences, err)
	}
	e.wantSame(to)
}

// A version that was written in today's form, after one in an earlier form, says what it changes in today's names.
func TestChangedAfterAnEarlierForm(t *testing.T) {
	e := newEnvOf(t, movedTypes(), nil)
	e.load("software", "a", `{"name":"a","tag":"v1"}`)
	e = e.under("two", movedTypes())
	e.update("ann", "a", 1, object{"currentRelease": nil})
	p := e.get("a")
	if diff := cmp.Diff([]string{"currentRelease"}, changedFields(t, p.VersionInfo())); diff != "" {
		t.Error(diff)
	}
	changes := must(e.store.DocumentChangelog(e.begin(), p.Document, []string{"currentRelease"}, nil, nil, nil, nil, nil, nil, nil))(t).Nodes
	if len(changes) != 2 || changes[0].Version() != 2 {
		t.Errorf("changes: %v", lines(changes))
	}
}

// filtered notes whether an engine was asked to filter.
type filtered struct {
	driver.Engine
	by bool
}

func (f *filtered) Query(ctx context.Context, q *driver.Query) ([]*driver.Version, error) {
	if q.Collection == "software" {
		f.by = len(driver.Fields(q.Filter)) > 0
	}
	return f.Engine.Query(ctx, q)
}

// many is an engine that notes how many documents are read at once.
type many struct {
	driver.Engine
	most int
}

func (m *many) Query(ctx context.Context, q *driver.Query) ([]*driver.Version, error) {
	vs, err := m.Engine.Query(ctx, q)
	m.most = max(m.most, len(vs))
	return vs, err
}

// Few of the documents that are rewritten are in memory.
func TestRewriteOfMany(t *testing.T) {
	e := newEnv(t)
	const documents = 200
	for i := range documents {
		e.load("software", fmt.Sprint(i), `{"name":"a","tags":"w"}`)
	}
	e.under("one", fixtureTypes())
	asked := &many{Engine: e.engine.Engine}
	e.engine.Engine = asked
	newer := e.under("two", movedTypes())
	if n := must(newer.store.Rewrite(t.Context(), newer.projects.Type()))(t); n != documents || asked.most == 0 || asked.most > documents/4 {
		t.Errorf("%d documents were rewritten, %d read at once", n, asked.most)
	}
}

// Where all documents of a list have to be read, few large ones are in memory, and small ones are read together.
func TestListOfWhatIsLarge(t *testing.T) {
	for size, want := range map[int][2]int{200 << 10: {1, 40}, 10: {50, 100}} {
		e := newEnv(t)
		const documents = 100
		for i := range documents {
			e.load("software", fmt.Sprintf("%03d", i), fmt.Sprintf(`{"name":"a","tags":"w","description":"%0*d"}`, size, 0))
		}
		e.under("one", fixtureTypes())
		asked := &many{Engine: e.engine.Engine}
		e.engine.Engine = asked
		newer := e.under("two", movedTypes())
		conn := must(newer.projects.Page(newer.begin(), object{"tags": object{"hasAny": []any{"w"}}}, nil, nil, nil, nil, nil, nil, nil))(t)
		if n := must(conn.TotalCount(newer.begin()))(t); n != documents || asked.most < want[0] || asked.most > want[1] {
			t.Errorf("%d documents of %d bytes were found, %d read at once", n, size, asked.most)
		}
	}
}

// The filter of a list in another form ends with the operation, within a document: a list of it
// has thousands of elements, and a filter hundreds of conditions.
func TestListsInAnotherFormEndWithTheirContext(t *testing.T) {
	e := newEnv(t)
	e.load("software", "a", `{"name":"a","tags":["w"`+strings.Repeat(`,"some-tag"`, 9_000)+`]}`)
	e.under("one", fixtureTypes())
	newer := e.under("two", movedTypes())
	conditions := make([]any, 100)
	for i := range conditions {
		conditions[i] = object{"tags": object{"hasAny": []any{fmt.Sprint("z", i)}}}
	}
	ask := func(ctx context.Context) error {
		_, err := newer.projects.Page(ctx, object{"or": conditions}, nil, nil, nil, nil, nil, nil, nil)
		return err
	}
	read := &countedContext{Context: newer.begin(), most: 1 << 30}
	all := allocated(func() {
		if err := ask(read); err != nil {
			t.Error(err)
		}
	})
	ends := &countedContext{Context: newer.begin(), most: 8} // of thousands of times
	few := allocated(func() { wantError(t, ask(ends), fault.CodeUnavailable, "") })
	if few > all/3 {
		t.Errorf("%d bytes are allocated after the end, and %d for all", few, all)
	}
}

// countedContext ends when its error was asked for so many times.
type countedContext struct {
	context.Context
	asked, most int
}

func (c *countedContext) Err() error {
	if c.asked++; c.asked > c.most {
		return context.DeadlineExceeded
	}
	return nil
}

// Documents are rewritten in today's form as new versions, once; from then on the engine filters, until documents in
// another form may be there again.
func TestRewrite(t *testing.T) {
	e := newEnv(t)
	was, _ := histories()
	e.loadAll(was)
	e.under("one", fixtureTypes())
	asked := &filtered{Engine: e.engine.Engine}
	e.engine.Engine = asked
	newer := e.under("two", movedTypes())
	byEngine := func(at *driver.Instant) bool {
		t.Helper()
		conn := must(newer.projects.Page(newer.begin(), object{"plan": object{"eq": "PAID"}, "tags": object{"hasAny": []any{"y", "z"}}}, nil, nil, nil, nil, nil, at, nil))(t)
		if diff := cmp.Diff([]string{"a", "c"}, keysOf(conn.Nodes)); diff != "" {
			t.Error(diff)
		}
		return asked.by
	}
	before := driver.InstantOf(e.clock.Now())
	if byEngine(nil) {
		t.Error("the engine filters what has another form")
	}
	e.engine.beforeCommit = func() { e.load("software", "b", `{"name":"b","tags":"w"}`) } // as another server may
	if n := must(newer.store.Rewrite(t.Context(), newer.projects.Type()))(t); n != 2 {    // a is in today's form
		t.Errorf("%d documents were rewritten", n)
	}
	if n := must(newer.store.Rewrite(t.Context(), newer.projects.Type()))(t); n != 0 {
		t.Errorf("%d documents were rewritten again", n)
	}
	if !byEngine(nil) {
		t.Error("the engine does not filter what was rewritten")
	}
	if byEngine(&before) {
		t.Error("the engine filters the past")
	}
	v := must(e.engine.Get(t.Context(), "software", []driver.Ref{{Key: "c", At: 1 << 60}}, nil))(t)[0]
	if string(v.Data) != `{"name":"c","plan":"PAID","tags":["z"]}` || v.Number != 4 || v.Op != driver.OpUpdate || seal.Schema(v.Seal) != storage.SchemaNumber("two") ||
		!slices.Equal(v.Changed, []string{"tags"}) {
		t.Errorf("rewritten: %+v", v)
	}
	e.under("one", fixtureTypes())
	if byEngine(nil) {
		t.Error("the engine filters though a server with another schema writes")
	}
	e.under("two", movedTypes())
	if byEngine(nil) {
		t.Error("the engine filters though that server may have written in its form")
	}
	must(newer.store.Rewrite(t.Context(), newer.projects.Type()))(t)
	if !byEngine(nil) {
		t.Error("the engine does not filter what was rewritten again")
	}
	e.load("software", "d", `{"name":"d","tags":"w"}`)
	if byEngine(nil) {
		t.Error("the engine filters though versions were loaded since")
	}
	known := must(newer.store.Schemas(t.Context()))(t)
	if len(known) != 3 || known[0].Versions != 12 || known[2].Versions != 2 || known[2].SDL != "two" || !known[2].Current || known[1].Current {
		t.Errorf("known: %+v", known)
	}
}
