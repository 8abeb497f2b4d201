package mongotest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// fakeSet starts a set of fakes.
func fakeSet(t *testing.T, nodes int) *Set {
	t.Helper()
	t.Setenv(envFake, "good")
	t.Setenv(EnvMongod, os.Args[0])
	return New(t, nodes)
}

func TestSetStartsAndStops(t *testing.T) {
	for _, nodes := range []int{1, 3} {
		s := fakeSet(t, nodes)
		if len(s.Nodes()) != nodes {
			t.Fatalf("%d nodes, want %d", len(s.Nodes()), nodes)
		}
		ports := make(map[string]bool)
		for _, n := range s.Nodes() {
			if host, port, err := net.SplitHostPort(n.Addr()); err != nil || host != "127.0.0.1" || ports[port] {
				t.Errorf("a node at %s: %v", n.Addr(), err)
			} else {
				ports[port] = true
			}
			if !strings.Contains(s.URI("db"), n.Addr()) {
				t.Errorf("the URI %s does not name %s", s.URI("db"), n.Addr())
			}
			if !listens(t, n.Addr()) {
				t.Errorf("nobody listens at %s", n.Addr())
			}
		}
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
		for _, n := range s.Nodes() {
			if listens(t, n.Addr()) {
				t.Errorf("the server at %s runs on", n.Addr())
			}
		}
		if _, err := os.Stat(s.dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the data is left behind: %v", err)
		}
	}
}

func listens(t *testing.T, addr string) bool {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err == nil {
		_ = c.Close()
	}
	return err == nil
}

func TestKillAndRestart(t *testing.T) {
	s := fakeSet(t, 3)
	ctx := t.Context()
	var killed []*Node
	for range 2 {
		primary, err := s.Primary(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if slices.Contains(killed, primary) {
			t.Errorf("%s was killed and is the primary", primary.Addr())
		}
		if err := primary.Kill(); err != nil {
			t.Fatal(err)
		}
		if listens(t, primary.Addr()) {
			t.Errorf("%s was killed and listens", primary.Addr())
		}
		if err := primary.Kill(); err != nil {
			t.Errorf("killed twice: %v", err)
		}
		killed = append(killed, primary)
	}
	if err := inTime(t, []string{"it is down"}, s.AllUp); !says(err, "it is down") {
		t.Errorf("two of three are down: %v", err)
	}
	for _, n := range killed {
		if err := n.Restart(ctx); err != nil {
			t.Error(err)
		}
		if err := n.Restart(ctx); err == nil {
			t.Error("a server that runs was started")
		}
		if lives := strings.Count(n.Log(), "fake mongod"); lives != 2 {
			t.Errorf("the log has %d lives, want 2:\n%s", lives, n.Log())
		}
	}
	if err := s.AllUp(ctx); err != nil {
		t.Error(err)
	}
}

// inTime makes a call that does not end before its time is over, and returns its error.
// The time is short, and longer as long as the error lacks something: where the machine
// is slow, a server may not even have begun.
func inTime(t *testing.T, want []string, call func(ctx context.Context) error) error {
	t.Helper()
	for timeout := time.Second; ; timeout *= 2 {
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		err := call(ctx)
		cancel()
		if says(err, want...) || timeout > time.Minute {
			return err
		}
	}
}

// says reports whether an error has some texts.
func says(err error, texts ...string) bool {
	return err != nil && !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(err.Error(), text) })
}

func TestStepDown(t *testing.T) {
	s := fakeSet(t, 3)
	was, err := s.StepDown(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	now, err := s.Primary(t.Context())
	if err != nil || now == was {
		t.Errorf("the primary is still %s: %v", was.Addr(), err)
	}
	// The only member of a set elects itself again.
	alone := fakeSet(t, 1)
	if err := inTime(t, []string{"did not step down"}, func(ctx context.Context) error {
		_, err := alone.StepDown(ctx)
		return err
	}); !says(err, "did not step down") {
		t.Errorf("a member stepped down that cannot: %v", err)
	}
}

// A set with access control shares a key, and has an administrator, as whom the
// harness speaks from then on.
func TestLockedSet(t *testing.T) {
	t.Setenv(envFake, "good")
	t.Setenv(EnvMongod, os.Args[0])
	s := NewLocked(t, 2)
	users, err := os.ReadFile(filepath.Join(s.dir, "users"))
	if err != nil || string(users) != "administrator root" {
		t.Errorf("the users are %q: %v", users, err)
	}
	for _, n := range s.Nodes() {
		if n.user == nil || n.user.Username != "administrator" || n.user.Password == "" {
			t.Errorf("%s is spoken to as %+v", n.Addr(), n.user)
		}
	}
	// The fake knows no way to log in.
	short, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := s.AddUser(short, "ann", "secret", "readWrite", "db"); err == nil {
		t.Error("a user was made by one who is not logged in")
	}
	// Without a lock, there are no users.
	open := New(t, 1)
	if err := open.AddUser(t.Context(), "ann", "secret", "readWrite", "db"); err == nil || !strings.Contains(err.Error(), "making the user ann") {
		t.Errorf("a user was made where there are none: %v", err)
	}
}

// A server that does not come up is an error in time, with what it logged.
func TestBadServers(t *testing.T) {
	for _, c := range []struct {
		mode string
		want []string
	}{
		{"exits", []string{"exit status 100", "cannot open the data directory"}},
		{"deaf", []string{"deadline exceeded", "fake mongod, mode deaf"}},
		{"silent", []string{"deadline exceeded", "fake mongod, mode silent"}},
		{"garbage", []string{"deadline exceeded", "fake mongod, mode garbage"}},
		{"leaderless", []string{"no primary", "deadline exceeded"}},
	} {
		t.Run(c.mode, func(t *testing.T) {
			t.Setenv(envFake, c.mode)
			t.Setenv("TMPDIR", t.TempDir())
			err := inTime(t, c.want, func(ctx context.Context) error {
				s, err := Start(ctx, os.Args[0], 1)
				if err == nil {
					t.Fatalf("it was started: %v", s.Stop())
				}
				return err
			})
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error lacks %q:\n%v", want, err)
				}
			}
			if left, err := filepath.Glob(filepath.Join(os.TempDir(), "asof-mongod-*")); err != nil || len(left) > 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
		})
	}
	if _, err := Start(t.Context(), filepath.Join(t.TempDir(), "mongod"), 1); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a binary that does not exist: %v", err)
	}
}

// A port that somebody took after it was found free is no failure.
func TestPortTaken(t *testing.T) {
	t.Setenv(envFake, "taken")
	t.Setenv("ASOF_FAKE_MARKER", filepath.Join(t.TempDir(), "marker"))
	s, err := Start(t.Context(), os.Args[0], 2)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
}

// recordedTB is a test that is watched.
type recordedTB struct {
	testing.TB
	failed   bool
	cleanups []func()
	said     strings.Builder
}

func (r *recordedTB) Helper()          {}
func (r *recordedTB) Failed() bool     { return r.failed }
func (r *recordedTB) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }
func (r *recordedTB) Log(args ...any) {
	for _, a := range args {
		r.said.WriteString(a.(string))
	}
}

// The logs are shown when a test fails, and only then.
func TestLogsAreShown(t *testing.T) {
	t.Setenv(envFake, "good")
	t.Setenv(EnvMongod, os.Args[0])
	for _, failed := range []bool{false, true} {
		watched := &recordedTB{TB: t, failed: failed}
		s := New(watched, 2)
		for _, f := range slices.Backward(watched.cleanups) {
			f()
		}
		for _, n := range s.Nodes() {
			if shown := strings.Contains(watched.said.String(), "mongod at "+n.Addr()+":\nfake mongod"); shown != failed {
				t.Errorf("the test failed: %t; the log of %s is shown: %t", failed, n.Addr(), shown)
			}
		}
	}
}

// No server outlives the process that started it, even one that is killed.
func TestServersEndWithTheTest(t *testing.T) {
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), envFake+"=parent", "TMPDIR="+t.TempDir())
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	ended := false
	t.Cleanup(func() {
		if !ended { // the test failed before
			_ = parent.Process.Kill()
			_ = parent.Wait()
		}
	})
	lines := bufio.NewScanner(out)
	var said []string
	for len(said) < 3 && lines.Scan() {
		said = append(said, lines.Text())
	}
	if len(said) < 3 {
		t.Fatalf("the servers did not start: %q", said)
	}
	for _, addr := range said[:2] {
		if !listens(t, addr) {
			t.Fatalf("nobody listens at %s", addr)
		}
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait() // killed
	ended = true
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	for _, addr := range said[:2] {
		for listens(t, addr) {
			select {
			case <-ticker.C:
			case <-ctx.Done():
				t.Fatalf("the server at %s outlives the test that started it", addr)
			}
		}
	}
}

// Without a binary, the test is skipped, and says how to get one.
func TestNoBinary(t *testing.T) {
	t.Setenv(EnvMongod, "")
	t.Setenv(EnvURI, "")
	var said string
	t.Run("skipped", func(t *testing.T) {
		defer func() {
			if !t.Skipped() {
				t.Error("it was not skipped")
			}
		}()
		New(skipRecorder{t, &said}, 1)
	})
	if !strings.Contains(said, EnvMongod) || !strings.Contains(said, "https://") {
		t.Errorf("it says %q", said)
	}
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

// Main starts one server for a package's tests, and names it to them.
func TestMainStartsAServer(t *testing.T) {
	t.Setenv(envFake, "good")
	t.Setenv(EnvMongod, os.Args[0])
	t.Setenv(EnvURI, "")
	var addr string
	status := Main(func() int {
		uri := URI(t)
		addr = strings.TrimSuffix(strings.TrimPrefix(uri, "mongodb://"), "/?replicaSet="+setName)
		if !listens(t, addr) {
			t.Errorf("nobody listens at %s, of %s", addr, uri)
		}
		return 3
	})
	if status != 3 {
		t.Errorf("the tests ended with 3, Main with %d", status)
	}
	if listens(t, addr) {
		t.Errorf("the server at %s outlives the tests", addr)
	}
}
