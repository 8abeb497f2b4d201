package httpapi

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"

	"github.com/asof/asof/internal/scalar/literal"
)

// MostErrors is how many errors an answer lists: what fails in a document can fail
// in every place of a list that refers to it, under every alias.
const MostErrors = 1000

var moreErrors = fmt.Sprintf("more failed than the %d errors that this server lists: ask for fewer documents, a smaller page or fewer fields and aliases", MostErrors)

// BoundAnswers returns a schema that answers as inner does, but leaves off the
// data of an answer, while it is put together, once it is longer than Limits.Answer, by
// at least one byte, so that it is refused. Where the time of a query is over, no more of
// its fields are resolved, and of a mutation, which has to report what it did, only
// lateFields. An operation that resolves more than resolvedPerCost times Limits.Cost
// fields and elements of lists is refused, whatever was expected of it; of a mutation,
// what is shown of its changes. It is for schemas that keep what an answer is made of
// until it is complete, and look at nothing else meanwhile.
func BoundAnswers(inner graphql.ExecutableSchema, limits Limits) graphql.ExecutableSchema {
	return boundedSchema{inner, limits.Answer, max(resolvedPerCost*int64(limits.Cost), wholeSchema(inner.Schema()))}
}

// wholeSchema is more than what tools resolve that ask for the whole schema.
func wholeSchema(schema *ast.Schema) (fields int64) {
	const each = 40 // of what has a type, which may be lists within each other
	for _, def := range schema.Types {
		fields += each * int64(1+len(def.EnumValues))
		for _, f := range def.Fields {
			fields += each * int64(1+len(f.Arguments))
		}
	}
	return fields
}

// unbegun is the error of a root field of a mutation that has taken a quarter of its time before: the
// rest is for one field, which is not stopped.
const unbegun = "the fields before this one took a quarter of the time that this server allows (--max-execution); this one was not executed, and nothing was written by it: send fewer at a time"

const (
	// fieldsPerLook is after how many fields the time is looked at, and memory is taken
	// for them: some fieldBytes each.
	fieldsPerLook = 64
	fieldBytes    = 400
	// lateFields is how many more fields report what a mutation did whose time is over.
	lateFields = 10_000
	// resolvedPerCost is how many times larger than expected an answer may be: lists
	// may be longer, and introspection is expected to have each field once.
	resolvedPerCost = 2
	// leastTexts is how many bytes of texts the fields of any answer may have: some are left out
	// again where null rises.
	leastTexts = 4 << 20
)

// errAloneInAnswer is the cause of an error that is the only one of its answer.
var errAloneInAnswer = errors.New("the operation is refused as a whole")

type boundedSchema struct {
	graphql.ExecutableSchema
	answer int   // bytes
	fields int64 // with the elements of lists
}

// Exec executes the context's operation with all of its fields bounded.
func (s boundedSchema) Exec(ctx context.Context) graphql.ResponseHandler {
	oc := graphql.GetOperationContext(ctx)
	field := oc.RootResolverMiddleware
	var one sync.Mutex // root fields are executed one after another, or all would hold what they read before one is refused
	begun := false
	oc.RootResolverMiddleware = func(ctx context.Context, next graphql.RootResolver) graphql.Marshaler {
		one.Lock()
		defer one.Unlock()
		first := !begun
		begun = true
		if oc.Operation.Operation == ast.Mutation && !first && Spent(ctx, .25) {
			path := ast.Path{ast.PathName(graphql.GetRootFieldContext(ctx).Field.Alias)}
			graphql.AddError(ctx, &gqlerror.Error{Message: unbegun, Path: path, Extensions: map[string]any{"code": CodeUnavailable}})
			return graphql.Null
		}
		value := field(ctx, next)
		if value == nil || value == graphql.Null || value == graphql.RequiredNull { // executors compare with these
			return value
		}
		most := s.answer
		if op := operationOf(ctx); op != nil {
			most = op.limits.Answer
		}
		return boundedValue{ctx, value, most}
	}
	r := &resolved{bounded: s, resolve: oc.ResolverMiddleware, mutation: oc.Operation.Operation == ast.Mutation}
	oc.ResolverMiddleware = r.field
	next := s.ExecutableSchema.Exec(ctx)
	return func(ctx context.Context) *graphql.Response {
		response := next(ctx)
		if response != nil && !r.mutation && r.fields.Load() > s.fields {
			err := r.tooMany()
			err.Err = errAloneInAnswer
			response.Data, response.Errors = nil, gqlerror.List{err}
		}
		return response
	}
}

// resolved counts what an operation has resolved.
type resolved struct {
	bounded      boundedSchema
	resolve      graphql.FieldMiddleware
	mutation     bool
	fields, late atomic.Int64
	texts        atomic.Int64 // bytes, as JSON
	selected     sync.Map     // of each ast.Selection: its selections
}

// field resolves a field, if it may.
func (r *resolved) field(ctx context.Context, next graphql.Resolver) (any, error) {
	if err := r.count(ctx, 1); err != nil {
		return nil, err
	}
	op := operationOf(ctx)
	if op != nil && (op.long.Load() || op.keepsTooMuch()) {
		return nil, errAloneInAnswer
	}
	value, err := r.resolve(ctx, next)
	more, selected, arguments, names := r.implied(ctx, value)
	if n := textLength(value) + names; n > 0 && op != nil && r.texts.Add(int64(n)) > int64(max(op.limits.Answer, leastTexts)) {
		op.long.Store(true) // whatever follows
		return nil, errAloneInAnswer
	}
	if bytes := fieldBytes * (more + selected); op != nil && !introspects(ctx) && op.kept.Load()+bytes > op.limits.kept() {
		op.kept.Add(bytes) // it would be refused, once all of them were visited
		return nil, op.tooMuch()
	}
	if err == nil && value != nil {
		if r.fields.Load()+selected+arguments > r.bounded.fields { // so it would be here
			more += selected + arguments
		}
		if err := r.count(ctx, more); err != nil {
			return nil, err
		}
	}
	return value, err
}

// textLength is how many bytes a field's value takes in the answer, where it may have many, as text.
func textLength(value any) (n int) {
	switch value := value.(type) {
	case string:
		return literal.TextLength(value)
	case *string:
		if value != nil {
			return textLength(*value)
		}
	case json.RawMessage:
		return len(value)
	case []string:
		for _, text := range value {
			n += textLength(text)
		}
	case []*string:
		for _, text := range value {
			n += textLength(text)
		}
	case []json.RawMessage:
		for _, text := range value {
			n += len(text)
		}
	}
	return n
}

// implied counts what a field's value adds to the answer without being resolved for itself: the
// elements of a list, and __typename in each, or in an object. It also returns how many fields are
// selected of the elements of a list, where all are of one type; how much their arguments count,
// which are converted for each element, whatever then becomes of the field; and how many bytes the names
// of all that is selected take in the answer.
func (r *resolved) implied(ctx context.Context, value any) (more, selected, arguments int64, names int) {
	objects, elements := 1, 0
	switch v := reflect.ValueOf(value); {
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() != reflect.Uint8:
		objects, elements = v.Len(), v.Len()
		if kind := v.Type().Elem().Kind(); kind == reflect.Pointer || kind == reflect.Interface {
			for i := range elements {
				if v.Index(i).IsNil() {
					objects--
				}
			}
		}
	case value == nil || v.Kind() == reflect.Pointer && v.IsNil():
		objects = 0
	}
	typenames := 0
	if f := graphql.GetFieldContext(ctx); f != nil && len(f.Field.Selections) > 0 && objects > 0 {
		in := r.selectedIn(ctx, f.Field.Selections)
		if many := min(in.fields, 1<<20) - manyFields; many > 0 && r.fields.Add(int64(objects)*many*many/comparedFields) > r.bounded.fields {
			return 0, 0, 0, 0 // it is refused
		}
		fields := graphql.CollectFields(graphql.GetOperationContext(ctx), f.Field.Selections, nil) // of any type
		for _, field := range fields {
			names += len(field.Alias) + len(`"":`)
			if field.Name == "__typename" {
				typenames++
			}
		}
		if of := r.bounded.Schema().Types[f.Field.Definition.Type.Name()]; of.Kind == ast.Object && elements > 0 {
			selected = int64(objects * (len(fields) - typenames))
		}
		if elements > 1 {
			arguments = int64(objects) * in.arguments
		}
	}
	return int64(elements + objects*typenames), selected, arguments, objects * names
}

// Of each object gqlgen compares each field with all before it: of more than manyFields, so many
// comparisons take as long as a field.
const (
	manyFields     = 100
	comparedFields = 16
)

// argumentBytes is the length of an argument that counts as a field does.
const argumentBytes = 64

// selections says what is selected of an object: how many fields, those counted again that are selected
// again; and as how many the arguments count of all that is in them: each as three, since an error about
// it takes as long, as one for each value that it has, and for its bytes.
type selections struct{ fields, arguments int64 }

func (r *resolved) selectedIn(ctx context.Context, set ast.SelectionSet) (n selections) {
	op := operationOf(ctx)
	for _, selection := range set {
		var own selections
		if known, ok := r.selected.Load(selection); ok {
			own = known.(selections)
		} else {
			switch s := selection.(type) {
			case *ast.Field:
				own = selections{1, r.selectedIn(ctx, s.SelectionSet).arguments}
				for _, argument := range s.Arguments {
					if op != nil {
						own.arguments += 3 + op.valuesOf(argument.Value)
					}
				}
			case *ast.InlineFragment:
				own = r.selectedIn(ctx, s.SelectionSet)
			case *ast.FragmentSpread:
				own = r.selectedIn(ctx, s.Definition.SelectionSet)
			}
			r.selected.Store(selection, own)
		}
		n.fields, n.arguments = n.fields+own.fields, n.arguments+own.arguments
	}
	return n
}

// valuesOf is as how many fields a value of an argument counts.
func (o *operation) valuesOf(v *ast.Value) int64 {
	if v.Kind == ast.Variable {
		return int64(o.sizes[v.Raw] / argumentBytes)
	}
	n := int64(len(v.Raw) / argumentBytes)
	for _, child := range v.Children {
		n += 1 + o.valuesOf(child.Value)
	}
	return n
}

// count counts more fields and elements; it returns an error if these are too many, or the
// operation's time is over.
func (r *resolved) count(ctx context.Context, more int64) error {
	now := r.fields.Add(more)
	if now > r.bounded.fields && !ofChange(ctx) {
		return r.tooMany()
	}
	looks := now/fieldsPerLook - (now-more)/fieldsPerLook
	if looks == 0 && r.late.Load() == 0 {
		return nil
	}
	allowed := int64(0)
	if r.mutation {
		allowed = lateFields
	}
	if op := operationOf(ctx); op != nil {
		held := looks * fieldsPerLook * fieldBytes
		kept := held
		if introspects(ctx) {
			kept = 0 // tools ask for the whole schema, however large it is: its fields are counted
		}
		if err := op.keep(kept, held); err != nil {
			return err // the answer is refused, also of a mutation
		}
	}
	if err := ctx.Err(); err != nil && r.late.Add(1) > allowed {
		return err
	}
	return nil
}

// introspects reports whether the field is one of the schema's.
func introspects(ctx context.Context) bool {
	f := graphql.GetFieldContext(ctx)
	return f != nil && strings.HasPrefix(f.Object, "__")
}

func (r *resolved) tooMany() *gqlerror.Error {
	return refuse(codeTooComplex, "the answer has more than %d fields and elements of lists, the limit of this server (twice --max-cost): "+
		"ask for fewer documents, a smaller page, or less of the schema at a time", r.bounded.fields)
}

// boundedValue writes a value as long as there is room for it.
type boundedValue struct {
	ctx context.Context
	graphql.Marshaler
	most int
}

func (v boundedValue) MarshalGQL(w io.Writer) {
	data, ok := w.(buffer)
	if !ok { // nothing that keeps what it is given
		v.Marshaler.MarshalGQL(w)
		return
	}
	v.Marshaler.MarshalGQL(&boundedWriter{ctx: v.ctx, data: data, most: v.most, counted: data.Len()})
}

// boundedWriter writes to a buffer until that is one byte too long, or until there is no
// memory for it, and then nothing more.
type boundedWriter struct {
	ctx     context.Context
	data    buffer
	most    int
	counted int // bytes for which memory is held
}

// buffer is what a bytes.Buffer does.
type buffer interface {
	io.Writer
	Len() int
	Available() int
	Grow(n int)
}

// largeAnswer is the length from which on a buffer gets room for the longest answer: where
// it doubles again and again, it holds three times as much.
const largeAnswer = 1 << 20

// writtenPerLook is after how many bytes memory is taken for them.
const writtenPerLook = 64 << 10

func (w *boundedWriter) room(n int) int {
	length := w.data.Len()
	if length-w.counted >= writtenPerLook {
		if CountAnswer(w.ctx, length-w.counted) != nil {
			w.most = length - 1
		}
		w.counted = length
	}
	n = min(n, max(w.most+1-length, 0))
	if length >= largeAnswer && n > w.data.Available() {
		w.data.Grow(w.most + 1 - length)
	}
	return n
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

// cacheable lets caches keep the answer to a query that came by GET (RFC 9111): one that stays as
// it is for Config.CachePast, any other to ask whether it is still the same. Only browsers keep
// what was answered to somebody who said who he is. It reports whether the client has the answer
// already.
func (x *exchange) cacheable(oc *graphql.OperationContext, response *graphql.Response) bool {
	header, policy := x.w.Header(), "no-cache"
	stays := x.h.cfg.CachePast > 0 && x.h.cfg.Pinned(oc)
	if stays {
		policy = "max-age=" + strconv.Itoa(int(x.h.cfg.CachePast.Seconds())) + ", immutable"
	}
	switch {
	case x.r.Header["Authorization"] != nil:
		policy = "private, " + policy
	case stays:
		policy = "public, " + policy
	}
	tag, known := etag(response.Data, x.op.instant, x.r.Header["If-None-Match"])
	header.Set("Cache-Control", policy)
	header.Set("ETag", tag)
	header.Add("Vary", "Accept, Authorization")
	return known
}

// etag returns the tag of an answer: of its data, a dot, and its instant, which is another each
// time. It is that of an answer that the client has with the same data, if there is one in
// If-None-Match (RFC 9110, 13.1.2): that answer is still true, of its instant. Proxies compare
// only tags that name the bytes, and append to those of what they compress.
func etag(data []byte, instant string, has []string) (tag string, known bool) {
	sum := sha256.Sum256(data)
	begin := `"` + base64.RawURLEncoding.EncodeToString(sum[:16]) + "."
	fresh := begin + instant + `"`
	for _, line := range has {
		for part := range strings.SplitSeq(line, ",") { // no tag of ours has a comma
			part = strings.TrimSpace(part)
			switch {
			case part == "*":
				return fresh, true
			case strings.HasPrefix(strings.TrimPrefix(part, "W/"), begin):
				return part, true
			}
		}
	}
	return fresh, false
}

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

// present shows an error to the client as the schema's presenter does. Beside the outcomes of
// its changes, an operation has at most MostErrors, and none once its answer is refused.
func present(presenter graphql.ErrorPresenterFunc) graphql.ErrorPresenterFunc {
	return func(ctx context.Context, err error) *gqlerror.Error {
		op, field := operationOf(ctx), graphql.GetFieldContext(ctx)
		if op != nil && (op.long.Load() || op.keepsTooMuch()) {
			return nil
		}
		ended := op != nil && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled))
		if ended && field != nil && field.Index != nil {
			op.listEnded.Store(true)
		}
		if op != nil && !ofChange(ctx) && op.failed.Add(1) > MostErrors {
			if ended {
				op.timedOut.Store(true)
			}
			if op.more.CompareAndSwap(false, true) {
				return &gqlerror.Error{Message: moreErrors, Extensions: map[string]any{"code": codeTooComplex}}
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

var contentTypes = map[string][]string{
	mediaJSON:    {mediaJSON + "; charset=utf-8"},
	mediaGraphQL: {mediaGraphQL + "; charset=utf-8"},
	mediaEvents:  {mediaJSON + "; charset=utf-8"}, // of refusals, before there are events
}
