package mongostore_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// fault is what a proxy does to one command or its reply.
type fault int32

const (
	noFault     fault = iota
	cutBefore         // the command never arrives
	cutTorn           // a part of the command arrives
	cutAfter          // the command was answered, and nothing of the reply comes back
	cutWithin         // a part of the reply comes back
	late              // the command arrives when the client has given it up
	stalled           // the reply stays away until the client has given up
	slowCommand       // the command arrives a few bytes at a time
	slowReply         // the reply comes back a few bytes at a time
	faults
)

func (f fault) String() string {
	return [faults]string{
		"none", "before the command", "in the command", "after the command", "in the reply",
		"before the command, which arrives late", "reply stalled", "slow command", "slow reply",
	}[f]
}

// proxy is a connection to a server on which faults happen at random, at exact
// places of MongoDB's protocol: a message begins with its length. (A proxy that
// knows no messages cannot tell a reply that is lost from one that is cut.)
type proxy struct {
	ctx      context.Context
	listener net.Listener
	server   string
	faulty   atomic.Bool
	happened [faults]atomic.Int64
	// Where script is set, it says what happens to each command instead of
	// chance, and faults that last go on until hold is closed.
	script func(command string) fault
	// enough is called when there were as many cuts as are wanted, where it is set.
	enough func()
	wanted int64
	hold   chan struct{}

	mu     sync.Mutex
	random *rand.Rand
}

// Faults of one in so many commands, and of the driver's own: of those, fewer,
// since every connection begins with some.
const (
	oneIn          = 60
	oneInOfDrivers = 300
	// stallTime is longer than the deadline of the calls, and slowStep the time
	// between slowBytes bytes.
	stallTime = 1200 * time.Millisecond
	slowStep  = time.Millisecond
	slowBytes = 40
)

// newProxy stands before a server until the test ends.
func newProxy(t *testing.T, server string, seed uint64) *proxy {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{ctx: t.Context(), listener: listener, server: server, random: rand.New(rand.NewPCG(seed, 0))}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go p.serve(client)
		}
	}()
	return p
}

func (p *proxy) address() string { return p.listener.Addr().String() }

// cuts is how many connections were cut, or stalled until they were given up.
func (p *proxy) cuts() int64 {
	n := int64(0)
	for f := cutBefore; f <= stalled; f++ {
		n += p.happened[f].Load()
	}
	return n
}

// happen counts a fault, and ends the use of the proxy when it is enough.
func (p *proxy) happen(f fault) {
	p.happened[f].Add(1)
	if p.enough != nil && p.cuts() >= p.wanted {
		p.enough()
	}
}

// choose says what happens to a command.
func (p *proxy) choose(command []byte) fault {
	if !p.faulty.Load() {
		return noFault
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	name := nameOf(command)
	if p.script != nil {
		return p.script(name)
	}
	rare := oneIn
	if name == greeting {
		rare = oneInOfDrivers
	}
	if p.random.IntN(rare) > 0 {
		return noFault
	}
	switch n := p.random.IntN(100); {
	case n < 16:
		return cutBefore
	case n < 24:
		return cutTorn
	case n < 52:
		return cutAfter
	case n < 72:
		return cutWithin
	case n < 75:
		return late
	case n < 78:
		return stalled
	case n < 90:
		return slowCommand
	default:
		return slowReply
	}
}

// part is where to tear a message.
func (p *proxy) part(message []byte) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	return message[:1+p.random.IntN(len(message)-1)]
}

// link is one connection by way of a proxy.
type link struct {
	*proxy
	client, server net.Conn
	// reply is what happens to the next reply, and answered gets a value for
	// each reply that the server has made in full.
	reply    atomic.Int32
	answered chan struct{}
}

func (p *proxy) serve(client net.Conn) {
	defer func() { _ = client.Close() }()
	server, err := new(net.Dialer).DialContext(p.ctx, "tcp", p.server)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	l := &link{proxy: p, client: client, server: server, answered: make(chan struct{}, 1)}
	stop := context.AfterFunc(p.ctx, func() { _, _ = client.Close(), server.Close() })
	defer stop()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		l.replies()
		_ = client.Close()
	}()
	l.commands(ended)
}

// commands hands on what the client sends.
func (l *link) commands(ended <-chan struct{}) {
	for {
		command, err := readMessage(l.client)
		if err != nil {
			return
		}
		f := l.choose(command)
		switch f {
		case cutBefore:
			l.happen(f)
			return
		case cutTorn:
			l.happen(f)
			_, _ = l.server.Write(l.part(command))
			return
		case late:
			l.happen(f)
			if _ = l.client.Close(); !l.stall() {
				return
			}
		case slowCommand:
			l.happen(f)
			if !l.trickle(l.server, command) {
				return
			}
			continue
		case cutAfter, cutWithin, stalled, slowReply:
			l.reply.Store(int32(f))
		default:
		}
		select {
		case <-l.answered: // of an earlier command
		default:
		}
		if _, err := l.server.Write(command); err != nil {
			return
		}
		if f == late {
			// The client has gone. The server is left alone until it has done it.
			select {
			case <-l.answered:
			case <-ended:
			}
		}
	}
}

// replies hands back what the server sends, and returns when the connection
// shall be cut.
func (l *link) replies() {
	for {
		reply, err := readMessage(l.server)
		if err != nil {
			return
		}
		select {
		case l.answered <- struct{}{}:
		default:
		}
		f := fault(l.reply.Swap(int32(noFault)))
		if f != noFault {
			l.happen(f)
		}
		switch f {
		case cutAfter:
			return
		case cutWithin:
			_, _ = l.client.Write(l.part(reply))
			return
		case stalled:
			l.stall()
			return
		case slowReply:
			if !l.trickle(l.client, reply) {
				return
			}
		default:
			if _, err := l.client.Write(reply); err != nil {
				return
			}
		}
	}
}

// trickle writes a few bytes at a time; it reports whether that went well.
func (l *link) trickle(to io.Writer, message []byte) bool {
	for len(message) > 0 {
		n := min(slowBytes, len(message))
		if _, err := to.Write(message[:n]); err != nil || !l.pause(slowStep) {
			return false
		}
		message = message[n:]
	}
	return true
}

// stall waits until clients have given up; it reports whether the proxy is
// still there.
func (p *proxy) stall() bool {
	if p.hold == nil {
		return p.pause(stallTime)
	}
	select {
	case <-p.hold:
		return true
	case <-p.ctx.Done():
		return false
	}
}

// pause lets time pass; it reports whether the proxy is still there.
func (p *proxy) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-p.ctx.Done():
		return false
	}
}

// The longest message that the protocol allows, and the operation code of
// those that carry a command.
const (
	maxMessage  = 48_000_000
	headerBytes = 16
	opMessage   = 2013
)

// readMessage reads one whole message.
func readMessage(from io.Reader) ([]byte, error) {
	var length [4]byte
	if _, err := io.ReadFull(from, length[:]); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint32(length[:])
	if n < headerBytes || n > maxMessage {
		return nil, errors.New("this is not MongoDB's protocol")
	}
	message := make([]byte, n)
	copy(message, length[:])
	_, err := io.ReadFull(from, message[4:])
	return message, err
}

// greeting stands for the commands that the driver makes for itself, to greet a
// server and to watch it.
const greeting = "hello"

// nameOf returns the name of the command in a message.
func nameOf(message []byte) string {
	// Behind the header come flags, the kind of the section, and a document:
	// its length, the kind of its first member, and the name of that: the command's.
	const name = headerBytes + 4 + 1 + 4 + 1
	if len(message) <= name || binary.LittleEndian.Uint32(message[12:]) != opMessage {
		return greeting // as it was made of old
	}
	command, _, _ := bytes.Cut(message[name:], []byte{0})
	if strings.EqualFold(string(command), "isMaster") {
		return greeting
	}
	return string(command)
}

// tally says how often each fault happened.
func (p *proxy) tally() string {
	var b strings.Builder
	for f := noFault + 1; f < faults; f++ {
		fmt.Fprintf(&b, ", %s %d", f, p.happened[f].Load())
	}
	return strings.TrimPrefix(b.String(), ", ")
}
