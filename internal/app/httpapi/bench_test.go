package httpapi

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/99designs/gqlgen/graphql/handler"
	gqlgenlru "github.com/99designs/gqlgen/graphql/handler/lru"
	"github.com/99designs/gqlgen/graphql/handler/transport"
	"github.com/vektah/gqlparser/v2/ast"
)

// What this package adds to a request, against gqlgen's own server with
// nothing but a cache of documents: the same schema, the same answer.
func BenchmarkRequest(b *testing.B) {
	const body = `{"query":"query Q($key: String!) {hello(name: $key)}","variables":{"key":"vaultwarden"}}`
	own := newServer(b, func(cfg *Config, _ *fakeSchema) {
		cfg.Logger = slog.New(slog.NewTextHandler(struct{ io.Writer }{io.Discard}, nil))
	})
	silent := newServer(b, func(cfg *Config, _ *fakeSchema) {
		cfg.Logger = slog.New(slog.DiscardHandler)
	})
	plain := handler.New(newFakeSchema(b))
	plain.AddTransport(transport.POST{})
	plain.SetQueryCache(gqlgenlru.New[*ast.QueryDocument](100))
	for _, c := range []struct {
		name    string
		handler http.Handler
	}{{"gqlgen", plain}, {"httpapi", own.handler}, {"httpapi, no log", silent.handler}} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
				r.Header.Set("Content-Type", mediaJSON)
				w := httptest.NewRecorder()
				c.handler.ServeHTTP(w, r)
				if w.Code != http.StatusOK {
					b.Fatal(w.Code, w.Body)
				}
			}
		})
	}
}
