package mongostore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/mongostore"
)

// lossy is a connection to a server that is cut at random: before a command
// arrived, after it arrived and before the reply, or in the middle of the reply.
type lossy struct {
	listener net.Listener
	server   string
	lossy    atomic.Bool
	cuts     [3]atomic.Int64
	mu       sync.Mutex
	random   *rand.Rand
}

// oneIn is how rare cuts are, in packets of either direction.
const oneIn = 120

func newLossy(t *testing.T, server string) *lossy {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &lossy{listener: listener, server: server, random: rand.New(rand.NewPCG(1, 1))}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go l.serve(t.Context(), client)
		}
	}()
	return l
}

// chance says whether to cut here.
func (l *lossy) chance() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lossy.Load() && l.random.IntN(oneIn) == 0
}

func (l *lossy) serve(ctx context.Context, client net.Conn) {
	defer func() { _ = client.Close() }()
	server, err := new(net.Dialer).DialContext(ctx, "tcp", l.server)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	var deaf atomic.Bool // the next reply is lost
	go func() {
		defer func() { _ = client.Close() }()
		buffer := make([]byte, 64<<10)
		for {
			n, err := server.Read(buffer)
			if err != nil || deaf.Load() {
				return
			}
			if l.chance() {
				l.cuts[2].Add(1)
				_, _ = client.Write(buffer[:n/2])
				return
			}
			if _, err := client.Write(buffer[:n]); err != nil {
				return
			}
		}
	}()
	buffer := make([]byte, 64<<10)
	for {
		n, err := client.Read(buffer)
		if err != nil {
			return
		}
		if l.chance() {
			l.cuts[0].Add(1)
			return
		}
		if l.chance() {
			l.cuts[1].Add(1)
			deaf.Store(true)
		}
		if _, err := server.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// Writers on few documents, over connections that are cut all the time: every
// write is applied once or not at all, those that are acknowledged are there,
// and what was read at an instant stays.
func TestLostReplies(t *testing.T) {
	const writers, documents = 16, 4
	commits := 5
	if v := os.Getenv("ASOF_DRIVERTEST_SCALE"); v != "" {
		scale, err := strconv.Atoi(v)
		if err != nil {
			t.Fatalf("ASOF_DRIVERTEST_SCALE=%q: %v", v, err)
		}
		commits *= scale
	}
	server := newServer(t)
	uri, err := url.Parse(server.database(t))
	if err != nil {
		t.Fatal(err)
	}
	proxy := newLossy(t, uri.Host)
	uri.Host = proxy.listener.Addr().String()
	uri.RawQuery = "directConnection=true&retryReads=false&retryWrites=false"
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	s, err := mongostore.Open(ctx, uri.String(), mongostore.Options{Collections: []driver.Collection{{Name: "things"}}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}()
	type observation struct {
		at   driver.Instant
		seen string
	}
	see := func(at driver.Instant) (string, error) {
		vs, err := s.Query(ctx, &driver.Query{Collection: "things", At: at})
		seen := ""
		for _, v := range vs {
			seen += fmt.Sprintf(" %s@%d by %s", v.Key, v.Number, v.Author)
		}
		return seen, err
	}
	var mu sync.Mutex
	acknowledged := make(map[string]*driver.Version) // by the write's ID
	var observations []observation
	lost := 0
	proxy.lossy.Store(true)
	var done sync.WaitGroup
	for writer := range writers {
		done.Go(func() {
			for n := range commits {
				key := fmt.Sprintf("k%d", (writer+n)%documents)
				id := fmt.Sprintf("w%d.%d", writer, n)
				expected := int64(0)
				for ctx.Err() == nil {
					v, err := s.Commit(ctx, &driver.Write{
						ID: id, Collection: "things", Key: key, Expected: expected, Op: driver.OpUpdate, Author: id, Data: fmt.Appendf(nil, `{"n":%d}`, n),
					})
					var conflict *driver.ConflictError
					if errors.As(err, &conflict) {
						// It lost, for certain: the next attempt is another write.
						expected = conflict.Actual
						continue
					}
					if err != nil {
						if driver.CodeOf(err) != driver.CodeUnavailable {
							t.Errorf("%s: %v", id, err)
							return
						}
						mu.Lock()
						lost++
						mu.Unlock()
						continue
					}
					mu.Lock()
					acknowledged[id] = v
					mu.Unlock()
					break
				}
				if at, err := s.Now(ctx); err == nil {
					if seen, err := see(at); err == nil {
						mu.Lock()
						observations = append(observations, observation{at, seen})
						mu.Unlock()
					}
				}
			}
		})
	}
	done.Wait()
	proxy.lossy.Store(false)
	if ctx.Err() != nil {
		t.Fatal("the writers did not end in time")
	}
	made := make(map[string]int)
	last := make(map[string]*driver.Version)
	for e, err := range s.Log(ctx, &driver.LogQuery{}) {
		if err != nil {
			t.Fatal(err)
		}
		v := e.Version
		made[v.Author]++
		if before := last[v.Key]; before != nil && v.Number != before.Number+1 || before == nil && v.Number != 1 {
			t.Errorf("%s: version %d follows %v", v.Key, v.Number, before)
		}
		last[v.Key] = v
		if a := acknowledged[v.Author]; a != nil && (a.Key != v.Key || a.Number != v.Number || a.RecordedAt != v.RecordedAt) {
			t.Errorf("%s was acknowledged as %s@%d, and is %s@%d", v.Author, a.Key, a.Number, v.Key, v.Number)
		}
	}
	for writer := range writers {
		for n := range commits {
			if id := fmt.Sprintf("w%d.%d", writer, n); made[id] != 1 {
				t.Errorf("the write %s was applied %d times", id, made[id])
			}
		}
	}
	for _, o := range observations {
		if seen, err := see(o.at); err != nil || seen != o.seen {
			t.Errorf("at %s there was%s\nand later%s, %v", o.at, o.seen, seen, err)
		}
	}
	if err := s.Check(ctx, func(problem string) { t.Errorf("Check: %s", problem) }); err != nil {
		t.Error(err)
	}
	before, after, within := proxy.cuts[0].Load(), proxy.cuts[1].Load(), proxy.cuts[2].Load()
	t.Logf("%d writes, %d reads, %d calls without an answer; cut before the command %d times, after it %d, in the reply %d",
		len(acknowledged), len(observations), lost, before, after, within)
	if before == 0 || after == 0 || within == 0 {
		t.Error("some kind of cut never happened")
	}
}
