package httpapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"
	"github.com/vektah/gqlparser/v2/parser"
)

// An answer that is too long is one error, on every transport; the longest that
// is not is sent.
func TestAnswerLimit(t *testing.T) {
	const data = `{"hello":"world"}`
	long := newServer(t, func(cfg *Config, _ *fakeSchema) { cfg.Limits.Answer = len(data) })
	long.query(t, `{hello}`).want(t, 200, ok)
	s := newServer(t, func(cfg *Config, schema *fakeSchema) {
		cfg.Limits.Answer = len(data) - 1
		schema.fields["hello"] = func(ctx context.Context) (any, error) {
			graphql.AddErrorf(ctx, "another error")
			return "world", nil
		}
		schema.fields["change"] = func(context.Context) (any, error) { return 1_000_000, nil }
	})
	const text = "longer than 16 bytes, the limit of this server (--max-answer): ask for fewer"
	s.query(t, `{hello}`).wantError(t, 200, codeTooComplex, text)
	s.query(t, `{hello}`, "Accept", mediaGraphQL).wantError(t, 400, codeTooComplex, text)
	changed := s.query(t, `mutation {change}`)
	changed.wantError(t, 200, codeTooComplex, "longer than 8 bytes, the limit of this server (--max-answer, of an event or a mutation half of it)")
	changed.wantError(t, 200, codeTooComplex, "the mutation was executed")
	s.do(t, "GET", "/?query={hello}", "").wantError(t, 200, codeTooComplex, text)
	c := s.connect(t, `{}`)
	c.send(t, `{"type":"subscribe","id":"1","payload":{"query":"{hello}"}}`)
	for name, got := range map[string]string{"SSE": s.query(t, `{hello}`, "Accept", mediaEvents).text, "WebSocket": c.receive(t)} {
		if !strings.Contains(got, text) || !strings.Contains(got, codeTooComplex) || strings.Contains(got, "data\":") || strings.Contains(got, "another error") {
			t.Errorf("%s: %s", name, got)
		}
	}
	if line := s.journal.lines(t)[0]; line["errors"] != 1.0 || !strings.Contains(line["error"].(string), text) {
		t.Errorf("log: %v", line)
	}
}

// An answer lists no more errors than a client can use, and says that there are
// others, which nobody has looked at.
func TestErrorsAreBounded(t *testing.T) {
	presented, failures := 0, MostErrors
	s := newServer(t, func(cfg *Config, schema *fakeSchema) {
		cfg.Present = func(ctx context.Context, err error) *gqlerror.Error {
			presented++
			return presentPlainly(ctx, err)
		}
		schema.fields["hello"] = func(ctx context.Context) (any, error) {
			for range failures {
				graphql.AddErrorf(ctx, "an error")
			}
			return "world", nil
		}
	})
	for range 2 {
		for _, text := range []string{s.query(t, `{hello}`).text, s.query(t, `{hello}`, "Accept", mediaEvents).text} {
			listed, more := strings.Count(text, `"an error"`), strings.Count(text, moreErrors)
			if listed != MostErrors || (more == 1) != (failures > MostErrors) || !strings.Contains(text, `{"hello":"world"}`) {
				t.Errorf("of %d errors %d are listed, and %d times that there are more", failures, listed, more)
			}
		}
		failures = 3 * MostErrors
	}
	if presented != 4*MostErrors {
		t.Errorf("%d errors were made for four answers", presented)
	}
}

// Nor is an alias that is as long as the document repeated for each of them.
func TestErrorsWithLongPathsAreBounded(t *testing.T) {
	s := newServer(t, func(_ *Config, schema *fakeSchema) {
		schema.fields["hello"] = func(ctx context.Context) (any, error) {
			inner := graphql.WithFieldContext(ctx, &graphql.FieldContext{Field: graphql.CollectedField{Field: &ast.Field{Alias: strings.Repeat("a", 90_000)}}})
			for range MostErrors {
				graphql.AddErrorf(inner, "an error")
			}
			return "world", nil
		}
	})
	got := s.query(t, `{hello}`).text
	if len(got) > MostErrors*(shortPath+200) || strings.Count(got, moreErrors) != 1 || strings.Count(got, `"an error"`) < 2 {
		t.Errorf("%d bytes: …%s", len(got), got[len(got)-300:])
	}
}

// The outcome of each change is reported, however much fails in what is shown of those
// before.
func TestErrorsOfChangesAreToldBesideOthers(t *testing.T) {
	s := newServer(t, func(_ *Config, schema *fakeSchema) {
		schema.fields["change"] = func(ctx context.Context) (any, error) {
			root := graphql.WithFieldContext(ctx, &graphql.FieldContext{Field: graphql.CollectedField{Field: &ast.Field{Alias: "change"}}})
			graphql.AddErrorf(root, "nothing was written")
			inner := graphql.WithFieldContext(root, &graphql.FieldContext{Field: graphql.CollectedField{Field: &ast.Field{Alias: "value"}}})
			for range MostErrors {
				graphql.AddErrorf(inner, "an error")
			}
			return nil, nil
		}
	})
	got := s.query(t, `mutation {one: change two: change three: change}`).text
	if written, listed, more := strings.Count(got, "nothing was written"), strings.Count(got, `"an error"`), strings.Count(got, moreErrors); written != 3 || listed != MostErrors || more != 1 {
		t.Errorf("%d errors of changes and %d others are reported, and %d times that there are more", written, listed, more)
	}
}

// No field of a query is resolved when its time is over, also where so many have
// failed before that this is not among the errors; those of a mutation are, unless
// they are too many to tell what it did.
func TestFieldsEndWithTheTime(t *testing.T) {
	const all, few = lateFields, fieldsPerLook - 1
	for _, c := range []struct {
		document   string
		ends       int // after so many fields
		fails      error
		wantStatus int
		want       int // fields
	}{
		{`{hello}`, 3, nil, http.StatusGatewayTimeout, few},
		{`{hello}`, MostErrors + 1, errors.New("an error"), http.StatusGatewayTimeout, (MostErrors/fieldsPerLook+1)*fieldsPerLook - 1},
		{`{hello}`, all + 1, nil, http.StatusOK, all},
		{`mutation {change}`, 3, nil, http.StatusOK, all},
		{`mutation {change again: change}`, 3, nil, http.StatusOK, few + lateFields},
	} {
		var seconds atomic.Int64
		resolved := 0
		field := func(ctx context.Context) (any, error) {
			for range all {
				_, err := graphql.GetOperationContext(ctx).ResolverMiddleware(ctx, func(context.Context) (any, error) {
					if resolved++; resolved == c.ends {
						seconds.Add(60)
					}
					return nil, c.fails
				})
				graphql.AddError(ctx, err)
			}
			return "done", nil
		}
		s := newServer(t, func(cfg *Config, schema *fakeSchema) {
			cfg.Now = func() time.Time { return time.Unix(seconds.Load(), 0) }
			cfg.Limits.Time = time.Minute
			cfg.Schema = BoundAnswers(schema, cfg.Limits)
			schema.fields["hello"], schema.fields["change"] = field, field
		})
		got := s.query(t, c.document)
		if c.wantStatus != http.StatusOK {
			got.wantError(t, c.wantStatus, CodeUnavailable, "took longer than this server allows")
		}
		if got.status != c.wantStatus || resolved != c.want || strings.Contains(got.text, `"done"`) != (c.wantStatus == http.StatusOK) {
			t.Errorf("%s, after %d: status %d, %d fields are resolved, want %d: %.300s", c.document, c.ends, got.status, resolved, c.want, got.text)
		}
	}
}

// An operation that resolves more than an answer may have is refused as a whole; a
// mutation still tells of each of its changes.
func TestResolvedFieldsAreBounded(t *testing.T) {
	const most = resolvedPerCost * 3000
	for _, c := range []struct {
		document string
		resolve  func(i int) any
		want     int // resolved
	}{
		{`{hello}`, func(int) any { return "x" }, most},
		{`{hello}`, func(int) any { return make([]string, most/10-1) }, 10},
		{`{hello}`, func(int) any { return make([]byte, most+1) }, most},
		{`mutation {change again: change}`, func(int) any { return "x" }, most},
	} {
		resolved, changes := 0, 0
		field := func(ctx context.Context) (any, error) {
			changes++
			for i := range most + 10 {
				_, err := graphql.GetOperationContext(ctx).ResolverMiddleware(ctx, func(context.Context) (any, error) {
					resolved++
					return c.resolve(i), nil
				})
				if err != nil {
					graphql.AddError(ctx, err)
				}
			}
			return "done", nil
		}
		s := newServer(t, func(cfg *Config, schema *fakeSchema) {
			cfg.Limits.Cost = 3000
			cfg.Schema = BoundAnswers(schema, cfg.Limits)
			schema.fields["hello"], schema.fields["change"] = field, field
		})
		got := s.query(t, c.document)
		if c.document[0] == '{' {
			got.wantError(t, http.StatusOK, codeTooComplex, "the answer has more than 6000 fields")
		} else if changes != 2 || strings.Count(got.text, `"done"`) != 2 || !strings.Contains(got.text, "the answer has more than 6000 fields") {
			t.Errorf("%d changes: %.500s", changes, got.text)
		}
		if resolved != c.want {
			t.Errorf("%s: %d fields are resolved, want %d", c.document, resolved, c.want)
		}
	}
}

// An answer that becomes too long takes little more memory than it may have.
func TestLongAnswersAreNotCopiedAgainAndAgain(t *testing.T) {
	const most = 8 << 20
	part := strings.Repeat("x", 100)
	value := boundedValue{t.Context(), graphql.WriterFunc(func(w io.Writer) {
		for range most/len(part) + 1 {
			_, _ = io.WriteString(w, part)
		}
	}), most}
	var long, bounded bytes.Buffer
	allocated := func(m graphql.Marshaler, into *bytes.Buffer) uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		m.MarshalGQL(into)
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	doubling, once := allocated(value.Marshaler, &long), allocated(value, &bounded)
	if bounded.Len() != most+1 || 2*once > doubling {
		t.Errorf("%d bytes, for which %d are allocated; %d where it is not bounded", bounded.Len(), once, doubling)
	}
}

// So is an object, or a list, of whose fields each is compared with very many.
func TestFieldsAreNotComparedWithVeryMany(t *testing.T) {
	for _, selected := range []int{100, 1_000, 3_000} {
		text := "{hello"
		for i := range selected {
			text += fmt.Sprintf(" a%d: hello", i)
		}
		doc, err := parser.ParseQuery(&ast.Source{Input: text + "}"})
		if err != nil {
			t.Fatal(err)
		}
		f := graphql.CollectedField{Field: &ast.Field{Name: "one", Definition: &ast.FieldDefinition{Type: ast.NamedType("Query", nil)}}, Selections: doc.Operations[0].SelectionSet}
		var refused error
		s := newServer(t, func(cfg *Config, schema *fakeSchema) {
			cfg.Schema = BoundAnswers(schema, cfg.Limits)
			schema.fields["hello"] = func(ctx context.Context) (any, error) {
				_, refused = graphql.GetOperationContext(ctx).ResolverMiddleware(graphql.WithFieldContext(ctx, &graphql.FieldContext{Field: f}), func(context.Context) (any, error) {
					return new(int), nil
				})
				return "done", refused
			}
		})
		s.query(t, `{hello}`)
		if (refused != nil) != (selected == 3_000) {
			t.Errorf("%d fields: %v", selected, refused)
		}
	}
}

// A list is refused before its elements are visited, where the fields that are selected of them
// are more than an answer may have, or take more memory, or have names that make the answer too long.
func TestListsAreRefusedBeforeTheirElements(t *testing.T) {
	const cost, elements = 3000, 2000
	for _, c := range []struct {
		selected int
		kept     int64 // fields that there is memory for
		name     int   // length of the name of each
		null     bool  // the elements
		refused  bool
	}{
		{1, 3 * elements, 0, false, false},
		{3, 5 * elements, 0, false, true},
		{1, elements * 3 / 2, 0, false, true},
		{1, 3 * elements, 1 + leastTexts/elements, false, true},
		{3, elements * 3 / 2, leastTexts / elements, true, false},
	} {
		f := graphql.CollectedField{Field: &ast.Field{Name: "list", Definition: &ast.FieldDefinition{Type: ast.ListType(ast.NamedType("Query", nil), nil)}}}
		for i := range c.selected {
			f.Selections = append(f.Selections, &ast.Field{Name: "hello", Alias: fmt.Sprint("a", i) + strings.Repeat("a", c.name)})
		}
		var refused error
		s := newServer(t, func(cfg *Config, schema *fakeSchema) {
			cfg.Limits.Cost = cost
			cfg.Limits.Answer, cfg.Limits.Read = 1000, 3*c.kept*fieldBytes
			cfg.Schema = BoundAnswers(schema, cfg.Limits)
			schema.fields["hello"] = func(ctx context.Context) (any, error) {
				_, refused = graphql.GetOperationContext(ctx).ResolverMiddleware(graphql.WithFieldContext(ctx, &graphql.FieldContext{Field: f}), func(context.Context) (any, error) {
					if c.null {
						return make([]*int, elements), nil
					}
					return slices.Repeat([]*int{new(int)}, elements), nil
				})
				return "done", refused
			}
		})
		s.query(t, `{hello}`)
		if (refused != nil) != c.refused {
			t.Errorf("%d fields of each of %d, with memory for %d, and names of %d bytes: %v", c.selected, elements, c.kept, c.name, refused)
		}
	}
}
