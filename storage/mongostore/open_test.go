package mongostore_test

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/mongostore"
	"github.com/asof/asof/storage/mongostore/mongotest"
)

// A connection that breaks once while a store is opened or closed, before or after any
// of the commands for that was carried out, does not end it, on whatever server.
func TestOpenIsCut(t *testing.T) {
	use := func(t *testing.T, cut int, answer mongotest.Answer) ([]string, error) {
		t.Helper()
		proxy, uri := newServer(t).behind(t)
		var mu sync.Mutex
		var names []string // a command that was cut may arrive after Close
		proxy.Set(func(c mongotest.Command) mongotest.Answer {
			if c.Hello() && !c.Body.Lookup("helloOk").IsZero() { // the driver's own
				return mongotest.Pass()
			}
			mu.Lock()
			defer mu.Unlock()
			if names = append(names, c.Name); len(names) == cut {
				return answer
			}
			return mongotest.Pass()
		})
		s, err := mongostore.Open(t.Context(), uri+"&retryReads=false&retryWrites=false", mongostore.Options{Collections: []driver.Collection{{Name: "things"}}})
		if err == nil {
			err = s.Close()
		}
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(names), err
	}
	names, err := use(t, 0, mongotest.Pass())
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range names {
		for when, answer := range map[string]mongotest.Answer{"before": mongotest.CutBefore(), "after": mongotest.CutAfter()} {
			t.Run(fmt.Sprintf("%s command %d, %s", when, i+1, name), func(t *testing.T) {
				t.Parallel()
				if done, err := use(t, i+1, answer); err != nil {
					t.Errorf("of %s: %v", done, err)
				}
			})
		}
	}
}

// A server that breaks the connection each time is told, and not tried for long.
func TestOpenIsAlwaysCut(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"update", "createIndexes"} {
		proxy, uri := newServer(t).behind(t)
		var mu sync.Mutex
		cuts := 0
		proxy.Set(func(c mongotest.Command) mongotest.Answer {
			if c.Name != name {
				return mongotest.Pass()
			}
			mu.Lock()
			defer mu.Unlock()
			cuts++
			return mongotest.CutBefore()
		})
		wanted := says(driver.CodeUnavailable, "cannot be reached")
		s, err := mongostore.Open(t.Context(), uri, mongostore.Options{Collections: []driver.Collection{{Name: "things"}}})
		if err == nil {
			_ = s.Close()
		}
		mu.Lock()
		if most := 10; !wanted(err) || cuts > most {
			t.Errorf("%s: %v (%q), after %d attempts, want %d at most", name, err, driver.CodeOf(err), cuts, most)
		}
		mu.Unlock()
	}
}

// A server that is too old for the driver is told by its version, and not as one
// that cannot be reached.
func TestOldServer(t *testing.T) {
	proxy, uri := newServer(t).behind(t)
	proxy.Set(func(c mongotest.Command) mongotest.Answer {
		if !c.Hello() {
			return mongotest.Pass()
		}
		return mongotest.Rewrite(func(reply bson.Raw) bson.D {
			d := member(reply, true)
			for i := range d {
				if d[i].Key == "maxWireVersion" {
					d[i].Value = int32(8) // MongoDB 4.2
				}
			}
			return d
		})
	})
	s, err := mongostore.Open(t.Context(), uri, mongostore.Options{})
	if err == nil {
		_ = s.Close()
	}
	if driver.CodeOf(err) != driver.CodeUnavailable || !strings.Contains(err.Error(), "too old for asof") || !strings.Contains(err.Error(), "4.4") {
		t.Errorf("%v (%q)", err, driver.CodeOf(err))
	}
}

// A replica set that the server is not a member of is named as what is wrong, and not
// a server that cannot be reached.
func TestOtherReplicaSet(t *testing.T) {
	uri, err := url.Parse(newServer(t).database(t))
	if err != nil {
		t.Fatal(err)
	}
	wanted := says(driver.CodeUnavailable, "is a member of the replica set that it names")
	err = withinSome(t, 2*time.Second, "Open", wanted, func(ctx context.Context) error { // nothing is waited for that comes
		until, _ := ctx.Deadline()
		query := uri.Query()
		query.Set("replicaSet", "another")
		query.Set("serverSelectionTimeoutMS", fmt.Sprint(max(1, time.Until(until).Milliseconds())))
		uri.RawQuery = query.Encode()
		s, err := mongostore.Open(t.Context(), uri.String(), mongostore.Options{})
		if err == nil {
			_ = s.Close()
		}
		return err
	})
	if !wanted(err) {
		t.Errorf("%v (%q)", err, driver.CodeOf(err))
	}
}

// Soon after its database was dropped a store reads and writes nothing any more,
// until there is a store again.
func TestEmptiedDatabase(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	uri := server.database(t)
	things := []driver.Collection{{Name: "things"}}
	s, err := mongostore.Open(t.Context(), uri, mongostore.Options{Collections: things})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err := s.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	if err := server.client.Database(databaseName(t, uri)).Drop(t.Context()); err != nil {
		t.Fatal(err)
	}
	emptied := func(err error) bool {
		return driver.CodeOf(err) == driver.CodeUnavailable && strings.Contains(err.Error(), "was emptied")
	}
	if err := s.Ping(t.Context()); !emptied(err) {
		t.Errorf("Ping: %v", err)
	}
	for n := 0; ; n++ { // it finds out when it renews its lease
		_, err := driver.CommitOne(t.Context(), s, thing(fmt.Sprint("lost ", n)))
		if emptied(err) && driver.RefusalOf(err) != "" {
			break // it is known that nothing was written
		}
		if err != nil && driver.CodeOf(err) != driver.CodeUnavailable { // it may be slow, too
			t.Fatal(err)
		}
	}
	for _, call := range []func() error{
		func() error { _, err := s.Now(t.Context()); return err },
		func() error { return s.Settle(t.Context(), 1) },
	} {
		if err := call(); !emptied(err) {
			t.Errorf("an instant: %v", err)
		}
	}
	// Another server makes a new store.
	other, err := mongostore.Open(t.Context(), uri, mongostore.Options{Collections: things})
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Close(); err != nil {
		t.Error(err)
	}
	for {
		_, err := driver.CommitOne(t.Context(), s, thing("new"))
		if err == nil {
			break
		}
		if driver.CodeOf(err) != driver.CodeUnavailable {
			t.Fatal(err)
		}
	}
	if err := s.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}

// A URI with an option that the driver cannot do anything with, or would take no
// notice of, is refused before any server is asked.
func TestOptionsOfURI(t *testing.T) {
	for _, c := range []struct{ options, text string }{
		{"readPreference=nonsense", "unknown read preference nonsense"},
		{"minPoolSize=5&maxPoolSize=2", "minPoolSize"},
		{"heartbeatFrequencyMS=1", "heartbeatFrequencyMS"},
		{"maxStalenessSeconds=100", "read preference"},
		{"readPreferenceTags=dc:ny", "read preference"},
		{"tlsCAFile=/nope", "open /nope"},
		{"tlsCertificateKeyFile=/nope&tlsCertificateKeyFilePassword=s3cret", "open /nope"},
		{"authMechanism=MONGODB-OIDC", "ENVIRONMENT"},
		{"wtimeoutMS=5", "has the option wtimeoutms, which"},
		{"proxyHost=h&proxyPassword=s3cret", "has the option proxyhost, which"},
		{"serverMonitoringMode=s3cret", `invalid value for "serverMonitoringMode"`},
		{"appName=s3cret%zz", "invalid option value"},
		{"readConcernLevel=local&compressors=zstd,zlib,snappy&readPreference=secondary&maxStalenessSeconds=100&w=1&minPoolSize=5&tls=true", ""},
	} {
		err := mongostore.CheckURI("mongodb://localhost/asof?" + c.options)
		if c.text == "" {
			if err != nil {
				t.Errorf("%s: %v", c.options, err)
			}
			continue
		}
		if driver.CodeOf(err) != driver.CodeInvalid || !strings.Contains(err.Error(), c.text) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v (%q), want %q", c.options, err, driver.CodeOf(err), c.text)
		}
	}
}

// An index is there when a majority of a replica set has made it, so that a store opens
// while a member is down. A server that is no member is asked for no majority.
func TestIndexesOfAMajority(t *testing.T) {
	for _, c := range []struct {
		name   string
		is     func(reply bson.Raw) bson.D
		quorum string
	}{
		{"a server alone", func(reply bson.Raw) bson.D {
			return without(member(reply, true), "setName", "setVersion", "me", "hosts")
		}, ""},
		{"a member", func(reply bson.Raw) bson.D { return member(reply, true) }, `"majority"`},
		{"mongos", func(reply bson.Raw) bson.D {
			return append(without(member(reply, true), "setName", "setVersion", "me", "hosts"), bson.E{Key: "msg", Value: "isdbgrid"})
		}, `"majority"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			proxy, uri := newServer(t).behind(t)
			var mu sync.Mutex
			asked := make(map[string]string)
			proxy.Set(func(command mongotest.Command) mongotest.Answer {
				if command.Hello() {
					return mongotest.Rewrite(c.is)
				}
				if command.Name == "createIndexes" {
					mu.Lock()
					defer mu.Unlock()
					asked[command.Collection()] = command.Body.Lookup("commitQuorum").String()
				}
				return mongotest.Pass()
			})
			s, err := mongostore.Open(t.Context(), uri, mongostore.Options{Collections: []driver.Collection{{Name: "things"}}})
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			if diff := cmp.Diff(map[string]string{"things": c.quorum, "things.history": c.quorum}, asked); diff != "" {
				t.Errorf("commitQuorum (-want +got):\n%s", diff)
			}
		})
	}
}

// without leaves members out of a document.
func without(d bson.D, names ...string) bson.D {
	return slices.DeleteFunc(d, func(e bson.E) bool { return slices.Contains(names, e.Key) })
}
