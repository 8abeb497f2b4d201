package mongostore_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/drivertest"
	"github.com/asof/asof/storage/mongostore"
	"github.com/asof/asof/storage/mongostore/mongotest"
)

// outages writes and reads with 16 clients while a server is lost again and
// again, and holds what they were told against what is there in the end: no
// acknowledged write is lost, no number is skipped or there twice, every
// document is a register, and what was read at an instant is read again.
func outages(t *testing.T, uri string, times int, lose func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
	defer cancel()
	s, err := mongostore.Open(ctx, uri, mongostore.Options{Collections: []driver.Collection{{Name: "things"}}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}()
	const clients, callsOfEach = 16, 20
	lost := make(chan struct{})
	go func() {
		defer close(lost)
		for i := range times {
			if err := lose(ctx); err != nil {
				t.Errorf("outage %d: %v", i+1, err)
				return
			}
		}
	}()
	var total drivertest.Counts
	for round := 0; ; round++ {
		var over bool
		select {
		case <-lost:
			over = true // one more round, after the last outage
		default:
		}
		history := drivertest.NewHistory()
		keys := make([]string, 4)
		for i := range keys {
			keys[i] = fmt.Sprintf("round %d, document %d", round, i)
		}
		(&drivertest.Clients{
			Engine: s, Collection: "things", History: history, Keys: keys, Count: clients, Calls: callsOfEach, Seed: uint64(round),
			Name: fmt.Sprintf("r%d.", round), Timeout: 20 * time.Second, Faults: true,
			Report: func(violation string) { t.Error(violation) },
		}).Run(ctx)
		if err := verify(ctx, s, history, func(violation string) { t.Errorf("round %d: %s", round, violation) }); err != nil {
			t.Fatal(err)
		}
		total = total.Add(history.Counts())
		if over || t.Failed() {
			break
		}
	}
	<-lost
	if err := s.Check(ctx, func(problem string) { t.Errorf("Check: %s", problem) }); err != nil {
		t.Error(err)
	}
	t.Logf("%d outages: %s", times, total)
	if total.Made == 0 || total.Reads == 0 {
		t.Error("nothing was written, or read")
	}
}

// verify checks a history, again where the server is lost on the way.
func verify(ctx context.Context, s driver.Engine, h *drivertest.History, report func(string)) error {
	for {
		var violations []string
		err := h.Verify(ctx, s, "things", func(violation string) { violations = append(violations, violation) })
		if driver.CodeOf(err) == driver.CodeUnavailable && ctx.Err() == nil {
			continue
		}
		for _, violation := range violations {
			report(violation)
		}
		return err
	}
}

// scaled is a number, times ASOF_DRIVERTEST_SCALE.
func scaled(t *testing.T, n int) int {
	t.Helper()
	v := os.Getenv("ASOF_DRIVERTEST_SCALE")
	if v == "" {
		return n
	}
	scale, err := strconv.Atoi(v)
	if err != nil {
		t.Fatalf("ASOF_DRIVERTEST_SCALE=%q: %v", v, err)
	}
	return n * scale
}

// The server is cut off while others write, and comes back. Nothing that was acknowledged is
// lost, and nothing is done twice.
func TestServerIsCutOff(t *testing.T) {
	proxy, uri := newServer(t).behind(t)
	var mu sync.Mutex
	commands := 0
	arrived := make(chan struct{}, 1)
	proxy.Set(func(mongotest.Command) mongotest.Answer {
		mu.Lock()
		defer mu.Unlock()
		if commands++; commands%200 == 0 {
			select {
			case arrived <- struct{}{}:
			default:
			}
		}
		return mongotest.Pass()
	})
	outages(t, uri+"&heartbeatFrequencyMS=500", scaled(t, 5), func(ctx context.Context) error {
		select { // in the middle of the traffic
		case <-arrived:
		case <-ctx.Done():
			return ctx.Err()
		}
		proxy.Down()
		return proxy.Up(ctx)
	})
}

// Writes wait for a majority and its journal, reads see what a majority has,
// whatever the URI says; and to a replica set, writes are such that the server
// recognises one that it gets twice.
func TestConcerns(t *testing.T) {
	proxy, uri := newServer(t).behind(t)
	var mu sync.Mutex
	seen := make(map[string]int)
	proxy.Set(func(c mongotest.Command) mongotest.Answer {
		if c.Hello() {
			return mongotest.Rewrite(func(reply bson.Raw) bson.D {
				return append(member(reply, true), bson.E{Key: "logicalSessionTimeoutMinutes", Value: 30})
			})
		}
		mu.Lock()
		defer mu.Unlock()
		seen[c.Name]++
		switch c.Name {
		case "find", "aggregate":
			if level, _ := c.Body.Lookup("readConcern", "level").StringValueOK(); !slices.Contains([]string{"majority", "snapshot", "linearizable"}, level) {
				t.Errorf("a read that may be rolled back: %v", c.Body)
			}
		case "insert", "update", "findAndModify":
			w, _ := c.Body.Lookup("writeConcern", "w").StringValueOK()
			j, _ := c.Body.Lookup("writeConcern", "j").BooleanOK()
			if w != "majority" || !j {
				t.Errorf("a write that may be lost: %v", c.Body)
			}
			if _, err := c.Body.LookupErr("txnNumber"); err == nil {
				t.Errorf("a write that the driver repeats: %v", c.Body)
			}
		}
		return mongotest.Pass()
	})
	s, err := mongostore.Open(t.Context(), uri+"&w=0&readConcernLevel=local&readPreference=secondary", mongostore.Options{
		Collections: []driver.Collection{{Name: "things"}}, Bounds: map[string]mongostore.Bounds{"things": {Versions: 2}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range int64(6) {
		_, err := driver.CommitOne(t.Context(), s, &driver.Write{
			ID: fmt.Sprint("write ", i), Collection: "things", Key: "a", Expected: i, Op: driver.OpUpdate, Data: []byte(`{}`),
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, call := range calls {
		if err := call.call(t.Context(), s, "of "+call.name); err != nil {
			t.Errorf("%s: %v", call.name, err)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if seen["find"] == 0 || seen["aggregate"] == 0 || seen["insert"] == 0 || seen["update"] == 0 {
		t.Errorf("these commands were seen: %v", seen)
	}
}
