package mongotest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// envFake makes this test binary a server that says no more than what the
// harness asks for, or one that is broken in the way that it names.
const envFake = "ASOF_FAKE_MONGOD"

func TestMain(m *testing.M) {
	switch mode := os.Getenv(envFake); mode {
	case "":
		os.Exit(m.Run())
	case "parent":
		os.Exit(asParent())
	default:
		os.Exit(asFake(mode))
	}
}

// fake is one fake mongod. What its replica set agrees on is in files of the
// directory that the members' data directories share.
type fake struct {
	mode string
	port string
	set  string
	dir  string // of all members
	// locked says that it has users.
	locked bool
}

func asFake(mode string) int {
	f := &fake{mode: mode}
	flags := flag.NewFlagSet("mongod", flag.ContinueOnError)
	flags.SetOutput(os.Stdout)
	data := flags.String("dbpath", "", "")
	flags.StringVar(&f.port, "port", "", "")
	flags.StringVar(&f.set, "replSet", "", "")
	bind := flags.String("bind_ip", "", "")
	flags.Bool("nounixsocket", false, "")
	flags.Float64("wiredTigerCacheSizeGB", 0, "")
	flags.Int("oplogSize", 0, "")
	key := flags.String("keyFile", "", "")
	if err := flags.Parse(os.Args[1:]); err != nil {
		return 2
	}
	f.dir = filepath.Dir(*data)
	if *key != "" {
		info, err := os.Stat(*key)
		if err != nil || info.Mode().Perm()&0o077 != 0 || info.Size() < 6 {
			fmt.Println("the key file is not usable:", info, err)
			return 1
		}
		f.locked = true
	}
	fmt.Printf("fake mongod, mode %s, port %s, pid %d\n", mode, f.port, os.Getpid())
	switch mode {
	case "exits":
		fmt.Println("cannot open the data directory")
		return 100
	case "deaf":
		select {}
	case "taken":
		// The first of all tries finds its port taken.
		if marker, err := os.OpenFile(os.Getenv("ASOF_FAKE_MARKER"), os.O_CREATE|os.O_EXCL, 0o600); err == nil {
			_ = marker.Close()
			fmt.Println("Failed to set up listener: Address already in use")
			return 48
		}
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(*bind, f.port))
	if err != nil {
		fmt.Println(err)
		return 48
	}
	for {
		c, err := listener.Accept()
		if err != nil {
			return 1
		}
		go f.serve(c)
	}
}

func (f *fake) serve(c net.Conn) {
	defer func() { _ = c.Close() }()
	for {
		m, err := readMessage(c)
		if err != nil {
			return
		}
		command, err := m.command()
		if err != nil {
			return
		}
		switch f.mode {
		case "silent":
			continue
		case "garbage":
			_, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\n\r\nthis is not MongoDB")
			return
		}
		reply, err := m.reply(f.answer(command))
		if err != nil {
			return
		}
		if _, err := c.Write(reply); err != nil {
			return
		}
	}
}

func (f *fake) me() string { return net.JoinHostPort("127.0.0.1", f.port) }

func (f *fake) read(name string) string {
	text, err := os.ReadFile(filepath.Join(f.dir, name))
	if err != nil {
		return ""
	}
	return string(text)
}

func (f *fake) write(name, text string) error {
	temporary := filepath.Join(f.dir, name+f.port)
	return errors.Join(os.WriteFile(temporary, []byte(text), 0o600), os.Rename(temporary, filepath.Join(f.dir, name)))
}

// primary is the member that takes writes. Where it is gone, this one stands in.
func (f *fake) primary() string {
	primary := f.read("primary")
	if primary == "" || primary == f.me() || f.mode == "leaderless" {
		return primary
	}
	c, err := net.Dial("tcp", primary)
	if err != nil {
		if err := f.write("primary", f.me()); err != nil {
			fmt.Println(err)
		}
		return f.me()
	}
	_ = c.Close()
	return primary
}

func (f *fake) answer(c Command) bson.D {
	switch {
	case c.Hello():
		d := bson.D{
			{Key: "ok", Value: 1.0},
			{Key: "maxWireVersion", Value: 21},
			{Key: "minWireVersion", Value: 0},
			{Key: "helloOk", Value: true},
			{Key: "maxBsonObjectSize", Value: 16 << 20},
			{Key: "maxMessageSizeBytes", Value: 48_000_000},
			{Key: "maxWriteBatchSize", Value: 100_000},
		}
		members := f.read("members")
		if members == "" {
			return append(d, bson.E{Key: "isreplicaset", Value: true}, bson.E{Key: "isWritablePrimary", Value: false}, bson.E{Key: "secondary", Value: false})
		}
		primary := f.primary()
		return append(d,
			bson.E{Key: "setName", Value: f.set}, bson.E{Key: "hosts", Value: strings.Split(members, ",")}, bson.E{Key: "me", Value: f.me()},
			bson.E{Key: "isWritablePrimary", Value: primary == f.me()}, bson.E{Key: "secondary", Value: primary != f.me()})
	case c.Name == "replSetInitiate":
		hosts, err := f.initiate(c.Body)
		if err != nil {
			return Failure(93, "InvalidReplicaSetConfig", err.Error())
		}
		first := hosts[0]
		if f.mode == "leaderless" {
			first = "nobody"
		}
		if err := errors.Join(f.write("primary", first), f.write("members", strings.Join(hosts, ","))); err != nil {
			return Failure(1, "InternalError", err.Error())
		}
	case c.Name == "replSetStepDown":
		members := strings.Split(f.read("members"), ",")
		next := members[(slices.Index(members, f.me())+1)%len(members)]
		if err := f.write("primary", next); err != nil {
			return Failure(1, "InternalError", err.Error())
		}
	case c.Name == "createUser" && f.locked:
		// As a server does, it lets the first be made by anybody, and no other:
		// this one cannot tell who asks.
		if known := f.read("users"); known != "" {
			return Failure(13, "Unauthorized", "Command createUser requires authentication")
		}
		if err := f.write("users", c.Collection()+" "+c.Body.Lookup("roles", "0", "role").StringValue()); err != nil {
			return Failure(1, "InternalError", err.Error())
		}
	case c.Name == "ping", c.Name == "endSessions":
	default:
		return Failure(59, "CommandNotFound", "no such command: '"+c.Name+"'")
	}
	return bson.D{{Key: "ok", Value: 1.0}}
}

// initiate checks the configuration of a replica set.
func (f *fake) initiate(command bson.Raw) ([]string, error) {
	var c struct {
		Config struct {
			Name    string `bson:"_id"`
			Members []struct {
				ID   int    `bson:"_id"`
				Host string `bson:"host"`
			} `bson:"members"`
		} `bson:"replSetInitiate"`
	}
	if err := bson.Unmarshal(command, &c); err != nil {
		return nil, err
	}
	if c.Config.Name != f.set || len(c.Config.Members) == 0 {
		return nil, fmt.Errorf("the set %q of %d members; this is one of %q", c.Config.Name, len(c.Config.Members), f.set)
	}
	var hosts []string
	for i, m := range c.Config.Members {
		if m.ID != i {
			return nil, fmt.Errorf("member %d has the number %d", i, m.ID)
		}
		hosts = append(hosts, m.Host)
	}
	return hosts, nil
}

// asParent starts a set, says where, and waits until it is killed.
func asParent() int {
	if err := os.Setenv(envFake, "good"); err != nil {
		return 1
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	s, err := Start(ctx, os.Args[0], 2)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	for _, n := range s.Nodes() {
		fmt.Println(n.Addr())
	}
	fmt.Println(s.dir)
	select {}
}
