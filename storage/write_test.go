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
)

// stored returns the last state as the engine keeps it.
func (e *env) stored(key string) string {
	e.t.Helper()
	vs, err := e.engine.Get(e.t.Context(), "software", []driver.Ref{{Key: key, At: 1 << 60}}, nil)
	if err != nil {
		e.t.Fatal(err)
	}
	return string(vs[0].Data)
}

func asConflict(t *testing.T, res any, err error) *storage.Conflict[*project] {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	c, ok := res.(*storage.Conflict[*project])
	if !ok {
		t.Fatalf("no conflict: %+v", res)
	}
	return c
}

func asSuccess(t *testing.T, res any, err error) *storage.Success[*project] {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	s, ok := res.(*storage.Success[*project])
	if !ok {
		t.Fatalf("no success: %+v", res)
	}
	return s
}

// What a mutation returns can be asked for its history at once.
func TestHistoryOfWhatWasJustWritten(t *testing.T) {
	e := newEnv(t)
	e.create("a", object{"name": "A"})
	ctx := e.begin()
	var s *storage.Success[*project]
	for version := range 3 { // several in one request: the last ones are after its instant
		res, err := e.projects.Update(ctx, storage.UpdateInput{Key: "a", ExpectedVersion: version + 1, Patch: object{"stars": version}})
		s = asSuccess(t, res, err)
	}
	log := must(e.store.DocumentChangelog(ctx, s.Document.Document, nil, nil, nil, nil, nil, nil, nil, nil))(t)
	versions := must(e.projects.Versions(ctx, s.Document.Document, nil, nil, nil, nil, nil, nil, nil, nil))(t)
	diff := must(e.store.Diff(ctx, s.Document.Document, storage.VersionRef{Version: ptr(2)}, nil))(t)
	if len(log.Nodes) != 5 || len(versions.Nodes) != 4 || len(must(diff.Changes())(t)) != 1 {
		t.Errorf("%v, %d versions, %v", lines(log.Nodes), len(versions.Nodes), lines(must(diff.Changes())(t)))
	}
}

func TestCreate(t *testing.T) {
	e := newEnv(t)
	ctx := e.as("ann")
	begin, _ := storage.InstantOf(ctx)
	s := asSuccess(t, must(e.projects.Create(ctx, storage.CreateInput{Key: "a", Message: ptr("hello"), ClientMutationID: ptr("m1"), Data: object{
		"name": "A <b>", "tags": []any{"x"}, "stars": json.Number("5"), "updatedAt": "2026-01-31", "checkedAt": "2026-01-31T12:00:00+02:00",
		"price": json.Number("12.50"), "plan": "FREE", "rating": 1.0, "websiteUrl": nil,
		"currentRelease": object{"tag": "v1", "notes": []any{"n", nil}}, "commitHistory": object{"2026-01": 1.0}, "releases": []any{object{"tag": "v0"}, nil},
	}}))(t), nil)
	want := `{"name":"A <b>","tags":["x"],"stargazers_count":5,"archived":false,"updated_at":"2026-01-31","checkedAt":"2026-01-31T10:00:00Z","price":"12.50","plan":"FREE",` +
		`"current_release":{"tag":"v1","notes":["n",null]},"releases":[{"tag":"v0"},null],"commit_history":{"2026-01":1},"rating":1}`
	if diff := cmp.Diff(want, e.stored("a")); diff != "" {
		t.Error(diff)
	}
	info := s.Document.VersionInfo()
	if s.Version != 1 || !s.Changed || s.Merged || *s.ClientMutationID != "m1" || info.Author().ID != "ann" || *info.Message() != "hello" ||
		info.Operation() != storage.OperationCreate || s.Document.ID() != "Project:a" || len(must(s.Changes())(t)) != 12 {
		t.Errorf("%+v, changes %v", s, lines(must(s.Changes())(t)))
	}
	if at, _ := storage.InstantOf(ctx); at <= begin || at != info.RecordedAt() {
		t.Errorf("the operation's instant is %s, not that of the commit, %s", at, info.RecordedAt())
	}
	c := asConflict(t, must(e.projects.Create(e.begin(), storage.CreateInput{Key: "a", Data: object{"name": "B"}}))(t), nil)
	if c.ActualVersion != 1 || c.ExpectedVersion != 0 || c.Current == nil || c.Base != nil || c.Mergeable || !strings.Contains(c.Message, "exists already") {
		t.Errorf("%+v", c)
	}
	if author := e.get("a").VersionInfo().Author().ID; author != "ann" {
		t.Errorf("author %s", author)
	}
}

// fickle is an engine on which somebody else creates a document, and deletes it
// when that was in the way.
type fickle struct {
	driver.Engine
	create, remove func()
}

func (e *fickle) Commit(ctx context.Context, ws []driver.Write) ([]*driver.Version, error) {
	create, remove := e.create, e.remove
	if create == nil {
		return e.Engine.Commit(ctx, ws)
	}
	e.create = nil
	create()
	vs, err := e.Engine.Commit(ctx, ws)
	remove()
	return vs, err
}

// What was in the way of a new document, and is deleted before anybody can look at
// it, is no conflict: there would be no document to show.
func TestCreateWhatOthersDelete(t *testing.T) {
	between := &fickle{}
	e := newEnvOver(t, func(engine driver.Engine) driver.Engine {
		between.Engine = engine
		return between
	})
	between.create = func() { e.create("a", object{"name": "theirs"}) }
	between.remove = func() {
		asSuccess(t, must(e.projects.Delete(e.begin(), storage.DeleteInput{Key: "a", ExpectedVersion: 1}))(t), nil)
	}
	s := asSuccess(t, must(e.projects.Create(e.begin(), storage.CreateInput{Key: "a", Data: object{"name": "ours"}}))(t), nil)
	if name := must(e.get("a").String(fName))(t); s.Version != 3 || name != "ours" {
		t.Errorf("version %d, %q", s.Version, name)
	}
}

func TestInputIsChecked(t *testing.T) {
	e := newEnv(t)
	e.create("a", object{"name": "A", "tags": []any{}})
	tests := []struct {
		patch object
		want  string
	}{
		{object{"name": nil}, "input.patch.name: null cannot be stored: the field is declared String!"},
		{object{"name": 5}, "input.patch.name: expected a string, got 5"},
		{object{"name": "\xff"}, "input.patch.name: the text is not valid UTF-8"},
		{object{"stars": int64(1) << 31}, "input.patch.stars: Int cannot be 2147483648; it has 32 bits"},
		{object{"stars": json.Number("1.5")}, "input.patch.stars: Int cannot be 1.5; write a whole number"},
		{object{"rating": json.Number("1e999")}, "input.patch.rating: Float cannot be 1e999; the largest is about"},
		{object{"archived": "yes"}, "input.patch.archived: expected true or false"},
		{object{"updatedAt": "2026-13-01"}, `input.patch.updatedAt: Date cannot be "2026-13-01": its month does not exist`},
		{object{"updatedAt": "2025-02-29"}, `input.patch.updatedAt: Date cannot be "2025-02-29": its day does not exist`},
		{object{"checkedAt": "2026-01-01 10:00"}, "input.patch.checkedAt: DateTime cannot be \"2026-01-01 10:00\": it is not in the format of RFC 3339"},
		{object{"checkedAt": "2026-02-30T10:00:00Z"}, "input.patch.checkedAt"},
		{object{"price": "1,50"}, `input.patch.price: Decimal cannot be "1,50": "," is not part of a number`},
		{object{"price": "01"}, "input.patch.price"},
		{object{"plan": "TRIAL"}, "expected one of [FREE PAID]"},
		{object{"tags": []any{"a", ""}}, "input.patch.tags[1]: \"\" cannot be the key of a Tag: it is empty"},
		{object{"tags": []any{nil}}, "input.patch.tags[0]: null cannot be an element"},
		{object{"name": strings.Repeat("x", 4097)}, "input.patch: name would have a text of 4097 bytes; at most 4096 are allowed in a field with @index"},
		{object{"tags": slices.Repeat([]any{"a"}, 6_001)}, "input.patch: the lists with @index would have 6001 elements together"},
		{object{"currentRelease": object{"publishedAt": "x"}}, "input.patch.currentRelease.publishedAt"},
		{object{"releases": []any{object{"nothing": 1}}}, "input.patch.releases[0]: Release has no field"},
		{object{"currentRelease": "x"}, "input.patch.currentRelease: expected an object"},
		{object{"description": strings.Repeat("x", 9<<20)}, "at most 8388608 are allowed"},
		{object{"commitHistory": []any{object{"1e400": "1e400"}, json.Number("-1e400")}}, "input.patch.commitHistory: the number -1e400 is too large; the largest is about 1.8e308"},
		{object{"commitHistory": []any{object{"a": slices.Repeat([]any{json.Number("1")}, 30_001)}}}, "input.patch: the lists would have 30003 elements together; at most 30000 are allowed"},
	}
	for _, tt := range tests {
		t.Run(tt.want, func(t *testing.T) {
			_, err := e.projects.Update(e.begin(), storage.UpdateInput{Key: "a", ExpectedVersion: 1, Patch: tt.patch})
			wantError(t, err, fault.CodeBadUserInput, tt.want)
		})
	}
	for want, in := range map[string]storage.CreateInput{
		"input.key: the key is empty":                 {Data: object{"name": "A"}},
		"input.key: the key is longer than 512 bytes": {Key: strings.Repeat("x", 513), Data: object{"name": "A"}},
		"input.key: the key is not valid UTF-8":       {Key: "\xff", Data: object{"name": "A"}},
		"input.data.name: the field is required":      {Key: "b", Data: object{}},
		"input.message: a message is":                 {Key: "b", Data: object{"name": "A"}, Message: ptr(strings.Repeat("x", 20000))},
	} {
		_, err := e.projects.Create(e.begin(), in)
		wantError(t, err, fault.CodeBadUserInput, want)
	}
	_, err := e.projects.Update(e.begin(), storage.UpdateInput{Key: "b", ExpectedVersion: 0, Patch: object{"name": "x"}})
	wantError(t, err, fault.CodeBadUserInput, "input.expectedVersion: 0")
	if d := e.get("a"); d.Version() != 1 {
		t.Errorf("refused input made version %d", d.Version())
	}
}

// The lists count together, and nothing that a text has.
func TestLongLists(t *testing.T) {
	e := newEnv(t)
	text, long := strings.Repeat("[,", 100_000), slices.Repeat([]any{json.Number("1")}, 9_000)
	e.create("a", object{"name": "A", "description": text, "tags": []any{}, "commitHistory": []any{long, long, object{"a": long}}})
	_, err := e.projects.Create(e.begin(), storage.CreateInput{Key: "b", Data: object{"name": "A", "description": text, "commitHistory": []any{long, long, long, long}}})
	wantError(t, err, fault.CodeBadUserInput, "the lists would have 3600")
}

func TestPatchTellsNullFromAbsent(t *testing.T) {
	e := newEnv(t)
	e.load("software", "a", `{"keep":{"x":1},"name":"A","website_url":"w","stargazers_count":1,"current_release":{"tag":"v1","published_at":"2026-01-01","own":1},"tags":["x"],"commit_history":{"a":1},"description":null}`)
	s := e.update("ann", "a", 1, object{"websiteUrl": nil, "currentRelease": object{"tag": "v2", "publishedAt": nil}, "commitHistory": object{"b": 2}, "tags": []any{}, "description": nil, "rating": 2})
	want := `{"keep":{"x":1},"name":"A","stargazers_count":1,"current_release":{"tag":"v2","own":1},"tags":[],"commit_history":{"b":2},"description":null,"rating":2}`
	if diff := cmp.Diff(want, e.stored("a")); diff != "" {
		t.Error(diff)
	}
	wantChanges := []string{
		`REMOVE /websiteUrl "w"`, `REMOVE /tags/0 "x"`, `REMOVE /currentRelease/publishedAt "2026-01-01"`, `REPLACE /currentRelease/tag "v1" -> "v2"`,
		`REMOVE /commitHistory/a 1`, `ADD /commitHistory/b -> 2`, `ADD /rating -> 2`,
	}
	if diff := cmp.Diff(wantChanges, lines(must(s.Changes())(t))); diff != "" {
		t.Error(diff)
	}
	if got := changedFields(t, s.Document.VersionInfo()); cmp.Diff([]string{"websiteUrl", "tags", "currentRelease", "commitHistory", "rating"}, got) != "" {
		t.Errorf("changed fields %v", got)
	}
	e.update("ann", "a", 2, object{"currentRelease": nil})
	e.update("ann", "a", 3, object{"currentRelease": object{"tag": "v3"}})
	if !strings.Contains(e.stored("a"), `"current_release":{"tag":"v3"}`) {
		t.Error(e.stored("a"))
	}
}

func TestNothingChangedMakesNoVersion(t *testing.T) {
	e := newEnv(t)
	e.load("software", "a", `{"name":"A","current_release":{"tag":"v1","published_at":"2026-01-01"},"tags":[]}`)
	for _, patch := range []object{{}, {"name": "A"}, {"websiteUrl": nil}, {"currentRelease": object{}}, {"currentRelease": object{"publishedAt": "2026-01-01", "tag": "v1"}}, {"tags": []any{}}} {
		ctx := e.begin()
		before, _ := storage.InstantOf(ctx)
		s := asSuccess(t, must(e.projects.Update(ctx, storage.UpdateInput{Key: "a", ExpectedVersion: 1, Patch: patch}))(t), nil)
		if after, _ := storage.InstantOf(ctx); s.Changed || s.Version != 1 || len(must(s.Changes())(t)) != 0 || after != before {
			t.Errorf("%v: %+v", patch, s)
		}
	}
	s := asSuccess(t, must(e.projects.Restore(e.begin(), storage.RestoreInput{Key: "a", ExpectedVersion: 1, To: &storage.VersionRef{Version: ptr(1)}}))(t), nil)
	if s.Changed {
		t.Error("restoring what is there made a version")
	}
	if d := e.get("a"); d.Version() != 1 {
		t.Errorf("version %d", d.Version())
	}
}

func TestDelete(t *testing.T) {
	e := newEnv(t)
	e.create("a", object{"name": "A", "tags": []any{}})
	s := asSuccess(t, must(e.projects.Delete(e.as("ann"), storage.DeleteInput{Key: "a", ExpectedVersion: 1, Message: ptr("gone")}))(t), nil)
	if must(s.Document.String(fName))(t) != "A" || s.Document.ID() != "Project:a@1" || s.Document.VersionInfo().IsCurrent() || s.Version != 2 || !s.Changed ||
		cmp.Diff([]string{`REMOVE /name "A"`, `REMOVE /tags []`, `REMOVE /archived false`}, lines(must(s.Changes())(t))) != "" {
		t.Errorf("%+v", s)
	}
	for name, write := range map[string]func() (any, error){
		"delete again": func() (any, error) {
			return e.projects.Delete(e.begin(), storage.DeleteInput{Key: "a", ExpectedVersion: 2})
		},
		"update deleted": func() (any, error) {
			return e.projects.Update(e.begin(), storage.UpdateInput{Key: "a", ExpectedVersion: 2, Patch: object{"name": "x"}})
		},
		"merge deleted": func() (any, error) {
			return e.projects.Update(e.begin(), storage.UpdateInput{Key: "a", ExpectedVersion: 1, Patch: object{"name": "x"}, OnConflict: ptr(storage.Merge)})
		},
		"delete outdated": func() (any, error) {
			return e.projects.Delete(e.begin(), storage.DeleteInput{Key: "a", ExpectedVersion: 1})
		},
	} {
		res, err := write()
		if c := asConflict(t, res, err); c.ActualVersion != 2 || c.Current != nil || c.Mergeable || !strings.Contains(c.Message, "is deleted") {
			t.Errorf("%s: %+v", name, c)
		}
	}
	c := asConflict(t, must(e.projects.Update(e.begin(), storage.UpdateInput{Key: "never", ExpectedVersion: 1, Patch: object{"name": "x"}}))(t), nil)
	if c.ActualVersion != 0 || c.Current != nil || !strings.Contains(c.Message, "does not exist") {
		t.Errorf("%+v", c)
	}
	e.create("a", object{"name": "again", "tags": []any{}})
	if d := e.get("a"); d.Version() != 3 {
		t.Errorf("created again as version %d", d.Version())
	}
}

func TestRestoreLosesNothing(t *testing.T) {
	e := newEnv(t)
	first := e.load("software", "a", `{"name":"A","tags":["x"],"website_url":"w","current_release":{"tag":"v1"},"hidden":1,"commit_history":{"a":1,"b/c":2}}`)
	e.load("software", "a", `{"name":"B","tags":[],"rating":1,"current_release":{"tag":"v2","published_at":"2026-01-01"},"commit_history":{"a":2}}`)
	restore := func(expected int, to storage.VersionRef, paths ...string) *storage.Success[*project] {
		t.Helper()
		res, err := e.projects.Restore(e.as("ann"), storage.RestoreInput{Key: "a", ExpectedVersion: expected, To: &to, Paths: paths})
		return asSuccess(t, res, err)
	}
	before := e.stored("a")
	s := restore(2, storage.VersionRef{AsOf: &first})
	if s.Version != 3 || s.Document.VersionInfo().Operation() != storage.OperationRestore || e.stored("a") != `{"name":"A","tags":["x"],"website_url":"w","current_release":{"tag":"v1"},"hidden":1,"commit_history":{"a":1,"b/c":2}}` {
		t.Errorf("%+v %s", s, e.stored("a"))
	}
	kept := must(e.projects.Get(e.begin(), "a", nil, ptr(2)))(t)
	if must(kept.String(fName))(t) != "B" {
		t.Error("the version that was current is lost")
	}
	restore(3, storage.VersionRef{Version: ptr(2)})
	if e.stored("a") != before {
		t.Errorf("%s, not %s", e.stored("a"), before)
	}
	restore(4, storage.VersionRef{Version: ptr(1)}, "/websiteUrl", "/currentRelease/tag", "/rating", "/commitHistory/b~1c")
	want := `{"name":"B","tags":[],"current_release":{"tag":"v1","published_at":"2026-01-01"},"commit_history":{"a":2,"b/c":2},"website_url":"w"}`
	if diff := cmp.Diff(want, e.stored("a")); diff != "" {
		t.Error(diff)
	}
	e.load("software", "a", ``)
	for want, in := range map[string]storage.RestoreInput{
		"is not a JSON Pointer":      {ExpectedVersion: 6, To: &storage.VersionRef{Version: ptr(1)}, Paths: []string{"name"}},
		"restore the whole document": {ExpectedVersion: 6, To: &storage.VersionRef{Version: ptr(1)}, Paths: []string{"/name"}},
		"which is a deletion":        {ExpectedVersion: 6, To: &storage.VersionRef{Version: ptr(6)}},
		"input.to: name the version": {ExpectedVersion: 6},
	} {
		in.Key = "a"
		if strings.Contains(want, "Pointer") {
			continue // needs a live document: below
		}
		_, err := e.projects.Restore(e.begin(), in)
		wantError(t, err, fault.CodeBadUserInput, want)
	}
	s = restore(6, storage.VersionRef{Version: ptr(1)})
	if s.Version != 7 || e.get("a") == nil || len(must(s.Changes())(t)) != 5 {
		t.Errorf("a deleted document is not restored: %+v", s)
	}
	for path, want := range map[string]string{
		"name": "is not a JSON Pointer to a field; one looks like /name or /currentRelease/tag", "/secret": "has no field", "/tags/0": "name the whole list, /tags", "/name/x": "has nothing inside", "": "is not a JSON Pointer",
	} {
		_, err := e.projects.Restore(e.begin(), storage.RestoreInput{Key: "a", ExpectedVersion: 7, To: &storage.VersionRef{Version: ptr(1)}, Paths: []string{path}})
		wantError(t, err, fault.CodeBadUserInput, want)
	}
	_, err := e.projects.Restore(e.begin(), storage.RestoreInput{Key: "a", ExpectedVersion: 7, To: &storage.VersionRef{Version: ptr(99)}})
	wantError(t, err, fault.CodeVersionNotFound, "1 to 7")
}

func TestChangeGroups(t *testing.T) {
	e := newEnv(t)
	ctx := e.begin()
	for _, key := range []string{"a", "b"} {
		must(e.projects.Create(ctx, storage.CreateInput{Key: key, Data: object{"name": key}}))(t)
	}
	must(e.projects.Create(e.begin(), storage.CreateInput{Key: "c", Data: object{"name": "c"}}))(t)
	group := func(key string) string { return *e.get(key).VersionInfo().ChangeGroup() }
	if group("a") != group("b") || group("a") == group("c") {
		t.Errorf("groups %s %s %s", group("a"), group("b"), group("c"))
	}
	if author := e.get("a").VersionInfo().Author().ID; author != storage.Anonymous {
		t.Errorf("author %s", author)
	}
}

// away is an engine that cannot be reached for reads.
type away struct{ driver.Engine }

func (away) Get(context.Context, string, []driver.Ref, []string) ([]*driver.Version, error) {
	return nil, driver.Errorf(driver.CodeUnavailable, "it is gone")
}

// A write that fails before it is committed is known not to have happened.
func TestWritesOfAnUnreachableStore(t *testing.T) {
	e := newEnv(t)
	e.create("a", object{"name": "A"})
	e.engine.Engine = away{e.engine.Engine}
	one := 1
	for name, write := range map[string]func(context.Context) error{
		"update": func(ctx context.Context) error {
			_, err := e.projects.Update(ctx, storage.UpdateInput{Key: "a", ExpectedVersion: 1, Patch: object{"name": "B"}})
			return err
		},
		"delete": func(ctx context.Context) error {
			_, err := e.projects.Delete(ctx, storage.DeleteInput{Key: "a", ExpectedVersion: 1})
			return err
		},
		"restore": func(ctx context.Context) error {
			_, err := e.projects.Restore(ctx, storage.RestoreInput{Key: "a", ExpectedVersion: 1, To: &storage.VersionRef{Version: &one}})
			return err
		},
		"create, where it is there": func(ctx context.Context) error {
			_, err := e.projects.Create(ctx, storage.CreateInput{Key: "a", Data: object{"name": "A"}})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			wantError(t, write(e.begin()), fault.CodeUnavailable, "cannot be reached at the moment; try again; nothing was written")
		})
	}
}

func TestEngineErrors(t *testing.T) {
	e := newEnv(t)
	e.create("a", object{"name": "A"})
	update := func() error {
		_, err := e.projects.Update(e.begin(), storage.UpdateInput{Key: "a", ExpectedVersion: 1, Patch: object{"name": "B"}})
		return err
	}
	secret := errors.New("disk /dev/sda1 is on fire")
	e.engine.commitErr = driver.Errorf(driver.CodeUnavailable, "no: %w", secret)
	wantError(t, update(), fault.CodeUnavailable, "may or may not have happened")
	e.engine.commitErr = fmt.Errorf("no: %w", &driver.Error{Code: driver.CodeUnavailable, Message: "secret", Refused: "the disk is a picture"})
	wantError(t, update(), fault.CodeUnavailable, "the disk is a picture; nothing was written")
	e.engine.commitErr = driver.Errorf(driver.CodeInternal, "no: %w", secret)
	err := update()
	wantError(t, err, fault.CodeInternal, "internal error")
	if !errors.Is(err, secret) || strings.Contains(err.Error(), "fire") {
		t.Errorf("cause kept %v, shown %q", errors.Is(err, secret), err)
	}
}

// What an index holds of a list counts more where the key of the document is long, which is in each entry.
func TestLongKeysCountInIndexes(t *testing.T) {
	e := newEnv(t)
	key := strings.Repeat("k", 512)
	create := func(tags int) error {
		_, err := e.projects.Create(e.begin(), storage.CreateInput{Key: key, Data: object{"name": "P", "tags": slices.Repeat([]any{"a"}, tags)}})
		return err
	}
	wantError(t, create(201), fault.CodeBadUserInput, "the lists with @index would have 1005 elements together, those counted more that are long with the key; at most 1000 are allowed")
	if err := create(200); err != nil {
		t.Error(err)
	}
}

// What an import has left too large can be changed, and restored, where it does not grow.
func TestTooLargeDocumentsMayShrink(t *testing.T) {
	e := newEnv(t)
	tags := func(n int) []any { return slices.Repeat([]any{"a"}, n) }
	e.load("software", "a", asText(t, object{"name": "Long", "tags": tags(1_200)}))
	version := 1
	for _, c := range []struct {
		patch object
		grows bool
	}{
		{object{"name": "Longer"}, true},
		{object{"name": "Name"}, false},
		{object{"tags": tags(1_201)}, true},
		{object{"tags": tags(700)}, false},
		{object{"tags": tags(1_001)}, true},
	} {
		_, err := e.projects.Update(e.begin(), storage.UpdateInput{Key: "a", ExpectedVersion: version, Patch: c.patch})
		if c.grows {
			wantError(t, err, fault.CodeBadUserInput, "elements together")
		} else if err != nil {
			t.Error(err)
		} else {
			version++
		}
	}
	_, err := e.projects.Restore(e.begin(), storage.RestoreInput{Key: "a", ExpectedVersion: version, To: &storage.VersionRef{Version: ptr(1)}})
	wantError(t, err, fault.CodeBadUserInput, "elements together")
}
