//go:build unix

package app

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A write that the store refuses, because its file is gone, is known not to have
// happened; what went wrong in detail is in the log.
func TestWriteWithoutAFileIsRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "asof.db")
	p := serve(t, "--demo", "--store=sqlite:"+file)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if got := p.do(t, "GET", "/readyz", ""); got.status != 503 { // and now writers look, too
		t.Errorf("/readyz: status %d: %s", got.status, got.body)
	}
	got := p.query(t, `mutation {createTag(input: {key: "new", data: {name: "New", description: ""}}) {__typename}}`).body
	for _, text := range []string{`"code":"UNAVAILABLE"`, "the store takes no writes: its file was removed or replaced; nothing was written"} {
		if !strings.Contains(got, text) {
			t.Errorf("no %s in %s", text, got)
		}
	}
	if strings.Contains(got, file) || strings.Contains(got, "send the same write again") {
		t.Errorf("clients get: %s", got)
	}
	p.stop()
	if log := p.stderr.String(); !strings.Contains(log, "asof.db was deleted or moved away") {
		t.Errorf("log: %s", log)
	}
}
