package app

import (
	"errors"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const archivedLines = `{"collection":"tags","id":"a","at":"2025-01-01T00:00:00Z","by":"ada","op":"put","data":{"name":"A","description":""}}
{"collection":"asof_actors","id":"ada","at":"2025-01-01T00:00:01Z","by":"ada","op":"put","data":{"name":"Ada"}}
{"collection":"tags","id":"a","at":"2025-01-02T00:00:00Z","by":"ben","op":"delete"}
{"collection":"tags.drafts","id":"d","at":"2025-01-03T00:00:00Z","by":"ada","op":"put","data":{"documentKey":"a","author":"ada","document":{}}}
`

func TestArchiveOnce(t *testing.T) {
	dir := t.TempDir()
	store := func(name string) string { return "sqlite:" + filepath.Join(dir, name) }
	must := func(in string, args ...string) string {
		t.Helper()
		status, out, errs := run(t, in, args...)
		if status != 0 {
			t.Fatalf("%q: status %d: %s%s", args, status, out, errs)
		}
		return out
	}
	must(archivedLines, "import", "-", "--store", store("from.db"))
	if out := must("", "archive", "--from", store("from.db"), "--to", store("to.db"), "--once"); !strings.Contains(out, "4 versions added; "+store("to.db")+" holds what "+store("from.db")+" did at ") {
		t.Errorf("archive: %s", out)
	}
	if from, to := must("", "export", "--store", store("from.db")), must("", "export", "--store", store("to.db")); from != to {
		t.Errorf("the archive has\n%s\nwant\n%s", to, from)
	}
	must(`{"collection":"tags","id":"a","at":"2025-02-01T00:00:00Z","by":"eve","op":"put","data":{"name":"B","description":""}}`+"\n", "import", "-", "--store", store("from.db"))
	if out := must("", "archive", "--from", store("from.db"), "--to", store("to.db"), "--verify"); !strings.Contains(out, "1 version added") || !strings.Contains(out, "by the hashes of all histories") {
		t.Errorf("archive --verify: %s", out)
	}
	for _, c := range []struct{ in, want string }{
		{`{"collection":"tags","id":"b","at":"2025-02-01T00:00:00Z","by":"eve","op":"put","data":{"name":"B","description":""}}`, "tags: what it holds of "},
		{`{"collection":"tags","id":"a","at":"2025-03-01T00:00:00Z","by":"eve","op":"put","data":{"name":"C","description":""}}`, "tags: what it holds of "},
	} {
		must(c.in+"\n", "import", "-", "--store", store("to.db"))
		if status, out, errs := run(t, "", "archive", "--from", store("from.db"), "--to", store("to.db"), "--verify"); status != 1 || !strings.Contains(out, c.want) || !strings.Contains(errs, "does not hold what") {
			t.Errorf("after another import: status %d: %s%s", status, out, errs)
		}
	}
	must(`{"collection":"tags","id":"a","at":"2025-04-01T00:00:00Z","by":"eve","op":"put","data":{"name":"D","description":""}}`+"\n", "import", "-", "--store", store("from.db"))
	if status, _, errs := run(t, "", "archive", "--from", store("from.db"), "--to", store("to.db")); status != 1 || !strings.Contains(errs, "archive into an empty store") {
		t.Errorf("of what is not as it was: status %d: %s", status, errs)
	}
}

func TestArchiveUsage(t *testing.T) {
	there, none := "sqlite:"+filepath.Join(t.TempDir(), "to.db"), "sqlite:"+filepath.Join(t.TempDir(), "none.db")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"archive", "--to", there}, "--from"},
		{[]string{"archive", "--from", none, "--to", none}, "--to " + none + " is the store itself"},
		{[]string{"archive", "--from", none, "--to", there}, "there is no store at"},
		{[]string{"archive", "--from", "x:y", "--to", there}, "--from: --store x…"},
		{[]string{"archive", "--from", none, "--to", "x:y"}, "--to: --store x…"},
		{[]string{"serve", "--store", there, "--archive", there}, "--archive " + there + " is the store itself"},
		{[]string{"serve", "--store", there, "--archive", "sqlite:"}, "--archive: --store sqlite"},
	} {
		if status, out, errs := run(t, "", c.args...); status != 2 || !strings.Contains(errs, c.want) {
			t.Errorf("%q: status %d: %s%s; want %q", c.args, status, out, errs, c.want)
		}
	}
}

// until reads a server's metrics until a line of them matches.
func (p *program) until(t *testing.T, line string) {
	t.Helper()
	match := regexp.MustCompile("(?m)^" + line + "$")
	for !match.MatchString(p.do(t, "GET", "/metrics", "").body) {
	}
}

// A server's writes arrive in its archive, as soon as that can be had, and the server waits for nothing.
func TestServeWithAnArchive(t *testing.T) {
	dir := t.TempDir()
	from, to := "sqlite:"+filepath.Join(dir, "from.db"), "sqlite:"+filepath.Join(dir, "to.db")
	create := func(p *program, key string) {
		t.Helper()
		if r := p.query(t, `mutation {createTag(input: {key: "`+key+`", data: {name: "A", description: ""}}) {__typename}}`); !strings.Contains(r.body, "CreateTagSuccess") {
			t.Fatal(r.body)
		}
	}
	other := serve(t, "--store", to)
	p := serve(t, "--store", from, "--archive", to)
	create(p, "a")
	for !strings.Contains(p.stderr.String(), "following waits") {
		p.until(t, "asof_archive_lag_seconds NaN")
	}
	if status := other.stop(); status != 0 {
		t.Fatal(other.stderr)
	}
	p.until(t, "asof_archived_versions_total 1")
	create(p, "b")
	p.until(t, "asof_archived_versions_total 2")
	p.until(t, `asof_archive_lag_seconds [0-9.e-]+`)
	another := "sqlite:" + filepath.Join(dir, "another.db")
	if status, _, errs := run(t, archivedLines, "import", "-", "--store", another); status != 0 {
		t.Fatal(errs)
	}
	if status, out, errs := run(t, "", "archive", "--from", another, "--to", to); status != 1 || !strings.Contains(errs, "another process is using it") {
		t.Errorf("a second one into the file: status %d: %s%s", status, out, errs)
	}
	p.stop()
	if errs := p.stderr.String(); strings.Count(errs, "following waits") != 1 || strings.Count(errs, "following goes on") != 1 {
		t.Errorf("the log:\n%s", errs)
	}
	if status, out, errs := run(t, "", "archive", "--from", from, "--to", to, "--verify"); status != 0 || !strings.Contains(out, "0 versions added") {
		t.Errorf("status %d: %s%s", status, out, errs)
	}

	served := serve(t, "--store", to, "--read-only")
	if r := served.query(t, `mutation {createTag(input: {key: "c", data: {name: "A", description: ""}}) {__typename}}`); r.status != 403 || !strings.Contains(r.body, `"FORBIDDEN"`) || !strings.Contains(r.body, "--read-only") {
		t.Errorf("a mutation: status %d: %s", r.status, r.body)
	}
	if r := served.query(t, `{tag(key: "a") {name}}`); r.body != `{"data":{"tag":{"name":"A"}}`+r.body[strings.Index(r.body, `,"extensions"`):] {
		t.Errorf("a query: %s", r.body)
	}
}

// What a server has sent reaches the terminal as text.
func TestErrorsAreText(t *testing.T) {
	if got := withoutSecrets(errors.New("a\x1b]0;b\x07\u202e\n\tä…")); got != `a\x1b]0;b\a\u202e`+"\n\tä…" {
		t.Errorf("%q", got)
	}
}
