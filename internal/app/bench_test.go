package app

import (
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/asof/asof/internal/app/admission"
	"github.com/asof/asof/internal/demo"
	"github.com/asof/asof/internal/fixture/graph/model"
	"github.com/asof/asof/internal/fixture/resolvers"
)

// benchSite is a server over the demo's store.
func benchSite(b *testing.B) *site {
	b.Helper()
	m := Main{Types: model.Types, Schema: resolvers.NewSchema, Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: io.Discard, Now: time.Now}
	if _, err := m.ParseFlags([]string{"serve", "--store=sqlite:" + filepath.Join(b.TempDir(), "asof.db"), "--log-level=warn"}); err != nil {
		b.Fatal(err)
	}
	store, err := m.openStore(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := store.Engine().Close(); err != nil {
			b.Error(err)
		}
	})
	if _, err := demo.Fill(b.Context(), store); err != nil {
		b.Fatal(err)
	}
	site, err := m.newSite(store, m.logger())
	if err != nil {
		b.Fatal(err)
	}
	return site
}

// benchRequest sends one request through everything but the network.
func benchRequest(b *testing.B, site *site, body string) {
	b.Helper()
	r := httptest.NewRequest(http.MethodPost, "http://localhost/graphql", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	site.handler.ServeHTTP(w, r)
	if w.Code != http.StatusOK || strings.Contains(w.Body.String(), `"errors"`) {
		b.Fatal(w.Code, w.Body)
	}
}

func BenchmarkServe(b *testing.B) {
	site := benchSite(b)
	for _, c := range []struct{ name, body string }{
		{"nothing", `{"query":"{__typename}"}`},
		{"point", `{"query":"query Q($key: ID!) {project(key: $key) {name stars archived websiteUrl updatedAt}}","variables":{"key":"hearth"}}`},
		{"point as of", `{"query":"query Q($key: ID!) {project(key: $key, asOf: \"2025-07-01T00:00:00Z\") {name stars archived websiteUrl updatedAt}}","variables":{"key":"hearth"}}`},
		{"page", `{"query":"{projects(first: 50) {nodes {name stars archived websiteUrl updatedAt}}}"}`},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				benchRequest(b, site, c.body)
			}
		})
	}
}

// What places and memory are asked for takes of requests, in alternation with these: "ratio" is
// how long a request takes without that, to how long it takes.
func BenchmarkBudgets(b *testing.B) {
	site := benchSite(b)
	gate := admission.NewGate(admission.Config{Fast: 4, PerClient: 1, Slow: 1, Write: 4, Long: time.Second, Wait: time.Second, WaitSlow: time.Second, Now: time.Now})
	memory := admission.NewBudget(1<<30, 16<<10)
	for _, c := range []struct {
		name, body string
		mayBeLong  bool
	}{
		{"point", `{"query":"query Q($key: ID!) {project(key: $key) {name stars archived websiteUrl updatedAt}}","variables":{"key":"hearth"}}`, false},
		{"page", `{"query":"{projects(first: 50) {nodes {name stars archived websiteUrl updatedAt}}}"}`, true},
	} {
		b.Run(c.name, func(b *testing.B) {
			var requests, budgets time.Duration
			for b.Loop() {
				began := time.Now()
				benchRequest(b, site, c.body)
				served := time.Now()
				hold := memory.Hold("client")
				place, err := gate.Enter(b.Context(), "client", false)
				if err == nil {
					err = place.Operation(b.Context(), "Q", c.body, c.mayBeLong, false)
				}
				for range 3 { // for the body, the parameters, and what is read
					if err == nil {
						err = hold.Grow(1 << 10)
					}
				}
				if err != nil {
					b.Fatal(err)
				}
				place.Leave(true)
				hold.Set(0)
				requests, budgets = requests+served.Sub(began), budgets+time.Since(served)
			}
			b.ReportMetric(float64(requests-budgets)/float64(requests), "ratio")
		})
	}
}
