package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"
)

// The codes (extensions.code) that this package gives. The schema's errors
// bring their own.
const (
	codeBadInput   = "BAD_USER_INPUT"
	codeTooComplex = "QUERY_TOO_COMPLEX"
	CodeForbidden  = "FORBIDDEN"
	// CodeUnauthenticated asks for credentials, or for others.
	CodeUnauthenticated = "UNAUTHENTICATED"
	CodeUnavailable     = "UNAVAILABLE"
	codeTooSlow         = "TOO_SLOW"
	codeInternal        = "INTERNAL"
	// codeNotPersisted makes clients of persisted queries send the query.
	codeNotPersisted = "PERSISTED_QUERY_NOT_FOUND"
)

// refuse returns the error for a document that is not executed.
func refuse(code, format string, args ...any) *gqlerror.Error {
	return &gqlerror.Error{Message: fmt.Sprintf(format, args...), Extensions: map[string]any{"code": code}}
}

// codeOf returns extensions.code.
func codeOf(err *gqlerror.Error) string {
	code, _ := err.Extensions["code"].(string)
	return code
}

// statusOf is the status for an operation that gave no data because of its
// first error.
func statusOf(list gqlerror.List) int {
	if len(list) == 0 {
		return http.StatusOK
	}
	switch codeOf(list[0]) {
	case CodeUnavailable:
		return http.StatusServiceUnavailable
	case codeInternal:
		return http.StatusInternalServerError
	default:
		return http.StatusOK
	}
}

// problem is a request that is answered without being executed.
type problem struct {
	status  int
	code    string
	message string
}

// list is the problem as GraphQL errors.
func (p *problem) list() gqlerror.List {
	return gqlerror.List{{Message: Clip(p.message), Extensions: map[string]any{"code": p.code}}}
}

func (d *Denied) problem() *problem { return &problem{d.Status, d.Code, d.Message} }

// WriteError answers with one GraphQL error, as JSON.
func WriteError(w http.ResponseWriter, status int, code, message string) {
	p := problem{status, code, message}
	body, err := json.Marshal(struct {
		Errors gqlerror.List `json:"errors"`
	}{p.list()})
	if err != nil { // strings always encode
		http.Error(w, message, status)
		return
	}
	w.Header().Set("Content-Type", mediaJSON+"; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

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

// present shows an error to the client as the schema's presenter does. Beside the outcomes of
// its changes, an operation has at most mostErrors, and none once its answer is refused.
func present(presenter graphql.ErrorPresenterFunc) graphql.ErrorPresenterFunc {
	return func(ctx context.Context, err error) *gqlerror.Error {
		op := operationOf(ctx)
		if op != nil && op.long.Load() {
			return nil
		}
		if op != nil && !ofChange(ctx) && op.failed.Add(1) > mostErrors {
			if op.more.CompareAndSwap(false, true) {
				return &gqlerror.Error{Message: moreErrors, Extensions: map[string]any{"code": codeTooComplex}}
			}
			if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
				op.timedOut.Store(true)
			}
			return nil
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
// reports whether something was written.
func ofChange(ctx context.Context) bool {
	return graphql.HasOperationContext(ctx) && graphql.GetOperationContext(ctx).Operation != nil &&
		graphql.GetOperationContext(ctx).Operation.Operation == ast.Mutation && len(graphql.GetPath(ctx)) == 1
}
