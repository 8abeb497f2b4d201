package mongostore

import (
	"context"
	"testing"
	"time"

	"github.com/asof/asof/storage/mongostore/mongotest"
)

// beating waits until a server has moved the clock document some times more. It
// reports false where others take the server for dead meanwhile.
func beating(ctx context.Context, t *testing.T, s *Store, id string, times int64) bool {
	t.Helper()
	from := int64(0)
	for {
		server, there := stateOf(ctx, t, s).Servers[id]
		switch {
		case !there:
			return false
		case from == 0:
			from = server.Beat
		case server.Beat >= from+times:
			return true
		}
	}
}

// goesOnBeating lets a command of one of two servers hang, which must go on beating
// all the same. Where the machine is too slow for that, it is tried again.
func goesOnBeating(t *testing.T, o Options, times int64, counts func(c mongotest.Command, database string) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	const tries = 10
	for range tries {
		proxy, behind, beside := pair(ctx, t, o)
		database := behind.db.Name()
		reached, release := hang(proxy, func(c mongotest.Command) bool { return counts(c, database) }, nothing)
		id := lifeOf(behind)
		await(ctx, t, reached)
		survived := beating(ctx, t, beside, id, times)
		release()
		if survived {
			return
		}
	}
	t.Errorf("of %d times, the server was taken for dead each time", tries)
}

// An exchange that gets no answer is repeated before others take the server for dead.
func TestExchangeHangs(t *testing.T) {
	t.Parallel()
	goesOnBeating(t, Options{beat: 200 * time.Millisecond}, 8, func(c mongotest.Command, _ string) bool { return c.Name == "findAndModify" })
}

// A comparison of the clocks that gets no answer holds up nothing.
func TestComparisonHangs(t *testing.T) {
	t.Parallel()
	goesOnBeating(t, Options{beat: 100 * time.Millisecond, MaxSkew: defaultSkew}, 10, func(c mongotest.Command, database string) bool {
		name, _ := c.Body.Lookup("$db").StringValueOK()
		return c.Hello() && name == database
	})
}
