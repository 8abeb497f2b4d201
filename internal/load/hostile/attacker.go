package hostile

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// attacker is one hostile client with many connections, all from attackerAddress,
// which is what the system takes where none is asked for, or from several addresses.
// It counts what it is answered.
type attacker struct {
	addr      string // of the server
	addresses int64  // from 127.0.1.0 on; 0: attackerAddress
	number    atomic.Int64

	mu   sync.Mutex
	said map[string]int // answers by status, and connections that ended otherwise
}

// What is counted beside statuses.
const (
	saidReset   = "reset"               // the connection ended without an answer
	saidRefused = "refused"             // no connection was made
	saidHasty   = "503, no Retry-After" // the client is not told when to come back
	saidOpen    = "open"                // connections that were open at the end
	saidMessage = "message"             // of a WebSocket
)

func (a *attacker) count(what string) {
	a.mu.Lock()
	a.said[what]++
	a.mu.Unlock()
}

// ended counts a connection that the server has ended.
func (a *attacker) ended(ctx context.Context) {
	if ctx.Err() == nil {
		a.count(saidReset)
	}
}

// next is another number each time, for documents that no cache knows.
func (a *attacker) next() int64 { return a.number.Add(1) }

// dial makes a connection; its receive buffer is of so many bytes, or, for 0, as
// large as the system likes.
func (a *attacker) dial(ctx context.Context, buffer int) (net.Conn, error) {
	dialer := net.Dialer{Timeout: 10 * time.Second}
	if a.addresses > 0 {
		dialer.LocalAddr = &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(a.next()%a.addresses))}
	}
	if buffer > 0 {
		dialer.Control = func(_, _ string, raw syscall.RawConn) error {
			var failed error
			err := raw.Control(func(fd uintptr) {
				failed = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, buffer)
			})
			return errors.Join(err, failed)
		}
	}
	c, err := dialer.DialContext(ctx, "tcp", a.addr)
	if err != nil && ctx.Err() == nil {
		a.count(saidRefused)
	}
	return c, err
}

// each runs n loops until the context ends, which closes the connections that
// were made with it.
func (a *attacker) each(ctx context.Context, n int, once func(ctx context.Context, i int)) {
	var wait sync.WaitGroup
	for i := range n {
		wait.Go(func() {
			for ctx.Err() == nil {
				once(ctx, i)
			}
		})
	}
	wait.Wait()
}

// hold opens n connections, sends each what head returns, and leaves it to use.
// Connections that end before the context are made again.
func (a *attacker) hold(ctx context.Context, n, buffer int, use func(ctx context.Context, c net.Conn)) {
	a.each(ctx, n, func(ctx context.Context, _ int) {
		c, err := a.dial(ctx, buffer)
		if err != nil {
			pause(ctx, 100*time.Millisecond)
			return
		}
		closing := context.AfterFunc(ctx, func() { _ = c.Close() })
		use(ctx, c)
		if !closing() {
			a.count(saidOpen)
		}
		_ = c.Close()
	})
}

func pause(ctx context.Context, length time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(length):
	}
}

// request is what is sent over HTTP.
type request struct {
	method string // POST where it is empty
	path   string // /graphql where it is empty
	body   string
	header map[string]string
}

// bytes is the request as it is sent.
func (q request) bytes(host string) []byte {
	var text bytes.Buffer
	method, path := q.method, q.path
	if method == "" {
		method = http.MethodPost
	}
	if path == "" {
		path = "/graphql"
	}
	fmt.Fprintf(&text, "%s %s HTTP/1.1\r\nHost: %s\r\n", method, path, host)
	if method == http.MethodPost {
		fmt.Fprintf(&text, "Content-Type: application/json\r\nContent-Length: %d\r\n", len(q.body))
	}
	for name, value := range q.header {
		fmt.Fprintf(&text, "%s: %s\r\n", name, value)
	}
	text.WriteString("\r\n" + q.body)
	return text.Bytes()
}

// posts sends requests over n connections, each waiting for its answer.
func (a *attacker) posts(ctx context.Context, n int, make func() request) {
	a.hold(ctx, n, 0, func(ctx context.Context, c net.Conn) {
		in := bufio.NewReader(c)
		for ctx.Err() == nil {
			if _, err := c.Write(make().bytes(a.addr)); err != nil {
				a.ended(ctx)
				return
			}
			if !a.answer(ctx, in) {
				return
			}
		}
	})
}

// answer reads one answer, and reports whether another can follow.
func (a *attacker) answer(ctx context.Context, in *bufio.Reader) bool {
	resp, err := http.ReadResponse(in, nil)
	if err == nil {
		_, err = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
	if err != nil {
		a.ended(ctx)
		return false
	}
	a.status(resp)
	return !resp.Close
}

func (a *attacker) status(resp *http.Response) {
	if resp.StatusCode == http.StatusServiceUnavailable && resp.Header.Get("Retry-After") == "" {
		a.count(saidHasty)
		return
	}
	a.count(strconv.Itoa(resp.StatusCode))
}

// operation is a POST of an operation.
func operation(query string, variables any) request {
	body, err := json.Marshal(map[string]any{"query": query, "variables": variables})
	if err != nil {
		panic(err) // only what this package makes comes here
	}
	return request{body: string(body)}
}

// socket is a WebSocket of graphql-transport-ws.
type socket struct {
	net.Conn

	in *bufio.Reader
}

// Kinds of frames.
const (
	frameText = 0x1
	framePing = 0x9
)

// socket upgrades a connection; nil: it was refused.
func (a *attacker) socket(ctx context.Context, c net.Conn) *socket {
	upgrade := request{method: http.MethodGet, header: map[string]string{
		"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
		"Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Protocol": "graphql-transport-ws",
	}}
	in := bufio.NewReader(c)
	if _, err := c.Write(upgrade.bytes(a.addr)); err != nil {
		a.ended(ctx)
		return nil
	}
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		a.ended(ctx)
		return nil
	}
	a.status(resp)
	if resp.StatusCode != http.StatusSwitchingProtocols {
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		return nil
	}
	return &socket{c, in}
}

// send writes a frame. Its mask is zero, so that what is sent is what is meant.
func (s *socket) send(kind byte, payload string) error {
	const final, masked = 0x80, 0x80
	frame := []byte{final | kind}
	switch n := len(payload); {
	case n < 126:
		frame = append(frame, masked|byte(n))
	case n < 1<<16:
		frame = append(frame, masked|126, byte(n>>8), byte(n))
	default:
		frame = append(frame, masked|127, 0, 0, 0, 0, byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
	}
	frame = append(frame, 0, 0, 0, 0)
	_, err := s.Write(append(frame, payload...))
	return err
}

// receive reads one frame and returns its beginning.
func (s *socket) receive() (string, error) {
	var head [2]byte
	if _, err := io.ReadFull(s.in, head[:]); err != nil {
		return "", err
	}
	length := int64(head[1] & 0x7f)
	if longer := map[int64]int{126: 2, 127: 8}[length]; longer > 0 {
		var size [8]byte
		if _, err := io.ReadFull(s.in, size[8-longer:]); err != nil {
			return "", err
		}
		length = 0
		for _, b := range size {
			length = length<<8 | int64(b)
		}
	}
	start := make([]byte, min(length, 1<<10))
	if _, err := io.ReadFull(s.in, start); err != nil {
		return "", err
	}
	_, err := io.CopyN(io.Discard, s.in, length-int64(len(start)))
	return string(start), err
}

// sockets opens n WebSockets and leaves each to use once it is acknowledged. What
// the server says is read and counted where read is set.
func (a *attacker) sockets(ctx context.Context, n, buffer int, read bool, use func(ctx context.Context, s *socket)) {
	a.hold(ctx, n, buffer, func(ctx context.Context, c net.Conn) {
		s := a.socket(ctx, c)
		if s == nil {
			pause(ctx, 100*time.Millisecond)
			return
		}
		if s.send(frameText, `{"type":"connection_init"}`) != nil {
			return
		}
		if _, err := s.receive(); err != nil {
			return
		}
		if read {
			go func() {
				for {
					text, err := s.receive()
					if err != nil {
						return
					}
					if strings.HasPrefix(text, "{") {
						a.count(saidMessage)
					}
				}
			}()
		}
		use(ctx, s)
	})
}

// subscribe is the message that asks for an operation.
func subscribe(id string, q request) string {
	return fmt.Sprintf(`{"type":"subscribe","id":%q,"payload":%s}`, id, q.body)
}

// Classes of operations of a normal client.
const (
	pointReads = iota
	pageReads  // with references and totals
	scanReads
	classes
)

// timeout is how long a normal client waits. A request that fails counts as one
// that took this long.
const timeout = 10 * time.Second

// normal is a client that reads at a steady rate, whatever becomes of its requests:
// one that waited for each answer would ask less of a server that is slow.
type normal struct {
	url    string
	client *http.Client
	keys   []string
}

// newNormal makes a client with this address, which reads what there is.
func newNormal(url, source string) (*normal, error) {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(source)}}
	n := &normal{url: url, client: &http.Client{Timeout: timeout, Transport: &http.Transport{
		DialContext: dialer.DialContext, MaxIdleConnsPerHost: 64, DisableCompression: true,
	}}}
	answer, err := ask(url, "{projects(first:200){nodes{key}}}", nil)
	if err != nil {
		return nil, err
	}
	var found struct {
		Data struct {
			Projects struct{ Nodes []struct{ Key string } }
		}
	}
	if err := json.Unmarshal(answer, &found); err != nil {
		return nil, err
	}
	for _, node := range found.Data.Projects.Nodes {
		n.keys = append(n.keys, node.Key)
	}
	if len(n.keys) == 0 {
		return nil, fmt.Errorf("%s has no projects to read", url)
	}
	return n, nil
}

// latencies are those of one phase, by class.
type latencies struct {
	took   [classes][]time.Duration
	failed map[string]int // why, and how often
	total  int
}

// quantile is the latency that so many of a class do not exceed; 0: there were none.
func (l *latencies) quantile(class int, q float64) time.Duration {
	took := l.took[class]
	if len(took) == 0 {
		return 0
	}
	slices.Sort(took)
	return took[min(int(float64(len(took))*q), len(took)-1)]
}

// middle is the median of the quantiles of all rounds: what disturbed one of them
// is not the server's.
func middle(rounds []latencies, class int, q float64) time.Duration {
	var each []time.Duration
	for _, l := range rounds {
		each = append(each, l.quantile(class, q))
	}
	slices.Sort(each)
	return each[len(each)/2]
}

// A normal client sends one request in each of these.
const (
	every     = 10 * time.Millisecond
	pageEvery = 10 // of them is a page
	scanEvery = 50 // of them is a scan
)

// read sends requests for so long, and waits for the answers.
func (n *normal) read(ctx context.Context, length time.Duration) latencies {
	var (
		all  = latencies{failed: map[string]int{}}
		mu   sync.Mutex
		wait sync.WaitGroup
	)
	ticks := time.NewTicker(every)
	defer ticks.Stop()
	end := time.After(length)
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
		case <-end:
		case <-ticks.C:
			wait.Go(func() {
				class := pointReads
				if i%scanEvery == scanEvery/2 {
					class = scanReads
				} else if i%pageEvery == 0 {
					class = pageReads
				}
				took, why := n.one(ctx, class, i)
				mu.Lock()
				defer mu.Unlock()
				all.took[class] = append(all.took[class], took)
				all.total++
				if why != "" {
					all.failed[why]++
				}
			})
			continue
		}
		wait.Wait()
		return all
	}
}

// one sends a request, and says how long it took and why it failed, if it did.
func (n *normal) one(ctx context.Context, class, i int) (took time.Duration, why string) {
	var query string
	var variables map[string]any
	switch class {
	case pageReads:
		query = `query Page($least:Int!){projects(where:{stars:{gte:$least}},orderBy:[{field:stars,direction:DESC}],first:50){totalCount nodes{name description tags{name} licenses{name}}}}`
		variables = map[string]any{"least": i % 100}
	case scanReads:
		query = `query Scan($text:String!){projects(where:{description:{contains:$text}},first:1){totalCount}}`
		variables = map[string]any{"text": fmt.Sprint("nothing ", i)}
	default:
		query = `query Point($key:ID!){project(key:$key){name description websiteUrl stars version}}`
		variables = map[string]any{"key": n.keys[i%len(n.keys)]}
	}
	q := operation(query, variables)
	began := time.Now()
	post, err := http.NewRequestWithContext(ctx, http.MethodPost, n.url, bytes.NewReader([]byte(q.body)))
	if err != nil {
		return timeout, err.Error()
	}
	post.Header.Set("Content-Type", "application/json")
	resp, err := n.client.Do(post)
	if err != nil {
		return timeout, "no answer"
	}
	answer, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	switch {
	case err != nil:
		return timeout, "no answer"
	case resp.StatusCode != http.StatusOK:
		return timeout, fmt.Sprint(resp.StatusCode)
	case bytes.Contains(answer, []byte(`"errors"`)) || bytes.Contains(answer, []byte(`"project":null`)):
		return timeout, "errors"
	}
	return time.Since(began), ""
}
