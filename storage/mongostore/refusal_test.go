package mongostore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/mongostore"
	"github.com/asof/asof/storage/mongostore/mongotest"
)

// behind opens a store by way of a proxy.
func openBehind(t *testing.T) (*mongotest.Proxy, driver.Engine) {
	t.Helper()
	proxy, uri := newServer(t).behind(t)
	s, err := mongostore.Open(t.Context(), uri, mongostore.Options{Collections: []driver.Collection{{Name: "things"}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		proxy.Set(nil)
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return proxy, s
}

// calls are what a store can be asked for, each of a document of its own name.
var calls = []struct {
	name string
	// writes says that it changes something.
	writes bool
	call   func(ctx context.Context, s driver.Engine, key string) error
}{
	{"Get", false, func(ctx context.Context, s driver.Engine, key string) error {
		_, err := s.Get(ctx, "things", []driver.Ref{{Key: key, At: driver.Forever}}, nil)
		return err
	}},
	{"Query", false, func(ctx context.Context, s driver.Engine, _ string) error {
		_, err := s.Query(ctx, &driver.Query{Collection: "things", At: driver.Forever})
		return err
	}},
	{"Count", false, func(ctx context.Context, s driver.Engine, _ string) error {
		_, err := s.Count(ctx, &driver.Query{Collection: "things", At: driver.Forever})
		return err
	}},
	{"Log", false, func(ctx context.Context, s driver.Engine, _ string) error {
		for _, err := range s.Log(ctx, &driver.LogQuery{}) {
			if err != nil {
				return err
			}
		}
		return nil
	}},
	{"Log of one", false, func(ctx context.Context, s driver.Engine, key string) error {
		for _, err := range s.Log(ctx, &driver.LogQuery{Collections: []string{"things"}, Keys: []string{key}}) {
			if err != nil {
				return err
			}
		}
		return nil
	}},
	{"Commit", true, func(ctx context.Context, s driver.Engine, key string) error {
		v, err := driver.CommitOne(ctx, s, thing(key))
		if err == nil && v.Number != 1 {
			return fmt.Errorf("version %d was made", v.Number)
		}
		return err
	}},
	{"Load", true, func(ctx context.Context, s driver.Engine, key string) error {
		_, err := s.Load(ctx, []driver.Version{{Collection: "things", Key: key + " loaded", RecordedAt: 1_000_000, Op: driver.OpImport, Data: []byte(`{}`)}})
		return err
	}},
	{"Stats", false, func(ctx context.Context, s driver.Engine, _ string) error {
		_, err := s.Stats(ctx)
		return err
	}},
	{"Ping", false, func(ctx context.Context, s driver.Engine, _ string) error { return s.Ping(ctx) }},
	{"Check", false, func(ctx context.Context, s driver.Engine, _ string) error {
		return s.Check(ctx, func(string) {})
	}},
}

// hangs bounds what would hang otherwise. Nothing takes nearly as long, on any machine.
const hangs = 5 * time.Minute

// withinSome is within, with a short time first, and more as long as the error is not
// as wanted: on a slow machine the time may be over before the server has answered.
func withinSome(t *testing.T, first time.Duration, what string, wanted func(error) bool, call func(ctx context.Context) error) error {
	t.Helper()
	for timeout := first; ; timeout *= 2 {
		if err := within(t, timeout, what, call); wanted(err) || timeout > time.Minute {
			return err
		}
	}
}

// says is the condition that an error has a code and contains a text.
func says(code driver.Code, text string) func(error) bool {
	return func(err error) bool { return driver.CodeOf(err) == code && strings.Contains(fmt.Sprint(err), text) }
}

// thing is the first write of a document.
func thing(key string) *driver.Write {
	return &driver.Write{ID: "the write of " + key, Collection: "things", Key: key, Op: driver.OpCreate, Data: []byte(`{"n":1}`)}
}

// within makes a call with a deadline, which it must keep to.
func within(t *testing.T, timeout time.Duration, what string, call func(ctx context.Context) error) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- call(ctx) }()
	const grace = hangs // far more than any machine needs
	select {
	case err := <-ended:
		return err
	case <-time.After(timeout + grace):
		t.Fatalf("%s hangs, %v after its deadline", what, grace)
		return nil
	}
}

// What a server refuses has a code and says what to do, whatever was asked of
// it; when it no longer does, everything goes on, and no write is done twice.
func TestServerRefuses(t *testing.T) {
	const (
		retryable = "RetryableWriteError"
		unknown   = "before the outcome of the write was known"
	)
	for _, c := range []struct {
		name   string
		answer mongotest.Answer
		code   driver.Code
		text   string
		// patient says that it is tried again until the deadline.
		patient bool
		// ofCommit is what is said of a write, where that is something else.
		ofCommit string
	}{
		{"no rights", mongotest.Reply(mongotest.Failure(13, "Unauthorized", "not authorized on db to execute command")), driver.CodeUnavailable, "readWrite", false, ""},
		{"nobody", mongotest.Reply(mongotest.Failure(13, "Unauthorized", "Command requires authentication")), driver.CodeUnavailable, "add a user and a password", false, ""},
		{"a secondary", mongotest.Reply(mongotest.Failure(10107, "NotWritablePrimary", "not primary", retryable, "NoWritesPerformed")), driver.CodeUnavailable, "", true, "takes no writes"},
		{"no primary", mongotest.Reply(mongotest.Failure(13435, "NotPrimaryNoSecondaryOk", "not primary and secondaryOk=false", "NoWritesPerformed")), driver.CodeUnavailable, "", true, "takes no writes"},
		{"shutting down", mongotest.Reply(mongotest.Failure(11600, "InterruptedAtShutdown", "interrupted at shutdown", retryable)), driver.CodeUnavailable, "", true, unknown},
		{"too slow", mongotest.Reply(mongotest.Failure(50, "MaxTimeMSExpired", "operation exceeded time limit")), driver.CodeUnavailable, "", true, unknown},
		{"a full disk", mongotest.Reply(mongotest.Failure(14031, "OutOfDiskSpace", "available disk space of 1 bytes is less than required minimum")), driver.CodeUnavailable, "disk of the server is full", false, ""},
		{"a lost cursor", mongotest.Reply(mongotest.Failure(43, "CursorNotFound", "cursor id 1 not found")), driver.CodeUnavailable, "try again", false, ""},
		{"something new", mongotest.Reply(mongotest.Failure(99999, "SomethingNew", "as yet unknown")), driver.CodeInternal, "as yet unknown", false, ""},
		{"cut before it", mongotest.CutBefore(), driver.CodeUnavailable, "", true, unknown},
		{"cut after it", mongotest.CutAfter(), driver.CodeUnavailable, "", true, unknown},
		{"no answer", mongotest.Stall(), driver.CodeUnavailable, "", true, unknown},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			proxy, s := openBehind(t)
			if err := calls[5].call(t.Context(), s, "seed"); err != nil {
				t.Fatal(err)
			}
			for _, call := range calls {
				proxy.Set(func(command mongotest.Command) mongotest.Answer {
					switch command.Name {
					case "find", "aggregate", "insert", "update", "ping", "dbStats", "getMore":
						return c.answer
					}
					return mongotest.Pass()
				})
				key := "of " + call.name
				timeout := time.Minute // it refuses at once
				if c.patient {
					timeout = 300 * time.Millisecond
				}
				text := c.text
				if call.name == "Commit" && c.ofCommit != "" {
					text = c.ofCommit
				}
				wanted := says(c.code, text)
				err := withinSome(t, timeout, call.name, wanted, func(ctx context.Context) error {
					err := call.call(ctx, s, key)
					if !c.patient && ctx.Err() != nil {
						return errors.New("not before the time was up: " + fmt.Sprint(err)) // without its code
					}
					return err
				})
				if !wanted(err) {
					t.Errorf("%s: %v (%q), want %q with code %q", call.name, err, driver.CodeOf(err), text, c.code)
				}
				proxy.Set(nil)
				if err := whenWell(t, func(ctx context.Context) error { return call.call(ctx, s, key) }); err != nil {
					t.Errorf("%s, when the server is well again: %v", call.name, err)
				}
			}
			sound := func(ctx context.Context) error {
				return s.Check(ctx, func(problem string) { t.Errorf("Check: %s", problem) })
			}
			if err := whenWell(t, sound); err != nil {
				t.Error(err)
			}
		})
	}
}

// whenWell makes a call until it is answered, for at most a minute: connections that were
// lost before may be found out to be lost, and given up with all others, by any call.
func whenWell(t *testing.T, call func(ctx context.Context) error) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		err := call(ctx)
		if driver.CodeOf(err) != driver.CodeUnavailable || ctx.Err() != nil {
			return err
		}
	}
}

// A server that is lost on the way ends what it was asked, and is used again
// when it is back.
func TestServerGone(t *testing.T) {
	proxy, s := openBehind(t)
	if _, err := driver.CommitOne(t.Context(), s, thing("before")); err != nil {
		t.Fatal(err)
	}
	proxy.Down()
	for _, call := range calls {
		err := within(t, 300*time.Millisecond, call.name, func(ctx context.Context) error { return call.call(ctx, s, "of "+call.name) })
		if driver.CodeOf(err) != driver.CodeUnavailable {
			t.Errorf("%s: %v (%q)", call.name, err, driver.CodeOf(err))
		}
	}
	if err := proxy.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, call := range calls {
		if err := whenWell(t, func(ctx context.Context) error { return call.call(ctx, s, "of "+call.name) }); err != nil {
			t.Errorf("%s, when the server is back: %v", call.name, err)
		}
	}
}

// A long answer whose rest never comes ends with its deadline: so does giving
// up the rest, which is a question to the server as well.
func TestStalledRest(t *testing.T) {
	proxy, s := openBehind(t)
	if _, err := driver.CommitOne(t.Context(), s, thing("k1")); err != nil {
		t.Fatal(err)
	}
	for _, stalled := range [][]string{{"getMore"}, {"getMore", "killCursors"}} {
		for _, call := range calls {
			if call.name != "Query" && call.name != "Check" {
				continue
			}
			proxy.Set(func(command mongotest.Command) mongotest.Answer {
				switch {
				case command.Name == "find" && command.Collection() == "things":
					return mongotest.Rewrite(unfinished)
				case slices.Contains(stalled, command.Name):
					return mongotest.Stall()
				}
				return mongotest.Pass()
			})
			err := within(t, 500*time.Millisecond, fmt.Sprint(call.name, " with stalled ", stalled), func(ctx context.Context) error {
				return call.call(ctx, s, "k1")
			})
			if driver.CodeOf(err) != driver.CodeUnavailable {
				t.Errorf("%s: %v (%q)", call.name, err, driver.CodeOf(err))
			}
		}
	}
}

// unfinished makes an answer the first part of one.
func unfinished(reply bson.Raw) bson.D {
	cursor := reply.Lookup("cursor").Document()
	return bson.D{{Key: "ok", Value: 1.0}, {Key: "cursor", Value: bson.D{
		{Key: "id", Value: int64(77)}, {Key: "ns", Value: cursor.Lookup("ns")}, {Key: "firstBatch", Value: cursor.Lookup("firstBatch")},
	}}}
}

// What keeps a store from being opened is told at once, with what to do.
func TestOpenFails(t *testing.T) {
	const (
		user        = "mongodb://ann:s3cret@"
		unreachable = "cannot be reached"
	)
	for _, c := range []struct {
		name   string
		prefix string // of the URI
		answer func(mongotest.Command) mongotest.Answer
		code   driver.Code
		text   string
	}{
		{
			"a wrong password", user, on("saslStart", mongotest.Failure(18, "AuthenticationFailed", "Authentication failed.")),
			driver.CodeUnavailable, "the user or the password of --store is wrong",
		},
		{
			"no user", "", on("update", mongotest.Failure(13, "Unauthorized", "Command update requires authentication")),
			driver.CodeUnavailable, "add a user and a password",
		},
		{
			"a database without rights", "", on("update", mongotest.Failure(13, "Unauthorized", "not authorized on db to execute command { update: \"asof.meta\" }")),
			driver.CodeUnavailable, "readWrite on the database",
		},
		{
			"no rights to make indexes", "", on("createIndexes", mongotest.Failure(13, "Unauthorized", "not authorized on db to execute command { createIndexes: \"things\" }")),
			driver.CodeUnavailable, "making the indexes of things: the user of --store may not do this",
		},
		{
			"an index in the way", "", on("createIndexes", mongotest.Failure(86, "IndexKeySpecsConflict", "An existing index has the same name as the requested index")),
			driver.CodeInvalid, "making the indexes of things: another program made an index",
		},
		{
			"a view in the way", "", on("createIndexes", mongotest.Failure(166, "CommandNotSupportedOnView", "Cannot create indexes on a view")),
			driver.CodeInvalid, "use another database",
		},
		{
			"a server that takes no writes", "", on("update", mongotest.Failure(10107, "NotWritablePrimary", "not primary", "RetryableWriteError", "NoWritesPerformed")),
			driver.CodeUnavailable, "without directConnection",
		},
		{
			"a secondary", "", secondary,
			driver.CodeUnavailable, "without directConnection",
		},
		{
			"no majority reads", "", on("find", mongotest.Failure(148, "ReadConcernMajorityNotEnabled", "Majority read concern requested, but it is not supported")),
			driver.CodeUnavailable, "enableMajorityReadConcern",
		},
		{
			"a server that is cut off", "", func(mongotest.Command) mongotest.Answer { return mongotest.CutBefore() },
			driver.CodeUnavailable, unreachable,
		},
		{
			"a server that does not answer", "", func(mongotest.Command) mongotest.Answer { return mongotest.Stall() },
			driver.CodeUnavailable, unreachable,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			proxy, uri := newServer(t).behind(t)
			if c.prefix != "" {
				uri = strings.Replace(uri, "mongodb://", c.prefix, 1)
			}
			proxy.Set(c.answer)
			timeout := time.Minute // it refuses at once
			if c.text == unreachable {
				timeout = time.Second
			}
			wanted := says(c.code, c.text)
			err := withinSome(t, timeout, "Open", wanted, func(ctx context.Context) error {
				s, err := mongostore.Open(ctx, uri, mongostore.Options{Collections: []driver.Collection{{Name: "things"}}})
				if err == nil {
					_ = s.Close()
				}
				return err
			})
			if !wanted(err) {
				t.Errorf("%v (%q), want %q with code %q", err, driver.CodeOf(err), c.text, c.code)
			}
			if strings.Contains(fmt.Sprint(err), "s3cret") {
				t.Errorf("the error tells the password: %v", err)
			}
			// Nothing that was begun is in the way once the server is well.
			proxy.Set(nil)
			if c.prefix != "" {
				return // the server knows no users
			}
			var s driver.Engine
			if err := whenWell(t, func(ctx context.Context) (err error) {
				s, err = mongostore.Open(ctx, uri, mongostore.Options{Collections: []driver.Collection{{Name: "things"}}})
				return err
			}); err != nil {
				t.Fatalf("when the server is well again: %v", err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// on answers one command with a document.
func on(name string, reply bson.D) func(mongotest.Command) mongotest.Answer {
	return func(c mongotest.Command) mongotest.Answer {
		if c.Name == name {
			return mongotest.Reply(reply)
		}
		return mongotest.Pass()
	}
}

// secondary makes a server one of a replica set that takes no writes.
func secondary(c mongotest.Command) mongotest.Answer {
	if !c.Hello() {
		return mongotest.Pass()
	}
	return mongotest.Rewrite(func(reply bson.Raw) bson.D {
		return member(reply, false)
	})
}

// member makes what a server says that it is that of a member of a replica set.
func member(reply bson.Raw, primary bool) bson.D {
	d := bson.D{
		{Key: "ok", Value: 1.0},
		{Key: "setName", Value: "rs0"},
		{Key: "setVersion", Value: 1},
		{Key: "me", Value: "db1:27017"},
		{Key: "hosts", Value: bson.A{"db1:27017", "db2:27017"}},
		{Key: "isWritablePrimary", Value: primary},
		{Key: "ismaster", Value: primary},
		{Key: "secondary", Value: !primary},
	}
	for _, name := range []string{"minWireVersion", "maxWireVersion", "maxBsonObjectSize", "maxMessageSizeBytes", "maxWriteBatchSize", "localTime"} {
		if v, err := reply.LookupErr(name); err == nil {
			d = append(d, bson.E{Key: name, Value: v})
		}
	}
	return d
}
