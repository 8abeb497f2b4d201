package mongostore

import (
	"context"
	"fmt"
	"net/url"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/mongostore/mongotest"
)

// Two servers supersede a version that is too large to stay in the document, so that
// both move it to the overflow before they commit. It ended when the one that
// succeeded says, though the other one had a later time, whichever was later at what.
func TestTwoServersMoveOneVersion(t *testing.T) {
	t.Parallel()
	for name, movesLast := range map[string]bool{"the winner moves it last": false, "the loser moves it last": true} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), hangs)
			defer cancel()
			const large = 4000 // bytes of a version, more than half of what is to be in one document
			o := Options{timing: unending, Bounds: map[string]Bounds{"things": {Bytes: large / 2, together: large}}}
			first, winner, beside := pair(ctx, t, o)
			direct, err := url.Parse(mongotest.URI(t))
			if err != nil {
				t.Fatal(err)
			}
			second := mongotest.NewProxy(t, direct.Host)
			loser := newServerOf(t, fmt.Sprintf("mongodb://%s/%s?directConnection=true", second.Addr(), beside.db.Name()), o)
			text := func(id string, expected int64) *driver.Write {
				w := write("a", id, expected)
				w.Data = fmt.Appendf(nil, `{"text":"%0*d"}`, large/2, 0)
				return w
			}
			if _, err := commitAgain(ctx, winner, text("1", 0)); err != nil {
				t.Fatal(err)
			}
			reached := func(c chan struct{}) {
				select {
				case <-c:
				default:
					close(c)
				}
			}
			wait := func(c chan struct{}) {
				select {
				case <-c:
				case <-ctx.Done():
				}
			}
			moving, moved, committed := make(chan struct{}), make(chan struct{}), make(chan struct{})
			overflow := func(c mongotest.Command) bool {
				return (c.Name == "insert" || c.Name == "update") && c.Collection() == "things.history"
			}
			commits := func(c mongotest.Command) bool { return c.Name == "update" && c.Collection() == "things" }
			// The winner has its time first, and the loser a later one, while the
			// version is still current.
			first.Set(func(c mongotest.Command) mongotest.Answer {
				if overflow(c) {
					reached(moving)
				}
				if overflow(c) && !movesLast || commits(c) && movesLast {
					wait(moved)
				}
				return mongotest.Pass()
			})
			second.Set(func(c mongotest.Command) mongotest.Answer {
				if overflow(c) && movesLast || commits(c) {
					reached(moved)
					wait(committed)
				}
				return mongotest.Pass()
			})
			type result struct {
				v   *driver.Version
				err error
			}
			won, lost := make(chan result, 1), make(chan result, 1)
			go func() {
				v, err := driver.CommitOne(ctx, winner, text("2", 1))
				reached(committed)
				won <- result{v, err}
			}()
			wait(moving)
			go func() {
				v, err := driver.CommitOne(ctx, loser, text("3", 1))
				lost <- result{v, err}
			}()
			v, other := <-won, <-lost
			if v.err != nil || driver.CodeOf(other.err) != driver.CodeConflict {
				t.Fatalf("%v, and %v", v.err, other.err)
			}
			var run struct {
				To driver.Instant `bson:"to"`
			}
			if err := winner.collections["things"].history.FindOne(ctx, bson.D{{Key: "k", Value: "a"}}).Decode(&run); err != nil {
				t.Fatal(err)
			}
			if run.To != v.v.RecordedAt {
				t.Errorf("the version before ended at %d, and the next one began at %d", run.To, v.v.RecordedAt)
			}
			checkAll(t, winner)
		})
	}
}
