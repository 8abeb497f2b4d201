package storage_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/fault"
	"github.com/asof/asof/storage/record"
)

// copyTypes are projects that copy fields of their license, and licenses, in place of tags.
func copyTypes() []*record.Type {
	terms := &record.ObjectType{Name: "Terms", Fields: []record.Field{{Name: "fee", Kind: record.KindDecimal}}}
	return []*record.Type{
		{
			Name: "Project", Singular: "project", Plural: "projects", Collection: "software",
			Fields: []record.Field{
				{Name: "license", Stored: "lic", Kind: record.KindRef, Ref: "License", Indexed: true},
				{Name: "stars", Kind: record.KindInt},
			},
			Copies: []record.Copy{
				{Name: "licenseName", From: []string{"license", "name"}},
				{Name: "level", From: []string{"license", "level"}},
				{Name: "kind", From: []string{"license", "kind"}},
				{Name: "fee", From: []string{"license", "terms", "fee"}},
			},
		},
		{Name: "License", Singular: "license", Plural: "licenses", Collection: "tags", Fields: []record.Field{
			{Name: "name", Stored: "title", Kind: record.KindString, Indexed: true},
			{Name: "level", Kind: record.KindInt, Default: json.RawMessage("2"), Indexed: true},
			{Name: "kind", Kind: record.KindEnum, Enum: []string{"FREE", "PAID"}},
			{Name: "terms", Kind: record.KindObject, Object: terms},
		}},
	}
}

// ownTypes has projects that store what the others copy.
func ownTypes() []*record.Type {
	types := copyTypes()
	types[0].Copies = nil
	types[0].Fields = append(types[0].Fields,
		record.Field{Name: "licenseName", Kind: record.KindString}, record.Field{Name: "level", Kind: record.KindInt},
		record.Field{Name: "kind", Kind: record.KindEnum, Enum: []string{"FREE", "PAID"}}, record.Field{Name: "fee", Kind: record.KindDecimal})
	return types
}

type list struct {
	where   object
	orderBy []*storage.OrderInput
}

// keys reads a whole list in pages of a size, forward or backward; "error" where that fails.
func (l list) keys(ctx context.Context, t *testing.T, e *env, asOf driver.Instant, size int, backward bool) []string {
	t.Helper()
	var keys []string
	var cursor *string
	for {
		var page *storage.Connection[*project]
		if backward {
			page = must(e.projects.Page(ctx, l.where, l.orderBy, nil, nil, &size, cursor, &asOf, nil))(t)
		} else {
			page = must(e.projects.Page(ctx, l.where, l.orderBy, &size, cursor, nil, nil, &asOf, nil))(t)
		}
		var some []string
		for _, p := range page.Nodes {
			some = append(some, p.Key())
		}
		more := page.PageInfo.HasNextPage
		cursor = page.PageInfo.EndCursor()
		if backward {
			keys, more, cursor = append(some, keys...), page.PageInfo.HasPreviousPage, page.PageInfo.StartCursor()
		} else {
			keys = append(keys, some...)
		}
		if !more {
			if total := must(page.TotalCount(ctx))(t); total != len(keys) {
				t.Errorf("%v: %d documents, and a total of %d", l, len(keys), total)
			}
			return keys
		}
	}
}

// Lists by copied fields are those of documents that store what their sources hold, as of each
// instant: sources come, change and go, and some documents refer to nothing that is there.
func testCopiesAreLikeOwnFields(t *testing.T) {
	const seed = 5
	random := rand.New(rand.NewPCG(seed, 0))
	e := newEnvOf(t, copyTypes(), nil)
	licenses, projects := map[string]object{}, map[string]object{}
	pick := func(of ...any) any { return of[random.IntN(len(of))] }
	name := func() any { return pick(nil, "a", "b", "bb", "c", "Ü") }
	license := func() { // a version of one
		key, text := fmt.Sprintf("l%d", random.IntN(25)), ""
		was := licenses[key]
		if delete(licenses, key); was == nil || random.IntN(5) > 0 {
			licenses[key] = object{"title": name(), "level": pick(nil, 1, 2, 3), "kind": pick(nil, "FREE", "PAID"), "terms": pick(nil, object{}, object{"fee": pick("1", "1.0", "2.5")})}
			text = asText(t, licenses[key])
		}
		e.load("tags", key, text)
	}
	for i := range 40 {
		key := fmt.Sprintf("p%02d", i)
		projects[key] = object{"lic": pick(nil, "gone", fmt.Sprintf("l%d", random.IntN(25)), fmt.Sprintf("l%d", random.IntN(25)), fmt.Sprintf("l%d", random.IntN(25))), "stars": pick(nil, 1, 2)}
		e.load("software", key, asText(t, projects[key]))
	}
	orders := func() (by []*storage.OrderInput) {
		if field := pick("", "licenseName", "kind", "fee"); field != "" {
			by = append(by, &storage.OrderInput{Field: field.(string), Direction: pick(storage.Asc, storage.Desc).(storage.OrderDirection)})
		}
		if random.IntN(2) == 0 {
			by = append(by, &storage.OrderInput{Field: pick("stars", "key").(string), Direction: pick(storage.Asc, storage.Desc).(storage.OrderDirection)})
		}
		return by
	}
	condition := func() object {
		text := pick("a", "b", "bb", "x")
		return pick(object{}, object{"stars": object{"eq": 1}}, object{"licenseName": pick(
			object{"eq": text}, object{"ne": text}, object{"in": []any{text, "c"}}, object{"notIn": []any{text}}, object{"isNull": true}, object{"isNull": false},
			object{"startsWith": text}, object{"gt": text}, object{"lte": text, "ne": "a"}, object{"in": []any{}}, object{},
		)},
			object{"level": pick(object{"eq": 2}, object{"ne": 2}, object{"gt": 1}, object{"isNull": true}, object{"notIn": []any{1, 3}})},
			object{"kind": pick(object{"eq": "FREE"}, object{"ne": "PAID"}, object{"isNull": true})},
			object{"fee": pick(object{"eq": "1"}, object{"lt": "2"}, object{"isNull": false})}).(object)
	}
	for range 4 {
		for range 15 {
			license()
		}
		at := e.clock.advance(1000)
		own, stored := newEnvOf(t, ownTypes(), nil), map[string]object{}
		for key, p := range projects {
			copied := object{"stars": p["stars"], "lic": p["lic"]}
			if ref, ok := p["lic"].(string); ok && licenses[ref] != nil {
				l := licenses[ref]
				copied["licenseName"], copied["level"], copied["kind"] = l["title"], l["level"], l["kind"]
				if l["level"] == nil {
					copied["level"] = 2
				}
				if terms, ok := l["terms"].(object); ok {
					copied["fee"] = terms["fee"]
				}
			}
			own.load("software", key, asText(t, copied))
			stored[key] = copied
		}
		now := own.clock.advance(1000)
		for range 4 {
			license() // what is later does not show
		}
		for range 10 {
			l := list{condition(), orders()}
			if random.IntN(2) == 0 {
				l.where = object{pick("and", "or").(string): []any{l.where, condition(), object{"not": condition()}}}
			}
			want := l.keys(own.begin(), t, own, now, 500, false)
			if by := l.orderBy; len(by) > 0 && by[0].Field != "stars" && by[0].Field != "key" { // what has no value is last in either order
				slices.SortStableFunc(want, func(a, b string) int {
					none := func(key string) int { return map[bool]int{true: 1}[stored[key][by[0].Field] == nil] }
					return none(a) - none(b)
				})
			}
			if n := len(want); n > 2 { // between two cursors
				from := random.IntN(n - 1)
				to := from + 1 + random.IntN(n-from-1)
				all := must(e.projects.Page(e.begin(), l.where, l.orderBy, ptr(500), nil, nil, nil, &at, nil))(t).Edges
				after, before := ptr(all[from].Cursor()), ptr(all[to].Cursor())
				first, last := ptr(500), (*int)(nil)
				if random.IntN(2) == 0 {
					first, last = nil, ptr(500)
				}
				var got []string
				for _, p := range must(e.projects.Page(e.begin(), l.where, l.orderBy, first, after, last, before, &at, nil))(t).Nodes {
					got = append(got, p.Key())
				}
				if !slices.Equal(got, want[from+1:to]) {
					t.Fatalf("seed %d: %s, sorted by %s, between %d and %d: %s", seed, asText(t, l.where), asText(t, l.orderBy), from, to, cmp.Diff(want[from+1:to], got))
				}
			}
			for _, size := range []int{1 + random.IntN(4), 7, 500} {
				for _, backward := range []bool{false, true} {
					if got := l.keys(e.begin(), t, e, at, size, backward); !slices.Equal(got, want) {
						t.Fatalf("seed %d: %s, sorted by %s, pages of %d, backward %t: %s", seed, asText(t, l.where), asText(t, l.orderBy), size, backward, cmp.Diff(want, got))
					}
				}
			}
		}
	}
}

func asText(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// What may not be read of a source, or not any more, is neither shown nor a condition.
func TestCopiesOfWhatMayNotBeRead(t *testing.T) {
	types := copyTypes()
	types[1].Auth = record.Auth{Rows: `kind = "FREE" or "staff" in $roles`}
	types[1].Fields[1].Auth = record.Auth{Read: []string{"staff"}}
	types[1].Keep = &record.Keep{Versions: 1}
	e := newEnvOf(t, types, nil)
	e.load("tags", "free", `{"title":"old","kind":"FREE"}`)
	before := e.load("tags", "paid", `{"title":"secret","kind":"PAID"}`)
	e.load("tags", "free", `{"title":"free","kind":"FREE"}`)
	for key, license := range map[string]string{"a": "free", "b": "paid", "c": "gone"} {
		e.load("software", key, `{"lic":"`+license+`"}`)
	}
	list := func(ctx context.Context, where object, order string) string {
		var by []*storage.OrderInput
		if order != "" {
			by = []*storage.OrderInput{{Field: order}}
		}
		var keys string
		for _, p := range must(e.projects.Page(ctx, where, by, nil, nil, nil, nil, nil, nil))(t).Nodes {
			keys += p.Key()
		}
		return keys
	}
	null, secret := object{"licenseName": object{"isNull": true}}, object{"licenseName": object{"eq": "secret"}}
	for _, c := range []struct{ got, want string }{
		{list(e.by("bob", nil), null, ""), "bc"},
		{list(e.by("eve", nil, "staff"), null, ""), "c"},
		{list(e.by("bob", nil), secret, ""), ""},
		{list(e.by("eve", nil, "staff"), secret, ""), "b"},
		{list(e.by("bob", nil), nil, "licenseName"), "abc"},
		{list(e.by("eve", nil, "staff"), nil, "licenseName"), "abc"},
	} {
		if c.got != c.want {
			t.Errorf("got %s, want %s", c.got, c.want)
		}
	}
	page := func(ctx context.Context, where object, order string, asOf *driver.Instant) error {
		_, err := e.projects.Page(ctx, where, []*storage.OrderInput{{Field: order}}, nil, nil, nil, nil, asOf, nil)
		return err
	}
	wantError(t, page(e.by("bob", nil), object{"level": object{"gt": 1}}, "key", nil), fault.CodeForbidden, "License.level")
	wantError(t, page(e.by("bob", nil), nil, "level", nil), fault.CodeForbidden, "License.level")
	e.clock.advance(record.Grace)
	p := e.store.NewPruner(types[1], false)
	if done := must(p.Step(t.Context()))(t); done.Versions != 1 {
		t.Fatalf("%d versions were pruned", done.Versions)
	}
	for _, err := range []error{page(e.by("eve", nil, "staff"), null, "key", &before), page(e.by("eve", nil, "staff"), nil, "licenseName", &before)} {
		if earliestOf(t, err) <= before {
			t.Errorf("got %v", err)
		}
	}
}

// Who may not read the past of the sources gets further pages, as of now.
func TestCopiesWithoutThePast(t *testing.T) {
	types := copyTypes()
	types[1].Auth.History = []string{"staff"}
	e := newEnvOf(t, types, nil)
	e.load("tags", "l", `{"title":"a"}`)
	for _, key := range []string{"a", "b", "c"} {
		e.load("software", key, `{"lic":"l"}`)
	}
	for _, l := range []list{
		{where: object{"licenseName": object{"gte": "a"}}},
		{orderBy: []*storage.OrderInput{{Field: "licenseName"}}},
	} {
		first := must(e.projects.Page(e.by("bob", nil), l.where, l.orderBy, ptr(1), nil, nil, nil, nil, nil))(t)
		e.load("tags", "l", fmt.Sprintf(`{"title":"a%d"}`, e.clock.advance(1000)))
		rest := must(e.projects.Page(e.by("bob", nil), l.where, l.orderBy, nil, first.PageInfo.EndCursor(), nil, nil, nil, nil))(t)
		var keys string
		for _, p := range rest.Nodes {
			keys += p.Key()
		}
		if !strings.HasSuffix(keys, "bc") { // sorted by what has changed, it may begin again
			t.Errorf("%v: after the first page: %q", l, keys)
		}
	}
}

// What is about too many documents is refused, and says so.
func testCopiesOfManyDocuments(t *testing.T) {
	e := newEnvOf(t, copyTypes(), nil)
	var load []driver.Version
	for i := range 10_001 {
		load = append(load, driver.Version{Collection: "tags", Key: fmt.Sprintf("l%05d", i), RecordedAt: e.clock.advance(time.Microsecond), Data: fmt.Appendf(nil, `{"title":"%05d","kind":"FREE"}`, i)})
	}
	if _, err := e.store.Load(t.Context(), load); err != nil {
		t.Fatal(err)
	}
	e.load("software", "a", `{"lic":"l09999"}`)
	e.load("software", "b", `{"lic":"l00007"}`)
	page := func(where object, order string, to storage.OrderDirection) (int, error) {
		found, err := e.projects.Page(e.begin(), where, []*storage.OrderInput{{Field: order, Direction: to}}, ptr(1), nil, nil, nil, nil, nil)
		if err != nil {
			return 0, err
		}
		return len(found.Nodes), nil
	}
	for _, c := range []struct {
		where object
		order string
		to    storage.OrderDirection
		says  string // "": the document is found
	}{
		{object{"licenseName": object{"gte": "00001"}}, "key", storage.Asc, ""},
		{object{"licenseName": object{"gte": "00000"}}, "key", storage.Asc, "more than 10000 documents"},
		{object{"or": []any{object{"licenseName": object{"lt": "06000"}}, object{"licenseName": object{"gt": "05000"}}}}, "key", storage.Asc, "more than 10000 documents"},
		{nil, "licenseName", storage.Desc, ""},
		{nil, "licenseName", storage.Asc, ""},
		{object{"stars": object{"gt": 5}}, "licenseName", storage.Asc, "there are more than 10000 licenses"},
		{nil, "kind", storage.Desc, "in one place are more than 10000 licenses"},
	} {
		n, err := page(c.where, c.order, c.to)
		if c.says != "" {
			wantError(t, err, fault.CodeQueryTooComplex, c.says)
		} else if n != 1 || err != nil {
			t.Errorf("%v by %s: %d documents, %v", c.where, c.order, n, err)
		}
	}
}

// ascending are the keys of a list of all, by one field.
func (e *env) ascending(field string, at *driver.Instant, where object) (keys string) {
	e.t.Helper()
	for _, p := range must(e.projects.Page(e.begin(), where, []*storage.OrderInput{{Field: field}}, nil, nil, nil, nil, at, nil))(e.t).Nodes {
		keys += p.Key()
	}
	return keys
}

// Lists are by what the sources read as today, and not by what was erased.
func TestCopiesOfEarlierForms(t *testing.T) {
	types := copyTypes()
	types[1].Auth.Erase = []string{"privacy"}
	types[1].Fields[2].Was.Enum = map[string]string{"GRATIS": "FREE"}
	types[1].Fields[3].Was.Members = []string{"fee"}
	e := newEnvOf(t, types, nil)
	for key, data := range map[string]string{"x": `{"kind":"GRATIS","fee":"3"}`, "y": `{"kind":"PAID","terms":{"fee":"2"}}`, "z": `{"title":"z","fee":"1"}`} {
		e.load("tags", key, data)
		e.load("software", "of-"+key+" ", `{"lic":"`+key+`"}`)
	}
	before := e.clock.advance(time.Microsecond)
	e.clock.advance(time.Microsecond)
	for _, c := range []struct{ got, want string }{
		{e.ascending("fee", nil, nil), "of-z of-y of-x "},
		{e.ascending("kind", nil, nil), "of-x of-y of-z "},
		{e.ascending("key", nil, object{"kind": object{"eq": "FREE"}}), "of-x "},
		{e.ascending("key", nil, object{"fee": object{"lt": "3"}}), "of-y of-z "},
		{e.ascending("licenseName", nil, nil), "of-z of-x of-y "},
	} {
		if c.got != c.want {
			t.Errorf("got %s, want %s", c.got, c.want)
		}
	}
	must(e.tags.Erase(e.by("eve", nil, "privacy"), storage.EraseInput{Key: "x", ExpectedVersion: 1, Reason: "r", Paths: []string{"/terms/fee", "/kind"}}))(t)
	for _, at := range []*driver.Instant{nil, &before} {
		if got := e.ascending("fee", at, nil) + e.ascending("kind", at, nil) + e.ascending("key", at, object{"kind": object{"isNull": true}}); got != "of-z of-y of-x "+"of-y of-x of-z "+"of-x of-z " {
			t.Errorf("after the erasure: %s", got)
		}
	}
}

// Documents may copy from those of their own type, also from themselves.
func TestCopiesFromTheSameType(t *testing.T) {
	types := copyTypes()
	types[0].Fields = []record.Field{{Name: "parent", Kind: record.KindRef, Ref: "Project", Indexed: true}, {Name: "name", Kind: record.KindString, Indexed: true}}
	types[0].Copies = []record.Copy{{Name: "parentName", From: []string{"parent", "name"}}}
	e := newEnvOf(t, types, nil)
	w := &written{e, map[string]int64{}, map[string]string{}}
	for _, c := range []struct {
		docs map[string]string
		want string
	}{
		{map[string]string{"a": `{"name":"2","parent":"a"}`, "b": `{"name":"1","parent":"a"}`, "c": `{"parent":"b"}`}, "cab"},
		{map[string]string{"b": `{"name":"3","parent":"c"}`}, "acb"},
		{map[string]string{"c": `{"name":"4","parent":"b"}`}, "acb"},
		{map[string]string{"a": ""}, "cb"},
		{map[string]string{"d": `{"name":"d","parent":"a"}`}, "cbd"},
	} {
		w.commit("software", c.docs)
		if got := e.ascending("parentName", nil, nil); got != c.want {
			t.Errorf("after %v: %s, want %s", c.docs, got, c.want)
		}
	}
}
