package httpapi

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

// testTimeout bounds what must end by itself.
const testTimeout = 5 * time.Minute

// newHostileServer serves a schema whose fields also wait, fail and panic.
func newHostileServer(t testing.TB) *server {
	t.Helper()
	return newServer(t, func(cfg *Config, fake *fakeSchema) {
		cfg.Limits = Limits{Body: 4 << 10, Concurrent: 8, Wait: 50 * time.Millisecond}
		cfg.Recover = func(context.Context, any) error { return errors.New("internal error") }
		fake.fields["block"] = func(ctx context.Context) (any, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		fake.fields["nodes"] = func(context.Context) (any, error) { return []any{}, nil }
	})
}

// upgrade opens a WebSocket by hand, so that anything can be sent over it, also with the request.
func (s *server) upgrade(t testing.TB, with string) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.SetDeadline(time.Now().Add(testTimeout)); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"+
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: %s\r\n\r\n%s", subprotocol, with); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(conn)
	response, err := http.ReadResponse(r, nil)
	if err != nil || response.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(response, err)
	}
	return conn, r
}

// Messages that come with the request are read, also where they are longer than the buffers.
func TestMessagesWithTheRequest(t *testing.T) {
	s := newServer(t, nil)
	const socketBuffer = 4 << 10
	for _, length := range []int{1, socketBuffer, 3 * socketBuffer, 20 * socketBuffer} {
		ping := fmt.Sprintf(`{"type":"ping","payload":{"a":"%s"}}`, strings.Repeat("x", length))
		conn, r := s.upgrade(t, string(messages(ping, initMessage)))
		got, err := r.ReadString('k') // of connection_ack
		if err == nil {
			err = conn.Close()
		}
		if err != nil || strings.Count(got, "x") != length {
			t.Errorf("%d bytes came back as %d: %v", length, strings.Count(got, "x"), err)
		}
	}
}

// survives sends bytes over a new WebSocket, and nothing more: the server must
// end the connection, give back what it held, and go on to serve.
func (s *server) survives(t testing.TB, sent []byte) {
	t.Helper()
	conn, r := s.upgrade(t, "")
	defer func() { _ = conn.Close() }()
	_, _ = conn.Write(sent) // the server may have hung up before the end
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.CloseWrite()
	}
	if _, err := io.Copy(io.Discard, r); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("the connection is still open after %v; sent: %q", testTimeout, sent)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	s.awaitSockets()
	for s.handler.memory.Held() > 0 || s.handler.gate.InFlight() > 0 {
		if runtime.Gosched(); ctx.Err() != nil {
			t.Fatalf("the connection or an operation is still counted; sent: %q", sent)
		}
	}
	s.noPanic(t)
	s.query(t, `{hello}`).want(t, 200, ok)
}

// noPanic looks for panics other than the one that a field of the schema has.
func (s *server) noPanic(t testing.TB) {
	t.Helper()
	s.journal.mu.Lock()
	defer s.journal.mu.Unlock()
	for line := range strings.Lines(s.journal.buf.String()) {
		if strings.Contains(line, `"msg":"panic"`) && !strings.Contains(line, `"value":"oh no"`) {
			t.Errorf("a panic was logged: %s", line)
		}
	}
	s.journal.buf.Reset()
}

// frame makes a frame of the WebSocket protocol. Head is its first byte: flags
// and opcode.
func frame(head byte, masked bool, payload []byte) []byte {
	b := []byte{head}
	mask := byte(0)
	if masked {
		mask = 0x80
	}
	switch n := len(payload); {
	case n < 126:
		b = append(b, mask|byte(n))
	case n < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, mask|126), uint16(n))
	default:
		b = binary.BigEndian.AppendUint64(append(b, mask|127), uint64(n))
	}
	if masked {
		b = append(b, 0, 0, 0, 0) // a mask that changes nothing
	}
	return append(b, payload...)
}

// messages makes a text frame of each message.
func messages(texts ...string) []byte {
	const finalText = 0x81
	var b []byte
	for _, text := range texts {
		b = append(b, frame(finalText, true, []byte(text))...)
	}
	return b
}

const initMessage = `{"type":"connection_init"}`

func subscribeMessage(id, query string) string {
	return fmt.Sprintf(`{"type":"subscribe","id":%q,"payload":{"query":%q}}`, id, query)
}

// hostileFrames are bytes that no client should send.
func hostileFrames() map[string][]byte {
	const text, final, continuation, binaryFrame, closing, ping = 0x01, 0x80, 0x00, 0x02, 0x08, 0x09
	started := messages(initMessage)
	after := func(b ...byte) []byte { return append(messages(initMessage), b...) }
	return map[string][]byte{
		"nothing":                           nil,
		"not a frame":                       []byte("GET / HTTP/1.1\r\n\r\n"),
		"half a header":                     {final | text},
		"half a length":                     {final | text, 0x80 | 126, 1},
		"half a mask":                       {final | text, 0x81, 1, 2},
		"a frame without its end":           frame(final|text, true, []byte(initMessage))[:12],
		"not masked":                        frame(final|text, false, []byte(initMessage)),
		"the longest length":                {final | text, 0x80 | 127, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0},
		"a negative length":                 {final | text, 0x80 | 127, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0},
		"reserved flags":                    frame(final|0x70|text, true, []byte(initMessage)),
		"compressed, which was not agreed":  frame(final|0x40|text, true, []byte{0xaa, 0x56, 0x2a, 0xa9}),
		"a reserved opcode":                 frame(final|0x07, true, nil),
		"a continuation of nothing":         frame(final|continuation, true, []byte("x")),
		"a message within a message":        append(frame(text, true, []byte(`{"type"`)), frame(final|text, true, []byte(initMessage))...),
		"a message in parts":                append(frame(text, true, []byte(`{"type":`)), frame(final|continuation, true, []byte(`"connection_init"}`))...),
		"a message in a thousand parts":     append(frame(text, true, []byte("[")), []byte(strings.Repeat(string(frame(continuation, true, []byte(" "))), 1000))...),
		"a ping in a message":               append(append(frame(text, true, []byte(`{"type":`)), frame(final|ping, true, []byte("p"))...), frame(final|continuation, true, []byte(`"ping"}`))...),
		"a ping that is too long":           frame(final|ping, true, []byte(strings.Repeat("p", 200))),
		"a ping in parts":                   frame(ping, true, []byte("p")),
		"a thousand pings":                  []byte(strings.Repeat(string(frame(final|ping, true, []byte("p"))), 1000)),
		"a close without a code":            frame(final|closing, true, nil),
		"a close with half a code":          frame(final|closing, true, []byte{3}),
		"a close with a code that is none":  frame(final|closing, true, []byte{0, 0}),
		"a close whose reason is not UTF-8": frame(final|closing, true, []byte{3, 0xe8, 0xff}),
		"messages behind a close":           append(frame(final|closing, true, []byte{3, 0xe8}), messages(initMessage, subscribeMessage("1", "{hello}"))...),
		"binary":                            frame(final|binaryFrame, true, []byte(initMessage)),
		"a message that is too long":        append(started, frame(final|text, true, []byte(strings.Repeat(" ", 5<<10)))...),
		"the end behind an operation":       append(messages(initMessage, subscribeMessage("1", "{block}")), frame(final|text, true, []byte("{"))...),
		"garbage behind an operation":       append(messages(initMessage, subscribeMessage("1", "{block}")), 0xff, 0xff, 0xff),
		"zeros":                             after(make([]byte, 5000)...),
	}
}

// hostileMessages are messages that are frames, but not what the protocol says.
func hostileMessages() map[string][]string {
	blocked := subscribeMessage("1", "{block}")
	return map[string][]string{
		"an operation first":        {subscribeMessage("1", "{hello}")},
		"a ping first":              {`{"type":"ping"}`, initMessage},
		"two beginnings":            {initMessage, initMessage, subscribeMessage("1", "{hello}")},
		"an unknown type":           {initMessage, `{"type":"start","id":"1"}`},
		"no type":                   {initMessage, `{}`},
		"a type that is no text":    {initMessage, `{"type":1}`},
		"not an object":             {initMessage, `[]`, `null`, `"x"`, `1`},
		"not JSON":                  {initMessage, `{"type":`},
		"not UTF-8":                 {initMessage, "{\"type\":\"\xff\"}"},
		"half a surrogate pair":     {initMessage, `{"type":"subscribe","id":"1","payload":{"query":"{hello(name: \"\ud800\")}"}}`},
		"nested a thousand times":   {initMessage, `{"type":"subscribe","id":"1","payload":` + strings.Repeat("[", 1000) + strings.Repeat("]", 1000) + `}`},
		"no id":                     {initMessage, `{"type":"subscribe","payload":{"query":"{hello}"}}`},
		"an id that is no text":     {initMessage, `{"type":"subscribe","id":1,"payload":{"query":"{hello}"}}`},
		"an empty id":               {initMessage, subscribeMessage("", "{hello}")},
		"an id twice":               {initMessage, blocked, blocked, `{"type":"complete","id":"1"}`},
		"an id again":               {initMessage, subscribeMessage("1", "{hello}"), subscribeMessage("1", "{hello}"), subscribeMessage("1", "{hello}")},
		"a long id":                 {initMessage, subscribeMessage(strings.Repeat("i", 3000), "{hello}")},
		"no payload":                {initMessage, `{"type":"subscribe","id":"1"}`, `{"type":"subscribe","id":"2","payload":null}`},
		"a payload that is a list":  {initMessage, `{"type":"subscribe","id":"1","payload":[]}`},
		"a query that is no text":   {initMessage, `{"type":"subscribe","id":"1","payload":{"query":{}}}`},
		"variables that are a list": {initMessage, `{"type":"subscribe","id":"1","payload":{"query":"{hello}","variables":[]}}`},
		"a name that is a number":   {initMessage, `{"type":"subscribe","id":"1","payload":{"query":"{hello}","operationName":1}}`},
		"the end of nothing":        {initMessage, `{"type":"complete","id":"9"}`, `{"type":"complete"}`},
		"the end of what waits":     {initMessage, blocked, `{"type":"complete","id":"1"}`, `{"type":"complete","id":"1"}`},
		"a server's messages":       {initMessage, `{"type":"next","id":"1","payload":{}}`, `{"type":"connection_ack"}`, `{"type":"error","id":"1","payload":[]}`},
		"too many operations":       {initMessage, blocked, subscribeMessage("2", "{block}"), subscribeMessage("3", "{block}"), subscribeMessage("4", "{block}"), subscribeMessage("5", "{block}")},
		"a field that panics":       {initMessage, subscribeMessage("1", "{panics}"), subscribeMessage("2", "{hello}")},
		"a beginning with a list":   {`{"type":"connection_init","payload":[1]}`},
		"a beginning with a header": {`{"type":"connection_init","payload":{"X-Actor":"a\r\nb: c","":"x","x y":"z","Host":{}}}`},
		"members twice":             {initMessage, `{"type":"subscribe","type":"ping","id":"1","id":"2","payload":{"query":"{hello}","query":"{"}}`},
	}
}

func TestHostileWebSockets(t *testing.T) {
	s := newHostileServer(t)
	for name, sent := range hostileFrames() {
		t.Run(name, func(t *testing.T) { s.survives(t, sent) })
	}
	for name, texts := range hostileMessages() {
		t.Run(name, func(t *testing.T) { s.survives(t, messages(texts...)) })
	}
}

// FuzzFrames sends bytes as they are.
func FuzzFrames(f *testing.F) {
	s := newHostileServer(f)
	for _, sent := range hostileFrames() {
		f.Add(sent)
	}
	f.Fuzz(func(t *testing.T, sent []byte) { s.survives(t, sent) })
}

// FuzzMessages sends texts, one a line, as messages.
func FuzzMessages(f *testing.F) {
	s := newHostileServer(f)
	for _, texts := range hostileMessages() {
		f.Add(strings.Join(texts, "\n"))
	}
	f.Fuzz(func(t *testing.T, texts string) { s.survives(t, messages(strings.Split(texts, "\n")...)) })
}

// FuzzEvents asks for server-sent events with any body: the answer is a refusal,
// or a stream that comes to its end.
func FuzzEvents(f *testing.F) {
	s := newHostileServer(f)
	for _, body := range []string{
		`{"query":"{hello}"}`, `{"query":"{panics}"}`, `{"query":"{fail}"}`, `{"query":""}`, `{"query":"{hello}","variables":[]}`, `{}`, `[]`, `null`, `{"query":1}`,
		`{"query":"{hello`, "", "\x00", `{"query":"{hello}"} {}`, `{"query":"subscription {hello}"}`, `{"query":"{hello}","operationName":"\n\ndata: x"}`,
		`{"query":"{hello}","extensions":{"persistedQuery":{"version":1,"sha256Hash":"x"}}}`, `{"query":"{a: hello}\r\n\r\nevent: complete"}`,
	} {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body string) {
		if strings.Contains(body, "block") {
			t.Skip("a field that waits for its end")
		}
		a := s.post(t, body, "Accept", mediaEvents)
		if events := a.header.Get("Content-Type") == mediaEvents; events != (a.status == http.StatusOK) ||
			events && !strings.HasSuffix(a.text, "event: complete\ndata:\n\n") || !events && a.status < 400 {
			t.Errorf("status %d, %v: %q", a.status, a.header, a.text)
		}
		s.noPanic(t)
	})
}
