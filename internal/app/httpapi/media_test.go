package httpapi

import (
	"net/http"
	"testing"
)

func TestAnswerMedia(t *testing.T) {
	for accept, want := range map[string]string{
		"":                                    mediaJSON,
		"*/*":                                 mediaJSON,
		"text/html":                           mediaJSON,
		"application/json":                    mediaJSON,
		"application/graphql-response+json":   mediaGraphQL,
		"application/json; charset=utf-8":     mediaJSON,
		"text/event-stream":                   mediaEvents,
		"TEXT/Event-Stream":                   mediaEvents,
		"text/event-stream, */*":              mediaEvents,
		"text/event-stream, application/json": mediaEvents,
		"application/json, text/event-stream": mediaJSON,
		"*/*, text/event-stream":              mediaJSON,
		"text/event-stream;q=0":               mediaJSON,
		"text/event-stream;q=0.5, */*":        mediaJSON,
		"text/event-stream;q=0, */*;q=0.1":    mediaJSON,
		"text/event-stream;q=high":            mediaJSON,
		"application/json;q=0.5, text/event-stream;q=0.9":                      mediaEvents,
		"application/json, application/graphql-response+json":                  mediaJSON,
		"application/json;q=0.9, application/graphql-response+json":            mediaGraphQL,
		"*/*, application/graphql-response+json":                               mediaGraphQL,
		"application/graphql-response+json, application/json;q=0.9":            mediaGraphQL,
		"application/graphql-response+json;charset=utf-8, application/json":    mediaGraphQL,
		"application/graphql-response+json, */*":                               mediaGraphQL,
		"application/graphql-response+json, application/json, multipart/mixed": mediaGraphQL,
		// what urql sends
		"application/graphql-response+json, application/graphql+json, application/json, text/event-stream, multipart/mixed": mediaGraphQL,
		// what Apollo sends
		"multipart/mixed;deferSpec=20220824,application/graphql-response+json,application/json;q=0.9": mediaGraphQL,
	} {
		r := &http.Request{Header: http.Header{}}
		if accept != "" {
			r.Header.Set("Accept", accept)
		}
		if got := answerMedia(r); got != want {
			t.Errorf("%q: %s, want %s", accept, got, want)
		}
	}
	r := &http.Request{Header: http.Header{"Accept": {"application/json", "text/event-stream"}}}
	if got := answerMedia(r); got != mediaJSON {
		t.Errorf("two headers: %s", got)
	}
}
