package storage_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/fault"
)

func keysOf(nodes []*project) []string {
	out := []string{}
	for _, n := range nodes {
		out = append(out, n.Key())
	}
	return out
}

func TestPagesPinTheirInstant(t *testing.T) {
	e := newEnv(t)
	for i := range 7 {
		e.load("software", fmt.Sprintf("k%d", i), fmt.Sprintf(`{"name":"n","stargazers_count":%d}`, i/2))
	}
	order := []*storage.OrderInput{{Field: "stars", Direction: storage.Desc}}
	want := []string{"k6", "k4", "k5", "k2", "k3", "k0", "k1"}
	var got []string
	var after *string
	for n := 0; ; n++ {
		ctx := e.begin()
		conn := must(e.projects.Page(ctx, nil, order, ptr(2), after, nil, nil, nil, nil))(t)
		got = append(got, keysOf(conn.Nodes)...)
		if total := must(conn.TotalCount(ctx))(t); total != 7 {
			t.Errorf("page %d counts %d", n, total)
		}
		if conn.PageInfo.HasPreviousPage != (after != nil) {
			t.Errorf("page %d: hasPreviousPage %v", n, conn.PageInfo.HasPreviousPage)
		}
		// Others write between the pages: one moves to the front, one is new, one goes.
		e.load("software", fmt.Sprintf("k%d", 5-n), fmt.Sprintf(`{"name":"n","stargazers_count":%d}`, 100+n))
		e.load("software", fmt.Sprintf("new%d", n), `{"name":"n","stargazers_count":0}`)
		if n == 1 {
			e.load("software", "k0", ``)
		}
		if !conn.PageInfo.HasNextPage {
			break
		}
		after = conn.PageInfo.EndCursor()
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatal(diff)
	}
	if n := e.engine.counts.Load(); n != 4 {
		t.Errorf("counted %d times", n)
	}
}

func TestPagesBothWays(t *testing.T) {
	e := newEnv(t)
	for i := range 6 {
		e.load("software", fmt.Sprintf("k%d", i), `{"name":"n"}`)
	}
	ctx := e.begin()
	all := must(e.projects.Page(ctx, nil, nil, nil, nil, nil, nil, nil, nil))(t)
	cursor := func(i int) *string { return ptr(all.Edges[i].Cursor()) }
	tests := []struct {
		name        string
		first, last *int
		after, bef  *string
		want        string
		next, prev  bool
	}{
		{"all", nil, nil, nil, nil, "k0 k1 k2 k3 k4 k5", false, false},
		{"exactly all", ptr(6), nil, nil, nil, "k0 k1 k2 k3 k4 k5", false, false},
		{"first", ptr(2), nil, nil, nil, "k0 k1", true, false},
		{"none", ptr(0), nil, nil, nil, "", true, false},
		{"first after", ptr(2), nil, cursor(1), nil, "k2 k3", true, true},
		{"rest", ptr(2), nil, cursor(3), nil, "k4 k5", false, true},
		{"behind the end", ptr(2), nil, cursor(5), nil, "", false, true},
		{"last", nil, ptr(2), nil, nil, "k4 k5", false, true},
		{"last before", nil, ptr(2), nil, cursor(4), "k2 k3", true, true},
		{"begin", nil, ptr(2), nil, cursor(2), "k0 k1", true, false},
		{"between", ptr(9), nil, cursor(0), cursor(4), "k1 k2 k3", true, true},
		{"last between", nil, ptr(2), cursor(0), cursor(4), "k2 k3", true, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			conn := must(e.projects.Page(ctx, nil, nil, tt.first, tt.after, tt.last, tt.bef, nil, nil))(t)
			if got := strings.Join(keysOf(conn.Nodes), " "); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
			if conn.PageInfo.HasNextPage != tt.next || conn.PageInfo.HasPreviousPage != tt.prev {
				t.Errorf("next %v previous %v", conn.PageInfo.HasNextPage, conn.PageInfo.HasPreviousPage)
			}
		})
	}
}

// A field that is named again decides nothing, and is in no cursor twice.
func TestAFieldDecidesOnce(t *testing.T) {
	e := newEnv(t)
	for i := range 4 {
		e.load("software", fmt.Sprint("k", i), fmt.Sprintf(`{"name":"%d"}`, i))
	}
	order := []*storage.OrderInput{{Field: "name", Direction: storage.Desc}, {Field: "version"}, {Field: "name"}, {Field: "version", Direction: storage.Desc}}
	var after *string
	for _, want := range []string{"k3 k2", "k1 k0"} {
		pg := must(e.projects.Page(e.begin(), nil, order, ptr(2), after, nil, nil, nil, nil))(t)
		if got := strings.Join(keysOf(pg.Nodes), " "); got != want {
			t.Errorf("%s, want %s", got, want)
		}
		after = pg.PageInfo.EndCursor()
		raw, err := base64.RawURLEncoding.DecodeString(*after)
		if err != nil || strings.Count(string(raw), ",") != 5 {
			t.Errorf("the cursor is %s, %v", raw, err)
		}
	}
}

// Values that no input could hold, but an import could, have their places.
func TestCursorsOfExtremeDecimals(t *testing.T) {
	e := newEnv(t)
	prices := []string{`"1e10000"`, `"1e9999"`, `"-1e-9999"`, `"` + strings.Repeat("7", 1200) + `"`, strings.Repeat("8", 1200), `true`, `"0"`}
	for i, price := range prices {
		e.load("software", fmt.Sprint("k", i), `{"name":"a","price":`+price+`}`)
	}
	for _, direction := range []storage.OrderDirection{storage.Asc, storage.Desc} {
		seen := map[string]bool{}
		var after *string
		for range prices {
			pg := must(e.projects.Page(e.begin(), nil, []*storage.OrderInput{{Field: "price", Direction: direction}}, ptr(1), after, nil, nil, nil, nil))(t)
			if len(pg.Nodes) != 1 || seen[pg.Nodes[0].Key()] {
				t.Fatalf("%s: after %v comes %d documents, one of them again", direction, seen, len(pg.Nodes))
			}
			seen[pg.Nodes[0].Key()] = true
			after = pg.PageInfo.EndCursor()
		}
	}
}

// What is on one page is counted already, and only then; who wants nothing but the
// number is shown nothing else.
func TestPagesThatAreTheWholeList(t *testing.T) {
	e := newEnv(t)
	for i := range 3 {
		e.load("software", fmt.Sprint(i), `{"name":"x"}`)
	}
	ctx := e.begin()
	second := must(e.projects.Page(ctx, nil, nil, ptr(2), nil, nil, nil, nil, nil))(t).PageInfo.EndCursor()
	for _, c := range []struct {
		name   string
		args   storage.PageArgs
		counts int64
	}{
		{"all", storage.PageArgs{First: ptr(3)}, 0},
		{"all, from the end", storage.PageArgs{Last: ptr(3)}, 0},
		{"some", storage.PageArgs{First: ptr(2)}, 1},
		{"none of them", storage.PageArgs{First: ptr(0)}, 1},
		{"the rest", storage.PageArgs{First: ptr(3), After: second}, 1},
		{"what was before", storage.PageArgs{Last: ptr(3), Before: second}, 1},
		{"the number", storage.PageArgs{First: ptr(3), CountOnly: true}, 1},
	} {
		e.engine.counts.Store(0)
		page := must(e.store.Page(ctx, e.projects.Type(), &c.args))(t)
		for range 2 {
			if n := must(page.TotalCount(ctx))(t); n != 3 {
				t.Errorf("%s: %d, want 3", c.name, n)
			}
		}
		if n := e.engine.counts.Load(); min(n, 1) != c.counts || c.args.CountOnly && (n != 1 || page.Docs != nil) {
			t.Errorf("%s: counted %d times, %d documents", c.name, n, len(page.Docs))
		}
	}
	if none := must(e.projects.Page(ctx, object{"name": object{"eq": "y"}}, nil, ptr(0), nil, nil, nil, nil, nil))(t); must(none.TotalCount(ctx))(t) != 0 {
		t.Error("there is something")
	}
}

func TestPageRefuses(t *testing.T) {
	e := newEnv(t)
	at := e.load("software", "a", `{"name":"a"}`)
	e.load("software", "b", `{"name":"a"}`)
	ctx := e.begin()
	cursor := must(e.projects.Page(ctx, nil, nil, nil, nil, nil, nil, nil, nil))(t).PageInfo.EndCursor()
	crafted := func(place string) *string {
		raw, err := base64.RawURLEncoding.DecodeString(*cursor)
		if err != nil {
			t.Fatal(err)
		}
		var parts []json.RawMessage
		if err := json.Unmarshal(raw, &parts); err != nil {
			t.Fatal(err)
		}
		return ptr(base64.RawURLEncoding.EncodeToString([]byte(fmt.Sprintf(`[1,%s,%s]`, parts[1], place))))
	}
	where := object{"name": object{"eq": "a"}}
	tests := []struct {
		name        string
		where       object
		order       []*storage.OrderInput
		first, last *int
		after       *string
		asOf        *driver.Instant
		code        fault.Code
		want        string
	}{
		{name: "both", first: ptr(1), last: ptr(1), want: "first and last are both given"},
		{name: "negative", first: ptr(-1), want: "first: -1 is negative; ask for 0 to 500"},
		{name: "negative last", last: ptr(-1), want: "last: -1"},
		{name: "huge", first: ptr(501), want: "at most 500"},
		{name: "not a cursor", after: ptr("hello"), want: "not a cursor"},
		{name: "not base64", after: ptr("?"), want: "not a cursor"},
		{name: "empty cursor", after: ptr(""), want: "not a cursor"},
		{name: "another list's", after: cursor, where: where, want: "other arguments"},
		{name: "another order's", after: cursor, order: []*storage.OrderInput{{Field: "name"}}, want: "other arguments"},
		{name: "another instant's", after: cursor, asOf: &at, want: "belongs to a list read at"},
		{name: "from the future", after: crafted(`9000000000000000,"a"`), code: fault.CodeAsOfInFuture, want: "in the future"},
		{name: "place of another kind", after: crafted(`5,17`), want: "not a cursor of this list"},
		{name: "too many places", after: crafted(`5,"a",1`), want: "not a cursor of this list"},
		{name: "unknown order", order: []*storage.OrderInput{{Field: "tags"}}, want: "cannot be sorted by"},
		{name: "a list in another case", order: []*storage.OrderInput{{Field: "TAGS"}}, want: `cannot be sorted by "TAGS"`},
		{name: "too many orders", order: make([]*storage.OrderInput, 9), want: "at most 8"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := e.projects.Page(ctx, tt.where, tt.order, tt.first, tt.after, tt.last, nil, tt.asOf, nil)
			if tt.code == "" {
				tt.code = fault.CodeBadUserInput
			}
			wantError(t, err, tt.code, tt.want)
		})
	}
}

func TestWhere(t *testing.T) {
	e := newEnv(t)
	e.load("software", "a", `{"name":"Alpha","website_url":"https://a","stargazers_count":5,"tags":["x","y"],"updated_at":"2026-01-05","price":"1.50","plan":"FREE","rating":0.5,"archived":true,"checkedAt":"2026-01-01T00:00:00Z","current_release":{"tag":"v1"},"releases":[{"tag":"v1"},{"tag":"v2"}],"commit_history":{"x":1}}`)
	e.load("software", "b", `{"name":"beta","stargazers_count":7,"tags":[],"price":10,"plan":"PAID","releases":[]}`)
	e.load("software", "c", `{"name":"GAMMA","website_url":null,"tags":["x"],"license":"x","releases":[{"tag":"v2","notes":["n"]}],"current_release":{}}`)
	e.tagAll("t", []string{"a", "b", "c"})
	tests := []struct {
		where object
		want  string
	}{
		{object{}, "a b c"},
		{object{"name": object{"eq": "beta"}}, "b"},
		{object{"name": object{"ne": "beta"}}, "a c"},
		{object{"name": object{"containsFold": "A"}}, "a b c"},
		{object{"name": object{"contains": "A"}}, "a c"},
		{object{"name": object{"eqFold": "gamma"}}, "c"},
		{object{"name": object{"startsWith": "be", "endsWith": "ta"}}, "b"},
		{object{"name": object{"in": []any{"beta", "GAMMA"}}}, "b c"},
		{object{"name": object{"in": []any{}}}, ""},
		{object{"name": object{"in": "beta"}}, "b"},
		{object{"name": object{"notIn": []any{"beta"}}}, "a c"},
		{object{"stars": object{"gt": json.Number("5")}}, "b"},
		{object{"stars": object{"gte": int64(5), "lt": 7}}, "a"},
		{object{"stars": object{"isNull": true}}, "c"},
		{object{"stars": object{"ne": 5}}, "b c"},
		{object{"stars": object{"notIn": []any{5, 7}}}, "c"},
		{object{"not": object{"stars": object{"gt": 0}}}, "c"},
		{object{"websiteUrl": object{"isNull": false}}, "a"},
		{object{"archived": object{"eq": false}}, "b c"},
		{object{"archived": object{"ne": false}}, "a"},
		{object{"archived": object{"isNull": true}}, ""},
		{object{"archived": object{"isNull": false}}, "a b c"},
		{object{"updatedAt": object{"lte": "2026-01-05"}}, "a"},
		{object{"checkedAt": object{"eq": "2026-01-01T01:00:00+01:00"}}, "a"},
		{object{"price": object{"gt": "1.5"}}, "b"},
		{object{"price": object{"eq": "1.500"}}, "a"},
		{object{"plan": object{"in": []any{"FREE", "PAID"}}}, "a b"},
		{object{"rating": object{"lt": 1}}, "a"},
		{object{"license": object{"eq": "x"}}, "c"},
		{object{"tags": object{"has": "x"}}, "a c"},
		{object{"tags": object{"hasAll": []any{"x", "y"}}}, "a"},
		{object{"tags": object{"hasAny": []any{"y", "q"}}}, "a"},
		{object{"tags": object{"hasNone": []any{"y"}}}, "b c"},
		{object{"tags": object{"isEmpty": true}}, "b"},
		{object{"currentRelease": object{"tag": object{"eq": "v1"}}}, "a"},
		{object{"currentRelease": object{"tag": object{"isNull": true}}}, "b c"},
		{object{"currentRelease": object{"isNull": true}}, "b"},
		{object{"currentRelease": object{"isNull": false, "not": object{"tag": object{"eq": "v1"}}}}, "c"},
		{object{"releases": object{"some": object{"tag": object{"eq": "v1"}}}}, "a"},
		{object{"releases": object{"every": object{"tag": object{"eq": "v2"}}}}, "b c"},
		{object{"releases": object{"none": object{"tag": object{"eq": "v1"}}}}, "b c"},
		{object{"releases": object{"some": object{"notes": object{"has": "n"}}}}, "c"},
		{object{"releases": object{"isEmpty": false}}, "a c"},
		{object{"commitHistory": object{"isNull": true}}, "b c"},
		{object{"or": []any{object{"stars": object{"eq": 7}}, object{"key": object{"eq": "c"}}}}, "b c"},
		{object{"or": []any{}}, ""},
		{object{"and": []any{}}, "a b c"},
		{object{"key": object{"startsWith": "a"}, "name": object{"eq": "Alpha"}}, "a"},
		{object{"versionInfo": object{"author": object{"eq": "importer"}, "operation": object{"eq": "IMPORT"}, "number": object{"lt": 2}}}, "a b c"},
		{object{"versionInfo": object{"operation": object{"in": []any{"CREATE"}}}}, ""},
		{object{"versionInfo": object{"recordedAt": object{"gt": "2026-01-01T00:00:01Z"}}}, "b c"},
		{object{"versionInfo": object{"message": object{"isNull": true}}}, "a b c"},
	}
	for _, tt := range tests {
		raw, _ := json.Marshal(tt.where)
		t.Run(string(raw), func(t *testing.T) {
			ctx := e.begin()
			conn := must(e.projects.Page(ctx, tt.where, nil, nil, nil, nil, nil, nil, nil))(t)
			if got := strings.Join(keysOf(conn.Nodes), " "); got != tt.want {
				t.Errorf("found %q, want %q", got, tt.want)
			}
			if got := strings.Join(e.byTag(ctx, "t", tt.where, nil), " "); got != tt.want {
				t.Errorf("found %q by the tag, want %q", got, tt.want)
			}
			if n := must(conn.TotalCount(ctx))(t); n != len(conn.Nodes) {
				t.Errorf("counted %d", n)
			}
		})
	}
}

func TestWhereRefuses(t *testing.T) {
	e := newEnv(t)
	deep := object{"name": object{"eq": "x"}}
	for range 20 {
		deep = object{"not": deep}
	}
	wide := make([]any, 1001)
	for i := range wide {
		wide[i] = "x"
	}
	tests := []struct {
		where object
		want  string
	}{
		{object{"tags": object{"has": nil}}, "where.tags.has: null cannot be compared with; ask for lists without elements with isEmpty: true"},
		{object{"tags": object{"hasAny": []any{"x", nil}}}, "where.tags.hasAny[1]: null cannot be compared with; ask for lists without elements with isEmpty: true"},
		{object{"versionInfo": object{"operation": object{"eq": nil}}}, "where.versionInfo.operation.eq: null cannot be compared with; every version has an operation"},
		{object{"name": object{"eq": nil}}, "where.name.eq: null cannot be compared with; ask for missing values with isNull: true"},
		{object{"name": nil}, "where.name: null is not a filter"},
		{object{"name": object{"in": []any{"a", nil}}}, "where.name.in[1]: null"},
		{object{"tags": object{"has": nil}}, "where.tags.has: null"},
		{object{"tags": object{"isEmpty": nil}}, "where.tags.isEmpty"},
		{object{"stars": object{"eq": int64(1) << 40}}, "where.stars.eq: Int cannot be 1099511627776; it has 32 bits"},
		{object{"stars": object{"isNull": nil}}, "where.stars.isNull: null"},
		{object{"updatedAt": object{"eq": "2026-02-30"}}, `where.updatedAt.eq: Date cannot be "2026-02-30": its day does not exist; write it as "2024-03-01"`},
		{object{"checkedAt": object{"eq": "2026-01-01T00:00:00"}}, "where.checkedAt.eq: DateTime cannot be \"2026-01-01T00:00:00\": the offset is missing"},
		{object{"price": object{"eq": "1e999999999"}}, `where.price.eq: Decimal cannot be "1e999999999": its exponent is beyond 9999`},
		{object{"plan": object{"eq": "TRIAL"}}, "expected one of [FREE PAID]"},
		{object{"nothing": object{"eq": 1}}, `where.nothing: Project has no field "nothing"`},
		{object{"name": object{"like": "x"}}, "where.name.like: there is no condition of this name"},
		{object{"or": []any{object{"and": []any{object{"stars": object{"eq": "x"}}}}}}, `where.or[0].and[0].stars.eq: Int cannot be "x"; write a whole number without quotes`},
		{object{"commitHistory": object{"eq": 1}}, "where.commitHistory.eq"},
		{object{"versionInfo": object{"operation": object{"eq": "EAT"}}}, "where.versionInfo.operation.eq: expected one of"},
		{object{"releases": object{"some": object{"key": object{"eq": "a"}}}}, `Release has no field "key"`},
		{deep, "nested more than 16 deep"},
		{object{"name": object{"in": wide}}, "more than 1000 conditions"},
	}
	for _, tt := range tests {
		t.Run(tt.want, func(t *testing.T) {
			_, err := e.projects.Page(e.begin(), tt.where, nil, nil, nil, nil, nil, nil, nil)
			wantError(t, err, fault.CodeBadUserInput, tt.want)
		})
	}
}

func TestOrderAndCursorsOfEveryKind(t *testing.T) {
	e := newEnv(t)
	values := []string{
		`"website_url":"b","stargazers_count":2,"archived":true,"updated_at":"2026-02-01","checkedAt":"2026-01-01T01:00:00+01:00","price":"10","rating":1.5,"plan":"PAID"`,
		`"website_url":"a","stargazers_count":1,"archived":false,"updated_at":"2026-01-01","checkedAt":"2026-01-01T00:30:00Z","price":"9.5","rating":-1,"plan":"FREE"`,
		`"website_url":null,"stargazers_count":"x","price":9.50`,
		`"rating":1e300,"price":"9.500"`,
	}
	for i, v := range values {
		e.load("software", fmt.Sprintf("k%d", i), `{"name":"n",`+v+`}`)
		e.load("software", fmt.Sprintf("m%d", i), `{"name":"n",`+v+`}`)
	}
	e.tagAll("t", []string{"k0", "k1", "k2", "k3", "m0", "m1", "m2", "m3"})
	for _, field := range []string{"websiteUrl", "stars", "archived", "updatedAt", "checkedAt", "price", "rating", "plan", "key", "version", "recordedAt", "name"} {
		for _, dir := range []storage.OrderDirection{storage.Asc, storage.Desc} {
			t.Run(field+" "+string(dir), func(t *testing.T) {
				order := []*storage.OrderInput{{Field: field, Direction: dir}}
				all := keysOf(must(e.projects.Page(e.begin(), nil, order, nil, nil, nil, nil, nil, nil))(t).Nodes)
				var paged []string
				var after *string
				for {
					conn := must(e.projects.Page(e.begin(), nil, order, ptr(1), after, nil, nil, nil, nil))(t)
					paged = append(paged, keysOf(conn.Nodes)...)
					if after = conn.PageInfo.EndCursor(); !conn.PageInfo.HasNextPage {
						break
					}
				}
				if diff := cmp.Diff(all, paged); diff != "" || len(all) != 8 {
					t.Error(diff)
				}
				if diff := cmp.Diff(all, e.byTag(e.begin(), "t", nil, order)); diff != "" {
					t.Errorf("by the tag: %s", diff)
				}
			})
		}
	}
}
