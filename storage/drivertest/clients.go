package drivertest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/asof/asof/storage/driver"
)

// Clients write and read the same few documents from many goroutines, and
// note what they do in a history. Each client writes on the version that it
// saw last, deletes and creates, reads the last version and the one at Now,
// and now and then sends again a write that was acknowledged. A write that
// was not answered is sent again, some times or until it is, or given up.
type Clients struct {
	Engine     driver.Engine
	Collection string
	History    *History
	Keys       []string
	Count      int // of clients
	Calls      int // of each client
	Seed       uint64
	// Name begins the IDs of all writes, so that they are unique.
	Name string
	// Timeout is the deadline of each call; 0: only that of the context.
	Timeout time.Duration
	// Cancel is how many of a hundred writes have their context canceled on
	// the way.
	Cancel int
	// Faults says that calls may fail with CodeUnavailable.
	Faults bool
	// Report gets what is wrong at once: an error that may not be, a call that
	// does not end.
	Report func(violation string)
}

// hanging is how long after its deadline a call must have returned. It is far
// more than any needs, so that a slow machine makes no failure.
const hanging = 5 * time.Minute

// Run returns when all clients have made their calls, or the context has ended.
func (c *Clients) Run(ctx context.Context) {
	var done sync.WaitGroup
	for i := range c.Count {
		done.Go(func() {
			one := &client{
				Clients: c, ctx: ctx, name: fmt.Sprintf("%s%d", c.Name, i), random: rand.New(rand.NewPCG(c.Seed, uint64(i))),
				seen: make(map[string]*driver.Version),
			}
			for range c.Calls {
				if ctx.Err() != nil {
					return
				}
				one.call()
			}
		})
	}
	done.Wait()
}

type client struct {
	*Clients
	ctx    context.Context
	name   string
	random *rand.Rand
	writes int
	seen   map[string]*driver.Version // the last that it saw of each document
	made   []acknowledged
}

type acknowledged struct {
	write   *driver.Write
	version *driver.Version
}

func (c *client) call() {
	key := c.Keys[c.random.IntN(len(c.Keys))]
	switch n := c.random.IntN(100); {
	case n < 10 && maxWrites(c.Engine) >= 3:
		c.batch()
	case n < 55:
		c.write(key)
	case n < 70:
		c.read(key)
	case n < 85:
		c.readNow()
	case n < 95:
		c.list()
	default:
		c.repeat()
	}
}

// bounded makes one call with the timeout, and reports it if it hangs.
func (c *client) bounded(what string, call func(ctx context.Context) error) error {
	ctx := c.ctx
	if c.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.Timeout)
		defer cancel()
		watch := time.AfterFunc(c.Timeout+hanging, func() {
			c.Report(fmt.Sprintf("%s has not returned %v after its deadline", what, hanging))
		})
		defer watch.Stop()
	}
	err := call(ctx)
	switch code := driver.CodeOf(err); {
	case code == "", code == driver.CodeConflict, c.ctx.Err() != nil:
	case code != driver.CodeUnavailable, !c.Faults && ctx.Err() == nil:
		c.Report(fmt.Sprintf("%s: %v (code %q)", what, err, code))
	}
	return err
}

func (c *client) write(key string) {
	c.writes++
	id := fmt.Sprintf("%s.%d", c.name, c.writes)
	w := &driver.Write{
		ID: id, Author: id, Collection: c.Collection, Key: key, Op: driver.OpCreate, Data: fmt.Appendf(nil, `{"n":%d}`, c.writes),
	}
	if seen := c.seen[key]; seen != nil {
		w.Op, w.Expected = driver.OpUpdate, seen.Number
		switch n := c.random.IntN(100); {
		case n < 8 && !seen.Deleted:
			w.Op, w.Deleted, w.Data = driver.OpDelete, true, nil
		case seen.Deleted && n < 70, n >= 95:
			w.Op, w.Expected = driver.OpCreate, 0
		case n >= 90:
			w.Expected = max(0, w.Expected+int64(c.random.IntN(4))-2)
		}
	}
	tries := 1 + c.random.IntN(8)
	if c.random.IntN(2) > 0 {
		tries = 100 // until it is known
	}
	noted := c.History.Write(w)
	for range tries {
		var v *driver.Version
		err := c.bounded("Commit of "+id, func(ctx context.Context) (err error) {
			if c.random.IntN(100) < c.Cancel {
				var cancel context.CancelFunc
				ctx, cancel = context.WithCancel(ctx)
				go cancel()
			}
			v, err = driver.CommitOne(ctx, c.Engine, w)
			if err != nil && driver.CodeOf(err) == driver.CodeUnavailable && ctx.Err() != nil {
				return nil // canceled here; the outcome is unknown
			}
			return err
		})
		if v == nil && err == nil {
			continue
		}
		noted.Returned(v, err)
		switch driver.CodeOf(err) {
		case "":
			c.seen[key] = v
			c.made = append(c.made, acknowledged{w, v})
			return
		case driver.CodeConflict:
			c.read(key)
			return
		default:
			if c.ctx.Err() != nil {
				return
			}
		}
	}
}

// batch writes up to three documents in one commit, see CheckBatches. It is sent again as a
// whole, or not at all.
func (c *client) batch() {
	c.writes++
	group := fmt.Sprintf("%s.%d", c.name, c.writes)
	var ws []driver.Write
	size := min(2+c.random.IntN(2), len(c.Keys))
	for i, k := range c.random.Perm(len(c.Keys))[:size] {
		id := fmt.Sprintf("%s.%d", group, i)
		w := driver.Write{
			ID: id, Author: id, Collection: c.Collection, Key: c.Keys[k], Op: driver.OpCreate, Group: group, Message: fmt.Sprintf(batchMessage, size),
			Data: fmt.Appendf(nil, `{"n":%d}`, c.writes),
		}
		if seen := c.seen[w.Key]; seen != nil {
			w.Op, w.Expected = driver.OpUpdate, seen.Number
		}
		ws = append(ws, w)
	}
	noted := c.History.Batch(ws)
	for range 1 + c.random.IntN(8) {
		var vs []*driver.Version
		err := c.bounded("Commit of "+group, func(ctx context.Context) (err error) {
			vs, err = c.Engine.Commit(ctx, ws)
			return err
		})
		noted.Returned(vs, err)
		for _, v := range vs {
			c.seen[v.Key] = v
		}
		if code := driver.CodeOf(err); code == driver.CodeConflict {
			for i := range ws {
				c.read(ws[i].Key)
			}
		}
		if driver.CodeOf(err) != driver.CodeUnavailable || c.ctx.Err() != nil {
			return
		}
	}
}

func (c *client) read(key string) {
	noted := c.History.Read(key)
	var vs []*driver.Version
	err := c.bounded("Get", func(ctx context.Context) (err error) {
		vs, err = c.Engine.Get(ctx, c.Collection, []driver.Ref{{Key: key, At: driver.Forever}}, nil)
		return err
	})
	if err != nil {
		return
	}
	noted.Returned(vs[0], nil)
	c.seen[key] = vs[0]
}

// begun notes a read at Now of every document.
func (c *client) begun() map[string]*Call {
	calls := make(map[string]*Call, len(c.Keys))
	for _, key := range c.Keys {
		calls[key] = c.History.ReadNow(key)
	}
	return calls
}

// readNow reads all documents at Now by reference.
func (c *client) readNow() {
	calls := c.begun()
	var vs []*driver.Version
	var at driver.Instant
	err := c.bounded("Get at Now", func(ctx context.Context) (err error) {
		if at, err = c.Engine.Now(ctx); err != nil {
			return err
		}
		refs := make([]driver.Ref, len(c.Keys))
		for i, key := range c.Keys {
			refs[i] = driver.Ref{Key: key, At: at}
		}
		vs, err = c.Engine.Get(ctx, c.Collection, refs, nil)
		return err
	})
	if err != nil {
		return
	}
	for i, key := range c.Keys {
		calls[key].ReturnedAt(at, vs[i], nil)
		if c.random.IntN(2) > 0 {
			c.seen[key] = vs[i]
		}
	}
}

// list reads all documents at Now by a query.
func (c *client) list() {
	calls := c.begun()
	values := make([]driver.Value, len(c.Keys))
	for i, key := range c.Keys {
		values[i] = key
	}
	byKey := driver.In{Field: driver.Field{Meta: driver.MetaKey, Kind: driver.KindString}, Values: values}
	var vs []*driver.Version
	var at driver.Instant
	err := c.bounded("Query at Now", func(ctx context.Context) (err error) {
		if at, err = c.Engine.Now(ctx); err != nil {
			return err
		}
		vs, err = c.Engine.Query(ctx, &driver.Query{Collection: c.Collection, At: at, Filter: byKey})
		return err
	})
	if err != nil {
		return
	}
	for _, v := range vs {
		call := calls[v.Key]
		if call == nil {
			c.Report(fmt.Sprintf("Query for %q found %s, perhaps again", c.Keys, describe(v)))
			continue
		}
		call.ListedAt(at, v)
		delete(calls, v.Key)
	}
	for _, call := range calls {
		call.ListedAt(at, nil)
	}
}

// repeat sends a write again that was acknowledged.
func (c *client) repeat() {
	if len(c.made) == 0 {
		return
	}
	before := c.made[c.random.IntN(len(c.made))]
	var v *driver.Version
	err := c.bounded("Commit again", func(ctx context.Context) (err error) {
		v, err = driver.CommitOne(ctx, c.Engine, before.write)
		return err
	})
	switch {
	case driver.CodeOf(err) == driver.CodeConflict:
		c.Report(fmt.Sprintf("the write %s made version %d; sent again: %v", before.write.ID, before.version.Number, err))
	case err != nil:
	case v.Number != before.version.Number || v.RecordedAt != before.version.RecordedAt || v.Author != before.version.Author:
		c.Report(fmt.Sprintf("the write %s made %s; sent again, it made %s", before.write.ID, describe(before.version), describe(v)))
	}
}

func (s *suite) linearTests() []test {
	return []test{
		{"EachDocumentIsARegister", s.testRegisters},
		{"EachDocumentIsARegisterWhenCallersGiveUp", s.testRegistersGivenUp},
	}
}

// What many clients saw of few documents is what one register for each could
// have answered, and stays so.
func (s *suite) testRegisters(t *testing.T) { s.registers(t, 0) }

// The same, where the outcome of many writes stays unknown to their callers.
func (s *suite) testRegistersGivenUp(t *testing.T) { s.registers(t, 40) }

func (s *suite) registers(t *testing.T, cancel int) {
	f := s.fixture(t)
	// A clock that moves, stands still and goes back.
	var asked atomic.Int64
	step := func() time.Time {
		f.clock.move([]time.Duration{1, 0, 3, -1}[asked.Add(1)%4] * time.Microsecond)
		return f.clock.now()
	}
	if err := f.engine.Close(); err != nil {
		t.Fatal(err)
	}
	f.raw = f.open(t, declared(), step)
	f.engine = Contract(f.raw, func(violation string) { t.Errorf("contract: %s", violation) })
	var total Counts
	for round := range s.scale {
		h := NewHistory()
		clients := &Clients{
			// Not by way of Contract, whose lock would make calls follow each other.
			Engine: f.raw, Collection: collection, History: h, Keys: []string{fmt.Sprintf("a%d", round), fmt.Sprintf("b%d", round), fmt.Sprintf("c%d", round)},
			Count: 16, Calls: 60, Seed: s.seed + uint64(round), Name: fmt.Sprintf("r%d.", round), Cancel: cancel,
			Report: func(violation string) { t.Error(violation) },
		}
		clients.Run(f.ctx)
		if err := h.Verify(f.ctx, f.raw, collection, func(violation string) { t.Errorf("seed %d: %s", clients.Seed, violation) }); err != nil {
			t.Fatal(err)
		}
		if _, err := CheckBatches(f.ctx, f.raw, collection, func(violation string) { t.Errorf("seed %d: %s", clients.Seed, violation) }); err != nil {
			t.Fatal(err)
		}
		total = total.Add(h.Counts())
	}
	t.Log(total)
}
