package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/99designs/gqlgen/graphql"
	"github.com/99designs/gqlgen/graphql/handler/transport"
	coderws "github.com/coder/websocket"
	"golang.org/x/sync/semaphore"
)

// subprotocol is the only one that is spoken; the older graphql-ws is not.
const subprotocol = "graphql-transport-ws"

const (
	socketInit = 10 * time.Second // from the upgrade to connection_init
	socketPing = 20 * time.Second // a connection without a pong for two of these is closed
)

func (h *Handler) newSocket() transport.Websocket {
	limit := h.cfg.Limits.Body
	return transport.Websocket{
		InitTimeout:      socketInit,
		PingPongInterval: socketPing,
		PayloadReadLimit: &limit,
	}
}

// serveSocket upgrades a request and serves the WebSocket until it is closed.
func (h *Handler) serveSocket(w http.ResponseWriter, r *http.Request, op *operation) {
	if p := h.checkSocket(r); p != nil {
		why := RefusedUpgrade
		if p.status == http.StatusForbidden {
			why = RefusedOrigin
		}
		h.Refuse(w, r, why, p.status, p.code, p.message)
		return
	}
	if !h.sockets.TryAcquire(1) {
		w.Header().Set("Retry-After", "10")
		h.Refuse(w, r, RefusedSockets, http.StatusServiceUnavailable, CodeUnavailable, "too many WebSockets are open; try again in a moment")
		return
	}
	defer h.sockets.Release(1)
	h.metrics.webSockets.Inc()
	defer h.metrics.webSockets.Dec()

	ctx, cancel := context.WithCancel(graphql.StartOperationTrace(r.Context()))
	defer cancel()
	defer context.AfterFunc(h.closing, cancel)()
	conn := &connection{h: h, request: op.request, places: semaphore.NewWeighted(int64(h.cfg.Limits.PerSocket)), answers: newAnswers()}
	var opened *socket
	socket := h.socket
	socket.Implementation = sockets{
		options: coderws.AcceptOptions{
			Subprotocols:       []string{subprotocol},
			InsecureSkipVerify: true, // checkSocket has checked the origin
		},
		patience: h.cfg.Limits.Time, now: h.cfg.Now, answers: conn.answers, talk: newConversation(), opened: &opened,
	}
	socket.InitFunc = func(ctx context.Context, payload transport.InitPayload) (context.Context, *transport.InitPayload, error) {
		if h.cfg.Identify == nil {
			return ctx, nil, nil
		}
		identified, actor, err := h.cfg.Identify(withPayload(r.Clone(ctx), payload))
		if err != nil {
			refused := violation{closeForbidden, "Forbidden: " + err.Error()}
			return ctx, nil, errors.Join(err, opened.WriteClose(refused.code, refused.text()))
		}
		conn.actor = actor
		return identified, nil, nil
	}
	defer func() {
		if opened != nil {
			// gqlgen leaves a connection open whose message it cannot read, or that
			// made it panic.
			_ = opened.WriteClose(closeInvalid, "the message cannot be read") // it never fails
		}
	}()
	socket.Do(w, r.WithContext(ctx), conn)
}

// withPayload adds the strings of a connection_init payload as headers, where
// the upgrade had none of that name: scripts in browsers cannot set headers
// of an upgrade.
func withPayload(r *http.Request, payload transport.InitPayload) *http.Request {
	for name := range payload {
		if value := payload.GetString(name); value != "" && r.Header.Get(name) == "" {
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
