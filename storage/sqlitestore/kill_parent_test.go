package sqlitestore

import (
	"context"
	"encoding/gob"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/asof/asof/storage/driver"
)

// remote is a store in another process, as far as clients need one.
type remote struct {
	driver.Engine // of which Commit, Get, Query and Now are there
	process       *exec.Cmd
	in            io.WriteCloser
	// replies says after how many replies the process is killed; the first is
	// sent before the store is opened. Those on the way then still arrive.
	replies int
	dead    chan struct{} // closed when no reply can come any more

	mu       sync.Mutex
	requests *gob.Encoder
	last     int64
	waiting  map[int64]chan *killReply
}

// startRemote starts a process that serves the store in a file and is killed
// after some replies; whenDead is called when the last one has arrived.
func startRemote(t *testing.T, path string, skew time.Duration, replies int, whenDead func()) *remote {
	t.Helper()
	process := exec.CommandContext(t.Context(), os.Args[0])
	process.Env = append(os.Environ(), killFileVar+"="+path, killClockVar+"="+skew.String())
	process.Stderr = os.Stderr
	in, err := process.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := process.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	r := &remote{
		process: process, in: in, replies: replies, dead: make(chan struct{}),
		requests: gob.NewEncoder(in), waiting: make(map[int64]chan *killReply),
	}
	go func() {
		r.receive(t, gob.NewDecoder(out))
		whenDead()
		close(r.dead)
	}()
	return r
}

func (r *remote) receive(t *testing.T, replies *gob.Decoder) {
	for n := 1; ; n++ {
		reply := new(killReply)
		if err := replies.Decode(reply); err != nil {
			return // cut off by the kill
		}
		if n == r.replies {
			if err := r.process.Process.Kill(); err != nil {
				t.Errorf("killing the process: %v", err)
			}
		}
		r.mu.Lock()
		wanted := r.waiting[reply.ID]
		delete(r.waiting, reply.ID)
		r.mu.Unlock()
		if wanted != nil {
			wanted <- reply
		}
	}
}

// end waits for the process and fails the test if it was not killed.
func (r *remote) end(t *testing.T) {
	t.Helper()
	<-r.dead
	if err := r.process.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Fatalf("the process was not killed, it ended with %v", err)
	}
	_ = r.in.Close() // nobody reads it
}

func (r *remote) call(ctx context.Context, request *killRequest) (*killReply, error) {
	got := make(chan *killReply, 1)
	r.mu.Lock()
	r.last++
	request.ID = r.last
	r.waiting[request.ID] = got
	err := r.requests.Encode(request)
	r.mu.Unlock()
	if err != nil {
		return nil, driver.Errorf(driver.CodeUnavailable, "asking the process: %w", err)
	}
	var reply *killReply
	select {
	case reply = <-got:
	case <-r.dead:
		select {
		case reply = <-got:
		default:
			return nil, driver.Errorf(driver.CodeUnavailable, "the process was killed")
		}
	case <-ctx.Done():
		return nil, driver.Errorf(driver.CodeUnavailable, "waiting for the process: %w", ctx.Err())
	}
	switch {
	case reply.Conflict != nil:
		return nil, reply.Conflict
	case reply.Code != "":
		return nil, driver.Errorf(reply.Code, "%s", reply.Message)
	}
	return reply, nil
}

func (r *remote) versions(ctx context.Context, request *killRequest) ([]*driver.Version, error) {
	reply, err := r.call(ctx, request)
	if err != nil {
		return nil, err
	}
	return reply.Versions, nil
}

func (r *remote) Commit(ctx context.Context, ws []driver.Write) ([]*driver.Version, error) {
	return r.versions(ctx, &killRequest{Writes: ws})
}

func (r *remote) Get(ctx context.Context, _ string, refs []driver.Ref, _ []string) ([]*driver.Version, error) {
	return r.versions(ctx, &killRequest{Refs: refs})
}

func (r *remote) Query(ctx context.Context, q *driver.Query) ([]*driver.Version, error) {
	return r.versions(ctx, &killRequest{Query: q})
}

func (r *remote) Now(ctx context.Context) (driver.Instant, error) {
	reply, err := r.call(ctx, new(killRequest))
	if err != nil {
		return 0, err
	}
	return reply.Now, nil
}
