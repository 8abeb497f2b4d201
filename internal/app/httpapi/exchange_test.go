package httpapi

import (
	"context"
	stdjson "encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/99designs/gqlgen/graphql"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
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
		strings.Repeat("a/b,", 300) + "text/event-stream":                                                                   mediaJSON, // too long
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

// rawSchema answers every operation with the same bytes, once.
type rawSchema struct {
	*fakeSchema
	data string
	why  string // the operation has no plan
}

func (s *rawSchema) Exec(ctx context.Context) graphql.ResponseHandler {
	NotePlan(ctx, s.why)
	return graphql.OneShot(&graphql.Response{Data: []byte(s.data)})
}

// Spaces, characters that encoders like to escape, and numbers that decoders
// would round.
const rawData = `{ "hello" : "<b>&\u2028é" , "n":1.0E400 }`

const rawAnswer = `{"data":` + rawData + `,"extensions":{"asOf":"2026-01-02T03:04:05Z"}}`

func newRawServer(t *testing.T, why string, debug bool) *server {
	t.Helper()
	return newServer(t, func(cfg *Config, schema *fakeSchema) {
		cfg.Schema, cfg.Debug = &rawSchema{schema, rawData, why}, debug
	})
}

// An answer is written as it was made, whatever carries it.
func TestTransportsWriteAnswersAsTheyAre(t *testing.T) {
	s := newRawServer(t, "", false)
	s.query(t, `{hello}`).want(t, 200, rawAnswer)
	s.do(t, "GET", "/?query="+url.QueryEscape(`{hello}`), "").want(t, 200, rawAnswer)
	s.query(t, `{hello}`, "Accept", mediaEvents).want(t, 200, "event: next\ndata: "+rawAnswer+"\n\nevent: complete\ndata:\n\n")
	c := s.connect(t, `{}`)
	for range 2 {
		c.send(t, `{"type":"subscribe","id":"a\"b","payload":{"query":"{hello}"}}`)
		if got, want := c.receive(t), `{"payload":`+rawAnswer+`,"id":"a\"b","type":"next"}`; got != want {
			t.Errorf("got %s\nwant %s", got, want)
		}
		c.want(t, `{"type":"complete","id":"a\"b"}`)
	}
}

// The log says why an operation had no plan where it was slow, or where the log is
// to have everything.
func TestWhyThereIsNoPlan(t *testing.T) {
	const why = "Query.hello is not planned"
	for name, change := range map[string]func(*Config, *journal){
		"slow": func(cfg *Config, _ *journal) { cfg.Slow = 1 },
		"debug": func(cfg *Config, j *journal) {
			cfg.Logger = slog.New(slog.NewJSONHandler(j, &slog.HandlerOptions{Level: slog.LevelDebug}))
		},
	} {
		kept := new(journal)
		s := newServer(t, func(cfg *Config, schema *fakeSchema) {
			cfg.Schema, cfg.Logger = &rawSchema{schema, rawData, why}, slog.New(slog.NewJSONHandler(kept, nil))
			change(cfg, kept)
		})
		s.query(t, `{hello}`)
		if got := kept.lines(t)[0]["unplanned"]; got != why {
			t.Errorf("%s: the log says %q", name, got)
		}
	}
}

func TestWhatExecutedIsSaid(t *testing.T) {
	tests := []struct {
		why         string
		debug       bool
		header, log string
	}{
		{"", true, "plan", "plan"},
		{"", false, "", "plan"},
		{"Query.hello is not planned", true, "gqlgen; Query.hello is not planned", "gqlgen"},
		{"Query.hello is not planned", false, "", "gqlgen"},
	}
	for _, test := range tests {
		s := newRawServer(t, test.why, test.debug)
		a := s.query(t, `{hello}`)
		if got := a.header.Get("X-Asof-Executor"); got != test.header {
			t.Errorf("%+v: the header says %q", test, got)
		}
		if got := s.journal.lines(t)[0]["executor"]; got != test.log {
			t.Errorf("%+v: the log says %q", test, got)
		}
		if got := s.journal.lines(t)[0]["unplanned"]; got != nil {
			t.Errorf("%+v: the log says %q why there is no plan, and nothing is wrong", test, got)
		}
		if got := s.executors(t); got != test.log+" "+test.log { // of the counter and of the times
			t.Errorf("%+v: the metrics say %q", test, got)
		}
		a = s.query(t, `{nothing}`)
		if a.header.Get("X-Asof-Executor") != "" || s.journal.lines(t)[1]["executor"] != "none" {
			t.Errorf("a query that was not executed: %+v", a)
		}
		for _, stream := range []answer{
			s.query(t, `{hello}`, "Accept", mediaEvents),
			s.do(t, "GET", "/?query="+url.QueryEscape(`{hello}`), "", "Accept", mediaEvents),
		} {
			if got := stream.header.Get("X-Asof-Executor"); got != test.header {
				t.Errorf("%+v: the header of a stream says %q", test, got)
			}
		}
	}
}

// executors are the values of the metrics' label.
func (s *server) executors(t *testing.T) string {
	t.Helper()
	families, err := s.handler.cfg.Metrics.(*prometheus.Registry).Gather()
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				if label.GetName() == "executor" {
					found = append(found, label.GetValue())
				}
			}
		}
	}
	return strings.Join(found, " ")
}

// recyclingSchema writes over the memory that it is given back.
type recyclingSchema struct {
	rawSchema
	given int
}

func (s *recyclingSchema) Recycle(data []byte) {
	s.given++
	for i := range data {
		data[i] = '#'
	}
}

// The memory of an answer is given back when it is not looked at any more, by
// those transports that know when that is, and only to plans.
func TestMemoryIsGivenBack(t *testing.T) {
	for why, want := range map[string]int{"": 3, "no plan": 0} {
		schema := &recyclingSchema{rawSchema: rawSchema{newFakeSchema(t), rawData, why}}
		s := newServer(t, func(cfg *Config, _ *fakeSchema) { cfg.Schema = schema })
		s.query(t, `{hello}`).want(t, 200, rawAnswer)
		s.query(t, `{hello}`).want(t, 200, rawAnswer)
		s.do(t, "GET", "/?query="+url.QueryEscape(`{hello}`), "").want(t, 200, rawAnswer)
		s.query(t, `{hello}`, "Accept", mediaEvents).want(t, 200, "event: next\ndata: "+rawAnswer+"\n\nevent: complete\ndata:\n\n")
		if schema.given != want {
			t.Errorf("%q: memory was given back %d times, want %d", why, schema.given, want)
		}
	}
}
