package httpapi

import (
	"net/http"

	"github.com/99designs/gqlgen/graphql"
)

// events answers an operation with server-sent events (graphql-sse, distinct
// connections): "next" with each answer, then "complete". By GET it is what a browser's
// EventSource asks for; that has to be closed when the operation is complete, or it asks
// again. A panic is an answer that says so, and the last.
func (x *exchange) events(run *run) {
	header := x.w.Header()
	header.Set("Cache-Control", "no-cache")
	header.Set("Connection", "keep-alive")
	header.Set("Content-Type", mediaEvents)
	if x.h.cfg.Debug {
		x.op.explain(header)
	}
	defer func() {
		switch failure := recover(); failure {
		case nil:
		case any(http.ErrAbortHandler):
			panic(failure)
		default: // the header was sent: the stream itself has to say it, and to end
			x.op.errors = x.h.panicked(run.ctx, x.op.request, failure).list()
			x.event(&graphql.Response{Errors: x.op.errors}, false)
			x.flush([]byte(complete))
		}
	}()
	for response := run.answer(); response != nil; response = run.answer() {
		x.event(response, !run.refused && response.Data != nil)
	}
	x.flush([]byte(complete))
}

// complete is the last event. Browsers pass on no event without data (HTML, 9.2.6).
const complete = "event: complete\ndata:\n\n"

// event sends an answer. Errors mean that nobody is there any more.
func (x *exchange) event(response *graphql.Response, executed bool) {
	x.body.Reset()
	x.body.WriteString("event: next\ndata: ")
	text := encode(&x.body, response, executed, x.op.instant)
	text.after = append(text.after, "\n\n"...)
	x.h.allowToSend(x.w, max(text.length(), shortAnswer+1))
	_ = text.writeTo(x.w)
	_ = http.NewResponseController(x.w).Flush()
}

func (x *exchange) flush(text []byte) {
	_, _ = x.w.Write(text)
	_ = http.NewResponseController(x.w).Flush()
}
