package httpapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"

	"github.com/asof/asof/internal/app/admission"
)

// operation is what is logged and measured of one request, or of one
// operation in a stream of them. Except for what it has read, it is written by
// one goroutine at a time.
type operation struct {
	start     time.Time
	took      time.Duration // of a subscription, until it was begun
	transport string
	request   string // the request's id
	actor     string
	name      string
	kind      string       // query, mutation; "" when it was not understood
	instant   string       // that its answer was read at, as RFC 3339; "" for none
	read      atomic.Int64 // versions of documents
	bytes     atomic.Int64 // of them
	kept      atomic.Int64 // bytes of documents, fields and answer that are in memory until it ends
	limits    *Limits
	status    int          // of the HTTP response; 0 in streams
	failed    atomic.Int64 // errors, also those that its answer does not list; more for those that are long
	more      atomic.Bool  // its answer does not list them all
	timedOut  atomic.Bool  // one of the errors that are not listed is that its context has ended
	listEnded atomic.Bool  // its context ended before all elements of a list: gqlgen has made an empty one of it
	errors    gqlerror.List
	executor  string // executorPlan, executorGqlgen, or "" where nothing was executed
	// unplanned is why it was not executed by a plan, where plans are made.
	unplanned string

	client string          // the sender, for its share of memory and places
	hold   *admission.Hold // the memory that it holds; nil: that is not counted
	get    bool            // it came by GET
	event  bool            // it tells an event of a subscription
	left   time.Duration   // of execution; 0: Limits.Execution
	// readOnly is what it is answered if it is a mutation; nil: it is executed.
	readOnly    *Denied
	expected    expected       // once it is read
	sizes       map[string]int // of its variables, see sizeOf
	outOfMemory atomic.Bool    // there was no memory for it
	long        atomic.Bool    // the answer is longer than one may be
	opContext   opContext      // its context, once it has a place
	documentID  string         // by which the request names its document; "": it does not
	document    *document
	answered    chan struct{} // of a stream: closed when it has ended
}

// sentBy notes who sent it.
func (o *operation) sentBy(who Identity) {
	o.actor, o.readOnly, o.client = who.Actor, who.ReadOnly, cmp.Or(who.Client, o.client)
}

// The code and status, in the log and the metrics, of operations whose client did not wait. No
// client sees either: the status is nginx's.
const (
	codeCancelled   = "CANCELLED"
	statusCancelled = 499
)

// The executors, as labels of metrics and in the log.
const (
	executorPlan   = "plan"
	executorGqlgen = "gqlgen"
	executorNone   = "none"
)

// NotePlan notes that the context's operation has a plan, or why it has none.
func NotePlan(ctx context.Context, why string) {
	op := operationOf(ctx)
	switch {
	case op == nil:
	case why == "":
		op.executor = executorPlan
	default:
		op.unplanned = why
	}
}

type operationKey struct{}

func operationOf(ctx context.Context) *operation {
	op, _ := ctx.Value(operationKey{}).(*operation)
	return op
}

// RequestID names the request that a context belongs to, as the answer's
// X-Request-Id does; "" where there is none. It is for logs.
func RequestID(ctx context.Context) string {
	if op := operationOf(ctx); op != nil {
		return op.request
	}
	return ""
}

// namesRequest is a context for a line of the log that has the request's id
// already: a log that asks RequestID does not add it once more.
func namesRequest(ctx context.Context) context.Context {
	if operationOf(ctx) == nil {
		return ctx
	}
	return context.WithValue(ctx, operationKey{}, (*operation)(nil))
}

// CountRead counts versions of documents, and their bytes, that were read for
// the context's operation, and what of them it keeps until it ends: all, or nothing of what is looked at in
// passing. It returns an error for the client if the operation has read, or keeps, more than it may.
func CountRead(ctx context.Context, versions, bytes, kept int) error {
	op := operationOf(ctx)
	if op == nil {
		return nil
	}
	op.read.Add(int64(versions))
	if op.bytes.Add(int64(bytes)) <= op.limits.Read {
		return op.keep(int64(kept), int64(max(bytes, kept)))
	}
	return fmt.Errorf("the operation reads more than %d bytes of documents and their versions, the limit of this server (--max-read): "+
		"ask for fewer documents, a smaller page or a shorter time (from, to), or leave out totalCount, which looks at all there are", op.limits.Read)
}

// LeftToRead is how many bytes the context's operation may still read; 0: any number.
func LeftToRead(ctx context.Context) int64 {
	op := operationOf(ctx)
	if op == nil {
		return 0
	}
	return max(min(op.limits.Read-op.bytes.Load(), op.limits.kept()-op.kept.Load()), 1)
}

// executorName returns what executed the operation, for metrics and the log.
func (o *operation) executorName() string {
	if o.executor == "" {
		return executorNone
	}
	return o.executor
}

// explain adds a header with what executed the operation, and why no plan did.
func (o *operation) explain(header http.Header) {
	switch {
	case o.executor == executorPlan:
		header["X-Asof-Executor"] = byPlan
	case o.unplanned != "":
		header["X-Asof-Executor"] = []string{Clip(executorGqlgen + "; " + o.unplanned)}
	}
}

var byPlan = []string{executorPlan}

// Clip leaves out the middle of a text of more than 400 bytes, and no part of a
// character: what clients sent fills no log and no error, and what the message of an
// error says around it is at its ends.
func Clip(text string) string {
	const most, end = 400, 150
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:end], "") + "…" + strings.ToValidUTF8(text[len(text)-end:], "")
}

// code is the first error's, or "OK".
func (o *operation) code() string {
	if len(o.errors) == 0 {
		return "OK"
	}
	return codeOf(o.errors[0])
}

// finish logs and measures an operation that has been answered. The context is
// the client's.
func (h *Handler) finish(ctx context.Context, op *operation) {
	took := cmp.Or(op.took, h.cfg.Now().Sub(op.start))
	if op.code() == CodeUnavailable && errors.Is(ctx.Err(), context.Canceled) {
		op.errors = gqlerror.List{{Message: "the client did not wait", Extensions: map[string]any{"code": codeCancelled}}}
		if op.status != 0 {
			op.status = statusCancelled
		}
	}
	h.metrics.observe(op, took)
	level := slog.LevelInfo
	switch {
	case op.status == 0 && op.code() == CodeUnavailable && op.kind != string(ast.Query) && op.kind != string(ast.Mutation):
		level = slog.LevelDebug // in streams nothing else bounds how many are refused; metrics count them
	case h.cfg.Slow > 0 && took >= h.cfg.Slow:
		level = slog.LevelWarn
	case op.code() == codeInternal:
		level = slog.LevelError
	case op.event:
		level = slog.LevelDebug // each commit may be one of thousands of subscriptions; metrics count them
	}
	if !h.cfg.Logger.Enabled(ctx, level) {
		return
	}
	attrs := make([]slog.Attr, 0, 14)
	attrs = append(attrs,
		slog.String("name", op.name),
		slog.String("type", op.kind),
		slog.String("asOf", op.instant),
		slog.Duration("duration", took),
		slog.Int64("documentsRead", op.read.Load()),
		slog.Int64("bytesRead", op.bytes.Load()),
		slog.String("transport", op.transport),
		slog.String("executor", op.executorName()),
		slog.String("actor", op.actor),
		slog.String("request", op.request),
	)
	if op.status != 0 {
		attrs = append(attrs, slog.Int("status", op.status))
	}
	// Why there is no plan matters where that took long: what is seldom asked has none.
	if op.unplanned != "" && (level > slog.LevelInfo || h.cfg.Logger.Enabled(ctx, slog.LevelDebug)) {
		attrs = append(attrs, slog.String("unplanned", op.unplanned))
	}
	if len(op.errors) > 0 {
		codes := make([]string, 0, 4)
		for _, err := range op.errors {
			if len(codes) == cap(codes) {
				break
			}
			codes = append(codes, codeOf(err))
		}
		attrs = append(attrs,
			slog.Any("codes", codes),
			slog.Int("errors", len(op.errors)),
			slog.String("error", op.errors[0].Message))
	}
	h.cfg.Logger.LogAttrs(namesRequest(ctx), level, "operation", attrs...)
}

// metrics counts operations. The labels have few values: a code is one of the
// API's, a status one of HTTP's.
type metrics struct {
	operations *prometheus.CounterVec
	durations  *prometheus.HistogramVec
	documents  prometheus.Counter
	refused    *prometheus.CounterVec
	webSockets prometheus.Gauge

	subscriptions prometheus.Gauge
}

func newMetrics(to prometheus.Registerer, gate *admission.Gate, memory *admission.Budget) *metrics {
	m := &metrics{
		operations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "asof_operations_total",
			Help: "GraphQL operations answered, by type, HTTP status (0 in streams, 499 where the client did not wait), " +
				"code of the first error (CANCELLED where the client did not wait), and what executed them.",
		}, []string{"type", "status", "code", "executor"}),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "asof_operation_duration_seconds",
			Help:    "Time from the arrival of a GraphQL operation to its answer, by type and by what executed it.",
			Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}, []string{"type", "executor"}),
		documents: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "asof_documents_read_total",
			Help: "Versions of documents that operations read from the store.",
		}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "asof_requests_refused_total",
			Help: "Requests that were refused before they were read, by what was wrong: host, origin, content-type, content-encoding, method, upgrade, shutdown.",
		}, []string{"reason"}),
		subscriptions: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "asof_subscriptions",
			Help: "Subscriptions that wait for events.",
		}),
		webSockets: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "asof_websockets",
			Help: "Open WebSocket connections.",
		}),
	}
	to.MustRegister(m.operations, m.durations, m.documents, m.refused, m.webSockets, m.subscriptions,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "asof_operations_in_flight",
			Help: "GraphQL operations that are being executed.",
		}, func() float64 { return float64(gate.InFlight()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "asof_requests_held_bytes",
			Help: "Memory that requests hold, as it is counted for --max-memory.",
		}, func() float64 { return float64(memory.Held()) }))
	return m
}

func (m *metrics) observe(op *operation, took time.Duration) {
	kind := op.kind
	if kind == "" {
		kind = "none"
	}
	m.operations.WithLabelValues(kind, strconv.Itoa(op.status), op.code(), op.executorName()).Inc()
	m.durations.WithLabelValues(kind, op.executorName()).Observe(took.Seconds())
	if read := op.read.Load(); read > 0 {
		m.documents.Add(float64(read))
	}
}

// opContext is the context of an operation: it has the operation among its values,
// and ends after a time, as a context of context.WithTimeout does. But it has no
// timer until Done is called: most operations are over soon, and only ask Err.
type opContext struct {
	context.Context // the parent

	op    *operation
	now   func() time.Time
	until time.Time

	// What follows is of execution, see execute.
	executing  time.Time
	most, used time.Duration
	cpu        func() time.Duration
	finishes   bool

	mu    sync.Mutex
	ended error           // why it has ended; nil: it has not
	timed context.Context // that ends as this one, for who waits; nil: nobody does
	stop  func()          // ends timed
}

// processor reads the processor time of the process, now and then.
type processor struct {
	now  func() time.Duration
	last atomic.Pointer[reading]
}

type reading struct {
	at   time.Time
	used time.Duration
}

// before returns the processor time used at some moment up to at, at most age before it: to
// read it is a system call, and most operations are over soon.
func (p *processor) before(at time.Time, age time.Duration) time.Duration {
	last := p.last.Load()
	if last == nil || at.Sub(last.at) > age {
		last = &reading{at, p.now()}
		p.last.Store(last)
	}
	return last.used
}

// inaccuracy is how many times longer an operation may take than what was asked for is old:
// it may have that much less time, for each processor, and never more.
const inaccuracy = 32

// execute notes when the execution began, and that it may take at most a time, both by the
// clock and by the processor time of the process: on a busy machine the clock alone tells
// nothing about an operation. With finishes, of a mutation, Err does not report that this time
// is over; no further root field is begun once a quarter of it is. It is called before the context is shared.
func (c *opContext) execute(since time.Time, most time.Duration, p *processor, finishes bool) {
	c.executing, c.used, c.most, c.cpu, c.finishes = since, p.before(since, most/inaccuracy), most, p.now, finishes
}

// cpuExceeded reports whether the operation was executed for a time.
func (c *opContext) cpuExceeded(now time.Time, most time.Duration) bool {
	return c.cpu != nil && now.Sub(c.executing) >= most/3*2 && c.cpu()-c.used >= most
}

// Spent reports whether the context's operation was executed for a share of Limits.Execution.
func Spent(ctx context.Context, share float64) bool {
	op := operationOf(ctx)
	if op == nil {
		return false
	}
	c := &op.opContext
	return c.cpuExceeded(c.now(), time.Duration(share*float64(c.most)))
}

// newOpContext makes an operation's context, which ends at a time, or with end.
func newOpContext(ctx context.Context, op *operation, now func() time.Time, until time.Time) *opContext {
	c := &op.opContext
	c.Context, c.op, c.now, c.until = ctx, op, now, until
	return c
}

// waited returns the context for who waits, with its timer.
func (c *opContext) waited() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timed == nil {
		c.timed, c.stop = context.WithTimeout(c.Context, c.until.Sub(c.now()))
		if c.ended != nil {
			c.stop()
		}
	}
	return c.timed
}

// Done is closed when the context ends.
func (c *opContext) Done() <-chan struct{} { return c.waited().Done() }

// Deadline returns when the time is over, by the system's clock, which callers compare with.
func (c *opContext) Deadline() (time.Time, bool) { return c.waited().Deadline() }

// Value returns the operation, or what the other context has.
func (c *opContext) Value(key any) any {
	if key == (operationKey{}) {
		return c.op
	}
	c.mu.Lock()
	in := c.Context
	if c.timed != nil { // derived contexts look for the one that ends
		in = c.timed
	}
	c.mu.Unlock()
	return in.Value(key)
}

// Err returns why the context has ended; nil: it has not.
func (c *opContext) Err() error { return c.err(nil) }

// end ends the context, if it has not ended.
func (c *opContext) end() { _ = c.err(context.Canceled) }

// err is Err of a context that ends now with an error, unless that is nil.
func (c *opContext) err(end error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended != nil {
		return c.ended
	}
	in, now := c.Context, c.now()
	if c.timed != nil {
		in = c.timed
	}
	switch {
	case c.timed == nil && !now.Before(c.until):
		c.ended = context.DeadlineExceeded
	case in.Err() != nil: // who does not wait any more has not waited too long
		c.ended = in.Err()
	case !c.finishes && c.cpuExceeded(now, c.most):
		c.ended = context.DeadlineExceeded
	default:
		c.ended = end
	}
	if c.ended != nil && c.timed != nil {
		c.stop()
	}
	return c.ended
}
