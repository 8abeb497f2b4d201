package httpapi

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

func TestRepeated(t *testing.T) {
	var many []string
	for i := range 100 {
		many = append(many, fmt.Sprintf(`"m%d":%d`, i, i))
	}
	all := strings.Join(many, ",")
	for _, test := range []struct {
		text   string
		folded bool
		want   string
	}{
		{`{}`, true, ""},
		{`{"a":{"a":{"a":1}},"b":["a","a",{"a":1},{"a":1}]}`, true, ""},
		{`{"a":1,"a":2}`, false, ".a"},
		{` { "a" : 1 , "b" : [ ] , "a" : 1 } `, false, ".a"},
		{`{"a":1,"\u0061":2}`, false, ".a"},
		{`{"\u0061\"":1,"a\"":2}`, false, `.a"`},
		{`{"":1,"":2}`, false, "."},
		{`{"a":1,"A":2}`, false, ""},
		{`{"a":1,"A":2}`, true, ".A"},
		{`{"x":{"a":1,"A":2}}`, true, ""},
		{`{"x":{"a":1,"b":{"c":[0,{"d":1},{"d":true,"e":null,"d":-1e5}]}}}`, false, ".x.b.c[2].d"},
		{`{` + all + `}`, false, ""},
		{`{` + all + `,"m0":1}`, false, ".m0"},
		{`{` + all + `,"m99":1}`, false, ".m99"},
		{`{"x":{` + all + `,"m50":1}}`, false, ".x.m50"},
	} {
		if got := asText(repeated([]byte(test.text), test.folded)); got != test.want {
			t.Errorf("%.100s: %q, want %q", test.text, got, test.want)
		}
	}
}

// A member that is there twice is refused by its name, on every transport:
// either value could have been meant.
func TestRepeatedMembersAreRefused(t *testing.T) {
	s := newServer(t, nil)
	const query = `"query":"{hello}"`
	for _, test := range []struct{ body, member string }{
		{`{` + query + `,"query":"{hello}"}`, "query"},
		{`{` + query + `,"Query":"{hello}"}`, "Query"},
		{`{` + query + `,"variables":{"name":"one","name":"two"}}`, "variables.name"},
		{`{"variables":{"data":{"blob":[{"a":1,"a":1}]}},` + query + `}`, "variables.data.blob[0].a"},
		{`{` + query + `,"extensions":{"x":1,"x":2}}`, "extensions.x"},
		{`{` + query + `,"other":{"x":1,"x":2}}`, "other.x"},
	} {
		want := fmt.Sprintf("has the member %q more than once; send it once", test.member)
		s.post(t, test.body).wantError(t, http.StatusBadRequest, CodeBadInput, "the request body "+want)
		s.post(t, test.body, "Accept", mediaEvents).wantError(t, http.StatusBadRequest, CodeBadInput, "the request body "+want)
		c := s.connect(t, `{}`)
		c.send(t, `{"type":"subscribe","id":"1","payload":`+test.body+`}`)
		if test.member == "Query" { // the message itself has other members
			c.wantClosed(t, closeInvalid, "the payload of subscribe "+want)
			continue
		}
		c.wantClosed(t, closeInvalid, fmt.Sprintf("the message has the member %q more than once", "payload."+test.member))
	}
	s.do(t, http.MethodGet, "/?query="+url.QueryEscape("{hello}")+"&variables="+url.QueryEscape(`{"a":{"b":1,"b":2}}`), "").
		wantError(t, http.StatusBadRequest, CodeBadInput, `the parameter "variables" has the member "a.b" more than once; send it once`)
}
