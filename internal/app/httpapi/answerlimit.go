package httpapi

import (
	"context"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"
)

// answerLimit refuses answers whose data is too long, whatever executed the
// operation: instead of data and errors there is one error. No other limit knows
// how long an answer gets: a document is read once, and may be asked for under
// many aliases.
type answerLimit struct {
	most int // bytes
}

var _ interface {
	graphql.HandlerExtension
	graphql.ResponseInterceptor
} = answerLimit{}

func (answerLimit) ExtensionName() string { return "AnswerLimit" }

func (answerLimit) Validate(graphql.ExecutableSchema) error { return nil }

func (l answerLimit) InterceptResponse(ctx context.Context, next graphql.ResponseHandler) *graphql.Response {
	response := next(ctx)
	if response == nil {
		return nil
	}
	op := operationOf(ctx)
	code, message := CodeTooComplex, fmt.Sprintf("the answer is longer than %d bytes, the limit of this server: "+
		"ask for fewer documents, a smaller page or fewer fields and aliases", l.most)
	switch {
	case op != nil && op.starved.Load():
		code, message = CodeUnavailable, noMemory+": ask for less, or try again in a moment"
	case len(response.Data) <= l.most:
		return response
	}
	if graphql.GetOperationContext(ctx).Operation.Operation == ast.Mutation {
		message += "; the mutation was executed, do not repeat it"
	}
	response.Data = nil
	response.Errors = gqlerror.List{{Message: message, Extensions: map[string]any{"code": code}}}
	return response
}

// mostErrors is how many errors an answer lists: what fails in a document can fail
// in every place of a list that refers to it, under every alias.
const mostErrors = 1000

var moreErrors = fmt.Sprintf("more failed than the %d errors that this server lists: ask for fewer documents, a smaller page or fewer fields and aliases", mostErrors)

// BoundAnswers returns a schema that answers as inner does, but leaves off the
// data of an answer, while it is put together, once it is longer than so many
// bytes. What is left is longer by at least one, so that Limits.Answer, which is
// no greater, refuses it. Where the time of a query is over, no more of its fields
// are resolved, and of a mutation, which has to tell what it did, only lateFields. It
// is for schemas that keep what an answer is made of until it is complete, and look at
// nothing else meanwhile.
func BoundAnswers(inner graphql.ExecutableSchema, most int) graphql.ExecutableSchema {
	return boundedSchema{inner, most}
}

const (
	// fieldsPerLook is after how many fields the time is looked at, and memory is taken
	// for them: some fieldBytes each.
	fieldsPerLook = 64
	fieldBytes    = 400
	// lateFields is how many more tell what a mutation did whose time is over.
	lateFields = 10_000
)

type boundedSchema struct {
	graphql.ExecutableSchema
	most int
}

// Exec executes the context's operation with all of its fields bounded.
func (s boundedSchema) Exec(ctx context.Context) graphql.ResponseHandler {
	oc := graphql.GetOperationContext(ctx)
	field := oc.RootResolverMiddleware
	var one sync.Mutex // root fields are executed one after another, or all would hold what they read before one is refused
	oc.RootResolverMiddleware = func(ctx context.Context, next graphql.RootResolver) graphql.Marshaler {
		one.Lock()
		defer one.Unlock()
		value := field(ctx, next)
		if value == nil || value == graphql.Null || value == graphql.RequiredNull { // executors compare with these
			return value
		}
		return boundedValue{ctx, value, s.most}
	}
	allowed := int64(0)
	if oc.Operation.Operation == ast.Mutation {
		allowed = lateFields
	}
	var fields, late atomic.Int64
	resolve := oc.ResolverMiddleware
	oc.ResolverMiddleware = func(ctx context.Context, next graphql.Resolver) (any, error) {
		if n := fields.Add(1); n%fieldsPerLook == 0 || late.Load() > 0 {
			if n%fieldsPerLook == 0 {
				if err := CountMemory(ctx, fieldsPerLook*fieldBytes); err != nil && allowed == 0 {
					return nil, err
				}
			}
			if err := ctx.Err(); err != nil && late.Add(1) > allowed {
				return nil, err
			}
		}
		return resolve(ctx, next)
	}
	return s.ExecutableSchema.Exec(ctx)
}

// boundedValue writes a value as long as there is room for it.
type boundedValue struct {
	ctx context.Context
	graphql.Marshaler
	most int
}

func (v boundedValue) MarshalGQL(w io.Writer) {
	data, ok := w.(interface {
		io.Writer
		Len() int
	})
	if !ok { // nothing that keeps what it is given
		v.Marshaler.MarshalGQL(w)
		return
	}
	v.Marshaler.MarshalGQL(&boundedWriter{ctx: v.ctx, data: data, most: v.most, counted: data.Len()})
}

// boundedWriter writes to a buffer until that is one byte too long, or until there is no
// memory for it, and then nothing more.
type boundedWriter struct {
	ctx  context.Context
	data interface {
		io.Writer
		Len() int
	}
	most    int
	counted int // bytes for which memory is held
}

// writtenPerLook is after how many bytes memory is taken for them: twice as much, since a
// buffer that grows is copied.
const writtenPerLook = 64 << 10

func (w *boundedWriter) room(n int) int {
	length := w.data.Len()
	if length-w.counted >= writtenPerLook {
		if CountMemory(w.ctx, 2*(length-w.counted)) != nil {
			w.most = length - 1
		}
		w.counted = length
	}
	return min(n, max(w.most+1-length, 0))
}

func (w *boundedWriter) Write(p []byte) (int, error) {
	_, err := w.data.Write(p[:w.room(len(p))]) // buffers do not fail
	return len(p), err
}

// WriteString is Write without a copy, where the buffer can.
func (w *boundedWriter) WriteString(p string) (int, error) {
	_, err := io.WriteString(w.data, p[:w.room(len(p))])
	return len(p), err
}
