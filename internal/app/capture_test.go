package app

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/asof/asof/internal/fixture/graph/model"
	"github.com/asof/asof/internal/fixture/resolvers"
	"github.com/asof/asof/storage/mongostore/mongotest"
)

func TestCaptureUsage(t *testing.T) {
	to := "sqlite:" + filepath.Join(t.TempDir(), "to.db")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--to", to, "--collection", "tags"}, "--from"},
		{[]string{"--to", "x:y", "--from", "mongodb://127.0.0.1/shop", "--collection", "tags"}, "--to: --store x…"},
		{[]string{"--to", to, "--from", "mongodb://127.0.0.1/shop", "--collection", "orders"}, "no type is named so: name the one that the documents of orders get with --type; the types are "},
		{[]string{"--to", to, "--from", "mongodb://127.0.0.1/shop", "--collection", "orders", "--type", "Order"}, "no type is named so"},
		{[]string{"--to", to, "--from", "mongodb://127.0.0.1", "--collection", "tags"}, "names no database"},
		{[]string{"--to", to, "--from", "mongodb://127.0.0.1/shop", "--collection", "tags", "--metrics", "x"}, "cannot listen on --metrics x"},
	} {
		if status, out, errs := run(t, "", append([]string{"capture"}, c.args...)...); status == 0 || !strings.Contains(errs, c.want) {
			t.Errorf("%q: status %d: %s%s; want %q", c.args, status, out, errs, c.want)
		}
	}
}

// What other programs write is history in the API; a source that is away for a while is waited for, and
// what was written meanwhile is there when it is back.
func TestCapture(t *testing.T) {
	s := mongotest.NewStreams(t)
	tag := func(name string) bson.D {
		return bson.D{{Key: "name", Value: name}, {Key: "description", Value: ""}, {Key: "editor", Value: "ann"}}
	}
	proxy := mongotest.NewProxy(t, s.Addr())
	from, err := proxy.URI(s.URI() + "&serverSelectionTimeoutMS=1000")
	if err != nil {
		t.Fatal(err)
	}
	to := "sqlite:" + filepath.Join(t.TempDir(), "to.db")
	args := []string{"capture", "--from", from, "--collection", "labels", "--to", to, "--type", "Tag", "--rename", "title=name", "--author-field", "editor"}
	s.Put("a", append(tag("A")[1:], bson.E{Key: "title", Value: "A"}), false)
	status, out, errs := run(t, "", append(args, "--once")...)
	if status != 0 || !strings.HasPrefix(out, "1 version added; "+to+" holds what labels of mongodb://"+proxy.Addr()+"/shop did at ") {
		t.Fatalf("status %d: %s%s", status, out, errs)
	}

	pid := os.Getpid()
	metrics := fmt.Sprintf("127.%d.%d.%d:9417", 1+pid>>16&0x3f, pid>>8&0xff, pid&0xff) // nobody else's
	ctx, cancel := context.WithCancel(t.Context())
	log, ended := new(safeBuffer), make(chan int, 1)
	m := Main{Types: model.Types, Schema: resolvers.NewSchema, Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: log, Now: time.Now}
	go func() { ended <- m.Run(ctx, append(args, "--metrics", metrics)) }()
	until := func(what string, is func() bool) {
		t.Helper()
		for late := time.Now().Add(time.Minute); !is(); {
			if time.Now().After(late) {
				t.Fatalf("%s: not in a minute; the log:\n%s", what, log)
			}
		}
	}
	scraped := func(line string) func() bool {
		return func() bool {
			resp, err := http.Get("http://" + metrics + "/metrics")
			if err != nil {
				return false
			}
			defer func() { _ = resp.Body.Close() }()
			text, _ := io.ReadAll(resp.Body)
			return strings.Contains(string(text), "\n"+line)
		}
	}
	s.Put("a", append(tag("B")[1:], bson.E{Key: "title", Value: "B"}), true)
	until("the first change", scraped("asof_captured_versions_total 1"))
	proxy.Down()
	until("a warning", func() bool { return strings.Contains(log.String(), "following waits") })
	s.Delete("a")
	if err := proxy.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	until("what was changed meanwhile", scraped("asof_captured_versions_total 2"))
	until("the lag", scraped("asof_capture_lag_seconds "))
	cancel()
	if status := <-ended; status != 0 || strings.Count(log.String(), "following waits") != 1 || strings.Count(log.String(), "following goes on") != 1 {
		t.Errorf("status %d: %s", status, log)
	}

	p := serve(t, "--store", to)
	const history = `{tagHistory(key: "a") {versions(first: 5) {nodes {versionInfo {number operation author {id}}}}}}`
	if r := p.query(t, history); !strings.Contains(r.body, `"number":2,"operation":"UPDATE","author":{"id":"ann"}}},{"versionInfo":{"number":1,"operation":"IMPORT","author":{"id":"ann"}}}]`) {
		t.Error(r.body)
	}
	if r := p.query(t, `{tag(key: "a", version: 2) {name}}`); !strings.Contains(r.body, `{"tag":{"name":"B"}}`) {
		t.Error(r.body)
	}
}
