package plan_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/99designs/gqlgen/graphql"
	"github.com/99designs/gqlgen/graphql/executor"
	"github.com/99designs/gqlgen/graphql/handler/lru"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"

	"github.com/asof/asof/dataloader"
	"github.com/asof/asof/internal/app"
	"github.com/asof/asof/internal/fixture/graph/model"
	"github.com/asof/asof/internal/fixture/resolvers"
	"github.com/asof/asof/internal/plan"
	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/drivertest"
)

// now is the instant of every operation: the tests' clock stands still.
const now = driver.Instant(1_000_000_000_000)

// pair is one store behind both executors.
type pair struct {
	t        testing.TB
	store    *storage.Store
	engine   *failing
	slow     *executor.Executor
	fast     *executor.Executor
	mu       sync.Mutex
	observed []string // why operations were not planned; "" for those that were
}

// failing is an engine whose reads can fail or panic, and are counted.
type failing struct {
	driver.Engine
	err   error
	panic any
	only  string // the collection that is in trouble; "": all
	// mu guards what follows: gqlgen reads root fields at the same time.
	mu    sync.Mutex
	gets  int
	calls []string // what was read, in words
	// fields are those that the last call asked for.
	fields []string
	// after is how many calls succeed before the others fail.
	after int
}

func (f *failing) trouble(collections ...string) error {
	if f.only != "" && !slices.Contains(collections, f.only) {
		return nil
	}
	f.mu.Lock()
	f.after--
	fine := f.after >= 0
	f.mu.Unlock()
	if fine {
		return nil
	}
	if f.panic != nil {
		panic(f.panic)
	}
	return f.err
}

func (f *failing) Now(context.Context) (driver.Instant, error) { return now, nil }

func (f *failing) Get(ctx context.Context, c string, refs []driver.Ref, fields []string) ([]*driver.Version, error) {
	f.mu.Lock()
	f.gets++
	f.fields = fields
	f.calls = append(f.calls, fmt.Sprintf("get %s %d", c, len(refs)))
	f.mu.Unlock()
	if err := f.trouble(c); err != nil {
		return nil, err
	}
	return f.Engine.Get(ctx, c, refs, fields)
}

func (f *failing) Query(ctx context.Context, q *driver.Query) ([]*driver.Version, error) {
	f.mu.Lock()
	f.fields = q.Fields
	f.calls = append(f.calls, "query "+q.Collection)
	f.mu.Unlock()
	if err := f.trouble(q.Collection); err != nil {
		return nil, err
	}
	return f.Engine.Query(ctx, q)
}

func (f *failing) Log(ctx context.Context, q *driver.LogQuery) iter.Seq2[*driver.Version, error] {
	return func(yield func(*driver.Version, error) bool) {
		call := fmt.Sprintf("log %s %d", strings.Join(q.Collections, " "), len(q.Keys))
		if q.Fields != nil && len(q.Fields) == 0 {
			call += " without data"
		}
		f.mu.Lock()
		f.fields = q.Fields
		f.calls = append(f.calls, call)
		f.mu.Unlock()
		if err := f.trouble(q.Collections...); err != nil {
			yield(nil, err)
			return
		}
		for e, err := range f.Engine.Log(ctx, q) {
			if !yield(e, err) {
				return
			}
		}
	}
}

func (f *failing) Count(ctx context.Context, q *driver.Query) (int64, error) {
	f.mu.Lock()
	f.calls = append(f.calls, "count "+q.Collection)
	f.mu.Unlock()
	if err := f.trouble(q.Collection); err != nil {
		return 0, err
	}
	return f.Engine.Count(ctx, q)
}

// version is what a test loads.
type version struct {
	collection, key string
	at              driver.Instant
	data            string // "": deleted
}

func newPair(t testing.TB, versions ...version) *pair {
	t.Helper()
	clock := func() time.Time { return now.Time() }
	p := &pair{t: t, engine: &failing{Engine: drivertest.NewModel(clock, storage.CollectionsOf(model.Types))}}
	var err error
	if p.store, err = storage.New(p.engine, model.Types); err != nil {
		t.Fatal(err)
	}
	vs := make([]driver.Version, len(versions))
	for i, v := range versions {
		vs[i] = driver.Version{
			Collection: v.collection, Key: v.key, RecordedAt: v.at, Op: driver.OpImport, Author: "ann", Message: "why \"not\"\n",
			Deleted: v.data == "", Data: []byte(v.data),
		}
		if v.data == "" {
			vs[i].Data, vs[i].Op, vs[i].Group = nil, driver.OpDelete, "g"
		}
	}
	if _, err := p.store.Load(t.Context(), vs); err != nil {
		t.Fatal(err)
	}
	p.slow = p.executor(resolvers.NewSchema(p.store))
	p.fast = p.planned()
	return p
}

// planned is an executor with plans, whose reasons are observed.
func (p *pair) planned() *executor.Executor {
	return p.executor(p.plans(func(c *plan.Config) {
		c.Observe = func(_ context.Context, why string) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.observed = append(p.observed, why)
		}
	}))
}

// free bounds and observes nothing.
func free() plan.Config {
	return plan.Config{Observe: func(context.Context, string) {}, MaxAnswer: math.MaxInt, MaxErrors: math.MaxInt, Document: func(context.Context) int { return 1000 }, Memory: func(context.Context, int) error { return nil }}
}

// plans is the schema with plans.
func (p *pair) plans(change func(*plan.Config)) graphql.ExecutableSchema {
	c := free()
	change(&c)
	return plan.New(resolvers.NewSchema(p.store), p.store, c)
}

func (p *pair) executor(schema graphql.ExecutableSchema) *executor.Executor {
	exec := executor.New(schema)
	exec.SetQueryCache(lru.New[*ast.QueryDocument](100))
	log := slog.New(slog.DiscardHandler)
	exec.SetErrorPresenter(app.ErrorPresenter(log))
	exec.SetRecoverFunc(app.Recover(log))
	return exec
}

// do executes a request and returns the answer as it would be written.
func (p *pair) do(exec *executor.Executor, query, variables string) string {
	p.t.Helper()
	return p.doIn(p.t.Context(), exec, query, variables)
}

// doIn is do in a context.
func (p *pair) doIn(ctx context.Context, exec *executor.Executor, query, variables string) string {
	p.t.Helper()
	ctx, err := p.store.Begin(graphql.StartOperationTrace(ctx))
	if err != nil {
		p.t.Fatal(err)
	}
	ctx = dataloader.Begin(ctx, p.store)
	params := &graphql.RawParams{Query: query}
	if variables != "" {
		dec := json.NewDecoder(bytes.NewReader([]byte(variables)))
		dec.UseNumber()
		if err := dec.Decode(&params.Variables); err != nil {
			p.t.Fatal(err)
		}
	}
	oc, errs := exec.CreateOperationContext(ctx, params)
	if errs != nil {
		p.t.Fatalf("%s: %v", query, errs)
	}
	next, ctx := exec.DispatchOperation(ctx, oc)
	response := next(ctx)
	if next(ctx) != nil {
		p.t.Errorf("%s: more than one response", query)
	}
	// The stock executor answers root fields at the same time: only within one is
	// there an order.
	slices.SortStableFunc(response.Errors, func(a, b *gqlerror.Error) int {
		return cmp.Compare(fmt.Sprint(a.Path[:min(1, len(a.Path))]), fmt.Sprint(b.Path[:min(1, len(b.Path))]))
	})
	text, err := json.Marshal(response.Errors)
	if err != nil {
		p.t.Fatal(err)
	}
	return string(response.Data) + "\n" + string(text)
}

// compare executes on both paths, wants the same, and returns it. Why is the
// reason for which the operation has no plan; "": it has one.
func (p *pair) compare(query, variables, why string) string {
	p.t.Helper()
	trouble := p.engine.after
	want := p.do(p.slow, query, variables)
	p.observed = nil
	p.engine.after = trouble
	got := p.do(p.fast, query, variables)
	if got != want {
		p.t.Errorf("%s %s\n got %s\nwant %s", query, variables, got, want)
	}
	if len(p.observed) != 1 || p.observed[0] != why {
		p.t.Errorf("%s: not planned because %q, want %q", query, p.observed, why)
	}
	return got
}
