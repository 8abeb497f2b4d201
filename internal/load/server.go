package main

import (
	"bufio"
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

// server is a child process that answers on loopback.
type server struct {
	cmd *exec.Cmd
	url string // of its GraphQL endpoint
}

var address = regexp.MustCompile(`http://127\.0\.0\.1:\d+`)

// start runs a program that prints the URL that it listens on, and waits until
// it answers.
func start(ctx context.Context, program string, args ...string) (*server, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s := &server{cmd: cmd}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if base := address.FindString(lines.Text()); base != "" {
			s.url = base + "/graphql"
			break
		}
	}
	if s.url == "" {
		s.stop()
		return nil, fmt.Errorf("%s %s printed no URL", program, strings.Join(args, " "))
	}
	go func() {
		for lines.Scan() { // keep the pipe empty
		}
	}()
	for range 100 {
		resp, err := http.Post(s.url, "application/json", strings.NewReader(`{"query":"{__typename}"}`))
		if err == nil {
			_ = resp.Body.Close()
			return s, nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	s.stop()
	return nil, fmt.Errorf("%s does not answer at %s", program, s.url)
}

// peak is the largest resident memory of the process so far, in bytes.
func (s *server) peak() int64 { return peakOf(strconv.Itoa(s.cmd.Process.Pid)) }

func peakOf(pid string) int64 {
	status, err := os.ReadFile("/proc/" + pid + "/status")
	if err != nil {
		return 0 // not a system with /proc: reported as unknown
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kb, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			return kb << 10
		}
	}
	return 0
}

// The counters of the server that tell how large its batches are.
const (
	writesCounter  = "asof_store_writes_total"
	commitsCounter = "asof_store_commits_total"
)

var counterIn = regexp.MustCompile(`(?m)^(` + writesCounter + `|` + commitsCounter + `) (\S+)$`)

// batches tells how many writes the server has handled, and in how many
// transactions; 0 where there was no write yet, as then it does not count.
func (s *server) batches() (writes, commits float64, err error) {
	resp, err := http.Get(strings.TrimSuffix(s.url, "/graphql") + "/metrics")
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, 0, err
	}
	counters := map[string]float64{}
	for _, found := range counterIn.FindAllSubmatch(text, -1) {
		if counters[string(found[1])], err = strconv.ParseFloat(string(found[2]), 64); err != nil {
			return 0, 0, err
		}
	}
	if resp.StatusCode != http.StatusOK || len(counters) == 1 {
		return 0, 0, fmt.Errorf("%s: status %d, counters of writes and commits: %v", resp.Request.URL, resp.StatusCode, counters)
	}
	return counters[writesCounter], counters[commitsCounter], nil
}

func (s *server) stop() {
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	_ = s.cmd.Wait()
}

// run executes a child to its end and returns its wall time and peak memory in bytes.
func run(ctx context.Context, program string, args ...string) (time.Duration, int64, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stderr = os.Stderr
	began := time.Now()
	err := cmd.Run()
	took := time.Since(began)
	if err != nil {
		return 0, 0, fmt.Errorf("%s %s: %w", program, strings.Join(args, " "), err)
	}
	usage, _ := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	if usage == nil {
		return took, 0, nil
	}
	return took, usage.Maxrss << 10, nil
}
