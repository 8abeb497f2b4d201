package e2e

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/asof/asof/storage/mongostore/mongotest"
)

// What keeps the program from using its store is said in one message that tells
// what to do, with an exit status that tells a wrong call from a bad server.
func TestStoreThatCannotBeUsed(t *testing.T) {
	server := mongotest.NewServer(t)
	proxy, behind, database := server.Behind(t)
	newer := newerSQLite(t)
	newerURI, newerDatabase := server.Database(t)
	if _, err := server.Client.Database(newerDatabase).Collection("asof.meta").InsertOne(t.Context(),
		bson.D{{Key: "_id", Value: "store"}, {Key: "format", Value: int64(99)}}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, store string
		fails       string   // a command, with what is answered
		answer      bson.D   // nil: it passes
		status      int      // 2: wrong call
		want        []string // of the message
	}{
		{"no URI", "mongodb://", "", nil, 2, []string{"the MongoDB URI is not valid"}},
		{"no database", "mongodb://ann:s3cret@localhost", "", nil, 2, []string{"names no database", "mongodb://localhost:27017/asof"}},
		{"no server", "mongodb://127.0.0.1:1/asof?serverSelectionTimeoutMS=300", "", nil, 1, []string{"the MongoDB server cannot be reached", "127.0.0.1:1"}},
		{"no host", "mongodb+srv://ann:s3cret@asof.invalid/asof", "", nil, 1, []string{"the MongoDB server cannot be found", "asof.invalid"}},
		{
			"a wrong password", strings.Replace(behind, "mongodb://", "mongodb://ann:s3cret@", 1), "saslStart",
			mongotest.Failure(18, "AuthenticationFailed", "Authentication failed."), 1,
			[]string{"the user or the password of --store is wrong"},
		},
		{
			"no rights", behind, "update",
			mongotest.Failure(13, "Unauthorized", "not authorized on "+database+" to execute command"), 1,
			[]string{"needs the role readWrite on the database"},
		},
		{
			"no rights to make indexes", behind, "createIndexes",
			mongotest.Failure(13, "Unauthorized", "not authorized on "+database+" to execute command"), 1,
			[]string{"making the indexes of", "needs the role readWrite"},
		},
		{
			"a server that takes no writes", behind, "update",
			mongotest.Failure(10107, "NotWritablePrimary", "not primary", "RetryableWriteError", "NoWritesPerformed"), 1,
			[]string{"takes no writes", "without directConnection"},
		},
		{"a newer layout", newerURI, "", nil, 1, []string{"another version of asof", "layout 99"}},
		{"a newer file", "sqlite:" + newer, "", nil, 1, []string{"newer version of asof"}},
	} {
		proxy.Set(func(command mongotest.Command) mongotest.Answer {
			if c.answer != nil && command.Name == c.fails {
				return mongotest.Reply(c.answer)
			}
			return mongotest.Pass()
		})
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		cmd := exec.CommandContext(ctx, program, "serve", "--addr", "127.0.0.1:0", "--store", c.store)
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		err := cmd.Run()
		cancel()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != c.status {
			t.Errorf("%s: it ended with %v, want exit status %d\n%s", c.name, err, c.status, stderr.String())
		}
		for _, want := range append(c.want, "asof: ") {
			if !strings.Contains(stderr.String(), want) {
				t.Errorf("%s: the message lacks %q:\n%s", c.name, want, stderr.String())
			}
		}
		if strings.Contains(stderr.String()+stdout.String(), "s3cret") {
			t.Errorf("%s: the password is told:\n%s", c.name, stderr.String())
		}
		if stdout.Len() > 0 {
			t.Errorf("%s: it says that it serves:\n%s", c.name, stdout.String())
		}
	}
}

// Commands that only read refuse a store that there is not, on every engine, and
// do not make one: it is a mistake in its name.
func TestNoStore(t *testing.T) {
	server := mongotest.NewServer(t)
	uri, database := server.Database(t)
	dir := t.TempDir()
	for _, store := range []string{"sqlite:" + filepath.Join(dir, "none.db"), uri} {
		for _, command := range [][]string{{"export", "-"}, {"check"}} {
			cmd := exec.CommandContext(t.Context(), program, append(command, "--store", store)...)
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			err := cmd.Run()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != 2 || !strings.Contains(stderr.String(), "asof: there is no store ") {
				t.Errorf("%s of %s: %v, want exit status 2\n%s", command[0], store, err, stderr.String())
			}
		}
	}
	if names, err := server.Client.Database(database).ListCollectionNames(t.Context(), bson.D{}); err != nil || len(names) > 0 {
		t.Errorf("the database was made, with the collections %q: %v", names, err)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) > 0 {
		t.Errorf("files were made: %v, %v", files, err)
	}
}

// newerSQLite is a store of a format that this program does not know.
func newerSQLite(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "newer.db")
	feed(t, "sqlite:"+path, "")
	// The format is a number at a fixed place in the header of the file.
	const userVersion = 60
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte{0, 0, 0, 99}, userVersion); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// A server that is no replica set is warned of once.
func TestSingleServerIsWarnedOf(t *testing.T) {
	server := mongotest.NewServer(t)
	uri, _ := server.Database(t)
	out := run(t, program, "import", "--store", uri, emptyFile(t))
	want := 0
	set, _, err := server.ReplicaSet(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if set == "" {
		want = 1
	}
	if got := strings.Count(out, "is not a replica set"); got != want {
		t.Errorf("%d warnings, want %d:\n%s", got, want, out)
	}
}

func emptyFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "empty.ndjson")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// While its database is away a server is alive and not ready, answers requests
// with an error that says so, and is as before when the database is back.
func TestDatabaseAway(t *testing.T) {
	server := mongotest.NewServer(t)
	proxy, uri, _ := server.Behind(t)
	s := startServer(t, program, uri+"&heartbeatFrequencyMS=500", "--max-time", "2s")
	status := func(path string) int {
		t.Helper()
		resp, err := http.Get(s.url + path)
		if err != nil {
			t.Fatal(err)
		}
		if err := resp.Body.Close(); err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode
	}
	const create = `mutation($key: ID!) {createPlatform(input: {key: $key, data: {name: "n", description: "d"}}) {__typename ... on CreatePlatformSuccess {version}}}`
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	check := func(when string, ready bool, key string) {
		t.Helper()
		want, code := http.StatusOK, ""
		if !ready {
			want, code = http.StatusServiceUnavailable, "UNAVAILABLE"
		}
		// A slow machine may need several requests until one is answered in time.
		got := status("/readyz")
		for ready && got != want && ctx.Err() == nil {
			got = status("/readyz")
		}
		if got != want {
			t.Errorf("%s: /readyz: %d, want %d", when, got, want)
		}
		if got := status("/healthz"); got != http.StatusOK {
			t.Errorf("%s: /healthz: %d", when, got)
		}
		for _, query := range []string{`query($key: ID!) {platform(key: $key) {name}}`, create} {
			ask := func() (code string) {
				if a := s.ask(t, query, map[string]any{"key": key}); len(a.Errors) > 0 {
					code = a.Errors[0].Extensions.Code
				}
				return code
			}
			got := ask()
			for ready && got == "UNAVAILABLE" && ctx.Err() == nil {
				got = ask()
			}
			if got != code {
				t.Errorf("%s: %s: the code is %q, want %q", when, query, got, code)
			}
		}
	}
	check("at first", true, "a")
	proxy.Down()
	check("away", false, "b")
	if err := proxy.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	check("back", true, "c")
	// What was asked for while it was away may have been written since, or not.
	for _, key := range []string{"a", "c"} {
		a := s.ask(t, `query($key: ID!) {platform(key: $key) {name}}`, map[string]any{"key": key})
		for len(a.Errors) > 0 && a.Errors[0].Extensions.Code == "UNAVAILABLE" && ctx.Err() == nil {
			a = s.ask(t, `query($key: ID!) {platform(key: $key) {name}}`, map[string]any{"key": key})
		}
		if string(a.Data["platform"]) == "null" || len(a.Errors) > 0 {
			t.Errorf("%s is not there (%v)", key, a.Errors)
		}
	}
}
