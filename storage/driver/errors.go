package driver

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Code says what kind of error it is.
type Code string

// The five codes.
const (
	CodeNotFound    Code = "not_found"
	CodeConflict    Code = "conflict"
	CodeInvalid     Code = "invalid"
	CodeUnavailable Code = "unavailable"
	CodeInternal    Code = "internal"
)

// Error is an error with a code and a message. The message of an error with
// CodeInternal or CodeUnavailable is for operators: it is logged, and clients
// get a sentence without it.
type Error struct {
	Code    Code
	Message string
	Cause   error
	// Refused, of a write: nothing of it was sent to the store, and this says
	// why, to clients. Empty: it is not known, or the code says so.
	Refused string
}

func (e *Error) Error() string { return e.Message }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// Errorf makes an Error; a %w verb sets its cause.
func Errorf(code Code, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Code: code, Message: err.Error(), Cause: errors.Unwrap(err)}
}

// Wrap gives an error of a database the code that Engine promises, and says which operation
// failed. explain returns the code, a text that says what to do (or none) and Refused.
// Errors that have a code keep it.
func Wrap(err error, doing string, explain func(error) Error) error {
	var coded *Error
	var conflict *ConflictError
	var load *LoadError
	if err == nil || errors.As(err, &coded) || errors.As(err, &conflict) || errors.As(err, &load) {
		return err
	}
	e := explain(err)
	if e.Message != "" {
		doing += ": " + e.Message
	}
	e.Message, e.Cause = doing+": "+err.Error(), err
	return &e
}

// Refused is an error of a write of which nothing was sent to the store, and why,
// to clients. It does not change err, which others may have as well.
func Refused(why string, err error) *Error {
	return &Error{Code: CodeOf(err), Message: err.Error(), Cause: err, Refused: why}
}

// Closed is the error of a call to an engine that is closed.
func Closed() *Error {
	const text = "the store is closed"
	return Refused(text, Errorf(CodeUnavailable, text))
}

// GivenUp is the error of a call whose context ended, with err, before the call
// began.
func GivenUp(err error) *Error {
	why := "the request was given up by its sender"
	if errors.Is(err, context.DeadlineExceeded) {
		why = "the request took longer than this server allows"
	}
	return Refused(why, Errorf(CodeUnavailable, "the request ended before it began: %w", err))
}

// ConflictError is a lost compare-and-swap: the writes of a Commit that did not find
// the version that they expected, in the order of the writes. Its code is CodeConflict.
type ConflictError struct{ Lost []Conflict }

// Conflict is one of the writes that lost.
type Conflict struct {
	Collection, Key  string
	Expected, Actual int64 // version numbers; Actual 0: the document never existed
}

func (e *ConflictError) Error() string {
	texts := make([]string, len(e.Lost))
	for i, c := range e.Lost {
		texts[i] = fmt.Sprintf("%s %q is at version %d, not %d", c.Collection, c.Key, c.Actual, c.Expected)
	}
	return strings.Join(texts, "; ")
}

// LoadError is a version that Load refused: the first that is malformed, or else the
// first that does not fit. Its code is CodeInvalid.
type LoadError struct {
	Index int // in the slice given to Load
	Err   error
}

func (e *LoadError) Error() string { return e.Err.Error() }

// Unwrap returns what was wrong.
func (e *LoadError) Unwrap() error { return e.Err }

// RefusalOf returns why a write was refused before anything of it was sent to the
// store, in words for clients; "" where it may have been written.
func RefusalOf(err error) string {
	for {
		var e *Error
		if !errors.As(err, &e) {
			return ""
		}
		if e.Refused != "" {
			return e.Refused
		}
		err = e.Cause
	}
}

// CodeOf returns the code of an error, "" for nil and CodeInternal for one
// that has none.
func CodeOf(err error) Code {
	var e *Error
	var c *ConflictError
	var l *LoadError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &l):
		return CodeInvalid
	case errors.As(err, &c):
		return CodeConflict
	case errors.As(err, &e):
		return e.Code
	default:
		return CodeInternal
	}
}
