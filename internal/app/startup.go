package app

import (
	"net/http"
	"sync/atomic"

	"github.com/asof/asof/internal/app/httpapi"
)

// startup is what the server has at its address from the start: it says that the
// store is opening, which may take long, and leads to the site from then on.
type startup struct {
	opening http.Handler
	site    atomic.Pointer[site]
}

func newStartup(origins []string) *startup {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", healthz)
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { opening(w) })
	mux.Handle("/graphql", crossOrigin(origins, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "1")
		httpapi.WriteError(w, http.StatusServiceUnavailable, httpapi.CodeUnavailable,
			"the store is opening; try again in a moment; nothing was written")
	})))
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { opening(w) })
	return &startup{opening: withHeaders(origins, mux)}
}

func opening(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "1")
	plain(w, http.StatusServiceUnavailable, "the store is opening")
}

// open lets requests in.
func (d *startup) open(s *site) { d.site.Store(s) }

func (d *startup) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s := d.site.Load(); s != nil {
		s.handler.ServeHTTP(w, r)
		return
	}
	d.opening.ServeHTTP(w, r)
}
