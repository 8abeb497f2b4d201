package mongotest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// How often a process is asked whether it is there yet, and how much of its log
// is shown.
const (
	poll     = 50 * time.Millisecond
	shownLog = 8 << 10 // bytes
)

// Node is one mongod process, which may be killed and started again.
type Node struct {
	binary string
	flags  []string
	dir    string // of its data, and of its log beside it
	port   int
	user   *options.Credential // of the administrator, once there is one

	mu      sync.Mutex
	running *process // nil while it is down
}

// process is a running mongod, with the shell that kills it when the process
// that started it ends, however it ends.
type process struct {
	cmd   *exec.Cmd
	log   *os.File
	guard *exec.Cmd
	leash io.Closer     // the guard kills when this is closed
	ended chan struct{} // closed when it ended
	err   error         // how; read after ended
}

// Addr is where the node listens (host:port).
func (n *Node) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(n.port)) }

func (n *Node) logFile() string { return n.dir + ".log" }

// Log is the end of what the node logged so far, over all its lives.
func (n *Node) Log() string {
	f, err := os.Open(n.logFile())
	if err != nil {
		return "no log: " + err.Error()
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return "no log: " + err.Error()
	}
	text, err := io.ReadAll(io.NewSectionReader(f, max(0, info.Size()-shownLog), shownLog))
	if err != nil {
		return "no log: " + err.Error()
	}
	if info.Size() > shownLog {
		return "…" + string(text)
	}
	return string(text)
}

// freePort is a port of the loopback interface that nobody listened on just now.
func freePort(ctx context.Context) (int, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	address, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		return 0, errors.Join(fmt.Errorf("the address %v is not one of TCP", l.Addr()), l.Close())
	}
	return address.Port, l.Close()
}

// start runs the process and waits until it answers.
func (n *Node) start(ctx context.Context) error {
	if err := os.MkdirAll(n.dir, 0o700); err != nil {
		return err
	}
	log, err := os.OpenFile(n.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	flags := append([]string{
		"--dbpath", n.dir, "--port", strconv.Itoa(n.port), "--bind_ip", "127.0.0.1", "--nounixsocket",
		"--wiredTigerCacheSizeGB", "0.25",
	}, n.flags...)
	p := &process{log: log, ended: make(chan struct{})}
	p.cmd = exec.Command(n.binary, flags...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	if err := p.cmd.Start(); err != nil {
		return errors.Join(fmt.Errorf("starting %s: %w", n.binary, err), log.Close())
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	if err := p.watch(); err != nil {
		return errors.Join(err, p.kill())
	}
	n.mu.Lock()
	n.running = p
	n.mu.Unlock()
	if err := n.await(ctx, func(h *hello) bool { return true }); err != nil {
		return errors.Join(fmt.Errorf("%s does not answer: %w; it logged:\n%s", filepath.Base(n.binary), err, n.Log()), n.Kill())
	}
	return nil
}

// watch starts the guard. It holds the other end of a pipe: when this process
// ends, the pipe closes.
func (p *process) watch() error {
	const script = `trap "" INT TERM HUP; read -r line; [ "$line" = let ] || kill -9 "$1"`
	p.guard = exec.Command("/bin/sh", "-c", script, "sh", strconv.Itoa(p.cmd.Process.Pid))
	leash, err := p.guard.StdinPipe()
	if err != nil {
		return err
	}
	p.leash = leash
	if err := p.guard.Start(); err != nil {
		p.guard = nil
		return fmt.Errorf("starting what ends the server with the test: %w", err)
	}
	return nil
}

// kill ends the process at once, and everything that was for it.
func (p *process) kill() error {
	var errs []error
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		errs = append(errs, err)
	}
	<-p.ended
	if p.guard != nil {
		// Its number may be another process's by now: the guard must not kill.
		if _, err := io.WriteString(p.leash.(io.Writer), "let\n"); err != nil {
			errs = append(errs, err)
		}
		errs = append(errs, p.leash.Close(), p.guard.Wait())
	}
	return errors.Join(append(errs, p.log.Close())...)
}

// Kill ends the node as kill -9 does. It returns when the process is gone; a
// node that is down stays so.
func (n *Node) Kill() error {
	n.mu.Lock()
	p := n.running
	n.running = nil
	n.mu.Unlock()
	if p == nil {
		return nil
	}
	return p.kill()
}

// Restart starts a node that is down, with the data and at the port that it
// had, and waits until it answers. It may take a while longer until it is a
// secondary.
func (n *Node) Restart(ctx context.Context) error {
	n.mu.Lock()
	up := n.running != nil
	n.mu.Unlock()
	if up {
		return fmt.Errorf("the server at %s runs", n.Addr())
	}
	return n.start(ctx)
}

// hello is what a server says that it is.
type hello struct {
	Primary   bool     `bson:"isWritablePrimary"`
	Secondary bool     `bson:"secondary"`
	SetName   string   `bson:"setName"`
	Me        string   `bson:"me"`
	Hosts     []string `bson:"hosts"`
	Message   string   `bson:"msg"`
	Wire      int32    `bson:"maxWireVersion"`
}

var errDown = errors.New("it is down")

// await asks the node what it is until the answer is as wanted, the process
// ends or the context does.
func (n *Node) await(ctx context.Context, wanted func(*hello) bool) error {
	n.mu.Lock()
	p := n.running
	n.mu.Unlock()
	if p == nil {
		return errDown
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-p.ended:
			cancel(fmt.Errorf("it ended: %w", exitOf(p.err)))
		case <-ctx.Done():
		}
	}()
	client, err := n.connect(selectionTimeout)
	if err != nil {
		return err
	}
	defer func() { _ = client.Disconnect(context.WithoutCancel(ctx)) }()
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	for {
		last := n.ask(ctx, client, wanted)
		if last == nil {
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), last)
		}
	}
}

// ask asks a node once, unless nobody listens there: a client that was refused
// would wait half a second before it tries again.
func (n *Node) ask(ctx context.Context, client *mongo.Client, wanted func(*hello) bool) error {
	c, err := new(net.Dialer).DialContext(ctx, "tcp", n.Addr())
	if err != nil {
		return err
	}
	if err := c.Close(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, selectionTimeout)
	defer cancel()
	var h hello
	if err := client.Database("admin").RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Decode(&h); err != nil {
		return err
	}
	if !wanted(&h) {
		return fmt.Errorf("it says that it is %+v", h)
	}
	return nil
}

// exitOf is how a process ended, also where that is no error to itself.
func exitOf(err error) error {
	if err == nil {
		return errors.New("exit status 0")
	}
	return err
}

// selectionTimeout is how long one question waits for a node.
const selectionTimeout = time.Second

// connect makes a client of this node alone, which looks for it for some time.
func (n *Node) connect(selection time.Duration) (*mongo.Client, error) {
	o := options.Client().ApplyURI("mongodb://" + n.Addr() + "/?directConnection=true").SetServerSelectionTimeout(selection)
	if n.user != nil {
		o.SetAuth(*n.user)
	}
	return mongo.Connect(o)
}

// admin runs a command on the node's database admin.
func (n *Node) admin(ctx context.Context, command bson.D) error {
	client, err := n.connect(startTimeout)
	if err != nil {
		return err
	}
	defer func() { _ = client.Disconnect(context.WithoutCancel(ctx)) }()
	return client.Database("admin").RunCommand(ctx, command).Err()
}
