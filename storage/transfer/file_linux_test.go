package transfer

import (
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"unsafe"
)

// A file that has the permissions that it is to have is written also where nobody may
// set them, as on a disk that was mounted as somebody else's.
func TestCreateFileWhereNobodyOwnsFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.ndjson")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	withoutChmod(t)
	f, err := CreateFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Commit(); err != nil {
		t.Error(err)
	}
}

// withoutChmod makes the kernel refuse to set permissions to this thread, which nobody
// else gets.
func withoutChmod(t *testing.T) {
	t.Helper()
	runtime.LockOSThread() // until the test ends, and the thread with it
	const (
		setNoNewPrivileges, setFilter = 38, 2                                       // of prctl(2)
		refuse, allow                 = 0x50000 | uint32(syscall.EPERM), 0x7fff0000 // what a filter answers: seccomp(2)
	)
	filter := []syscall.SockFilter{
		{Code: syscall.BPF_LD | syscall.BPF_W | syscall.BPF_ABS, K: 0}, // the call
		{Code: syscall.BPF_JMP | syscall.BPF_JEQ | syscall.BPF_K, Jf: 1, K: syscall.SYS_FCHMOD},
		{Code: syscall.BPF_RET, K: refuse},
		{Code: syscall.BPF_RET, K: allow},
	}
	program := syscall.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if _, _, err := syscall.Syscall6(syscall.SYS_PRCTL, setNoNewPrivileges, 1, 0, 0, 0, 0); err != 0 {
		t.Skip(err)
	}
	if _, _, err := syscall.Syscall(syscall.SYS_PRCTL, syscall.PR_SET_SECCOMP, setFilter, uintptr(unsafe.Pointer(&program))); err != 0 {
		t.Skip(err)
	}
}
