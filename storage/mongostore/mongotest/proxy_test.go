package mongotest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// through connects to the server through a proxy, to a database of its own.
func through(t *testing.T) (*Proxy, *mongo.Database) {
	t.Helper()
	p, uri, name := NewServer(t).Behind(t)
	client, err := mongo.Connect(options.Client().ApplyURI(uri + "&retryReads=false&retryWrites=false").SetServerSelectionTimeout(startTimeout))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Disconnect(context.WithoutCancel(t.Context())) })
	return p, client.Database(name)
}

func run(ctx context.Context, db *mongo.Database, name string) (bson.Raw, error) {
	return db.RunCommand(ctx, bson.D{{Key: name, Value: 1}}).Raw()
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
	p, db := through(t)
	for _, c := range []struct {
		name    string
		answer  Answer
		reaches int64
	}{
		{"before", CutBefore(), 0},
		{"after", CutAfter(), 1},
	} {
		p.Set(func(command Command) Answer {
			if command.Name == "insert" {
				return c.answer
			}
			return Pass()
		})
		if _, err := db.Collection(c.name).InsertOne(t.Context(), bson.D{}); !mongo.IsNetworkError(err) {
			t.Errorf("%s: %v", c.name, err)
		}
		p.Set(nil)
		if n, err := db.Collection(c.name).CountDocuments(t.Context(), bson.D{}); err != nil || n != c.reaches {
			t.Errorf("cut %s the command: %d documents (%v), want %d", c.name, n, err, c.reaches)
		}
	}
}

// What a server has not is named, with what it answered.
func TestNeeds(t *testing.T) {
	var said string
	t.Run("skipped", func(t *testing.T) {
		defer func() {
			if !t.Skipped() {
				t.Error("it was not skipped")
			}
		}()
		Needs(skipRecorder{t, &said}, "wings", func() error { return errors.New("no such limb") })
	})
	if !strings.Contains(said, "needs wings") || !strings.Contains(said, "no such limb") {
		t.Errorf("it says %q", said)
	}
	Needs(t, "nothing", func() error { return nil })
}

// skipRecorder is a test that notes why it is skipped.
type skipRecorder struct {
	testing.TB
	said *string
}

func (s skipRecorder) Skipf(format string, args ...any) {
	*s.said = fmt.Sprintf(format, args...)
	s.SkipNow()
}

func listens(t *testing.T, addr string) bool {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err == nil {
		_ = c.Close()
	}
	return err == nil
}
