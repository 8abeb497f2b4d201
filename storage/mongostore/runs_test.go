package mongostore

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/mongostore/mongotest"
)

// A server with smaller bounds was lost when it had written some runs, before it
// dropped their versions. However versions move later, none is in two runs.
func TestRunsAreLeftBehind(t *testing.T) {
	const before, after = 30, 90
	for _, test := range []struct {
		name string
		more func(t *testing.T, s *Store)
	}{
		{"commits", func(t *testing.T, s *Store) { t.Helper(); commitMore(t, s, before+1, after, 0) }},
		{"a load", func(t *testing.T, s *Store) {
			t.Helper()
			now, err := s.Now(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			vs := make([]driver.Version, after-before)
			for i := range vs {
				vs[i] = driver.Version{Collection: "tools", Key: "go", RecordedAt: now - driver.Instant(len(vs)-i), Op: driver.OpImport, Data: fmt.Appendf(nil, `{"n":%d}`, i)}
			}
			if _, err := loadAgain(t.Context(), s, vs); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			ctx, s := t.Context(), openOverflowing(t, Bounds{Versions: 40})
			early := make([]driver.Version, before)
			for i := range early {
				early[i] = driver.Version{Collection: "tools", Key: "go", RecordedAt: driver.Instant(10 + i), Op: driver.OpImport, Data: fmt.Appendf(nil, `{"n":%d}`, i)}
			}
			if _, err := loadAgain(ctx, s, early); err != nil {
				t.Fatal(err)
			}
			c := s.collections["tools"]
			_, prev := readPrev(ctx, t, c)
			narrow := s.newCollection("tools", Bounds{Versions: 6})
			if n, err := narrow.overflow(ctx, narrow.bounds, "go", prev, 12); err != nil || n != 12 {
				t.Fatal(n, err)
			}
			test.more(t, s)
			got, _, _, _ := readPlaces(t, s)
			all := slices.Concat(append(slices.Clone(got.Runs), got.Prev)...)
			if diff := cmp.Diff(numbersFrom(1, after-1), all); diff != "" {
				t.Errorf("the versions in runs and prev, %v (-want +got):\n%s", got, diff)
			}
			checkAll(t, s)
		})
	}
}

// imported is versions of a document that follow on a number, for a load.
func imported(key string, after, n int64) []driver.Version {
	vs := make([]driver.Version, n)
	for i := range vs {
		number := after + 1 + int64(i)
		vs[i] = driver.Version{
			Collection: "tools", Key: key, Number: number, RecordedAt: 10 * driver.Instant(number), Op: driver.OpImport, Data: fmt.Appendf(nil, `{"n":%d}`, number),
		}
	}
	return vs
}

// A server was lost when a commit had moved some versions, of which the last run has
// fewer than a load puts there. The load goes on where that ends.
func TestLoadFollowsRuns(t *testing.T) {
	const before, run, left = 30, 6, 8
	ctx, s := t.Context(), openOverflowing(t, Bounds{Versions: before})
	if _, err := loadAgain(ctx, s, imported("go", 0, before)); err != nil {
		t.Fatal(err)
	}
	c := s.collections["tools"]
	c.bounds.Versions = run
	_, prev := readPrev(ctx, t, c)
	if n, err := c.overflow(ctx, c.bounds, "go", prev, left); err != nil || n != left {
		t.Fatal(n, err)
	}
	if _, err := loadAgain(ctx, s, imported("go", before, 1)); err != nil {
		t.Fatal(err)
	}
	got, _, _, _ := readPlaces(t, s)
	all := slices.Concat(append(slices.Clone(got.Runs), got.Prev)...)
	if diff := cmp.Diff(numbersFrom(1, before), all); diff != "" {
		t.Errorf("the versions in runs and prev, %v (-want +got):\n%s", got, diff)
	}
	checkAll(t, s)
}

// A longer run that is there is taken over as a whole.
func TestLongerRunIsTakenOver(t *testing.T) {
	const moved = 4
	ctx, s := t.Context(), openOverflowing(t, Bounds{Versions: 2 * moved})
	if _, err := loadAgain(ctx, s, imported("go", 0, moved+1)); err != nil {
		t.Fatal(err)
	}
	c := s.collections["tools"]
	_, prev := readPrev(ctx, t, c)
	for _, n := range []int{moved, moved - 1} {
		if n, err := c.overflow(ctx, c.bounds, "go", prev, n); err != nil || n != moved {
			t.Fatal(n, err)
		}
		c.bounds.Versions = moved / 2
	}
	got, _, _, _ := readPlaces(t, s)
	if diff := cmp.Diff([][]int64{numbersFrom(1, moved)}, got.Runs); diff != "" {
		t.Errorf("the runs (-want +got):\n%s", diff)
	}
}

// A document has room for two of the largest versions, the current one and the one before, at any time.
func TestLargestVersions(t *testing.T) {
	t.Parallel()
	const largest = maxStored/2 - 1000 // which is stored twice
	text := func(bytes int) []byte { return []byte(`{"text":"` + strings.Repeat("a", bytes) + `"}`) }
	ctx := t.Context()
	proxy, uri, name := mongotest.NewServer(t).Behind(t)
	direct, err := mongotest.WithDatabase(mongotest.URI(t), name)
	if err != nil {
		t.Fatal(err)
	}
	s, beside := newServerOf(t, uri, Options{}), newServerOf(t, direct, Options{})
	document := func() int {
		raw, err := beside.collections["things"].main.FindOne(ctx, byKey("go")).Raw()
		if err != nil {
			t.Error(err)
		}
		return len(raw)
	}
	most := 0
	proxy.Set(func(c mongotest.Command) mongotest.Answer {
		if of("update")(c) && c.Bytes < largest { // what has moved is taken out
			most = max(most, document())
		}
		return mongotest.Pass()
	})
	vs := imported("go", 0, 4)
	for i := range vs {
		vs[i].Collection = "things"
		if i > 0 {
			vs[i].Data = text(largest)
		}
	}
	if _, err := loadAgain(ctx, s, vs); err != nil {
		t.Fatal(err)
	}
	w := write("go", "5", 4)
	w.Data = text(largest)
	if _, err := commitAgain(ctx, s, w); err != nil {
		t.Fatal(err)
	}
	if n := countVersions(t, beside); n != len(vs)+1 {
		t.Errorf("%d versions are there, of %d", n, len(vs)+1)
	}
	if most = max(most, document()); most > maxDocument || most < 3*largest {
		t.Errorf("the document had up to %d bytes", most)
	}
	w = write("go", "6", 5)
	w.Data = text(largest + 2000)
	if _, err := commitAgain(ctx, s, w); driver.CodeOf(err) != driver.CodeInvalid || !strings.Contains(err.Error(), "divide the document") {
		t.Errorf("what is too large was not refused: %v", err)
	}
}

// A load of what has room in few updates is made once, whatever its document looks like afterwards.
func TestLoadIsMadeOnce(t *testing.T) {
	const versions, bytes = 3, mostOfFew / 2
	s := openOverflowing(t, Bounds{})
	vs := imported("go", 0, versions)
	for i := range vs {
		vs[i].Data = fmt.Appendf(nil, `{"text":"%0*d"}`, bytes, i)
	}
	if _, err := s.Load(t.Context(), vs); err != nil {
		t.Fatal(err)
	}
	got, _, _, _ := readPlaces(t, s)
	if diff := cmp.Diff(numbersFrom(1, versions-1), slices.Concat(append(got.Runs, got.Prev)...)); diff != "" {
		t.Errorf("the versions in runs and prev, %v (-want +got):\n%s", got, diff)
	}
	checkAll(t, s)
}

// What a load of one version moves, a commit may move meanwhile, in other runs.
func TestCommitBesideLoad(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	const before, large, medium = 5, 400, 150 // versions, and bytes of them
	proxy, behind, beside := pair(ctx, t, Options{timing: unending, Bounds: map[string]Bounds{"things": {Bytes: 300}}})
	text := func(bytes int) []byte { return fmt.Appendf(nil, `{"text":"%0*d"}`, bytes, 0) }
	commit := func(expected int64, bytes int) (*driver.Version, error) {
		w := write("go", rand.Text(), expected)
		w.Data = text(bytes)
		return commitAgain(ctx, beside, w)
	}
	var last *driver.Version
	for n := range int64(before) {
		var err error
		if last, err = commit(n, large); err != nil {
			t.Fatal(err)
		}
	}
	c, committed := beside.collections["things"], make(chan error, 1)
	var inserts atomic.Int64
	proxy.Set(func(command mongotest.Command) mongotest.Answer {
		if command.Name == "insert" && command.Collection() == c.history.Name() && inserts.Add(1) == 1 {
			go func() {
				_, err := commit(before, medium)
				committed <- err
			}()
			for ctx.Err() == nil {
				if h, err := c.readHead(ctx, "go"); err == nil && h.Number == before+1 {
					break
				}
			}
		}
		return mongotest.Pass()
	})
	v := driver.Version{Collection: "things", Key: "go", RecordedAt: last.RecordedAt + 1, Op: driver.OpImport, Data: text(0)}
	if _, err := behind.Load(ctx, []driver.Version{v}); driver.CodeOf(err) != driver.CodeInvalid {
		t.Fatalf("a version before the last one was loaded: %v", err)
	}
	if err := <-committed; err != nil {
		t.Fatal(err)
	}
	cursor, err := c.history.Find(ctx, bson.D{}, options.Find().SetSort(bson.D{{Key: "n", Value: 1}}))
	if err != nil {
		t.Fatal(err)
	}
	var runs []struct {
		First int64 `bson:"n"`
		Last  int64 `bson:"last"`
	}
	if err := cursor.All(ctx, &runs); err != nil {
		t.Fatal(err)
	}
	for i, run := range runs {
		if i > 0 && run.First != runs[i-1].Last+1 {
			t.Errorf("the runs do not follow on each other: %v", runs)
		}
	}
	checkAll(t, beside)
}

// A load that has read a document, and writes it when its history was rewritten, looks at it again.
func TestLoadBesideRewrite(t *testing.T) {
	t.Parallel()
	const before = 6
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	proxy, behind, beside := pair(ctx, t, Options{timing: unending})
	vs := imported("go", 0, before+1)
	rewritten := make([]driver.Version, before-1)
	for i := range vs {
		vs[i].Collection = "things"
	}
	for i := range rewritten {
		rewritten[i] = driver.Version{Number: int64(i) + 1, Op: driver.OpImport, Data: []byte(`{}`)}
	}
	if _, err := loadAgain(ctx, beside, vs[:before]); err != nil {
		t.Fatal(err)
	}
	var once sync.Once
	proxy.Set(func(c mongotest.Command) mongotest.Answer {
		if of("update")(c) {
			once.Do(func() {
				if err := beside.Rewrite(ctx, "things", "go", rewritten); err != nil {
					t.Error(err)
				}
			})
		}
		return mongotest.Pass()
	})
	if _, err := loadAgain(ctx, behind, vs[before:]); err != nil {
		t.Fatal(err)
	}
	if n := countVersions(t, beside); n != len(vs) {
		t.Errorf("%d versions are there, of %d", n, len(vs))
	}
	if err := beside.Rewrite(ctx, "things", "go", rewritten); err != nil {
		t.Error(err)
	}
}
