package hostile

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

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
