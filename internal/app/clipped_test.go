package app

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	"github.com/coder/websocket"
)

// What is the most that is said of what a client sent, in bytes.
const (
	mostMessage = 400     // of an error
	mostValue   = 400     // of a header, or of a line of metrics
	mostLine    = 8 << 10 // of the log
)

// Whatever a client sends, it is not repeated at length: not in the log, nor in
// metrics, headers and errors, and no character of it is cut in two.
func TestWhatClientsSendIsClipped(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		t.Run(format, func(t *testing.T) {
			p := serve(t, "--demo", "--log-format="+format, "--cors-origin=https://app.example", "--max-tokens=1000")
			for name, request := range longRequests(100 << 10) {
				body, err := json.Marshal(request)
				if err != nil {
					t.Fatal(err)
				}
				kind := []string{"Content-Type", "application/json"}
				checkClipped(t, name+" by POST", p.do(t, "POST", "/graphql", string(body), kind...))
				if format == "text" {
					continue // only the log differs
				}
				checkClipped(t, name+" by POST, with events", p.do(t, "POST", "/graphql", string(body), append(kind, "Accept", "text/event-stream")...))
				checkSocketClipped(t, name, p.url, body)
			}
			const most = 50 << 10 // the server reads no more of a header
			for name, request := range longRequests(most) {
				if format == "text" {
					break
				}
				values := url.Values{}
				for name, value := range request {
					text, ok := value.(string)
					if !ok {
						b, err := json.Marshal(value)
						if err != nil {
							t.Fatal(err)
						}
						text = string(b)
					}
					values.Set(name, text)
				}
				path := "/graphql?" + values.Encode()
				if len(path) > most*5/4 {
					continue // of characters that take three bytes each in a URL
				}
				checkClipped(t, name+" by GET", p.do(t, "GET", path, ""))
				checkClipped(t, name+" by GET, with events", p.do(t, "GET", path, "", "Accept", "text/event-stream"))
			}
			long := strings.Repeat("x", most)
			for _, name := range []string{
				"X-Actor", "X-Request-Id", "Origin", "Host", "Content-Type", "Content-Encoding", "Accept", "Accept-Encoding", "User-Agent", "Referer",
				"Sec-Fetch-Site", "Sec-WebSocket-Protocol", "Access-Control-Request-Headers",
			} {
				header := []string{"Content-Type", "application/json", name, long}
				if name == "Origin" {
					header = append(header, "Origin", "https://"+long)
				}
				checkClipped(t, name, p.do(t, "POST", "/graphql", `{"query":"{__typename}"}`, header...))
				checkClipped(t, name+" by GET", p.do(t, "GET", "/graphql?query={__typename}", "", name, long))
				checkClipped(t, name+" by OPTIONS", p.do(t, "OPTIONS", "/graphql", "", name, long))
			}
			checkClipped(t, "Upgrade", p.do(t, "GET", "/graphql", "", "Connection", "Upgrade", "Upgrade", long))
			checkClipped(t, "method", p.do(t, strings.Repeat("X", most), "/graphql", ""))
			checkClipped(t, "path", p.do(t, "GET", "/"+long, "", "Host", "elsewhere"))
			checkClipped(t, "escaped path", p.do(t, "GET", "/"+strings.Repeat("%c3%a9%01", most/9), "", "Host", "elsewhere"))
			checkClipped(t, "a parameter that is none", p.do(t, "GET", "/graphql?query=%zz"+long, ""))

			for line := range strings.Lines(p.do(t, "GET", "/metrics", "").body) {
				if len(line) > mostValue {
					t.Errorf("metrics: %d bytes: %.200s…", len(line), line)
				}
			}
			p.stop()
			for line := range strings.Lines(p.stderr.String()) {
				if len(line) > mostLine || strings.ContainsRune(line, '�') || strings.Contains(line, `\xc3"`) {
					t.Errorf("log: %d bytes: %.200s…", len(line), line)
				}
			}
		})
	}
}

// longRequests are requests that have something of about so many bytes.
func longRequests(bytes int) map[string]map[string]any {
	name, text, digits := strings.Repeat("n", bytes*9/10), "x"+strings.Repeat("é", bytes/2), strings.Repeat("9", bytes*9/10)
	requests := map[string]map[string]any{
		"persisted query": {"extensions": map[string]any{"persistedQuery": map[string]any{"version": 1, "sha256Hash": text}}},
		"version of a persisted query": {"query": "{__typename}", "extensions": map[string]any{
			"persistedQuery": map[string]any{"version": json.Number(digits), "sha256Hash": "x"},
		}},
		"operationName":        {"query": "{__typename}", "operationName": text},
		"one of several":       {"query": "query A{__typename} query B{__typename}", "operationName": text},
		"name of a variable":   {"query": "{__typename}", "variables": map[string]any{text: 1}},
		"member":               {"query": "{__typename}", text: 1},
		"is no GraphQL":        {"query": text},
		"a string without end": {"query": `{project(key:"` + text},
	}
	for what, document := range map[string]string{
		"operation":           `query NAME {__typename}`,
		"mutation":            `mutation NAME {deleteTag(input: {key: "none", expectedVersion: 1}) {__typename}}`,
		"subscription":        `subscription NAME {__typename}`,
		"operation that ends": `query NAME {project(key: "hearth", version: 999) {key}}`,
		"field":               `{NAME}`,
		"argument":            `{project(NAME: 1) {key}}`,
		"alias":               `{NAME: project(key: "hearth", version: 999) {key}}`,
		"fragment":            `{...NAME}`,
		"unused fragment":     `fragment NAME on Query {__typename} {__typename}`,
		"type":                `{... on NAME {__typename}}`,
		"type of a variable":  `query($v: NAME) {project(key: $v) {key}}`,
		"directive":           `{__typename @NAME}`,
		"enum":                `{projects(orderBy: [{field: NAME}]) {totalCount}}`,
		"input field":         `{projects(where: {NAME: 1}) {totalCount}}`,
		"number":              `{projects(first: DIGITS) {totalCount}}`,
		"float":               `{projects(where: {stars: {gt: DIGITS.5}}) {totalCount}}`,
		"version":             `{project(key: "hearth", version: DIGITS) {key}}`,
		"instant":             `{project(key: "hearth", asOf: "TEXT") {key}}`,
		"key":                 `{project(key: "TEXT") {key}}`,
		"diff":                `{projectHistory(key: "TEXT") {diff(from: {version: 1}, to: {version: 2}) {jsonPatch}}}`,
		"id":                  `{node(id: "TEXT") {id}}`,
		"id of a type":        `{node(id: "Project:TEXT") {id}}`,
		"cursor":              `{projects(after: "TEXT") {totalCount}}`,
		"key of a new one":    `mutation {createTag(input: {key: "TEXT", data: {name: "x", description: ""}}) {__typename ... on TagConflict {message}}}`,
		"key of a change":     `mutation {deleteTag(input: {key: "TEXT", expectedVersion: 1}) {__typename ... on TagConflict {message}}}`,
		"key of a restore":    `mutation {restoreTag(input: {key: "TEXT", expectedVersion: 1, to: {version: 1}}) {__typename ... on TagConflict {message}}}`,
		"message":             `mutation {deleteTag(input: {key: "none", expectedVersion: 1, message: "TEXT"}) {__typename}}`,
		"value":               `mutation {createTag(input: {key: "none", data: {name: "x", description: "", redirect: "TEXT"}}) {__typename}}`,
		"comment":             "{__typename} #TEXT",
		"no string":           `{project(key: TEXT) {key}}`,
	} {
		requests[what] = map[string]any{"query": strings.NewReplacer("NAME", name, "TEXT", strings.ToValidUTF8(text[:len(text)*9/10], ""), "DIGITS", digits).Replace(document)}
	}
	for what, query := range map[string]string{
		"variable":          `query($v: ID!) {project(key: $v) {key}}`,
		"instant given":     `query($v: DateTime) {project(key: "hearth", asOf: $v) {key}}`,
		"number given":      `query($v: Int) {projects(first: $v) {totalCount}}`,
		"enum given":        `query($v: ProjectOrderField!) {projects(orderBy: [{field: $v}]) {totalCount}}`,
		"object given":      `query($v: ProjectFilter) {projects(where: $v) {totalCount}}`,
		"cursor given":      `query($v: String) {projects(after: $v) {totalCount}}`,
		"id given":          `query($v: ID!) {node(id: $v) {id}}`,
		"ids given":         `query($v: [ID!]!) {nodes(ids: $v) {id}}`,
		"key changed":       `mutation($v: ID!) {deleteTag(input: {key: $v, expectedVersion: 1}) {__typename ... on TagConflict {message}}}`,
		"change of a value": `mutation($v: UpdateTagInput!) {updateTag(input: $v) {__typename}}`,
	} {
		for form, value := range map[string]any{"": text, ", number": json.Number(digits), ", member": map[string]any{text: 1}, ", list": []any{text}} {
			requests[what+form] = map[string]any{"query": query, "variables": map[string]any{"v": value}}
		}
	}
	return requests
}

// checkClipped looks at an answer's headers and errors.
func checkClipped(t *testing.T, name string, got reply) {
	t.Helper()
	for header, values := range got.header {
		for _, value := range values {
			if len(value) > mostValue {
				t.Errorf("%s: the header %s has %d bytes: %.100s…", name, header, len(value), value)
			}
		}
	}
	body := got.body
	if _, event, ok := strings.Cut(body, "data: "); ok {
		body, _, _ = strings.Cut(event, "\n")
	}
	if strings.HasPrefix(got.header.Get("Content-Type"), "application/json") || got.header.Get("Content-Type") == "text/event-stream" {
		checkErrorsClipped(t, name, []byte(body))
	} else if len(body) > mostValue {
		t.Errorf("%s: status %d, %d bytes: %.100s…", name, got.status, len(body), body)
	}
}

// checkErrorsClipped looks at all that is called a message in an answer.
func checkErrorsClipped(t *testing.T, name string, answer []byte) {
	t.Helper()
	var decoded any
	if err := json.Unmarshal(answer, &decoded); err != nil {
		t.Errorf("%s: %v: %.100s", name, err, answer)
		return
	}
	var look func(value any)
	look = func(value any) {
		switch value := value.(type) {
		case map[string]any:
			if message, ok := value["message"].(string); ok && (len(message) > mostMessage || strings.ContainsRune(message, '�')) {
				t.Errorf("%s: a message of %d bytes: %.100s…", name, len(message), message)
			}
			for _, inner := range value {
				look(inner)
			}
		case []any:
			for _, inner := range value {
				look(inner)
			}
		}
	}
	look(decoded)
}

// checkSocketClipped sends a request on a WebSocket.
func checkSocketClipped(t *testing.T, name, server string, request []byte) {
	t.Helper()
	conn, response, err := websocket.Dial(t.Context(), "ws"+strings.TrimPrefix(server, "http")+"/graphql", &websocket.DialOptions{
		Subprotocols: []string{"graphql-transport-ws"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if response.Body != nil {
		_ = response.Body.Close()
	}
	defer func() { _ = conn.CloseNow() }()
	conn.SetReadLimit(1 << 20)
	for _, message := range []string{`{"type":"connection_init"}`, `{"type":"subscribe","id":"a","payload":` + string(request) + `}`} {
		if err := conn.Write(t.Context(), websocket.MessageText, []byte(message)); err != nil {
			t.Fatal(err)
		}
	}
	for {
		_, message, err := conn.Read(t.Context())
		if err != nil {
			if websocket.CloseStatus(err) == -1 {
				t.Errorf("%s by WebSocket: %v", name, err)
			}
			return // the reason of the close frame has at most 123 bytes
		}
		checkErrorsClipped(t, name+" by WebSocket", message)
		var typed struct{ Type string }
		if err := json.Unmarshal(message, &typed); err != nil || typed.Type == "error" || typed.Type == "complete" {
			return
		}
	}
}
