package app

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/asof/asof/internal/fixture/graph/model"
	"github.com/asof/asof/internal/fixture/resolvers"
)

const saysAhead = "the store's clock is ahead of this machine's"

// A store that was written while a clock was an hour ahead says so when it is opened.
func TestStoreAheadOfTheClock(t *testing.T) {
	store := "--store=sqlite:" + filepath.Join(t.TempDir(), "asof.db")
	later := func() time.Time { return time.Now().Add(time.Hour) }
	line := `{"collection":"tags","id":"a","at":"` + later().UTC().Format(time.RFC3339) + `","by":"ada","op":"put","data":{"name":"A","description":""}}` + "\n"
	var out, errs safeBuffer
	m := Main{Types: model.Types, Schema: resolvers.NewSchema, Stdin: strings.NewReader(line), Stdout: &out, Stderr: &errs, Now: later}
	if status := m.Run(t.Context(), []string{"import", "-", store}); status != 0 {
		t.Fatal(errs.String())
	}
	p := serve(t, store)
	p.query(t, "{__typename}")
	p.stop()
	if log := p.stderr.String(); strings.Count(log, saysAhead) != 1 || !strings.Contains(log, "ahead=59m") || strings.Index(log, saysAhead) > strings.Index(log, "msg=operation") {
		t.Errorf("log: %s", log)
	}
	p = serve(t)
	p.query(t, "{__typename}")
	p.stop()
	if log := p.stderr.String(); strings.Contains(log, saysAhead) {
		t.Errorf("log: %s", log)
	}
}
