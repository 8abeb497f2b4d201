package httpapi

import (
	stdjson "encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"testing"

	"github.com/99designs/gqlgen/graphql"
	"github.com/google/go-cmp/cmp"
)

func TestParams(t *testing.T) {
	numbers := []any{stdjson.Number("1"), stdjson.Number("-2.50e+400"), map[string]any{"b": []any{}}, nil, true, "x"}
	for body, want := range map[string]graphql.RawParams{
		`{}`: {},
		" {\t\"query\" :\r\n\"{ a }\" , \"variables\" : { } , \"operationName\" : null }\n": {Query: "{ a }", Variables: map[string]any{}},
		`{"query":"a\n\"\\\/\u00e9\ud83d\ude00 \u0000","operationName":"N"}`:                {Query: "a\n\"\\/é😀 \x00", OperationName: "N"},
		`{"variables":{"é":"é","a":[1,-2.50e+400,{"b":[]},null,true,"x"],"":{"a":1,"A":2}}}`: {
			Variables: map[string]any{"é": "é", "a": numbers, "": map[string]any{"a": stdjson.Number("1"), "A": stdjson.Number("2")}},
		},
		`{"variables":null,"extensions":{"persistedQuery":{"version":1}},"query":null}`: {
			Extensions: map[string]any{"persistedQuery": map[string]any{"version": stdjson.Number("1")}},
		},
		`{"qu\u0065ry":"a","Query":"b","headers":{"X":["y"]},"other":{"x":[1,"}"]}}`: {Query: "a"},
	} {
		var got graphql.RawParams
		if p := (jsonText{}).read([]byte(body), &got); p != nil {
			t.Errorf("%s: %s", body, p.message)
		} else if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", body, diff)
		}
	}
}

// A member that is there twice is refused by its name, on every transport:
// either value could have been meant.
func TestRepeatedMembersAreRefused(t *testing.T) {
	s := newServer(t, nil)
	const query = `"query":"{hello}"`
	for _, test := range []struct{ body, member string }{
		{`{` + query + `,"query":"{hello}"}`, "/query"},
		{`{` + query + `,"variables":{"name":"one","name":"two"}}`, "/variables/name"},
		{`{"variables":{"data":{"blob":[{"a":1,"a":1}]}},` + query + `}`, "/variables/data/blob/0/a"},
		{`{` + query + `,"extensions":{"x":1,"x":2}}`, "/extensions/x"},
		{`{` + query + `,"other":{"x":1,"x":2}}`, "/other/x"},
	} {
		want := fmt.Sprintf("has the member %q more than once; send it once", test.member)
		s.post(t, test.body).wantError(t, http.StatusBadRequest, codeBadInput, "the request body "+want)
		s.post(t, test.body, "Accept", mediaEvents).wantError(t, http.StatusBadRequest, codeBadInput, "the request body "+want)
		c := s.connect(t, `{}`)
		c.send(t, `{"type":"subscribe","id":"1","payload":`+test.body+`}`)
		c.wantClosed(t, closeInvalid, fmt.Sprintf("the message has the member %q more than once", "/payload"+test.member))
	}
	s.do(t, http.MethodGet, "/?query="+url.QueryEscape("{hello}")+"&variables="+url.QueryEscape(`{"a":{"b":1,"b":2}}`), "").
		wantError(t, http.StatusBadRequest, codeBadInput, `the parameter "variables" has the member "/a/b" more than once; send it once`)
}
