package plantest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"time"

	"github.com/coder/websocket"
	"github.com/tidwall/gjson"
)

// socket is an open WebSocket to a server of its own.
type socket struct {
	server *httptest.Server
	conn   *websocket.Conn
}

// socketTimeout is how long a server may keep silent.
const socketTimeout = 5 * time.Minute

// overSocket sends an operation over the WebSocket to the server with an index,
// and returns all messages up to the end of the operation.
func (p *Pair) overSocket(ctx context.Context, index int, op *Operation, number int) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, socketTimeout)
	defer cancel()
	s := p.sockets[index]
	if s == nil {
		s = &socket{server: httptest.NewServer([]http.Handler{p.Trusted, p.Other}[index])}
		p.sockets[index] = s
	}
	if s.conn == nil {
		if err := s.open(ctx); err != nil {
			return answer{}, fmt.Errorf("plantest: opening a WebSocket: %w", err)
		}
	}
	id := strconv.Itoa(number)
	message := fmt.Sprintf(`{"id":%q,"type":"subscribe","payload":%s}`, id, op.Body())
	if err := s.conn.Write(ctx, websocket.MessageText, []byte(message)); err != nil {
		return s.broken(answer{}, err)
	}
	a := answer{status: http.StatusSwitchingProtocols}
	for {
		_, text, err := s.conn.Read(ctx)
		if err != nil {
			return s.broken(a, err)
		}
		if gjson.GetBytes(text, "id").Str != id {
			continue // a ping, or that an operation that failed is complete
		}
		a.body += string(text) + "\n"
		if kind := gjson.GetBytes(text, "type").Str; kind == "complete" || kind == "error" {
			return a, nil
		}
	}
}

func (s *socket) open(ctx context.Context) error {
	//nolint:bodyclose // "You never need to close resp.Body yourself"
	conn, _, err := websocket.Dial(ctx, strings.Replace(s.server.URL, "http", "ws", 1)+"/graphql", &websocket.DialOptions{Subprotocols: []string{"graphql-transport-ws"}})
	if err != nil {
		return err
	}
	conn.SetReadLimit(-1)
	s.conn = conn
	if err := conn.Write(ctx, websocket.MessageText, []byte(`{"type":"connection_init"}`)); err != nil {
		return err
	}
	for {
		_, text, err := conn.Read(ctx)
		if err != nil {
			return err
		}
		if gjson.GetBytes(text, "type").Str == "connection_ack" {
			return nil
		}
	}
}

// broken ends a connection: that the server closed it is its answer.
func (s *socket) broken(a answer, err error) (answer, error) {
	_ = s.conn.CloseNow() // it is broken already
	s.conn = nil
	if closed, ok := errors.AsType[websocket.CloseError](err); ok {
		a.body += fmt.Sprintf("closed: %d %s\n", closed.Code, closed.Reason)
		return a, nil
	}
	return a, fmt.Errorf("plantest: a WebSocket: %w", err)
}

// Close closes the pair's WebSockets.
func (p *Pair) Close() {
	for i, s := range p.sockets {
		if s == nil {
			continue
		}
		if s.conn != nil {
			_ = s.conn.CloseNow() // nothing is under way
		}
		s.server.Close()
		p.sockets[i] = nil
	}
}
