package httpapi

import (
	"mime"
	"net/http"
	"strconv"
	"strings"
)

const (
	mediaJSON    = "application/json"
	mediaGraphQL = "application/graphql-response+json"
	mediaEvents  = "text/event-stream"
)

// answerMedia chooses the media type of the answer by the Accept header: the
// more specific range wins, then the higher quality, then the earlier one.
// Without a preference it is application/json, which every client knows.
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
	best, quality := mediaJSON, 0.0
	for _, header := range accept {
		for part := range strings.SplitSeq(header, ",") {
			media, params, err := mime.ParseMediaType(part)
			if err != nil || media != mediaJSON && media != mediaGraphQL {
				continue
			}
			q := 1.0
			if text, ok := params["q"]; ok {
				if q, err = strconv.ParseFloat(text, 64); err != nil {
					continue
				}
			}
			if q > quality {
				best, quality = media, q
			}
		}
	}
	return best
}

// acceptsEvents reports whether the client asks for server-sent events.
func acceptsEvents(r *http.Request) bool {
	for _, header := range r.Header["Accept"] {
		if strings.Contains(header, mediaEvents) {
			return true
		}
	}
	return false
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
