package sqlitestore

import (
	"context"
	"encoding/gob"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/asof/asof/storage/driver"
)

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
