//go:build unix

package e2e

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// nobody is a user who owns nothing, for tests that run as root: permissions do not
// apply to root.
const nobody = 65534

// unprivileged runs the program as a user who may write only what is its own.
func unprivileged(t *testing.T) func(args ...string) (said string, status int) {
	t.Helper()
	own := filepath.Join(t.TempDir(), "asof")
	copyFile(t, program, own, 0o755)
	return func(args ...string) (string, int) {
		t.Helper()
		cmd := exec.Command(own, args...)
		cmd.Dir = filepath.Dir(own)
		if os.Getuid() == 0 {
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		}
		out, err := cmd.CombinedOutput()
		ended := new(exec.ExitError)
		if err != nil && !errors.As(err, &ended) {
			t.Fatal(err)
		}
		return string(out), cmd.ProcessState.ExitCode()
	}
}

// readable makes a directory with the files of a store that every user can read and
// none can write.
func readable(t *testing.T, from string, suffixes ...string) (store string) {
	t.Helper()
	dir := t.TempDir()
	for _, suffix := range suffixes {
		copyFile(t, from+suffix, filepath.Join(dir, "asof.db"+suffix), 0o444)
	}
	setMode(t, dir, 0o555)
	t.Cleanup(func() { setMode(t, dir, 0o755) }) // so that it can be removed
	return filepath.Join(dir, "asof.db")
}

func copyFile(t *testing.T, from, to string, mode os.FileMode) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	setMode(t, to, mode)
	setMode(t, filepath.Dir(filepath.Dir(to)), 0o755) // of the test
}

func setMode(t *testing.T, name string, mode os.FileMode) {
	t.Helper()
	if err := os.Chmod(name, mode); err != nil {
		t.Fatal(err)
	}
}

// A store that was closed can be checked and exported where nothing can be written;
// of one that was not, it is said what cannot be read.
func TestReadOnlyStore(t *testing.T) {
	as := unprivileged(t)
	made := filepath.Join(t.TempDir(), "asof.db")
	s := startServer(t, program, "sqlite:"+made, "--demo")
	s.text(t, `mutation { createTag(input: { key: "new", data: { name: "New", description: "" } }) { __typename } }`, nil)
	unclosed := readable(t, made, "", "-wal", ".lock")
	shared := readable(t, made, "", "-wal", "-shm", ".lock")
	setMode(t, made, 0o644)
	setMode(t, made+".lock", 0o644)
	setMode(t, filepath.Dir(made), 0o755)
	if os.Getuid() == 0 {
		for _, command := range []string{"check", "export"} {
			if said, status := as(command, "--store=sqlite:"+made); status != 1 || !strings.Contains(said, "another process is using it") {
				t.Errorf("%s of a store that is being served: status %d: %s", command, status, said)
			}
		}
	}
	whole := filepath.Join(t.TempDir(), "asof.db")
	for _, suffix := range []string{"", "-wal"} {
		copyFile(t, made+suffix, whole+suffix, 0o600)
	}
	run(t, program, "check", "--store=sqlite:"+whole)
	want := run(t, program, "export", "--store=sqlite:"+whole)
	if !strings.Contains(want, `"id":"new"`) {
		t.Fatal("the store lacks what was written last")
	}
	run(t, program, "import", "--store=sqlite:"+whole, emptyFile(t)) // and closed

	alone := readable(t, whole, "")
	copyFile(t, emptyFile(t), whole+"-wal", 0o600)
	for name, store := range map[string]string{
		"without a lock":                    alone,
		"with a lock":                       readable(t, whole, "", ".lock"),
		"an empty log":                      readable(t, whole, "", "-wal", ".lock"),
		"not closed, with all of its files": shared,
	} {
		if said, status := as("check", "--store=sqlite:"+store); status != 0 || !strings.Contains(said, " is sound: ") {
			t.Errorf("check, %s: status %d: %s", name, status, said)
		}
		if said, status := as("export", "--store=sqlite:"+store); status != 0 || said != want {
			t.Errorf("export, %s: status %d: %.500s", name, status, said)
		}
	}
	for name, args := range map[string][]string{"serve": {"serve", "--addr=127.0.0.1:0"}, "import": {"import", "-"}} {
		if said, status := as(append(args, "--store=sqlite:"+alone)...); status != 1 || !strings.Contains(said, "cannot write in the directory") {
			t.Errorf("%s: status %d: %s", name, status, said)
		}
	}
	for _, command := range []string{"check", "export"} {
		if said, status := as(command, "--store=sqlite:"+unclosed); status != 1 || !strings.Contains(said, "asof.db-wal holds can only be read where") {
			t.Errorf("%s of a store that was not closed: status %d: %s", command, status, said)
		}
	}
}
