package mongotest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// EnvURI names the environment variable that names a running server, such as
// mongodb://127.0.0.1:27017.
const EnvURI = "ASOF_TEST_MONGODB_URI"

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
		t.Skip("needs a MongoDB server: set " + EnvURI + ", such as mongodb://127.0.0.1:27017; the tests make databases of their own and drop them")
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

// Needs skips a test that needs what the server has not, and says what: asking for it fails.
func Needs(t testing.TB, what string, ask func() error) {
	t.Helper()
	if err := ask(); err != nil {
		t.Skipf("needs %s, which the server does not have (%v): set %s to another one", what, err, EnvURI)
	}
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
	through, err := p.URI(uri)
	if err != nil {
		t.Fatal(err)
	}
	return p, through, name
}

// URI is a URI of the proxy's server, by way of it.
func (p *Proxy) URI(uri string) (string, error) {
	u, err := url.Parse(uri)
	if err != nil {
		return "", fmt.Errorf("a MongoDB URI: %w", err)
	}
	u.Host = p.Addr()
	query := u.Query()
	query.Del("replicaSet")
	query.Set("directConnection", "true")
	u.RawQuery = query.Encode()
	return u.String(), nil
}

// host is the address of the server; of a replica set, of its primary.
func (s *Server) host(t testing.TB) string {
	t.Helper()
	set, primary, err := s.ReplicaSet(t.Context())
	if err != nil {
		t.Fatalf("%s=%q: %v", EnvURI, s.URI, err)
	}
	if set != "" {
		return primary
	}
	return options.Client().ApplyURI(s.URI).Hosts[0]
}

// ReplicaSet is the name of the server's replica set and the address of the primary; empty
// where it is none.
func (s *Server) ReplicaSet(ctx context.Context) (name, primary string, err error) {
	var h struct {
		SetName string `bson:"setName"`
		Me      string `bson:"me"`
	}
	admin := s.Client.Database("admin")
	err = admin.RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Decode(&h)
	var unknown mongo.ServerError
	if errors.As(err, &unknown) { // older ones
		err = admin.RunCommand(ctx, bson.D{{Key: "isMaster", Value: 1}}).Decode(&h)
	}
	return h.SetName, h.Me, err
}
