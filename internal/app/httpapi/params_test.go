package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"

	"github.com/99designs/gqlgen/graphql"
	"github.com/google/go-cmp/cmp"
)

// decoded is what package encoding/json makes of a body.
func decoded(text []byte) (graphql.RawParams, error) {
	var params graphql.RawParams
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	err := decoder.Decode(&params)
	return params, err
}

var bodies = []string{
	`{}`,
	`{"query":"{ a }"}`,
	" {\t\"query\" :\r\n\"{ a }\" , \"variables\" : { } , \"operationName\" : null }\n",
	`{"query":"a\n\t\r\b\f\"\\\/\u00e9\u20AC\ud83d\ude00 end","operationName":"N"}`,
	`{"query":"\u0000\\"}`,
	`{"query":"é😀","variables":{"é":"é\u00e9","a":[1,-2.5e+10,{"b":[]},[],null,true,false,"x"],"a2":{"a":1,"a":2},"":""}}`,
	`{"variables":null,"extensions":{"persistedQuery":{"version":1,"sha256Hash":"x"}},"query":null}`,
	`{"query":"a","query":"b"}`,
	`{"Query":"a","VARIABLES":{"a":1}}`,
	`{"qu\u0065ry":"a"}`,
	`{"other":{"x":[1,"}"]},"query":"a"}`,
	`{"headers":{"X":["y"]},"query":"a"}`,
	`{"query":7}`,
	`{"query":"a","Query":"b"}`,
	`{"variables":{"a":1,"A":2,"b":{"a":1}},"query":"a"}`,
	`{"variables":{"a":[{"b":1},{"b":1,"c":2,"\u0062":3}]},"query":"a"}`,
	`{"query":"a","variables":[]}`,
	`{"query":"a","variables":"x"}`,
	`{"variables":{"a":{"a":{"a":[[[{}]]]}}},"query":""}`,
}

func TestParamsAreReadAsByTheStandardLibrary(t *testing.T) {
	for _, body := range bodies {
		checkParams(t, []byte(body))
	}
}

func FuzzParams(f *testing.F) {
	for _, body := range bodies {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if checkJSON(body, jsonText{what: "it"}) == nil {
			checkParams(t, body)
		}
	})
}

func checkParams(t *testing.T, body []byte) {
	t.Helper()
	want, wantErr := decoded(body)
	var got graphql.RawParams
	err := readParams(body, &got)
	if way := repeated(body, true); (err == nil) != (wantErr == nil && len(way) == 0) || errors.Is(err, errRepeated) != (len(way) > 0) {
		t.Fatalf("%s: %v, want %v, or that %q is repeated", body, err, wantErr, way)
	}
	if err != nil {
		return
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", body, diff)
	}
}
