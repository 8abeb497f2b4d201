package plantest

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/99designs/gqlgen/graphql"
	"github.com/tidwall/gjson"
	"github.com/vektah/gqlparser/v2/ast"

	"github.com/asof/asof/storage/driver"
)

// mutants are executors with one mistake each.
func mutants() []mutant {
	return []mutant{
		// What is written.
		replace("escapes <", `<`, `\u003c`),
		replace("writes U+2028 as an escape", "\u2028", `\u2028`),
		replace("writes an escape in capitals", `\\u001f`, `\u001F`),
		replace("writes a missing list as null", `\[\]`, "null"),
		replace("writes null as an empty text", `null`, `""`),
		replace("leaves a space", `,`, ", "),
		data("writes all numbers as floats", asFloats),
		replace("writes instants with all digits", `(:\d\d)Z"`, `${1}.000000Z"`),
		replace("escapes a slash", `/`, `\/`),
		replace("swaps fields", `\{("\w+":"[^"]*"),("\w+":"[^"]*")`, `{$2,$1`),
		replace("swaps elements", `\[("[^"]*"),("[^"]*")`, `[$2,$1`),
		replace("forgets a last element", `,"[^"]*"\]`, `]`),
		replace("forgets that an id is pinned", `"(\w+:[^"@]+)@\d+"`, `"$1"`),
		replace("names the wrong type", `"ProjectEdge"`, `"TagEdge"`),
		replace("names the interface instead of the type", `"__typename":"(Project|Tag)"`, `"__typename":"Document"`),
		replace("knows no next page", `"hasNextPage":true`, `"hasNextPage":false`),
		replace("knows no previous page", `"hasPreviousPage":true`, `"hasPreviousPage":false`),
		replace("calls every version current", `"isCurrent":false`, `"isCurrent":true`),
		replace("counts no further than ten", `"totalCount":1\d\b`, `"totalCount":10`),
		replace("knows the future of a version", `"supersededAt":null`, `"supersededAt":"2024-01-01T00:00:00Z"`),

		// Errors.
		failure("drops an error", func(texts []string) []string { return texts[:len(texts)-1] }),
		failure("says an error twice", func(texts []string) []string { return append(texts, texts[0]) }),
		errorsText("says no locations", `,"locations":\[[^\]]*\]`, ""),
		errorsText("counts columns from zero", `"column":1\d\b`, `"column":1`),
		errorsText("says no path", `,"path":\[[^\]]*\]`, ""),
		errorsText("says the path of the parent", `,[^,\]]*\],"ext`, `],"ext`),
		errorsText("ends messages with a full stop", `"message":"([^"]*)"`, `"message":"$1."`),
		errorsText("says another code", `"INTERNAL"`, `"BAD_USER_INPUT"`),
		body("does not let null rise", func(text string) string { return strings.Replace(text, `"data":null`, `"data":{}`, 1) }),
		body("lets null rise to the top", func(text string) string {
			data := gjson.Get(text, "data")
			if !gjson.Get(text, "errors").Exists() || data.Index == 0 {
				return text
			}
			return text[:data.Index] + "null" + text[data.Index+len(data.Raw):]
		}),
		body("says another instant", func(text string) string { return strings.Replace(text, `"asOf":"2024-01-0`, `"asOf":"2024-01-1`, 1) }),

		// What is executed.
		without("skip"),
		without("include"),
		selections("ignores aliases", func(set ast.SelectionSet) ast.SelectionSet {
			for i, s := range set {
				if f, ok := s.(*ast.Field); ok {
					copied := *f
					copied.Alias = f.Name
					set[i] = &copied
				}
			}
			return set
		}),
		selections("ignores inline fragments on interfaces", func(set ast.SelectionSet) ast.SelectionSet {
			return slices.DeleteFunc(set, func(s ast.Selection) bool {
				f, ok := s.(*ast.InlineFragment)
				return ok && (f.TypeCondition == "Node" || f.TypeCondition == "Document")
			})
		}),
		selections("ignores named fragments on interfaces", func(set ast.SelectionSet) ast.SelectionSet {
			return slices.DeleteFunc(set, func(s ast.Selection) bool {
				f, ok := s.(*ast.FragmentSpread)
				return ok && (f.Definition.TypeCondition == "Node" || f.Definition.TypeCondition == "Document")
			})
		}),
		selections("ignores __typename", func(set ast.SelectionSet) ast.SelectionSet {
			return slices.DeleteFunc(set, func(s ast.Selection) bool {
				f, ok := s.(*ast.Field)
				return ok && f.Name == "__typename" && len(set) > 1
			})
		}),
		selections("does not merge", func(set ast.SelectionSet) ast.SelectionSet {
			seen := map[string]bool{}
			return slices.DeleteFunc(set, func(s ast.Selection) bool {
				f, ok := s.(*ast.Field)
				if !ok || len(f.SelectionSet) == 0 {
					return false
				}
				twice := seen[f.Alias]
				seen[f.Alias] = true
				return twice
			})
		}),
		{name: "ignores operationName", operation: func(oc *graphql.OperationContext) { oc.Operation = oc.Doc.Operations[0] }},
		{name: "ignores defaults of variables", operation: func(oc *graphql.OperationContext) {
			oc.Variables = maps.Clone(oc.Variables)
			for _, v := range oc.Operation.VariableDefinitions {
				if v.DefaultValue != nil {
					delete(oc.Variables, v.Variable)
				}
			}
		}},
		{name: "takes an absent variable for null", operation: func(oc *graphql.OperationContext) {
			oc.Variables = maps.Clone(oc.Variables)
			for _, v := range oc.Operation.VariableDefinitions {
				if _, ok := oc.Variables[v.Variable]; !ok {
					oc.Variables[v.Variable] = nil
				}
			}
		}},
		remembering("keeps the variables of the first time", func(first, oc *graphql.OperationContext) { oc.Variables = first.Variables }),
		remembering("keeps the operation of the first time", func(first, oc *graphql.OperationContext) { oc.Operation = first.Operation }),

		// What is read.
		{name: "takes instants for exclusive", engine: func(e driver.Engine) driver.Engine {
			return mistaken{Engine: e, refs: func(rs []driver.Ref) {
				for i := range rs {
					if rs[i].Number == 0 {
						rs[i].At--
					}
				}
			}}
		}},
		{name: "reads pages a moment too early", engine: func(e driver.Engine) driver.Engine {
			return mistaken{Engine: e, query: func(q *driver.Query) { q.At-- }}
		}},
		{name: "reads references now", engine: func(e driver.Engine) driver.Engine {
			return mistaken{Engine: e, refs: func(rs []driver.Ref) {
				for i := range rs {
					if len(rs) > 1 && rs[i].Number == 0 {
						rs[i].At = driver.Forever - 1
					}
				}
			}}
		}},
		{name: "ignores where", engine: func(e driver.Engine) driver.Engine {
			return mistaken{Engine: e, query: func(q *driver.Query) { q.Filter = nil }}
		}},
		{name: "ignores the second field of an order", engine: func(e driver.Engine) driver.Engine {
			return mistaken{Engine: e, query: func(q *driver.Query) { q.Order = q.Order[:min(1, len(q.Order))] }}
		}},
		{name: "ignores after", engine: func(e driver.Engine) driver.Engine {
			return mistaken{Engine: e, query: func(q *driver.Query) { q.After = nil }}
		}},
		{name: "ignores before", engine: func(e driver.Engine) driver.Engine {
			return mistaken{Engine: e, query: func(q *driver.Query) { q.Before = nil }}
		}},
		{name: "reads deleted documents", engine: func(e driver.Engine) driver.Engine {
			return mistaken{Engine: e, found: func(vs []*driver.Version) {
				for i, v := range vs {
					if v != nil && v.Deleted {
						alive := *v
						alive.Deleted, alive.Data = false, []byte(`{"name":"ghost"}`)
						vs[i] = &alive
					}
				}
			}}
		}},
		{name: "reads one of two equal references", engine: func(e driver.Engine) driver.Engine {
			return mistaken{Engine: e, found: func(vs []*driver.Version) {
				if len(vs) > 2 {
					vs[len(vs)-1] = nil
				}
			}}
		}},
	}
}

// mistaken is an engine that reads something else than it is asked for.
type mistaken struct {
	driver.Engine
	refs  func([]driver.Ref)
	found func([]*driver.Version)
	query func(*driver.Query)
}

func (m mistaken) Get(ctx context.Context, collection string, refs []driver.Ref, fields []string) ([]*driver.Version, error) {
	if m.refs != nil {
		refs = slices.Clone(refs)
		m.refs(refs)
	}
	vs, err := m.Engine.Get(ctx, collection, refs, fields)
	if err == nil && m.found != nil {
		vs = slices.Clone(vs)
		m.found(vs)
	}
	return vs, err
}

func (m mistaken) Query(ctx context.Context, q *driver.Query) ([]*driver.Version, error) {
	if m.query != nil {
		changed := *q
		m.query(&changed)
		q = &changed
	}
	return m.Engine.Query(ctx, q)
}
