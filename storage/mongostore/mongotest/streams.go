package mongotest

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// Streams poses as the primary of a replica set of MongoDB 7.0 with one collection, which has
// snapshot reads and change streams as the manual of MongoDB describes them: what a server for
// tests lacks. Tests write by its methods, and clients read. It knows find by a condition in the
// order of _id, and as a pipeline one $match; conditions have equalities, and a few operators.
type Streams struct {
	addr string

	mu      sync.Mutex
	grown   chan struct{}
	clock   bson.Timestamp
	states  map[string][]State // by idOf, in the order of time
	oplog   []bson.D
	lost    int            // events that are not in the oplog any more
	cursors map[int64]*int // the next event of each
	losing  []bool         // see LoseCursors
	within  bson.D         // of the transaction
	before  bson.Timestamp // it
	wants   map[int64]bson.D
	served  int // events
}

// State is a document of Streams from a time on.
type State struct {
	At       bson.Timestamp
	ID       any
	Document bson.D // with _id; nil: deleted
}

// NewStreams starts a server without documents; it ends with the test.
func NewStreams(t testing.TB) *Streams {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &Streams{
		addr: listener.Addr().String(), grown: make(chan struct{}), clock: bson.Timestamp{T: 1_700_000_000},
		states: map[string][]State{}, cursors: map[int64]*int{}, wants: map[int64]bson.D{},
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			context.AfterFunc(ctx, func() { _ = conn.Close() })
			serving.Go(func() { s.serve(ctx, conn) })
		}
	})
	t.Cleanup(func() {
		cancel()
		_ = listener.Close()
		serving.Wait()
	})
	return s
}

// URI names the collection's database.
func (s *Streams) URI() string { return "mongodb://" + s.addr + "/shop?directConnection=true" }

// Addr is where it listens (host:port).
func (s *Streams) Addr() string { return s.addr }

func idOf(id any) string { return fmt.Sprintf("%T %v", id, id) }

// Put stores a document: as an update of what is there, told by its differences, or else whole.
func (s *Streams) Put(id any, document bson.D, update bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	document = append(bson.D{{Key: "_id", Value: id}}, document...)
	before := s.now(id)
	e := bson.D{{Key: "operationType", Value: "insert"}, {Key: "fullDocument", Value: document}}
	if before != nil {
		e[0].Value = "replace"
	}
	if before != nil && update {
		d := differences{set: bson.D{}, removed: bson.A{}, cut: bson.A{}}
		d.objects("", before, document)
		e = bson.D{{Key: "operationType", Value: "update"}, {Key: "updateDescription", Value: bson.D{
			{Key: "updatedFields", Value: d.set}, {Key: "removedFields", Value: d.removed}, {Key: "truncatedArrays", Value: d.cut},
		}}}
	}
	s.add(id, document, e)
}

// Delete deletes a document, if it is there.
func (s *Streams) Delete(id any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.now(id) != nil {
		s.add(id, nil, bson.D{{Key: "operationType", Value: "delete"}})
	}
}

// Move stores a document on another shard, as an update of its shard key does: the insertion there is told
// before the deletion of what was here, which is there.
func (s *Streams) Move(id any, document bson.D) {
	s.Transaction(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		document = append(bson.D{{Key: "_id", Value: id}}, document...)
		s.add(id, document, bson.D{{Key: "operationType", Value: "insert"}, {Key: "fullDocument", Value: document}})
		s.add(id, document, bson.D{{Key: "operationType", Value: "delete"}})
	})
}

// LoseCursors has the server lose the cursors of the next requests for events: it says that it has closed
// the cursor where that is true, and else that there is none.
func (s *Streams) LoseCursors(closed ...bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.losing = closed
}

// End adds an event after which there is none of the collection: drop, rename.
func (s *Streams) End(kind string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.add(nil, nil, bson.D{{Key: "operationType", Value: kind}})
}

// Transaction has one time for what a function does, of which clients see nothing before its end.
func (s *Streams) Transaction(do func()) {
	s.mu.Lock()
	s.before = s.clock
	s.tick()
	s.within = bson.D{{Key: "lsid", Value: bson.D{{Key: "id", Value: bson.Binary{Subtype: 4, Data: bytes.Repeat([]byte{7}, 16)}}}}, {Key: "txnNumber", Value: int64(s.clock.I)}}
	s.mu.Unlock()
	do()
	s.mu.Lock()
	s.within = nil
	s.wake()
	s.mu.Unlock()
}

// Forget removes all events from the oplog.
func (s *Streams) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost = len(s.oplog)
}

// States returns all states that documents had, a list for each.
func (s *Streams) States() (all [][]State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, states := range s.states {
		all = append(all, slices.Clone(states))
	}
	return all
}

// Served is how many events clients have been given.
func (s *Streams) Served() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.served
}

// The caller of the following holds mu.

func (s *Streams) tick() {
	const perSecond = 40
	if s.clock.I++; s.clock.I > perSecond {
		s.clock = bson.Timestamp{T: s.clock.T + 1, I: 1}
	}
}

// seen is up to when clients see what is written.
func (s *Streams) seen() bson.Timestamp {
	if s.within != nil {
		return s.before
	}
	return s.clock
}

// wake wakes those that wait for events.
func (s *Streams) wake() {
	close(s.grown)
	s.grown = make(chan struct{})
}

func (s *Streams) now(id any) bson.D {
	states := s.states[idOf(id)]
	if len(states) == 0 {
		return nil
	}
	return states[len(states)-1].Document
}

func (s *Streams) add(id any, document, e bson.D) {
	if s.within == nil {
		s.tick()
	}
	if id != nil {
		s.states[idOf(id)] = append(s.states[idOf(id)], State{s.clock, id, document})
		e = append(e, bson.E{Key: "documentKey", Value: bson.D{{Key: "_id", Value: id}}})
	}
	e = append(e, bson.E{Key: "_id", Value: token(len(s.oplog) + 1)}, bson.E{Key: "clusterTime", Value: s.clock})
	s.oplog = append(s.oplog, append(e, s.within...))
	s.wake()
}

// token is the resume token behind so many events.
func token(n int) bson.D { return bson.D{{Key: "_data", Value: strconv.Itoa(n)}} }

// differences are how an update of the oplog tells what has changed.
type differences struct {
	set          bson.D
	removed, cut bson.A
}

func (d *differences) objects(path string, before, after bson.D) {
	for _, e := range before {
		if !has(after, e.Key) {
			d.removed = append(d.removed, path+e.Key)
		}
	}
	for _, e := range after {
		d.value(path+e.Key, member(before, e.Key), e.Value, has(before, e.Key))
	}
}

func (d *differences) value(path string, before, after any, existed bool) {
	if existed && reflect.DeepEqual(before, after) {
		return
	}
	oldObject, wasObject := before.(bson.D)
	newObject, isObject := after.(bson.D)
	if wasObject && isObject {
		d.objects(path+".", oldObject, newObject)
		return
	}
	oldList, wasList := before.(bson.A)
	newList, isList := after.(bson.A)
	if !wasList || !isList {
		d.set = append(d.set, bson.E{Key: path, Value: after})
		return
	}
	if len(newList) < len(oldList) {
		d.cut = append(d.cut, bson.D{{Key: "field", Value: path}, {Key: "newSize", Value: len(newList)}})
	}
	for i, e := range newList {
		var old any
		if i < len(oldList) {
			old = oldList[i]
		}
		d.value(path+"."+strconv.Itoa(i), old, e, i < len(oldList))
	}
}

func has(d bson.D, name string) bool {
	return slices.ContainsFunc(d, func(e bson.E) bool { return e.Key == name })
}

func (s *Streams) serve(ctx context.Context, conn net.Conn) {
	defer func() { _ = conn.Close() }()
	for {
		m, err := readMessage(conn)
		if err != nil {
			return
		}
		c, err := m.command()
		if err != nil {
			return
		}
		reply := s.answer(ctx, c)
		s.mu.Lock()
		reply = append(reply, bson.E{Key: "operationTime", Value: s.seen()}, bson.E{Key: "$clusterTime", Value: bson.D{{Key: "clusterTime", Value: s.seen()}}})
		s.mu.Unlock()
		if !has(reply, "ok") {
			reply = append(reply, bson.E{Key: "ok", Value: 1.0})
		}
		sent, err := m.reply(reply)
		if err != nil {
			return
		}
		if _, err := conn.Write(sent); err != nil {
			return
		}
	}
}

func (s *Streams) answer(ctx context.Context, c Command) bson.D {
	switch {
	case c.Hello():
		return bson.D{
			{Key: "setName", Value: "rs0"},
			{Key: "isWritablePrimary", Value: true},
			{Key: "me", Value: s.addr},
			{Key: "hosts", Value: bson.A{s.addr}},
			{Key: "logicalSessionTimeoutMinutes", Value: int32(30)},
			{Key: "minWireVersion", Value: int32(0)},
			{Key: "maxWireVersion", Value: int32(21)},
			{Key: "maxBsonObjectSize", Value: int32(16 << 20)},
			{Key: "maxMessageSizeBytes", Value: int32(48_000_000)},
			{Key: "maxWriteBatchSize", Value: int32(100_000)},
		}
	case c.Name == "find":
		return s.find(c)
	case c.Name == "aggregate":
		return s.watch(c)
	case c.Name == "getMore":
		return s.more(ctx, c)
	case c.Name == "endSessions" || c.Name == "killCursors":
		return bson.D{}
	}
	return Failure(59, "CommandNotFound", "no such command: "+c.Name)
}

// find answers with the documents of now, sorted, in one batch.
func (s *Streams) find(c Command) bson.D {
	s.mu.Lock()
	defer s.mu.Unlock()
	var filter bson.D
	_ = bson.Unmarshal(c.Body.Lookup("filter").Value, &filter)
	found := bson.A{}
	for _, states := range s.states {
		n := len(states)
		for n > 0 && states[n-1].At.After(s.seen()) {
			n--
		}
		if n > 0 && states[n-1].Document != nil && matches(states[n-1].Document, filter) {
			found = append(found, states[n-1].Document)
		}
	}
	slices.SortFunc(found, func(a, b any) int { return compare(member(a.(bson.D), "_id"), member(b.(bson.D), "_id")) })
	if limit, ok := c.Body.Lookup("limit").AsInt64OK(); ok && limit > 0 && int(limit) < len(found) {
		found = found[:limit]
	}
	return bson.D{{Key: "cursor", Value: bson.D{
		{Key: "id", Value: int64(0)}, {Key: "ns", Value: "shop." + c.Collection()}, {Key: "firstBatch", Value: found}, {Key: "atClusterTime", Value: s.seen()},
	}}}
}

func (s *Streams) watch(c Command) bson.D {
	s.mu.Lock()
	defer s.mu.Unlock()
	stages, _ := c.Body.Lookup("pipeline").Array().Values()
	next, options := 0, stages[0].Document().Lookup("$changeStream").Document()
	if after, ok := options.Lookup("resumeAfter").DocumentOK(); ok {
		next, _ = strconv.Atoi(after.Lookup("_data").StringValue())
	} else if t, i, ok := options.Lookup("startAtOperationTime").TimestampOK(); ok {
		next = slices.IndexFunc(s.oplog, func(e bson.D) bool {
			return !member(e, "clusterTime").(bson.Timestamp).Before(bson.Timestamp{T: t, I: i})
		})
		if next < 0 {
			next = len(s.oplog)
		}
	}
	if next < s.lost {
		return Failure(286, "ChangeStreamHistoryLost", "Resume of change stream was not possible, as the resume point may no longer be in the oplog.", "NonResumableChangeStreamError")
	}
	id := int64(len(s.cursors) + 1)
	s.cursors[id] = &next
	if len(stages) > 1 {
		var want bson.D
		_ = bson.Unmarshal(stages[1].Document().Lookup("$match").Value, &want)
		s.wants[id] = want
	}
	return s.batch(id, "firstBatch", 0)
}

func (s *Streams) more(ctx context.Context, c Command) bson.D {
	id, wait := c.Body.Lookup("getMore").Int64(), 100*time.Millisecond
	if limit, ok := c.Body.Lookup("maxTimeMS").AsInt64OK(); ok {
		wait = time.Duration(limit) * time.Millisecond
	}
	size, ok := c.Body.Lookup("batchSize").AsInt64OK()
	if !ok {
		size = 10_000
	}
	late := time.NewTimer(wait)
	defer late.Stop()
	for {
		s.mu.Lock()
		next, grown := s.cursors[id], s.grown
		if len(s.losing) > 0 {
			closed := s.losing[0]
			s.losing = s.losing[1:]
			if closed {
				reply := s.batch(id, "nextBatch", 0)
				s.mu.Unlock()
				reply[0].Value.(bson.D)[0].Value = int64(0)
				return reply
			}
			next = nil
		}
		if next == nil || *next < s.lost {
			s.mu.Unlock()
			return Failure(43, "CursorNotFound", "cursor is gone", "ResumableChangeStreamError")
		}
		reply := s.batch(id, "nextBatch", int(size))
		s.mu.Unlock()
		if len(member(reply[0].Value.(bson.D), "nextBatch").(bson.A)) > 0 {
			return reply
		}
		select {
		case <-grown:
		case <-late.C:
			return reply
		case <-ctx.Done():
			return reply
		}
	}
}

func (s *Streams) batch(id int64, name string, most int) bson.D {
	next, events := s.cursors[id], bson.A{}
	for ; *next < len(s.oplog) && len(events) < most; *next++ {
		e := s.oplog[*next]
		if member(e, "clusterTime").(bson.Timestamp).After(s.seen()) {
			break
		}
		if matches(e, s.wants[id]) {
			events = append(events, e)
		}
	}
	s.served += len(events)
	return bson.D{{Key: "cursor", Value: bson.D{
		{Key: "id", Value: id}, {Key: "ns", Value: "shop.orders"}, {Key: name, Value: events}, {Key: "postBatchResumeToken", Value: token(*next)},
	}}}
}

// matches reports whether a document meets a condition.
func matches(d, condition bson.D) bool {
	for _, e := range condition {
		list, _ := e.Value.(bson.A)
		one := func(c any) bool { return matches(d, c.(bson.D)) }
		switch e.Key {
		case "$and":
			if slices.ContainsFunc(list, func(c any) bool { return !one(c) }) {
				return false
			}
		case "$or":
			if !slices.ContainsFunc(list, one) {
				return false
			}
		default:
			var value any = d
			for name := range strings.SplitSeq(e.Key, ".") {
				inner, _ := value.(bson.D)
				value = member(inner, name)
			}
			if !fits(value, e.Value) {
				return false
			}
		}
	}
	return true
}

func fits(value, condition any) bool {
	operators, ok := condition.(bson.D)
	if !ok || len(operators) == 0 || operators[0].Key[0] != '$' {
		return reflect.DeepEqual(value, condition)
	}
	for _, o := range operators {
		list, _ := o.Value.(bson.A)
		switch o.Key {
		case "$in":
			ok = slices.ContainsFunc(list, func(v any) bool { return reflect.DeepEqual(v, value) })
		case "$ne":
			ok = !reflect.DeepEqual(value, o.Value)
		case "$type":
			ok = slices.Contains(list, any(typeOf(value))) || o.Value == any(typeOf(value))
		case "$gt":
			ok = typeOf(value) == typeOf(o.Value) && compare(value, o.Value) > 0
		default:
			ok = false
		}
		if !ok {
			return false
		}
	}
	return true
}

func typeOf(v any) string {
	switch v.(type) {
	case int32, int64, float64:
		return "number"
	case string:
		return "string"
	case bson.ObjectID:
		return "objectId"
	case bson.Binary:
		return "binData"
	case bson.D:
		return "object"
	}
	return ""
}

// compare orders values of one type.
func compare(a, b any) int {
	switch a := a.(type) {
	case int32:
		n, _ := b.(int32)
		return int(a) - int(n)
	case string:
		text, _ := b.(string)
		return strings.Compare(a, text)
	case bson.ObjectID:
		id, _ := b.(bson.ObjectID)
		return bytes.Compare(a[:], id[:])
	}
	return 0
}
