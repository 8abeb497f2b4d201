package mongostore

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
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
// dropped their versions, one of them with an end that did not come true. However
// versions move later, none is in two runs, and each ends when it ended.
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
			untrue := slices.Clone(prev[:12])
			r, err := decodeVersion("tools", "go", untrue[11].raw)
			if err != nil {
				t.Fatal(err)
			}
			untrue[11] = supersede(r, r.SupersededAt+100)
			if n, err := narrow.overflow(ctx, narrow.bounds, "go", untrue, len(untrue), true); err != nil || n != len(untrue) {
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
	if n, err := c.overflow(ctx, c.bounds, "go", prev, left, true); err != nil || n != left {
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

// A longer run that is there is taken over as a whole where all of its versions are to
// move, the last one as well, which ends when it ended.
func TestLongerRunIsTakenOver(t *testing.T) {
	const moved = 4
	ctx, s := t.Context(), openOverflowing(t, Bounds{Versions: 2 * moved})
	if _, err := loadAgain(ctx, s, imported("go", 0, moved+1)); err != nil {
		t.Fatal(err)
	}
	c := s.collections["tools"]
	_, prev := readPrev(ctx, t, c)
	last, err := decodeVersion("tools", "go", prev[moved-1].raw)
	if err != nil {
		t.Fatal(err)
	}
	untrue := append(slices.Clone(prev[:moved-1]), supersede(last, last.SupersededAt+5))
	for _, versions := range [][]superseded{untrue, prev} {
		if n, err := c.overflow(ctx, c.bounds, "go", versions, moved, false); err != nil || n != moved {
			t.Fatal(n, err)
		}
		c.bounds.Versions = moved / 2
	}
	var run struct {
		To driver.Instant `bson:"to"`
	}
	if err := c.history.FindOne(ctx, bson.D{{Key: "k", Value: "go"}}).Decode(&run); err != nil {
		t.Fatal(err)
	}
	got, _, _, _ := readPlaces(t, s)
	if diff := cmp.Diff([][]int64{numbersFrom(1, moved)}, got.Runs); diff != "" || run.To != last.SupersededAt {
		t.Errorf("the first run ends at %d, want %d; the runs (-want +got):\n%s", run.To, last.SupersededAt, diff)
	}
}

// A version that was to be superseded by a commit that is lost ends when what is
// loaded begins, though that is earlier.
func TestLoadEndsRun(t *testing.T) {
	const large = 4000 // bytes of a version, more than half of what is to be in one document
	s := openOverflowing(t, Bounds{Bytes: large / 2, together: large})
	ctx, c := t.Context(), s.collections["tools"]
	vs := imported("go", 0, 2)
	for i := range vs {
		vs[i].Data = fmt.Appendf(nil, `{"text":"%0*d"}`, large/2, i)
	}
	if _, err := loadAgain(ctx, s, vs[:1]); err != nil {
		t.Fatal(err)
	}
	h, err := c.readHead(ctx, "go")
	if err != nil {
		t.Fatal(err)
	}
	lost := supersede(&h.record, vs[1].RecordedAt+5)
	if n, err := c.overflow(ctx, c.bounds, "go", []superseded{lost}, 1, true); err != nil || n != 1 {
		t.Fatal(n, err)
	}
	if _, err := loadAgain(ctx, s, vs[1:]); err != nil {
		t.Fatal(err)
	}
	checkAll(t, s)
}

// Versions that are together too large for one document are in the overflow before it has
// them. Where the server is lost in between, loading them again completes it.
func TestLargeLoadIsLost(t *testing.T) {
	t.Parallel()
	proxy, uri, name := mongotest.NewServer(t).Behind(t)
	direct, err := mongotest.WithDatabase(mongotest.URI(t), name)
	if err != nil {
		t.Fatal(err)
	}
	const large = 4000 // bytes of a version, more than half of what is to be in one document
	bounds := map[string]Bounds{"things": {Bytes: large / 2, together: large}}
	s := newServerOf(t, uri, Options{Bounds: bounds})
	vs := imported("go", 0, 3)
	for i := range vs {
		vs[i].Collection, vs[i].Data = "things", fmt.Appendf(nil, `{"text":"%0*d"}`, large/2, i)
	}
	if _, err := loadAgain(t.Context(), s, vs[:1]); err != nil {
		t.Fatal(err)
	}
	ctx, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	proxy.Set(func(c mongotest.Command) mongotest.Answer {
		if of("update")(c) {
			giveUp()
			return mongotest.CutBefore()
		}
		return mongotest.Pass()
	})
	if _, err := loadAgain(ctx, s, vs[1:]); driver.CodeOf(err) != driver.CodeUnavailable {
		t.Fatalf("what was cut was loaded: %v", err)
	}
	kill(s)
	next := newServerOf(t, direct, Options{Bounds: bounds})
	if n := countVersions(t, next); n != 1 {
		t.Errorf("%d versions are there", n)
	}
	if _, err := loadAgain(t.Context(), next, vs); err != nil {
		t.Fatal(err)
	}
	if n := countVersions(t, next); n != len(vs) {
		t.Errorf("%d versions are there, of %d", n, len(vs))
	}
}

// A version that moves to the overflow before it is superseded ended when the attempt
// says that was carried out, though a later one said otherwise.
func TestLateAttemptEndsRun(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	const large = 4000 // bytes of a version, more than half of what is to be in one document
	proxy, behind, beside := pair(ctx, t, Options{timing: quick, Bounds: map[string]Bounds{"things": {Bytes: large / 2, together: large}}})
	text := func(id string, expected int64) *driver.Write {
		w := write("a", id, expected)
		w.Data = fmt.Appendf(nil, `{"text":"%0*d"}`, large/2, 0)
		return w
	}
	if _, err := commitAgain(ctx, behind, text("1", 0)); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	updates, released := 0, make(chan struct{})
	proxy.Set(func(c mongotest.Command) mongotest.Answer {
		if !of("update")(c) {
			return mongotest.Pass()
		}
		mu.Lock()
		updates++
		n := updates
		mu.Unlock()
		switch n {
		case 1: // it is carried out when another attempt was made
			<-released
			return mongotest.Pass()
		case 2:
			close(released)
			for ctx.Err() == nil {
				if h, err := beside.collections["things"].readHead(ctx, "a"); err == nil && h.Number == 2 {
					break
				}
			}
			return mongotest.CutBefore()
		default:
			return mongotest.Pass()
		}
	})
	v, err := commitAgain(ctx, behind, text("2", 1))
	if err != nil {
		t.Fatal(err)
	}
	var run struct {
		To driver.Instant `bson:"to"`
	}
	if err := beside.collections["things"].history.FindOne(ctx, bson.D{{Key: "k", Value: "a"}}).Decode(&run); err != nil {
		t.Fatal(err)
	}
	if updates < 2 || run.To != v.RecordedAt {
		t.Errorf("after %d attempts the version before ended at %d, and the next one began at %d", updates, run.To, v.RecordedAt)
	}
	checkAll(t, beside)
}

// A load of one update is made once, whatever its document looks like afterwards.
func TestLoadIsMadeOnce(t *testing.T) {
	const versions, bytes = 3, maxLoadPart/9 - 1000 // which are just small enough for one update
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

// The history of a document moves on with what is in it already, also where that is
// little, and it is what is loaded that does not leave room for it.
func TestLittleHistoryBesideLargeLoad(t *testing.T) {
	const large = 4000 // bytes that are to be in one document
	ctx, s := t.Context(), openOverflowing(t, Bounds{Bytes: large, together: large})
	vs := imported("go", 0, 4)
	vs[3].Data = fmt.Appendf(nil, `{"text":"%0*d"}`, large/2-200, 0)
	for _, part := range [][]driver.Version{vs[:3], vs[3:]} {
		if _, err := loadAgain(ctx, s, part); err != nil {
			t.Fatal(err)
		}
	}
	got, _, _, _ := readPlaces(t, s)
	if diff := cmp.Diff(placed{Runs: [][]int64{numbersFrom(1, 3)}}, got); diff != "" {
		t.Errorf("where the versions are (-want +got):\n%s", diff)
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
		if command.Name == "insert" && command.Collection() == c.history.Name() && inserts.Add(1) == 2 {
			go func() {
				_, err := commit(before+1, medium) // which is acknowledged after the load
				committed <- err
			}()
			for ctx.Err() == nil {
				if h, err := c.readHead(ctx, "go"); err == nil && h.Number == before+2 {
					break
				}
			}
		}
		return mongotest.Pass()
	})
	v := driver.Version{Collection: "things", Key: "go", RecordedAt: last.RecordedAt + 1, Op: driver.OpImport, Data: text(0)}
	if _, err := behind.Load(ctx, []driver.Version{v}); err != nil && driver.CodeOf(err) != driver.CodeUnavailable {
		t.Fatal(err)
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
