package sqlitestore

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/asof/asof/storage/driver"
)

// crashEnv makes the test binary a process that writes until it is killed,
// and names the file that it writes to.
const crashEnv = "SQLITESTORE_CRASH_TEST_FILE"

func TestMain(m *testing.M) {
	if path := os.Getenv(crashEnv); path != "" {
		if err := writeUntilKilled(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// writeUntilKilled commits from several goroutines, and prints each commit
// after it was acknowledged.
func writeUntilKilled(path string) error {
	s, err := Open(context.Background(), path, Options{Collections: benchDeclared()})
	if err != nil {
		return err
	}
	var out sync.Mutex
	errs := make(chan error)
	for me := range 8 {
		go func() {
			key := benchKey(me)
			got, err := s.Get(context.Background(), benchCollection, []driver.Ref{{Key: key, At: driver.Forever}}, nil)
			if err != nil {
				errs <- err
				return
			}
			n := int64(0)
			if got[0] != nil {
				n = got[0].Number
			}
			for ; ; n++ {
				v, err := s.Commit(context.Background(), &driver.Write{
					ID: fmt.Sprintf("%s-%d", key, n), Collection: benchCollection, Key: key, Expected: n, Op: driver.OpUpdate,
					Data: benchData(me, int(n), int(n)),
				})
				if err != nil {
					errs <- err
					return
				}
				out.Lock()
				fmt.Printf("%s %d %d\n", key, v.Number, v.RecordedAt)
				out.Unlock()
			}
		}()
	}
	return <-errs
}

// What was acknowledged is there after the process was killed, and nothing is
// half written. The lock goes with the process.
func TestAcknowledgedCommitsSurviveAKill(t *testing.T) {
	path := filepath.Join(t.TempDir(), "asof.db")
	acknowledged := map[string]int64{}
	for round := range 4 {
		child := exec.CommandContext(t.Context(), os.Args[0])
		child.Env = append(os.Environ(), crashEnv+"="+path)
		child.Stderr = os.Stderr
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		seen := 0
		for lines.Scan() {
			var key string
			var number, at int64
			if n, err := fmt.Sscan(lines.Text(), &key, &number, &at); err != nil || n != 3 {
				break // cut off by the kill
			}
			acknowledged[key] = max(acknowledged[key], number)
			// Go on reading after the kill: those lines were acknowledged too.
			if seen++; seen == 100+37*round {
				if err := child.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := child.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
			t.Fatalf("the child ended with %v after %d commits", err, seen)
		}
		s, err := Open(t.Context(), path, Options{Collections: benchDeclared()})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Check(t.Context(), func(problem string) { t.Error(problem) }); err != nil {
			t.Error(err)
		}
		for key, number := range acknowledged {
			got, err := s.Get(t.Context(), benchCollection, []driver.Ref{{Key: key, Number: number}}, nil)
			if err != nil || got[0] == nil {
				t.Errorf("round %d: %s version %d was acknowledged: got %v, %v", round, key, number, got, err)
			}
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
