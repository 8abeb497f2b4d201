package httpapi

import (
	"log/slog"
	"net/http"
)

// Refusal is why a request was refused before it was read: a label of metrics,
// and in the log.
type Refusal string

// The reasons. A page that tries to use somebody's browser against the API fails
// for one of the first three.
const (
	RefusedHost     Refusal = "host"         // a name that is not this server's
	RefusedType     Refusal = "content-type" // a body that is not said to be JSON
	RefusedOrigin   Refusal = "origin"       // of a WebSocket or a GET
	RefusedEncoding Refusal = "content-encoding"
	RefusedMethod   Refusal = "method"
	RefusedUpgrade  Refusal = "upgrade"    // no WebSocket that is spoken here
	RefusedSockets  Refusal = "websockets" // too many are open
)

// Refuse answers a request that is not looked into with one error, and logs and
// counts that.
func (h *Handler) Refuse(w http.ResponseWriter, r *http.Request, why Refusal, status int, code, message string) {
	header := w.Header()
	request := header.Get("X-Request-Id")
	if request == "" {
		request = h.ids.of(r)
		header.Set("X-Request-Id", request)
	}
	h.metrics.refused.WithLabelValues(string(why)).Inc()
	h.cfg.Logger.LogAttrs(r.Context(), slog.LevelWarn, "request refused",
		slog.String("reason", string(why)),
		slog.Int("status", status),
		slog.String("method", r.Method),
		slog.String("path", r.URL.Path),
		slog.String("host", r.Host),
		slog.String("origin", r.Header.Get("Origin")),
		slog.String("contentType", r.Header.Get("Content-Type")),
		slog.String("request", request),
		slog.String("error", message))
	WriteError(w, status, code, message)
}
