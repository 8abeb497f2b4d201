package app

import (
	"context"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asof/asof/internal/fixture/graph/model"
	"github.com/asof/asof/internal/fixture/resolvers"
	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/drivertest"
)

// stalled is an engine that does not answer reads of documents while its callers
// wait, and then says so.
type stalled struct{ driver.Engine }

func (stalled) Query(ctx context.Context, _ *driver.Query) ([]*driver.Version, error) {
	<-ctx.Done()
	return nil, driver.Errorf(driver.CodeUnavailable, "reading: %w", ctx.Err())
}

func (stalled) Get(ctx context.Context, _ string, _ []driver.Ref, _ []string) ([]*driver.Version, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// A query whose time is over has one answer, wherever that was noticed and
// whatever executes it.
func TestTimeIsOver(t *testing.T) {
	const want = `{"errors":[{"message":"the request took longer than this server allows (--max-execution, --max-time); ask for less at a time, or for a shorter time","extensions":{"code":"UNAVAILABLE"}}]`
	for name, c := range map[string]struct{ limit, query string }{
		"before the store": {"1ns", `{projects {nodes {name}}}`},
		"in a page":        {"30ms", `{projects {nodes {name}}}`},
		"in a document":    {"30ms", `{project(key: "a") {name}}`},
		"in one of two":    {"30ms", `{__typename project(key: "a") {name}}`},
	} {
		for _, executor := range []string{"plan", "gqlgen"} {
			t.Run(name+"/"+executor, func(t *testing.T) {
				m := Main{Types: model.Types, Schema: resolvers.NewSchema, Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: io.Discard, Now: time.Now}
				engine := stalled{drivertest.NewModel(time.Now, storage.CollectionsOf(model.Types))}
				handler, err := m.Handler(engine, "--executor="+executor, "--max-time="+c.limit)
				if err != nil {
					t.Fatal(err)
				}
				for _, media := range []string{"application/json", "application/graphql-response+json", "text/event-stream"} {
					r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/graphql", strings.NewReader(`{"query":`+strconv.Quote(c.query)+`}`))
					r.Header.Set("Content-Type", "application/json")
					r.Header.Set("Accept", media)
					w := httptest.NewRecorder()
					handler.ServeHTTP(w, r)
					status, body := http.StatusGatewayTimeout, w.Body.String()
					if media == "text/event-stream" {
						status = http.StatusOK
						body = strings.TrimPrefix(body, "event: next\ndata: ")
					}
					if w.Code != status || !strings.HasPrefix(body, want) {
						t.Errorf("%s: status %d: %s", media, w.Code, w.Body)
					}
				}
			})
		}
	}
}

// distant is an engine of a database that is elsewhere.
type distant struct{ stalled }

func (distant) Distant() {}

func (d distant) Now(ctx context.Context) (driver.Instant, error) {
	if err := ctx.Err(); err != nil {
		return 0, driver.GivenUp(err)
	}
	return d.stalled.Now(ctx)
}

// A request that waited for a database which is elsewhere until its time was over is told so, and not
// only to ask for less.
func TestDatabaseIsSilent(t *testing.T) {
	inTime := func(t *testing.T, test func(*testing.T)) { t.Helper(); synctest.Test(t, test) } // until it waits for the store
	for _, c := range []struct {
		name, limit string
		begin       func(*testing.T, func(*testing.T))
		want        string
	}{
		{"silent", "30ms", inTime, "the database did not answer within the time that this server allows (--max-time); try again, or ask for less at a time"},
		{"not asked", "1ns", func(t *testing.T, test func(*testing.T)) { t.Helper(); test(t) }, "the request took longer than this server allows (--max-execution, --max-time); ask for less at a time, or for a shorter time"},
	} {
		for query, more := range map[string]string{
			`{projects {nodes {name}}}`:             "",
			`{project(key: "a") {name}}`:            "",
			`{__typename project(key: "a") {name}}`: "",
			`mutation {updateTag(input: {key: "a", expectedVersion: 1, patch: {name: "B"}}) {__typename}}`: "; nothing was written",
		} {
			for _, executor := range []string{"plan", "gqlgen"} {
				test := func(t *testing.T) {
					t.Helper()
					m := Main{Types: model.Types, Schema: resolvers.NewSchema, Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: io.Discard, Now: time.Now}
					engine := distant{stalled{drivertest.NewModel(time.Now, storage.CollectionsOf(model.Types))}}
					handler, err := m.Handler(engine, "--executor="+executor, "--max-time="+c.limit)
					if err != nil {
						t.Fatal(err)
					}
					r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/graphql", strings.NewReader(`{"query":`+strconv.Quote(query)+`}`))
					r.Header.Set("Content-Type", "application/json")
					w := httptest.NewRecorder()
					handler.ServeHTTP(w, r)
					if got := w.Body.String(); !strings.Contains(got, `"message":"`+c.want+more+`"`) || !strings.Contains(got, `"code":"UNAVAILABLE"`) {
						t.Errorf("%s: status %d: %s", query, w.Code, got)
					}
				}
				t.Run(c.name+"/"+executor, func(t *testing.T) { c.begin(t, test) })
			}
		}
	}
}

// unlogged is an engine that does not answer reads of logs while its callers wait.
type unlogged struct{ driver.Engine }

func (unlogged) Log(ctx context.Context, _ *driver.LogQuery) iter.Seq2[*driver.Version, error] {
	return func(yield func(*driver.Version, error) bool) {
		<-ctx.Done()
		yield(nil, driver.Errorf(driver.CodeUnavailable, "reading: %w", ctx.Err()))
	}
}

// A commit whose time is over before all of its results are answered has no data: an empty list would say
// that there were no changes.
func TestCommitIsToldWhoseTimeIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := Main{Types: model.Types, Schema: resolvers.NewSchema, Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: io.Discard, Now: time.Now}
		handler, err := m.Handler(unlogged{drivertest.NewModel(time.Now, storage.CollectionsOf(model.Types))}, "--max-time=30ms")
		if err != nil {
			t.Fatal(err)
		}
		for i, c := range []struct{ selected, want string }{
			{`results{document{... on Tag{changelog{totalCount}}}}`, `"data":null`},
			{`... on CommitSuccess{changeGroup{versions{totalCount}}} results{version}`, `"data":null`},
		} {
			key := strconv.Itoa(i)
			query := `mutation{commit(input:{changes:[{createTag:{key:"a` + key + `",data:{name:"A",description:""}}},{createTag:{key:"b` + key + `",data:{name:"B",description:""}}},{createTag:{key:"c` + key + `",data:{name:"C",description:""}}}]}){... on CommitSuccess{` + c.selected + `}}}`
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/graphql", strings.NewReader(`{"query":`+strconv.Quote(query)+`}`))
			r.Header.Set("Content-Type", "application/json")
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, r)
			if got := w.Body.String(); !strings.Contains(got, c.want) || !strings.Contains(got, `"code":"UNAVAILABLE"`) {
				t.Errorf("%s: want %s in: %s", c.selected, c.want, got)
			}
		}
	})
}

// timeless is an engine that cannot tell the time.
type timeless struct{ driver.Engine }

func (timeless) Now(context.Context) (driver.Instant, error) {
	return 0, driver.Errorf(driver.CodeUnavailable, "it is gone")
}

// The answer to a mutation that the store cannot begin is that nothing was written, which
// has nothing to say of a query.
func TestMutationBeforeTheStore(t *testing.T) {
	m := Main{Types: model.Types, Schema: resolvers.NewSchema, Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: io.Discard, Now: time.Now}
	handler, err := m.Handler(timeless{drivertest.NewModel(time.Now, storage.CollectionsOf(model.Types))})
	if err != nil {
		t.Fatal(err)
	}
	for query, want := range map[string]string{
		`mutation {deleteTag(input: {key: "a", expectedVersion: 1}) {__typename}}`: "the store cannot be reached at the moment; try again; nothing was written",
		`{tag(key: "a") {name}}`: "the store cannot be reached at the moment; try again",
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/graphql", strings.NewReader(`{"query":`+strconv.Quote(query)+`}`))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if got := w.Body.String(); w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" || !strings.Contains(got, `"message":"`+want+`"`) {
			t.Errorf("%s: status %d: %s", query, w.Code, got)
		}
	}
}

// silent is an engine that does not answer while its callers wait.
type silent struct{ driver.Engine }

func (silent) Ping(ctx context.Context) error {
	<-ctx.Done()
	return driver.Errorf(driver.CodeUnavailable, "asking: %w", ctx.Err())
}

// Who asks whether the server is ready, and goes before the answer, does not make
// it say in its log that it is not.
func TestReadinessThatNobodyWaitsFor(t *testing.T) {
	for _, gone := range []bool{true, false} {
		var log strings.Builder
		m := Main{Types: model.Types, Schema: resolvers.NewSchema, Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: &log, Now: time.Now}
		handler, err := m.Handler(silent{drivertest.NewModel(time.Now, storage.CollectionsOf(model.Types))})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		if gone {
			cancel()
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "http://localhost/readyz", http.NoBody))
		cancel()
		if said := strings.Contains(log.String(), "not ready"); said == gone || w.Code != http.StatusServiceUnavailable {
			t.Errorf("who asked has gone: %t; status %d, the log says:\n%s", gone, w.Code, log.String())
		}
	}
}

// answering is an engine whose state is known.
type answering struct {
	driver.Engine
	err error
}

func (a *answering) Ping(context.Context) error { return a.err }

// Why the server is not ready is in its log once, however often it is asked, and again after it was
// ready.
func TestReasonsWhyNotReady(t *testing.T) {
	var log strings.Builder
	m := Main{Types: model.Types, Schema: resolvers.NewSchema, Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: &log, Now: time.Now}
	engine := &answering{Engine: drivertest.NewModel(time.Now, storage.CollectionsOf(model.Types))}
	handler, err := m.Handler(engine)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ error, logged string }{
		{"", ""}, {"no server", "not ready"}, {"no server", ""}, {"a wrong password", ""}, {"", "ready again"}, {"", ""}, {"no server", "not ready"},
	} {
		log.Reset()
		engine.err = nil
		if c.error != "" {
			engine.err = driver.Errorf(driver.CodeUnavailable, "%s", c.error)
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost/readyz", http.NoBody))
		if got := log.String(); (got == "") != (c.logged == "") || !strings.Contains(got, c.logged) || (w.Code == http.StatusOK) != (c.error == "") {
			t.Errorf("%q: status %d, want %q in the log: %q", c.error, w.Code, c.logged, got)
		}
	}
}
