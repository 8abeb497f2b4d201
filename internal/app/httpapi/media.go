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
	best, quality, wild := mediaJSON, 0.0, true
	for _, header := range accept {
		for part := range strings.SplitSeq(header, ",") {
			media, q := mediaRange(part)
			switch media {
			case mediaJSON, mediaGraphQL:
				if q > quality || wild && best == mediaJSON && q > 0 {
					best, quality, wild = media, q, false
				}
			case mediaEvents:
				if q > quality {
					best, quality, wild = media, q, false
				}
			case "*/*", "application/*":
				if q > quality && (wild || best == mediaEvents) {
					best, quality, wild = mediaJSON, q, true
				}
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
