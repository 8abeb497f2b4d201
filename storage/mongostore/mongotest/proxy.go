package mongotest

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/wiremessage"
)

// Answer is what a Proxy does with a command.
type Answer struct {
	kind    answerKind
	reply   any
	rewrite func(bson.Raw) bson.D
}

type answerKind uint8

const (
	passes answerKind = iota
	replies
	rewrites
	cutsBefore
	cutsAfter
	stalls
)

// Pass lets the server answer.
func Pass() Answer { return Answer{} }

// Passes reports whether an answer is that of Pass.
func (a Answer) Passes() bool { return a.kind == passes }

// Reply answers with a document, see Failure; the server does not get the command.
func Reply(document any) Answer { return Answer{kind: replies, reply: document} }

// Rewrite lets the server answer, and changes what it says.
func Rewrite(change func(reply bson.Raw) bson.D) Answer {
	return Answer{kind: rewrites, rewrite: change}
}

// CutBefore closes the connection; the server does not get the command.
func CutBefore() Answer { return Answer{kind: cutsBefore} }

// CutAfter lets the server do it and closes the connection instead of
// delivering the reply.
func CutAfter() Answer { return Answer{kind: cutsAfter} }

// Stall never answers, and the server does not get the command; the connection
// stays open, and what comes on it later is not answered either.
func Stall() Answer { return Answer{kind: stalls} }

// Proxy stands between clients and a server, at an address of its own.
type Proxy struct {
	target string
	addr   string
	answer atomic.Pointer[func(Command) Answer]

	mu       sync.Mutex
	listener net.Listener
	open     map[net.Conn]bool
	serving  sync.WaitGroup
}

// NewProxy starts a proxy to the server at an address (host:port). Every
// command passes until Set says otherwise. It ends with the test.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	p, err := StartProxy(t.Context(), target)
	if err != nil {
		t.Fatalf("a proxy to %s: %v", target, err)
	}
	t.Cleanup(p.Down)
	return p
}

// StartProxy is NewProxy without a test: the proxy ends with Down.
func StartProxy(ctx context.Context, target string) (*Proxy, error) {
	p := &Proxy{target: target, addr: "127.0.0.1:0", open: make(map[net.Conn]bool)}
	p.Set(nil)
	err := p.Up(ctx)
	return p, err
}

// Addr is where the proxy listens (host:port), also while it is down.
func (p *Proxy) Addr() string { return p.addr }

// Set chooses what becomes of the commands that come from now on; nil: all pass.
// It is called from many goroutines at once.
func (p *Proxy) Set(answer func(Command) Answer) {
	if answer == nil {
		answer = func(Command) Answer { return Pass() }
	}
	p.answer.Store(&answer)
}

// Down refuses connections and closes those that are open, as a server that is gone.
func (p *Proxy) Down() {
	p.mu.Lock()
	if p.listener != nil {
		_ = p.listener.Close()
		p.listener = nil
	}
	for c := range p.open {
		_ = c.Close()
	}
	p.mu.Unlock()
	p.serving.Wait()
}

// Up takes connections, again at the same address after Down. Where somebody's own
// connection has that now, it waits for the end of it.
func (p *Proxy) Up(ctx context.Context) error {
	free, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", p.addr)
	for errors.Is(err, syscall.EADDRINUSE) && free.Err() == nil {
		select {
		case <-ticker.C:
		case <-free.Done():
		}
		listener, err = new(net.ListenConfig).Listen(ctx, "tcp", p.addr)
	}
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.addr, p.listener = listener.Addr().String(), listener
	p.serving.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			p.serving.Go(func() { p.serve(context.WithoutCancel(ctx), listener, client) })
		}
	})
	return nil
}

// poll is how often, and startTimeout for how long, an address that is taken is tried.
const (
	poll         = 50 * time.Millisecond
	startTimeout = 2 * time.Minute
)

// keep notes a connection, unless the proxy is down by now.
func (p *Proxy) keep(listener net.Listener, c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != listener {
		_ = c.Close()
		return false
	}
	p.open[c] = true
	return true
}

func (p *Proxy) drop(c net.Conn) {
	_ = c.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, c)
}

func (p *Proxy) serve(ctx context.Context, listener net.Listener, client net.Conn) {
	if !p.keep(listener, client) {
		return
	}
	defer p.drop(client)
	server, err := new(net.Dialer).DialContext(ctx, "tcp", p.target)
	if err != nil || !p.keep(listener, server) {
		return
	}
	defer p.drop(server)
	r := &relay{client: client, server: server, awaited: make(map[int32]Answer)}
	p.serving.Go(r.reply)
	for {
		m, err := readMessage(client)
		if err != nil {
			return
		}
		command, err := m.command()
		if err != nil {
			return
		}
		if !r.request(m, (*p.answer.Load())(command)) {
			return
		}
	}
}

// relay is one connection through a proxy.
type relay struct {
	client, server net.Conn
	writing        sync.Mutex // to the client
	mu             sync.Mutex
	awaited        map[int32]Answer // what to do with the replies to messages, by number
	stalled        bool
}

// request takes a command to the server. It reports false where the connection ends.
func (r *relay) request(m *message, a Answer) bool {
	r.mu.Lock()
	r.stalled = r.stalled || a.kind == stalls
	stalled := r.stalled
	if a.kind == rewrites || a.kind == cutsAfter {
		r.awaited[m.id] = a
	}
	r.mu.Unlock()
	switch {
	case stalled:
		return true
	case a.kind == cutsBefore:
		return false
	case a.kind == replies:
		reply, err := m.reply(a.reply)
		return err == nil && r.toClient(reply)
	}
	_, err := r.server.Write(m.whole)
	return err == nil
}

func (r *relay) toClient(b []byte) bool {
	r.writing.Lock()
	defer r.writing.Unlock()
	_, err := r.client.Write(b)
	return err == nil
}

// reply takes the server's replies to the client.
func (r *relay) reply() {
	defer func() { _ = r.client.Close() }()
	for {
		m, err := readMessage(r.server)
		if err != nil {
			return
		}
		r.mu.Lock()
		a := r.awaited[m.to]
		delete(r.awaited, m.to)
		if m.moreToCome() && a.kind != passes {
			r.awaited[m.id] = a // the next reply of a stream answers this one
		}
		r.mu.Unlock()
		whole := m.whole
		switch a.kind {
		case cutsAfter:
			return
		case rewrites:
			if whole, err = m.rewritten(a.rewrite); err != nil {
				return
			}
		default:
		}
		if !r.toClient(whole) {
			return
		}
	}
}

// rewritten is a reply with another document.
func (m *message) rewritten(change func(bson.Raw) bson.D) ([]byte, error) {
	document, err := m.document()
	if err != nil {
		return nil, err
	}
	asked := message{id: m.to, op: wiremessage.OpMsg}
	if m.op == wiremessage.OpReply {
		asked.op = opQuery
	}
	whole, err := asked.reply(change(document))
	if err != nil {
		return nil, err
	}
	binary.LittleEndian.PutUint32(whole[4:], uint32(m.id)) // which replies of a stream go by
	if m.moreToCome() {
		binary.LittleEndian.PutUint32(whole[headerSize:], uint32(wiremessage.MoreToCome))
	}
	return whole, nil
}
