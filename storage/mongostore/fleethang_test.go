package mongostore

import (
	"context"
	"testing"
	"time"

	"github.com/asof/asof/storage/mongostore/mongotest"
)

// beating waits until a server has moved the clock document some times more. It
// fails where others take the server for dead meanwhile.
func beating(ctx context.Context, t *testing.T, s *Store, id string, times int64) {
	t.Helper()
	from := int64(0)
	for {
		server, there := stateOf(ctx, t, s).Servers[id]
		switch {
		case !there:
			t.Fatal("the server was taken for dead")
		case from == 0:
			from = server.Beat
		case server.Beat >= from+times:
			return
		}
	}
}

// An exchange that gets no answer is repeated before others take the server for dead.
func TestExchangeHangs(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	proxy, behind, beside := pair(ctx, t, Options{beat: 200 * time.Millisecond})
	id := lifeOf(behind)
	reached, release := hang(proxy, func(c mongotest.Command) bool { return c.Name == "findAndModify" }, nothing)
	defer release()
	<-reached
	beating(ctx, t, beside, id, 8)
}

// A comparison of the clocks that gets no answer holds up nothing.
func TestComparisonHangs(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	proxy, behind, beside := pair(ctx, t, Options{beat: 100 * time.Millisecond, MaxSkew: defaultSkew})
	database := behind.db.Name()
	reached, release := hang(proxy, func(c mongotest.Command) bool {
		name, _ := c.Body.Lookup("$db").StringValueOK()
		return c.Hello() && name == database
	}, nothing)
	defer release()
	<-reached
	beating(ctx, t, beside, lifeOf(behind), 10)
}
