package mongotest

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/wiremessage"
)

// Transactions lets a server without them pose as the primary of a replica set with
// transactions, for commands that come by way of its Answer. What it shows is what the manual
// of MongoDB says of them:
//
//   - What a transaction changes is there at once when it is committed, for all reads, and
//     not before; nothing, when it is aborted, or open for longer than Lifetime.
//   - A change in a transaction of a document that another open one has changed, or that was
//     changed since the transaction began, is a WriteConflict, which aborts it.
//   - A change outside of transactions of a document that an open one has changed waits until
//     that has ended, or its maxTimeMS is over.
//   - Committing again what is committed does nothing, and committing what is not there, or
//     was aborted, is NoSuchTransaction.
//
// It knows of transactions only updates and deletions that change each document once, and
// evaluates their conditions when they come, on what is committed. It shows nothing of reads in a
// transaction, of several members or shards, and of what a server does that is lost. Before a
// server that is a replica set, it does nothing.
type Transactions struct {
	server   *Server
	address  string
	real     bool
	Lifetime time.Duration

	reading    sync.RWMutex // held for reading by commands that change nothing
	mu         sync.Mutex   // held by changes
	ended      chan struct{}
	open       map[string]*transaction // by session and number
	held       map[string]string       // by which transaction a document is
	committed  map[string]bool
	writes     int64
	last       map[string]int64 // the write that changed a document last
	idle       chan net.Conn
	operations uint32
}

type transaction struct {
	began   int64
	changes []bson.D // commands
}

// NewTransactions stands before a server.
func NewTransactions(t testing.TB, s *Server) *Transactions {
	t.Helper()
	set, _, err := s.ReplicaSet(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	x := &Transactions{
		server: s, address: s.host(t), real: set != "", Lifetime: time.Minute, ended: make(chan struct{}), open: make(map[string]*transaction), held: make(map[string]string), committed: make(map[string]bool),
		last: make(map[string]int64), idle: make(chan net.Conn, 64),
	}
	t.Cleanup(func() {
		for len(x.idle) > 0 {
			_ = (<-x.idle).Close()
		}
	})
	return x
}

// Behind returns the URI of a database of its own by way of a proxy whose commands are answered.
func (x *Transactions) Behind(t testing.TB) (p *Proxy, uri string) {
	t.Helper()
	p, uri, _ = x.server.Behind(t)
	p.Set(func(c Command) Answer { return x.Answer(p, c) })
	return p, uri
}

// Beside returns the URI of the same database by way of another proxy.
func (x *Transactions) Beside(t testing.TB, p *Proxy, uri string) (*Proxy, string) {
	t.Helper()
	other := NewProxy(t, x.address)
	other.Set(func(c Command) Answer { return x.Answer(other, c) })
	return other, strings.Replace(uri, p.Addr(), other.Addr(), 1)
}

// Answer carries out a command that came to a proxy.
func (x *Transactions) Answer(p *Proxy, c Command) Answer {
	if x.real {
		return Pass()
	}
	reply, err := x.carryOut(c)
	if err != nil {
		return CutBefore()
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.operations++
	at := bson.Timestamp{T: 100, I: x.operations}
	if c.Hello() {
		for i := range reply {
			if reply[i].Key == "maxWireVersion" {
				reply[i].Value = int32(9) // of MongoDB 4.4, which has no snapshot reads
			}
		}
		reply = append(reply, bson.E{Key: "setName", Value: "rs0"}, bson.E{Key: "isWritablePrimary", Value: true}, bson.E{Key: "me", Value: p.Addr()},
			bson.E{Key: "hosts", Value: bson.A{p.Addr()}}, bson.E{Key: "logicalSessionTimeoutMinutes", Value: int32(30)})
	}
	return Reply(append(reply, bson.E{Key: "operationTime", Value: at}, bson.E{Key: "$clusterTime", Value: bson.D{{Key: "clusterTime", Value: at}}}))
}

func (x *Transactions) carryOut(c Command) (bson.D, error) {
	number, within := c.Body.Lookup("txnNumber").Int64OK()
	id := fmt.Sprint(c.Body.Lookup("lsid"), number)
	var command bson.D
	if err := bson.Unmarshal(c.Body, &command); err != nil {
		return nil, err
	}
	_, lists := c.message.sections()
	for name, documents := range lists {
		list := make(bson.A, len(documents))
		for i, raw := range documents {
			var document bson.D
			if err := bson.Unmarshal(raw, &document); err != nil {
				return nil, err
			}
			list[i] = document
		}
		command = append(command, bson.E{Key: name, Value: list})
	}
	switch {
	case c.Name == "commitTransaction":
		return x.commit(id)
	case c.Name == "abortTransaction":
		x.mu.Lock()
		defer x.mu.Unlock()
		if x.open[id] == nil {
			return noSuch(), nil
		}
		x.end(id)
		return bson.D{{Key: "ok", Value: 1.0}}, nil
	case within && (c.Name == "update" || c.Name == "delete"):
		return x.stage(id, c, command)
	case within:
		return Failure(263, "OperationNotSupportedInTransaction", c.Name), nil
	case c.Name == "update" || c.Name == "delete" || c.Name == "findAndModify" || c.Name == "insert":
		return x.write(c, command)
	}
	if c.Name != "find" && c.Name != "aggregate" {
		return x.ask(command)
	}
	x.reading.RLock()
	defer x.reading.RUnlock()
	return x.ask(command)
}

func noSuch() bson.D {
	return Failure(251, "NoSuchTransaction", "there is no such transaction", "TransientTransactionError")
}

func conflict() bson.D {
	return Failure(112, "WriteConflict", "another changes it", "TransientTransactionError")
}

// stage notes what a statement of a transaction changes.
func (x *Transactions) stage(id string, c Command, command bson.D) (bson.D, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if starts, _ := c.Body.Lookup("startTransaction").BooleanOK(); starts {
		x.open[id] = &transaction{began: x.writes}
		time.AfterFunc(x.Lifetime, func() {
			x.mu.Lock()
			defer x.mu.Unlock()
			x.end(id)
		})
	}
	tx, n := x.open[id], 0
	if tx == nil {
		return noSuch(), nil
	}
	for _, statement := range statements(command) {
		found, err := x.find(command, statement)
		if err != nil {
			return nil, err
		}
		for _, document := range found {
			if x.last[document.name] > tx.began || x.held[document.name] != "" {
				x.end(id)
				return conflict(), nil
			}
			one := bson.D{{Key: "q", Value: bson.D{{Key: "_id", Value: document.id}}}}
			for _, e := range statement {
				if e.Key != "q" {
					one = append(one, e)
				}
			}
			x.held[document.name] = id
			tx.changes = append(tx.changes, bson.D{command[0], {Key: c.Name + "s", Value: bson.A{one}}, {Key: "$db", Value: member(command, "$db")}})
			n++
		}
	}
	return bson.D{{Key: "n", Value: n}, {Key: "nModified", Value: n}, {Key: "ok", Value: 1.0}}, nil
}

func (x *Transactions) commit(id string) (bson.D, error) {
	x.reading.Lock()
	defer x.reading.Unlock()
	x.mu.Lock()
	defer x.mu.Unlock()
	tx := x.open[id]
	switch {
	case tx == nil && !x.committed[id]:
		return noSuch(), nil
	case tx != nil:
		for _, change := range tx.changes {
			// A server does not notice a change that changes nothing, so it holds no document.
			reply, err := x.ask(change)
			if err != nil || fmt.Sprint(member(reply, "n")) != "1" || fmt.Sprint(member(reply, "nModified")) == "0" {
				return nil, fmt.Errorf("%v: %v, %w", change, reply, err)
			}
		}
		x.committed[id] = true
		x.wrote(x.end(id)...)
	}
	return bson.D{{Key: "ok", Value: 1.0}}, nil
}

// write carries out a change outside of transactions.
func (x *Transactions) write(c Command, command bson.D) (bson.D, error) {
	var late <-chan time.Time
	if limit, ok := c.Body.Lookup("maxTimeMS").AsInt64OK(); ok {
		timer := time.NewTimer(time.Duration(limit) * time.Millisecond)
		defer timer.Stop()
		late = timer.C
	}
	for {
		reply, ended, err := x.writeNow(command)
		if ended == nil || err != nil {
			return reply, err
		}
		select {
		case <-ended:
		case <-late:
			return Failure(50, "MaxTimeMSExpired", "another changes it"), nil
		}
	}
}

// writeNow carries out a change, unless a transaction holds one of its documents: then it
// returns a channel that is closed when one has ended.
func (x *Transactions) writeNow(command bson.D) (reply bson.D, ended <-chan struct{}, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	var touched []string
	for _, statement := range statements(command) {
		found, err := x.find(command, statement)
		if err != nil {
			return nil, nil, err
		}
		for _, document := range found {
			if x.held[document.name] != "" {
				return nil, x.ended, nil
			}
			touched = append(touched, document.name)
		}
	}
	x.wrote(touched...)
	reply, err = x.ask(command)
	return reply, nil, err
}

// The caller of the following holds mu.

func (x *Transactions) wrote(documents ...string) {
	x.writes++
	for _, document := range documents {
		x.last[document] = x.writes
	}
}

// end ends a transaction, and returns the documents that it held.
func (x *Transactions) end(id string) (documents []string) {
	for document, holder := range x.held {
		if holder == id {
			documents = append(documents, document)
			delete(x.held, document)
		}
	}
	delete(x.open, id)
	close(x.ended)
	x.ended = make(chan struct{})
	return documents
}

type found struct {
	name string
	id   any
}

// find returns the documents that a statement is about.
func (x *Transactions) find(command, statement bson.D) (list []found, err error) {
	q := member(statement, "q")
	if q == nil {
		q = member(statement, "query")
	}
	if q == nil { // of an insert
		return nil, nil
	}
	collection, db := command[0].Value, member(command, "$db")
	reply, err := x.ask(bson.D{
		{Key: "find", Value: collection},
		{Key: "filter", Value: q},
		{Key: "projection", Value: bson.D{{Key: "_id", Value: 1}}},
		{Key: "singleBatch", Value: true},
		{Key: "batchSize", Value: 10_000},
		{Key: "$db", Value: db},
	})
	cursor, _ := member(reply, "cursor").(bson.D)
	batch, _ := member(cursor, "firstBatch").(bson.A)
	for _, d := range batch {
		id := member(d.(bson.D), "_id")
		list = append(list, found{fmt.Sprint(db, ".", collection, " ", id), id})
	}
	return list, err
}

// statements are those of a command that changes documents.
func statements(command bson.D) (list []bson.D) {
	for _, name := range []string{"updates", "deletes"} {
		all, _ := member(command, name).(bson.A)
		for _, statement := range all {
			list = append(list, statement.(bson.D))
		}
	}
	if command[0].Key == "findAndModify" {
		list = append(list, command)
	}
	return list
}

func member(d bson.D, name string) any {
	for _, e := range d {
		if e.Key == name {
			return e.Value
		}
	}
	return nil
}

// ask lets the server carry out a command, without what it does not know.
func (x *Transactions) ask(command bson.D) (bson.D, error) {
	command = slices.DeleteFunc(slices.Clone(command), func(e bson.E) bool {
		return slices.Contains([]string{"lsid", "txnNumber", "autocommit", "startTransaction", "$clusterTime", "readConcern", "writeConcern"}, e.Key)
	})
	if member(command, "$db") == nil { // the first hello
		command = append(command, bson.E{Key: "$db", Value: "admin"})
	}
	sent, err := (&message{op: wiremessage.OpMsg}).reply(command)
	if err != nil {
		return nil, err
	}
	var conn net.Conn
	select {
	case conn = <-x.idle:
	default:
		if conn, err = net.Dial("tcp", x.address); err != nil {
			return nil, err
		}
	}
	if _, err := conn.Write(sent); err != nil {
		return nil, err
	}
	answer, err := readMessage(conn)
	if err != nil {
		return nil, err
	}
	select {
	case x.idle <- conn:
	default:
		_ = conn.Close()
	}
	document, err := answer.document()
	if err != nil {
		return nil, err
	}
	var reply bson.D
	err = bson.Unmarshal(document, &reply)
	return reply, err
}
