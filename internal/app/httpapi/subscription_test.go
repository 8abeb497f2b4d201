package httpapi

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/vektah/gqlparser/v2/gqlerror"
)

// ticks are events of which there is one more whenever tick is called.
type ticks struct {
	mu    sync.Mutex
	n     int
	grown func()
	told  map[int]int // how often a tick was told
}

type tickKey struct{}

type tick int

func (n tick) Position() string { return strconv.Itoa(int(n)) }
func (n tick) Context(ctx context.Context) context.Context {
	return context.WithValue(ctx, tickKey{}, n)
}

func (k *ticks) tick() {
	k.mu.Lock()
	k.n++
	grown := k.grown
	k.mu.Unlock()
	if grown != nil {
		grown()
	}
}

// following is where a subscription is in the ticks.
type following struct {
	ticks *ticks
	at    int
	past  int           // so many were there before it began
	read  *atomic.Int64 // how many events were read; nil: nobody asks
}

func (f *following) Position() string { return strconv.Itoa(f.at) }
func (f *following) Past() bool       { return f.at < f.past }
func (f *following) Place() any       { return f.at }
func (f *following) Follow(place any) { f.at, _ = place.(int) }

func (f *following) Next(_ context.Context, take func(Event) bool) (more bool, err error) {
	for {
		f.ticks.mu.Lock()
		there := f.ticks.n > f.at
		f.ticks.mu.Unlock()
		if !there || !take(tick(f.at+1)) {
			return there, nil
		}
		if f.read != nil {
			f.read.Add(1)
		}
		f.at++
	}
}

// subscribe serves ticks, each of which tell returns a value for.
func (k *ticks) serve(cfg *Config, schema *fakeSchema, tell func(n int) (any, error)) {
	k.told = map[int]int{}
	cfg.Subscribe = func(ctx context.Context) (context.Context, func(context.Context) (Watch, error)) {
		return ctx, func(context.Context) (Watch, error) { return &following{ticks: k}, nil }
	}
	cfg.Notify = func(grown func()) func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.grown = grown
		return func() {}
	}
	schema.fields["sure"] = func(ctx context.Context) (any, error) { return schema.fields["ticks"](ctx) }
	schema.fields["ticks"] = func(ctx context.Context) (any, error) {
		n, ok := ctx.Value(tickKey{}).(tick)
		if !ok {
			return nil, nil
		}
		k.mu.Lock()
		k.told[int(n)]++
		k.mu.Unlock()
		return tell(int(n))
	}
}

func tickOf(id string, n int) string {
	return fmt.Sprintf(`{"type":"next","id":%q,"payload":{"data":{"ticks":"%d"},"extensions":{"asOf":"2026-01-02T03:04:05Z","position":"%d"}}}`, id, n, n)
}

// awaitSubscriptions returns when so many are open.
func (s *server) awaitSubscriptions(open int) {
	for turns := &s.handler.scheduler; ; runtime.Gosched() {
		turns.mu.Lock()
		count := turns.count
		turns.mu.Unlock()
		if count == open {
			return
		}
	}
}

func text(n int) (any, error) { return strconv.Itoa(n), nil }

// Subscriptions that differ in nothing, or only in where they begin, are executed once for each event.
func TestSubscriptionsShareAnswers(t *testing.T) {
	var k ticks
	s := newServer(t, func(cfg *Config, schema *fakeSchema) { k.serve(cfg, schema, text) })
	var clients []*client
	for i := range 10 {
		c := s.connect(t, `{}`)
		c.send(t, fmt.Sprintf(`{"type":"subscribe","id":"a","payload":{"query":"subscription ($s: Since) {ticks(since: $s)}","variables":{"s":{"tick":%d}}}}`, i))
		clients = append(clients, c)
	}
	k.tick()
	k.tick()
	for _, c := range clients {
		c.want(t, tickOf("a", 1))
		c.want(t, tickOf("a", 2))
	}
	for i, query := range []string{`subscription {ticks(name: \"x\")}`, `subscription {ticks(name: \"y\")}`} {
		id := strconv.Itoa(i)
		clients[0].send(t, `{"type":"subscribe","id":"`+id+`","payload":{"query":"`+query+`"}}`)
		clients[0].want(t, tickOf(id, 1))
		clients[0].want(t, tickOf(id, 2))
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.told[1] != 3 || k.told[2] != 3 {
		t.Errorf("executed %v times, want each tick 3 times: for three selections", k.told)
	}
}

// Of subscriptions that are at the same place one reads what comes, and the others are told what it was,
// every event once and in order, also where that takes many turns.
func TestSubscriptionsFollowEachOther(t *testing.T) {
	const subscribers, burst, long = 32, 300, 2 << 10 // bytes of each of a burst, which are more than are told at a time
	var k ticks
	var read atomic.Int64
	s := newServer(t, func(cfg *Config, schema *fakeSchema) {
		k.serve(cfg, schema, func(n int) (any, error) { return fmt.Sprint(n, strings.Repeat("x", long)), nil })
		cfg.Subscribe = func(ctx context.Context) (context.Context, func(context.Context) (Watch, error)) {
			return ctx, func(context.Context) (Watch, error) { return &following{ticks: &k, read: &read}, nil }
		}
	})
	clients := make([]*client, subscribers)
	for i := range clients {
		clients[i] = s.connect(t, `{}`)
		clients[i].send(t, `{"type":"subscribe","id":"a","payload":{"query":"subscription {ticks}"}}`)
	}
	n := 0
	for _, more := range []int{1, burst, 1} {
		for range more {
			k.tick()
		}
		var all sync.WaitGroup
		for _, c := range clients {
			all.Go(func() {
				for i := range more {
					if got, want := c.receive(t), fmt.Sprintf(`"position":"%d"`, n+i+1); !strings.Contains(got, want) {
						t.Errorf("%.200s, want %s", got, want)
						return
					}
				}
			})
		}
		all.Wait()
		n += more
	}
	if got := read.Load(); got > int64(subscribers*n/2) { // who was interrupted may read what another one reads meanwhile
		t.Errorf("%d subscriptions read %d times one of %d events", subscribers, got, n)
	}
}

// What cannot be told now ends a subscription, with the position of what was told.
func TestSubscriptionsEndWhereEventsCannotBeTold(t *testing.T) {
	var k ticks
	s := newServer(t, func(cfg *Config, schema *fakeSchema) {
		k.serve(cfg, schema, func(n int) (any, error) {
			switch n {
			case 1:
				return nil, &gqlerror.Error{Message: "the document does not fit", Extensions: map[string]any{"code": codeInternal}}
			case 2:
				return text(n)
			}
			return nil, &gqlerror.Error{Message: "the store is away", Extensions: map[string]any{"code": CodeUnavailable}}
		})
	})
	first, second := s.connect(t, `{}`), s.connect(t, `{}`)
	for _, c := range []*client{first, second} {
		c.send(t, `{"type":"subscribe","id":"1","payload":{"query":"subscription {ticks}"}}`)
	}
	k.tick()
	k.tick()
	k.tick()
	for _, c := range []*client{first, second} {
		c.want(t, `{"type":"next","id":"1","payload":{"errors":[{"message":"the document does not fit","extensions":{"code":"INTERNAL"}}],"data":{"ticks":null},"extensions":{"asOf":"2026-01-02T03:04:05Z","position":"1"}}}`)
		c.want(t, tickOf("1", 2))
		c.want(t, `{"type":"error","id":"1","payload":[{"message":"the store is away","extensions":{"code":"UNAVAILABLE","position":"2"}}]}`)
	}
}

// What was there before a subscription began is looked through for two thirds of a query's time;
// who goes on behind the position is told the rest, once, and then what comes, however long that takes.
func TestThePastHasABoundOfTime(t *testing.T) {
	const past, all, each = 12, 40, 5 // so many are told of the past
	var k ticks
	var clock, cpu, from atomic.Int64
	s := newServer(t, func(cfg *Config, schema *fakeSchema) {
		k.serve(cfg, schema, func(n int) (any, error) {
			clock.Add(int64(3 * time.Millisecond)) // another process had the processors for a third of it
			cpu.Add(int64(2 * time.Millisecond))
			return text(n)
		})
		cfg.Now = func() time.Time { return time.Unix(0, clock.Load()) }
		cfg.CPU = func() time.Duration { return time.Second + time.Duration(cpu.Load()) }
		cfg.Limits.Execution = each * 3 * time.Millisecond
		cfg.Subscribe = func(ctx context.Context) (context.Context, func(context.Context) (Watch, error)) {
			return ctx, func(context.Context) (Watch, error) {
				return &following{ticks: &k, at: int(from.Load()), past: past}, nil
			}
		}
	})
	for range past {
		k.tick()
	}
	c := s.connect(t, `{}`)
	for n := 0; ; {
		from.Store(int64(n))
		id := strconv.Itoa(n)
		c.send(t, fmt.Sprintf(`{"type":"subscribe","id":%q,"payload":{"query":"subscription {ticks}"}}`, id))
		if n+each >= past {
			for ; n < past; n++ {
				c.want(t, tickOf(id, n+1))
			}
			for ; n < all; n++ {
				k.tick()
				c.want(t, tickOf(id, n+1))
			}
			break
		}
		for range each {
			n++
			c.want(t, tickOf(id, n))
		}
		if got, want := c.receive(t), fmt.Sprintf(`"extensions":{"code":"TOO_SLOW","position":"%d"}`, n); !strings.Contains(got, want) {
			t.Fatalf("%s, want %s", got, want)
		}
	}
	if len(k.told) != all {
		t.Errorf("told %v", k.told)
	}
}

// That a subscription began quickly does not make its events quick: those of a client that has used
// much wait with what is slow.
func TestEventsAreNotAsQuickAsTheBeginning(t *testing.T) {
	var k ticks
	var clock atomic.Int64
	s := newServer(t, func(cfg *Config, schema *fakeSchema) {
		k.serve(cfg, schema, func(n int) (any, error) {
			clock.Add(int64(1100 * time.Millisecond))
			return text(n)
		})
		cfg.Now = func() time.Time { return time.Unix(0, clock.Load()) }
		cfg.Limits.Time, cfg.Limits.Slow = 1500*time.Millisecond, 1
		cfg.Subscribe = func(ctx context.Context) (context.Context, func(context.Context) (Watch, error)) {
			return ctx, func(context.Context) (Watch, error) { return &following{ticks: &k, at: k.n}, nil }
		}
	})
	c := s.connect(t, `{}`)
	c.send(t, `{"type":"subscribe","id":"1","payload":{"query":"subscription {ticks}"}}`)
	s.awaitSubscriptions(1)
	k.tick()
	c.want(t, tickOf("1", 1))
	c.send(t, `{"type":"complete","id":"1"}`)
	s.awaitSubscriptions(0)
	c.send(t, `{"type":"subscribe","id":"2","payload":{"query":"subscription {ticks(name: \"2\")}"}}`)
	s.awaitSubscriptions(1)
	slow, err := s.handler.gate.Enter(t.Context(), "another", true)
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Leave(true)
	k.tick()
	if got := c.receive(t); !strings.Contains(got, "--max-slow") {
		t.Errorf("beside an operation that takes the place of those that are slow: %s", got)
	}
}

// What was there before a subscription began is read by as many at a time as there is memory for.
func TestThePastTakesMemory(t *testing.T) {
	const all = 16
	var k ticks
	read := make(chan struct{})
	s := newServer(t, func(cfg *Config, schema *fakeSchema) {
		k.serve(cfg, schema, func(n int) (any, error) {
			<-read
			return text(n)
		})
		cfg.Limits.Memory, cfg.Limits.Wait = 8*pastBytes+1<<20, time.Millisecond
		cfg.Subscribe = func(ctx context.Context) (context.Context, func(context.Context) (Watch, error)) {
			return ctx, func(context.Context) (Watch, error) { return &following{ticks: &k, past: 1}, nil }
		}
	})
	k.tick()
	c := s.connect(t, `{}`)
	for i := range all {
		c.send(t, fmt.Sprintf(`{"type":"subscribe","id":"%d","payload":{"query":"subscription {ticks(name: \"%d\")}"}}`, i, i))
	}
	refused := 0
	for ; refused < all-4; refused++ { // a client may hold half of the memory, with what is not counted of each
		if got := c.receive(t); !strings.Contains(got, "--max-memory") {
			t.Fatalf("%s, after %d that had no room", got, refused)
		}
	}
	close(read)
	for range all - refused {
		if got := c.receive(t); !strings.Contains(got, `"next"`) {
			t.Error(got)
		}
	}
}

// An event whose root field must not be null, and failed, has no data.
func TestEventsWithoutData(t *testing.T) {
	var k ticks
	s := newServer(t, func(cfg *Config, schema *fakeSchema) {
		k.serve(cfg, schema, func(int) (any, error) {
			return nil, &gqlerror.Error{Message: "the document does not fit", Extensions: map[string]any{"code": codeInternal}}
		})
	})
	c := s.connect(t, `{}`)
	c.send(t, `{"type":"subscribe","id":"1","payload":{"query":"subscription {a: sure}"}}`)
	k.tick()
	c.want(t, `{"type":"next","id":"1","payload":{"errors":[{"message":"the document does not fit","extensions":{"code":"INTERNAL"}}],"data":null,"extensions":{"asOf":"2026-01-02T03:04:05Z","position":"1"}}}`)
}

// An event's answer may have half of what another may: a longer one is told as an error.
func TestEventsHaveHalfOfAnAnswer(t *testing.T) {
	var k ticks
	s := newServer(t, func(cfg *Config, schema *fakeSchema) {
		cfg.Limits.Answer = 2 * len(`{"ticks":"1"}`)
		k.serve(cfg, schema, func(n int) (any, error) { return strings.Repeat("1", n), nil })
	})
	c := s.connect(t, `{}`)
	c.send(t, `{"type":"subscribe","id":"1","payload":{"query":"subscription {ticks}"}}`)
	k.tick()
	c.want(t, tickOf("1", 1))
	k.tick()
	got := c.receive(t)
	for _, want := range []string{"longer than 13 bytes, the limit of this server (--max-answer, of an event or a mutation half of it)", codeTooComplex, `"position":"2"`} {
		if !strings.Contains(got, want) {
			t.Errorf("%s; want %s", got, want)
		}
	}
}

// Clients take turns, whatever each has subscribed to: of another one's thousand subscriptions one
// is told before a client's only one, and not all.
func TestClientsTakeTurns(t *testing.T) {
	var order []string
	turns := scheduler{notify: func(func()) func() { return func() {} }, now: time.Now, ready: map[string][]*subscription{}}
	add := func(client string) *subscription {
		s := &subscription{run: &run{op: &operation{client: client}}, ctx: context.WithoutCancel(t.Context())}
		turns.add(s)
		return s
	}
	add("many")
	add("many").over = true
	add("many")
	add("few")
	for s := turns.next(); s != nil; s = turns.next() {
		order = append(order, s.run.op.client)
	}
	if got := strings.Join(order, " "); got != "many few many" {
		t.Errorf("turns of %s", got)
	}
}

// Floods of subscriptions are refused where there is no memory for them, and a client that ends one,
// or leaves, leaves nothing behind.
func TestSubscriptionsAreBounded(t *testing.T) {
	var k ticks
	s := newServer(t, func(cfg *Config, schema *fakeSchema) {
		k.serve(cfg, schema, text)
		cfg.Limits.Wait = time.Millisecond
		cfg.Limits.Memory = 1 << 20
	})
	k.tick()
	c := s.connect(t, `{}`)
	for i := range 3 {
		id := strconv.Itoa(i)
		c.send(t, `{"type":"subscribe","id":"`+id+`","payload":{"query":"subscription {ticks}"}}`)
		c.want(t, tickOf(id, 1))
	}
	before := s.handler.memory.Held()
	if before == 0 {
		t.Error("subscriptions hold no memory")
	}
	const long = 100 << 10 // is kept
	other := s.connect(t, `{}`)
	other.send(t, `{"type":"subscribe","id":"1","payload":{"query":"subscription {ticks}","extensions":{"a":"`+strings.Repeat("x", long)+`"}}}`)
	other.want(t, tickOf("1", 1))
	if held := s.handler.memory.Held(); held < before+long {
		t.Errorf("a subscription with long extensions holds %d bytes", held-before)
	}
	_ = other.Close()
	refused := 0
	for range 40 {
		c := s.connect(t, `{}`)
		for i := range 3 {
			c.send(t, fmt.Sprintf(`{"type":"subscribe","id":"%d","payload":{"query":"subscription {ticks}"}}`, i))
			if got := c.receive(t); strings.Contains(got, "--max-memory") {
				refused++
			}
		}
		defer func() { _ = c.Close() }()
	}
	if refused == 0 {
		t.Error("subscriptions held more than the memory of all requests")
	}
	for i, line := range s.journal.lines(t) {
		if i > 0 || line["level"] != "INFO" || line["codes"] != nil { // one has ended
			t.Errorf("a flood is logged: %v", line)
		}
	}
	s.CloseClientConnections()
	_ = c.Close()
}

// Events that wait for a client hold memory: what there is no room for ends its subscription,
// behind what was told.
func TestEventsTakeMemory(t *testing.T) {
	for _, same := range []bool{true, false} {
		var k ticks
		s := newServer(t, func(cfg *Config, schema *fakeSchema) {
			k.serve(cfg, schema, func(int) (any, error) { return strings.Repeat("x", 2<<20), nil })
			cfg.Limits.Memory, cfg.Limits.Wait = 32<<20, time.Millisecond
		})
		c := s.connect(t, `{}`)
		for i := range 20 {
			query := `subscription {ticks}`
			if !same {
				query = fmt.Sprintf(`subscription {ticks(name: \"%d\")}`, i)
			}
			c.send(t, fmt.Sprintf(`{"type":"subscribe","id":"%d","payload":{"query":"%s"}}`, i, query))
			for s.handler.memory.Held() < int64(i+1)*(subscriptionBytes-freeMemory) { // few begin at a time
				runtime.Gosched()
			}
		}
		k.tick()
		for open := 20.0; open == 20; runtime.Gosched() { // until one has ended: nobody reads
			families, err := s.handler.cfg.Metrics.(*prometheus.Registry).Gather()
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range families {
				if f.GetName() == "asof_subscriptions" {
					open = f.GetMetric()[0].GetGauge().GetValue()
				}
			}
		}
		refused := 0
		for range 20 {
			if got := c.receive(t); strings.Contains(got, "--max-memory") {
				refused++
			}
		}
		if refused == 0 || refused == 20 {
			t.Errorf("same %v: %d of 20 were refused", same, refused)
		}
		_ = c.Close()
	}
}

// A client that takes nothing is dropped, and holds up nobody.
func TestSubscriptionsOfClientsThatDoNotRead(t *testing.T) {
	for _, transport := range []string{transportSocket, transportEvents} {
		t.Run(transport, func(t *testing.T) {
			t.Parallel() // it waits
			var k ticks
			long := strings.Repeat("x", 1<<20)
			s := newServer(t, func(cfg *Config, schema *fakeSchema) {
				k.serve(cfg, schema, func(int) (any, error) { return long, nil })
				cfg.Limits.Rate = 1 << 30 // Grace alone: a busy machine may need seconds to read one
			})
			left := make(chan struct{})
			inner := s.Config.Handler
			s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				inner.ServeHTTP(w, r)
				if r.Header.Get("X-Lazy") != "" {
					close(left)
				}
			})
			if transport == transportSocket {
				lazy, response, err := s.dial(t, subprotocol, http.Header{"X-Lazy": {"1"}})
				if err != nil {
					t.Fatal(err)
				}
				_ = response.Body.Close()
				lazy.send(t, `{"type":"connection_init"}`)
				lazy.send(t, `{"type":"subscribe","id":"1","payload":{"query":"subscription {ticks}"}}`)
			} else {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL, strings.NewReader(`{"query":"subscription {ticks}"}`))
				if err != nil {
					t.Fatal(err)
				}
				r.Header.Set("Content-Type", mediaJSON)
				r.Header.Set("Accept", mediaEvents)
				r.Header.Set("X-Lazy", "1")
				response, err := http.DefaultClient.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = response.Body.Close() }()
			}
			for range 20 { // more than the buffers of connections have room for
				k.tick()
			}
			c := s.connect(t, `{}`)
			c.send(t, `{"type":"subscribe","id":"1","payload":{"query":"subscription {ticks}"}}`)
			for range 20 {
				if got := c.receive(t); !strings.Contains(got, long) {
					t.Fatalf("%.200s", got)
				}
			}
			<-left
		})
	}
}

// countedListener counts the writes of its connections, which are system calls.
type countedListener struct {
	net.Listener
	writes atomic.Int64
}

func (l *countedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return &countedConn{c, &l.writes}, err
}

type countedConn struct {
	net.Conn
	writes *atomic.Int64
}

func (c *countedConn) Write(p []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(p)
}

// What has piled up for a subscription is sent in a few system calls, whatever the number of events.
func TestEventsAreSentTogether(t *testing.T) {
	const events, most = 200, 20
	var k ticks
	s := newHandler(t, func(cfg *Config, schema *fakeSchema) {
		k.serve(cfg, schema, func(n int) (any, error) { return fmt.Sprint(n, strings.Repeat("x", 200)), nil })
		cfg.Now = func() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) } // turns end by size alone
	})
	s.Server = httptest.NewUnstartedServer(s.handler)
	counted := &countedListener{Listener: s.Listener}
	s.Listener = counted
	s.Start()
	t.Cleanup(s.Close)
	for range events {
		k.tick()
	}
	c := s.connect(t, `{}`)
	c.send(t, `{"type":"subscribe","id":"1","payload":{"query":"subscription {ticks}"}}`)
	for n := range events {
		if got, want := c.receive(t), fmt.Sprintf(`"position":"%d"`, n+1); !strings.Contains(got, want) {
			t.Fatalf("%s, want %s", got, want)
		}
	}
	if n := counted.writes.Swap(0); n > most {
		t.Errorf("a WebSocket was sent %d events by %d system calls", events, n)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL, strings.NewReader(`{"query":"subscription {ticks}"}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", mediaJSON)
	r.Header.Set("Accept", mediaEvents)
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	told := 0
	for lines := bufio.NewScanner(response.Body); told < events && lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "data: ") {
			told++
			if want := fmt.Sprintf(`"position":"%d"`, told); !strings.Contains(lines.Text(), want) {
				t.Fatalf("%s, want %s", lines.Text(), want)
			}
		}
	}
	if n := counted.writes.Load(); told < events || n > most {
		t.Errorf("a stream was sent %d of %d events by %d system calls", told, events, n)
	}
}

// A stream ends soon after its credentials, also where there is always an event.
func TestStreamEndsWithCredentials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var k ticks
		var refused atomic.Pointer[Denied]
		s := newHandler(t, func(cfg *Config, schema *fakeSchema) {
			k.serve(cfg, schema, text)
			cfg.Identify = identified(&refused)
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/graphql", strings.NewReader(`{"query":"subscription {ticks}"}`))
		r.Header.Set("Content-Type", mediaJSON)
		r.Header.Set("Accept", mediaEvents)
		r.Header.Set("Authorization", "good")
		w := httptest.NewRecorder()
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.handler.ServeHTTP(w, r)
		}()
		every := time.NewTicker(pingInterval / 4)
		defer every.Stop()
		for n := 0; ; n++ {
			select {
			case <-every.C:
				k.tick()
				if n == 9 {
					refused.Store(&Denied{Status: http.StatusUnauthorized, Code: CodeUnauthenticated, Message: "the token has expired"})
				}
				continue
			case <-done:
			}
			if n < 10 || n > 16 {
				t.Errorf("it ended after %d events: %s", n, w.Body)
			}
			return
		}
	})
}

// A stream that ends while its timer fires leaves nothing that the timer looks at to the next
// request: the race detector sees it.
func TestStreamEndsAsItsTimerFires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var k ticks
		s := newHandler(t, func(cfg *Config, schema *fakeSchema) { k.serve(cfg, schema, text) })
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), pingInterval)
				defer cancel()
				r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/graphql", strings.NewReader(`{"query":"subscription {ticks}"}`))
				r.Header.Set("Content-Type", mediaJSON)
				r.Header.Set("Accept", mediaEvents)
				w := httptest.NewRecorder()
				s.handler.ServeHTTP(w, r)
				if !strings.HasPrefix(w.Body.String(), ":") {
					t.Errorf("%d: %s", w.Code, w.Body)
				}
			})
		}
		all.Wait()
	})
}
