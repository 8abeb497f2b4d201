package sqlitestore

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/asof/asof/storage/driver"
)

// A file that is in use is refused by all of its names, and nothing is made beside
// the other one that would be taken for its log.
func TestTwoServersOnLinkedFiles(t *testing.T) {
	one, other := filepath.Join(t.TempDir(), "asof.db"), filepath.Join(t.TempDir(), "asof.db")
	s, err := open(t.Context(), one, Options{Collections: benchDeclared()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }() // again, where the test goes on
	if err := os.Link(one, other); err != nil {
		t.Fatal(err)
	}
	write := &driver.Write{ID: "w", Collection: benchCollection, Key: "k", Op: driver.OpCreate, Data: []byte(`{}`)}
	for range 2 {
		second, err := open(t.Context(), other, Options{Collections: benchDeclared()})
		if driver.CodeOf(err) != driver.CodeUnavailable || !strings.Contains(err.Error(), "is using it by another name") {
			t.Fatalf("%v, %v", second, err)
		}
	}
	if _, err := os.Stat(other + "-wal"); !os.IsNotExist(err) {
		t.Errorf("a log was made: %v", err)
	}
	if _, err := driver.CommitOne(t.Context(), s, write); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	second, err := open(t.Context(), other, Options{Collections: benchDeclared()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := second.Close(); err != nil {
			t.Error(err)
		}
	}()
	if got, err := second.Get(t.Context(), benchCollection, []driver.Ref{{Key: "k", At: driver.Forever}}, nil); err != nil || got[0] == nil {
		t.Errorf("%v, %v", got, err)
	}
}

// withoutOpenFileLocks makes the kernel answer this thread, which nobody else gets,
// as one does that does not know such locks.
func withoutOpenFileLocks(t *testing.T) {
	t.Helper()
	runtime.LockOSThread() // until the test ends, and the thread with it
	const (
		setNoNewPrivileges, setFilter = 38, 2 // of prctl(2)
		call, command                 = 0, 24 // where a filter finds them: seccomp(2)
		refuse, allow                 = 0x50000 | uint32(syscall.EINVAL), 0x7fff0000
	)
	load := func(at uint32) syscall.SockFilter {
		return syscall.SockFilter{Code: syscall.BPF_LD | syscall.BPF_W | syscall.BPF_ABS, K: at}
	}
	unless := func(is uint32, skip uint8) syscall.SockFilter {
		return syscall.SockFilter{Code: syscall.BPF_JMP | syscall.BPF_JEQ | syscall.BPF_K, Jf: skip, K: is}
	}
	answer := func(what uint32) syscall.SockFilter { return syscall.SockFilter{Code: syscall.BPF_RET, K: what} }
	filter := []syscall.SockFilter{load(call), unless(syscall.SYS_FCNTL, 3), load(command), unless(setOpenFileLock, 1), answer(refuse), answer(allow)}
	program := syscall.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if _, _, err := syscall.Syscall6(syscall.SYS_PRCTL, setNoNewPrivileges, 1, 0, 0, 0, 0); err != 0 {
		t.Skip(err)
	}
	if _, _, err := syscall.Syscall(syscall.SYS_PRCTL, syscall.PR_SET_SECCOMP, setFilter, uintptr(unsafe.Pointer(&program))); err != 0 {
		t.Skip(err)
	}
}

// Where the system has no locks of an open file, the lock file is what there is.
func TestSystemWithoutOpenFileLocks(t *testing.T) {
	withoutOpenFileLocks(t)
	path := filepath.Join(t.TempDir(), "asof.db")
	s, err := open(t.Context(), path, Options{Collections: benchDeclared()})
	if err != nil {
		t.Fatal(err)
	}
	if second, err := open(t.Context(), path, Options{Collections: benchDeclared()}); driver.CodeOf(err) != driver.CodeUnavailable {
		t.Errorf("%v, %v", second, err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
