package storage_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/fault"
)

func TestAsOfIsInclusive(t *testing.T) {
	e := newEnv(t)
	e.load("software", "a", `{"name":"one"}`)
	at := e.load("software", "a", `{"name":"two"}`)
	for _, tt := range []struct {
		at   driver.Instant
		want string
	}{{at - 1, "one"}, {at, "two"}, {at + 1, "two"}} {
		d := must(e.projects.Get(e.begin(), "a", &tt.at, nil))(t)
		if got := must(d.String(fName))(t); got != tt.want {
			t.Errorf("as of %s: %s, want %s", tt.at, got, tt.want)
		}
	}
	before := at - driver.Instant(time.Hour.Microseconds())
	if d := must(e.projects.Get(e.begin(), "a", &before, nil))(t); d != nil {
		t.Errorf("%v exists before it was created", d)
	}
}

func TestVersionIsChosenBeforeTheFilter(t *testing.T) {
	e := newEnv(t)
	at := e.load("software", "a", `{"name":"a","stargazers_count":1}`)
	e.load("software", "a", `{"name":"a","stargazers_count":2}`)
	count := func(stars int, asOf *driver.Instant) int {
		conn := must(e.projects.Page(e.begin(), object{"stars": object{"eq": stars}}, nil, nil, nil, nil, nil, asOf, nil))(t)
		return len(conn.Nodes)
	}
	if got := []int{count(1, nil), count(2, nil), count(1, &at), count(2, &at)}; cmp.Diff([]int{0, 1, 1, 0}, got) != "" {
		t.Fatalf("found %v: documents are found by values that they do not have at that instant", got)
	}
}

func TestTimeArguments(t *testing.T) {
	e := newEnv(t)
	at := e.load("software", "a", `{"name":"a"}`)
	e.load("software", "a", `{"name":"b"}`)
	future := at + driver.Instant(time.Hour.Microseconds())
	ctx := e.begin()
	_, err := e.projects.Get(ctx, "a", &at, ptr(1))
	wantError(t, err, fault.CodeAmbiguousVersion)
	_, err = e.projects.Get(ctx, "a", &future, nil)
	wantError(t, err, fault.CodeAsOfInFuture, future.String(), "server's time is 2026-01-01T00:00:03Z")
	_, err = e.projects.Page(ctx, nil, nil, nil, nil, nil, nil, &future, nil)
	wantError(t, err, fault.CodeAsOfInFuture)
	_, err = e.projects.Get(ctx, "a", nil, ptr(3))
	wantError(t, err, fault.CodeVersionNotFound, `Project "a" has no version 3`, "1 to 2")
	_, err = e.projects.Get(ctx, "a", nil, ptr(0))
	wantError(t, err, fault.CodeBadUserInput, "version 0")
	for _, key := range []string{"nobody", "", strings.Repeat("x", 600), "\xff"} {
		if d := must(e.projects.Get(ctx, key, nil, ptr(1)))(t); d != nil {
			t.Errorf("key %q exists", key)
		}
	}
}

func TestOneInstantForAnOperation(t *testing.T) {
	e := newEnv(t)
	first := e.load("software", "a", `{"name":"one"}`)
	ctx := e.begin()
	at, _ := storage.InstantOf(ctx)
	e.load("software", "a", `{"name":"two"}`)
	e.load("software", "b", `{"name":"new"}`)
	// What was recorded after the operation began has no number yet.
	_, err := e.projects.Get(ctx, "a", nil, ptr(2))
	wantError(t, err, fault.CodeVersionNotFound, "1 to 1")
	_, bad, err := e.store.Nodes(ctx, []string{"Project:a@2"})
	if err != nil || len(bad) != 1 {
		t.Fatalf("%v, %v", bad, err)
	}
	wantError(t, bad[0].Err, fault.CodeVersionNotFound, "1 to 1")
	// Another root field's asOf does not leak into this one.
	must(e.projects.Get(ctx, "a", &first, nil))(t)
	read := func(d *project) string {
		if d == nil {
			return "null"
		}
		return must(d.String(fName))(t)
	}
	got := []string{
		read(must(e.projects.Get(ctx, "a", nil, nil))(t)), read(must(e.projects.Get(ctx, "b", nil, nil))(t)),
		read(must(e.projects.Get(e.begin(), "a", &at, nil))(t)), read(must(e.projects.Get(e.begin(), "b", &at, nil))(t)),
		read(must(e.projects.Get(e.begin(), "a", nil, nil))(t)), read(must(e.projects.Get(e.begin(), "b", nil, nil))(t)),
	}
	if diff := cmp.Diff([]string{"one", "null", "one", "null", "two", "new"}, got); diff != "" {
		t.Fatal(diff)
	}
}

func TestLaterWritesNeverShowInAPinnedRead(t *testing.T) {
	e := newEnv(t)
	at := e.load("software", "a", `{"name":"one"}`)
	describe := func() []any {
		ctx := e.begin()
		d := must(e.projects.Get(ctx, "a", &at, nil))(t)
		info := d.VersionInfo()
		log := must(e.store.DocumentChangelog(ctx, d.Document, nil, nil, nil, nil, nil, nil, nil, nil))(t)
		versions := must(e.projects.Versions(ctx, d.Document, nil, nil, nil, nil, nil, nil, nil, nil))(t)
		later := at + driver.Instant(time.Hour.Microseconds())
		logLater := must(e.store.DocumentChangelog(ctx, d.Document, nil, nil, nil, &later, nil, nil, nil, nil))(t)
		versionsLater := must(e.projects.Versions(ctx, d.Document, nil, &later, nil, nil, nil, nil, nil, nil))(t)
		return []any{
			lines(logLater.Nodes), len(versionsLater.Nodes),
			d.ID(), info.IsCurrent(), info.SupersededAt(), lines(log.Nodes), must(log.TotalCount(ctx))(t),
			len(versions.Nodes), must(versions.TotalCount(ctx))(t), versions.Nodes[0].VersionInfo().SupersededAt(), versions.Nodes[0].VersionInfo().IsCurrent(),
		}
	}
	before := describe()
	e.load("software", "a", `{"name":"two"}`)
	e.load("software", "a", ``)
	if diff := cmp.Diff(before, describe()); diff != "" {
		t.Fatalf("a read as of the past changed: %s", diff)
	}
}

func TestIDs(t *testing.T) {
	e := newEnv(t)
	for _, key := range []string{"a", "with space", "50%@home:x", "tab\there", "é"} {
		at := e.load("software", key, `{"name":"one"}`)
		now := e.get(key)
		past := must(e.projects.Get(e.begin(), key, &at, nil))(t)
		if now.ID() == past.ID() {
			t.Errorf("the id %s names two states", now.ID())
		}
		e.load("software", key, `{"name":"two"}`)
		for id, want := range map[string]string{now.ID(): "two", past.ID(): "one"} {
			node := must(e.store.Node(e.begin(), id))(t)
			p, ok := node.(*project)
			if !ok || must(p.String(fName))(t) != want || p.Key() != key || p.ID() != id {
				t.Errorf("node %s is %v", id, node)
			}
		}
	}
	if got := e.get("50%@home:x").ID(); got != "Project:50%25%40home:x" {
		t.Errorf("id %s", got)
	}
	ctx := e.begin()
	malformed := []string{"", "a", ":a", "Project:", "Project:a@", "Project:a@0", "Project:a@-1", "Project:a@1@2", "Project:%", "Project:%zz", "Nothing:a", "Project:a@+1"}
	ids := append([]string{"Project:a@1", "Project:zzz", "Project:a@9", "Tag:a@9", "Project:a", "Project:zzz@3"}, malformed...)
	nodes, bad, err := e.store.Nodes(ctx, ids)
	if err != nil || len(nodes) != len(ids) || nodes[0].ID() != "Project:a@1" || nodes[4].ID() != "Project:a" {
		t.Fatalf("nodes %v, %v", nodes, err)
	}
	for i, n := range nodes {
		if n != nil && i != 0 && i != 4 {
			t.Errorf("%s is %v", ids[i], n)
		}
	}
	if len(bad) != 1+len(malformed) || bad[0].Index != 2 {
		t.Fatalf("errors %v", bad)
	}
	wantError(t, bad[0].Err, fault.CodeVersionNotFound, "1 to 2")
	for i, id := range malformed {
		_, err := e.store.Node(ctx, id)
		wantError(t, err, fault.CodeBadUserInput)
		b := bad[1+i]
		if wantError(t, b.Err, fault.CodeBadUserInput); b.Index != len(ids)-len(malformed)+i || b.Err.Error() != err.Error() {
			t.Errorf("%s: %+v, want what node says: %v", id, b, err)
		}
	}
}

func TestDeletedDocumentsKeepTheirHistory(t *testing.T) {
	e := newEnv(t)
	e.load("software", "a", `{"name":"one"}`)
	at := e.load("software", "a", `{"name":"two"}`)
	e.load("software", "a", ``)
	ctx := e.begin()
	if d := must(e.projects.Get(ctx, "a", nil, nil))(t); d != nil {
		t.Error("a deleted document is read now")
	}
	if d := must(e.projects.Get(ctx, "a", nil, ptr(3)))(t); d != nil {
		t.Error("a deletion is read as a document")
	}
	if d := must(e.projects.Get(ctx, "a", &at, nil))(t); d == nil {
		t.Error("the past of a deleted document is hidden")
	}
	h := must(e.projects.History(ctx, "a"))(t)
	if h == nil || h.Current != nil || h.Key() != "a" {
		t.Fatalf("history %+v", h)
	}
	versions := must(e.projects.Versions(ctx, h.Document, nil, nil, nil, nil, nil, nil, nil, nil))(t)
	var got []string
	for i, edge := range versions.Edges {
		info := versions.Nodes[i].VersionInfo()
		got = append(got, string(info.Operation())+" "+must(edge.Node.String(fName))(t)+" "+strings.Join(lines(must(edge.Changes())(t)), ";"))
	}
	want := []string{
		`IMPORT two REMOVE /name "two"`,
		`IMPORT two REPLACE /name "one" -> "two"`,
		`IMPORT one ADD /name -> "one"`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	// The ids of its versions lead back to what was shown.
	var ids []string
	for _, n := range versions.Nodes {
		ids = append(ids, n.ID())
	}
	if diff := cmp.Diff([]string{"Project:a@3", "Project:a@2", "Project:a@1"}, ids); diff != "" {
		t.Error(diff)
	}
	nodes, bad, err := e.store.Nodes(ctx, append(ids, "Project:a"))
	if err != nil || bad != nil || len(nodes) != 4 || nodes[3] != nil {
		t.Fatalf("%v %v %v", nodes, bad, err)
	}
	for i, id := range ids {
		shown := versions.Nodes[i]
		for _, n := range []storage.Node{nodes[i], must(e.store.Node(ctx, id))(t)} {
			p, ok := n.(*project)
			if !ok || p.ID() != id || must(p.String(fName))(t) != must(shown.String(fName))(t) ||
				p.Version() != shown.Version() || p.VersionInfo().RecordedAt() != shown.VersionInfo().RecordedAt() {
				t.Errorf("node %s is %v", id, n)
			}
		}
	}
	blames := must(e.store.Blame(ctx, h.Document, nil))(t)
	if len(blames) != 1 || blames[0].Version() != 2 {
		t.Errorf("blame of the deleted state: %+v", blames)
	}
	if h := must(e.projects.History(ctx, "never"))(t); h != nil {
		t.Error("what never was has a history")
	}
	e.load("software", "a", `{"name":"again"}`)
	if d := e.get("a"); d.Version() != 4 {
		t.Errorf("the numbering went on at %d", d.Version())
	}
}

func TestOldVersionsUnderTheSchema(t *testing.T) {
	e := newEnv(t)
	e.load("software", "a", `{"stargazers_count":"many","plan":"TRIAL","updated_at":"2026-02-30","tags":["x",null],"current_release":5,"rating":true,"checkedAt":"soon","archived":"no","price":"a","releases":{}}`)
	e.load("software", "b", `{"name":null,"stargazers_count":4294967296,"tags":"x","archived":null,"price":12.50,"checkedAt":"2026-01-01T01:00:00+01:00"}`)
	e.load("software", "c", `{"tags":[1,null,2],"releases":[1,2.5,3],"description":[],"stargazers_count":[null,true]}`)
	e.load("software", "d", `{"tags":["x",2],"releases":[{"tag":"v1"},"x"]}`)
	a, b, c, d := e.get("a"), e.get("b"), e.get("c"), e.get("d")
	read := func(_ any, err error) error { return err }
	for _, tt := range []struct {
		err  error
		want []string
	}{
		{read(a.String(fName)), []string{`Project "a", version 1,`, "no value for the non-null field name", "name: String", "@default"}},
		{read(b.String(fName)), []string{`Project "b", version 1,`, "non-null field name"}},
		{read(a.OptInt(fStars)), []string{`the string "many"`, "field stars, which is declared Int", "declare stars: String"}},
		{read(b.OptInt(fStars)), []string{"4294967296", "declare stars: Float"}},
		{read(a.OptString(fPlan)), []string{"TRIAL", "declared as one of [FREE PAID]; declare that value again"}},
		{read(a.OptString(fUpdatedAt)), []string{"2026-02-30", "Date"}},
		{read(a.RefKeys(fTags)), []string{"null", "tags"}},
		{read(b.RefKeys(fTags)), []string{`the string "x"`, "tags"}},
		{read(a.Object.Object(fRelease)), []string{"the number 5", "currentRelease", "Release"}},
		{read(a.OptFloat(fRating)), []string{"the boolean true", "declare rating: Boolean"}},
		{read(a.OptInstant(fCheckedAt)), []string{`"soon"`}},
		{read(a.Bool(fArchived)), []string{`"no"`}},
		{read(a.OptString(fPrice)), []string{`"a"`}},
		{read(a.Objects(fReleases)), []string{"an object", "releases"}},
		{read(c.RefKeys(fTags)), []string{"the number 1", "tags, which is declared [Tag]!", "; declare tags: [Int], or JSON"}},
		{read(c.Objects(fReleases)), []string{"the number 1", "; declare releases: [Float], or JSON"}},
		{read(c.OptString(fDescription)), []string{"a list", "; declare description: [JSON], or JSON"}},
		{read(c.OptInt(fStars)), []string{"a list", "; declare stars: [Boolean], or JSON"}},
		{read(d.RefKeys(fTags)), []string{"the number 2", "; declare tags: [JSON], or JSON"}},
		{read(d.Objects(fReleases)), []string{`the string "x"`, "; declare releases: [JSON], or JSON"}},
	} {
		wantError(t, tt.err, fault.CodeInternal, tt.want...)
	}
	if archived := must(b.Bool(fArchived))(t); archived {
		t.Error("the default does not stand in for null")
	}
	if tags := must(b.Object.Objects(fReleases))(t); tags == nil || len(tags) != 0 {
		t.Error("a missing list is not an empty one")
	}
	if price := must(b.OptString(fPrice))(t); *price != "12.5" {
		t.Errorf("price %s", *price)
	}
	if raw := must(b.RawField(fCheckedAt))(t); string(raw) != `"2026-01-01T00:00:00Z"` {
		t.Errorf("raw time %s", raw)
	}
	if raw := must(b.RawField(fPrice))(t); string(raw) != `"12.5"` {
		t.Errorf("raw decimal %s", raw)
	}
}

func TestNestedViews(t *testing.T) {
	e := newEnv(t)
	e.load("software", "a", `{"name":"a","current_release":{"tag":"v1","published_at":"2026-01-02","notes":["x","y"]},"releases":[{"tag":"v0"},{"published_at":7}],"commit_history":{"a":[1,2]},"t\u0061gs":["z"]}`)
	a := e.get("a")
	r := must(a.Object.Object(fRelease))(t)
	if tag, notes := must(r.OptString(0))(t), must(r.Strings(2))(t); *tag != "v1" || cmp.Diff([]string{"x", "y"}, notes) != "" {
		t.Errorf("release %v %v", tag, notes)
	}
	list := must(a.Objects(fReleases))(t)
	_, err := list[1].OptString(1)
	wantError(t, err, fault.CodeInternal, "releases.publishedAt", "the number 7")
	if raw := must(a.JSON(fHistory))(t); string(raw) != `{"a":[1,2]}` {
		t.Errorf("json %s", raw)
	}
	if raw := must(a.RawField(fTags))(t); string(raw) != `["z"]` {
		t.Errorf("raw list %s", raw)
	}
}
