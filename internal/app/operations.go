package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"

	"github.com/asof/asof/dataloader"
	"github.com/asof/asof/internal/app/httpapi"
	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/fault"
)

// operations ties GraphQL operations to the store.
type operations struct{ store *storage.Store }

func (o operations) Begin(ctx context.Context) (context.Context, error) {
	begun, err := o.store.Begin(ctx)
	if err != nil && isMutation(ctx) {
		return ctx, storage.Unwritten(err)
	}
	return begun, err
}

// loading is a schema whose operations load references together. What has a plan reads by levels.
type loading struct {
	graphql.ExecutableSchema
	store *storage.Store
}

func (l loading) Exec(ctx context.Context) graphql.ResponseHandler {
	next := l.ExecutableSchema.Exec(ctx)
	return func(ctx context.Context) *graphql.Response { return next(dataloader.Begin(ctx, l.store)) }
}

// subscribe is httpapi.Config.Subscribe.
func (o operations) subscribe(ctx context.Context) (context.Context, func(context.Context) (httpapi.Watch, error)) {
	begin, sub := o.store.Subscribe(ctx)
	return begin, func(ctx context.Context) (httpapi.Watch, error) {
		w, err := sub.Watch(ctx)
		return watch{w}, err
	}
}

// watch is a httpapi.Watch.
type watch struct{ *storage.Watch }

func (w watch) Next(ctx context.Context, take func(httpapi.Event) bool) (more bool, err error) {
	return w.Watch.Next(ctx, func(e *storage.Event) bool { return take(e) })
}

// isMutation reports whether a context is of an operation that writes.
func isMutation(ctx context.Context) bool {
	if !graphql.HasOperationContext(ctx) {
		return false
	}
	op := graphql.GetOperationContext(ctx).Operation
	return op != nil && op.Operation == ast.Mutation
}

func (o operations) Instant(ctx context.Context) string {
	at, ok := storage.InstantOf(ctx)
	if !ok {
		return ""
	}
	return at.String()
}

// weight is what a field costs beside what it returns, in fields: it reads
// versions and compares them with each other. parent and result are the names of
// the types that the field belongs to and leads to.
func weight(parent, field, result string) int {
	const (
		history  = 20  // a page of what happened
		compared = 20  // two versions
		edge     = 10  // a version and the one before, a draft, or the tags of a version
		blame    = 50  // back to the version that explains the last value
		versions = 100 // all of one document, counted
		changes  = 500 // all of them, compared and counted
	)
	switch {
	case result == "FieldChangeConnection":
		return history
	case result == "DocumentDiff":
		return compared
	case result == "FieldBlame":
		return blame
	case (result == "FieldChange" || result == "DraftProblem") &&
		(strings.HasSuffix(parent, "VersionEdge") || strings.HasSuffix(parent, "Draft") || parent == "DraftSave"):
		return edge
	case result == "VersionTag", parent == "VersionInfo" && field == "erased":
		return edge
	case field == "totalCount" && parent == "FieldChangeConnection":
		return changes
	case field == "totalCount" && (strings.HasSuffix(parent, "VersionConnection") || parent == "DraftSaveConnection"):
		return versions
	default:
		return 0
	}
}

// counting is an engine that counts the versions that each operation reads, and
// their bytes. It stops an operation that has read more than it may; what is not
// done for an operation, such as an import, is not limited.
type counting struct {
	driver.Engine
	remembers driver.Rememberer // the engine, or nil
	first     int               // so many references are read at first
}

// counted counts what is read of an engine.
func counted(engine driver.Engine) driver.Engine {
	c := counting{Engine: engine, first: getFirst}
	c.remembers, _ = driver.As[driver.Rememberer](engine)
	if _, distant := driver.As[driver.Distant](engine); distant {
		c.first = getTogether // each call goes there and back
	}
	return c
}

// Unwrap returns the engine that is counted, see driver.As.
func (c counting) Unwrap() driver.Engine { return c.Engine }

// References can lead to many documents at once: so many are read before they are
// counted, where they are small, and at first; and so many bytes at a time after that.
const (
	getTogether = 256
	getFirst    = 8
	getBytes    = 1 << 20
)

func (c counting) Get(ctx context.Context, collection string, refs []driver.Ref, fields []string) ([]*driver.Version, error) {
	n := c.first
	if len(refs) <= n {
		versions, _, err := c.get(ctx, collection, refs, fields)
		return versions, err
	}
	all := make([]*driver.Version, 0, len(refs))
	for len(refs) > 0 {
		n = min(n, len(refs))
		versions, size, err := c.get(ctx, collection, refs[:n], fields)
		if err != nil {
			return nil, err
		}
		all, refs = append(all, versions...), refs[n:]
		n = min(max(n*getBytes/max(size, 1), 1), getTogether)
	}
	return all, nil
}

// get also returns the bytes of what it has read.
func (c counting) get(ctx context.Context, collection string, refs []driver.Ref, fields []string) ([]*driver.Version, int, error) {
	versions, err := c.Engine.Get(ctx, collection, refs, fields)
	if err != nil {
		return nil, 0, err
	}
	keys := 0 // a reference keeps one, and so does where what it led to is looked up
	for i := range refs {
		keys += 2 * len(refs[i].Key)
	}
	size, err := count(ctx, perVersion, keys, versions...)
	return versions, size, err
}

// Remembered implements driver.Rememberer; nil where the engine does not.
func (c counting) Remembered(ctx context.Context, collection, key string, number int64) (*driver.Version, error) {
	if c.remembers == nil {
		return nil, nil
	}
	v, err := c.remembers.Remembered(ctx, collection, key, number)
	if v == nil || err != nil {
		return nil, err
	}
	_, err = count(ctx, perVersion, 0, v)
	return v, err
}

func (c counting) Query(ctx context.Context, q *driver.Query) ([]*driver.Version, error) {
	asked := *q
	asked.Bytes = httpapi.LeftToRead(ctx)
	versions, err := c.Engine.Query(ctx, &asked)
	if err != nil {
		return nil, err
	}
	_, err = count(ctx, perVersion, 0, versions...)
	return versions, err
}

func (c counting) Log(ctx context.Context, q *driver.LogQuery) iter.Seq2[*driver.Version, error] {
	return func(yield func(*driver.Version, error) bool) {
		if _, err := count(ctx, 0, 0); err != nil { // too much was read before: an engine reads several at once
			yield(nil, err)
			return
		}
		for v, err := range c.Engine.Log(ctx, q) {
			if err == nil {
				_, err = count(ctx, 0, 0, v)
			}
			if !yield(v, err) || err != nil {
				return
			}
		}
	}
}

// usualSize is the size from which on the bytes of a document count twice: to compare it, or to
// answer it, takes several times its memory, all of which exists at once.
const usualSize = 32 << 10

// How many bytes a version takes beside its data until its operation ends, and what is looked for
// and not there, about.
const (
	perVersion = 560
	perNothing = 200
)

// count counts versions, and returns their bytes; nil ones are those that were not
// there. Beside is what each takes beside them; 0: the operation does not keep them. It keeps so
// many bytes of keys, too.
func count(ctx context.Context, beside, keys int, versions ...*driver.Version) (size int, err error) {
	found, again, kept := 0, 0, keys
	for _, v := range versions {
		if v != nil {
			found++
			size += v.Size()
			again += max(len(v.Data)-usualSize, 0)
		}
	}
	if beside > 0 {
		kept += size + found*beside + (len(versions)-found)*perNothing
	}
	if err := httpapi.CountRead(ctx, found, size+again, kept); err != nil {
		return size, &fault.Error{Code: fault.CodeQueryTooComplex, Message: err.Error()}
	}
	return size, nil
}

// pinned reports whether an answer's data stays as it is, whatever is written later: each root
// field names an instant, and none asks for the name of an actor, which has no versions.
func pinned(oc *graphql.OperationContext) bool {
	byInstant := false
	for _, field := range graphql.CollectFields(oc, oc.Operation.SelectionSet, []string{"Query"}) {
		if field.Name == "__typename" {
			continue
		}
		argument := field.Arguments.ForName("asOf")
		if argument == nil {
			return false
		}
		if value, err := argument.Value.Value(oc.Variables); err != nil || value == nil {
			return false
		}
		byInstant = true
	}
	return byInstant && !selects(oc.Doc, func(f *ast.Field) bool { return f.Name == "name" && f.ObjectDefinition.Name == "Actor" })
}

// selects reports whether a field of a document, in any of its operations, is such a one.
func selects(doc *ast.QueryDocument, such func(*ast.Field) bool) bool {
	var in func(list ast.SelectionSet) bool
	in = func(list ast.SelectionSet) bool {
		return slices.ContainsFunc(list, func(selected ast.Selection) bool {
			switch selected := selected.(type) {
			case *ast.InlineFragment:
				return in(selected.SelectionSet)
			case *ast.Field:
				return such(selected) || in(selected.SelectionSet)
			default: // fragments are looked at once
				return false
			}
		})
	}
	return slices.ContainsFunc(doc.Operations, func(o *ast.OperationDefinition) bool { return in(o.SelectionSet) }) ||
		slices.ContainsFunc(doc.Fragments, func(f *ast.FragmentDefinition) bool { return in(f.SelectionSet) })
}

// logger writes to standard error.
func (m *Main) logger() *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(m.flags.LogLevel)) // one of those that the flag may have
	options := &slog.HandlerOptions{Level: level, ReplaceAttr: clipped}
	if m.flags.LogFormat == "json" {
		options.ReplaceAttr = func(groups []string, a slog.Attr) slog.Attr { return inSeconds(clipped(groups, a)) }
		return slog.New(named{slog.NewJSONHandler(m.Stderr, options)})
	}
	return slog.New(named{slog.NewTextHandler(m.Stderr, options)})
}

// clipped bounds each value of the log, since clients choose some. A stack is the program's own
// text.
func clipped(_ []string, a slog.Attr) slog.Attr {
	switch a.Value.Kind() {
	case slog.KindString:
		if a.Key != "stack" {
			a.Value = slog.StringValue(httpapi.Clip(a.Value.String()))
		}
	case slog.KindAny: // an error, a list
		if text := a.Value.String(); a.Key != slog.LevelKey && httpapi.Clip(text) != text {
			a.Value = slog.StringValue(httpapi.Clip(text))
		}
	default: // short
	}
	return a
}

// inSeconds names the unit of a duration, which is a bare number in JSON.
func inSeconds(a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		return slog.Float64(a.Key+"Seconds", a.Value.Duration().Seconds())
	}
	return a
}

// named is a log whose lines name the request in which they were written.
type named struct{ slog.Handler }

func (n named) Handle(ctx context.Context, r slog.Record) error {
	if request := httpapi.RequestID(ctx); request != "" {
		r.AddAttrs(slog.String("request", request))
	}
	return n.Handler.Handle(ctx, r)
}

func (n named) WithAttrs(attrs []slog.Attr) slog.Handler { return named{n.Handler.WithAttrs(attrs)} }

func (n named) WithGroup(name string) slog.Handler { return named{n.Handler.WithGroup(name)} }

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
