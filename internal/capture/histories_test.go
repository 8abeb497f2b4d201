package capture_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/asof/asof/internal/capture"
	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/mongostore/mongotest"
)

func instant(at bson.Timestamp) driver.Instant {
	return driver.InstantOf(time.Unix(int64(at.T), 0)) + driver.Instant(at.I)
}

var large = strings.Repeat("x", 50<<10)

// text is a document without its _id, as MongoDB writes JSON; "": deleted.
func text(t testing.TB, d bson.D) string {
	t.Helper()
	if d == nil {
		return ""
	}
	raw, err := bson.MarshalExtJSON(d[1:], false, false)
	if err != nil {
		t.Fatal(err)
	}
	return sorted(t, raw)
}

func sorted(t testing.TB, raw []byte) string {
	t.Helper()
	if raw == nil {
		return ""
	}
	var value any
	if err := json.Unmarshal(raw, &value); err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(string(raw), large, "LARGE")
}

// compare holds what the store has against what the source had: from the first version of a document on, each
// state that it had, at its time; and what is not in the store was gone before it could be found.
func compare(t *testing.T, store *storage.Store, s *mongotest.Streams) (versions int) {
	t.Helper()
	captured := lines(t, store)
	known := 0
	for _, states := range s.States() {
		key := fmt.Sprint(states[0].ID)
		if id, ok := states[0].ID.(bson.ObjectID); ok {
			key = id.Hex()
		}
		vs := captured[key]
		if len(vs) == 0 {
			if last := states[len(states)-1].Document; last != nil {
				t.Errorf("%q is not in the store, but in the source: %.100s", key, text(t, last))
			}
			continue
		}
		known++
		versions += len(vs)
		first := vs[0].RecordedAt
		var want, got []string
		line := func(at driver.Instant, text string) string { return at.String() + " " + text }
		before := ""
		for i, state := range states {
			at := instant(state.At)
			if i+1 < len(states) && states[i+1].At == state.At {
				continue // of one transaction
			}
			now := text(t, state.Document)
			if at <= first {
				before = now
				want = []string{line(first, now)}
			} else if now != before {
				want = append(want, line(at, now))
				before = now
			}
		}
		for _, v := range vs {
			got = append(got, line(v.RecordedAt, sorted(t, v.Data)))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("the history of %q (-want +got):\n%s", key, diff)
		}
	}
	if known != len(captured) {
		t.Errorf("the store has %d documents, of which the source had %d", len(captured), known)
	}
	if err := store.Engine().Check(t.Context(), func(problem string) { t.Error(problem) }); err != nil {
		t.Error(err)
	}
	return versions
}

// randomDocument returns another state of a document.
func randomDocument(r *rand.Rand, before bson.D) bson.D {
	var value func(depth int, old any) any
	value = func(depth int, old any) any {
		list, _ := old.(bson.A)
		switch n := r.IntN(8); {
		case n < 2 && depth < 3:
			d, _ := old.(bson.D)
			d = slices.Clone(d)
			name := string(rune('a' + r.IntN(4)))
			if i := slices.IndexFunc(d, func(e bson.E) bool { return e.Key == name }); i < 0 {
				return append(d, bson.E{Key: name, Value: value(depth+1, nil)})
			} else if r.IntN(3) == 0 {
				return slices.Delete(d, i, i+1)
			} else if i >= 0 {
				d[i].Value = value(depth+1, d[i].Value)
			}
			return d
		case n == 2 && len(list) > 0:
			return slices.Clone(list[:len(list)-1-r.IntN(len(list))])
		case n < 5 && depth < 3:
			list = slices.Clone(list)
			if i := r.IntN(len(list) + 1); i < len(list) {
				list[i] = value(depth+1, list[i])
				return list
			}
			return append(list, value(depth+1, nil))
		case n == 5:
			return nil
		case n == 6:
			return r.IntN(2) == 0
		}
		return int32(r.IntN(100))
	}
	d := bson.D{{Key: "state", Value: fmt.Sprint("s", r.IntN(5))}}
	for _, name := range []string{"x", "1", "z"} {
		i := slices.IndexFunc(before, func(e bson.E) bool { return e.Key == name })
		switch n := r.IntN(4); {
		case i >= 0 && n == 0:
			d = append(d, before[i])
		case i >= 0 && n < 3:
			d = append(d, bson.E{Key: name, Value: value(0, before[i].Value)})
		case n == 3:
			d = append(d, bson.E{Key: name, Value: value(0, nil)})
		}
	}
	return d
}

// Programs write while the collection is captured, and the capture ends and begins again anywhere.
func TestHistories(t *testing.T) {
	for name, open := range map[string]func(testing.TB) *storage.Store{"sqlite": onSQLite, "mongodb": onMongo} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, s := open(t), mongotest.NewStreams(t)
			const seed = 11
			last := map[any]bson.D{}
			write := func(r *rand.Rand, alone bool) { // or in a transaction
				n := r.IntN(40)
				id := []any{int32(n), fmt.Sprint("s", n), bson.ObjectID{0: 1, 11: byte(n)}}[n%3]
				switch before := last[id]; {
				case before != nil && r.IntN(8) == 0:
					delete(last, id)
					s.Delete(id)
				case before != nil && r.IntN(8) == 0 && alone:
					last[id] = randomDocument(r, before)
					s.Move(id, last[id])
				default:
					last[id] = randomDocument(r, before)
					s.Put(id, last[id], r.IntN(4) > 0)
				}
			}
			r := rand.New(rand.NewPCG(seed, 1))
			many := 100 // more than are read at once
			if name == "mongodb" {
				many = 20
			}
			for i := range many {
				s.Put(fmt.Sprintf("large%d", i), bson.D{{Key: "state", Value: large}}, false)
				write(r, true)
			}
			steps := rand.New(rand.NewPCG(seed, 2))
			for range 5 {
				written := make(chan struct{})
				go func() {
					defer close(written)
					for i := range 100 {
						if i%10 == 0 {
							s.Transaction(func() { write(r, false); write(r, false); write(r, false) })
						}
						write(r, true)
					}
				}()
				c, err := begin(t, store, s, capture.Options{}, "")
				for n := 1 + steps.IntN(3); n > 0 && err == nil; n-- {
					_, _, err = c.Step(t.Context())
				}
				if err != nil {
					t.Fatal(err)
				}
				<-written
			}
			mustFollow(t, store, s, capture.Options{}, "")
			versions := compare(t, store, s)
			mustFollow(t, store, s, capture.Options{}, "")
			if again := compare(t, store, s); again != versions || versions < 250 {
				t.Errorf("%d versions, and then %d", versions, again)
			}
		})
	}
}
