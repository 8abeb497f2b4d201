package sqlitestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"zombiezen.com/go/sqlite"

	"github.com/asof/asof/storage/driver"
)

// keptCount is how many versions of a document are kept.
func keptCount(s *Store, key string) int {
	k := documentKey{s.byName[benchCollection].id, key}
	shard := s.cached.shard(k)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	d, ok := shard.docs.Peek(k)
	if !ok {
		return 0
	}
	return len(d.versions)
}

// What is kept answers without the file, at every instant at which it was
// current, by number too; the next commit drops the last version and no other.
func TestVersionsAreKeptUntilTheyChange(t *testing.T) {
	s := benchStore(t, Options{Sync: SyncOff, readers: 1})
	key := benchKey(1)
	for n := range 4 {
		w := &driver.Write{
			ID: fmt.Sprint(n), Collection: benchCollection, Key: key, Expected: int64(n), Op: driver.OpUpdate,
			Data: fmt.Appendf(nil, `{"stars":%d}`, n+1),
		}
		if n == 0 {
			w.Op = driver.OpCreate
		}
		if _, err := driver.CommitOne(t.Context(), s, w); err != nil {
			t.Fatal(err)
		}
	}
	get := func(ref driver.Ref) *driver.Version {
		t.Helper()
		vs, err := s.Get(t.Context(), benchCollection, []driver.Ref{ref}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return vs[0]
	}
	current, second := get(driver.Ref{Key: key, At: driver.Forever}), get(driver.Ref{Key: key, Number: 2})
	if n := keptCount(s, key); n != 2 {
		t.Fatalf("%d versions are kept after two reads", n)
	}
	c, err := s.readers.get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	deny := func(sqlite.Action) sqlite.AuthResult { return sqlite.AuthResultDeny }
	if err := c.SetAuthorizer(sqlite.AuthorizeFunc(deny)); err != nil {
		t.Fatal(err)
	}
	s.readers.release(c)
	for _, r := range []struct {
		ref  driver.Ref
		want *driver.Version
	}{
		{driver.Ref{Key: key, At: driver.Forever}, current},
		{driver.Ref{Key: key, At: current.RecordedAt}, current},
		{driver.Ref{Key: key, Number: 4}, current},
		{driver.Ref{Key: key, Number: 2}, second},
		{driver.Ref{Key: key, At: second.RecordedAt}, second},
		{driver.Ref{Key: key, At: second.SupersededAt - 1}, second},
	} {
		if got := get(r.ref); got != r.want {
			t.Errorf("%+v: got %+v, want what is kept of version %d", r.ref, got, r.want.Number)
		}
	}
	// What is not kept is read, which is denied.
	for _, ref := range []driver.Ref{{Key: key, Number: 3}, {Key: key, At: second.SupersededAt}, {Key: key, At: second.RecordedAt - 1}} {
		if _, err := s.Get(t.Context(), benchCollection, []driver.Ref{ref}, nil); err == nil {
			t.Errorf("%+v was answered without the file", ref)
		}
	}
	w := &driver.Write{ID: "next", Collection: benchCollection, Key: key, Expected: 4, Op: driver.OpUpdate, Data: []byte(`{"stars":5}`)}
	if _, err := driver.CommitOne(t.Context(), s, w); err != nil {
		t.Fatal(err)
	}
	// The commit's own takes the place of the one before, and is what is in the file.
	if n := keptCount(s, key); n != 2 {
		t.Errorf("%d versions are kept after a commit, want the second and the new one", n)
	}
	made := get(driver.Ref{Key: key, At: driver.Forever})
	if err := c.SetAuthorizer(nil); err != nil {
		t.Fatal(err)
	}
	s.cached = newVersionCache(0)
	stored := get(driver.Ref{Key: key, At: driver.Forever})
	if stored.Notes = made.Notes; made.Number != 5 || !reflect.DeepEqual(made, stored) {
		t.Errorf("kept is %+v, stored %+v", made, stored)
	}
}

// A version is kept only if nothing was committed since the snapshot that it was
// read in, and given only to readers whose snapshot has it.
func TestVersionCacheAndSnapshots(t *testing.T) {
	c := newVersionCache(versionCacheBytes)
	k := documentKey{1, "a"}
	changed := []*state{{coll: &collection{id: 1}, key: "a"}}
	v := func(n int64) *driver.Version {
		return &driver.Version{Key: "a", Number: n, RecordedAt: driver.Instant(10 * n), SupersededAt: driver.Forever}
	}
	old := c.current()
	c.committing()
	if c.current() != unsettled {
		t.Error("a snapshot that is taken during a commit is settled")
	}
	c.add(k, 1, v(1), old)
	if got, _ := c.find(k, driver.Ref{Key: "a", At: driver.Forever}, old); got != nil {
		t.Error("a version was kept during a commit")
	}
	c.committed(changed, true)
	c.add(k, 1, v(1), old)
	if got, _ := c.find(k, driver.Ref{Key: "a", At: driver.Forever}, old); got != nil {
		t.Error("a version that was read before a commit was kept after it")
	}
	now := c.current()
	c.add(k, 1, v(2), now)
	for count, want := range map[int64]bool{now: true, now + 2: true, old: false, unsettled: false} {
		if got, _ := c.find(k, driver.Ref{Key: "a", At: driver.Forever}, count); (got != nil) != want {
			t.Errorf("a snapshot of count %d is given %v of one of count %d", count, got, now)
		}
	}
	c.committing()
	c.committed(nil, false)
	if got, id := c.find(k, driver.Ref{Key: "a", At: driver.Forever}, c.current()); got != nil || id != 0 {
		t.Errorf("%v, %d are kept after a commit of which nothing is known", got, id)
	}
}

// The cache stays within its bounds, in all and for one document.
func TestVersionCacheIsBounded(t *testing.T) {
	const limit = 1 << 20
	c := newVersionCache(limit)
	data := []byte(strings.Repeat("x", 1000))
	for doc := range 200 {
		for n := range int64(2 * maxKnownVersions) {
			key := fmt.Sprintf("document %d", doc)
			v := &driver.Version{Key: key, Number: n + 1, RecordedAt: driver.Instant(n), SupersededAt: driver.Instant(n + 1), Data: data}
			c.add(documentKey{1, key}, docID(doc+1), v, c.current())
			c.seen(documentKey{1, fmt.Sprint("seen", doc, n)}, docID(doc+1), 1)
		}
	}
	total, kept := 0, 0
	for i := range c.shards {
		shard := &c.shards[i]
		for doc := range 200 {
			d, ok := shard.docs.Peek(documentKey{1, fmt.Sprintf("document %d", doc)})
			if !ok {
				continue
			}
			size := len("document 000") + knownOverhead
			for _, v := range d.versions {
				size += len(v.Data) + len(v.Key) + knownOverhead
			}
			if len(d.versions) > maxKnownVersions || d.bytes > size {
				t.Errorf("%d versions of one document, %d bytes", len(d.versions), d.bytes)
			}
			kept++
		}
		total += shard.docs.Bytes()
	}
	if total > limit || total < limit/2 || kept == 0 {
		t.Errorf("%d bytes of %d documents are kept of at most %d", total, kept, limit)
	}
}

// What is large about a version beside its data counts, too, and goes with it:
// the bytes that are kept are those of what is there.
func TestVersionCacheCountsAll(t *testing.T) {
	long := strings.Repeat("x", 600)
	names := strings.Split(strings.Repeat("a name of some length,", 300), ",")
	for name, v := range map[string]driver.Version{
		"key":     {Key: long},
		"author":  {Key: "a", Author: long},
		"message": {Key: "a", Message: long},
		"group":   {Key: "a", Group: long},
		"data":    {Key: "a", Data: []byte(long)},
		"changed": {Key: "a", Changed: names},
	} {
		t.Run(name, func(t *testing.T) {
			c := newVersionCache(versionCacheBytes)
			k := documentKey{1, v.Key}
			shard := c.shard(k)
			c.seen(k, 1, 0)
			empty := shard.docs.Bytes()
			v.Number, v.SupersededAt = 1, driver.Forever
			c.add(k, 1, &v, c.current())
			if took := shard.docs.Bytes() - empty; took < knownOverhead+600 {
				t.Errorf("it takes %d bytes", took)
			}
			c.committing()
			c.committed([]*state{{coll: &collection{id: 1}, key: v.Key}}, true)
			if shard.docs.Bytes() != empty {
				t.Errorf("%d bytes are left, want %d", shard.docs.Bytes(), empty)
			}
		})
	}
}

// A connection remembers lists that recur, and no long ones.
func TestLongListsAreNotRemembered(t *testing.T) {
	s := benchStore(t, Options{Sync: SyncOff, readers: 1})
	lists := [][]string{{"stars", "tags"}, strings.Split(strings.Repeat("a name of some length,", 300)+"end", ",")}
	var refs []driver.Ref
	for i, list := range lists {
		w := &driver.Write{ID: benchKey(i), Collection: benchCollection, Key: benchKey(i), Op: driver.OpCreate, Changed: list, Data: []byte(`{}`)}
		if _, err := driver.CommitOne(t.Context(), s, w); err != nil {
			t.Fatal(err)
		}
		refs = append(refs, driver.Ref{Key: w.Key, At: driver.Forever})
	}
	got, err := s.Get(t.Context(), benchCollection, refs, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, list := range lists {
		if !slices.Equal(got[i].Changed, list) {
			t.Errorf("%d: %d names, want %d", i, len(got[i].Changed), len(list))
		}
	}
	if known := s.readers.free[0].lists; len(known) != 1 {
		t.Errorf("%d lists are remembered, want the short one", len(known))
	}
}

// A page is one state of the collection: what a load brought is in all of its
// documents or in none, while loads go on and versions are kept. The instant that
// is not for ever is after the last version of the last load, whose versions have
// different times: between them, a page has some of them.
func TestPagesAreOneStateDuringLoads(t *testing.T) {
	const docs, loads = 12, 300
	s := benchStore(t, Options{Sync: SyncOff, VersionCache: 64 << 10, readers: 2})
	load := func(n int) error {
		var vs []driver.Version
		for d := range docs {
			vs = append(vs, driver.Version{
				Collection: benchCollection, Key: benchKey(d), RecordedAt: driver.Instant(1000*n + d), Op: driver.OpImport,
				Data: fmt.Appendf(nil, `{"stars":%d}`, n),
			})
		}
		_, err := s.Load(t.Context(), vs)
		return err
	}
	if err := load(1); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var wait sync.WaitGroup
	for _, at := range []driver.Instant{driver.Forever, 1000*loads + docs} {
		wait.Go(func() {
			defer stop()
			for ctx.Err() == nil {
				vs, err := s.Query(ctx, &driver.Query{Collection: benchCollection, At: at, Order: []driver.Order{{Field: driver.Field{Path: []string{"stars"}, Kind: driver.KindInt}}}})
				if errors.Is(err, context.Canceled) {
					return
				}
				if err != nil || len(vs) != docs {
					t.Errorf("got %d documents, %v", len(vs), err)
					return
				}
				for _, v := range vs {
					if string(v.Data) != string(vs[0].Data) {
						t.Errorf("one page has %s and %s", vs[0].Data, v.Data)
						return
					}
				}
			}
		})
	}
	for n := 2; n <= loads && ctx.Err() == nil; n++ {
		if err := load(n); err != nil {
			t.Error(err)
		}
	}
	stop()
	wait.Wait()
}

// A snapshot during whose taking something was committed is not known to be of
// before or after.
func TestSnapshotTakenDuringACommit(t *testing.T) {
	s := benchStore(t, Options{Sync: SyncOff, readers: 1})
	c, err := s.connect()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		c.endSnapshot()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}()
	commits := 1
	if err := c.SetAuthorizer(sqlite.AuthorizeFunc(func(a sqlite.Action) sqlite.AuthResult {
		if a.Table() == "clock" && commits > 0 {
			commits--
			s.cached.committing()
			s.cached.committed(nil, true)
		}
		return sqlite.AuthResultOK
	})); err != nil {
		t.Fatal(err)
	}
	if err := c.takeSnapshot(); err != nil || commits != 0 || c.count != unsettled {
		t.Errorf("%v; %d commits were left; its count is %d", err, commits, c.count)
	}
	c.endSnapshot()
	if err := c.takeSnapshot(); err != nil || c.count != s.cached.current() || c.count == unsettled {
		t.Errorf("%v; a snapshot that was taken in peace has count %d", err, c.count)
	}
}

// What is kept of one document leaves room for others, and keeps its current
// version.
func TestLongHistoryLeavesRoom(t *testing.T) {
	c := newVersionCache(versionCacheBytes)
	k := documentKey{1, "long"}
	other := documentKey{1, ""}
	for i := 0; c.shard(other) != c.shard(k) || i == 0; i++ {
		other.key = fmt.Sprint("other", i)
	}
	c.add(other, 2, &driver.Version{Key: other.key, Number: 1, SupersededAt: driver.Forever}, c.current())
	const last = 3 * maxKnownVersions
	data := []byte(strings.Repeat("x", maxKnownBytes-2*knownOverhead))
	add := func(n int64) {
		v := &driver.Version{Key: k.key, Number: n, RecordedAt: driver.Instant(n), SupersededAt: driver.Instant(n + 1), Data: data}
		if n == last {
			v.SupersededAt = driver.Forever
		}
		c.add(k, 1, v, c.current())
	}
	add(last)
	for n := range int64(last - 1) {
		add(n + 1)
	}
	for _, k := range []documentKey{other, k} {
		if v, _ := c.find(k, driver.Ref{Key: k.key, At: driver.Forever}, c.current()); v == nil {
			t.Errorf("the current version of %q is not kept", k.key)
		}
	}
}

// A version is not kept where reading it failed half way: when it was superseded
// is not known, and it would be given to those who ask for the current one.
func TestVersionReadInPartIsNotKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "asof.db")
	opts := Options{Collections: benchDeclared(), Sync: SyncOff, readers: 1}
	s, err := open(t.Context(), path, opts)
	if err != nil {
		t.Fatal(err)
	}
	for n := range int64(3) {
		w := &driver.Write{
			ID: fmt.Sprint(n), Collection: benchCollection, Key: "a", Expected: n, Op: driver.OpUpdate,
			Data: fmt.Appendf(nil, `{"text":"%s"}`, strings.Repeat(fmt.Sprintf("state %d.", n+1), 400)),
		}
		if _, err := driver.CommitOne(t.Context(), s, w); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	// Each of them has a page of its own. That of the second is damaged.
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const page = 4096
	at := bytes.Index(file, []byte("state 2."))
	if at < 0 || at/page == bytes.Index(file, []byte("state 1."))/page {
		t.Fatalf("the second version is at %d", at)
	}
	file[at/page*page] = 0xff
	writeFile(t, path, string(file))
	if s, err = open(t.Context(), path, opts); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Log(err)
		}
	}()
	if got, err := s.Get(t.Context(), benchCollection, []driver.Ref{{Key: "a", Number: 1}}, nil); driver.CodeOf(err) != driver.CodeInternal {
		t.Fatalf("got %v, %v, want the damaged page after version 1", got, err)
	}
	got, err := s.Get(t.Context(), benchCollection, []driver.Ref{{Key: "a", At: driver.Forever}}, nil)
	if err != nil || got[0].Number != 3 {
		t.Errorf("got %+v, %v, want version 3", got, err)
	}
}

// Where a transaction cannot be committed, what was kept is read again, and is
// kept again from then on.
func TestVersionsAreKeptAfterAFailedCommit(t *testing.T) {
	s := benchStore(t, Options{Sync: SyncOff, readers: 1})
	commit := func(id string, expected int64) error {
		w := &driver.Write{
			ID: id, Collection: benchCollection, Key: "a", Expected: expected, Op: driver.OpUpdate, Data: []byte(`{}`),
		}
		_, err := driver.CommitOne(t.Context(), s, w)
		return err
	}
	read := func(want int64, kept int) {
		t.Helper()
		got, err := s.Get(t.Context(), benchCollection, []driver.Ref{{Key: "a", At: driver.Forever}}, nil)
		if err != nil || got[0].Number != want || keptCount(s, "a") != kept {
			t.Errorf("got %+v, %v, want version %d; %d versions are kept, want %d", got, err, want, keptCount(s, "a"), kept)
		}
	}
	if err := commit("first", 0); err != nil {
		t.Fatal(err)
	}
	read(1, 1)
	allow := func(deny string) {
		t.Helper()
		if err := s.writer.SetAuthorizer(sqlite.AuthorizeFunc(func(a sqlite.Action) sqlite.AuthResult {
			if a.Type() == sqlite.OpTransaction && a.Operation() == deny {
				return sqlite.AuthResultDeny
			}
			return sqlite.AuthResultOK
		})); err != nil {
			t.Fatal(err)
		}
	}
	allow("COMMIT")
	if err := commit("second", 1); err == nil {
		t.Fatal("a transaction was committed that was not allowed to")
	}
	if n := keptCount(s, "a"); n != 0 {
		t.Errorf("%d versions are kept after a commit of which nothing is known", n)
	}
	read(1, 1)
	allow("")
	if err := commit("second", 1); err != nil {
		t.Fatal(err)
	}
	read(2, 1)
}
