package httpapi

import (
	"encoding/json"
	"errors"
	"maps"
	"net/http"

	"github.com/99designs/gqlgen/graphql/errcode"
	"github.com/vektah/gqlparser/v2/gqlerror"
)

// The codes (extensions.code) that this package gives. The schema's errors
// bring their own.
const (
	CodeBadInput    = "BAD_USER_INPUT"
	CodeTooComplex  = "QUERY_TOO_COMPLEX"
	CodeForbidden   = "FORBIDDEN"
	CodeNotFound    = "NOT_FOUND"
	CodeUnavailable = "UNAVAILABLE"
	CodeInternal    = "INTERNAL"
	// CodeNotPersisted tells clients of persisted queries to send the query.
	CodeNotPersisted = "PERSISTED_QUERY_NOT_FOUND"
)

// limited is the cause of an error by which a document was refused. gqlgen's
// WebSocket transport tells requests that cannot be executed from others by
// its own codes, so the final code travels here until the error is presented.
type limited struct{ code string }

func (l limited) Error() string { return l.code }

// refuse makes the error for a document that is not executed.
func refuse(code, format string, args ...any) *gqlerror.Error {
	err := gqlerror.Errorf(format, args...)
	err.Err = limited{code}
	errcode.Set(err, errcode.ValidationFailed)
	return err
}

// codeOf returns extensions.code.
func codeOf(err *gqlerror.Error) string {
	code, _ := err.Extensions["code"].(string)
	return code
}

// finalCodes replaces gqlgen's codes for documents that cannot be executed by
// the API's. The errors are the response's own; their extensions may be shared.
func finalCodes(list gqlerror.List) {
	for _, err := range list {
		code := codeOf(err)
		var l limited
		switch {
		case errors.As(err.Err, &l):
			code = l.code
		case code == errcode.ParseFailed, code == errcode.ValidationFailed, code == "":
			code = CodeBadInput
		default:
			continue
		}
		extensions := make(map[string]any, len(err.Extensions)+1)
		maps.Copy(extensions, err.Extensions)
		extensions["code"] = code
		err.Extensions = extensions
	}
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
	case CodeInternal:
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
