package app

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/asof/asof/storage/seal"
)

// unsealed leaves seals out of lines of an export.
func unsealed(lines string) string {
	return regexp.MustCompile(`,"seal":"[^"]*"`).ReplaceAllString(lines, "")
}

// keyFiles makes a pair of keys.
func keyFiles(t *testing.T) (private, public string) {
	t.Helper()
	pub, priv, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, kind string, der []byte, err error) string {
		t.Helper()
		name = filepath.Join(t.TempDir(), name)
		if err == nil {
			err = os.WriteFile(name, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		return name
	}
	der, err := x509.MarshalPKCS8PrivateKey(priv)
	private = write("key.pem", "PRIVATE KEY", der, err)
	der, err = x509.MarshalPKIXPublicKey(pub)
	return private, write("public.pem", "PUBLIC KEY", der, err)
}

// Who rewrites the past is found out, also with all hashes made anew, by whoever has kept a hash or
// a checkpoint; who goes on writing, or moves the store, is not.
func TestRewrittenPastIsFound(t *testing.T) {
	dir := t.TempDir()
	store := func(name string) string { return "--store=sqlite:" + filepath.Join(dir, name) }
	must := func(in string, args ...string) string {
		t.Helper()
		status, out, errs := run(t, in, args...)
		if status != 0 {
			t.Fatalf("%q: status %d: %s%s", args, status, out, errs)
		}
		return out
	}
	fails := func(want string, args ...string) {
		t.Helper()
		if status, out, errs := run(t, "", args...); status != 1 || !strings.Contains(out+errs, want) {
			t.Errorf("%q: status %d: %s%s; want %q", args, status, out, errs, want)
		}
	}
	const lines = `{"collection":"tags","id":"a","at":"2025-01-01T00:00:00Z","by":"ada","op":"put","data":{"name":"A","description":""}}
{"collection":"tags","id":"b","at":"2025-01-01T00:00:00Z","by":"ada","op":"put","data":{"name":"B","description":""}}
{"collection":"tags","id":"a","at":"2025-01-02T00:00:00Z","by":"ben","op":"put","data":{"name":"A2","description":""}}
{"collection":"tags","id":"b","at":"2025-01-03T00:00:00Z","by":"ben","op":"delete"}
`
	must(lines, "import", "-", store("one.db"))
	exported := must("", "export", store("one.db"))
	first, err := base64.StdEncoding.DecodeString(regexp.MustCompile(`"seal":"([^"]*)"`).FindStringSubmatch(exported)[1])
	if err != nil {
		t.Fatal(err)
	}
	hash := hex.EncodeToString(seal.Hash(first))
	private, public := keyFiles(t)
	_, another := keyFiles(t)
	kept := filepath.Join(dir, "kept.json")
	if err := os.WriteFile(kept, []byte(must("", "checkpoint", store("one.db"), "--private-key="+private)), 0o600); err != nil {
		t.Fatal(err)
	}
	must(`{"collection":"tags","id":"a","at":"2025-01-04T00:00:00Z","by":"eve","op":"put","data":{"name":"A3","description":""}}`+"\n", "import", "-", store("one.db"))
	must(must("", "export", store("one.db")), "import", "-", store("moved.db"))
	for _, name := range []string{"one.db", "moved.db"} {
		if out := must("", "verify", store(name), "--since="+hash); !strings.Contains(out, `tags "a": version 1 of 2025-01-01T00:00:00Z is as it was, followed by 2 versions`) {
			t.Errorf("verify --since: %s", out)
		}
		must("", "verify", store(name), "--since="+hash, "--collection=tags", "--key=a")
		fails("no version has the hash", "verify", store(name), "--since="+hash, "--collection=tags", "--key=b")
	}
	// The checkpoint is of before the last import, which adds to before it.
	fails("tags: what it holds of", "verify", store("one.db"), "--checkpoint="+kept)
	fails("an import at", "verify", store("one.db"), "--checkpoint="+kept)

	must(exported, "import", "-", store("same.db"))
	if out := must("", "verify", store("same.db"), "--checkpoint="+kept, "--public-key="+public); !strings.Contains(out, "holds what it held at") {
		t.Errorf("verify --checkpoint: %s", out)
	}
	must(strings.Replace(unsealed(exported), `"name":"A"`, `"name":"X"`, 1), "import", "-", store("other.db"))
	must("", "check", store("other.db"))
	fails("no version has the hash", "verify", store("other.db"), "--since="+hash)
	fails("tags: what it holds of", "verify", store("other.db"), "--checkpoint="+kept)
	fails("not signed with this key", "verify", store("same.db"), "--checkpoint="+kept, "--public-key="+another)
	text, err := os.ReadFile(kept)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(kept, []byte(strings.Replace(string(text), `"documents":2`, `"documents":3`, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	fails("its root is not that of its collections", "verify", store("same.db"), "--checkpoint="+kept)

	// A line that was changed is refused with its number.
	changed := strings.Replace(exported, `"name":"A2"`, `"name":"X"`, 1)
	if status, _, errs := run(t, changed, "import", "-", store("new.db")); status != 1 || !strings.Contains(errs, "line 3: ") || !strings.Contains(errs, `tags "a": version 2 is not as it was sealed, or does not follow on the version before: it, or one before it, was changed after it was exported; export the document again`) {
		t.Errorf("import of a changed line: status %d: %s", status, errs)
	}
}

func TestVerifyUsage(t *testing.T) {
	private, public := keyFiles(t)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"verify"}, "--since"},
		{[]string{"verify", "--since=xyz"}, "64 hexadecimal digits"},
		{[]string{"verify", "--since=00", "--checkpoint=x"}, "can't be used together"},
		{[]string{"verify", "--since=00", "--key=a"}, "--key needs --collection"},
		{[]string{"verify", "--checkpoint=/none"}, "cannot read"},
		{[]string{"verify", "--checkpoint=" + public, "--public-key=" + private}, "want an Ed25519 key"},
		{[]string{"checkpoint", "--private-key=" + public}, "want an Ed25519 key"},
		{[]string{"checkpoint", "--private-key=/none"}, "cannot read"},
	} {
		if status, out, errs := run(t, "", append(c.args, "--store=sqlite:"+filepath.Join(t.TempDir(), "none.db"))...); status != 2 || !strings.Contains(errs, c.want) {
			t.Errorf("%q: status %d: %s%s; want %q", c.args, status, out, errs, c.want)
		}
	}
}

// A checkpoint that a server was asked for holds for what it wrote afterwards.
func TestCheckpointOfAServer(t *testing.T) {
	private, public := keyFiles(t)
	store := "--store=sqlite:" + filepath.Join(t.TempDir(), "a.db")
	const line = `{"collection":"tags","id":"a","at":"2025-01-01T00:00:00Z","by":"ada","op":"put","data":{"name":"A","description":""}}` + "\n"
	if status, _, errs := run(t, line, "import", "-", store); status != 0 {
		t.Fatal(errs)
	}
	p := serve(t, store, "--checkpoint-key="+private)
	var r reply
	for r.status != http.StatusOK {
		if r = p.do(t, "GET", "/checkpoint", ""); r.status != http.StatusOK && r.status != http.StatusServiceUnavailable || t.Context().Err() != nil {
			t.Fatalf("%d: %s", r.status, r.body)
		}
	}
	if r := p.query(t, `mutation {createTag(input: {key: "b", data: {name: "B", description: ""}}) {__typename}}`); !strings.Contains(r.body, "CreateTagSuccess") {
		t.Fatal(r.body)
	}
	p.stop()
	kept := filepath.Join(t.TempDir(), "kept.json")
	if err := os.WriteFile(kept, []byte(r.body), 0o600); err != nil {
		t.Fatal(err)
	}
	if status, out, errs := run(t, "", "verify", store, "--checkpoint="+kept, "--public-key="+public); status != 0 || !strings.Contains(out, "holds what it held at") {
		t.Errorf("status %d: %s%s", status, out, errs)
	}
	if r := serve(t, store).do(t, "GET", "/checkpoint", ""); r.status != http.StatusNotFound {
		t.Errorf("without a key: %d: %s", r.status, r.body)
	}
	if status, _, errs := run(t, "", "serve", store, "--checkpoint-key="+public); status != 2 || !strings.Contains(errs, "--checkpoint-key") {
		t.Errorf("a public key: status %d: %s", status, errs)
	}
}
