// Package fault has the errors that users see.
package fault

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/asof/asof/storage/driver"
)

// Code is the extensions.code of a GraphQL error.
type Code string

// The codes.
const (
	CodeBadUserInput     Code = "BAD_USER_INPUT"
	CodeNotFound         Code = "NOT_FOUND"
	CodeAmbiguousVersion Code = "AMBIGUOUS_VERSION"
	CodeAsOfInFuture     Code = "AS_OF_IN_FUTURE"
	CodeVersionNotFound  Code = "VERSION_NOT_FOUND"
	CodeQueryTooComplex  Code = "QUERY_TOO_COMPLEX"
	CodeHistoryPruned    Code = "HISTORY_PRUNED"
	CodeResync           Code = "RESYNC"
	CodeTooSlow          Code = "TOO_SLOW"
	CodeUnsupported      Code = "UNSUPPORTED" // this engine cannot
	CodeForbidden        Code = "FORBIDDEN"
	CodeUnavailable      Code = "UNAVAILABLE"
	CodeInternal         Code = "INTERNAL"
)

// Error is what package storage returns. Its message is for the user; the cause is
// for the operator: it is to be logged and never shown.
type Error struct {
	Code    Code
	Message string
	Cause   error
	// Earliest, of HISTORY_PRUNED, is the least instant from which on nothing is missing.
	Earliest driver.Instant
}

func (e *Error) Error() string { return e.Message }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// Errorf returns an error with a code.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// BadInput returns the error of what a client may not send.
func BadInput(format string, args ...any) *Error { return Errorf(CodeBadUserInput, format, args...) }

// Ended returns the error of a request whose context has ended, which err says.
func Ended(err error) *Error {
	message := "the request was given up by its sender"
	if errors.Is(err, context.DeadlineExceeded) {
		message = "the request took longer than this server allows (--max-execution, --max-time); ask for less at a time, or for a shorter time"
	}
	return &Error{Code: CodeUnavailable, Message: message, Cause: err}
}

// QuoteShort quotes what a user gave, without repeating all of it.
func QuoteShort(s string) string {
	const most = 80
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return strconv.Quote(s)
}
