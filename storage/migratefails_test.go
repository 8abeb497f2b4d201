package storage_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/fault"
	"github.com/asof/asof/storage/record"
	"github.com/asof/asof/storage/seal"
)

// onProjects is a migration of projects.
func onProjects(m storage.Migration) storage.Option {
	return storage.WithMigrations(map[string]storage.Migration{"Project": m})
}

// failsOf fails for documents that have a text in them.
func failsOf(text string) storage.Migration {
	return func(old json.RawMessage, _ uint32) (json.RawMessage, error) {
		if strings.Contains(string(old), text) {
			return nil, errors.New("this one not")
		}
		return old, nil
	}
}

// What a migration fails for is an error of that event, and watches go on: those that share what they read, and those
// of the past. Who may read nothing is told nothing.
func TestWatchesOfWhatCannotBeRead(t *testing.T) {
	for _, rules := range []bool{false, true} {
		types := fixtureTypes()
		if rules {
			types[0].Auth.Read = []string{"reader"}
			types[0].Auth.Rows = `description != "mine" or $sub = "bob"`
		}
		e := newEnvOf(t, fixtureTypes(), nil)
		older, newer := e.under("one", fixtureTypes()), e.under("two", types, onProjects(failsOf("bad")))
		since := e.clock.advance(0)
		watch := func(q storage.WatchQuery, roles ...string) func() []string {
			ctx := newer.by("ann", nil, roles...)
			w := must(newer.store.Watch(ctx, q))(t)
			return func() (told []string) {
				for more := true; more; {
					more = must(w.Next(ctx, func(event *storage.Event) bool {
						text := event.Key()
						for told, err := range eventsOf(newer.projects.DocumentsChanged(event.Context(newer.by("ann", nil, roles...)), nil, nil)) {
							if err != nil {
								text = err.Error()
							} else {
								text += " " + string(told.Kind())
							}
						}
						told = append(told, text)
						return true
					}))(t)
				}
				return told
			}
		}
		defer newer.store.Notify(func() {})() // so that rounds are kept
		live, nothing := watch(storage.WatchQuery{}, "reader"), watch(storage.WatchQuery{}, "none")
		older.create("a", object{"name": "fine"})
		older.create("b", object{"name": "bad"})
		older.create("c", object{"name": "fine"})
		must(older.projects.Delete(older.as("ann"), storage.DeleteInput{Key: "b", ExpectedVersion: 1}))(t)
		e.clock.advance(1)
		why, gone := `Project "b", version 1, cannot be read in today's form: its migration failed: this one not; correct it in resolvers/migrations.go`, "b LEFT"
		if rules {
			why = "a Project cannot be read in today's form: the log of the server says which one, and why"
			gone = why // nobody knows who could read it
		}
		want := []string{"a ENTERED", why, "c ENTERED", gone}
		for name, got := range map[string][]string{"live": live(), "of the past": watch(storage.WatchQuery{Since: &since}, "reader")(), "by keys": watch(storage.WatchQuery{Since: &since, Collections: []string{"software"}, Keys: []string{"a", "b", "c"}}, "reader")()} {
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s, rules: %t:\n%s", name, rules, diff)
			}
		}
		if got := nothing(); rules && got != nil {
			t.Errorf("who may read nothing is told %q", got)
		}
	}
}

// eventsOf yields what a channel has, or the error.
func eventsOf[T any](from <-chan T, err error) func(func(T, error) bool) {
	return func(yield func(T, error) bool) {
		if err != nil {
			yield(*new(T), err)
			return
		}
		for v := range from {
			if !yield(v, nil) {
				return
			}
		}
	}
}

// What is erased by path is gone where a migration fails, too, and is migrated once: no migration brings it back, makes a
// value twice, or fails of what is left.
func TestEraseWhatMigrationsFailFor(t *testing.T) {
	types := erasableTypes()
	e := newEnvOf(t, types, nil)
	e.load("software", "a", `{"name":"A","about":"secret-1","stargazers_count":2}`)
	older := e.under("one", types)
	older.update("ann", "a", 1, object{"stars": 3})
	e.load("software", "a", `{"name":"bad","about":"secret-2","stargazers_count":4}`)
	e.load("software", "a", `{"name":"B","stargazers_count":5}`)
	calls := 0
	e = e.under("two", types, onProjects(func(old json.RawMessage, from uint32) (json.RawMessage, error) {
		var doc struct {
			Name        string `json:"name"`
			About       string `json:"about"`
			Description string `json:"description,omitempty"`
			Stars       int    `json:"stargazers_count"`
		}
		if err := json.Unmarshal(old, &doc); err != nil || doc.Name == "bad" {
			return nil, errors.Join(err, errors.New("this one not"))
		}
		calls++
		doc.Description, doc.Stars = "secret: "+doc.About, doc.Stars*100 // about stays
		return json.Marshal(doc)
	}))
	in := storage.EraseInput{Key: "a", ExpectedVersion: 4, Reason: "r", Paths: []string{"/description"}}
	must(e.erase(in))(t)
	read := func(e *env, number int) string {
		p := must(e.projects.Get(e.begin(), "a", nil, &number))(t)
		name, err1 := p.OptString(fName)
		description, err2 := p.OptString(fDescription)
		stars, err3 := p.OptInt(fStars)
		if err := errors.Join(err1, err2, err3); err != nil {
			t.Errorf("version %d: %v", number, err)
		}
		text, _ := json.Marshal([]any{name, description, stars})
		return string(text)
	}
	calls = 0
	want := []string{`["A",null,200]`, `["A",null,300]`, `[null,null,null]`, `["B",null,500]`, `["B",null,500]`}
	for i, w := range want {
		if got := read(e, i+1); got != w {
			t.Errorf("version %d reads as %s, want %s", i+1, got, w)
		}
	}
	if calls != 0 {
		t.Errorf("what is in today's form was migrated %d times", calls)
	}
	for _, v := range e.versions() {
		if text := string(v.Data); strings.Contains(text, "secret: ") || strings.Contains(text, "secret-2") {
			t.Errorf("version %d still holds %s", v.Number, v.Data)
		}
		if known := seal.Schema(v.Seal); v.Collection == "software" && v.Number < 3 && known != storage.SchemaNumber("two") {
			t.Errorf("version %d has the schema %08x", v.Number, known)
		}
	}
	// A later migration is told the form that it has, and may fail of what was erased.
	later := e.under("three", types, onProjects(func(old json.RawMessage, from uint32) (json.RawMessage, error) {
		if from == storage.SchemaNumber("one") {
			return nil, errors.New("is not of that schema")
		}
		return failsOf("asof:erased")(old, from)
	}))
	for i, w := range want {
		if got := read(later, i+1); got != w {
			t.Errorf("under another schema, version %d reads as %s, want %s", i+1, got, w)
		}
	}
	in.ExpectedVersion, in.Paths = 5, []string{"/name"}
	in.Versions = &storage.VersionRange{To: ptr(3)}
	must(later.erase(in))(t)
	if got := read(later, 1); got != `[null,null,null]` { // where its name is, nobody knows
		t.Errorf("erased again, version 1 reads as %s", got)
	}
	other := newTarget(t, nil)
	must(e.archive(other))(t)
	e.wantSame(other)
}

// A document whose last version cannot be read can be erased as a whole, unless rows have a rule.
func TestEraseWhatCannotBeRead(t *testing.T) {
	for _, rules := range []string{"", "$sub = \"eve\" or stars = 1"} {
		types := erasableTypes()
		types[0].Auth.Rows = rules
		types[0].Fields[fPrice].Auth.Write = []string{"lead"}
		e := newEnvOf(t, types, nil, onProjects(failsOf("bad")))
		e.load("software", "a", `{"name":"secret","about":"secret"}`)
		e.load("software", "a", `{"name":"bad secret"}`)
		in := storage.EraseInput{Key: "a", ExpectedVersion: 2, Reason: "r", Paths: []string{"/description"}}
		_, err := e.erase(in)
		wantError(t, err, fault.CodeInternal, "leave paths out, to erase the whole document")
		in.Paths = nil
		done, err := e.erase(in)
		if rules != "" {
			wantError(t, err, fault.CodeInternal, "cannot be read")
			continue
		}
		if s := must(done, err)(t).(*storage.Success[*project]); s.Version != 3 || e.secrets() != nil {
			t.Errorf("made version %d, and versions %v hold secrets", s.Version, e.secrets())
		}
		if name, err := must(e.projects.Get(e.begin(), "a", nil, ptr(1)))(t).OptString(fName); name != nil || err != nil {
			t.Errorf("version 1 has the name %v, %v", name, err)
		}
	}
}

// Subscribers are told the same of an erasure before the versions before it are rewritten, and afterwards.
func TestEventsOfErasuresUnderRules(t *testing.T) {
	for _, rule := range []string{"", `description = "secret"`, `not description = "other"`, `stars = 1`, `$sub = "eve"`, `description != "other" or stars = 1`} {
		for _, paths := range [][]string{nil, {"/description"}} {
			types := erasableTypes()
			types[0].Auth.Rows = rule
			e, r := newRewriting(t, types)
			for _, key := range []string{"a", "b"} {
				e.load("software", key, `{"name":"A","description":"secret","stargazers_count":1}`)
				e.load("software", key, `{"name":"B","description":"secret","stargazers_count":1,"plan":null}`)
			}
			since := e.clock.advance(time.Second)
			r.before = killed
			for _, key := range []string{"a", "b"} {
				if _, err := e.erase(storage.EraseInput{Key: key, ExpectedVersion: 2, Reason: "r", Paths: paths}); err == nil || !strings.Contains(err.Error(), "goes on") && !strings.Contains(err.Error(), "could not read it afterwards") {
					t.Fatalf("%s: %v", rule, err)
				}
			}
			told := func() (all []string) {
				for _, actor := range []string{"eve", "bob"} {
					for _, where := range []object{nil, {"description": object{"eq": "secret"}}, {"name": object{"eq": "B"}}} {
						ctx := e.by(actor, nil)
						w := must(e.store.Watch(ctx, storage.WatchQuery{Since: &since}))(t)
						for more := true; more; {
							more = must(w.Next(ctx, func(event *storage.Event) bool {
								for c, err := range eventsOf(e.projects.DocumentsChanged(event.Context(e.by(actor, nil)), where, nil)) {
									if err != nil {
										t.Fatal(err)
									}
									all = append(all, fmt.Sprint(actor, where, c.Key(), c.Kind(), c.VersionInfo().Author().ID))
								}
								return true
							}))(t)
						}
					}
				}
				return all
			}
			before := told()
			r.before = nil
			if err := e.store.FinishErasures(t.Context()); err != nil {
				t.Fatal(err)
			}
			if after := told(); !slices.Equal(before, after) {
				t.Errorf("%q, paths %q: %s", rule, paths, cmp.Diff(before, after))
			}
			if rule == "" && len(before) != 12 || rule == `$sub = "eve"` && len(before) != 6 {
				t.Errorf("%q, paths %q: told %q", rule, paths, before)
			}
		}
	}
}

// reading is an engine that counts the calls that read versions of projects.
type reading struct {
	driver.Engine
	calls int
}

func (r *reading) Get(ctx context.Context, collection string, refs []driver.Ref, fields []string) ([]*driver.Version, error) {
	if collection == "software" {
		r.calls++
	}
	return r.Engine.Get(ctx, collection, refs, fields)
}

// A commit of several documents reads what is before them at once, and says what each has changed.
func TestCommitOfEarlierFormsReadsOnce(t *testing.T) {
	calls := map[int]int{}
	for n := 1; n <= 2; n++ {
		e := newEnvOf(t, fixtureTypes(), nil)
		for i := range n {
			e.load("software", fmt.Sprint("k", i), fmt.Sprintf(`{"name":"n%d","tags":"x"}`, i))
		}
		r := &reading{Engine: e.engine.Engine}
		e.engine.Engine = r
		newer := e.under("two", movedTypes())
		changes := make([]given, n)
		for i := range changes {
			changes[i] = newer.change("Project", &storage.UpdateInput{Key: fmt.Sprint("k", i), ExpectedVersion: 1, Patch: object{"name": fmt.Sprint("n", i+i%2)}})
		}
		changes[0] = newer.change("Project", &storage.UpdateInput{Key: "k0", ExpectedVersion: 1, Patch: object{"stars": 1}})
		newer.committed(changes...)
		calls[n] = r.calls
		for v, err := range e.engine.Log(t.Context(), &driver.LogQuery{Collections: []string{"software"}, FromNumber: 2}) {
			if want := map[string][]string{"k0": {"stargazers_count", "tags"}, "k1": {"name", "tags"}}[must(v, err)(t).Key]; !slices.Equal(v.Changed, want) {
				t.Errorf("version %d of %s has changed %q, want %q", v.Number, v.Key, v.Changed, want)
			}
		}
	}
	if calls[1] != 2 || calls[2] != 3 { // each is read to be patched
		t.Errorf("calls that read, by the number of documents: %v", calls)
	}
}

// Of what was erased a while ago nothing is read but what is noted, until that is looked at for the last time.
func TestErasedAWhileAgo(t *testing.T) {
	e := newEnvOf(t, erasableTypes(), nil)
	r := &reading{Engine: e.engine.Engine}
	e.engine.Engine = r
	e.secretHistory()
	must(e.erase(storage.EraseInput{Key: "a", ExpectedVersion: 7, Reason: "r", Paths: secretPaths}))(t)
	for i, want := range []int{1, 0} {
		after := []time.Duration{time.Minute, 10 * time.Minute}[i]
		e.clock.advance(after)
		r.calls = 0
		if err := e.store.FinishErasures(t.Context()); err != nil || r.calls != want {
			t.Errorf("%v later: %d reads, want %d, %v", after, r.calls, want, err)
		}
	}
	e.clock.advance(2 * record.Grace)
	if err := e.store.FinishErasures(t.Context()); err != nil || e.notes() != 0 {
		t.Errorf("%d notes are left, %v", e.notes(), err)
	}
}

// A page that the engine cannot filter keeps no more documents than it has, and finds the same as one of all.
func TestPagesOfManyInEarlierForms(t *testing.T) {
	e := newEnvOf(t, movedTypes(), nil)
	var vs []driver.Version
	at := e.clock.advance(0)
	for i := range 1300 {
		vs = append(vs, driver.Version{Collection: "software", Key: fmt.Sprintf("k%04d", i*7%1300), RecordedAt: at + driver.Instant(i), Author: "x", Data: fmt.Appendf(nil, `{"name":"n%d","plan":"GOLD"}`, i*11%1300)})
	}
	e.clock.advance(time.Hour)
	must(e.store.Load(t.Context(), vs))(t)
	order := []*storage.OrderInput{{Field: "name", Direction: storage.Desc}}
	var all, some []string
	collect := func(n int) (keys []string) {
		var after *string
		ctx := e.begin()
		for {
			conn := must(e.projects.Page(ctx, object{"plan": object{"eq": "PAID"}}, order, &n, after, nil, nil, nil, nil))(t)
			keys = append(keys, keysOf(conn.Nodes)...)
			if after = conn.PageInfo.EndCursor(); !conn.PageInfo.HasNextPage {
				return keys
			}
		}
	}
	if all, some = collect(500), collect(211); len(all) != 1300 || !slices.Equal(all, some) {
		t.Errorf("%d and %d documents: %s", len(all), len(some), cmp.Diff(all, some))
	}
}

// A schema that no version fits is an error of each field, and loses nothing: what is stored can be listed by key, counted,
// exported, and read again under the schema that it was written under.
func TestNoVersionFits(t *testing.T) {
	e := newEnv(t)
	for i := range 3 {
		e.load("software", fmt.Sprint("k", i), `{"name":"n","stargazers_count":1}`)
	}
	before := e.dump()
	types := fixtureTypes()
	types[0].Fields[fName].Kind, types[0].Fields[fStars].Kind = record.KindInt, record.KindBoolean
	odd := e.under("odd", types)
	conn := must(odd.projects.Page(odd.begin(), nil, nil, nil, nil, nil, nil, nil, nil))(t)
	if keys := keysOf(conn.Nodes); !slices.Equal(keys, []string{"k0", "k1", "k2"}) {
		t.Fatalf("found %q", keys)
	}
	for _, p := range conn.Nodes {
		_, err := p.Int(fName)
		wantError(t, err, fault.CodeInternal, p.Key(), "version 1", "name", "declare name: String")
		_, err = p.OptBool(fStars)
		wantError(t, err, fault.CodeInternal, "stars", "declare stars: Int")
	}
	found := map[string]int{}
	if err := odd.store.Mismatches(t.Context(), func(m storage.Mismatch) { found[m.Err.Path]++ }); err != nil || found["name"] != 3 || found["stargazers_count"] != 3 {
		t.Errorf("what does not fit: %v, %v", found, err)
	}
	if n := must(odd.store.Rewrite(t.Context(), odd.projects.Type()))(t); n != 0 {
		t.Errorf("%d documents were rewritten", n)
	}
	if diff := cmp.Diff(before, odd.dump()); diff != "" {
		t.Error(diff)
	}
	if stars := must(e.under("one", fixtureTypes()).stars("k1", nil))(t); *stars != 1 {
		t.Errorf("read again, there are %d stars", *stars)
	}
}

// Two servers finish the same erasures at once: each is done, and once.
func TestErasuresAreFinishedTwice(t *testing.T) {
	e, r := newRewriting(t, erasableTypes())
	r.before = killed
	const documents = 10
	for i := range documents {
		key := fmt.Sprint("k", i)
		e.load("software", key, `{"name":"A","description":"secret"}`)
		e.load("software", key, `{"name":"B","description":"secret"}`)
		_, err := e.erase(storage.EraseInput{Key: key, ExpectedVersion: 2, Reason: "r", Paths: []string{"/description"}})
		wantError(t, err, fault.CodeUnavailable, "goes on")
	}
	r.before = nil
	for range 2 { // done, and then looked at for the last time
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() {
				store, err := storage.New(r, erasableTypes())
				if err == nil {
					err = store.FinishErasures(t.Context())
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		e.clock.advance(2 * record.Grace)
	}
	if found := e.secrets(); found != nil || e.notes() != 0 {
		t.Errorf("versions %v hold secrets, and %d erasures are noted", found, e.notes())
	}
	for _, v := range e.versions() {
		if v.Collection == "software" && v.Number < 3 && string(v.Data) != fmt.Sprintf(`{"name":%q,"description":{"asof:erased":[1,3]}}`, string(rune('A'-1+v.Number))) {
			t.Errorf("%s@%d is %s", v.Key, v.Number, v.Data)
		}
	}
}

// Tags stay where something is erased, and show what is left.
func TestTagsOfWhatWasErased(t *testing.T) {
	e := newEnvOf(t, erasableTypes(), nil)
	e.create("a", object{"name": "A", "description": "secret"})
	e.update("ann", "a", 1, object{"stars": 1})
	if err := e.tag("a", 1, "release"); err != nil {
		t.Fatal(err)
	}
	for n, paths := range [][]string{{"/description"}, nil} {
		must(e.erase(storage.EraseInput{Key: "a", ExpectedVersion: n + 2, Reason: "r", Paths: paths}))(t)
		ctx := e.begin()
		p := must(e.projects.State(ctx, "a", nil, nil, nil, ptr("release")))(t)
		name, err1 := p.OptString(fName)
		description, err2 := p.OptString(fDescription)
		if err := errors.Join(err1, err2); err != nil || p.Version() != 1 || description != nil || (name == nil) != (paths == nil) {
			t.Errorf("paths %q: version %d, %v, %v, %v", paths, p.Version(), name, description, err)
		}
		for want, where := range []object{{"description": object{"eq": "secret"}}, {"description": object{"isNull": true}}} {
			if keys := e.byTag(ctx, "release", where, nil); len(keys) != want {
				t.Errorf("paths %q: %v has %q", paths, where, keys)
			}
		}
	}
	if err := e.tag("a", 1, "again"); err != nil {
		t.Error(err)
	}
}

// What a server was killed in, one with another schema finishes: not at once, as others may have that schema, not with
// an earlier schema, and in all forms that the versions have.
func TestErasuresUnderAnotherSchema(t *testing.T) {
	types := func(moved bool) []*record.Type {
		types := erasableTypes()
		if moved {
			types[0].Fields[fRelease].Was.Members = []string{"description"}
			types[0].Fields[fRelease].Object.Fields = append(types[0].Fields[fRelease].Object.Fields, record.Field{Name: "about", Stored: "description", Kind: record.KindString})
			types[0].Fields = slices.Delete(types[0].Fields, fDescription, fDescription+1)
		}
		return types
	}
	for _, moved := range []bool{false, true} {
		e, r := newRewriting(t, types(false))
		engine := func(e *env) *env { // the same documents, as others see them
			e.store = must(storage.New(r, e.store.Types()))(t)
			return e
		}
		open := func(sdl string, moved bool) *env {
			o := engine(e.under(sdl, types(moved)))
			if _, err := o.store.UseSchema(t.Context(), sdl, false); err != nil {
				t.Fatal(err)
			}
			return o
		}
		one := open("one", false)
		one.projects = storage.NewCollection(one.store, one.store.Types()[0], func(d *storage.Document) *project { return &project{d} })
		e.load("software", "a", `{"name":"A","description":"secret"}`)
		e.load("software", "a", `{"name":"A"}`)
		r.before = killed
		_, err := one.erase(storage.EraseInput{Key: "a", ExpectedVersion: 2, Reason: "r", Paths: []string{"/description"}})
		wantError(t, err, fault.CodeUnavailable, "goes on")
		r.before = nil
		two := open("two", moved)
		if err := two.store.FinishErasures(t.Context()); err == nil || !strings.Contains(err.Error(), "a server with the schema "+fmt.Sprintf("%08x", storage.SchemaNumber("one"))) || e.secrets() == nil {
			t.Errorf("at once: %v; versions %v hold secrets", err, e.secrets())
		}
		e.clock.advance(10 * time.Minute)
		if err := open("two", moved).store.FinishErasures(t.Context()); err != nil || e.secrets() != nil {
			t.Errorf("later: %v; versions %v hold secrets", err, e.secrets())
		}
		name := ""
		for _, v := range e.versions() {
			if v.Number == 1 && v.Collection == "software" {
				name = string(v.Data)
			}
		}
		if strings.Contains(name, `"name":"A"`) == moved {
			t.Errorf("moved: %t: what is left is %s", moved, name)
		}
		// An earlier server leaves it to later ones.
		e.load("software", "b", `{"name":"A","description":"secret"}`)
		r.before = killed
		three := open("three", false)
		three.projects = storage.NewCollection(three.store, three.store.Types()[0], func(d *storage.Document) *project { return &project{d} })
		_, err = three.erase(storage.EraseInput{Key: "b", ExpectedVersion: 1, Reason: "r", Paths: []string{"/description"}})
		wantError(t, err, fault.CodeUnavailable, "goes on")
		r.before = nil
		e.clock.advance(10 * time.Minute)
		if err := two.store.FinishErasures(t.Context()); err == nil || e.secrets() == nil {
			t.Errorf("an earlier server: %v", err)
		}
	}
}

// What a migration makes is written for ever by a rewrite: not where it does not fit the schema.
func TestRewriteRefusesWhatDoesNotFit(t *testing.T) {
	e := newEnv(t)
	e.load("software", "a", `{"name":"n","about":"x"}`)
	wrong := e.under("two", fixtureTypes(), onProjects(func(json.RawMessage, uint32) (json.RawMessage, error) {
		return json.RawMessage(`{"name":7}`), nil
	}))
	_, err := wrong.store.Rewrite(t.Context(), wrong.projects.Type())
	if err == nil || !strings.Contains(err.Error(), `Project "a", version 1`) || !strings.Contains(err.Error(), "name: expected String, found the number 7") {
		t.Errorf("rewriting: %v", err)
	}
	right := e.under("two", fixtureTypes(), onProjects(func(json.RawMessage, uint32) (json.RawMessage, error) {
		return json.RawMessage(`{"name":"n"}`), nil
	}))
	if n := must(right.store.Rewrite(t.Context(), right.projects.Type()))(t); n != 1 {
		t.Errorf("%d documents were rewritten", n)
	}
}
