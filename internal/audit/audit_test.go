package audit

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/asof/asof/internal/app"
	"github.com/asof/asof/internal/fixture/graph/model"
	"github.com/asof/asof/internal/fixture/resolvers"
)

// audits is how many there are: a version of the package with others is to be
// looked at before it is used.
const audits = 61

func TestAudits(t *testing.T) {
	if _, err := os.Stat("node_modules/graphql-http"); err != nil {
		if os.Getenv("ASOF_AUDIT") != "" {
			t.Fatalf("ASOF_AUDIT is set, but the npm package is not installed; run npm ci in internal/audit: %v", err)
		}
		t.Skip("the npm package is not installed; run npm ci in internal/audit")
	}
	for _, executor := range []string{"plan", "gqlgen"} {
		t.Run(executor, func(t *testing.T) {
			url := serve(t, "--executor="+executor)
			out, err := exec.CommandContext(t.Context(), "node", "run.mjs", url+"/graphql").CombinedOutput()
			if err != nil || !strings.HasSuffix(string(out), fmt.Sprintf("\n%d passed, 0 failed\n", audits)) {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// serve starts the program on a free port and returns its URL.
func serve(t *testing.T, flags ...string) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	out, in := io.Pipe()
	m := app.Main{Types: model.Types, Schema: resolvers.NewSchema, Stdin: strings.NewReader(""), Stdout: in, Stderr: io.Discard, Now: time.Now}
	ended := make(chan int, 1)
	go func() {
		defer func() { _ = in.Close() }()
		ended <- m.Run(ctx, append([]string{"serve", "--addr=127.0.0.1:0", "--store=sqlite:" + filepath.Join(t.TempDir(), "asof.db")}, flags...))
	}()
	t.Cleanup(func() {
		cancel()
		if code := <-ended; code != 0 {
			t.Errorf("the server ended with status %d", code)
		}
	})
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if url := regexp.MustCompile(`http://127\.0\.0\.1:\d+`).FindString(lines.Text()); url != "" {
			go func() { _, _ = io.Copy(io.Discard, out) }()
			return url
		}
	}
	t.Fatal("the server did not start")
	return ""
}
