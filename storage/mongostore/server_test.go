package mongostore_test

import (
	"flag"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/asof/asof/storage/mongostore"
	"github.com/asof/asof/storage/mongostore/mongotest"
)

func TestMain(m *testing.M) {
	if uri := os.Getenv(mongostore.StoppedVar); uri != "" {
		os.Exit(mongostore.WriteForStop(uri, os.Stdin))
	}
	flag.Parse()
	if err := besideEachOther(); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// besideEachOther lets more tests run at once than there are processors, unless it
// was said how many: most of the time they wait, for the database or for the ends of lives.
func besideEachOther() error {
	const share = 2
	said := false
	flag.Visit(func(f *flag.Flag) { said = said || f.Name == "test.parallel" })
	if said {
		return nil
	}
	return flag.Set("test.parallel", strconv.Itoa(share*runtime.GOMAXPROCS(0)))
}

// server is the MongoDB server that the tests run on.
type server struct {
	*mongotest.Server
	client *mongo.Client
}

// newServer finds the server, or skips the test.
func newServer(t *testing.T) *server {
	t.Helper()
	s := mongotest.NewServer(t)
	return &server{s, s.Client}
}

// database returns the URI of a database that no other test uses, and that is
// dropped when the test ends.
func (s *server) database(t *testing.T) string {
	t.Helper()
	uri, _ := s.Database(t)
	return uri
}

// behind returns the URI of a database of the server, by way of a proxy.
func (s *server) behind(t *testing.T) (*mongotest.Proxy, string) {
	t.Helper()
	proxy, uri, _ := s.Behind(t)
	return proxy, uri
}

// databaseName is the database that a URI names.
func databaseName(t *testing.T, uri string) string {
	t.Helper()
	_, after, _ := strings.Cut(strings.TrimPrefix(uri, "mongodb://"), "/")
	name, _, _ := strings.Cut(after, "?")
	return name
}
