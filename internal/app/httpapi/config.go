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
	"log/slog"
	"net/http"
	"time"

	"github.com/99designs/gqlgen/graphql"
	"github.com/prometheus/client_golang/prometheus"
)

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
