package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/valyala/fasthttp"
)

// request makes the body of a client's next request and judges the answer.
type request interface {
	body() []byte
	check(answer []byte) error
}

// fixed is the same body every time; the answer must hold want so many times,
// or, where times is 0, once or more often.
type fixed struct {
	send, want []byte
	times      int
}

func (f fixed) body() []byte { return f.send }

func (f fixed) check(answer []byte) error {
	n := bytes.Count(answer, f.want)
	switch {
	case bytes.Contains(answer, []byte(`"errors"`)) || n == 0:
		return fmt.Errorf("unexpected answer: %.300s", answer)
	case f.times > 0 && n != f.times:
		return fmt.Errorf("the answer holds %s %d times, want %d: %.300s", f.want, n, f.times, answer)
	}
	return nil
}

// documentIn is in an answer as often as it has documents.
const documentIn = `"description":"`

// varied sends its bodies in turn, and begins again at the end. Each answer must
// hold so many documents.
type varied struct {
	bodies    [][]byte
	next      int
	documents int
}

func (v *varied) body() []byte {
	body := v.bodies[v.next%len(v.bodies)]
	v.next++
	return body
}

func (v *varied) check(answer []byte) error {
	return fixed{want: []byte(documentIn), times: v.documents}.check(answer)
}

// vary gives n clients the same requests, each beginning at another one.
func vary(n int, bodies [][]byte, documents int) []request {
	clients := make([]request, n)
	for i := range clients {
		clients[i] = &varied{bodies: bodies, next: i * len(bodies) / n, documents: documents}
	}
	return clients
}

// measurement is what one round of load against one server gave.
type measurement struct {
	Requests   int     `json:"requests"`
	PerSecond  float64 `json:"perSecond"`
	P50Micros  int64   `json:"p50Micros"`
	P99Micros  int64   `json:"p99Micros"`
	BytesPerOp int     `json:"bytesPerAnswer,omitempty"`
	CPUMicros  float64 `json:"cpuMicrosPerCall,omitempty"` // of the calling process
}

// drive sends requests over one connection a client, each waiting for its
// answer before the next, for the given time. A wrong answer ends its client, and
// fails the measurement.
func drive(url string, clients []request, length time.Duration) (measurement, error) {
	host := &fasthttp.Client{MaxConnsPerHost: len(clients) + 1}
	defer host.CloseIdleConnections()
	var (
		wait  sync.WaitGroup
		mu    sync.Mutex
		times []time.Duration
		size  int
		first error
	)
	start := time.Now()
	end := start.Add(length)
	for _, client := range clients {
		wait.Go(func() {
			mine, bytesRead, err := loop(host, url, client, end)
			mu.Lock()
			defer mu.Unlock()
			times = append(times, mine...)
			size += bytesRead
			if first == nil {
				first = err
			}
		})
	}
	wait.Wait()
	elapsed := time.Since(start)
	if first != nil {
		return measurement{}, first
	}
	if len(times) == 0 {
		return measurement{}, fmt.Errorf("no answer from %s within %v", url, length)
	}
	slices.Sort(times)
	return measurement{
		Requests:   len(times),
		PerSecond:  float64(len(times)) / elapsed.Seconds(),
		P50Micros:  times[len(times)/2].Microseconds(),
		P99Micros:  times[len(times)*99/100].Microseconds(),
		BytesPerOp: size / len(times),
	}, nil
}

func loop(host *fasthttp.Client, url string, client request, end time.Time) ([]time.Duration, int, error) {
	req, resp := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	defer fasthttp.ReleaseRequest(req)
	defer fasthttp.ReleaseResponse(resp)
	req.SetRequestURI(url)
	req.Header.SetMethod(fasthttp.MethodPost)
	req.Header.SetContentType("application/json")
	var times []time.Duration
	size := 0
	for {
		req.SetBody(client.body())
		began := time.Now()
		if began.After(end) {
			return times, size, nil
		}
		if err := host.DoTimeout(req, resp, 30*time.Second); err != nil {
			return times, size, err
		}
		times = append(times, time.Since(began))
		size += len(resp.Body())
		if err := client.check(resp.Body()); err != nil {
			return times, size, err
		}
	}
}

// repeat gives n clients the same request.
func repeat(n int, r request) []request {
	return slices.Repeat([]request{r}, n)
}

// The counters of the server that tell how large its batches are.
const (
	writesCounter  = "asof_store_writes_total"
	commitsCounter = "asof_store_commits_total"
)

var counterIn = regexp.MustCompile(`(?m)^(` + writesCounter + `|` + commitsCounter + `) (\S+)$`)

// batches returns how many writes the server at a URL has handled, and in how many
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
