package mongotest

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// through connects to a fake through a proxy.
func through(t *testing.T) (*Proxy, *mongo.Client) {
	t.Helper()
	s := fakeSet(t, 1)
	p := NewProxy(t, s.Nodes()[0].Addr())
	client, err := mongo.Connect(options.Client().ApplyURI("mongodb://" + p.Addr() + "/?directConnection=true&retryReads=false").SetServerSelectionTimeout(startTimeout))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Disconnect(context.WithoutCancel(t.Context())) })
	return p, client
}

func run(ctx context.Context, client *mongo.Client, name string) (bson.Raw, error) {
	return client.Database("db").RunCommand(ctx, bson.D{{Key: name, Value: 1}}).Raw()
}

func TestProxy(t *testing.T) {
	p, client := through(t)
	ctx := t.Context()
	only := func(name string, a Answer) func(Command) Answer {
		return func(c Command) Answer {
			if c.Name == name {
				return a
			}
			return Pass()
		}
	}
	if _, err := run(ctx, client, "ping"); err != nil {
		t.Fatalf("what passes: %v", err)
	}
	p.Set(only("ping", Reply(bson.D{{Key: "ok", Value: 1}, {Key: "said", Value: "by the proxy"}})))
	if reply, err := run(ctx, client, "ping"); err != nil || reply.Lookup("said").StringValue() != "by the proxy" {
		t.Errorf("an answer of the proxy: %v, %v", reply, err)
	}
	p.Set(only("ping", Reply(Failure(13, "Unauthorized", "not allowed", "SomeLabel"))))
	var refused mongo.CommandError
	if _, err := run(ctx, client, "ping"); !errors.As(err, &refused) || refused.Code != 13 || refused.Name != "Unauthorized" || !refused.HasErrorLabel("SomeLabel") {
		t.Errorf("a failure: %v", err)
	}
	p.Set(only("ping", Rewrite(func(reply bson.Raw) bson.D {
		return bson.D{{Key: "ok", Value: reply.Lookup("ok").Double()}, {Key: "changed", Value: true}}
	})))
	if reply, err := run(ctx, client, "ping"); err != nil || !reply.Lookup("changed").Boolean() {
		t.Errorf("a changed answer: %v, %v", reply, err)
	}
	for name, a := range map[string]Answer{"before": CutBefore(), "after": CutAfter()} {
		p.Set(only("ping", a))
		if _, err := run(ctx, client, "ping"); !mongo.IsNetworkError(err) {
			t.Errorf("cut %s: %v", name, err)
		}
	}
	p.Set(only("ping", Stall()))
	short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	if _, err := run(short, client, "ping"); !mongo.IsTimeout(err) {
		t.Errorf("no answer: %v", err)
	}
	p.Set(nil)
	p.Down()
	if listens(t, p.Addr()) {
		t.Error("the proxy is down and listens")
	}
	if err := p.Up(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := run(ctx, client, "ping"); err != nil {
		t.Errorf("up again: %v", err)
	}
}

// Whether a server got what was cut is what the two cuts differ in.
func TestProxyCuts(t *testing.T) {
	p, client := through(t)
	for _, c := range []struct {
		name    string
		answer  Answer
		reaches bool
	}{
		{"before", CutBefore(), false},
		{"after", CutAfter(), true},
	} {
		var asked atomic.Bool // also by the driver itself, at any time
		p.Set(func(command Command) Answer {
			if command.Name == "replSetInitiate" {
				return c.answer
			}
			return Pass()
		})
		err := client.Database("admin").RunCommand(t.Context(), bson.D{{Key: "replSetInitiate", Value: bson.D{
			{Key: "_id", Value: setName}, {Key: "members", Value: bson.A{bson.D{{Key: "_id", Value: 0}, {Key: "host", Value: c.name + ":1"}}}},
		}}}).Err()
		if !mongo.IsNetworkError(err) {
			t.Errorf("%s: %v", c.name, err)
		}
		p.Set(func(command Command) Answer {
			if command.Hello() {
				return Rewrite(func(reply bson.Raw) bson.D {
					asked.Store(true)
					var d bson.D
					if err := bson.Unmarshal(reply, &d); err != nil {
						t.Error(err)
					}
					return d
				})
			}
			return Pass()
		})
		var h hello
		if err := client.Database("admin").RunCommand(t.Context(), bson.D{{Key: "hello", Value: 1}}).Decode(&h); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(h.Hosts, ","); !asked.Load() || (got == c.name+":1") != c.reaches {
			t.Errorf("cut %s the command: the server has the members %s", c.name, got)
		}
	}
}

// What a server cannot do is named, with what it answered.
func TestRequires(t *testing.T) {
	p, client := through(t)
	for i, probe := range probes {
		c := Capability(1 << i)
		if c.String() != probe.name {
			t.Errorf("capability %d is called %q, want %q", i, c, probe.name)
		}
		err := Missing(t.Context(), client, c)
		if c == CapReplicaSet {
			if err != nil {
				t.Errorf("the fake is a replica set: %v", err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), "needs "+probe.name) || !strings.Contains(err.Error(), "no such command") {
			t.Errorf("%s: %v", c, err)
		}
	}
	if got := (CapExplain | CapAuth).String(); got != "explain, access control" {
		t.Errorf("two capabilities are called %q", got)
	}
	if err := Missing(t.Context(), client, 0); err != nil {
		t.Errorf("nothing is missing: %v", err)
	}
	// A server that does it all.
	p.Set(func(c Command) Answer {
		switch c.Name {
		case "insert", "drop":
			return Reply(bson.D{{Key: "ok", Value: 1}, {Key: "n", Value: 1}})
		case "explain":
			return Reply(bson.D{{Key: "ok", Value: 1}, {Key: "queryPlanner", Value: bson.D{{Key: "winningPlan", Value: bson.D{{Key: "stage", Value: "IDHACK"}}}}}})
		case "connectionStatus":
			return Reply(bson.D{{Key: "ok", Value: 1}, {Key: "authInfo", Value: bson.D{{Key: "authenticatedUsers", Value: bson.A{bson.D{{Key: "user", Value: "ann"}}}}}}})
		}
		return Pass()
	})
	if err := Missing(t.Context(), client, CapExplain|CapAuth|CapReplicaSet); err != nil {
		t.Errorf("a server that has it: %v", err)
	}
	var said string
	t.Run("skipped", func(t *testing.T) {
		defer func() {
			if !t.Skipped() {
				t.Error("it was not skipped")
			}
		}()
		Requires(skipRecorder{t, &said}, client, CapTransactions)
	})
	if !strings.Contains(said, EnvMongod) {
		t.Errorf("it says %q", said)
	}
}
