//go:build unix

package mongostore

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/mongostore/mongotest"
)

// A server whose process is stopped, for longer than what it has in flight lives, and
// goes on: nothing that it was about to write appears at an instant that others have
// read at meanwhile, and what it loads is there once.
func TestServerIsStopped(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	uri, _ := mongotest.NewServer(t).Database(t)
	s := newServerOf(t, uri, Options{})
	child := exec.CommandContext(ctx, os.Args[0])
	child.Env = append(os.Environ(), StoppedVar+"="+uri)
	child.Stderr = os.Stderr
	if _, err := child.StdinPipe(); err != nil { // open until this process ends
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = child.Process.Kill()
		_ = child.Wait()
	}()
	signal := func(signal os.Signal) {
		t.Helper()
		if err := child.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
	}
	look := func() (at driver.Instant, seen string) {
		t.Helper()
		at, err := s.Now(ctx)
		if err == nil {
			seen, err = see(ctx, s, at)
		}
		if err != nil {
			t.Fatal(err)
		}
		return at, seen
	}
	// goesOn waits until the other server has written something more.
	goesOn := func(before string) {
		for _, seen := look(); seen == before; _, seen = look() {
			if ctx.Err() != nil {
				t.Fatal("the server does not write")
			}
		}
	}
	_, first := look()
	goesOn(first)
	stops := 5
	seen := make(map[driver.Instant]string)
	for stop := range stops {
		signal(syscall.SIGSTOP)
		if _, err := commitAgain(ctx, s, write("own", fmt.Sprint("own", stop), int64(stop))); err != nil {
			t.Fatal(err)
		}
		at, there := look()
		seen[at] = there
		signal(syscall.SIGCONT)
		goesOn(there)
	}
	for at, before := range seen {
		if after, err := see(ctx, s, at); err != nil || after != before {
			t.Errorf("at %d there is\n%s\nand was\n%s\n%v", at, after, before, err)
		}
	}
	signal(os.Kill)
	if _, err := commitAgain(ctx, s, write("own", "last", int64(stops))); err != nil {
		t.Fatal(err)
	}
	vs, err := s.Query(ctx, &driver.Query{Collection: "thingsToo", At: driver.Forever})
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range vs {
		if v.Number != 1 {
			t.Errorf("%s was loaded %d times", v.Key, v.Number)
		}
	}
	checkAll(t, s)
	t.Logf("%d documents were loaded", len(vs))
}
