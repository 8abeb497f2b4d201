package e2e

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Documents that are brought into today's form are rewritten once each, also where that is killed in the middle and
// begun again; what is read is the same all the time.
func TestRewritingKilled(t *testing.T) {
	const documents = 1000
	var history strings.Builder
	for n := range documents {
		fmt.Fprintf(&history, `{"collection":"readings","id":"k%d","at":"2020-01-01T00:00:00Z","by":"ann","op":"put","data":{"value":%d,"remarks":"loud"}}`+"\n", n, n)
	}
	rewritten := func(export string) (n int) { return strings.Count(export, `"by":"asof"`) }
	for range 10 { // on a busy machine it may end before it is killed
		file := filepath.Join(t.TempDir(), "rewrite.db")
		store := "sqlite:" + file
		feed(t, store, history.String())
		size := sizeOf(t, file)
		apply := exec.Command(program, "schema", "apply", "--rewrite", "--store", store)
		killed := killWhen(t, apply, func() bool { return sizeOf(t, file) > size+8<<20 })
		run(t, program, "check", "--store", store)
		before := rewritten(run(t, program, "export", "--store", store, "-"))
		t.Logf("killed: %t, when %d of %d were rewritten", killed, before, documents)
		said := run(t, program, "schema", "apply", "--rewrite", "--store", store)
		if want := fmt.Sprintf("Reading: rewrote %d documents\n", documents-before); !strings.Contains(said, want) {
			t.Errorf("then it says %q, want %q", said, want)
		}
		run(t, program, "check", "--store", store)
		after := run(t, program, "export", "--store", store, "-")
		if n, lines := rewritten(after), strings.Count(after, "\n"); n != documents || lines != 2*documents || strings.Count(after, `"remarks":["loud"]`) != n || t.Failed() {
			t.Fatalf("%d of %d versions are of %d rewritten documents", n, lines, documents)
		}
		once := map[string]int{}
		for line := range strings.Lines(after) {
			_, rest, _ := strings.Cut(line, `"id":"`)
			id, _, _ := strings.Cut(rest, `"`)
			if once[id]++; once[id] > 2 {
				t.Fatalf("%s was rewritten twice", id)
			}
		}
		if killed && before > 0 && before < documents {
			return
		}
	}
	t.Error("it always ended, or was killed, before or after all were rewritten")
}
