package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"unicode/utf8"

	"github.com/99designs/gqlgen/graphql"

	"github.com/asof/asof/internal/app/admission"
)

// readBody reads the request's body, at most the limit, as fast as the client has to send
// it, with memory held for it.
func (x *exchange) readBody(ctx context.Context) *problem {
	limit := x.h.cfg.Limits.Body
	tooLarge := func() *problem {
		x.w.Header().Set("Connection", "close") // the rest is not read
		return &problem{
			http.StatusRequestEntityTooLarge, CodeBadInput,
			fmt.Sprintf("the request body is larger than %d bytes, the limit of this server (--max-body)", limit),
		}
	}
	if x.r.ContentLength > limit {
		return tooLarge()
	}
	_ = http.NewResponseController(x.w).SetReadDeadline(deadline(x.h.slowest(int(limit)))) // where it can; until the end of the body
	x.rest.R, x.rest.N = x.r.Body, limit+1
	err := readHeld(ctx, x.h, &x.rest, &x.body, x.op.hold)
	switch {
	case int64(x.body.Len()) > limit:
		return tooLarge()
	case errors.Is(err, admission.ErrSpent):
		x.w.Header().Set("Connection", "close")
		return starved()
	case err != nil:
		return &problem{http.StatusBadRequest, CodeBadInput, "the request body could not be read to its end"}
	}
	return nil
}

// jsonText says what a text is that has to be a JSON object.
type jsonText struct {
	what string // "the request body"
	like string // a good one
	list string // what to do instead of a list
}

// checkJSON refuses what is not one JSON object in valid UTF-8.
func checkJSON(text []byte, is jsonText) *problem {
	bad := func(format string, args ...any) *problem {
		return &problem{http.StatusBadRequest, CodeBadInput, is.what + " " + fmt.Sprintf(format, args...)}
	}
	start := bytes.TrimLeft(text, " \t\r\n")
	switch {
	case len(start) == 0:
		return bad("is empty; send a JSON object such as %s", is.like)
	case !utf8.Valid(text):
		return bad("is not valid UTF-8 (at byte %d)", invalidUTF8(text))
	case start[0] == '[':
		return bad("is a list: %s", is.list)
	case !json.Valid(text):
		return bad("is not valid JSON: %v", syntaxError(text))
	case start[0] != '{':
		return bad("must be a JSON object such as %s", is.like)
	}
	if at := loneSurrogate(text); at >= 0 {
		return bad(`has half of a surrogate pair (\u%s at byte %d), which is no character`, text[at+2:at+6], at)
	}
	return nil
}

// syntaxError says where JSON goes wrong.
func syntaxError(text []byte) string {
	err := json.Unmarshal(text, new(json.RawMessage))
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Sprintf("%v (at byte %d)", err, syntax.Offset)
	}
	return fmt.Sprint(err)
}

func invalidUTF8(text []byte) int {
	at := 0
	for {
		r, size := utf8.DecodeRune(text[at:])
		if r == utf8.RuneError && size <= 1 {
			return at
		}
		at += size
	}
}

// loneSurrogate returns where valid JSON, or a string of a GraphQL document, has
// an escape for half of a surrogate pair, which decoding would replace silently;
// -1: nowhere.
func loneSurrogate(text []byte) int {
	for at := 0; ; {
		next := bytes.IndexByte(text[at:], '\\')
		if next < 0 {
			return -1
		}
		at += next
		switch unit := escaped(text[at:]); {
		case unit < 0: // another escape; \u{…} is never half a pair
			at += 2
		case unit >= 0xDC00 && unit <= 0xDFFF:
			return at
		case unit >= 0xD800 && unit <= 0xDBFF:
			low := escaped(text[at+6:])
			if low < 0xDC00 || low > 0xDFFF {
				return at
			}
			at += 12
		default:
			at += 6
		}
	}
}

// escaped is the code unit of the \uXXXX that text begins with; -1: none.
func escaped(text []byte) int64 {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return -1
	}
	unit, err := strconv.ParseInt(string(text[2:6]), 16, 32)
	if err != nil {
		return -1
	}
	return unit
}

// explainBody says why a JSON object is not a GraphQL request.
func explainBody(text []byte) string { return explainParams(text, "the request body") }

func explainParams(text []byte, what string) string {
	if why := repeatedText(text, what, true); why != "" {
		return why
	}
	var params graphql.RawParams
	err := json.Unmarshal(text, &params)
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && wrong.Field != "" {
		want := "an object"
		if wrong.Type.Kind().String() == "string" {
			want = "a string"
		}
		return fmt.Sprintf("%q must be %s, not %s", wrong.Field, want, wrong.Value)
	}
	return fmt.Sprintf("%s could not be decoded: %v", what, err)
}

// readURL reads the parameters of a request by GET.
func readURL(r *http.Request, params *graphql.RawParams) *problem {
	bad := func(format string, args ...any) *problem {
		return &problem{http.StatusBadRequest, CodeBadInput, fmt.Sprintf(format, args...)}
	}
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return bad("the query string could not be decoded: %v", err)
	}
	for name, list := range values {
		for _, value := range list {
			if !utf8.ValidString(name) || !utf8.ValidString(value) {
				return bad("the query string is not valid UTF-8")
			}
		}
		if len(list) > 1 && (name == "query" || name == "variables" || name == "operationName" || name == "extensions") {
			return bad("the parameter %q was given %d times", name, len(list))
		}
	}
	params.Query, params.OperationName = values.Get("query"), values.Get("operationName")
	for name, to := range map[string]*map[string]any{"variables": &params.Variables, "extensions": &params.Extensions} {
		text := values.Get(name)
		if text == "" || text == "null" {
			continue
		}
		is := jsonText{what: fmt.Sprintf("the parameter %q", name), like: `{"key": "hearth"}`, list: "it must be an object such as "}
		if name == "extensions" {
			is.like = `{"persistedQuery": {"version": 1, "sha256Hash": "…"}}`
		}
		is.list += is.like
		if p := checkJSON([]byte(text), is); p != nil {
			return p
		}
		if why := repeatedText([]byte(text), is.what, false); why != "" {
			return bad("%s", why)
		}
		scanner := paramScanner{text: []byte(text)}
		scanner.next() // the brace
		*to = scanner.members()
	}
	return nil
}
