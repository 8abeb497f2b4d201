package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"

	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/fault"
)

// ErrorPresenter gives every error a code. The message of an error that is not one of ours is
// replaced, and its cause is logged with the path at which it happened.
func ErrorPresenter(log *slog.Logger) graphql.ErrorPresenterFunc {
	return func(ctx context.Context, err error) *gqlerror.Error {
		return present(ctx, log, err)
	}
}

func present(ctx context.Context, log *slog.Logger, err error) *gqlerror.Error {
	var shown *gqlerror.Error
	var own *fault.Error
	errors.As(err, &shown)
	out := &gqlerror.Error{Path: graphql.GetPath(ctx)}
	if shown != nil {
		out.Locations, out.Rule = shown.Locations, shown.Rule
		if len(shown.Path) > 0 {
			out.Path = shown.Path
		}
	}
	var code fault.Code
	resync, ended := errors.AsType[*storage.ResyncError](err)
	switch {
	case ended:
		code, out.Message = fault.CodeResync, resync.Error()
	case errors.As(err, &own):
		code, out.Message = own.Code, own.Message
		if cause := own.Unwrap(); cause != nil && (code == fault.CodeInternal || code == fault.CodeUnavailable) {
			logCause(ctx, log, out.Path, code, cause)
		} else if code == fault.CodeInternal {
			log.WarnContext(ctx, "a stored document does not satisfy the schema", "path", out.Path.String(), "error", own.Message)
		}
	case shown != nil && shown.Unwrap() == nil:
		// The GraphQL server's own, such as a limit's.
		code, out.Message = codeOf(shown), shown.Message
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		code, out.Message = fault.CodeUnavailable, fault.Ended(err).Message
	case shown != nil && inArguments(ctx):
		code, out.Message = fault.CodeBadUserInput, shown.Message
	default:
		code, out.Message = fault.CodeInternal, "internal error"
		logCause(ctx, log, out.Path, code, err)
	}
	for _, end := range []error{context.DeadlineExceeded, context.Canceled} {
		if code == fault.CodeUnavailable && errors.Is(err, end) {
			out.Err = end // httpapi looks whether the time was over
		}
	}
	out.Extensions = map[string]any{"code": string(code)}
	if ended {
		out.Extensions["asOf"] = resync.Loaded.String()
	}
	if own != nil && own.Earliest != 0 {
		out.Extensions["earliest"] = own.Earliest.String()
	}
	if shown != nil {
		for name, v := range shown.Extensions {
			if name != "code" {
				out.Extensions[name] = v
			}
		}
	}
	return out
}

func logCause(ctx context.Context, log *slog.Logger, path ast.Path, code fault.Code, cause error) {
	level := slog.LevelError
	if ctx.Err() != nil && (errors.Is(cause, context.Canceled) || errors.Is(cause, context.DeadlineExceeded)) {
		level = slog.LevelDebug // the operation is over, as its own line says: every field that was under way has this
	}
	log.Log(ctx, level, "a field could not be resolved", "path", path.String(), "code", string(code), "error", cause.Error())
}

// codeOf returns the code of an error; one without is gqlgen's, of an argument or a null.
func codeOf(err *gqlerror.Error) fault.Code {
	code, _ := err.Extensions["code"].(string)
	return cmp.Or(fault.Code(code), fault.CodeBadUserInput)
}

// inArguments reports whether an error comes from reading the arguments of a field: gqlgen
// wraps the reason that a scalar gave, and the field has no arguments yet.
func inArguments(ctx context.Context) bool {
	fc := graphql.GetFieldContext(ctx)
	return fc != nil && fc.Args == nil && fc.Field.Field != nil && len(fc.Field.Arguments) > 0
}

// Recover turns a panic in a resolver into an internal error, and logs it with
// its stack. It has the place of its field, as other errors have.
func Recover(log *slog.Logger) graphql.RecoverFunc {
	return func(ctx context.Context, p any) error {
		log.ErrorContext(ctx, "a resolver panicked", "path", graphql.GetPath(ctx).String(), "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		err := &fault.Error{Code: fault.CodeInternal, Message: "internal error"}
		if fc := graphql.GetFieldContext(ctx); fc == nil || fc.Field.Field == nil {
			return err // of an element, which has no place of its own
		}
		return graphql.AddFieldLocationToError(ctx, err)
	}
}
