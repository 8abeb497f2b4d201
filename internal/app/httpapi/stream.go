package httpapi

// events answers an operation with server-sent events (graphql-sse, distinct
// connections): "next" with the answer, then "complete". By GET it is what a browser's
// EventSource asks for; that has to be closed when the operation is complete, or it asks
// again.
func (x *exchange) events(run *run) {
	header := x.w.Header()
	header.Set("Cache-Control", "no-cache")
	header.Set("Connection", "keep-alive")
	header.Set("Content-Type", mediaEvents)
	if x.h.cfg.Debug {
		x.op.explain(header)
	}
	response := run.answer()
	x.body.Reset()
	x.body.WriteString("event: next\ndata: ")
	text := encode(&x.body, response, !run.refused && response.Data != nil, x.op.instant)
	text.after = append(append(text.after, "\n\n"...), complete...)
	x.h.allowToSend(x.w, max(text.length(), shortAnswer+1))
	_ = text.writeTo(x.w) // where that fails, nobody is there any more
}

// complete is the last event. Browsers pass on no event without data (HTML, 9.2.6).
const complete = "event: complete\ndata:\n\n"
