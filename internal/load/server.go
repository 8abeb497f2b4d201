package main

import (
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

// The counters of the server that tell how large its batches are.
const (
	writesCounter  = "asof_store_writes_total"
	commitsCounter = "asof_store_commits_total"
)

var counterIn = regexp.MustCompile(`(?m)^(` + writesCounter + `|` + commitsCounter + `) (\S+)$`)

// batches tells how many writes the server at a URL has handled, and in how many
// transactions; 0 where there was no write yet, as then it does not count.
func batches(url string) (writes, commits float64, err error) {
	resp, err := http.Get(strings.TrimSuffix(url, "/graphql") + "/metrics")
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
