package mongotest

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// Main is to be called by TestMain. Where no running server is named but a
// mongod binary is, it starts one for all tests of the package, and names it in
// ASOF_TEST_MONGODB_URI, also for the processes that the tests start.
func Main(run func() int) int {
	binary := os.Getenv(EnvMongod)
	if binary == "" || os.Getenv(EnvURI) != "" {
		return run()
	}
	fail := func(s *Set, err error) int {
		fmt.Fprintf(os.Stderr, "%s=%s: %v\n", EnvMongod, binary, err)
		if s != nil {
			fmt.Fprintln(os.Stderr, s.Log())
		}
		return 1
	}
	s, err := Start(context.Background(), binary, 1)
	if err != nil {
		return fail(nil, err)
	}
	if err := os.Setenv(EnvURI, s.URI("")); err != nil {
		return fail(s, err)
	}
	status := run()
	if status != 0 {
		fmt.Fprintln(os.Stderr, s.Log())
	}
	if err := s.Stop(); err != nil {
		return fail(nil, err)
	}
	return status
}

// T is what is needed of a test, or of a script that runs in one.
type T interface {
	Skip(args ...any)
	Fatal(args ...any)
}

// URI names the server that the tests run on, without a database. A test
// without one is skipped.
func URI(t T) string {
	uri := os.Getenv(EnvURI)
	if uri == "" {
		t.Skip("needs a MongoDB server: set " + EnvURI + ", such as mongodb://127.0.0.1:27017, or " + EnvMongod +
			" to a mongod binary (https://www.mongodb.com/try/download/community); the tests make databases of their own and drop them")
	}
	return uri
}

// WithDatabase is a URI with another database. Where users log in with a
// password and the URI does not say in which database they are, that is the
// one that it named, or admin, as it would have been. A slow machine gets a minute to
// find the server, where the URI does not say otherwise.
func WithDatabase(uri, database string) (string, error) {
	u, err := url.Parse(uri)
	if err != nil {
		return "", fmt.Errorf("a MongoDB URI: %w", err)
	}
	query := u.Query()
	mechanism := query.Get("authMechanism")
	if u.User != nil && !query.Has("authSource") && (mechanism == "" || strings.HasPrefix(mechanism, "SCRAM-")) {
		source := "admin"
		if named := strings.Trim(u.Path, "/"); named != "" {
			source = named
		}
		query.Set("authSource", source)
	}
	if !query.Has("serverSelectionTimeoutMS") {
		query.Set("serverSelectionTimeoutMS", "60000")
	}
	u.RawQuery = query.Encode()
	u.Path = "/" + database
	return u.String(), nil
}

// dropTimeout bounds how long a database of a test is dropped.
const dropTimeout = 5 * time.Minute

// Server is the server that the tests run on, with a client of it.
type Server struct {
	URI    string // without a database
	Client *mongo.Client
}

// NewServer connects to the server that the tests run on; without one, the test
// is skipped.
func NewServer(t testing.TB) *Server {
	t.Helper()
	uri := URI(t)
	client, err := mongo.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		t.Fatalf("%s=%q: %v", EnvURI, uri, err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), dropTimeout)
		defer cancel()
		if err := client.Disconnect(ctx); err != nil {
			t.Errorf("Disconnect: %v", err)
		}
	})
	return &Server{URI: uri, Client: client}
}

// Database returns the URI of a database that no other test uses, and that is
// dropped when the test ends, and its name.
func (s *Server) Database(t testing.TB) (uri, name string) {
	t.Helper()
	name = "asof_test_" + rand.Text()
	uri, err := WithDatabase(s.URI, name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), dropTimeout)
		defer cancel()
		if err := s.Client.Database(name).Drop(ctx); err != nil {
			t.Errorf("dropping the database of the test: %v", err)
		}
	})
	return uri, name
}

// Behind starts a proxy to the server, and returns the URI of a database of its
// own by way of it.
func (s *Server) Behind(t testing.TB) (p *Proxy, uri, name string) {
	t.Helper()
	p = NewProxy(t, s.host(t))
	uri, name = s.Database(t)
	u, err := url.Parse(uri)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = p.Addr()
	query := u.Query()
	query.Del("replicaSet")
	query.Set("directConnection", "true")
	u.RawQuery = query.Encode()
	return p, u.String(), name
}

// host is the address of the server; of a replica set, of its primary.
func (s *Server) host(t testing.TB) string {
	t.Helper()
	h, err := greet(t.Context(), s.Client)
	if err != nil {
		t.Fatalf("%s=%q: %v", EnvURI, s.URI, err)
	}
	if h.SetName != "" {
		return h.Me
	}
	return options.Client().ApplyURI(s.URI).Hosts[0]
}
