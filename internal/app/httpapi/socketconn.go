package httpapi

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/99designs/gqlgen/graphql/handler/transport"
)

// strictSockets accepts WebSockets whose messages must be JSON in valid UTF-8,
// as the bodies of requests must be: decoding would replace what is not
// silently, and it could then be stored.
// A client that takes nothing is dropped: its answers would hold the places of
// their operations.
type strictSockets struct {
	transport.WebsocketImplementation
	patience time.Duration // to send a message
}

// Accept upgrades a request.
func (s strictSockets) Accept(w http.ResponseWriter, r *http.Request, options transport.WebsocketAcceptOptions) (transport.WebsocketConn, error) {
	conn, err := s.WebsocketImplementation.Accept(w, r, options)
	if err != nil {
		return nil, err
	}
	return &strictConn{conn, s.patience}, nil
}

type strictConn struct {
	transport.WebsocketConn
	patience time.Duration
}

var _ interface {
	transport.WebsocketReadLimiter
	transport.WebsocketReadDeadliner
} = (*strictConn)(nil)

// closeInvalid is graphql-transport-ws's code for a message that it cannot read.
const closeInvalid = 4400

// NextReader reads a message.
func (c *strictConn) NextReader() (int, io.Reader, error) {
	kind, reader, err := c.WebsocketConn.NextReader()
	if err != nil {
		return kind, nil, err
	}
	text, err := io.ReadAll(reader)
	if err != nil {
		return kind, nil, err
	}
	if p := checkJSON(text, "the message"); p != nil {
		reason := p.message
		const longest = 123 // bytes in a close frame
		if len(reason) > longest {
			reason = reason[:longest]
		}
		return kind, nil, errors.Join(errors.New(reason), c.WriteClose(closeInvalid, reason))
	}
	return kind, bytes.NewReader(text), nil
}

// WriteJSON sends a message.
func (c *strictConn) WriteJSON(v any) error {
	late := time.AfterFunc(c.patience, func() { _ = c.Close() }) // its error is that of writing
	defer late.Stop()
	return c.WebsocketConn.WriteJSON(v)
}

// SetReadLimit bounds a message.
func (c *strictConn) SetReadLimit(limit int64) {
	if limited, ok := c.WebsocketConn.(transport.WebsocketReadLimiter); ok {
		limited.SetReadLimit(limit)
	}
}

// SetReadDeadline bounds the wait for a message.
func (c *strictConn) SetReadDeadline(t time.Time) error {
	if timed, ok := c.WebsocketConn.(transport.WebsocketReadDeadliner); ok {
		return timed.SetReadDeadline(t)
	}
	return nil
}
