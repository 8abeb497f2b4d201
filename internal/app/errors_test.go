package app_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/99designs/gqlgen/graphql"
	"github.com/99designs/gqlgen/graphql/executor"
	"github.com/google/go-cmp/cmp"

	"github.com/asof/asof/dataloader"
	"github.com/asof/asof/internal/app"
	"github.com/asof/asof/internal/fixture/graph/model"
	"github.com/asof/asof/internal/fixture/resolvers"
	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/drivertest"
	"github.com/asof/asof/storage/fault"
)

// broken is an engine that can fail or panic.
type broken struct {
	driver.Engine
	err   error
	panic bool
}

func (b *broken) Get(ctx context.Context, c string, refs []driver.Ref, fields []string) ([]*driver.Version, error) {
	if b.panic {
		panic("a secret")
	}
	if b.err != nil {
		return nil, b.err
	}
	return b.Engine.Get(ctx, c, refs, fields)
}

type env struct {
	t      *testing.T
	store  *storage.Store
	exec   *executor.Executor
	engine *broken
	log    *bytes.Buffer
}

func newEnv(t *testing.T) *env {
	t.Helper()
	var mu sync.Mutex
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	clock := func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		now = now.Add(time.Second)
		return now
	}
	engine := &broken{Engine: drivertest.NewModel(clock, storage.CollectionsOf(model.Types))}
	store, err := storage.New(engine, model.Types)
	if err != nil {
		t.Fatal(err)
	}
	e := &env{t: t, store: store, exec: executor.New(resolvers.NewSchema(store)), engine: engine, log: &bytes.Buffer{}}
	logger := slog.New(slog.NewTextHandler(e.log, nil))
	e.exec.SetErrorPresenter(app.ErrorPresenter(logger))
	e.exec.SetRecoverFunc(app.Recover(logger))
	return e
}

// do runs an operation and returns its data, and its errors as "CODE message".
func (e *env) do(query string, variables map[string]any) (string, []string) {
	e.t.Helper()
	ctx, err := e.store.Begin(e.t.Context())
	if err != nil {
		e.t.Fatal(err)
	}
	ctx = graphql.StartOperationTrace(dataloader.Begin(storage.WithActor(ctx, storage.Actor{ID: "ann"}), e.store))
	// Variables as a transport reads them.
	raw, err := json.Marshal(variables)
	if err != nil {
		e.t.Fatal(err)
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	params := &graphql.RawParams{Query: query}
	if err := dec.Decode(&params.Variables); err != nil {
		e.t.Fatal(err)
	}
	oc, errs := e.exec.CreateOperationContext(ctx, params)
	var resp *graphql.Response
	if errs != nil {
		resp = e.exec.DispatchError(graphql.WithOperationContext(ctx, oc), errs)
	} else {
		handler, ctx := e.exec.DispatchOperation(ctx, oc)
		resp = handler(ctx)
	}
	var out []string
	for _, err := range resp.Errors {
		code, _ := err.Extensions["code"].(string)
		out = append(out, code+" "+err.Message)
	}
	return string(resp.Data), out
}

// The fields of a mutation are no transaction: what the tour says of one that
// fails between others.
func TestFieldsOfAMutationStandAlone(t *testing.T) {
	e := newEnv(t)
	data, errs := e.do(`mutation ($tag: TagData!) {
		before: createTag(input: {key: "a", data: $tag}) { __typename }
		bad: createTag(input: {key: "", data: $tag}) { __typename }
		after: createTag(input: {key: "b", data: $tag}) { __typename }
	}`, map[string]any{"tag": map[string]any{"name": "X", "description": "d"}})
	if diff := cmp.Diff([]string{"BAD_USER_INPUT input.key: the key is empty"}, errs); data != "null" || diff != "" {
		t.Errorf("data %s, errors (-want +got):\n%s", data, diff)
	}
	data, errs = e.do(`{before: tag(key: "a") {version} after: tag(key: "b") {version}}`, nil)
	if want := `{"before":{"version":1},"after":{"version":1}}`; data != want || errs != nil {
		t.Errorf("written: %s, want %s; %v", data, want, errs)
	}
}

func TestAnOperationEndToEnd(t *testing.T) {
	e := newEnv(t)
	data, errs := e.do(`mutation ($tag: TagData!, $data: ProjectData!) {
		t: createTag(input: {key: "x", data: $tag}) { ... on CreateTagSuccess { version } }
		createProject(input: {key: "a", data: $data, clientMutationId: "m"}) {
			__typename ... on CreateProjectSuccess { project { id name tags { name } } version changed clientMutationId changes { path op newValue } }
		}
		again: createProject(input: {key: "a", data: $data}) { __typename ... on ProjectConflict { actualVersion current { name } changesSince { path } } }
		updateProject(input: {key: "a", expectedVersion: 1, patch: {stars: 7, demoUrl: null}}) { ... on UpdateProjectSuccess { changes { path newValue } } }
	}`, map[string]any{
		"tag":  map[string]any{"name": "X", "description": "d"},
		"data": map[string]any{"name": "A", "description": "d", "tags": []any{"x"}, "licenses": []any{}, "platforms": []any{}, "stars": 5},
	})
	want := `{"t":{"version":1},"createProject":{"__typename":"CreateProjectSuccess","project":{"id":"Project:a","name":"A","tags":[{"name":"X"}]},"version":1,"changed":true,"clientMutationId":"m",` +
		`"changes":[{"path":"/name","op":"ADD","newValue":"A"},{"path":"/description","op":"ADD","newValue":"d"},{"path":"/licenses","op":"ADD","newValue":[]},{"path":"/platforms","op":"ADD","newValue":[]},{"path":"/tags","op":"ADD","newValue":["x"]},{"path":"/stars","op":"ADD","newValue":5}]},` +
		`"again":{"__typename":"ProjectConflict","actualVersion":1,"current":{"name":"A"},"changesSince":[]},"updateProject":{"changes":[{"path":"/stars","newValue":7}]}}`
	if data != want || errs != nil {
		t.Fatalf("got  %s\nwant %s\n%v", data, want, errs)
	}
	data, errs = e.do(`{
		project(key: "a") { id version stars versionInfo { author { id } isCurrent changedFields } diff(from: {version: 1}) { jsonPatch before } blame(fields: [stars]) { path version } }
		old: project(key: "a", version: 1) { id stars tags { id } }
		projects(where: {stars: {gt: 6}, tags: {has: "x"}}, orderBy: [{field: stars, direction: DESC}], first: 1) { totalCount nodes { key } pageInfo { hasNextPage } }
		projectHistory(key: "a") { versions(first: 1) { edges { node { version } changes { path } } } }
		changelog(where: {field: "stars"}) { nodes { path oldValue newValue version document { id } } }
		node(id: "Project:a@1") { id }
	}`, nil)
	want = `{"project":{"id":"Project:a","version":2,"stars":7,"versionInfo":{"author":{"id":"ann"},"isCurrent":true,"changedFields":["stars"]},"diff":{"jsonPatch":[{"op":"replace","path":"/stars","value":7}],"before":{"name":"A","description":"d","licenses":[],"platforms":[],"tags":["x"],"stars":5}},"blame":[{"path":"/stars","version":2}]},` +
		`"old":{"id":"Project:a@1","stars":5,"tags":[{"id":"Tag:x@1"}]},"projects":{"totalCount":1,"nodes":[{"key":"a"}],"pageInfo":{"hasNextPage":false}},` +
		`"projectHistory":{"versions":{"edges":[{"node":{"version":2},"changes":[{"path":"/stars"}]}]}},` +
		`"changelog":{"nodes":[{"path":"/stars","oldValue":5,"newValue":7,"version":2,"document":{"id":"Project:a@2"}},{"path":"/stars","oldValue":null,"newValue":5,"version":1,"document":{"id":"Project:a@1"}}]},"node":{"id":"Project:a@1"}}`
	if data != want || errs != nil {
		t.Fatalf("got  %s\nwant %s\n%v", data, want, errs)
	}
}

func TestEveryErrorHasACode(t *testing.T) {
	e := newEnv(t)
	tests := []struct{ query, want string }{
		{`{ project(key: "a", asOf: "2026-01-01T00:00:00") { id } }`, `BAD_USER_INPUT DateTime cannot be "2026-01-01T00:00:00"`},
		{`{ project(key: "a", asOf: "2026-02-30T00:00:00Z") { id } }`, `BAD_USER_INPUT DateTime cannot be`},
		{`{ project(key: "a", asOf: "2030-01-01T00:00:00Z") { id } }`, "AS_OF_IN_FUTURE asOf 2030-01-01T00:00:00Z is in the future"},
		{`{ project(key: "a", asOf: "2026-01-01T00:00:00Z", version: 1) { id } }`, "AMBIGUOUS_VERSION"},
		{`{ project(key: "a", version: 99999999999) { id } }`, "BAD_USER_INPUT"},
		{`{ projects(first: -1) { nodes { id } } }`, "BAD_USER_INPUT first: -1 is negative"},
		{`{ projects(after: "x") { nodes { id } } }`, "BAD_USER_INPUT after:"},
		{`{ projects(where: {updatedAt: {eq: "2026-02-30"}}) { nodes { id } } }`, "BAD_USER_INPUT"},
		{`{ node(id: "x") { id } }`, `BAD_USER_INPUT id "x" is malformed`},
	}
	for _, tt := range tests {
		_, errs := e.do(tt.query, nil)
		if len(errs) != 1 || !strings.HasPrefix(errs[0], tt.want) {
			t.Errorf("%s: %q, want %q", tt.query, errs, tt.want)
		}
	}
	_, errs := e.do(`query ($at: DateTime) { project(key: "a", asOf: $at) { id } }`, map[string]any{"at": "soon"})
	if len(errs) != 1 || !strings.HasPrefix(errs[0], "BAD_USER_INPUT") {
		t.Errorf("a bad variable: %q", errs)
	}
}

// What an input has that takes one of several fields is looked at where it is used, also in variables.
func TestInputsOfOneFieldInVariables(t *testing.T) {
	e := newEnv(t)
	if _, errs := e.do(`mutation ($data: TagData!) { createTag(input: {key: "x", data: $data}) { __typename } }`, map[string]any{"data": map[string]any{"name": "X", "description": ""}}); errs != nil {
		t.Fatal(errs)
	}
	const diff, commit = `query ($v: VersionRef!) { tag(key: "x") { diff(from: $v) { jsonPatch } } }`, `mutation ($v: ChangeInput!) { commit(input: {changes: [$v]}) { __typename } }`
	type object = map[string]any
	for _, tt := range []struct {
		query string
		v     object
		want  string
	}{
		{diff, object{"version": 1, "asOf": "2026-01-01T00:00:00Z"}, "AMBIGUOUS_VERSION"},
		{diff, object{}, "BAD_USER_INPUT"},
		{diff, object{"version": nil}, "BAD_USER_INPUT"},
		{commit, object{}, "BAD_USER_INPUT"},
		{commit, object{"deleteTag": object{"key": "x", "expectedVersion": 1}, "createTag": object{"key": "y", "data": object{"name": "Y", "description": ""}}}, "BAD_USER_INPUT"},
	} {
		if _, errs := e.do(tt.query, object{"v": tt.v}); len(errs) != 1 || !strings.HasPrefix(errs[0], tt.want) {
			t.Errorf("%s %v: %q, want %q", tt.query, tt.v, errs, tt.want)
		}
	}
}

func TestCausesAreLoggedAndNotShown(t *testing.T) {
	for name, tt := range map[string]struct {
		engine broken
		want   string
		logged string
	}{
		"internal":    {broken{err: driver.Errorf(driver.CodeInternal, "a secret")}, "INTERNAL internal error", "a secret"},
		"unavailable": {broken{err: driver.Errorf(driver.CodeUnavailable, "a secret")}, "UNAVAILABLE the store cannot be reached at the moment; try again", "a secret"},
		"panic":       {broken{panic: true}, "INTERNAL internal error", "a secret"},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			e.engine.err, e.engine.panic = tt.engine.err, tt.engine.panic
			data, errs := e.do(`{ project(key: "a") { id } }`, nil)
			if data != `{"project":null}` || len(errs) != 1 || errs[0] != tt.want {
				t.Errorf("%s %q", data, errs)
			}
			if !strings.Contains(e.log.String(), "level=ERROR") || !strings.Contains(e.log.String(), tt.logged) || !strings.Contains(e.log.String(), "path=project") {
				t.Errorf("logged %q", e.log)
			}
		})
	}
}

// When an operation is over, its own line of the log says so, and not each of its fields.
func TestTheEndOfAnOperationIsNoFault(t *testing.T) {
	for _, end := range []error{context.Canceled, context.DeadlineExceeded} {
		ctx, cancel := context.WithTimeout(t.Context(), 0)
		if errors.Is(end, context.Canceled) {
			ctx, cancel = context.WithCancel(t.Context())
			cancel()
		}
		defer cancel()
		var log bytes.Buffer
		present := app.ErrorPresenter(slog.New(slog.NewTextHandler(&log, nil)))
		for _, err := range []error{end, fault.Ended(end)} {
			if shown := present(ctx, err); shown.Extensions["code"] != "UNAVAILABLE" || log.Len() > 0 {
				t.Errorf("%v: %v, logged %q", err, shown, &log)
			}
		}
		if _ = present(t.Context(), fault.Ended(end)); log.Len() == 0 { // the store's own
			t.Errorf("%v is not logged", end)
		}
	}
}

func TestADocumentThatBreaksTheSchema(t *testing.T) {
	e := newEnv(t)
	_, err := e.store.Load(t.Context(), []driver.Version{{
		Collection: "software", Key: "a", RecordedAt: 1, Author: "x", Data: []byte(`{"stargazers_count":"many"}`),
	}})
	if err != nil {
		t.Fatal(err)
	}
	data, errs := e.do(`{ project(key: "a") { key stars } }`, nil)
	if data != `{"project":{"key":"a","stars":null}}` || len(errs) != 1 ||
		errs[0] != `INTERNAL Project "a", version 1, holds the string "many" in field stars, which is declared Int; declare stars: String, or JSON, or correct the document` {
		t.Errorf("%s %q", data, errs)
	}
}
