package httpapi

import (
	"fmt"
	"net/http"
	"strings"
)

// withPayload adds the strings of a connection_init payload as headers, where
// the upgrade had none of that name: scripts in browsers cannot set headers
// of an upgrade.
func withPayload(r *http.Request, payload map[string]any) *http.Request {
	for name := range payload {
		if value, _ := payload[name].(string); value != "" && r.Header.Get(name) == "" {
			r.Header.Set(name, value)
		}
	}
	return r
}

// checkSocket refuses what cannot become a WebSocket of this API.
func (h *Handler) checkSocket(r *http.Request) *problem {
	bad := func(message string) *problem {
		return &problem{http.StatusBadRequest, CodeBadInput, message}
	}
	switch {
	case r.Method != http.MethodGet || !mentions(r.Header, "Upgrade", "websocket") || !mentions(r.Header, "Connection", "upgrade"):
		return bad("only an upgrade to a WebSocket is supported")
	case r.Header.Get("Sec-Websocket-Version") != "13" || r.Header.Get("Sec-Websocket-Key") == "":
		return bad("this is not a WebSocket handshake of version 13")
	case !mentions(r.Header, "Sec-Websocket-Protocol", subprotocol):
		return bad("the WebSocket must offer the subprotocol " + subprotocol)
	}
	if h.mayUse(r) {
		return nil
	}
	return &problem{http.StatusForbidden, CodeForbidden, fmt.Sprintf("pages of %s may not use this API (see --cors-origin)", r.Header.Get("Origin"))}
}

// mentions reports whether a header that is a list holds a token.
func mentions(header http.Header, name, token string) bool {
	for _, line := range header[name] {
		for part := range strings.SplitSeq(line, ",") {
			if strings.EqualFold(strings.TrimSpace(part), token) {
				return true
			}
		}
	}
	return false
}
