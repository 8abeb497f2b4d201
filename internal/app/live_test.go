package app

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gorilla/websocket"

	"github.com/asof/asof/storage"
)

// listener receives what a subscription is told, by one of the transports.
type listener interface {
	// next returns the next answer; an error once there is none any more.
	next() (string, error)
}

// overSocket is a listener by a WebSocket.
type overSocket struct{ *websocket.Conn }

func (p *program) overSocket(t *testing.T, query string, variables map[string]any) listener {
	t.Helper()
	dialer := websocket.Dialer{Subprotocols: []string{"graphql-transport-ws"}, HandshakeTimeout: time.Minute}
	conn, response, err := dialer.DialContext(t.Context(), "ws"+strings.TrimPrefix(p.url, "http")+"/graphql", nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	t.Cleanup(func() { _ = conn.Close() })
	for _, message := range []map[string]any{
		{"type": "connection_init"},
		{"type": "subscribe", "id": "1", "payload": map[string]any{"query": query, "variables": variables}},
	} {
		if err := conn.WriteJSON(message); err != nil {
			t.Fatal(err)
		}
	}
	return overSocket{conn}
}

func (s overSocket) next() (string, error) {
	for {
		var m struct {
			Type    string
			Payload json.RawMessage
		}
		if err := s.ReadJSON(&m); err != nil {
			return "", err
		}
		switch m.Type {
		case "next":
			return string(m.Payload), nil
		case "error":
			return `{"errors":` + string(m.Payload) + `}`, nil
		case "complete":
			return "", errors.New("complete")
		}
	}
}

// overEvents is a listener by server-sent events.
type overEvents struct{ *bufio.Scanner }

func (p *program) overEvents(t *testing.T, query string, variables map[string]any) listener {
	t.Helper()
	body, err := json.Marshal(map[string]any{"query": query, "variables": variables})
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.url+"/graphql", strings.NewReader(string(body)))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "text/event-stream")
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = response.Body.Close() })
	return overEvents{bufio.NewScanner(response.Body)}
}

func (s overEvents) next() (string, error) {
	for s.Scan() {
		switch data, found := strings.CutPrefix(s.Text(), "data: "); {
		case found:
			return data, nil
		case s.Text() == "event: complete":
			return "", errors.New("complete")
		}
	}
	return "", errors.New("the stream has ended")
}

// mustNext returns the next answer without what differs from run to run.
func mustNext(t *testing.T, l listener) (text, position, asOf string) {
	t.Helper()
	text, err := l.next()
	if err != nil {
		t.Fatal(err)
	}
	var a struct {
		Extensions struct{ Position, AsOf string }
	}
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		t.Fatal(err)
	}
	text, _, _ = strings.Cut(text, `,"extensions":{`)
	return text, a.Extensions.Position, a.Extensions.AsOf
}

func transports(t *testing.T, test func(t *testing.T, p *program, subscribe func(t *testing.T, query string, variables map[string]any) listener)) {
	for name, subscribe := range map[string]func(*program, *testing.T, string, map[string]any) listener{
		"WebSocket": (*program).overSocket, "SSE": (*program).overEvents,
	} {
		t.Run(name, func(t *testing.T) {
			p := serve(t)
			test(t, p, func(t *testing.T, query string, variables map[string]any) listener {
				t.Helper()
				return subscribe(p, t, query, variables)
			})
		})
	}
}

func (p *program) write(t *testing.T, mutation string) string {
	t.Helper()
	answer := p.query(t, "mutation {"+mutation+"}").body
	if strings.Contains(answer, `"errors"`) {
		t.Fatal(answer)
	}
	return answer
}

func TestSubscriptions(t *testing.T) {
	transports(t, func(t *testing.T, p *program, subscribe func(*testing.T, string, map[string]any) listener) {
		var listed struct{ Extensions struct{ AsOf string } }
		if err := json.Unmarshal([]byte(p.query(t, `{tags {totalCount}}`).body), &listed); err != nil {
			t.Fatal(err)
		}
		p.write(t, `createTag(input: {key: "x", data: {name: "X", description: "in"}}) {__typename}`)
		p.write(t, `updateTag(input: {key: "x", expectedVersion: 1, patch: {description: "out"}}) {__typename}`)
		p.write(t, `updateTag(input: {key: "x", expectedVersion: 2, patch: {description: "in"}}) {__typename}`)
		p.write(t, `updateTag(input: {key: "x", expectedVersion: 3, patch: {name: "Y"}}) {__typename}`)
		p.write(t, `deleteTag(input: {key: "x", expectedVersion: 4}) {__typename}`)
		p.write(t, `createTag(input: {key: "y", data: {name: "Y", description: ""}}) {__typename}`)
		const one = `subscription ($since: Since) {tagChanged(key: "x", since: $since) {kind key document {id version name} deletedId changes {path op} versionInfo {operation}}}`
		since := map[string]any{"since": map[string]any{"asOf": listed.Extensions.AsOf}}
		events := []string{
			`{"data":{"tagChanged":{"kind":"ENTERED","key":"x","document":{"id":"Tag:x@1","version":1,"name":"X"},"deletedId":null,"changes":[{"path":"/name","op":"ADD"},{"path":"/description","op":"ADD"}],"versionInfo":{"operation":"CREATE"}}}`,
			`{"data":{"tagChanged":{"kind":"CHANGED","key":"x","document":{"id":"Tag:x@2","version":2,"name":"X"},"deletedId":null,"changes":[{"path":"/description","op":"REPLACE"}],"versionInfo":{"operation":"UPDATE"}}}`,
			`{"data":{"tagChanged":{"kind":"CHANGED","key":"x","document":{"id":"Tag:x@3","version":3,"name":"X"},"deletedId":null,"changes":[{"path":"/description","op":"REPLACE"}],"versionInfo":{"operation":"UPDATE"}}}`,
			`{"data":{"tagChanged":{"kind":"CHANGED","key":"x","document":{"id":"Tag:x@4","version":4,"name":"Y"},"deletedId":null,"changes":[{"path":"/name","op":"REPLACE"}],"versionInfo":{"operation":"UPDATE"}}}`,
			`{"data":{"tagChanged":{"kind":"LEFT","key":"x","document":null,"deletedId":"Tag:x","changes":[{"path":"/name","op":"REMOVE"},{"path":"/description","op":"REMOVE"}],"versionInfo":{"operation":"DELETE"}}}`,
		}
		positions := make([]string, len(events))
		l := subscribe(t, one, since)
		for i, want := range events {
			var got string
			if got, positions[i], _ = mustNext(t, l); got != want {
				t.Errorf("event %d: %s", i, cmp.Diff(want, got))
			}
		}
		l = subscribe(t, one, map[string]any{"since": map[string]any{"position": positions[2]}})
		for i, want := range events[3:] {
			if got, position, _ := mustNext(t, l); got != want || position != positions[3+i] {
				t.Errorf("behind event 2: %s", got)
			}
		}
		p.write(t, `restoreTag(input: {key: "x", expectedVersion: 5, to: {version: 1}}) {__typename}`)
		got, _, asOf := mustNext(t, l)
		if want := `{"data":{"tagChanged":{"kind":"ENTERED","key":"x","document":{"id":"Tag:x","version":6,"name":"X"}`; !strings.HasPrefix(got, want) {
			t.Errorf("restored: %s", got)
		}
		if now := p.query(t, `{tag(key: "x", asOf: "`+asOf+`") {version}}`).body; !strings.Contains(now, `{"version":6}`) {
			t.Errorf("as of the event's instant: %s", now)
		}
		l = subscribe(t, `subscription ($since: Since, $in: String) {tagsChanged(where: {description: {eq: $in}}, since: $since) {kind position versionInfo {number}}}`,
			map[string]any{"since": since["since"], "in": "in"})
		for _, want := range []string{"ENTERED 1", "LEFT 2", "ENTERED 3", "CHANGED 4", "LEFT 5", "ENTERED 6"} {
			got, position, _ := mustNext(t, l)
			kind, number, _ := strings.Cut(want, " ")
			if want := fmt.Sprintf(`{"data":{"tagsChanged":{"kind":%q,"position":%q,"versionInfo":{"number":%s}}}`, kind, position, number); got != want {
				t.Errorf("of the list: %s, want %s", got, want)
			}
		}
		l = subscribe(t, `subscription ($since: Since) {changes(where: {documentType: [Tag], field: "name"}, since: $since) {kind key documentType document {... on Tag {name}}}}`, since)
		for _, want := range []string{
			`"ENTERED","key":"x","documentType":"Tag","document":{"name":"X"}`, `"CHANGED","key":"x","documentType":"Tag","document":{"name":"Y"}`,
			`"LEFT","key":"x","documentType":"Tag","document":null`, `"ENTERED","key":"y","documentType":"Tag","document":{"name":"Y"}`,
		} {
			if got, _, _ := mustNext(t, l); got != `{"data":{"changes":{"kind":`+want+`}}` {
				t.Errorf("of all: %s, want %s", got, want)
			}
		}
	})
}

// What a migration fails for is the error of one event, and the subscription goes on.
func TestSubscriptionsToWhatCannotBeRead(t *testing.T) {
	p := serveMigrated(t, map[string]storage.Migration{"Tag": func(old json.RawMessage, _ uint32) (json.RawMessage, error) {
		if strings.Contains(string(old), "bad") {
			panic("a bad one")
		}
		return old, nil
	}})
	since := map[string]any{"since": map[string]any{"asOf": "2020-01-01T00:00:00Z"}}
	all := p.overEvents(t, `subscription ($since: Since) {changes(where: {documentType: [Tag]}, since: $since) {key document {... on Tag {name}}}}`, since)
	one := p.overEvents(t, `subscription ($since: Since) {tagsChanged(where: {name: {ne: "Z"}}, since: $since) {key document {name}}}`, since)
	for _, key := range []string{"a", "b", "c"} {
		p.write(t, fmt.Sprintf(`createTag(input: {key: %q, data: {name: %q, description: ""}}) {__typename}`, key, map[string]string{"b": "bad"}[key]))
	}
	for _, l := range []listener{all, one} {
		for _, want := range []string{`"key":"a","document":{"name":""}`, `Tag \"b\", version 1, cannot be read in today's form: its migration panicked: a bad one;`, `"key":"c","document":{"name":""}`} {
			if got, position, _ := mustNext(t, l); !strings.Contains(got, want) || position == "" {
				t.Errorf("told %s behind %q, want %s", got, position, want)
			}
		}
	}
}

// A subscription that takes longer to look through the past than a query may is told all of it, once, by
// going on behind the position of each error.
func TestSubscriptionsGoOnInThePast(t *testing.T) {
	const versions = 200
	p := serve(t, "--max-execution=20ms")
	p.write(t, `createTag(input: {key: "x", data: {name: "0", description: "in"}}) {__typename}`)
	for n := 1; n < versions; n++ {
		p.write(t, fmt.Sprintf(`updateTag(input: {key: "x", expectedVersion: %d, patch: {name: "%d"}}) {__typename}`, n, n))
	}
	var conditions strings.Builder
	for n := range 300 {
		fmt.Fprintf(&conditions, `{name: {containsFold: "zz%d"}} `, n)
	}
	since := map[string]any{"asOf": "2020-01-01T00:00:00Z"}
	var told []int
	for times := 0; ; times++ {
		l := p.overEvents(t, `subscription ($since: Since) {tagsChanged(where: {or: [`+conditions.String()+`{description: {eq: "in"}}]}, since: $since) {versionInfo {number}}}`, map[string]any{"since": since})
		for since != nil {
			text, err := l.next()
			if err != nil {
				t.Fatal(err)
			}
			var a struct {
				Data struct {
					TagsChanged struct{ VersionInfo struct{ Number int } }
				}
				Errors []struct {
					Message    string
					Extensions struct{ Code, Position string }
				}
			}
			if err := json.Unmarshal([]byte(text), &a); err != nil {
				t.Fatal(err)
			}
			if len(a.Errors) > 0 {
				if e := a.Errors[0]; e.Extensions.Code != "TOO_SLOW" || !strings.Contains(e.Message, "--max-execution") {
					t.Fatal(text)
				}
				since = map[string]any{"position": a.Errors[0].Extensions.Position}
				break
			}
			if told = append(told, a.Data.TagsChanged.VersionInfo.Number); len(told) != told[len(told)-1] {
				t.Fatalf("told %v", told)
			}
			if len(told) == versions {
				since = nil
			}
		}
		if since == nil {
			if times == 0 {
				t.Error("all was told at once")
			}
			return
		}
	}
}

func TestSubscriptionsAreRefused(t *testing.T) {
	transports(t, func(t *testing.T, _ *program, subscribe func(*testing.T, string, map[string]any) listener) {
		for query, want := range map[string]string{
			`subscription {tagChanged(key: "") {kind}}`:                                         "is no key of a document",
			`subscription {tagChanged(key: "x", since: {position: "nowhere"}) {kind}}`:          "is not the position of an event",
			`subscription {tagChanged(key: "x", since: {position: ""}) {kind}}`:                 "give position or asOf",
			`subscription {tagChanged(key: "x", since: {asOf: "2999-01-01T00:00:00Z"}) {kind}}`: "which is in the future",
			`subscription {tagChanged(key: "x", since: {}) {kind}}`:                             "Since",
			`subscription {tagsChanged(where: {name: {eq: null}}) {kind}}`:                      "null",
			`subscription {changes(where: {from: "2020-01-01T00:00:00Z"}) {kind}}`:              "from and to do not bound",
			`subscription {changes(where: {keys: []}) {kind}}`:                                  "exactly one documentType",
			`subscription {changes(where: {authors: []}) {kind}}`:                               "no change can meet",
			`subscription {a: tagChanged(key: "x") {kind} b: tagChanged(key: "y") {kind}}`:      "has exactly one field",
			`subscription {__typename}`:                                                         "introspection",
			`subscription {tagChanged(key: "x") @skip(if: true) {kind}}`:                        "has exactly one field",
		} {
			got, err := subscribe(t, query, nil).next()
			code := "BAD_USER_INPUT"
			if strings.Contains(want, "in the future") {
				code = "AS_OF_IN_FUTURE"
			}
			if err != nil || !strings.Contains(got, `"code":"`+code+`"`) || !strings.Contains(got, want) || strings.Contains(got, `"data"`) {
				t.Errorf("%s: %s, %v", query, got, err)
			}
		}
	})
	p := serve(t)
	if got := p.query(t, `subscription {tagChanged(key: "x") {kind}}`).body; !strings.Contains(got, "send it over a WebSocket") {
		t.Error(got)
	}
}

// A server that stops closes its streams so that clients connect again.
func TestSubscriptionsEndWithTheServer(t *testing.T) {
	p := serve(t)
	p.write(t, `createTag(input: {key: "x", data: {name: "X", description: ""}}) {__typename}`)
	const query = `subscription {changes(since: {asOf: "2020-01-01T00:00:00Z"}) {kind}}`
	socket, events := p.overSocket(t, query, nil), p.overEvents(t, query, nil)
	for _, l := range []listener{socket, events} { // they have begun when they tell something
		_, _, _ = mustNext(t, l)
	}
	if status := p.stop(); status != 0 {
		t.Fatalf("status %d", status)
	}
	ended := func(l listener) error {
		for {
			if _, err := l.next(); err != nil {
				return err
			}
		}
	}
	if err := ended(socket); !websocket.IsCloseError(err, websocket.CloseGoingAway) {
		t.Errorf("the WebSocket ended with %v\n%s", err, p.stderr)
	}
	if err := ended(events); err.Error() == "complete" {
		t.Error("the events were said to be complete")
	}
}
