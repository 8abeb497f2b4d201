package app

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/klauspost/compress/gzhttp"
	"github.com/klauspost/compress/zstd"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/rs/cors"
	"github.com/vektah/gqlparser/v2/ast"

	"github.com/asof/asof/internal/app/httpapi"
	"github.com/asof/asof/internal/web"
	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
)

// site is everything that the server has at its address.
type site struct {
	handler  http.Handler // everything
	api      *httpapi.Handler
	schema   *ast.Schema // that the API has
	noSchema bool        // clients may not ask for it
	engine   driver.Engine
	ahead    ahead
	metrics  *prometheus.Registry
	origins  []string
	anyHost  bool // the Host header may name any host
	logger   *slog.Logger
	shutting atomic.Bool
	unready  atomic.Value // string: why, as the log says; empty: it is ready
}

// assemble puts the parts at their paths.
func (s *site) assemble(types []*storage.Type) error {
	api, err := compressed(s.api)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/graphql", s.forPeople(s.noteOrigins(crossOrigin(s.origins, api))))
	mux.Handle("GET /graphiql", http.RedirectHandler("./", http.StatusFound))
	mux.HandleFunc("GET /healthz", healthz)
	mux.HandleFunc("GET /readyz", s.readyz)
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.metrics, promhttp.HandlerOpts{}))
	options, err := s.playground(types)
	if err != nil {
		return err
	}
	mux.Handle("/", web.Handler(options))
	s.handler = withHeaders(s.origins, s.guard(mux))
	return nil
}

// crossOrigin lets pages of these origins use the API.
func crossOrigin(origins []string, api http.Handler) http.Handler {
	if len(origins) == 0 {
		return api
	}
	return cors.New(cors.Options{
		AllowedOrigins: origins,
		AllowedMethods: []string{http.MethodGet, http.MethodPost},
		// Any: who may send them is decided by the origin. Clients add names of their
		// own (Apollo-Require-Preflight, Authorization, those of tracing …).
		AllowedHeaders: []string{"*"},
		ExposedHeaders: []string{"X-Request-Id", "Retry-After"},
		MaxAge:         600,
	}).Handler(api)
}

// withHeaders sets the headers that every answer has.
func withHeaders(origins []string, next http.Handler) http.Handler {
	nosniff, referrer := []string{"nosniff"}, []string{"no-referrer"}
	policy := []string{"default-src 'none'; frame-ancestors 'none'"}
	resource := []string{"same-origin"}
	if len(origins) > 0 {
		resource = []string{"cross-origin"}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header["X-Content-Type-Options"] = nosniff
		header["Referrer-Policy"] = referrer
		header["Content-Security-Policy"] = policy // the Playground's pages set their own
		header["Cross-Origin-Resource-Policy"] = resource
		next.ServeHTTP(w, r)
	})
}

// guard refuses names that are not this server's: a page of another site whose
// name was made to point here (DNS rebinding) would otherwise be of the same
// origin.
func (s *site) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.anyHost && !isLoopback(hostname(r.Host)) {
			s.api.Refuse(w, r, httpapi.RefusedHost, http.StatusMisdirectedRequest, httpapi.CodeForbidden,
				"this server answers to the names of this machine only (localhost, 127.0.0.1, [::1]), not to the one in the request's Host header; "+
					"let a proxy in front send Host: localhost, or start with --insecure-no-auth where the network is trusted")
			return
		}
		next.ServeHTTP(w, r)
	})
}

func hostname(hostport string) string {
	if host, _, err := net.SplitHostPort(hostport); err == nil {
		return host
	}
	return hostport
}

// compressed compresses answers for clients that can read them so: by gzip or by
// zstd, whichever they prefer, and gzip where they take both alike, as some say so
// and cannot read zstd. Small answers are not worth it.
func compressed(next http.Handler) (http.Handler, error) {
	wrap, err := gzhttp.NewWrapper(
		gzhttp.MinSize(2<<10),
		gzhttp.CompressionLevel(1),
		gzhttp.ZstdCompressionLevel(int(zstd.SpeedFastest)),
		gzhttp.PreferZstd(false),
		gzhttp.ContentTypes([]string{"application/json", "application/graphql-response+json"}),
	)
	if err != nil {
		return nil, err
	}
	zipped := wrap(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header["Upgrade"] == nil && acceptsCompressed(r) {
			zipped.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	}), nil
}

// acceptsCompressed reports whether a client may read what is compressed; the
// details are the wrapper's.
func acceptsCompressed(r *http.Request) bool {
	for _, line := range r.Header["Accept-Encoding"] {
		if strings.Contains(line, "gzip") || strings.Contains(line, "zstd") {
			return true
		}
	}
	return false
}

// healthz says that the process is up.
func healthz(w http.ResponseWriter, _ *http.Request) { plain(w, http.StatusOK, "ok") }

// readyz says whether requests can be answered: the store can be reached, and
// the server is not shutting down. Why it cannot be reached is in the log, once
// until it can or the reason is another one.
func (s *site) readyz(w http.ResponseWriter, r *http.Request) {
	if s.shutting.Load() {
		plain(w, http.StatusServiceUnavailable, "shutting down")
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
	defer cancel()
	if err := s.engine.Ping(ctx); err != nil {
		// That who asked has gone says nothing about the store.
		if reason := reasonOf(err); r.Context().Err() == nil && s.unready.Swap(reason) != reason {
			s.logger.Warn("not ready: the store cannot be reached", "error", err)
		}
		plain(w, http.StatusServiceUnavailable, "the store cannot be reached")
		return
	}
	if before := s.unready.Swap(""); before != nil && before != "" {
		s.logger.Info("ready again: the store can be reached")
	}
	plain(w, http.StatusOK, "ready")
}

// reasonOf is what an error says without what is another each time, such as how
// long it took: the words of what caused it, or else what follows a colon.
func reasonOf(err error) string {
	e, ok := errors.AsType[*driver.Error](err)
	if !ok || e.Cause == nil {
		reason, _, _ := strings.Cut(err.Error(), ": ")
		return reason
	}
	if said := strings.TrimSuffix(e.Message, e.Cause.Error()); said != "" {
		return said
	}
	return reasonOf(e.Cause)
}

const readyTimeout = 2 * time.Second

func plain(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text + "\n"))
}
