package mongostore

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/mongostore/mongotest"
)

// checkAll reports what is wrong with a store.
func checkAll(t *testing.T, s *Store) {
	t.Helper()
	if err := s.Check(t.Context(), func(problem string) { t.Error(problem) }); err != nil {
		t.Error(err)
	}
}

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
			h, err := c.readHead(ctx, "go")
			if err != nil {
				t.Fatal(err)
			}
			prev, still, err := c.readPrev(ctx, h)
			if err != nil || !still {
				t.Fatal(still, err)
			}
			narrow, err := s.newCollection("tools", Bounds{Versions: 6})
			if err != nil {
				t.Fatal(err)
			}
			untrue := slices.Clone(prev[:12])
			r, err := decodeVersion("tools", "go", untrue[11].raw)
			if err != nil {
				t.Fatal(err)
			}
			untrue[11] = supersede(r, r.SupersededAt+100)
			if n, err := narrow.overflow(ctx, "go", untrue, len(untrue)); err != nil || n != len(untrue) {
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

// A version that moves to the overflow before it is superseded ended when the attempt
// says that was carried out, though a later one said otherwise.
func TestLateAttemptEndsRun(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	const large = 4000 // bytes of a version, more than half of what is to be in one document
	proxy, behind, beside := pair(ctx, t, Options{beat: beatEvery, Bounds: map[string]Bounds{"things": {Bytes: large / 2, together: large}}})
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
