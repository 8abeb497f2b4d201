package plantest

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/99designs/gqlgen/graphql"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/tidwall/gjson"
	"github.com/vektah/gqlparser/v2/ast"

	"github.com/asof/asof/dataloader"
	"github.com/asof/asof/internal/app"
	"github.com/asof/asof/internal/app/httpapi"
	"github.com/asof/asof/internal/fixture/graph/model"
	"github.com/asof/asof/internal/fixture/resolvers"
	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
)

// mutant is an executor with one mistake.
type mutant struct {
	name      string
	engine    func(driver.Engine) driver.Engine
	operation func(*graphql.OperationContext) // changes a copy; what it points at is shared
	response  func(*graphql.Response)
	body      func(string) string
}

// mutated is an ExecutableSchema with a mutant's mistake.
type mutated struct {
	graphql.ExecutableSchema
	mutant
}

func (m mutated) Exec(ctx context.Context) graphql.ResponseHandler {
	if m.operation != nil {
		oc := *graphql.GetOperationContext(ctx)
		m.operation(&oc)
		ctx = graphql.WithOperationContext(ctx, &oc)
	}
	inner := ctx
	next := m.ExecutableSchema.Exec(ctx)
	return func(ctx context.Context) *graphql.Response {
		if m.operation != nil {
			ctx = graphql.WithOperationContext(ctx, graphql.GetOperationContext(inner))
		}
		r := next(ctx)
		if r != nil && m.response != nil {
			m.response(r)
		}
		return r
	}
}

type begins struct{ store *storage.Store }

func (b begins) Begin(ctx context.Context) (context.Context, error) {
	ctx, err := b.store.Begin(ctx)
	if err != nil {
		return ctx, err
	}
	return dataloader.Begin(ctx, b.store), nil
}

func (b begins) Instant(ctx context.Context) string {
	at, _ := storage.InstantOf(ctx)
	return at.String()
}

// serve serves a mutant as the program serves its executor.
func (m mutant) serve(engine driver.Engine) (http.Handler, error) {
	if m.engine != nil {
		engine = m.engine(engine)
	}
	store, err := storage.New(engine, model.Types)
	if err != nil {
		return nil, err
	}
	logger := slog.New(slog.DiscardHandler)
	h, err := httpapi.New(httpapi.Config{
		Schema: mutated{resolvers.NewSchema(store), m}, Operations: begins{store}, Introspection: true,
		Present: app.ErrorPresenter(logger), Recover: app.Recover(logger),
		Client:   func(*http.Request) string { return "" },
		Identify: func(r *http.Request) (httpapi.Identity, error) { return httpapi.Identity{Context: r.Context()}, nil },
		Weight:   func(_, _, _ string) int { return 0 },
		Pinned:   func(*graphql.OperationContext) bool { return false },
		CPU:      func() time.Duration { return 0 },
		Metrics:  prometheus.NewRegistry(),
		Logger:   logger, Now: func() time.Time { return beginning.Time() },
		Limits: httpapi.Limits{
			Body: 1 << 20, Query: 1 << 20, Tokens: 10_000, Depth: 15, PageSize: 500, Cost: 50_000, Read: 32 << 20, Answer: 8 << 20, Memory: 1 << 30,
			Time: time.Minute, Execution: time.Minute, SlowAfter: time.Second, Wait: time.Minute, Grace: time.Minute, Rate: 1 << 20, Concurrent: 64, Fast: 64, Slow: 64,
		},
	})
	if err != nil || m.body == nil {
		return h, err
	}
	return rewritten(h, m.body), nil
}

// The comparison finds every one of these mistakes. Without one it finds none.
func TestMutantsAreFound(t *testing.T) {
	for _, m := range append(mutants(), mutant{name: "none"}) {
		t.Run(m.name, func(t *testing.T) {
			if race && m.name != "none" {
				t.Skip("the race detector looks for something else")
			}
			t.Parallel()
			cfg := config(t, sqlite(t))
			cfg.Operations, cfg.PerWorld, cfg.AsFound = 12_000, 600, true
			cfg.Seed = 1 // how soon a mistake is found is a matter of luck
			if m.name == "none" {
				cfg.Operations = 1000
			}
			cfg.Serve = func(e driver.Engine) (*Pair, error) {
				trusted, err := mutant{}.serve(e)
				if err != nil {
					return nil, err
				}
				other, err := m.serve(e)
				return &Pair{Trusted: trusted, Other: other}, err
			}
			report, err := Run(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			found := len(report.Differences) > 0
			if found != (m.name != "none") {
				t.Errorf("after %d operations %d differences were found\n%s%v", report.Operations, len(report.Differences), report, report.Differences)
			}
			if found {
				t.Logf("found after %d operations", report.Operations)
			}
		})
	}
}

// data makes a mutant that changes the text of the data, where it is.
func data(name string, change func([]byte) []byte) mutant {
	return mutant{name: name, response: func(r *graphql.Response) {
		if len(r.Data) > 0 {
			r.Data = change(bytes.Clone(r.Data))
		}
	}}
}

func replace(name, pattern, by string) mutant {
	re := regexp.MustCompile(pattern)
	return data(name, func(b []byte) []byte { return re.ReplaceAll(b, []byte(by)) })
}

// failure makes a mutant that changes the texts of the errors of an operation
// that was executed.
func failure(name string, change func(errors []string) []string) mutant {
	return body(name, func(text string) string {
		errs := gjson.Get(text, "errors")
		if errs.Index == 0 || !gjson.Get(text, "data").Exists() {
			return text
		}
		var texts []string
		for _, e := range errs.Array() {
			texts = append(texts, e.Raw)
		}
		return text[:errs.Index] + "[" + strings.Join(change(texts), ",") + "]" + text[errs.Index+len(errs.Raw):]
	})
}

// errorsText makes a mutant that writes errors differently.
func errorsText(name, pattern, by string) mutant {
	re := regexp.MustCompile(pattern)
	return failure(name, func(texts []string) []string {
		for i := range texts {
			texts[i] = re.ReplaceAllString(texts[i], by)
		}
		return texts
	})
}

// body makes a mutant that changes the body of an answer.
func body(name string, change func(string) string) mutant {
	return mutant{name: name, body: change}
}

// rewritten serves what another handler does, with other bodies.
func rewritten(next http.Handler, change func(string) string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "" {
			next.ServeHTTP(w, r)
			return
		}
		recorder := httptest.NewRecorder()
		next.ServeHTTP(recorder, r)
		text := change(recorder.Body.String())
		maps.Copy(w.Header(), recorder.Header())
		if w.Header().Get("Content-Length") != "" {
			w.Header().Set("Content-Length", strconv.Itoa(len(text)))
		}
		w.WriteHeader(recorder.Code)
		_, _ = io.WriteString(w, text)
	})
}

// selections makes a mutant that executes other selections.
func selections(name string, change func(ast.SelectionSet) ast.SelectionSet) mutant {
	return mutant{name: name, operation: func(oc *graphql.OperationContext) {
		rewrite := rewriter{change: change, fragments: map[string]*ast.FragmentDefinition{}}
		doc, op := *oc.Doc, *oc.Operation
		doc.Fragments = nil
		for _, f := range oc.Doc.Fragments {
			doc.Fragments = append(doc.Fragments, rewrite.fragment(f))
		}
		op.SelectionSet = rewrite.set(op.SelectionSet)
		oc.Doc, oc.Operation = &doc, &op
	}}
}

type rewriter struct {
	change    func(ast.SelectionSet) ast.SelectionSet
	fragments map[string]*ast.FragmentDefinition
}

func (r rewriter) fragment(f *ast.FragmentDefinition) *ast.FragmentDefinition {
	if known := r.fragments[f.Name]; known != nil {
		return known
	}
	copied := *f
	r.fragments[f.Name] = &copied
	copied.SelectionSet = r.set(f.SelectionSet)
	return &copied
}

func (r rewriter) set(set ast.SelectionSet) ast.SelectionSet {
	var out ast.SelectionSet
	for _, s := range r.change(slices.Clone(set)) {
		switch s := s.(type) {
		case *ast.Field:
			copied := *s
			copied.SelectionSet = r.set(s.SelectionSet)
			out = append(out, &copied)
		case *ast.InlineFragment:
			copied := *s
			copied.SelectionSet = r.set(s.SelectionSet)
			out = append(out, &copied)
		case *ast.FragmentSpread:
			copied := *s
			copied.Definition = r.fragment(s.Definition)
			out = append(out, &copied)
		}
	}
	return out
}

// without makes a mutant that knows no directive of a name.
func without(name string) mutant {
	strip := func(ds ast.DirectiveList) ast.DirectiveList {
		return slices.DeleteFunc(slices.Clone(ds), func(d *ast.Directive) bool { return d.Name == name })
	}
	return selections("ignores @"+name, func(set ast.SelectionSet) ast.SelectionSet {
		for i, s := range set {
			switch s := s.(type) {
			case *ast.Field:
				copied := *s
				copied.Directives = strip(s.Directives)
				set[i] = &copied
			case *ast.InlineFragment:
				copied := *s
				copied.Directives = strip(s.Directives)
				set[i] = &copied
			case *ast.FragmentSpread:
				copied := *s
				copied.Directives = strip(s.Directives)
				set[i] = &copied
			}
		}
		return set
	})
}

// remembering makes a mutant that keeps something of the first operation that it
// saw of a document.
func remembering(name string, keep func(first, oc *graphql.OperationContext)) mutant {
	var mu sync.Mutex
	seen := map[string]*graphql.OperationContext{}
	return mutant{name: name, operation: func(oc *graphql.OperationContext) {
		mu.Lock()
		defer mu.Unlock()
		if first := seen[oc.RawQuery]; first != nil {
			keep(first, oc)
			return
		}
		seen[oc.RawQuery] = oc
	}}
}

var numbers = regexp.MustCompile(`[:,\[]-?[0-9][0-9.eE+-]*`)

func asFloats(b []byte) []byte {
	return numbers.ReplaceAllFunc(b, func(m []byte) []byte {
		x, err := strconv.ParseFloat(string(m[1:]), 64)
		if err != nil {
			return m
		}
		return strconv.AppendFloat(m[:1:1], x, 'f', -1, 64)
	})
}
