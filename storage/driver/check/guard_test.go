package check

import (
	"context"
	"errors"
	"iter"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asof/asof/storage/driver"
)

// reached counts what comes through to an engine. Its Now takes until it is let go.
type reached struct {
	driver.Engine
	calls  int
	closed atomic.Int64
	now    chan struct{}
}

func (r *reached) Now(context.Context) (driver.Instant, error) {
	<-r.now
	return 7, nil
}

func (r *reached) Get(context.Context, string, []driver.Ref, []string) ([]*driver.Version, error) {
	r.calls++
	return nil, nil
}

func (r *reached) Query(context.Context, *driver.Query) ([]*driver.Version, error) {
	r.calls++
	return nil, nil
}

func (r *reached) Count(context.Context, *driver.Query) (int64, error) {
	r.calls++
	return 0, nil
}

func (r *reached) Log(context.Context, *driver.LogQuery) iter.Seq2[*driver.Version, error] {
	return func(func(*driver.Version, error) bool) { r.calls++ }
}

func (r *reached) Commit(context.Context, []driver.Write) ([]*driver.Version, error) {
	r.calls++
	return nil, nil
}

func (r *reached) Load(context.Context, []driver.Version) (driver.LoadResult, error) {
	r.calls++
	return driver.LoadResult{}, nil
}

func (r *reached) Rewrite(context.Context, string, string, []driver.Version) error {
	r.calls++
	return nil
}

func (r *reached) Close() error {
	r.closed.Add(1)
	return errors.New("closed")
}

// Only what is well-formed and about a known collection comes through.
func TestGuardRefuses(t *testing.T) {
	ctx, engine := t.Context(), &reached{}
	g := Guard(engine, []string{"c"})
	if u, ok := driver.As[*reached](g); !ok || u != engine {
		t.Errorf("the engine behind the guard is %v", u)
	}
	calls := 0
	for _, collection := range []string{"c", "d"} {
		for _, data := range []string{`{}`, `[]`} {
			calls = 10 // those of c, and of it with no object where nothing is written
			for name, call := range map[string]func() error{
				"Query": func() error { _, err := g.Query(ctx, &driver.Query{Collection: collection}); return err },
				"Count": func() error { _, err := g.Count(ctx, &driver.Query{Collection: collection}); return err },
				"Log": func() (last error) {
					for _, err := range g.Log(ctx, &driver.LogQuery{Collections: []string{"c", collection}}) {
						last = err
					}
					return last
				},
				"Commit": func() error {
					_, err := g.Commit(ctx, []driver.Write{
						{ID: "1", Collection: "c", Key: "k", Op: driver.OpCreate, Data: []byte(`{}`)},
						{ID: "2", Collection: collection, Key: "l", Op: driver.OpCreate, Data: []byte(data)},
					})
					return err
				},
				"Load": func() error {
					one := driver.Version{Collection: "c", Key: "k", RecordedAt: 1, Op: driver.OpImport, Data: []byte(`{}`)}
					other := one
					other.Collection, other.Data = collection, []byte(data)
					_, err := g.Load(ctx, []driver.Version{one, other})
					var refused *driver.LoadError
					if err != nil && (!errors.As(err, &refused) || refused.Index != 1) {
						t.Errorf("Load: %v is not of the second version", err)
					}
					return err
				},
				"Rewrite": func() error {
					return g.Rewrite(ctx, collection, "k", []driver.Version{{Number: 1, Op: driver.OpUpdate, Data: []byte(data)}})
				},
				"Load of 1970": func() error {
					_, err := g.Load(ctx, []driver.Version{{Collection: collection, Key: "k", Op: driver.OpImport, Data: []byte(data)}})
					if driver.CodeOf(err) == driver.CodeInvalid {
						return nil
					}
					return errors.New("it is not refused")
				},
			} {
				want, reads := driver.CodeInvalid, name == "Query" || name == "Count" || name == "Log"
				if collection == "c" && (data == `{}` || reads) || name == "Load of 1970" {
					want = ""
				}
				if err := call(); driver.CodeOf(err) != want {
					t.Errorf("%s of %s, %s: %v, want the code %q", name, collection, data, err, want)
				}
			}
		}
		if _, err := g.Get(ctx, collection, nil, nil); (err == nil) != (collection == "c") {
			t.Errorf("Get of %s: %v", collection, err)
		}
	}
	if engine.calls != calls {
		t.Errorf("%d calls came through, want %d", engine.calls, calls)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	late, cancel := context.WithDeadline(ctx, time.Unix(1, 0))
	defer cancel()
	for ctx, want := range map[context.Context]string{ended: "was given up by its sender", late: "took longer than this server allows"} {
		if _, err := g.Get(ctx, "c", nil, nil); !strings.Contains(driver.RefusalOf(err), want) || engine.calls != calls {
			t.Errorf("a call whose context has ended: %v", err)
		}
	}
}

// Close waits for what runs, but not for ever, lets nothing in meanwhile, and closes once.
func TestGuardCloses(t *testing.T) {
	for _, ends := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			engine := &reached{now: make(chan struct{})}
			g := Guard(engine, nil)
			answered, closed := make(chan driver.Instant, 1), make(chan time.Duration, 1)
			go func() {
				at, _ := g.Now(t.Context())
				answered <- at
			}()
			synctest.Wait()
			go func() {
				start := time.Now()
				if err := g.Close(); err == nil {
					t.Error("the engine's error is lost")
				}
				closed <- time.Since(start)
			}()
			synctest.Wait()
			if _, err := g.Now(t.Context()); driver.RefusalOf(err) != driver.Closed().Refused || engine.closed.Load() != 0 {
				t.Errorf("a call while it closes: %v; closed %d times", err, engine.closed.Load())
			}
			want := closeTimeout
			if ends {
				want = 0
				close(engine.now)
			}
			if took := <-closed; took != want || engine.closed.Load() != 1 {
				t.Errorf("it took %v, want %v; closed %d times", took, want, engine.closed.Load())
			}
			if err := g.Close(); err != nil || engine.closed.Load() != 1 {
				t.Errorf("again: %v; closed %d times", err, engine.closed.Load())
			}
			if !ends {
				close(engine.now)
			}
			if at := <-answered; at != 7 {
				t.Errorf("what ran was answered with %d", at)
			}
		})
	}
}
