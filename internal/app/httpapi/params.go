package httpapi

import (
	"bytes"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/99designs/gqlgen/graphql"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// jsonText says what a text is that has to be a JSON object.
type jsonText struct {
	what string // "the request body"
	like string // a good one
	list string // what to do instead of a list
}

// numbers has numbers of any size decoded as they are written.
var numbers = json.WithUnmarshalers(json.UnmarshalFromFunc(func(from *jsontext.Decoder, to *any) error {
	if from.PeekKind() != '0' {
		return errors.ErrUnsupported // which leaves it to the library
	}
	digits, err := from.ReadValue()
	*to = stdjson.Number(digits)
	return err
}))

// read decodes the text, which must be one JSON object in valid UTF-8: no member
// of any object in it is there twice, and no string has half of a surrogate pair.
// Members that the destination does not know are passed over.
func (is jsonText) read(text []byte, to any) *problem {
	bad := func(format string, args ...any) *problem {
		return &problem{http.StatusBadRequest, CodeBadInput, is.what + " " + fmt.Sprintf(format, args...)}
	}
	start := bytes.TrimLeft(text, " \t\r\n")
	switch {
	case len(start) == 0:
		return bad("is empty; send a JSON object such as %s", is.like)
	case start[0] == '[':
		return bad("is a list: %s", is.list)
	case start[0] != '{':
		return bad("must be a JSON object such as %s", is.like)
	}
	err := json.Unmarshal(text, to, numbers)
	if err == nil {
		return nil
	}
	if wrong, ok := errors.AsType[*json.SemanticError](err); ok {
		want := "an object"
		if wrong.GoType.Kind().String() == "string" {
			want = "a string"
		}
		return bad("has a member %q that is not %s", shorten(string(wrong.JSONPointer)), want)
	}
	broken, ok := errors.AsType[*jsontext.SyntacticError](err)
	switch {
	case !ok:
		return bad("could not be decoded: %v", err)
	case errors.Is(err, jsontext.ErrDuplicateName):
		return bad("has the member %q more than once; send it once", shorten(string(broken.JSONPointer)))
	default:
		return bad("is not valid JSON: %s (at byte %d)", shorten(broken.Err.Error()), broken.ByteOffset)
	}
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
		if !utf8.ValidString(name) || !utf8.ValidString(strings.Join(list, "")) {
			return bad("the query string is not valid UTF-8")
		}
		if len(list) > 1 && (name == "query" || name == "variables" || name == "operationName" || name == "extensions") {
			return bad("the parameter %q was given %d times", name, len(list))
		}
	}
	params.Query, params.OperationName = values.Get("query"), values.Get("operationName")
	for name, object := range map[string]struct {
		to   *map[string]any
		like string
	}{
		"variables":  {&params.Variables, `{"key": "hearth"}`},
		"extensions": {&params.Extensions, `{"persistedQuery": {"version": 1, "sha256Hash": "…"}}`},
	} {
		text := values.Get(name)
		if text == "" || text == "null" {
			continue
		}
		is := jsonText{what: fmt.Sprintf("the parameter %q", name), like: object.like, list: "it must be an object such as " + object.like}
		if p := is.read([]byte(text), object.to); p != nil {
			return p
		}
	}
	return nil
}
