package httpapi

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/99designs/gqlgen/graphql"

	"github.com/asof/asof/internal/app/admission"
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
	params params
}

// params are the parameters of a request.
type params struct {
	graphql.RawParams
	DocumentID string `json:"documentId"` // a persisted document (GraphQL over HTTP)
	ID         string `json:"id"`         // the same, as clients made with Relay send it
}

// serve answers a request by POST or GET. It reports whether that goes on, as a subscription,
// which ends by itself.
func (h *Handler) serve(w http.ResponseWriter, r *http.Request, op *operation) (goesOn bool) {
	x, _ := h.pool.Get().(*exchange)
	x.h, x.w, x.r, x.op = h, w, r, op
	x.media, x.status = answerMedia(r), http.StatusOK
	op.get, op.client = r.Method == http.MethodGet, h.cfg.Client(r)
	who, denied := h.identify(r)
	op.sentBy(who)
	op.hold = h.memory.Hold(op.client)
	op.hold.Set(int64(x.body.Cap())) // of an earlier request's body
	defer func() {
		if !goesOn {
			op.hold.Set(0)
		}
	}()
	var p *problem
	if denied == nil {
		goesOn, p = x.exchange(who.Context)
	} else {
		p = x.challenge(denied)
	}
	if goesOn {
		return true
	}
	if p != nil {
		x.refuse(p)
	}
	op.status = x.status
	h.finish(r.Context(), op)
	h.release(x)
	return false
}

// keptBuffer is the largest buffer that waits for the next request.
const keptBuffer = 64 << 10

// release keeps the exchange, with its buffer, for another request.
func (h *Handler) release(x *exchange) {
	body := x.body
	if body.Cap() > keptBuffer {
		body = bytes.Buffer{}
	}
	body.Reset()
	*x = exchange{body: body}
	h.pool.Put(x)
}

// exchange reads the request, executes it and sends the answer, unless that goes on, as a
// subscription. A problem is what to send instead.
func (x *exchange) exchange(ctx context.Context) (goesOn bool, p *problem) {
	if x.op.get {
		text, _ := url.QueryUnescape(x.r.URL.RawQuery) // readURL says what is wrong
		x.body.WriteString(text)
	} else if p := x.readBody(ctx); p != nil {
		return false, p
	}
	run, p := x.h.begin(ctx, x.op, x.body.Bytes(), &x.params.RawParams, x.decode)
	if p != nil {
		return false, p
	}
	defer func() {
		if !goesOn {
			run.end()
		}
	}()
	switch run.status {
	case http.StatusMethodNotAllowed:
		x.w.Header().Set("Allow", "POST")
	case http.StatusUnauthorized:
		x.challenge(x.op.readOnly)
	}
	if x.op.transport == transportEvents && run.status <= http.StatusBadRequest {
		return x.events(run), nil
	}
	response := run.answer()
	x.status = x.statusOf(run, response)
	if x.op.get && x.status == http.StatusOK && len(response.Errors) == 0 && x.cacheable(run.oc, response) {
		x.status = http.StatusNotModified
		x.w.WriteHeader(x.status)
		return false, nil
	}
	x.send(response, run.refused == nil && response.Data != nil)
	return false, nil
}

// identify returns who has sent a request.
func (h *Handler) identify(r *http.Request) (Identity, *Denied) {
	who, err := h.cfg.Identify(r)
	if err == nil {
		return who, nil
	}
	if denied, ok := errors.AsType[*Denied](err); ok {
		return Identity{}, denied
	}
	return Identity{}, &Denied{Status: http.StatusBadRequest, Code: codeBadInput, Message: err.Error()}
}

// challenge returns the answer to a client without valid credentials, with the scheme to use.
func (x *exchange) challenge(d *Denied) *problem {
	if d.Challenge != "" {
		x.w.Header().Set("WWW-Authenticate", d.Challenge)
	}
	return d.problem()
}

// decode reads the parameters.
func (x *exchange) decode() *problem {
	var p *problem
	if x.op.get {
		p = readURL(x.r, &x.params)
	} else {
		p = jsonText{
			what: "the request body", like: `{"query": "{ __typename }"}`,
			list: "batches are not supported; send one operation per request (it may have several root fields)",
		}.read(x.body.Bytes(), &x.params)
	}
	x.params.Headers = x.r.Header
	x.op.documentID = cmp.Or(x.params.DocumentID, x.params.ID)
	return p
}

// statusOf is the status of an answer.
func (x *exchange) statusOf(run *run, response *graphql.Response) int {
	refused := run.refused != nil && codeOf(response.Errors[0]) != CodeUnavailable // its time was over
	switch {
	case run.status != 0:
		return run.status
	case refused && x.media == mediaGraphQL:
		return http.StatusBadRequest
	case refused || response.Data != nil:
		return http.StatusOK
	case errors.Is(run.ctx.Err(), context.Canceled):
		return statusCancelled
	case run.ctx.Err() != nil && codeOf(response.Errors[0]) == CodeUnavailable:
		return http.StatusGatewayTimeout
	}
	status := statusOf(response.Errors)
	if status == http.StatusOK && x.media == mediaGraphQL {
		return http.StatusBadRequest // there is no data
	}
	return status
}

// refuse answers a request that is not executed.
func (x *exchange) refuse(p *problem) {
	x.status = p.status
	x.op.errors = p.list()
	x.send(&graphql.Response{Errors: x.op.errors}, false)
}

// send sends an answer, with its data if the operation was executed.
func (x *exchange) send(response *graphql.Response, executed bool) {
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
		x.h.setWriteDeadline(x.w, length)
	}
	if length > mostCopied {
		x.w.WriteHeader(x.status)
		_ = text.writeTo(x.w) // fails only if the client has left
		return
	}
	x.body.Write(text.data)
	x.body.Write(text.after)
	if x.h.exec.recycle != nil && x.op.executor == executorPlan {
		x.h.exec.recycle(response.Data)
		response.Data = nil // it is in the body
	}
	x.w.WriteHeader(x.status)
	_, _ = x.w.Write(x.body.Bytes()) // the same
}

// shortAnswer is the length of a body, in bytes, up to which net/http's buffers
// have room for all of an answer, which it measures.
const shortAnswer = 2<<10 - 1

// mostCopied is the length of a body, in bytes, up to which its parts are put
// together, so that they take fewer system calls.
const mostCopied = 64 << 10

// answerText is a response as JSON. The data is not copied: it may be long.
type answerText struct{ before, data, after []byte }

func (t *answerText) length() int { return len(t.before) + len(t.data) + len(t.after) }

// size is how much memory the parts take, in bytes.
func (t *answerText) size() int { return cap(t.before) + cap(t.data) + cap(t.after) }

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

// transferTime is how long a client may take to send or to receive a number of bytes before it
// is dropped.
func (h *Handler) transferTime(bytes int) time.Duration {
	return h.cfg.Limits.Grace + time.Duration(float64(bytes)/float64(h.cfg.Limits.Rate)*float64(time.Second))
}

// deadline is the time after a duration from now, by the system's clock.
func deadline(in time.Duration) time.Time {
	return time.Now().Add(in) //nolint:forbidigo // connections compare their deadlines with the system's clock
}

// setWriteDeadline bounds the time in which the client has to receive a number of bytes, if the
// connection has deadlines.
func (h *Handler) setWriteDeadline(w http.ResponseWriter, bytes int) {
	_ = http.NewResponseController(w).SetWriteDeadline(deadline(h.transferTime(bytes)))
}

// shortBody is the length of a body, in bytes, that mostly comes with the header: only the
// server's ReadTimeout bounds how slowly it may come.
const shortBody = 2 << 10

// readBody reads the request's body, at most the limit, as fast as the client has to send
// it, with memory held for it.
func (x *exchange) readBody(ctx context.Context) *problem {
	limit := x.h.cfg.Limits.Body
	tooLarge := func() *problem {
		x.w.Header().Set("Connection", "close") // the rest is not read
		return &problem{
			http.StatusRequestEntityTooLarge, codeBadInput,
			fmt.Sprintf("the request body is larger than %d bytes, the limit of this server (--max-body)", limit),
		}
	}
	if x.r.ContentLength > limit {
		return tooLarge()
	}
	if n := x.r.ContentLength; n < 0 || n > shortBody {
		_ = http.NewResponseController(x.w).SetReadDeadline(deadline(x.h.transferTime(int(limit)))) // where it can; until the end of the body
	}
	x.rest.R, x.rest.N = x.r.Body, limit+1
	err := readAll(ctx, x.h, &x.rest, &x.body, x.op.hold)
	switch {
	case int64(x.body.Len()) > limit:
		return tooLarge()
	case errors.Is(err, admission.ErrSpent):
		x.w.Header().Set("Connection", "close")
		return outOfMemory()
	case err != nil:
		return &problem{http.StatusBadRequest, codeBadInput, "the request body could not be read to its end"}
	}
	return nil
}

// readAll reads r to its end into a buffer, and holds memory for that.
func readAll(ctx context.Context, h *Handler, r io.Reader, to *bytes.Buffer, hold *admission.Hold) error {
	for {
		if to.Available() < bytes.MinRead {
			more := max(to.Cap(), 8*bytes.MinRead)
			if h.waitForMemory(ctx, hold, int64(more)) != nil {
				return admission.ErrSpent
			}
			to.Grow(more)
		}
		n, err := r.Read(to.AvailableBuffer()[:to.Available()])
		to.Write(to.AvailableBuffer()[:n])
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

const (
	mediaJSON    = "application/json"
	mediaGraphQL = "application/graphql-response+json"
	mediaEvents  = "text/event-stream"
)

// longestAccept is how many bytes of an Accept header are read: browsers send some 200.
const longestAccept = 1 << 10

// answerMedia chooses the media type of the answer by the Accept header (RFC
// 9110, 12.5.1): the higher quality wins, then the earlier one. A range with
// wildcards stands for application/json, which every client knows, unless a JSON
// type is named. Clients that could read server-sent events but name another type
// first do not get them. Without a preference it is application/json.
func answerMedia(r *http.Request) string {
	accept := r.Header["Accept"]
	if len(accept) == 0 {
		return mediaJSON
	}
	if len(accept) == 1 {
		switch accept[0] {
		case "*/*", mediaJSON:
			return mediaJSON
		case mediaGraphQL:
			return mediaGraphQL
		}
	}
	best, quality, byWildcard := mediaJSON, 0.0, true
	for _, header := range accept {
		for part := range strings.SplitSeq(header[:min(len(header), longestAccept)], ",") {
			media, q := mediaRange(part)
			wildcard := media == "*/*" || media == "application/*"
			better := q > quality
			switch {
			case wildcard:
				media, better = mediaJSON, better && (byWildcard || best == mediaEvents)
			case media == mediaJSON || media == mediaGraphQL:
				better = better || byWildcard && q > 0
			case media != mediaEvents:
				continue
			}
			if better {
				best, quality, byWildcard = media, q, wildcard
			}
		}
	}
	return best
}

// mediaRange reads one part of an Accept header; quality 0: not acceptable.
func mediaRange(part string) (media string, quality float64) {
	media, params, err := mime.ParseMediaType(part)
	if err != nil {
		return "", 0
	}
	text, ok := params["q"]
	if !ok {
		return media, 1
	}
	quality, err = strconv.ParseFloat(text, 64)
	if err != nil || quality > 1 {
		return "", 0
	}
	return media, quality
}

// jsonBody reports whether the request's body is said to be JSON in UTF-8.
func jsonBody(r *http.Request) bool {
	header := r.Header.Get("Content-Type")
	if header == mediaJSON {
		return true
	}
	media, params, err := mime.ParseMediaType(header)
	if err != nil || media != mediaJSON {
		return false
	}
	charset, ok := params["charset"]
	return !ok || strings.EqualFold(charset, "utf-8")
}

// events answers an operation with server-sent events (graphql-sse, distinct
// connections): "next" with the answer, then "complete". By GET it is what a browser's
// EventSource asks for; that has to be closed when the operation is complete, or it asks
// again. It reports whether the answer goes on, as a subscription.
func (x *exchange) events(run *run) (goesOn bool) {
	header := x.w.Header()
	header.Set("Cache-Control", "no-cache")
	header.Set("Connection", "keep-alive")
	header.Set("Content-Type", mediaEvents)
	if run.subscribes() {
		x.follow(run)
		return true
	}
	response := run.answer()
	if x.h.cfg.Debug {
		x.op.explain(header)
	}
	x.body.Reset()
	x.body.WriteString("event: next\ndata: ")
	text := encode(&x.body, response, run.refused == nil && response.Data != nil, x.op.instant)
	text.after = append(append(text.after, "\n\n"...), complete...)
	x.h.setWriteDeadline(x.w, max(text.length(), shortAnswer+1))
	_ = text.writeTo(x.w) // fails only if the client has left
	return false
}

// complete is the last event. Browsers pass on no event without data (HTML, 9.2.6).
const complete = "event: complete\ndata:\n\n"
