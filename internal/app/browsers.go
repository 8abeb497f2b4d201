package app

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
)

// forPeople shows somebody who opens the API in a browser where to go instead.
func (s *site) forPeople(api http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || r.URL.RawQuery != "" || r.Header["Upgrade"] != nil ||
			!strings.Contains(r.Header.Get("Accept"), "text/html") {
			api.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write([]byte("<!doctype html><title>asof</title>" +
			"<p>Programs send GraphQL here. People find the <a href=\"./\">Playground</a> one step up.\n"))
	})
}

// maxOrigins bounds how many origins are named in the log.
const maxOrigins = 20

// noteOrigins logs, once for each, the origins whose pages are refused by their
// browser: there is nothing else that a person would find.
func (s *site) noteOrigins(api http.Handler) http.Handler {
	var mu sync.Mutex
	seen := make(map[string]bool, maxOrigins)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if origin := r.Header.Get("Origin"); origin != "" && !slices.Contains(s.origins, origin) && !sameOrigin(origin, r.Host) {
			mu.Lock()
			first := !seen[origin] && len(seen) < maxOrigins
			if first {
				seen[origin] = true
			}
			mu.Unlock()
			if first {
				s.logger.WarnContext(r.Context(), "a browser keeps the answers from pages of this origin; to allow it, start with --cors-origin", "origin", origin)
			}
		}
		api.ServeHTTP(w, r)
	})
}

// sameOrigin reports whether a page was loaded from the host that it asks.
func sameOrigin(origin, host string) bool {
	u, err := url.Parse(origin)
	return err == nil && strings.EqualFold(u.Host, host)
}
