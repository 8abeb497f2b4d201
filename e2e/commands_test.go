package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/testscript"
	"github.com/tidwall/gjson"
)

type sessionKey struct{}

// session is the server that a script has running and the last answer it got.
type session struct {
	cmd  *exec.Cmd
	log  bytes.Buffer
	done chan struct{} // closed when the log is complete
	last []byte
}

func of(ts *testscript.TestScript) *session { return ts.Value(sessionKey{}).(*session) }

var address = regexp.MustCompile(`http://127\.0\.0\.1:\d+`)

// serve [NAME=VALUE…] [flag…] starts `asof serve` on a free port with --store
// $STORE and --executor $EXECUTOR, in an environment with these values, and sets $URL.
func cmdServe(ts *testscript.TestScript, neg bool, args []string) {
	s := of(ts)
	if s.cmd != nil {
		ts.Fatalf("a server is running: halt it first")
	}
	environment := os.Environ()
	for len(args) > 0 && strings.HasPrefix(args[0], "ASOF_") {
		environment = append(environment, args[0])
		args = args[1:]
	}
	args = append([]string{"serve", "--addr", "127.0.0.1:0", "--store", ts.Getenv("STORE"), "--executor", ts.Getenv("EXECUTOR")}, args...)
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.Env = ts.Getenv("WORK"), environment
	s.log.Reset()
	cmd.Stderr = &s.log
	out, err := cmd.StdoutPipe()
	ts.Check(err)
	ts.Check(cmd.Start())
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if url := address.FindString(lines.Text()); url != "" {
			if neg {
				_ = cmd.Process.Kill()
				_ = cmd.Wait()
				ts.Fatalf("the server started")
			}
			ts.Setenv("URL", url)
			s.cmd, s.done = cmd, make(chan struct{})
			go func() {
				defer close(s.done)
				_, _ = io.Copy(io.Discard, out)
			}()
			return
		}
	}
	err = cmd.Wait()
	_, _ = ts.Stderr().Write(s.log.Bytes())
	if !neg || err == nil || wasKilled(err) {
		ts.Fatalf("the server did not start, it ended with %v:\n%s", err, s.log.String())
	}
}

// end signals the server that runs, and returns how it ended.
func (s *session) end(signal syscall.Signal) error {
	cmd := s.cmd
	s.cmd = nil
	signalled := cmd.Process.Signal(signal)
	<-s.done
	return errors.Join(signalled, cmd.Wait())
}

// stop ends the server that a script has left, in good order.
func (s *session) stop() {
	if s.cmd != nil {
		_ = s.end(syscall.SIGTERM) // what a script wants to know it learns by halt
	}
}

// halt ends the server in good order; its log is then standard error.
func cmdHalt(ts *testscript.TestScript, neg bool, args []string) {
	s := running(ts, neg, args)
	err := s.end(syscall.SIGTERM)
	_, _ = ts.Stderr().Write(s.log.Bytes())
	if err != nil {
		ts.Fatalf("the server ended with %v:\n%s", err, s.log.String())
	}
}

// crash ends the server with SIGKILL.
func cmdCrash(ts *testscript.TestScript, neg bool, args []string) {
	s := running(ts, neg, args)
	if err := s.end(syscall.SIGKILL); !wasKilled(err) {
		ts.Fatalf("the server was not killed, it ended with %v:\n%s", err, s.log.String())
	}
}

// running is the server that a command without arguments is about.
func running(ts *testscript.TestScript, neg bool, args []string) *session {
	s := of(ts)
	switch {
	case neg || len(args) > 0:
		ts.Fatalf("usage: halt, or crash")
	case s.cmd == nil:
		ts.Fatalf("no server is running")
	}
	return s
}

// wasKilled tells the end of a process by a signal from one of its own accord,
// also one with an error.
func wasKilled(err error) bool {
	exit, ok := errors.AsType[*exec.ExitError](err)
	return ok && !exit.Exited()
}

// gql [-actor NAME] [-vars FILE] FILE posts the operation in FILE, with
// ${NAME} replaced by what was remembered, and prints the answer. It fails
// where the answer has errors; `! gql` fails where it has none.
func cmdGQL(ts *testscript.TestScript, neg bool, args []string) {
	header := http.Header{"Content-Type": {"application/json"}}
	var variables json.RawMessage
	for len(args) > 2 {
		switch args[0] {
		case "-actor":
			header.Set("X-Actor", args[1])
		case "-vars":
			variables = json.RawMessage(expand(ts, ts.ReadFile(args[1])))
		default:
			ts.Fatalf("gql: unknown flag %s", args[0])
		}
		args = args[2:]
	}
	if len(args) != 1 {
		ts.Fatalf("usage: gql [-actor NAME] [-vars FILE] FILE")
	}
	body, err := json.Marshal(map[string]any{"query": expand(ts, ts.ReadFile(args[0])), "variables": variables})
	ts.Check(err)
	resp, answer := send(ts, "POST", "/graphql", header, body)
	if failed := gjson.GetBytes(answer, "errors").Exists(); failed != neg {
		ts.Fatalf("status %d, answer: %s", resp.StatusCode, answer)
	}
}

// http METHOD PATH [FILE] [header: value…] sends a request and prints the body,
// the status and the headers of the answer.
func cmdHTTP(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: http METHOD PATH [FILE] [header: value…]")
	}
	header, body := http.Header{}, []byte(nil)
	for _, arg := range args[2:] {
		if name, value, ok := strings.Cut(arg, ": "); ok {
			header.Add(name, value)
		} else {
			body = []byte(expand(ts, ts.ReadFile(arg)))
		}
	}
	resp, _ := send(ts, args[0], expand(ts, args[1]), header, body)
	_, _ = fmt.Fprintf(ts.Stdout(), "\nstatus %d\n", resp.StatusCode)
	_ = resp.Header.Write(ts.Stdout())
}

// follow N FILE subscribes by the operation in FILE, as gql does, and leaves after N events, whose
// list is the answer.
func cmdFollow(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: follow N FILE")
	}
	n, err := strconv.Atoi(args[0])
	ts.Check(err)
	body, err := json.Marshal(map[string]string{"query": expand(ts, ts.ReadFile(args[1]))})
	ts.Check(err)
	req, err := http.NewRequest(http.MethodPost, ts.Getenv("URL")+"/graphql", bytes.NewReader(body))
	ts.Check(err)
	req.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"text/event-stream"}}
	resp, err := http.DefaultClient.Do(req)
	ts.Check(err)
	defer func() { _ = resp.Body.Close() }()
	var events []json.RawMessage
	for lines := bufio.NewScanner(resp.Body); len(events) < n && lines.Scan(); {
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			events = append(events, json.RawMessage(data))
		}
	}
	of(ts).last, err = json.Marshal(events)
	ts.Check(err)
	_, _ = ts.Stdout().Write(of(ts).last)
	if len(events) < n {
		ts.Fatalf("%d events, want %d", len(events), n)
	}
}

func send(ts *testscript.TestScript, method, path string, header http.Header, body []byte) (*http.Response, []byte) {
	req, err := http.NewRequest(method, ts.Getenv("URL")+path, bytes.NewReader(body))
	ts.Check(err)
	req.Header = header
	resp, err := http.DefaultClient.Do(req)
	ts.Check(err)
	answer, err := io.ReadAll(resp.Body)
	ts.Check(err)
	ts.Check(resp.Body.Close())
	of(ts).last = answer
	_, _ = ts.Stdout().Write(answer)
	return resp, answer
}

// expand replaces ${NAME} by what was remembered. GraphQL variables ($name,
// without braces) stay.
func expand(ts *testscript.TestScript, text string) string {
	return regexp.MustCompile(`\$\{\w+\}`).ReplaceAllStringFunc(text, func(m string) string {
		return ts.Getenv(m[2 : len(m)-1])
	})
}

// remember NAME PATH sets $NAME to a value of the last answer (PATH in gjson's
// notation).
func cmdRemember(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: remember NAME PATH")
	}
	value := gjson.GetBytes(of(ts).last, args[1])
	if !value.Exists() {
		ts.Fatalf("no %s in %s", args[1], of(ts).last)
	}
	ts.Setenv(args[0], value.String())
}

// answer [PATH] FILE compares the last answer (or the part at PATH) with a JSON
// file: members in any order, "*" stands for any value, ${NAME} for what was
// remembered.
func cmdAnswer(ts *testscript.TestScript, neg bool, args []string) {
	got := of(ts).last
	if len(args) == 2 {
		got = []byte(gjson.GetBytes(got, args[0]).Raw)
		args = args[1:]
	}
	if len(args) != 1 {
		ts.Fatalf("usage: answer [PATH] FILE")
	}
	var have, want any
	text := expand(ts, ts.ReadFile(args[0]))
	if err := json.Unmarshal([]byte(text), &want); err != nil {
		ts.Fatalf("%s: %v", args[0], err)
	}
	if err := json.Unmarshal(got, &have); err != nil {
		ts.Fatalf("the answer %q: %v", got, err)
	}
	diff := cmp.Diff(want, wild(want, have))
	if (diff != "") != neg {
		_, _ = fmt.Fprintf(os.Stderr, "answer: %s\n", got)
		ts.Fatalf("-%s +answer:\n%s", args[0], diff)
	}
}

// wild returns have with "*" where want says so.
func wild(want, have any) any {
	switch w := want.(type) {
	case string:
		if w == "*" {
			return "*"
		}
	case []any:
		if h, ok := have.([]any); ok && len(h) == len(w) {
			out := make([]any, len(h))
			for i := range h {
				out[i] = wild(w[i], h[i])
			}
			return out
		}
	case map[string]any:
		if h, ok := have.(map[string]any); ok {
			out := make(map[string]any, len(h))
			for k, v := range h {
				if expected, ok := w[k]; ok {
					v = wild(expected, v)
				}
				out[k] = v
			}
			return out
		}
	}
	return have
}

// cut BYTES FROM TO writes the first bytes of a file to another.
func cmdCut(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: cut BYTES FROM TO")
	}
	n, err := strconv.Atoi(args[0])
	ts.Check(err)
	content := ts.ReadFile(args[1])
	if n >= len(content) {
		ts.Fatalf("%s has %d bytes only", args[1], len(content))
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[2]), []byte(content[:n]), 0o600))
}
