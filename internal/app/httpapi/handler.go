package httpapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"
	"golang.org/x/sync/semaphore"

	"github.com/asof/asof/internal/app/admission"
)

// Handler serves one schema at one URL.
type Handler struct {
	cfg     Config
	exec    guarded
	metrics *metrics
	gate    *admission.Gate
	memory  *admission.Budget
	sockets *admission.Budget
	rates   messageRates
	// running counts operations from their beginning until their answers are sent.
	running    *semaphore.Weighted
	socketInit time.Duration // from the opening of a WebSocket to connection_init
	origins    *http.CrossOriginProtection
	ids        requestIDs
	pool       sync.Pool // of *exchange
	processor  processor
	// closing ends when the WebSockets are to be closed.
	closing context.Context
	close   context.CancelFunc
}

// New makes a Handler. An origin that is not one is an error.
func New(cfg Config) (*Handler, error) {
	if cfg.Schema == nil || cfg.Client == nil || cfg.Now == nil || cfg.Logger == nil {
		return nil, errors.New("httpapi: Schema, Client, Now and Logger are required")
	}
	origins, err := trusted(cfg.Origins)
	if err != nil {
		return nil, err
	}
	cfg.Limits = cfg.Limits.withDefaults()
	if cfg.Present == nil {
		cfg.Present = presentPlainly
	}
	h := &Handler{
		cfg:     cfg,
		memory:  admission.NewBudget(cfg.Limits.Memory, freeMemory),
		sockets: admission.NewBudget(int64(cfg.Limits.WebSockets), 0),
		rates:   messageRates{limiters: map[string]*sharedLimiter{}},
		gate: admission.NewGate(admission.Config{
			Fast: cfg.Limits.Fast, Slow: cfg.Limits.Slow, Write: cfg.Limits.Concurrent, Long: cfg.Limits.SlowAfter,
			Wait: cfg.Limits.Wait, WaitSlow: cfg.Limits.Time / 3, Now: cfg.Now,
		}),
		running:    semaphore.NewWeighted(math.MaxInt64),
		socketInit: initTimeout,
		origins:    origins,
		ids:        newRequestIDs(),
	}
	h.processor.now = cfg.CPU
	h.metrics = newMetrics(cfg.Metrics, h.gate, h.memory)
	h.closing, h.close = context.WithCancel(context.Background())
	h.exec = newExecutor(&h.cfg, present(cfg.Present))
	h.pool.New = func() any { return new(exchange) }
	return h, nil
}

// present shows an error to the client as the schema's presenter does, and no more
// than mostErrors of an operation beside what became of its changes. By which limit a
// document was refused only this package knows.
func present(presenter graphql.ErrorPresenterFunc) graphql.ErrorPresenterFunc {
	return func(ctx context.Context, err error) *gqlerror.Error {
		op := operationOf(ctx)
		if op != nil && !ofChange(ctx) && op.failed.Add(1) > mostErrors {
			if op.more.CompareAndSwap(false, true) {
				return &gqlerror.Error{Message: moreErrors, Extensions: map[string]any{"code": CodeTooComplex}}
			}
			if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
				op.broken.Store(true)
			}
			return nil
		}
		if refused, ok := errors.AsType[*gqlerror.Error](err); ok {
			if _, ok := errors.AsType[limited](refused.Err); ok {
				return refused
			}
		}
		shown := presenter(ctx, err)
		if shown != nil {
			shown.Message = Clip(shown.Message)
			if op != nil && !ofChange(ctx) {
				op.failed.Add(int64(len(shown.Path.String()) / shortPath))
			}
		}
		field := graphql.GetFieldContext(ctx)
		if shown != nil && len(shown.Locations) == 0 && field != nil && field.Args == nil && field.Field.Field != nil &&
			len(field.Field.Arguments) > 0 && field.Field.Position != nil {
			// An argument's value, where gqlgen knows the path only.
			shown.Locations = []gqlerror.Location{{Line: field.Field.Position.Line, Column: field.Field.Position.Column}}
		}
		return shown
	}
}

// shortPath is how long a path may be, in bytes, for its error to count as one: it has
// the aliases, which may be as long as the document.
const shortPath = 512

// ofChange reports whether a context is that of a mutation's root field, whose error
// says whether something was written.
func ofChange(ctx context.Context) bool {
	return graphql.HasOperationContext(ctx) && graphql.GetOperationContext(ctx).Operation != nil &&
		graphql.GetOperationContext(ctx).Operation.Operation == ast.Mutation && len(graphql.GetPath(ctx)) == 1
}

// presentPlainly is the presenter of schemas that have none.
func presentPlainly(ctx context.Context, err error) *gqlerror.Error {
	if known, ok := errors.AsType[*gqlerror.Error](err); ok {
		return known
	}
	shown := gqlerror.WrapPath(graphql.GetPath(ctx), err)
	shown.Extensions = map[string]any{"code": CodeInternal}
	return shown
}

// ServeHTTP answers one request, or serves one stream.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	request := h.ids.of(r)
	header := w.Header()
	header["X-Request-Id"] = []string{request}
	header["Cache-Control"] = noStore
	op := &operation{start: h.cfg.Now(), request: request, most: h.cfg.Limits.Read, status: http.StatusOK}
	defer func() {
		if failure := recover(); failure != nil {
			p := h.panicked(r.Context(), request, failure)
			op.errors, op.status = p.list(), p.status
			WriteError(w, p.status, p.code, p.message)
			h.finish(r.Context(), op)
		}
	}()
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
		h.Refuse(w, r, RefusedMethod, http.StatusMethodNotAllowed, CodeBadInput, "use GET or POST, not "+r.Method)
		return
	}
	if r.Method == http.MethodGet && !h.mayGet(r) {
		h.Refuse(w, r, RefusedOrigin, http.StatusForbidden, CodeForbidden, refusedGet)
		return
	}
	if r.Method == http.MethodPost && !jsonBody(r) {
		h.Refuse(w, r, RefusedType, http.StatusUnsupportedMediaType, CodeBadInput,
			"the Content-Type of a POST must be application/json (UTF-8)")
		return
	}
	if encoding := r.Header["Content-Encoding"]; len(encoding) > 0 && r.Method == http.MethodPost && !strings.EqualFold(encoding[0], "identity") {
		header.Set("Accept-Encoding", "identity") // RFC 9110, 15.5.16
		h.Refuse(w, r, RefusedEncoding, http.StatusUnsupportedMediaType, CodeBadInput,
			"a request's Content-Encoding is not supported; send the body as it is")
		return
	}
	h.serve(w, r, op)
}

// panicked logs a panic, and is what the client is told of it.
func (h *Handler) panicked(ctx context.Context, request string, failure any) *problem {
	h.cfg.Logger.ErrorContext(namesRequest(ctx), "panic", "request", request, "value", fmt.Sprint(failure), "stack", string(debug.Stack()))
	return &problem{http.StatusInternalServerError, CodeInternal, "something went wrong in the server; its log says what, under request " + request}
}

const allowed = "GET, POST, OPTIONS"

// The transports that are not methods, in the log.
const (
	transportEvents = "SSE"
	transportSocket = "WebSocket"
)

var noStore = []string{"no-store"}

// keptBuffer is the largest buffer that waits for the next request.
const keptBuffer = 64 << 10

func (h *Handler) release(x *exchange) {
	body := x.body
	if body.Cap() > keptBuffer {
		body = bytes.Buffer{}
	}
	body.Reset()
	*x = exchange{body: body}
	h.pool.Put(x)
}

// freeMemory is how many bytes a request may hold that are not counted. What most requests
// need is not more.
const freeMemory = 16 << 10

// acquire takes one of the places, if one gets free in time.
func (h *Handler) acquire(ctx context.Context, places *semaphore.Weighted) bool {
	if places.TryAcquire(1) {
		return true
	}
	wait, cancel := context.WithTimeout(ctx, h.cfg.Limits.Wait)
	defer cancel()
	return places.Acquire(wait, 1) == nil
}

// Drain refuses new operations, waits until those that were accepted are
// answered, and closes the WebSockets. It returns the context's error when
// that ends first.
func (h *Handler) Drain(ctx context.Context) error {
	defer h.close()
	return h.running.Acquire(ctx, math.MaxInt64)
}
