package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/99designs/gqlgen/graphql"
)

// exchange is one request by POST or GET, and its answer.
type exchange struct {
	h      *Handler
	w      http.ResponseWriter
	r      *http.Request
	op     *operation
	media  string // of the answer
	status int
	body   bytes.Buffer     // the request's, or its query string; later the answer's
	rest   io.LimitedReader // of the request's body, while it is read
	params graphql.RawParams
}

// serve answers a request by POST or GET.
func (h *Handler) serve(w http.ResponseWriter, r *http.Request, op *operation) {
	x, _ := h.pool.Get().(*exchange)
	x.h, x.w, x.r, x.op = h, w, r, op
	x.media, x.status = answerMedia(r), http.StatusOK
	op.get, op.client = r.Method == http.MethodGet, h.cfg.Client(r)
	op.hold = h.memory.Hold(op.client)
	op.hold.Set(int64(x.body.Cap())) // of an earlier request's body
	defer op.hold.Set(0)
	if p := x.exchange(); p != nil {
		_ = x.refuse(p) // where that fails, nobody is there any more
	}
	op.status = x.status
	h.finish(r.Context(), op)
	h.release(x)
}

// exchange reads the request, executes it and sends the answer. A problem is what to
// send instead.
func (x *exchange) exchange() *problem {
	ctx, p := x.identify()
	if p != nil {
		return p
	}
	if x.op.get {
		x.body.WriteString(x.r.URL.RawQuery)
	} else if p := x.readBody(ctx); p != nil {
		return p
	}
	run, p := x.h.begin(ctx, x.op, x.body.Bytes(), &x.params, x.decode)
	if p != nil {
		return p
	}
	defer run.end()
	if run.status == http.StatusMethodNotAllowed {
		x.w.Header().Set("Allow", "POST")
	}
	if x.op.transport == transportEvents && run.status != http.StatusMethodNotAllowed {
		x.events(run)
		return nil
	}
	response := run.answer()
	x.status = x.statusOf(run, response)
	_ = x.send(response, !run.refused && response.Data != nil) // where that fails, nobody is there any more
	return nil
}

// identify makes the context of the request's operation.
func (x *exchange) identify() (context.Context, *problem) {
	if x.h.cfg.Identify == nil {
		return x.r.Context(), nil
	}
	ctx, actor, err := x.h.cfg.Identify(x.r)
	if err != nil {
		return nil, &problem{http.StatusBadRequest, CodeBadInput, err.Error()}
	}
	x.op.actor = actor
	return ctx, nil
}

// decode reads the parameters.
func (x *exchange) decode() *problem {
	x.params.Headers = x.r.Header
	if x.op.get {
		return readURL(x.r, &x.params)
	}
	return jsonText{
		what: "the request body", like: `{"query": "{ __typename }"}`,
		list: "batches are not supported; send one operation per request (it may have several root fields)",
	}.read(x.body.Bytes(), &x.params)
}

// statusOf is the status of an answer.
func (x *exchange) statusOf(run *run, response *graphql.Response) int {
	refused := run.refused && codeOf(response.Errors[0]) != CodeUnavailable // its time was over
	switch {
	case run.status != 0:
		return run.status
	case refused && x.media == mediaGraphQL:
		return http.StatusBadRequest
	case refused || response.Data != nil:
		return http.StatusOK
	case errors.Is(run.ctx.Err(), context.Canceled):
		return statusCancelled
	case run.ctx.Err() != nil:
		return http.StatusGatewayTimeout
	}
	status := statusOf(response.Errors)
	if status == http.StatusOK && x.media == mediaGraphQL {
		return http.StatusBadRequest // there is no data
	}
	return status
}

// refuse answers a request that is not executed.
func (x *exchange) refuse(p *problem) error {
	x.status = p.status
	x.op.errors = p.list()
	return x.send(&graphql.Response{Errors: x.op.errors}, false)
}

// send sends an answer, with its data if the operation was executed.
func (x *exchange) send(response *graphql.Response, executed bool) error {
	x.body.Reset()
	text := encode(&x.body, response, executed, x.op.instant)
	header := x.w.Header()
	header["Content-Type"] = contentTypes[x.media]
	if x.h.cfg.Debug {
		x.op.explain(header)
	}
	if x.status == http.StatusServiceUnavailable {
		header.Set("Retry-After", "1")
	}
	length := text.length()
	if length > shortAnswer {
		// A shorter one is measured by net/http: with one more, the header would
		// be copied to a larger map in each request, and again when it is sent.
		header["Content-Length"] = []string{strconv.Itoa(length)}
	}
	if length > freeMemory { // what is shorter is not counted either, and mostly fits into the system's buffers
		x.h.allowToSend(x.w, length)
	}
	if length > mostCopied {
		x.w.WriteHeader(x.status)
		return text.writeTo(x.w)
	}
	x.body.Write(text.data)
	x.body.Write(text.after)
	if x.h.exec.recycle != nil && x.op.executor == executorPlan {
		x.h.exec.recycle(response.Data)
		response.Data = nil // it is in the body
	}
	x.w.WriteHeader(x.status)
	_, err := x.w.Write(x.body.Bytes())
	return err
}

// shortAnswer is the length of a body, in bytes, up to which net/http's buffers
// have room for all of an answer, which it measures.
const shortAnswer = 2<<10 - 1

// mostCopied is the length of a body, in bytes, up to which its parts are put
// together, so that they take fewer system calls.
const mostCopied = 64 << 10

// slowest is how long sending so many bytes may take, in either direction: who is slower is
// dropped.
func (h *Handler) slowest(bytes int) time.Duration {
	return h.cfg.Limits.Grace + time.Duration(float64(bytes)/float64(h.cfg.Limits.Rate)*float64(time.Second))
}

// deadline is the time in so long, by the system's clock.
func deadline(in time.Duration) time.Time {
	return time.Now().Add(in) //nolint:forbidigo // connections compare their deadlines with the system's clock
}

// allowToSend bounds the time in which the client has to take so many bytes more, where
// the connection can.
func (h *Handler) allowToSend(w http.ResponseWriter, bytes int) {
	_ = http.NewResponseController(w).SetWriteDeadline(deadline(h.slowest(bytes)))
}

var contentTypes = map[string][]string{
	mediaJSON:    {mediaJSON + "; charset=utf-8"},
	mediaGraphQL: {mediaGraphQL + "; charset=utf-8"},
	mediaEvents:  {mediaJSON + "; charset=utf-8"}, // of refusals, before there are events
}

// answerText is a response as JSON. The data is not copied: it may be long.
type answerText struct{ before, data, after []byte }

func (t *answerText) length() int { return len(t.before) + len(t.data) + len(t.after) }

// writeTo writes the parts.
func (t *answerText) writeTo(w io.Writer) error {
	for _, part := range [...][]byte{t.before, t.data, t.after} {
		if _, err := w.Write(part); err != nil {
			return err
		}
	}
	return nil
}

// encode makes the text of a response: errors first, data only where an operation was
// executed. The instant, whose text needs no escapes, is what the extensions say of it; ""
// for nothing. Mostly it is all that they say. What is before the data is written behind
// what buf holds, and begins there. It panics where an extension is no JSON.
func encode(buf *bytes.Buffer, r *graphql.Response, executed bool, instant string) answerText {
	extended := instant != "" || len(r.Extensions) > 0
	buf.WriteByte('{')
	if len(r.Errors) > 0 {
		buf.WriteString(`"errors":`)
		buf.Write(mustEncode(r.Errors))
		if executed || extended {
			buf.WriteByte(',')
		}
	}
	t := answerText{}
	if executed {
		buf.WriteString(`"data":`)
		t.data = r.Data
	}
	t.before = buf.Bytes()
	t.after = make([]byte, 0, len(`,"extensions":{"asOf":""}}`)+len(instant))
	if executed && extended {
		t.after = append(t.after, ',')
	}
	switch {
	case len(r.Extensions) > 0:
		addInstant(r, instant)
		t.after = append(append(t.after, `"extensions":`...), mustEncode(r.Extensions)...)
	case extended:
		t.after = append(append(append(t.after, `"extensions":{"asOf":"`...), instant...), `"}`...)
	}
	t.after = append(t.after, '}')
	return t
}

// mustEncode returns a value as JSON, and panics where it has something that is none.
func mustEncode(value any) []byte {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return text
}

// addInstant adds the instant to the extensions, if there is one.
func addInstant(r *graphql.Response, instant string) {
	if instant == "" {
		return
	}
	if r.Extensions == nil {
		r.Extensions = make(map[string]any, 1)
	}
	r.Extensions["asOf"] = instant
}
