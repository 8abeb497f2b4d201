package app

import (
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/asof/asof/internal/demo"
	"github.com/asof/asof/internal/fixture/graph/model"
	"github.com/asof/asof/internal/fixture/resolvers"
)

// One request through everything but the network, over the demo's store.
func BenchmarkServe(b *testing.B) {
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
	for _, c := range []struct{ name, body string }{
		{"nothing", `{"query":"{__typename}"}`},
		{"point", `{"query":"query Q($key: ID!) {project(key: $key) {name stars archived websiteUrl updatedAt}}","variables":{"key":"hearth"}}`},
		{"point as of", `{"query":"query Q($key: ID!) {project(key: $key, asOf: \"2025-07-01T00:00:00Z\") {name stars archived websiteUrl updatedAt}}","variables":{"key":"hearth"}}`},
		{"page", `{"query":"{projects(first: 50) {nodes {name stars archived websiteUrl updatedAt}}}"}`},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r := httptest.NewRequest(http.MethodPost, "http://localhost/graphql", strings.NewReader(c.body))
				r.Header.Set("Content-Type", "application/json")
				w := httptest.NewRecorder()
				site.handler.ServeHTTP(w, r)
				if w.Code != http.StatusOK || strings.Contains(w.Body.String(), `"errors"`) {
					b.Fatal(w.Code, w.Body)
				}
			}
		})
	}
}
