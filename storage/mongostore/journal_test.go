package mongostore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/mongostore/mongotest"
)

// A load that may have been written down, by a command without an answer, and is
// refused then, has not happened, and does not happen later.
func TestLoadRefusedAfterDoubt(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	proxy, behind, beside := pair(ctx, t, Options{beat: beatEvery})
	var inserts atomic.Int64
	proxy.Set(func(c mongotest.Command) mongotest.Answer {
		switch {
		case c.Name != "insert" || c.Collection() != journalName:
			return mongotest.Pass()
		case inserts.Add(1) == 1:
			return mongotest.CutAfter()
		default:
			return mongotest.Reply(mongotest.Failure(13, "Unauthorized", "not any more"))
		}
	})
	if _, err := behind.Load(ctx, two(0, "things")); driver.CodeOf(err) != driver.CodeUnavailable {
		t.Errorf("Load: %v", err)
	}
	checkLoaded(ctx, t, beside, nil)
	if _, err := commitAgain(ctx, beside, write("a", "a", 0)); err != nil {
		t.Error(err)
	}
	if n := countVersions(t, beside); n != 1 {
		t.Errorf("%d versions are there", n)
	}
}

// Of a load that is refused when a part of it was written down nothing is left.
func TestRefusedLoadLeavesNothing(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	proxy, uri, _ := mongotest.NewServer(t).Behind(t)
	behind := newFleetServer(t, uri, Options{beat: slowBeat})
	l := behind.newLoading(driver.Forever)
	var err error
	if l.life, err = behind.fleet.exclude(ctx); err != nil {
		t.Fatal(err)
	}
	defer behind.fleet.include()
	if _, _, err = l.plan(ctx, two(0, "things")); err != nil {
		t.Fatal(err)
	}
	j, err := behind.newJournal(l)
	if err != nil {
		t.Fatal(err)
	}
	j.parts = append(j.parts, bson.D{{Key: "_id", Value: journalPart(j.id, 1)}, {Key: "owner", Value: l.life}})
	if err := j.prepare(ctx); err != nil {
		t.Fatal(err)
	}
	proxy.Set(func(c mongotest.Command) mongotest.Answer {
		if c.Name == "insert" && c.Collection() == journalName {
			return mongotest.Reply(mongotest.Failure(13, "Unauthorized", "not any more"))
		}
		return mongotest.Pass()
	})
	if err := j.complete(ctx, l, make(chan error, 1)); err == nil {
		t.Error("the load was not refused")
	}
	checkLoaded(ctx, t, behind, nil)
}

// A group of which a part may still be carried out stays in flight, though
// another part of it was refused.
func TestGroupInDoubtFlies(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	proxy, uri, _ := mongotest.NewServer(t).Behind(t)
	behind := newFleetServer(t, uri, Options{beat: slowBeat})
	vs := two(0, "things")
	if _, err := loadAgain(ctx, behind, vs[:1]); err != nil {
		t.Fatal(err)
	}
	vs[0].RecordedAt += 5
	l := behind.newLoading(driver.Forever)
	if _, _, err := l.plan(ctx, vs); err != nil {
		t.Fatal(err)
	}
	proxy.Set(func(c mongotest.Command) mongotest.Answer {
		switch {
		case of("insert")(c):
			return mongotest.CutAfter()
		case of("update")(c):
			return mongotest.Reply(mongotest.Failure(13, "Unauthorized", "not any more"))
		default:
			return mongotest.Pass()
		}
	})
	if err := l.write(ctx); err == nil {
		t.Error("the load was written")
	}
	behind.clock.mu.Lock()
	defer behind.clock.mu.Unlock()
	if len(behind.clock.flights) != 1 {
		t.Errorf("in flight are %v", behind.clock.flights)
	}
}

// Who does not wait any longer for a load is told whether it was written down; it
// is completed either way.
func TestLoadStuck(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		cut  func(mongotest.Command) bool
		says string
	}{
		{"before it was written down", func(c mongotest.Command) bool { return c.Name == "insert" && c.Collection() == journalName }, "may not have been written down"},
		{"afterwards", of("insert"), "was written down"},
	} {
		t.Run(test.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), hangs)
			defer cancel()
			proxy, behind, beside := pair(ctx, t, Options{beat: beatEvery})
			behind.timeout = time.Second
			id := lifeOf(behind)
			proxy.Set(func(c mongotest.Command) mongotest.Answer {
				if test.cut(c) {
					return mongotest.CutBefore()
				}
				return mongotest.Pass()
			})
			vs := two(0, "things")
			_, err := behind.Load(ctx, vs)
			for err != nil && strings.Contains(err.Error(), "nothing was loaded") { // it was taken for dead
				_, err = behind.Load(ctx, vs)
			}
			// Where it was taken for dead, the other server may have completed the load.
			if (err != nil || lifeOf(behind) == id) && !strings.Contains(fmt.Sprint(err), test.says) {
				t.Errorf("Load: %v; want that it %s", err, test.says)
			}
			proxy.Set(nil)
			if _, err := commitAgain(ctx, beside, write("b", "b", 0)); err != nil {
				t.Fatal(err)
			}
			checkLoaded(ctx, t, beside, vs)
		})
	}
}

// A load that gets on, however slowly, is not said to be stuck.
func TestLoadGetsOn(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	const documents, timeout = 4, time.Minute
	var passed atomic.Int64 // of which nobody waits
	began := time.Now()
	proxy, uri, _ := mongotest.NewServer(t).Behind(t)
	s := newFleetServer(t, uri+"&retryWrites=false", Options{
		Timeout: timeout, beat: beatEvery,
		elapsed: func() time.Duration { return time.Since(began) + time.Duration(passed.Load()) },
	})
	s.bulkSize.bytes.Store(1)
	vs := loaded(2*documents, 1)
	vs = slices.DeleteFunc(vs, func(v driver.Version) bool { return v.Collection != "things" })
	for i := range vs {
		vs[i].Data = fmt.Appendf(nil, `{"text":"%0*d"}`, 2*minBulkBytes, 0)
	}
	inserts := 0
	proxy.Set(func(c mongotest.Command) mongotest.Answer {
		if !of("insert")(c) {
			return mongotest.Pass()
		}
		s.bulkSize.bytes.Store(1) // one document each time
		if inserts++; inserts%2 == 0 {
			passed.Add(int64(timeout / 2))
			return mongotest.CutBefore()
		}
		return mongotest.Pass()
	})
	if result, err := s.Load(ctx, vs); err != nil || result.Added != documents {
		t.Errorf("%+v, %v", result, err)
	}
	if passed.Load() <= int64(timeout) {
		t.Errorf("it took no longer than %v", time.Duration(passed.Load()))
	}
	checkLoaded(ctx, t, s, vs)
}
