package app

import (
	"context"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/asof/asof/internal/fixture/graph/model"
	"github.com/asof/asof/internal/fixture/resolvers"
	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/drivertest"
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

// fastClock is an engine whose clock is ahead by a duration.
type fastClock struct {
	driver.Engine
	by atomic.Int64
}

func (h *fastClock) Now(ctx context.Context) (driver.Instant, error) {
	now, err := h.Engine.Now(ctx)
	return now + driver.Instant(time.Duration(h.by.Load())/time.Microsecond), err
}

// A clock that gets ahead later is warned of once, and once more when it does so again.
func TestClockGetsAhead(t *testing.T) {
	engine := &fastClock{Engine: drivertest.NewModel(time.Now, storage.CollectionsOf(model.Types))}
	var errs safeBuffer
	m := Main{Types: model.Types, Schema: resolvers.NewSchema, Stdin: strings.NewReader(""), Stdout: &errs, Stderr: &errs, Now: time.Now}
	handler, err := m.Handler(engine)
	if err != nil {
		t.Fatal(err)
	}
	for i, step := range []struct {
		by   time.Duration
		said int
	}{{0, 0}, {time.Hour, 1}, {time.Hour, 1}, {0, 1}, {time.Hour, 2}} {
		engine.by.Store(int64(step.by))
		r := httptest.NewRequestWithContext(t.Context(), "POST", "http://localhost/graphql", strings.NewReader(`{"query":"{tag(key:\"a\"){name}}"}`))
		r.Header.Set("Content-Type", "application/json")
		handler.ServeHTTP(httptest.NewRecorder(), r)
		if said := strings.Count(errs.String(), saysAhead); said != step.said {
			t.Errorf("step %d: said %d times, want %d:\n%s", i, said, step.said, errs.String())
		}
	}
}
