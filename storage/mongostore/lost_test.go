package mongostore_test

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/drivertest"
	"github.com/asof/asof/storage/mongostore"
	"github.com/asof/asof/storage/mongostore/mongotest"
)

// cutsVar says how many connections TestLostReplies cuts at least.
const cutsVar = "ASOF_CUTS"

// number reads a whole number from 1 out of the environment.
func number(t *testing.T, name string, otherwise int64) int64 {
	t.Helper()
	v := os.Getenv(name)
	if v == "" {
		return otherwise
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil || n < 1 {
		t.Fatalf("%s=%q: want a whole number from 1", name, v)
	}
	return n
}

// Sixteen clients on four documents, by way of connections that are cut,
// stalled and slowed down all the time, in eight databases at once. Every write
// is applied once or not at all, those that are acknowledged are there, what
// was read at an instant stays, all answers together could be those of one
// register for each document, and no call outlasts its deadline.
//
// Set ASOF_CUTS for more cuts than the 300 that it makes, and
// ASOF_DRIVERTEST_SEED for other ones.
func TestLostReplies(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	const databases = 8
	cuts := number(t, cutsVar, 300) / databases
	seed := uint64(number(t, "ASOF_DRIVERTEST_SEED", 1))
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	all := make([]*lossy, databases)
	transactions := mongotest.NewTransactions(t, server.Server)
	for i := range all {
		direct := server.database(t)
		if i%4 < 2 {
			_, direct = transactions.Behind(t)
		}
		// The driver's own repetition of commands is on in every other one.
		all[i] = newLossy(ctx, t, direct, seed+1000*uint64(i), i%2 > 0)
	}
	var done sync.WaitGroup
	for _, l := range all {
		done.Go(func() { l.use(ctx, cuts) })
	}
	done.Wait()
	var happened [faults]int64
	batches := 0
	for _, l := range all {
		l.verify(ctx)
		batches += l.batches
		for f := range happened {
			happened[f] += l.proxy.happened[f].Load()
		}
	}
	for f := noFault + 1; f < faults; f++ {
		if happened[f] == 0 {
			t.Errorf("%s: this fault never happened", f)
		}
	}
	if batches == 0 {
		t.Error("no commit of several documents was made")
	}
}

// lossy is a database that is reached by way of a proxy.
type lossy struct {
	*testing.T
	seed      uint64
	proxy     *proxy
	direct    string // the database's URI that goes round the proxy
	options   mongostore.Options
	store     driver.Engine
	histories []*drivertest.History
	batches   int // how many commits of several documents were made
}

func newLossy(ctx context.Context, t *testing.T, direct string, seed uint64, retry bool) *lossy {
	t.Helper()
	l := &lossy{T: t, seed: seed, direct: direct, options: mongostore.Options{
		Collections: []driver.Collection{{Name: "things"}},
		Bounds:      map[string]mongostore.Bounds{"things": {Versions: 8}}, // so that much history overflows
	}}
	uri, err := url.Parse(l.direct)
	if err != nil {
		t.Fatal(err)
	}
	l.proxy = newProxy(t, uri.Host, seed)
	uri.Host = l.proxy.address()
	uri.RawQuery = fmt.Sprintf("directConnection=true&retryReads=%t&retryWrites=%t", retry, retry)
	if l.store, err = mongostore.Open(ctx, uri.String(), l.options); err != nil {
		t.Fatal(err)
	}
	return l
}

func (l *lossy) wrong(violation string) { l.Errorf("seed %d: %s", l.seed, violation) }

// use lets clients use the store until enough was cut, and closes it.
func (l *lossy) use(ctx context.Context, cuts int64) {
	use, enough := context.WithCancel(ctx)
	defer enough()
	l.proxy.enough, l.proxy.wanted = enough, cuts
	l.proxy.faulty.Store(true)
	for round := 0; l.proxy.cuts() < cuts; round++ {
		before := l.proxy.cuts()
		h := drivertest.NewHistory()
		l.histories = append(l.histories, h)
		keys := make([]string, 4)
		for i := range keys {
			keys[i] = fmt.Sprintf("k%d.%d", round, i)
		}
		(&drivertest.Clients{
			Engine: l.store, Collection: "things", History: h, Keys: keys, Count: 16, Calls: 60, Seed: l.seed + uint64(round),
			Name: fmt.Sprintf("r%d.", round), Timeout: 800 * time.Millisecond, Cancel: 2, Faults: true, Report: l.wrong,
		}).Run(use)
		if ctx.Err() != nil || l.proxy.cuts() == before {
			l.Errorf("seed %d: %d cuts, %d before this round: %v", l.seed, l.proxy.cuts(), before, ctx.Err())
			break
		}
	}
	l.proxy.faulty.Store(false)
	if err := l.store.Close(); err != nil { // this ends the writes that nobody waits for
		l.Errorf("Close: %v", err)
	}
}

// verify opens the database without the proxy and checks what happened.
func (l *lossy) verify(ctx context.Context) {
	s, err := mongostore.Open(ctx, l.direct, l.options)
	if err != nil {
		l.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			l.Errorf("Close: %v", err)
		}
	}()
	var total drivertest.Counts
	for _, h := range l.histories {
		if err := h.Verify(ctx, s, "things", l.wrong); err != nil {
			l.Fatal(err)
		}
		total = total.Add(h.Counts())
	}
	if l.batches, err = drivertest.CheckBatches(ctx, s, "things", l.wrong); err != nil {
		l.Error(err)
	}
	if err := s.Check(ctx, func(problem string) { l.wrong("Check: " + problem) }); err != nil {
		l.Error(err)
	}
	l.Logf("seed %d: %d cuts (%s); %s; %d commits of several", l.seed, l.proxy.cuts(), l.proxy.tally(), total, l.batches)
}
