// Package process runs the servers that are measured, and measures what they use.
package process

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Server is a child process that answers on loopback.
type Server struct {
	URL string // of its GraphQL endpoint

	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
}

var address = regexp.MustCompile(`http://127\.0\.0\.1:\d+`)

// stopTime is how long a server may take to end by itself.
const stopTime = 5 * time.Second

// Start runs a program that prints the URL that it listens on, and waits until
// it answers. What it writes to its standard error goes to log.
func Start(ctx context.Context, log io.Writer, program string, args ...string) (*Server, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stderr = log
	reader, writer := io.Pipe()
	cmd.Stdout = writer
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s := &Server{cmd: cmd, done: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // how it ended is of no interest: it was stopped, or does not answer
		_ = writer.Close()
		close(s.done)
	}()
	lines := bufio.NewScanner(reader)
	for lines.Scan() {
		if base := address.FindString(lines.Text()); base != "" {
			s.URL = base + "/graphql"
			break
		}
	}
	go func() { _, _ = io.Copy(io.Discard, reader) }() // it may write more
	if s.URL == "" {
		s.Stop()
		return nil, fmt.Errorf("%s %s printed no URL", program, strings.Join(args, " "))
	}
	for range 100 {
		resp, err := http.Post(s.URL, "application/json", strings.NewReader(`{"query":"{__typename}"}`))
		if err == nil {
			_ = resp.Body.Close()
			return s, nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	s.Stop()
	return nil, fmt.Errorf("%s does not answer at %s", program, s.URL)
}

// Alive reports whether the process has not ended.
func (s *Server) Alive() bool {
	select {
	case <-s.done:
		return false
	default:
		return true
	}
}

// Stop asks the process to end, and kills it where it does not in time.
func (s *Server) Stop() {
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-s.done:
	case <-time.After(stopTime):
		s.Kill()
	}
}

// Kill ends the process at once.
func (s *Server) Kill() {
	_ = s.cmd.Process.Kill()
	<-s.done
}

// Usage is what a process uses. On a system without /proc, and of a process that
// has ended, it is zero.
type Usage struct {
	RSS  int64         // resident memory, in bytes
	Peak int64         // the most of it so far
	CPU  time.Duration // of all threads, in user and system mode, in steps of 10 ms
}

// Usage is what the server uses now.
func (s *Server) Usage() Usage {
	var u Usage
	pid := strconv.Itoa(s.cmd.Process.Pid)
	status, err := os.ReadFile("/proc/" + pid + "/status")
	if err != nil {
		return u
	}
	for line := range strings.Lines(string(status)) {
		name, rest, _ := strings.Cut(line, ":")
		kb, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
		switch name {
		case "VmHWM":
			u.Peak = kb << 10
		case "VmRSS":
			u.RSS = kb << 10
		}
	}
	stat, _ := os.ReadFile("/proc/" + pid + "/stat")
	// The second field is the program's name in brackets, which may have spaces.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	const user, system = 11, 12
	if len(fields) > system {
		for _, field := range [...]int{user, system} {
			ticks, _ := strconv.ParseInt(string(fields[field]), 10, 64)
			u.CPU += time.Duration(ticks) * (time.Second / 100) // USER_HZ, which is 100 for programs
		}
	}
	return u
}
