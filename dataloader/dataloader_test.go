package dataloader_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/asof/asof/dataloader"
	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/drivertest"
	"github.com/asof/asof/storage/fault"
	"github.com/asof/asof/storage/record"
)

type node struct{ *storage.Document }

// counting counts the reads of each collection, and can make them fail.
type counting struct {
	driver.Engine
	gets sync.Map
	fail atomic.Bool
	// crash makes Get panic.
	crash atomic.Bool
}

func (c *counting) Get(ctx context.Context, collection string, refs []driver.Ref, fields []string) ([]*driver.Version, error) {
	n, _ := c.gets.LoadOrStore(collection, new(atomic.Int64))
	n.(*atomic.Int64).Add(1)
	if c.crash.Load() {
		panic("a bug")
	}
	if c.fail.Load() {
		return nil, driver.Errorf(driver.CodeUnavailable, "away")
	}
	return c.Engine.Get(ctx, collection, refs, fields)
}

func (c *counting) count(collection string) int64 {
	n, ok := c.gets.Load(collection)
	if !ok {
		return 0
	}
	return n.(*atomic.Int64).Swap(0)
}

const (
	fTags = iota
	fOwner
)

type env struct {
	t        *testing.T
	engine   *counting
	store    *storage.Store
	projects *storage.Collection[*node]
	tags     *storage.Collection[*node]
	now      atomic.Int64 // microseconds
}

func newEnv(t *testing.T) *env {
	types := []*record.Type{
		{Name: "Project", Collection: "projects", Fields: []record.Field{
			fTags:  {Name: "tags", Kind: record.KindRef, Ref: "Tag", List: true, NonNull: true},
			fOwner: {Name: "owner", Kind: record.KindRef, Ref: "Tag"},
		}},
		{Name: "Tag", Collection: "tags", Fields: []record.Field{
			fTags: {Name: "related", Kind: record.KindRef, Ref: "Tag", List: true},
			{Name: "name", Kind: record.KindString},
		}},
	}
	e := &env{t: t}
	e.now.Store(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro())
	e.engine = &counting{Engine: drivertest.NewModel(func() time.Time { return time.UnixMicro(e.now.Load()) }, storage.CollectionsOf(types))}
	store, err := storage.New(e.engine, types)
	if err != nil {
		t.Fatal(err)
	}
	wrap := func(d *storage.Document) *node { return &node{d} }
	e.store, e.projects, e.tags = store, storage.NewCollection(store, types[0], wrap), storage.NewCollection(store, types[1], wrap)
	return e
}

func (e *env) load(collection, key, data string) driver.Instant {
	e.t.Helper()
	at := driver.Instant(e.now.Add(1_000_000))
	v := driver.Version{Collection: collection, Key: key, RecordedAt: at, Author: "x", Deleted: data == ""}
	if data != "" {
		v.Data = []byte(data)
	}
	if _, err := e.store.Load(e.t.Context(), []driver.Version{v}); err != nil {
		e.t.Fatal(err)
	}
	return at
}

func (e *env) begin() context.Context {
	e.t.Helper()
	e.now.Add(1_000_000)
	ctx, err := e.store.Begin(e.t.Context())
	if err != nil {
		e.t.Fatal(err)
	}
	e.engine.count("projects")
	e.engine.count("tags")
	return dataloader.Begin(ctx, e.store)
}

func (e *env) page(ctx context.Context, asOf *driver.Instant) []*node {
	e.t.Helper()
	n := 50
	conn, err := e.projects.Page(ctx, nil, nil, &n, nil, nil, nil, asOf, nil)
	if err != nil {
		e.t.Fatal(err)
	}
	return conn.Nodes
}

func (e *env) refs(ctx context.Context, n *node, field int, asOf *driver.Instant) []*node {
	e.t.Helper()
	out, _, err := dataloader.Refs(ctx, e.tags, n.Document, field, asOf)
	if err != nil {
		e.t.Fatal(err)
	}
	return out
}

func ids(nodes []*node) string {
	var out []string
	for _, n := range nodes {
		if n == nil {
			out = append(out, "null")
		} else {
			out = append(out, strings.TrimPrefix(n.ID(), "Tag:"))
		}
	}
	return strings.Join(out, " ")
}

func TestTwoLevelsOverAPageAreTwoReads(t *testing.T) {
	e := newEnv(t)
	for i := range 20 {
		e.load("tags", fmt.Sprintf("t%d", i), fmt.Sprintf(`{"name":"t","related":["r%d"]}`, i))
		e.load("tags", fmt.Sprintf("r%d", i), `{"name":"r"}`)
	}
	for i := range 50 {
		e.load("projects", fmt.Sprintf("p%02d", i), fmt.Sprintf(`{"tags":["t%d","t%d"],"owner":"t%d"}`, i%20, (i+1)%20, i%7))
	}
	ctx := e.begin()
	nodes := e.page(ctx, nil)
	// As the executor does it: every document's fields at the same time.
	var wg sync.WaitGroup
	for i, n := range nodes {
		wg.Go(func() {
			tags, _, err := dataloader.Refs(ctx, e.tags, n.Document, fTags, nil)
			if err != nil || len(tags) != 2 || tags[0].Key() != fmt.Sprintf("t%d", i%20) {
				t.Errorf("%d: %v %v", i, ids(tags), err)
				return
			}
			for _, tag := range tags {
				wg.Go(func() {
					related, _, err := dataloader.Refs(ctx, e.tags, tag.Document, fTags, nil)
					if err != nil || len(related) != 1 || related[0].Key() != "r"+tag.Key()[1:] {
						t.Errorf("%s: %v %v", tag.Key(), ids(related), err)
					}
				})
			}
		})
	}
	wg.Wait()
	if got := e.engine.count("tags"); got != 2 {
		t.Errorf("%d reads, one per level are enough", got)
	}
	// Owners are among the tags: nothing is left to read.
	for i, n := range nodes {
		owner, err := dataloader.Ref(ctx, e.tags, n.Document, fOwner, nil)
		if err != nil || owner.Key() != fmt.Sprintf("t%d", i%7) {
			t.Errorf("owner of %d: %v %v", i, owner, err)
		}
	}
	if got := e.engine.count("tags"); got != 0 {
		t.Errorf("%d reads of what is there already", got)
	}
}

func TestReferencesResolveAtTheHoldersInstant(t *testing.T) {
	e := newEnv(t)
	e.load("tags", "a", `{"name":"old"}`)
	e.load("tags", "b", `{"name":"old"}`)
	past := e.load("projects", "p", `{"tags":["b","gone","a"]}`)
	e.load("tags", "a", `{"name":"new"}`)
	e.load("tags", "b", ``)
	between := e.load("projects", "p", `{"tags":["a"]}`)
	e.load("tags", "a", `{"name":"newest"}`)
	ctx := e.begin()
	then, err := e.projects.Get(ctx, "p", &past, nil)
	if err != nil {
		t.Fatal(err)
	}
	now, err := e.projects.Get(ctx, "p", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for what, got := range map[string][2]string{
		"then":              {ids(e.refs(ctx, then, fTags, nil)), "b@1 null a@1"},
		"now":               {ids(e.refs(ctx, now, fTags, nil)), "a"},
		"overridden":        {ids(e.refs(ctx, now, fTags, &between)), "a@2"},
		"then's tags later": {ids(e.refs(ctx, then, fTags, &between)), "null null a@2"},
	} {
		if diff := cmp.Diff(got[1], got[0]); diff != "" {
			t.Errorf("%s: %s", what, diff)
		}
	}
	future := between + driver.Instant(time.Hour.Microseconds())
	var asError *fault.Error
	if _, _, err := dataloader.Refs(ctx, e.tags, now.Document, fTags, &future); !errors.As(err, &asError) || asError.Code != fault.CodeAsOfInFuture {
		t.Errorf("a nested asOf in the future: %v", err)
	}
}

func TestVersionsOfDifferentInstantsAreOneRead(t *testing.T) {
	e := newEnv(t)
	for i := range 5 {
		e.load("tags", "a", fmt.Sprintf(`{"name":"%d"}`, i))
		e.load("projects", "p", fmt.Sprintf(`{"tags":["a"],"owner":"%d"}`, i))
	}
	ctx := e.begin()
	h, err := e.projects.History(ctx, "p")
	if err != nil {
		t.Fatal(err)
	}
	conn, err := e.projects.Versions(ctx, h.Document, nil, nil, nil, nil, nil, nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, n := range conn.Nodes {
		got = append(got, ids(e.refs(ctx, n, fTags, nil)))
	}
	if diff := cmp.Diff([]string{"a@5", "a@4", "a@3", "a@2", "a@1"}, got); diff != "" {
		t.Error(diff)
	}
	if n := e.engine.count("tags"); n != 1 {
		t.Errorf("%d reads", n)
	}
}

func TestFailuresAreNotKept(t *testing.T) {
	e := newEnv(t)
	e.load("tags", "a", `{"name":"a"}`)
	e.load("projects", "p", `{"tags":["a"]}`)
	ctx := e.begin()
	n := e.page(ctx, nil)[0]
	e.engine.fail.Store(true)
	var asError *fault.Error
	if _, _, err := dataloader.Refs(ctx, e.tags, n.Document, fTags, nil); !errors.As(err, &asError) || asError.Code != fault.CodeUnavailable {
		t.Fatalf("%v", err)
	}
	e.engine.fail.Store(false)
	if got := ids(e.refs(ctx, n, fTags, nil)); got != "a" {
		t.Errorf("after a failure: %s", got)
	}
	// Nobody waits for ever for what could not be read, also where reading panicked.
	ctx = e.begin()
	n = e.page(ctx, nil)[0]
	e.engine.crash.Store(true)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("there is no panic")
			}
		}()
		_, _, _ = dataloader.Refs(ctx, e.tags, n.Document, fTags, nil)
	}()
	e.engine.crash.Store(false)
	if got := ids(e.refs(ctx, n, fTags, nil)); got != "a" {
		t.Errorf("after a panic: %s", got)
	}
	// Without a loader in the context references still resolve.
	if got := ids(e.refs(t.Context(), n, fTags, nil)); got != "a" {
		t.Errorf("without a loader: %s", got)
	}
}

// list is the data of a project that refers to n tags.
func list(prefix string, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"%s%d"`, prefix, i)
	}
	return `{"tags":[` + b.String()[1:] + `]}`
}

// Documents with long keys count as several, whether they are there or not: the keys are kept.
func TestLongKeysCountForMore(t *testing.T) {
	e := newEnv(t)
	for n, refused := range map[int]bool{15_000: false, 20_001: true} {
		e.load("projects", fmt.Sprint(n), list(strings.Repeat("k", 512), n))
		ctx := e.begin()
		one, err := e.projects.Get(ctx, fmt.Sprint(n), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		var complex *fault.Error
		_, _, err = dataloader.Refs(ctx, e.tags, one.Document, fTags, nil)
		if errors.As(err, &complex) != refused || refused && complex.Code != fault.CodeQueryTooComplex {
			t.Errorf("%d references: %v", n, err)
		}
	}
}

// Documents with long lists of references cannot make an operation load without
// end, neither different documents nor the same ones again and again.
func TestTooManyReferences(t *testing.T) {
	e := newEnv(t)
	for _, key := range []string{"a", "b", "c"} {
		e.load("projects", key, list(key, 40_000))
	}
	ctx := e.begin()
	var complex *fault.Error
	page, err := e.projects.Page(ctx, nil, nil, nil, nil, nil, nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	// Together they are too many; two of the three can be had one by one.
	for i, n := range page.Nodes {
		tags, _, err := dataloader.Refs(ctx, e.tags, n.Document, fTags, nil)
		if i < 2 && (err != nil || len(tags) != 40_000) {
			t.Errorf("%d of 40,000 documents: %v", len(tags), err)
		}
		if i == 2 && (!errors.As(err, &complex) || complex.Code != fault.CodeQueryTooComplex) {
			t.Errorf("120,000 documents: %v", err)
		}
	}
	if n := e.engine.count("tags"); n != 2 {
		t.Errorf("%d reads", n)
	}
	if _, _, err := dataloader.Refs(ctx, e.tags, page.Nodes[0].Document, fTags, nil); !errors.As(err, &complex) {
		t.Errorf("what is there, after the operation wanted too many: %v", err)
	}
	ctx = e.begin()
	one, err := e.projects.Get(ctx, "a", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for range 12 {
		if tags, _, err := dataloader.Refs(ctx, e.tags, one.Document, fTags, nil); err != nil || len(tags) != 40_000 {
			t.Fatalf("%d references: %v", len(tags), err)
		}
	}
	if _, _, err := dataloader.Refs(ctx, e.tags, one.Document, fTags, nil); !errors.As(err, &complex) || complex.Code != fault.CodeQueryTooComplex {
		t.Errorf("more than half a million references: %v", err)
	}
}

// References that lead nowhere count as well: each takes memory in an answer.
func TestTooManyEmptyReferences(t *testing.T) {
	e := newEnv(t)
	e.load("projects", "p", `{"tags":[],"owner":null}`)
	ctx := e.begin()
	n, err := e.projects.Get(ctx, "p", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range dataloader.MaxFollowed {
		var err error
		if i%2 == 0 {
			_, _, err = dataloader.Refs(ctx, e.tags, n.Document, fTags, nil)
		} else {
			_, err = dataloader.Ref(ctx, e.tags, n.Document, fOwner, nil)
		}
		if err != nil {
			t.Fatalf("after %d references: %v", i, err)
		}
	}
	var levels dataloader.Levels
	if err := levels.Follow(dataloader.MaxFollowed); err != nil || levels.Full() {
		t.Errorf("as many as allowed: %v", err)
	}
	_, _, list := dataloader.Refs(ctx, e.tags, n.Document, fTags, nil)
	_, single := dataloader.Ref(ctx, e.tags, n.Document, fOwner, nil)
	for name, err := range map[string]error{"a list": list, "a single one": single, "of levels": levels.Follow(1)} {
		var refused *fault.Error
		if !errors.As(err, &refused) || refused.Code != fault.CodeQueryTooComplex {
			t.Errorf("%s: %v", name, err)
		}
	}
}
