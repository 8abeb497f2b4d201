package app

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The server starts with a list of documents only if it can execute all of them, and executes no
// others.
func TestTrustedDocuments(t *testing.T) {
	list := func(text string) string {
		path := filepath.Join(t.TempDir(), "persisted-documents.json")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return "--trusted-documents=" + path
	}
	p := serve(t, list(`{"a1":"query Names {tags {nodes {name}}}","b2":"{__schema {queryType {name}}}"}`))
	send := func(body string) reply { return p.do(t, "POST", "/graphql", body, "Content-Type", "application/json") }
	if r := send(`{"documentId":"a1"}`); !strings.Contains(r.body, `{"tags":{"nodes":[]}}`) {
		t.Errorf("%d %s", r.status, r.body)
	}
	for _, body := range []string{`{"query":"{tags {nodes {name}}}"}`, `{"documentId":"b2"}`} {
		if r := send(body); !strings.Contains(r.body, "FORBIDDEN") {
			t.Errorf("%s: %d %s", body, r.status, r.body)
		}
	}
	for text, want := range map[string]string{
		`{"a1":"{tagz {nodes {name}}}"}`: `the document "a1" ({tagz {nodes {name}}}): `,
		`{"a1":7}`:                       `the value of "a1" is not a string`,
	} {
		flag := list(text)
		status, _, stderr := run(t, "", "serve", "--addr=127.0.0.1:0", "--store=sqlite:"+filepath.Join(t.TempDir(), "asof.db"), flag)
		if status != exitUsage || !strings.Contains(stderr, want) || !strings.Contains(stderr, flag[len("--trusted-documents="):]) {
			t.Errorf("%s: %d %s", text, status, stderr)
		}
	}
	if status, _, stderr := run(t, "", "serve", "--trusted-documents=no/such/file"); status != exitUsage || !strings.Contains(stderr, "no such file") {
		t.Errorf("%d %s", status, stderr)
	}
}
