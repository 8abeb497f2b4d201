package app

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/asof/asof/internal/fixture/graph/model"
	"github.com/asof/asof/internal/fixture/resolvers"
)

func TestUsage(t *testing.T) {
	t.Setenv("ASOF_ADDR", "127.0.0.1:0") // somebody may listen on the default one
	dir := t.TempDir()
	for _, c := range []struct {
		args   string
		status int
		text   string // in standard error, or for status 0 in standard output
	}{
		{"--version", 0, "asof "},
		{"--help", 0, "Serve the GraphQL API"},
		{"serve --help", 0, "$ASOF_CORS_ORIGIN"},
		{"", 0, "Serve the GraphQL API"},
		{"help", 0, "Serve the GraphQL API"},
		{"help serve", 0, "$ASOF_CORS_ORIGIN"},
		{"help import", 0, "\"collection\":\"tags\""},
		{"help fly", 2, "unknown command fly"},
		{"version", 0, "asof "},
		{"--log-level=info", 2, "expected one of"},
		{"fly", 2, "unknown command fly"},
		{"serve --nonsense", 2, "unknown flag --nonsense"},
		{"serve --nonsense", 2, "\"asof serve --help\""},
		{"import x --nonsense", 2, "\"asof import --help\""},
		{"schema diff --nonsense", 2, "\"asof schema diff --help\""},
		{"--nonsense", 2, "\"asof --help\""},
		{"export --help", 0, "None, or -:"},
		{"serve --addr=nonsense", 2, "want HOST:PORT"},
		{"serve --addr=:8080", 2, "--insecure-no-auth"},
		{"serve --addr=0.0.0.0:8080", 2, "--insecure-no-auth"},
		{"serve --addr=[::]:8080", 2, "--insecure-no-auth"},
		{"serve --addr=192.0.2.1:8080", 2, "not on 192.0.2.1"},
		{"serve --addr=127.0.0.1:99999", 1, "cannot listen"},
		{"serve --cors-origin=*", 2, "want one origin"},
		{"serve --cors-origin=example.org", 2, "scheme://host"},
		{"serve --cors-origin=http://localhost:5173/", 2, "write http://localhost:5173\n"},
		{"serve --store=mongodb://localhost", 2, "names no database"},
		{"serve --store=mongodb://", 2, "URI is not valid"},
		{"serve --store=mongodb://localhost/asof?minPoolSize=5&maxPoolSize=2", 2, "URI is not valid: minPoolSize"},
		{"check --store=mongodb://localhost/asof?tlsCAFile=/nope", 2, "URI is not valid: open /nope"},
		{"check --store=mongodb://127.0.0.1:1/asof?serverSelectionTimeoutMS=100", 1, "cannot be reached"},
		{"serve --store=asof.db", 2, "write --store sqlite:asof.db"},
		{"serve --max-time=30", 2, "missing unit in duration"},
		{"serve --max-time=soon", 2, "invalid duration"},
		{"serve --log-level=trace", 2, "must be one of "},
		{"serve --help", 0, "Default: 127.0.0.1:8080"},
		{"--help", 0, "Default: sqlite:./asof.db"},
		{"import --help", 0, "\"collection\":\"tags\""},
		{"serve --store=sqlite:", 2, "want sqlite:PATH"},
		{"serve --store=sqlite:DIR", 1, "is a directory"},
		{"serve --store=sqlite:DIR/none/asof.db", 1, "there is no directory"},
		{"serve --sync=sometimes", 2, "--sync must be one of"},
		{"serve --max-body=much", 2, "want a size"},
		{"serve --max-body=-1", 2, "want a size"},
		{"serve --max-depth=0", 2, "--max-depth must be positive"},
		{"serve --max-time=1h", 2, "--max-time must be at most 15m0s"},
		{"serve --max-document=9MB", 2, "--max-document must be at most 8388608 bytes"},
		{"import", 2, "<file>"},
		{"import DIR/none.ndjson", 2, "none.ndjson"},
		{"import DIR", 2, "is a directory"},
		{"export --store=sqlite:DIR/none.db", 2, "there is no store"},
		{"check --store=sqlite:DIR/none.db", 2, "there is no store"},
	} {
		t.Run(c.args, func(t *testing.T) {
			args := strings.Fields(strings.ReplaceAll(c.args, "DIR", dir))
			if !strings.Contains(c.args, "--store") {
				args = append(args, "--store=sqlite:"+filepath.Join(dir, "asof.db"))
			}
			if c.args == "" {
				args = nil
			}
			status, stdout, stderr := run(t, "", args...)
			where := stderr
			if c.status == 0 {
				where = stdout
			}
			if status != c.status || !strings.Contains(where, c.text) {
				t.Errorf("status %d, want %d; want %q in:\n%s%s", status, c.status, c.text, stdout, stderr)
			}
		})
	}
}

// Nor is a password repeated of a URI that was written where none belongs.
func TestMisplacedStoreHasNoPassword(t *testing.T) {
	for _, uri := range []string{
		"mongodb://u:s3c@r/et@h/x", "mongodb+srv://h/x?proxyPassword=s3cr@et", "mongodb//u:s3cr@et@h/x", "mongodb:u:s3cr@et@h/x", "mongodb://h?proxyPassword=s3cr@et",
	} {
		for _, args := range [][]string{
			{"check", uri},
			{uri},
			{"import", uri, "--store=sqlite:" + filepath.Join(t.TempDir(), "x.db")},
			{"serve", "--addr", uri},
			{"check", "--nonsense=" + uri},
			{"check", "--store=sqlite:" + uri},
		} {
			if status, out, errs := run(t, "", args...); status == 0 || strings.Contains(out+errs, "s3c") || strings.Contains(out+errs, "et@") || strings.Contains(out+errs, "@et") {
				t.Errorf("%s: status %d: %s%s", args, status, out, errs)
			}
		}
	}
	if _, _, errs := run(t, "", "check", "--store=sqlite:mongodb://u:s3c@h/x"); !strings.Contains(errs, "mongodb:/… for the store") {
		t.Error(errs) // what is behind it is said
	}
}

// A store is shown without what can have a password: the user and the options of a URI.
func TestStoreNameHasNoPassword(t *testing.T) {
	for store, want := range map[string]string{
		"sqlite:./a@b:c.db":                         "sqlite:./a@b:c.db",
		"mongodb://localhost/asof":                  "mongodb://localhost/asof",
		"mongodb+srv://ann:secret@h/asof":           "mongodb+srv://h/asof",
		"mongodb://ann:secret@h,i/asof?x":           "mongodb://h,i/asof",
		"mongodb://ann:sec[ret@h:1,i:2/a":           "mongodb://h:1,i:2/a",
		"mongodb://ann:se?ret@h/asof":               "mongodb://h/asof",
		"mongodb://ann:se@c/ret@h/asof":             "mongodb://h/asof",
		"mongodb://ann@h/asof":                      "mongodb://h/asof",
		"mongodb://h/asof?proxyPassword=secret":     "mongodb://h/asof",
		"mongodb://ann@h/asof?proxyPassword=sec@et": "mongodb://h/asof",
	} {
		m := &Main{Types: model.Types, flags: flags{Store: store}}
		if got := m.storeName(); got != want {
			t.Errorf("%s is shown as %s, want %s", store, got, want)
		}
	}
}

// What is refused is not repeated where a password may be.
func TestRefusedStoreHasNoPassword(t *testing.T) {
	for store, want := range map[string]string{
		"mongodb//u:s3cret@h/x":                    "--store mongodb…: want",
		"mongo:u:s3cret@h/x":                       "--store mongo…: want",
		"mongo://u:s3cret@h/x":                     "--store mongo…: want",
		"MONGODB://u:s3cret@h/x":                   "--store MONGODB…: want",
		"mongodb//h/x?proxyPassword=s3cret":        "--store mongodb…: want",
		"://u:s3cret@h/x":                          "--store …: want",
		"mongodb:u:s3cret@h/x":                     `scheme must be "mongodb" or "mongodb+srv"`,
		"mongodb://u:s3cret/asof":                  "port must be an integer",
		"mongodb://u:p@s3cret:s3cret@h/asof":       "write %40 for @",
		"mongodb://u:p@h/s3cret@h/asof":            "write %40 for @",
		"mongodb+srv://u:p@s3cret.invalid/x@h/a":   "write %40 for @",
		"mongodb://h/x?proxyPassword=s3cret%zz":    "invalid option value",
		"mongodb://h/x?retryWrites=s3cret":         `invalid value for "retryWrites"`,
		"mongodb://h/x?tlsInsecure=a\"b\\s3cret\"": `invalid value for "tlsInsecure"`,
		"./s3cret.db":                              "write --store sqlite:./s3cret.db", // is no password
	} {
		status, out, errs := run(t, "", "check", "--store="+store)
		if status != 2 || !strings.Contains(errs, want) || strings.Contains(out+errs, "s3cret") && !strings.Contains(want, "s3cret") {
			t.Errorf("%s: status %d: %s%s", store, status, out, errs)
		}
	}
}

func TestEnvironment(t *testing.T) {
	t.Setenv("ASOF_STORE", "mongodb://from-the-environment")
	if _, _, stderr := run(t, "", "check"); !strings.Contains(stderr, "names no database") {
		t.Errorf("ASOF_STORE is not read: %s", stderr)
	}
	t.Setenv("ASOF_MAX_DEPTH", "0")
	if _, _, stderr := run(t, "", "serve"); !strings.Contains(stderr, "--max-depth") {
		t.Errorf("ASOF_MAX_DEPTH is not read: %s", stderr)
	}
}

func TestImportExportCheck(t *testing.T) {
	dir := t.TempDir()
	store := func(name string) string { return "--store=sqlite:" + filepath.Join(dir, name) }
	const lines = `{"collection":"tags","id":"a","at":"2025-01-01T00:00:00Z","by":"ada","message":"first","op":"put","data":{"name":"A","description":""}}
{"collection":"tags","id":"a","at":"2025-01-02T00:00:00Z","by":"ben","op":"delete"}
`
	if status, out, errs := run(t, lines, "import", "-", store("one.db")); status != 0 || !strings.Contains(out, "2 versions added") {
		t.Fatalf("import: status %d: %s%s", status, out, errs)
	}
	status, out, errs := run(t, "", "export", store("one.db"))
	if status != 0 || unsealed(out) != lines {
		t.Errorf("export: status %d: %s%s", status, out, errs)
	}
	file := filepath.Join(dir, "out.ndjson.zst")
	if status, out, errs := run(t, "", "export", file, store("one.db"), "--collection=tags"); status != 0 || !strings.Contains(out, "exported 2 versions") {
		t.Errorf("export to a file: status %d: %s%s", status, out, errs)
	}
	if status, _, errs := run(t, "", "import", file, store("two.db")); status != 0 {
		t.Errorf("import of what was exported: %s", errs)
	}
	if status, out, errs := run(t, "", "check", store("two.db")); status != 0 || !strings.Contains(out, "is sound: 0 documents now, 2 versions in all, with those of deleted documents\n") {
		t.Errorf("check: status %d: %s%s", status, out, errs)
	}
	draft := `{"collection":"tags.drafts","id":"d","at":"2026-01-01T00:00:00Z","by":"ann","op":"put","data":{"documentKey":"a","author":"ann","document":{}}}` + "\n"
	actor := `{"collection":"asof_actors","id":"ann","at":"2026-01-01T00:00:00Z","by":"ann","op":"put","data":{"name":"Ann"}}` + "\n"
	if status, out, errs := run(t, draft+actor, "import", "-", store("two.db")); status != 0 {
		t.Errorf("import of a draft: status %d: %s%s", status, out, errs)
	}
	if status, out, errs := run(t, "", "check", store("two.db")); status != 0 || !strings.Contains(out, "is sound: 0 documents and 1 draft now, 3 versions in all") {
		t.Errorf("check: status %d: %s%s", status, out, errs)
	}
	status, _, errs = run(t, lines+"{nonsense}\n", "import", "-", store("one.db"))
	if status != 1 || !strings.Contains(errs, "line 3") {
		t.Errorf("import of a bad line: status %d: %s", status, errs)
	}
}

// An export does not replace the store that it is of, by whatever name, nor a file that
// the store has beside it, which would be gone when the store is closed.
func TestExportSparesTheStore(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "asof.db"), filepath.Join(dir, "link.db")
	const line = `{"collection":"tags","id":"a","at":"2025-01-01T00:00:00Z","by":"ada","op":"put","data":{"name":"A","description":""}}` + "\n"
	if status, _, stderr := run(t, line, "import", "-", "--store=sqlite:"+file); status != 0 {
		t.Fatalf("import: status %d: %s", status, stderr)
	}
	if err := os.Symlink(file, link); err != nil {
		t.Skip(err)
	}
	for _, to := range []string{file, link, file + "-wal", file + "-shm", file + ".lock"} {
		for _, from := range []string{file, link} {
			if status, out, stderr := run(t, "", "export", to, "--store=sqlite:"+from); status != 2 || !strings.Contains(stderr, to+" is a file of the store") {
				t.Errorf("export of %s to %s: status %d: %s%s", from, to, status, out, stderr)
			}
		}
	}
	if status, out, stderr := run(t, "", "check", "--store=sqlite:"+file); status != 0 {
		t.Errorf("check: status %d: %s%s", status, out, stderr)
	}
}

// The way to see all flags helps against a wrong flag, and not against a file
// that is not there.
func TestHelpIsNamedForFlagsOnly(t *testing.T) {
	for args, want := range map[string]bool{"serve --nonsense": true, "import /none.ndjson": false} {
		if _, _, stderr := run(t, "", strings.Fields(args)...); strings.Contains(stderr, "--help") != want {
			t.Errorf("%s: %s", args, stderr)
		}
	}
}

// A server that cannot be started leaves no store behind.
func TestServersThatFailLeaveNoStore(t *testing.T) {
	dir := t.TempDir()
	store := "--store=sqlite:" + filepath.Join(dir, "asof.db")
	taken := serve(t)
	if status, _, stderr := run(t, "", "serve", "--demo", store, "--addr="+strings.TrimPrefix(taken.url, "http://")); status != 1 || !strings.Contains(stderr, "cannot listen") || !strings.Contains(stderr, "asof itself is running") {
		t.Errorf("serve: status %d: %s", status, stderr)
	}
	for wrong, text := range map[string]string{"asof.db": "write --store sqlite:asof.db", "sqlite://m.db": "write sqlite:m.db, and for one of the root sqlite:/m.db", "sqlite:" + dir + "/asof.db?mode=ro": "a path to a file has no parameters; write --store sqlite:" + dir + "/asof.db", "sqlite:" + filepath.Join(dir, "none", "asof.db"): "there is no directory"} {
		if _, _, stderr := run(t, "", "serve", "--store="+wrong, "--addr="+strings.TrimPrefix(taken.url, "http://")); !strings.Contains(stderr, text) {
			t.Errorf("serve on a port that is taken: %s, want %q", stderr, text)
		}
	}
	if status, _, stderr := run(t, "", "serve", "--addr="+strings.TrimPrefix(taken.url, "http://"), "--store=mongodb://localhost"); status != 2 || !strings.Contains(stderr, "names no database") {
		t.Errorf("serve without a database on a port that is taken: status %d: %s", status, stderr)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v (%v)", left, err)
	}
	const line = `{"collection":"tags","id":"a","at":"2025-01-01T00:00:00Z","by":"ada","op":"put","data":{"name":"A","description":""}}` + "\n"
	if status, _, stderr := run(t, line, "import", "-", store); status != 0 {
		t.Fatalf("import: status %d: %s", status, stderr)
	}
	if status, _, _ := run(t, "{nonsense}\n", "import", "-", store); status != 1 {
		t.Errorf("import: status %d", status)
	}
	if status, out, stderr := run(t, "", "check", store); status != 0 || !strings.Contains(out, "is sound: 1 document now, 1 version in all, ") {
		t.Errorf("a store that was there: status %d: %s%s", status, out, stderr)
	}
}

// An empty file is no store, and does not become one by being looked at.
func TestEmptyFileIsNoStore(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "asof.db")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"check", "export"} {
		if status, out, stderr := run(t, "", command, "--store=sqlite:"+file); status != 1 || !strings.Contains(stderr, "is an empty file, and no store") {
			t.Errorf("%s: status %d: %s%s", command, status, out, stderr)
		}
	}
	if info, err := os.Stat(file); err != nil || info.Size() != 0 {
		t.Errorf("the file is %v (%v)", info, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("beside it are %v (%v)", left, err)
	}
}

func TestInterruptedImport(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	in, send := io.Pipe()
	var out, errs bytes.Buffer
	m := Main{Types: model.Types, Schema: resolvers.NewSchema, Stdin: in, Stdout: &out, Stderr: &errs, Now: time.Now}
	ended := make(chan int, 1)
	go func() {
		ended <- m.Run(ctx, []string{"import", "-", "--store=sqlite:" + filepath.Join(t.TempDir(), "asof.db")})
	}()
	if _, err := io.WriteString(send, `{"collection":"tags","id":"a",`); err != nil { // taken: the import has begun
		t.Fatal(err)
	}
	cancel()
	if status := <-ended; status != 130 || !strings.Contains(errs.String(), "interrupted after 0 versions; run it again to continue") {
		t.Errorf("status %d: %s", status, &errs)
	}
	_ = send.Close()
}
