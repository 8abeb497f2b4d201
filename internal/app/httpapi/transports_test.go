package httpapi

import (
	"context"
	"log/slog"
	"net/url"
	"strings"
	"testing"

	"github.com/99designs/gqlgen/graphql"
	"github.com/prometheus/client_golang/prometheus"
)

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
