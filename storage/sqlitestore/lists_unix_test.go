//go:build unix

package sqlitestore

import (
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/asof/asof/storage/driver"
)

// spent is the time that the processors gave to this process: unlike what a
// clock shows, it does not depend on what else the machine does.
func spent(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// A long list must not stop the writer: the work of indexing it does not grow
// with the square of its length.
func TestLongLists(t *testing.T) {
	s := openThings(t, filepath.Join(t.TempDir(), "asof.db"), driver.Index{Path: []string{"l"}, Kind: driver.KindString, List: true})
	list := func(prefix string, n int) []byte {
		var b strings.Builder
		b.WriteString(`{"l":[`)
		for i := range n {
			fmt.Fprintf(&b, `"%s%d",`, prefix, i*7919%n)
		}
		return []byte(b.String() + `"last"]}`)
	}
	// Lists of both lengths are changed in turn, each to one of the same length,
	// and then to one half as long. The least that an update took counts, and more
	// are made as long as something else may be why they differ.
	lengths := []int{3_000, 30_000}
	least := map[int]time.Duration{}
	// Ten times the length is about ten times the work; comparing each element
	// with each, a hundred times.
	apart := func() bool { return least[lengths[1]] > 25*least[lengths[0]] }
	const enough, most = 3, 20
	for i := 0; i < enough || i < most && apart(); i++ {
		prefix := string(rune('a' + i))
		for _, n := range lengths {
			for half, data := range [][]byte{list(prefix, n), list(prefix, n/2)} {
				number := int64(2*i + half)
				write := &driver.Write{ID: fmt.Sprint(n, number), Collection: "things", Key: fmt.Sprint(n), Expected: number, Op: driver.OpUpdate, Data: data}
				before := spent(t)
				if _, err := driver.CommitOne(t.Context(), s, write); err != nil {
					t.Fatal(err)
				}
				took := spent(t) - before
				if first := number == 0; !first && half == 0 && (least[n] == 0 || took < least[n]) {
					least[n] = took
				}
			}
		}
	}
	if apart() {
		t.Errorf("a list of %d takes %v of a processor, one of %d %v", lengths[1], least[lengths[1]], lengths[0], least[lengths[0]])
	}
	if err := s.Check(t.Context(), func(problem string) { t.Error(problem) }); err != nil {
		t.Error(err)
	}
}
