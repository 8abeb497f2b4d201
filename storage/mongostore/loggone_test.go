package mongostore

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/mongostore/mongotest"
)

// cursorGone says that there is no such cursor any more.
func cursorGone() mongotest.Answer {
	return mongotest.Reply(mongotest.Failure(43, "CursorNotFound", "cursor id 1 not found"))
}

// cutShort leaves so much of the answer of an aggregation, and says that there is more.
func cutShort(most int) mongotest.Answer {
	return mongotest.Rewrite(func(reply bson.Raw) bson.D {
		const unknown = int64(77) // a cursor
		cursor := reply.Lookup("cursor").Document()
		id, _ := cursor.Lookup("id").AsInt64OK()
		batch, err := cursor.Lookup("firstBatch").Array().Values()
		if err == nil && len(batch) > most {
			batch, id = batch[:most], unknown
		}
		return bson.D{{Key: "ok", Value: 1.0}, {Key: "cursor", Value: bson.D{
			{Key: "id", Value: id}, {Key: "ns", Value: cursor.Lookup("ns")}, {Key: "firstBatch", Value: batch},
		}}}
	})
}

// A log whose cursors the server gives up on the way, as it does where nobody asks
// for long, tells all there is, once; one that never answers is an error.
func TestLogOutlivesItsCursors(t *testing.T) {
	t.Parallel()
	proxy, uri, _ := mongotest.NewServer(t).Behind(t)
	s := newServerOf(t, uri, Options{Bounds: map[string]Bounds{"things": {Versions: 40}}})
	const documents, versions = 10, 130 // several answers of 101 versions from prev, and from the overflow
	var vs []driver.Version
	for v := range versions {
		for d := range documents {
			vs = append(vs, driver.Version{
				Collection: "things", Key: fmt.Sprint("k", d), RecordedAt: driver.Instant(1 + v), Op: driver.OpImport, Data: fmt.Appendf(nil, `{"n":%d}`, v),
			})
		}
	}
	if _, err := loadAgain(t.Context(), s, vs); err != nil {
		t.Fatal(err)
	}
	for _, backward := range []bool{false, true} {
		var mu sync.Mutex
		lost := 0
		proxy.Set(func(c mongotest.Command) mongotest.Answer {
			switch {
			case c.Name == "getMore":
				mu.Lock()
				defer mu.Unlock()
				lost++
				return cursorGone()
			case c.Name == "aggregate" && strings.HasPrefix(c.Collection(), "things"):
				return cutShort(97)
			}
			return mongotest.Pass()
		})
		told := make(map[string]int)
		var last driver.LogPosition
		n := 0
		for v, err := range s.Log(t.Context(), &driver.LogQuery{Backward: backward}) {
			if err != nil {
				t.Fatal(err)
			}
			p := driver.LogPosition{At: v.RecordedAt, Collection: v.Collection, Key: v.Key, Number: v.Number}
			if n++; n > 1 && (comparePositions(last, p) < 0) == backward {
				t.Fatalf("%+v is told behind %+v", p, last)
			}
			last = p
			told[fmt.Sprint(v.Key, "@", v.Number)]++
		}
		if n != len(vs) || len(told) != len(vs) || lost < 5 {
			t.Errorf("%d versions were told, %d different ones, want %d; %d cursors were lost", n, len(told), len(vs), lost)
		}
	}
	// One that does not get on.
	proxy.Set(func(c mongotest.Command) mongotest.Answer {
		switch {
		case c.Name == "getMore":
			return cursorGone()
		case c.Name == "aggregate" && strings.HasPrefix(c.Collection(), "things"):
			return cutShort(0)
		}
		return mongotest.Pass()
	})
	var last error
	for _, err := range s.Log(t.Context(), &driver.LogQuery{}) {
		last = err
	}
	proxy.Set(nil)
	if driver.CodeOf(last) != driver.CodeUnavailable || !strings.Contains(last.Error(), "try again") {
		t.Errorf("%v (%q)", last, driver.CodeOf(last))
	}
}

// A log that loses its cursor on prev, while commits move what it had not told yet from
// there to the overflow, tells that too, once and in order.
func TestLogFollowsWhatMovesMeanwhile(t *testing.T) {
	const versions, few, commits = 30, 5, 12
	for _, backward := range []bool{false, true} {
		t.Run(fmt.Sprintf("backward %t", backward), func(t *testing.T) {
			proxy, uri, _ := mongotest.NewServer(t).Behind(t)
			s := newServerOf(t, uri, Options{Bounds: map[string]Bounds{"things": {Versions: 40}}})
			var vs []driver.Version
			for v := range versions {
				vs = append(vs, driver.Version{
					Collection: "things", Key: "a", RecordedAt: driver.Instant(1 + v), Op: driver.OpImport, Data: fmt.Appendf(nil, `{"n":%d}`, v),
				})
			}
			if _, err := loadAgain(t.Context(), s, vs); err != nil {
				t.Fatal(err)
			}
			var lost atomic.Int64
			proxy.Set(func(c mongotest.Command) mongotest.Answer {
				switch {
				case c.Name == "getMore":
					lost.Add(1)
					return cursorGone()
				case c.Name == "aggregate" && c.Collection() == "things":
					return cutShort(few)
				}
				return mongotest.Pass()
			})
			var told, want []int64
			for v := range int64(versions) {
				want = append(want, v+1)
			}
			if backward {
				slices.Reverse(want)
			}
			for e, err := range s.Log(t.Context(), &driver.LogQuery{Backward: backward}) {
				if err != nil {
					t.Fatal(err)
				}
				if told = append(told, e.Number); len(told) != few-2 {
					continue
				}
				for i := range commits {
					if _, err := commitAgain(t.Context(), s, write("a", fmt.Sprint("w", i), int64(versions+i))); err != nil {
						t.Fatal(err)
					}
				}
			}
			if !slices.Equal(told, want) || lost.Load() == 0 {
				t.Errorf("%d versions were told, %v; %d cursors were lost", len(told), told, lost.Load())
			}
		})
	}
}
