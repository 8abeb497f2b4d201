package plantest

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coder/websocket"
	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"
)

// Transport is a way to send an operation.
type Transport string

// The ways.
const (
	Post      Transport = "POST"
	Get       Transport = "GET"
	Events    Transport = "SSE"
	WebSocket Transport = "WebSocket"
	Gzip      Transport = "POST, gzip"
	GraphQL   Transport = "POST, application/graphql-response+json"
)

// answer is all that a server says to one request, as a client sees it.
//
// Nothing is left out of the comparison but the header that tells how the answer
// was made: requests name themselves (X-Request-Id), so that this header is the
// same, and Date and Connection are added below the handlers, by net/http.
type answer struct {
	status int
	header string // sorted lines
	body   string
	how    string // the answer was made: what howHeader says
}

// howHeader says how an answer was made, which a server that only this machine reaches adds.
const howHeader = "X-Asof-Executor"

// send sends an operation to a handler.
func send(ctx context.Context, h http.Handler, op *Operation, way Transport, number int) answer {
	for attempt := 1; ; attempt++ { // a slow machine's server may be busy, which has executed nothing
		w := sendOnce(ctx, h, op, way, number)
		if attempt == 10 || w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "the server is busy") {
			return answerOf(w)
		}
	}
}

func sendOnce(ctx context.Context, h http.Handler, op *Operation, way Transport, number int) *httptest.ResponseRecorder {
	var r *http.Request
	switch way {
	case Get:
		query := url.Values{"query": {op.Query()}}
		if text := op.variablesJSON(); text != "" {
			query.Set("variables", text)
		}
		if op.named {
			query.Set("operationName", op.name)
		}
		r = httptest.NewRequestWithContext(ctx, http.MethodGet, "http://localhost/graphql?"+query.Encode(), nil)
	default:
		r = httptest.NewRequestWithContext(ctx, http.MethodPost, "http://localhost/graphql", strings.NewReader(op.Body()))
		r.Header.Set("Content-Type", "application/json")
	}
	switch way {
	case Events:
		r.Header.Set("Accept", "text/event-stream")
	case Gzip:
		r.Header.Set("Accept-Encoding", "gzip")
	case GraphQL:
		r.Header.Set("Accept", "application/graphql-response+json")
	default:
		r.Header.Set("Accept", "application/json")
	}
	r.Header.Set("X-Request-Id", fmt.Sprintf("operation-%d", number))
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func answerOf(w *httptest.ResponseRecorder) answer {
	header := w.Result().Header
	a := answer{status: w.Code, body: w.Body.String(), how: header.Get(howHeader)}
	header.Del(howHeader)
	if header.Get("Content-Encoding") == "gzip" {
		text, err := unzip(w.Body)
		if a.body = text; err != nil {
			a.body = "not gzip: " + err.Error()
		}
	}
	var lines strings.Builder
	for _, name := range slices.Sorted(maps.Keys(header)) {
		fmt.Fprintf(&lines, "%s: %q\n", name, header[name])
	}
	a.header = lines.String()
	return a
}

// unzip is what a client reads.
func unzip(r io.Reader) (string, error) {
	zipped, err := gzip.NewReader(r)
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(zipped)
	return string(text), err
}

// same compares two answers. Errors of different root fields may come in another
// order: gqlgen executes root fields at the same time, and lists their errors as
// they happen. Those of one root field must come in the same order.
func (a answer) same(b answer) bool {
	if a.status != b.status || a.header != b.header {
		return false
	}
	return a.body == b.body || byRootField(a.body) == byRootField(b.body)
}

// byRootField brings the errors in each line of an answer (streams have several)
// into an order by root field; every byte of theirs stays.
func byRootField(body string) string {
	lines := strings.Split(body, "\n")
	for i, line := range lines {
		before, text, ok := strings.Cut(line, "{")
		if !ok {
			continue
		}
		text = "{" + text
		errs := gjson.Get(text, "errors")
		if errs.Index == 0 {
			errs = gjson.Get(text, "payload.errors")
		}
		if errs.Index == 0 || !errs.IsArray() {
			continue
		}
		list := errs.Array()
		slices.SortStableFunc(list, func(x, y gjson.Result) int {
			return strings.Compare(x.Get("path.0").Raw, y.Get("path.0").Raw)
		})
		texts := make([]string, len(list))
		for j, e := range list {
			texts[j] = e.Raw
		}
		lines[i] = before + text[:errs.Index] + "[" + strings.Join(texts, ",") + "]" + text[errs.Index+len(errs.Raw):]
	}
	return strings.Join(lines, "\n")
}

// String shows an answer to people.
func (a answer) String() string {
	body := a.body
	var indented bytes.Buffer
	if json.Indent(&indented, []byte(body), "", "  ") == nil && len(body) > 200 {
		body = indented.String()
	}
	return fmt.Sprintf("%d\n%s\n%s\n", a.status, a.header, body)
}

// executed says that the operation was begun, as its answer has data.
func (a answer) executed() bool { return gjson.Get(a.body, "data").Exists() }

// Pair is the servers that are compared: the one that is trusted, and another.
type Pair struct {
	Trusted, Other http.Handler
	sockets        [2]*socket
}

// Difference is an operation that the servers answer differently.
type Difference struct {
	Operation   *Operation
	Way         Transport
	Want, Got   answer
	Concurrency bool // it was seen among operations that ran at the same time
}

func (d *Difference) String() string {
	when := ""
	if d.Concurrency {
		when = ", while others were executed"
	}
	return fmt.Sprintf("%s%s:\n%s\nanswers (-trusted +other):\n%s", d.Way, when, d.Operation, cmp.Diff(d.Want.String(), d.Got.String()))
}

// Compare sends an operation to both servers. It returns the trusted one's
// answer, how the other one's was made, and the difference, nil if there is none.
func (p *Pair) compare(ctx context.Context, op *Operation, way Transport, number int) (want, got answer, d *Difference, err error) {
	if way == WebSocket {
		if want, err = p.overSocket(ctx, 0, op, number); err == nil {
			got, err = p.overSocket(ctx, 1, op, number)
		}
		if err != nil {
			return want, got, nil, err
		}
	} else {
		want, got = send(ctx, p.Trusted, op, way, number), send(ctx, p.Other, op, way, number)
	}
	if !want.same(got) {
		d = &Difference{Operation: op, Way: way, Want: want, Got: got}
	}
	return want, got, d, nil
}

// shrink returns the smallest operation that it finds that is still answered
// differently.
func (p *Pair) shrink(ctx context.Context, d *Difference) *Difference {
	const most = 4000 // attempts
	attempts := 0
	for smaller := true; smaller; {
		smaller = false
		for candidate := range smallerThan(d.Operation) {
			if attempts++; attempts > most || ctx.Err() != nil {
				return d
			}
			if _, _, again, err := p.compare(ctx, candidate, d.Way, attempts); err == nil && again != nil {
				again.Concurrency = d.Concurrency
				d, smaller = again, true
				break
			}
		}
	}
	return d
}

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
