package codegen

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const executorBefore = `package graph

func (ec *executionContext) _Note(ctx context.Context, sel ast.SelectionSet, obj *model.Note) graphql.Marshaler {
	fields := graphql.CollectFields(ec.OperationContext, sel, noteImplementors)

	out := graphql.NewFieldSet(fields)
	deferredFieldSet := graphql.NewFieldSet(nil)
	deferLabelToView := make(map[string]*graphql.FieldSetView)
	for i, field := range fields {
		out.Values[i] = ec._Note_text(ctx, field, obj)
	}
	out.Dispatch(ctx)
	atomic.AddInt32(&ec.Deferred, 1)
	ec.ProcessDeferredGroup(graphql.DeferredGroup{})
	return out
}

func (ec *executionContext) _Note_text(ctx context.Context, field graphql.CollectedField, obj *model.Note) (ret graphql.Marshaler) {
	return graphql.ResolveField(1, 2)
}

func list() { graphql.MarshalSliceConcurrently(1) }
`

const executorAfter = `package graph

func (ec *executionContext) _Note(ctx context.Context, sel ast.SelectionSet, obj *model.Note) graphql.Marshaler {
	fields := graphql.CollectFields(ec.OperationContext, sel, noteImplementors)

	out := scalar.NewFields(fields)

	for i, field := range fields {
		out.Values[i] = ec._Note_text(ctx, field, obj)
	}

	return out
}

func (ec *executionContext) _Note_text(ctx context.Context, field graphql.CollectedField, obj *model.Note) (ret graphql.Marshaler) {
	return short
}

func list() { scalar.MarshalList(1) }
`

func TestTuning(t *testing.T) {
	tune := tuning{objects: []string{"_Note"}, leaves: map[string]string{"_Note_text": "return short"}}
	tests := []struct {
		name, before, want, err string
	}{
		{"as expected", executorBefore, executorAfter, ""},
		{"a function has gone", strings.ReplaceAll(executorBefore, "_Note_text(ctx context", "_Note_other(ctx context"), "", "_Note_text is not what gqlgen"},
		{"a statement has gone", strings.ReplaceAll(executorBefore, "	out.Dispatch(ctx)\n", ""), "", "_Note is not what gqlgen"},
		{"not Go", "package graph\nfunc {", "", "parse"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "generated.go")
			if err := os.WriteFile(file, []byte(test.before), 0o600); err != nil {
				t.Fatal(err)
			}
			err := tune.apply(file)
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Errorf("error %v, want %q", err, test.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			// blank lines where statements were cut are gofmt's business
			blank := func(s string) string { return strings.ReplaceAll(s, "\n\n", "\n") }
			if diff := cmp.Diff(blank(blank(test.want)), blank(blank(string(got)))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
