package sqlitestore

import (
	"context"
	"encoding/gob"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/drivertest"
)

// crashesVar says how often TestKilled kills the process.
const crashesVar = "ASOF_CRASHES"

// A process that serves a store to sixteen clients on eight documents is killed
// again and again, at whatever it does, and started again with a clock that is
// anywhere in an hour. What was acknowledged is there, what was not is there as
// a whole or not at all, and once, also when it is sent again; what was read
// at an instant stays; all answers together could be those of one register for
// each document; and the store is sound.
//
// Set ASOF_CRASHES for another number of kills than 200, and
// ASOF_DRIVERTEST_SEED for other ones.
func TestKilled(t *testing.T) {
	kills, seed := number(t, crashesVar, 200), uint64(number(t, "ASOF_DRIVERTEST_SEED", 1))
	killWire()
	k := &killing{T: t, seed: seed, random: rand.New(rand.NewPCG(seed, 0))}
	const killsOfAFile = 10
	for n := 0; n < kills && !t.Failed(); n += killsOfAFile {
		k.file(n/killsOfAFile, min(killsOfAFile, kills-n))
	}
	t.Logf("seed %d: %d kills, %d writes with an unknown outcome were sent again; %s", seed, k.kills, k.again, k.total)
	if !t.Failed() && kills >= 50 && (k.total.Unknown == 0 || k.total.Found == 0 || k.total.Found == k.total.Unknown || k.again == 0 || k.batches == 0) {
		t.Error("the kills came at harmless moments only")
	}
}

// number reads a whole number from 1 out of the environment.
func number(t *testing.T, name string, otherwise int) int {
	t.Helper()
	v := os.Getenv(name)
	if v == "" {
		return otherwise
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < 1 {
		t.Fatalf("%s=%q: want a whole number from 1", name, v)
	}
	return n
}

type killing struct {
	*testing.T
	seed         uint64
	random       *rand.Rand
	kills, again int
	batches      int // that were found whole
	total        drivertest.Counts
}

// file kills processes that serve one file.
func (k *killing) file(n, kills int) {
	path := filepath.Join(k.TempDir(), "asof.db")
	h := drivertest.NewHistory()
	for i := range kills {
		k.kill(path, h, fmt.Sprintf("f%d.%d.", n, i))
		// Now and then a process meets what the kill before it left.
		if i == kills-1 || k.random.IntN(3) > 0 {
			k.verify(path, h)
		}
		if k.Failed() {
			return
		}
	}
	k.total = k.total.Add(h.Counts())
}

// kill starts a process, lets clients use it, and kills it.
func (k *killing) kill(path string, h *drivertest.History, name string) {
	ctx, cancel := context.WithCancel(k.Context())
	defer cancel()
	// Most are killed under load, some when they have just begun.
	replies := 1 + k.random.IntN(3)
	if k.random.IntN(8) > 0 {
		replies += k.random.IntN(500)
	}
	unknown := h.Unknown()
	resend := unknown[:k.random.IntN(len(unknown)+1)]
	r := startRemote(k.T, path, k.skew(), replies, cancel)
	k.kills++
	sent := make(chan int)
	go func() {
		n := 0
		for _, c := range resend {
			v, err := driver.CommitOne(ctx, r, c.Sent())
			c.Returned(v, err)
			if err == nil || driver.CodeOf(err) == driver.CodeConflict {
				n++
			}
		}
		sent <- n
	}()
	(&drivertest.Clients{
		Engine: r, Collection: killCollection, History: h, Keys: []string{"a", "b", "c", "d", "e", "f", "g", "h"}, Count: 16, Calls: 1 << 20,
		Seed: k.random.Uint64(), Name: name, Faults: true, Report: k.wrong,
	}).Run(ctx)
	k.again += <-sent
	r.end(k.T)
}

// skew is how far the clock of the next process is off.
func (k *killing) skew() time.Duration { return -time.Duration(k.random.Int64N(int64(time.Hour))) }

func (k *killing) wrong(violation string) {
	k.Errorf("seed %d, kill %d: %s", k.seed, k.kills, violation)
}

// verify opens the file here and compares it with the history so far.
func (k *killing) verify(path string, h *drivertest.History) {
	s, err := open(k.Context(), path, Options{Collections: killCollections(), Clock: skewed(k.skew())})
	if err != nil {
		k.wrong(err.Error())
		return
	}
	defer func() {
		if err := s.Close(); err != nil {
			k.wrong(err.Error())
		}
	}()
	if err := s.Check(k.Context(), func(problem string) { k.wrong("Check: " + problem) }); err != nil {
		k.wrong(err.Error())
	}
	batches, err := drivertest.CheckBatches(k.Context(), s, killCollection, k.wrong)
	if err != nil {
		k.wrong(err.Error())
	}
	k.batches += batches
	if err := h.Verify(k.Context(), s, killCollection, k.wrong); err != nil {
		k.wrong(err.Error())
	}
}

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

// The environment that makes the test binary a process that serves a store on
// its standard input and output until it is killed: the store's file, and how
// far its clock is from the system's.
const (
	killFileVar  = "SQLITESTORE_KILL_FILE"
	killClockVar = "SQLITESTORE_KILL_CLOCK"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(killFileVar); path != "" {
		if err := serveUntilKilled(path, os.Stdin, os.Stdout); err != nil {
			_, _ = fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// killRequest is a call of one of four methods: of Commit with Writes, of Query
// with Query, of Get with Refs, else of Now.
type killRequest struct {
	ID     int64
	Writes []driver.Write
	Query  *driver.Query
	Refs   []driver.Ref
}

// killReply has the ID of its request; that before the store is opened has 0.
type killReply struct {
	ID       int64
	Now      driver.Instant
	Versions killVersions
	Conflict *driver.ConflictError
	Code     driver.Code
	Message  string
}

// killVersions are versions on the pipe, as JSON: gob takes only types whose
// fields are all exported, and what readers note in a version is not.
type killVersions []*driver.Version

func (vs killVersions) GobEncode() ([]byte, error) { return json.Marshal([]*driver.Version(vs)) }

func (vs *killVersions) GobDecode(b []byte) error {
	return json.Unmarshal(b, (*[]*driver.Version)(vs))
}

// killCollections are served; killCollection is the one that is written to.
const killCollection = "things"

func killCollections() []driver.Collection { return formatDeclared() }

func killWire() { gob.Register(driver.In{}) }

// skewed is a clock that is some time away from the system's.
func skewed(by time.Duration) func() time.Time {
	return func() time.Time { return time.Now().Add(by) }
}

func serveUntilKilled(path string, in io.Reader, out io.Writer) error {
	killWire()
	skew, err := time.ParseDuration(os.Getenv(killClockVar))
	if err != nil {
		return err
	}
	requests, replies := gob.NewDecoder(in), gob.NewEncoder(out)
	if err := replies.Encode(killReply{}); err != nil {
		return err
	}
	s, err := open(context.Background(), path, Options{Collections: killCollections(), Clock: skewed(skew)})
	if err != nil {
		return err
	}
	var mu sync.Mutex
	for {
		var r killRequest
		if err := requests.Decode(&r); err != nil {
			return fmt.Errorf("the process was to be killed: %w", err)
		}
		go func() {
			reply := answer(context.Background(), s, &r)
			mu.Lock()
			defer mu.Unlock()
			if err := replies.Encode(reply); err != nil {
				_, _ = fmt.Fprintln(os.Stderr, err)
			}
		}()
	}
}

func answer(ctx context.Context, s *Store, r *killRequest) *killReply {
	reply := &killReply{ID: r.ID}
	var vs []*driver.Version
	var err error
	switch {
	case r.Writes != nil:
		vs, err = s.Commit(ctx, r.Writes)
	case r.Query != nil:
		vs, err = s.Query(ctx, r.Query)
	case r.Refs != nil:
		vs, err = s.Get(ctx, killCollection, r.Refs, nil)
	default:
		reply.Now, err = s.Now(ctx)
	}
	if err != nil {
		if !errors.As(err, &reply.Conflict) {
			reply.Code, reply.Message = driver.CodeOf(err), err.Error()
		}
		return reply
	}
	reply.Versions = vs
	return reply
}
