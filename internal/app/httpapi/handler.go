// Package httpapi serves a GraphQL schema over HTTP: requests in JSON by POST
// and GET, server-sent events, and WebSockets (graphql-transport-ws).
//
// Invariants:
//
//   - It knows no store and no generated code: it gets a
//     [graphql.ExecutableSchema] and small functions ([Config]).
//   - Whatever arrives is refused or answered, never a panic, and what one
//     request may cost is bounded before it is paid: bytes before they are
//     read, tokens before they are parsed, shape before the document is
//     validated, steps while it is, cost before it is executed, time and fields
//     while it is.
//   - A mutation is executed only for a POST with a JSON body, or over a
//     WebSocket whose origin was checked, so that no other site can make a
//     browser send one.
//   - Every error has extensions.code. Status codes and media types follow
//     GraphQL over HTTP.
//   - What was accepted is finished before [Handler.Drain] returns.
//
// An exchange reads a request, a run executes it on the schema that gqlgen generated, and the
// exchange writes the answer. WebSockets read and write messages, and execute by the same run.
package httpapi

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/url"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"

	"github.com/99designs/gqlgen/graphql"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"

	"github.com/asof/asof/internal/app/admission"
	"github.com/asof/asof/internal/lru"
)

// Handler serves one schema at one URL.
type Handler struct {
	cfg     Config
	exec    *executor
	metrics *metrics
	gate    *admission.Gate
	memory  *admission.Budget
	rates   messageRates
	// running counts operations from their beginning until their answers are sent.
	running    *semaphore.Weighted
	open       *semaphore.Weighted // counts WebSockets
	socketInit time.Duration       // from the opening of a WebSocket to connection_init
	origins    *http.CrossOriginProtection
	ids        requestIDs
	pool       sync.Pool // of *exchange
	processor  processor
	// closing ends when the WebSockets are to be closed.
	closing context.Context
	close   context.CancelFunc
	// stopping ends when subscriptions are to end.
	stopping  context.Context
	stop      context.CancelFunc
	batches   batches
	scheduler scheduler
}

// New makes a Handler. An origin that is not one is an error, and a trusted document that is not
// valid.
func New(cfg Config) (*Handler, error) {
	origins, err := trusted(cfg.Origins)
	if err != nil {
		return nil, err
	}
	h := &Handler{
		cfg:    cfg,
		memory: admission.NewBudget(cfg.Limits.Memory, freeMemory),
		rates:  messageRates{limiters: map[string]*sharedLimiter{}},
		gate: admission.NewGate(admission.Config{
			Fast: cfg.Limits.Fast, PerClient: cfg.Limits.PerClient, PerClientWrite: cfg.Limits.PerClientWrite, Slow: cfg.Limits.Slow, Write: cfg.Limits.Concurrent, Long: cfg.Limits.SlowAfter,
			Wait: cfg.Limits.Wait, WaitSlow: cfg.Limits.Time / 3, Now: cfg.Now,
		}),
		running:    semaphore.NewWeighted(math.MaxInt64),
		open:       semaphore.NewWeighted(math.MaxInt64),
		socketInit: initTimeout,
		origins:    origins,
		ids:        newRequestIDs(),
		batches:    batches{kept: lru.New[batchKey, *batch](batchesBytes)},
		scheduler:  scheduler{notify: cfg.Notify, now: cfg.Now, free: max(runtime.GOMAXPROCS(0)/2, 1), ready: map[string][]*subscription{}},
	}
	h.processor.now = cfg.CPU
	h.metrics = newMetrics(cfg.Metrics, h.gate, h.memory)
	h.closing, h.close = context.WithCancel(context.Background())
	h.stopping, h.stop = context.WithCancel(h.closing)
	h.exec = newExecutor(&h.cfg, present(cfg.Present))
	if err := h.exec.documents.trust(cfg.Trusted); err != nil {
		return nil, err
	}
	h.pool.New = func() any { return new(exchange) }
	return h, nil
}

// ServeHTTP answers one request, or serves one stream.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	request := h.ids.of(r)
	header := w.Header()
	header["X-Request-Id"] = []string{request}
	header["Cache-Control"] = noStore
	op := &operation{start: h.cfg.Now(), request: request, limits: &h.cfg.Limits, status: http.StatusOK}
	defer h.recovered(w, r, op)
	if r.Header["Upgrade"] != nil {
		h.serveSocket(w, r, op)
		return
	}
	switch r.Method {
	case http.MethodPost, http.MethodGet:
		op.transport = r.Method
		if answerMedia(r) == mediaEvents {
			op.transport = transportEvents
		}
	case http.MethodOptions:
		header.Set("Allow", allowed)
		w.WriteHeader(http.StatusNoContent)
		return
	default:
		header.Set("Allow", allowed)
		h.Refuse(w, r, refusedMethod, http.StatusMethodNotAllowed, codeBadInput, "use GET or POST, not "+r.Method)
		return
	}
	if r.Method == http.MethodGet && !h.mayGet(r) {
		h.Refuse(w, r, refusedOrigin, http.StatusForbidden, CodeForbidden, refusedGet)
		return
	}
	if r.Method == http.MethodPost && !jsonBody(r) {
		h.Refuse(w, r, refusedType, http.StatusUnsupportedMediaType, codeBadInput,
			"the Content-Type of a POST must be application/json (UTF-8)")
		return
	}
	if encoding := r.Header["Content-Encoding"]; len(encoding) > 0 && r.Method == http.MethodPost && !strings.EqualFold(encoding[0], "identity") {
		header.Set("Accept-Encoding", "identity") // RFC 9110, 15.5.16
		h.Refuse(w, r, refusedEncoding, http.StatusUnsupportedMediaType, codeBadInput,
			"a request's Content-Encoding is not supported; send the body as it is")
		return
	}
	if op.transport != transportEvents {
		h.serve(w, r, op)
		return
	}
	// A stream may last for long: what needs a deep stack is done by a goroutine that ends.
	op.answered = make(chan struct{})
	go func() {
		goesOn := false
		defer func() {
			if !goesOn {
				close(op.answered)
			}
		}()
		defer h.recovered(w, r, op)
		goesOn = h.serve(w, r, op)
	}()
	<-op.answered
}

// recovered is deferred: the answer to a panic is an error.
func (h *Handler) recovered(w http.ResponseWriter, r *http.Request, op *operation) {
	if failure := recover(); failure != nil {
		p := h.panicked(r.Context(), op.request, failure)
		op.errors, op.status = p.list(), p.status
		WriteError(w, p.status, p.code, p.message)
		h.finish(r.Context(), op)
	}
}

// panicked logs a panic, and returns the answer to it.
func (h *Handler) panicked(ctx context.Context, request string, failure any) *problem {
	h.cfg.Logger.ErrorContext(namesRequest(ctx), "panic", "request", request, "value", fmt.Sprint(failure), "stack", string(debug.Stack()))
	return &problem{http.StatusInternalServerError, codeInternal, "something went wrong in the server; its log says what, under request " + request}
}

const allowed = "GET, POST, OPTIONS"

// The transports that are not methods, in the log.
const (
	transportEvents = "SSE"
	transportSocket = "WebSocket"
)

var noStore = []string{"no-store"}

// freeMemory is how many bytes a request may hold that are not counted. What most requests
// need is not more.
const freeMemory = 16 << 10

// Stop ends the subscriptions.
func (h *Handler) Stop() { h.stop() }

// Placed returns a handler that executes another one in a place of slow operations, which
// clients share as they share those. The answer is kept until it is whole, so that who takes
// it slowly keeps no place.
func (h *Handler) Placed(next http.Handler) http.Handler {
	return http.TimeoutHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		place, err := h.gate.Enter(r.Context(), h.cfg.Client(r), true)
		if err != nil {
			w.Header().Set("Retry-After", "1")
			http.Error(w, "the server is busy; try again in a moment", http.StatusServiceUnavailable)
			return
		}
		defer place.Leave(true)
		next.ServeHTTP(w, r)
	}), h.cfg.Limits.Time, "the server is busy; try again in a moment\n")
}

// Drain ends the subscriptions, refuses new operations, waits until those that were accepted are
// answered, and closes the WebSockets. It returns the context's error when
// that ends first.
func (h *Handler) Drain(ctx context.Context) error {
	h.Stop()
	err := h.running.Acquire(ctx, math.MaxInt64)
	h.close()
	return errors.Join(err, h.open.Acquire(ctx, math.MaxInt64)) // clients get a message that the server stops
}

// Refusal is why a request was refused before it was read: a label of metrics,
// and in the log.
type Refusal string

// The reasons. A page that uses a visitor's browser against the API fails for one of the
// first three.
const (
	RefusedHost     Refusal = "host"         // a name that is not this server's
	refusedType     Refusal = "content-type" // a body that is not said to be JSON
	refusedOrigin   Refusal = "origin"       // of a WebSocket or a GET
	refusedEncoding Refusal = "content-encoding"
	refusedMethod   Refusal = "method"
	refusedUpgrade  Refusal = "upgrade"  // no WebSocket that is spoken here
	refusedEnding   Refusal = "shutdown" // a WebSocket, as the server stops
)

// Refuse answers a request that is not read with one error, and logs and counts it.
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

// requestIDs names requests, so that an answer and the log can be matched.
type requestIDs struct {
	prefix string // differs between processes
	last   *atomic.Uint64
}

func newRequestIDs() requestIDs {
	return requestIDs{prefix: rand.Text()[:8] + "-", last: new(atomic.Uint64)}
}

// of takes the sender's X-Request-Id where it is short and harmless in a log,
// and makes one up otherwise.
func (i requestIDs) of(r *http.Request) string {
	if given := r.Header["X-Request-Id"]; len(given) == 1 && harmless(given[0]) {
		return given[0]
	}
	return i.prefix + strconv.FormatUint(i.last.Add(1), 10)
}

// harmless reports whether an id consists of letters, digits, dashes, underscores and dots.
func harmless(id string) bool {
	const allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."
	return id != "" && len(id) <= 64 && strings.Trim(id, allowed) == ""
}

// CheckOrigin returns an error for what is not the origin of a page as browsers
// send it, such as "https://app.example.org" or "http://localhost:3000": it would
// match. The error has what to write instead, where that is clear. There are no patterns.
func CheckOrigin(origin string) error {
	u, err := url.Parse(origin)
	if err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https" || strings.Contains(origin, "*") {
		return fmt.Errorf("origin %q: want one origin, scheme://host or scheme://host:port, such as http://localhost:5173", origin)
	}
	if strings.ContainsFunc(u.Host, func(r rune) bool { return r > unicode.MaxASCII }) {
		return fmt.Errorf("origin %q: browsers send the name of a host in punycode, as xn--…; write that", origin)
	}
	if n, err := strconv.ParseUint(u.Port(), 10, 16); u.Port() != "" && (err != nil || strconv.FormatUint(n, 10) != u.Port()) {
		return fmt.Errorf("origin %q: a port is a number from 0 to 65535, without zeros before it", origin)
	}
	standard := map[string]string{"http": ":80", "https": ":443"}[u.Scheme]
	sent := u.Scheme + "://" + strings.TrimSuffix(strings.TrimSuffix(strings.ToLower(u.Host), standard), ":")
	if origin != sent {
		return fmt.Errorf("origin %q: browsers send scheme, host and port only, in lower case, without the scheme's own port; write %s", origin, sent)
	}
	return nil
}

// trusted allows pages of these origins, and of the server's own. An origin that is
// not one is an error.
func trusted(origins []string) (*http.CrossOriginProtection, error) {
	t := http.NewCrossOriginProtection()
	for _, origin := range origins {
		if err := CheckOrigin(origin); err != nil {
			return nil, err
		}
		if err := t.AddTrustedOrigin(origin); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// mayUse reports whether a request is not from a page of an origin that is not
// allowed, as far as its headers show.
func (h *Handler) mayUse(r *http.Request) bool {
	asked := *r
	asked.Method = http.MethodPost // of GET, Check allows any
	return h.origins.Check(&asked) == nil
}

// refusedGet is the error for a GET that mayGet refuses.
const refusedGet = "this GET may have been caused by a page of another site, in a browser that does not ask whether it may: " +
	"send the operation by POST, or with the header graphql-require-preflight: 1 (pages of other origins have to be listed with --cors-origin)"

// mayGet reports whether a GET is not from a page that has no right to send it.
// Browsers send the GET of any page (an image, a script) without asking, unless it
// has a header that needs a preflight: that is only let through for origins that
// are allowed. Where there is none, the browser says in Sec-Fetch-Site or Origin
// where the request comes from; but plain HTTP to another machine has neither, and
// then all that tells programs from browsers is the User-Agent, which no page can
// change without a preflight.
func (h *Handler) mayGet(r *http.Request) bool {
	for _, name := range [...]string{"Graphql-Require-Preflight", "Apollo-Require-Preflight", "X-Apollo-Operation-Name"} {
		if r.Header[name] != nil {
			return true
		}
	}
	if jsonBody(r) {
		return true
	}
	if !h.mayUse(r) {
		return false
	}
	agent := r.Header.Get("User-Agent")
	return r.Header.Get("Sec-Fetch-Site") != "" || r.Header.Get("Origin") != "" ||
		// All current browsers, and what loads media for Safari.
		!strings.Contains(agent, "Mozilla/") && !strings.Contains(agent, "AppleCoreMedia")
}

const (
	// connectionBytes is what an open connection counts for: buffers, and a header of 16 KB.
	connectionBytes = 48 << 10
	// mostLines is how many lines a header may have: each takes as much processor time and memory
	// as some hundred bytes.
	mostLines = 100
)

// BoundConnections returns a listener for a server, of which open connections may take so
// many bytes, half of them those of one client, which the function names by its address.
// Others get the answer that there are too many, and are closed.
func BoundConnections(server *http.Server, l net.Listener, bytes int64, client func(address string) string) net.Listener {
	server.ConnState = func(c net.Conn, state http.ConnState) {
		if c, ok := c.(*boundConn); ok && state == http.StateIdle {
			c.lines, c.blank = 0, false // another request may come, and nothing is read now
		}
	}
	return &boundListener{l, admission.NewBudget(bytes, 0), client}
}

type boundListener struct {
	net.Listener

	open   *admission.Budget
	client func(address string) string
}

// Accept waits for the next connection.
func (l *boundListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		place := l.open.Hold(l.client(c.RemoteAddr().String()))
		if place.Grow(connectionBytes) == nil {
			return &boundConn{Conn: c, place: place}, nil
		}
		_, _ = c.Write([]byte(tooManyConnections)) // its buffer is empty
		_ = c.Close()
	}
}

const tooManyLines = "HTTP/1.1 431 Request Header Fields Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"

const tooManyConnections = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 10\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"

type boundConn struct {
	net.Conn

	place *admission.Hold
	lines int  // of the header, so far; less than 0 behind it
	blank bool // its last line has nothing so far
}

// Read reads, and ends the connection where its header has too many lines.
func (c *boundConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if !c.hasManyLines(p[:n]) {
		return n, err
	}
	_, _ = c.Write([]byte(tooManyLines))
	_ = c.Close() // an error of one Read may be passed over
	return 0, io.EOF
}

// hasManyLines reports whether a header has more lines than it may, with this part of it, which
// the body may follow.
func (c *boundConn) hasManyLines(text []byte) bool {
	for _, b := range text {
		switch {
		case c.lines < 0:
			return false // the body
		case c.lines > mostLines || b == '\r':
		case b != '\n':
			c.blank = false
		case c.blank:
			c.lines = -1 // the body follows
		default:
			c.lines++
			c.blank = true
		}
	}
	return c.lines > mostLines
}

// Close closes the connection, which counts no more.
func (c *boundConn) Close() error {
	c.place.Set(0)
	return c.Conn.Close()
}

// CloseWrite shuts down the writing side, where there is one: http.Server asks for it before
// it closes a connection whose client may still be sending.
func (c *boundConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// Config is what a Handler is made of. What has no default here is required.
type Config struct {
	Schema graphql.ExecutableSchema
	// Operations gives each operation its instant.
	Operations Operations
	// Subscribe returns a context in which the execution of a subscription says what that is
	// about, and tells nothing; after it, watch begins to watch the events that may be for the
	// subscription.
	Subscribe func(ctx context.Context) (begin context.Context, watch func(context.Context) (Watch, error))
	// Notify has a function called whenever there may be events, until stop is called. The
	// function returns at once.
	Notify func(grown func()) (stop func())
	// Identify returns who has sent a request. It is called again while
	// a WebSocket is open. A *Denied error is the answer, the text of another one is, with
	// status 400.
	Identify func(*http.Request) (Identity, error)
	// Client names the sender of a request, for its share of places and memory, where
	// Identify does not.
	Client func(*http.Request) string
	// Present turns an error of a field into what the client sees, with a code, and logs
	// what the client does not see.
	Present graphql.ErrorPresenterFunc
	// Recover turns a panic into an error.
	Recover graphql.RecoverFunc
	// Weight is what a field costs beside what it returns, in fields; parent and
	// result are the names of the types that it belongs to and leads to.
	Weight func(parent, field, result string) int
	Limits Limits
	// Origins lists the origins ("https://app.example.org") whose pages may
	// use the API from a browser, beside the server's own.
	Origins       []string
	Introspection bool
	// Trusted are the documents that are executed, by their ids; nil: any.
	Trusted map[string]string
	// Pinned reports whether the data of an answer without errors stays as it is, whatever is
	// written later.
	Pinned func(oc *graphql.OperationContext) bool
	// CachePast is how long caches may keep what is pinned; 0: as long as what is not.
	CachePast time.Duration
	// Logger gets what clients sent as they sent it, and is expected to Clip it.
	Logger *slog.Logger
	Now    func() time.Time
	// CPU returns the processor time that the process has used.
	CPU func() time.Duration
	// Slow is how long an operation may take before it is logged as a warning.
	Slow time.Duration
	// Debug adds a header to answers with what executed the operation, where that was noted
	// (NotePlan).
	Debug bool
	// Metrics gets the metrics.
	Metrics prometheus.Registerer
}

// Identity is who has sent a request.
type Identity struct {
	Context context.Context // of the request's operations
	Actor   string          // for the log
	Client  string          // names the sender for his share of places and memory; "": Config.Client does
	// ReadOnly is what his mutations are answered; nil: they are executed.
	ReadOnly *Denied
}

// Denied is why a request, or a part of it, is not executed for its sender.
type Denied struct {
	Status        int
	Code, Message string
	Challenge     string // the header WWW-Authenticate; "": none
}

func (d *Denied) Error() string { return d.Message }

// Operations ties operations to the store.
type Operations interface {
	// Begin fixes the instant that the operation reads at.
	Begin(ctx context.Context) (context.Context, error)
	// Instant returns the answer's extensions.asOf: the instant of Begin
	// or of the operation's last commit, as RFC 3339; "" before Begin.
	Instant(ctx context.Context) string
}

// Limits bound what one request may cost.
type Limits struct {
	Body           int64         // bytes of a request's body, and of a WebSocket message
	Query          int           // bytes of a GraphQL document
	Tokens         int           // lexical tokens of a document
	Depth          int           // nesting of selection sets
	PageSize       int           // first and last
	Cost           int           // fields that an answer may hold, pages counted in full
	Read           int64         // bytes of documents and versions that an operation reads from the store
	Answer         int           // bytes of an answer's data
	Time           time.Duration // from the request's arrival to its answer
	Execution      time.Duration // of processor time that a query takes
	Concurrent     int           // operations at a time
	Fast           int           // of these, that read and are expected to be over within SlowAfter
	PerClient      int           // of these, that read, of one client while another one is active; 0: any number
	PerClientWrite int           // of these, that write, of one client while another one is active; 0: any number
	Slow           int           // of these, that are not expected to be over within SlowAfter, at a time
	SlowAfter      time.Duration // how long an operation takes that is slow
	Wait           time.Duration // for a place or memory, then 503
	Grace          time.Duration // to send a request or take an answer, beside what its size allows
	Rate           int           // bytes a second: how much longer than Grace a size may take
	Memory         int64         // bytes that all requests hold together, as far as they are counted
}
