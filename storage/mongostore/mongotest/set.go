package mongotest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// The environment variables, see the package's comment.
const (
	EnvURI    = "ASOF_TEST_MONGODB_URI"
	EnvMongod = "ASOF_TEST_MONGOD"
)

// setName is what replica sets are called that this package starts.
const setName = "asof"

// startTimeout bounds how long a set may take until it has a primary.
const startTimeout = 2 * time.Minute

// attempts is how often a set is started, where a port that was free is taken
// by somebody else before the server listens on it.
const attempts = 3

// Set is a replica set of one node or more.
type Set struct {
	nodes  []*Node
	dir    string
	locked bool
}

// Start runs a replica set of mongod processes of a binary, and waits until it
// has a primary and all others follow it. Stop ends it.
func Start(ctx context.Context, binary string, nodes int) (*Set, error) {
	return start(ctx, binary, nodes, false)
}

func start(ctx context.Context, binary string, nodes int, locked bool) (*Set, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for attempt := 1; ; attempt++ {
		s, err := startSet(ctx, binary, nodes, locked)
		if err == nil || attempt == attempts || !strings.Contains(err.Error(), "Address already in use") {
			return s, err
		}
	}
}

func startSet(ctx context.Context, binary string, nodes int, locked bool) (*Set, error) {
	dir, err := os.MkdirTemp("", "asof-mongod-")
	if err != nil {
		return nil, err
	}
	s := &Set{dir: dir, locked: locked}
	flags := []string{"--replSet", setName, "--oplogSize", "128"}
	if locked {
		key := filepath.Join(dir, "key") // that the members share; with one, they ask everybody who he is
		if err := os.WriteFile(key, []byte(rand.Text()+rand.Text()), 0o600); err != nil {
			return nil, errors.Join(err, s.Stop())
		}
		flags = append(flags, "--keyFile", key)
	}
	for i := range nodes {
		port, err := freePort(ctx)
		if err != nil {
			return nil, errors.Join(err, s.Stop())
		}
		s.nodes = append(s.nodes, &Node{
			binary: binary, dir: filepath.Join(dir, fmt.Sprint("node", i)), port: port,
			flags: flags,
		})
	}
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

func (s *Set) start(ctx context.Context) error {
	members := make(bson.A, len(s.nodes))
	for i, n := range s.nodes {
		if err := n.start(ctx); err != nil {
			return err
		}
		members[i] = bson.D{{Key: "_id", Value: i}, {Key: "host", Value: n.Addr()}}
	}
	err := s.nodes[0].admin(ctx, bson.D{{Key: "replSetInitiate", Value: bson.D{
		{Key: "_id", Value: setName},
		{Key: "members", Value: members},
		// A lost primary is replaced after this time, not after ten seconds.
		{Key: "settings", Value: bson.D{{Key: "electionTimeoutMillis", Value: 2000}}},
	}}})
	if err != nil {
		return fmt.Errorf("initiating the replica set: %w", err)
	}
	if _, err := s.Primary(ctx); err != nil {
		return err
	}
	if err := s.AllUp(ctx); err != nil || !s.locked {
		return err
	}
	// A server without users lets one of its own machine in, to make the first.
	administrator := options.Credential{Username: "administrator", Password: rand.Text(), AuthSource: "admin"}
	if err := s.AddUser(ctx, administrator.Username, administrator.Password, "root", "admin"); err != nil {
		return err
	}
	for _, n := range s.nodes {
		n.user = &administrator
	}
	return nil
}

// AddUser makes a user who has a role on a database, on a set that was started
// by NewLocked.
func (s *Set) AddUser(ctx context.Context, name, password, role, database string) error {
	primary, err := s.Primary(ctx)
	if err != nil {
		return err
	}
	err = primary.admin(ctx, bson.D{
		{Key: "createUser", Value: name},
		{Key: "pwd", Value: password},
		{Key: "roles", Value: bson.A{bson.D{{Key: "role", Value: role}, {Key: "db", Value: database}}}},
		{Key: "writeConcern", Value: bson.D{{Key: "w", Value: "majority"}}},
	})
	if err != nil {
		return fmt.Errorf("making the user %s: %w", name, err)
	}
	return nil
}

// URI names a database on the set, with all its members.
func (s *Set) URI(database string) string {
	hosts := make([]string, len(s.nodes))
	for i, n := range s.nodes {
		hosts[i] = n.Addr()
	}
	return "mongodb://" + strings.Join(hosts, ",") + "/" + database + "?replicaSet=" + setName
}

// Nodes are the members, whatever their state.
func (s *Set) Nodes() []*Node { return s.nodes }

// Primary waits until one of the members is the primary, and returns it.
func (s *Set) Primary(ctx context.Context) (*Node, error) {
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	type found struct {
		node *Node
		err  error
	}
	answers := make(chan found, len(s.nodes))
	for _, n := range s.nodes {
		go func() {
			answers <- found{n, n.await(waiting, func(h *hello) bool { return h.Primary && h.SetName == setName })}
		}()
	}
	var errs []error
	for range s.nodes {
		f := <-answers
		if f.err == nil {
			return f.node, nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", f.node.Addr(), f.err))
	}
	return nil, fmt.Errorf("the replica set has no primary: %w", errors.Join(errs...))
}

// AllUp waits until every member is the primary or a secondary.
func (s *Set) AllUp(ctx context.Context) error {
	for _, n := range s.nodes {
		if err := n.await(ctx, func(h *hello) bool { return h.Primary || h.Secondary }); err != nil {
			return fmt.Errorf("%s: %w", n.Addr(), err)
		}
	}
	return nil
}

// stepDownSeconds is how long a primary that stepped down does not stand for election.
const stepDownSeconds = 30

// StepDown makes the primary a secondary, and returns the one that it was.
// The connection may be closed by it, which is no error.
func (s *Set) StepDown(ctx context.Context) (*Node, error) {
	primary, err := s.Primary(ctx)
	if err != nil {
		return nil, err
	}
	err = primary.admin(ctx, bson.D{{Key: "replSetStepDown", Value: stepDownSeconds}, {Key: "secondaryCatchUpPeriodSecs", Value: 10}})
	still := primary.await(ctx, func(h *hello) bool { return !h.Primary })
	if still != nil {
		return nil, fmt.Errorf("the primary did not step down: %w", errors.Join(err, still))
	}
	return primary, nil
}

// Log is what the members logged last.
func (s *Set) Log() string {
	var b strings.Builder
	for _, n := range s.nodes {
		fmt.Fprintf(&b, "--- mongod at %s:\n%s\n", n.Addr(), n.Log())
	}
	return b.String()
}

// Stop kills all members and removes their data.
func (s *Set) Stop() error {
	var errs []error
	for _, n := range s.nodes {
		errs = append(errs, n.Kill())
	}
	return errors.Join(append(errs, os.RemoveAll(s.dir))...)
}

// New starts a replica set of the binary that ASOF_TEST_MONGOD names, for this
// test alone. Without one, the test is skipped. When the test fails, the logs
// of the members are shown.
func New(t testing.TB, nodes int) *Set {
	t.Helper()
	return newSet(t, nodes, false)
}

// NewLocked is New for a set with access control, whose users are those of
// AddUser.
func NewLocked(t testing.TB, nodes int) *Set {
	t.Helper()
	return newSet(t, nodes, true)
}

func newSet(t testing.TB, nodes int, locked bool) *Set {
	t.Helper()
	binary := os.Getenv(EnvMongod)
	if binary == "" {
		t.Skipf("needs servers of its own, which can be killed: set %s to a mongod binary (https://www.mongodb.com/try/download/community)", EnvMongod)
	}
	s, err := start(t.Context(), binary, nodes, locked)
	if err != nil {
		t.Fatalf("a replica set of %d (%s=%s): %v", nodes, EnvMongod, binary, err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(s.Log())
		}
		if err := s.Stop(); err != nil {
			t.Errorf("stopping the replica set: %v", err)
		}
	})
	return s
}
