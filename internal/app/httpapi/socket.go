package httpapi

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/99designs/gqlgen/graphql"
	"github.com/coder/websocket"
	"github.com/vektah/gqlparser/v2/gqlerror"
	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"

	"github.com/asof/asof/internal/app/admission"
)

const (
	initTimeout  = 10 * time.Second // from the upgrade to connection_init
	pingInterval = 20 * time.Second // a connection without a message for two of these is dropped
)

const (
	// messageRate is how many messages a second a client may send over all its WebSockets,
	// and as many at once. Who sends more waits.
	messageRate = 1_000
	// messageSize is the size of a message, in bytes, that counts as one more: longer ones
	// take longer to read.
	messageSize = 16 << 10
	// perSocket is how many operations at a time are executed, or wait for it, on one connection,
	// which is not read on beyond that. Subscriptions that wait for events are not among them.
	perSocket = 16
)

// messageRates has a limiter for each client with WebSockets.
type messageRates struct {
	mu       sync.Mutex
	limiters map[string]*sharedLimiter
}

type sharedLimiter struct {
	*rate.Limiter
	sockets int
}

// of returns the limiter of a client's WebSockets, for one more of them; done is called when
// that is closed.
func (m *messageRates) of(client string) (limiter *rate.Limiter, done func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.limiters[client]
	if l == nil {
		l = &sharedLimiter{Limiter: rate.NewLimiter(messageRate, messageRate)}
		m.limiters[client] = l
	}
	l.sockets++
	return l.Limiter, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if l.sockets--; l.sockets == 0 {
			delete(m.limiters, client)
		}
	}
}

// socket is a WebSocket that is open. One goroutine reads its messages, and each of its
// operations has one.
type socket struct {
	h       *Handler
	conn    *websocket.Conn
	under   *socketConn
	request string // the id of the request that opened it
	client  string
	ctx     context.Context // ends with the connection
	cancel  context.CancelFunc
	places  *semaphore.Weighted
	sending *semaphore.Weighted // one message at a time
	rate    *rate.Limiter       // of messages
	// who sends operations, since connection_init, as the credentials in asked tell: until then it is
	// the request that opened the WebSocket. They are written by listen.
	who   Identity
	asked atomic.Pointer[http.Request]

	timer *time.Timer               // for connection_init, and for pings from then on
	heard atomic.Bool               // since the last ping
	begun atomic.Bool               // by connection_init
	wrong atomic.Pointer[violation] // found by another goroutine than that of listen

	mu      sync.Mutex
	running map[string]*socketOperation // by the client's ids; none that it has ended
	ended   sync.WaitGroup              // operations
}

// serveSocket upgrades a request, and has the WebSocket served until it is closed, by a goroutine of
// its own: the request's needs more stack, and holds what HTTP needs.
func (h *Handler) serveSocket(w http.ResponseWriter, r *http.Request, op *operation) {
	if p := h.checkSocket(r); p != nil {
		why := refusedUpgrade
		if p.status == http.StatusForbidden {
			why = refusedOrigin
		}
		h.Refuse(w, r, why, p.status, p.code, p.message)
		return
	}
	if !h.open.TryAcquire(1) {
		h.Refuse(w, r, refusedEnding, http.StatusServiceUnavailable, CodeUnavailable, "the server is shutting down")
		return
	}
	served := false
	defer func() {
		if !served {
			h.open.Release(1)
		}
	}()
	taken := &taken{ResponseWriter: w}
	conn, err := websocket.Accept(taken, r, &websocket.AcceptOptions{
		Subprotocols:       []string{subprotocol},
		InsecureSkipVerify: true, // checkSocket has checked the origin
	})
	if err != nil {
		return // it was answered
	}
	conn.SetReadLimit(h.cfg.Limits.Body)
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context())) // the request ends here
	client := h.cfg.Client(r)
	limiter, done := h.rates.of(client)
	s := &socket{
		rate: limiter, h: h, conn: conn, under: taken.conn, request: op.request, client: client, ctx: ctx, cancel: cancel,
		places:  semaphore.NewWeighted(perSocket),
		sending: semaphore.NewWeighted(1),
		running: map[string]*socketOperation{},
	}
	s.asked.Store(r)
	s.timer = time.AfterFunc(h.socketInit, s.tick)
	h.metrics.webSockets.Inc()
	served = true
	go func() {
		defer h.open.Release(1)
		defer h.metrics.webSockets.Dec()
		defer done()
		defer func() {
			if failure := recover(); failure != nil {
				h.panicked(ctx, s.request, failure)
				_ = conn.CloseNow()
			}
		}()
		defer cancel()
		s.serve()
	}()
}

// serve serves the WebSocket until it is closed.
func (s *socket) serve() {
	stop := context.AfterFunc(s.h.closing, func() { s.end(&violation{int(websocket.StatusGoingAway), "the server stops"}) })
	err := s.listen()
	s.timer.Stop()
	s.mu.Lock()
	clear(s.running) // nothing is sent any more
	s.mu.Unlock()
	stop()
	if wrong, ok := errors.AsType[*violation](err); ok {
		s.under.end()
		_ = s.conn.Close(websocket.StatusCode(wrong.code), wrong.text()) // fails if the client has left
	}
	s.cancel() // not before: it cuts a message that is being sent, and what follows on it
	_ = s.conn.CloseNow()
	s.ended.Wait()
}

// tick closes a connection that does not begin in time, or that is silent, and pings others.
func (s *socket) tick() {
	switch {
	case !s.begun.Load():
		s.end(&violation{closeInitTimeout, "Connection initialisation timeout"})
	case !s.heard.Swap(false):
		_ = s.conn.CloseNow()
	case s.isExpired():
	default:
		s.send(messagePing, "", answerText{})
		s.timer.Reset(pingInterval)
	}
}

// end ends listen with a violation.
func (s *socket) end(wrong *violation) {
	s.wrong.CompareAndSwap(nil, wrong)
	_ = s.under.SetReadDeadline(deadline(0))
}

// listen reads messages until the connection ends, or has to be closed for a *violation.
func (s *socket) listen() error {
	for {
		hold := s.h.memory.Hold(s.client)
		m, err := s.read(hold)
		if err == nil {
			s.heard.Store(true)
			err = s.receive(m, hold)
		} else {
			hold.Set(0)
		}
		if other := s.wrong.Load(); other != nil {
			return other
		}
		if err != nil {
			return err
		}
	}
}

// read reads the next message.
func (s *socket) read(hold *admission.Hold) (message, error) {
	_, r, err := s.conn.Reader(context.Background()) // s.ctx ends after listen
	if err != nil {
		return message{}, err
	}
	var text bytes.Buffer
	if err := readAll(s.ctx, s.h, r, &text, hold); err != nil {
		if errors.Is(err, admission.ErrSpent) {
			return message{}, &violation{int(websocket.StatusTryAgainLater), noMemory}
		}
		return message{}, err
	}
	if err := s.rate.WaitN(s.ctx, min(1+text.Len()/messageSize, messageRate)); err != nil {
		return message{}, err
	}
	if decodedSize(text.Bytes()) >= longRequest {
		place, err := s.h.gate.Enter(s.ctx, s.client, true)
		if err != nil {
			return message{}, &violation{int(websocket.StatusTryAgainLater), busy().message}
		}
		defer place.Leave(true)
	}
	return readMessage(text.Bytes())
}

// receive handles a message, and gives back the memory that is held for it.
func (s *socket) receive(m message, hold *admission.Hold) error {
	if m.Type == messageSubscribe {
		return s.subscribe(m, hold)
	}
	defer hold.Set(0)
	switch m.Type {
	case messageInit:
		return s.init(m)
	case messagePing:
		if err := s.renew(m.Payload); err != nil {
			return err
		}
		s.send(messagePong, "", answerText{data: m.Payload})
	case messageComplete:
		s.mu.Lock()
		if o := s.running[m.ID]; o != nil {
			delete(s.running, m.ID)
			o.cancel()
		}
		s.mu.Unlock()
	}
	return nil
}

// identify finds out who asks with the credentials in a request. It is done again for each
// operation and each ping, as credentials expire and are revoked.
func (s *socket) identify(asked *http.Request) error {
	who, denied := s.h.identify(asked)
	switch {
	case denied != nil:
		return forbidden(denied)
	case s.begun.Load() && who.Actor != s.who.Actor:
		return &violation{closeForbidden, "Forbidden: another identity needs another connection"}
	}
	s.who = who
	s.asked.Store(asked)
	return nil
}

// isExpired reports whether the credentials are no longer valid, and closes the connection then.
func (s *socket) isExpired() bool {
	_, denied := s.h.identify(s.asked.Load())
	if denied == nil || denied.Status == http.StatusServiceUnavailable {
		return false
	}
	s.end(forbidden(denied))
	return true
}

func forbidden(d *Denied) *violation {
	if d.Status == http.StatusServiceUnavailable {
		return &violation{int(websocket.StatusTryAgainLater), d.Message}
	}
	return &violation{closeForbidden, "Forbidden: " + d.Message}
}

// renew takes the credentials in the payload of a ping, in place of those that are about to
// expire.
func (s *socket) renew(payload []byte) error {
	if !s.begun.Load() || len(payload) == 0 {
		return nil
	}
	asked := s.asked.Load().Clone(s.ctx)
	asked.Header.Del("Authorization")
	if withPayload(asked, payload).Header["Authorization"] == nil {
		return nil
	}
	return s.identify(asked)
}

func (s *socket) init(m message) error {
	if s.begun.Load() {
		return &violation{closeInitTwice, "Too many initialisation requests"}
	}
	if wrong := s.identify(withPayload(s.asked.Load().Clone(s.ctx), m.Payload)); wrong != nil {
		return wrong
	}
	s.begun.Store(true)
	s.timer.Reset(pingInterval)
	s.send(messageAck, "", answerText{})
	return nil
}

// socketOperation is an operation on a WebSocket.
type socketOperation struct {
	*socket
	id     string // the client's
	op     *operation
	cancel context.CancelFunc
}

// subscribe begins an operation, in a goroutine of its own.
func (s *socket) subscribe(m message, hold *admission.Hold) error {
	if !s.begun.Load() {
		hold.Set(0)
		return &violation{closeUnauthorized, "Unauthorized: send connection_init, and wait for connection_ack"}
	}
	if err := s.identify(s.asked.Load()); err != nil {
		hold.Set(0)
		return err
	}
	ctx, cancel := context.WithCancel(s.who.Context)
	o := &socketOperation{socket: s, id: m.ID, cancel: cancel, op: &operation{
		start: s.h.cfg.Now(), transport: transportSocket, request: s.request,
		limits: &s.h.cfg.Limits, client: s.client, hold: hold,
	}}
	o.op.sentBy(s.who)
	s.mu.Lock()
	other := s.running[m.ID]
	if other == nil {
		s.running[m.ID] = o
	}
	s.mu.Unlock()
	if other != nil {
		cancel()
		hold.Set(0)
		return &violation{closeTwice, "Subscriber for " + m.ID + " already exists"}
	}
	if !s.h.acquire(ctx, s.places) {
		o.refuse(&problem{http.StatusServiceUnavailable, CodeUnavailable, fmt.Sprintf(
			"this connection has %d operations running, the most that it may have; wait until one of them is complete", perSocket)})
		o.end(ctx)
		return nil
	}
	s.ended.Add(1)
	go func() {
		goesOn := o.execute(ctx, m.Payload)
		s.places.Release(1)
		if !goesOn {
			o.leave(ctx)
		}
	}()
	return nil
}

// leave is end for an operation that was begun.
func (o *socketOperation) leave(ctx context.Context) {
	o.end(ctx)
	o.ended.Done()
}

// acquire takes one of the places, if one gets free in time.
func (h *Handler) acquire(ctx context.Context, places *semaphore.Weighted) bool {
	if places.TryAcquire(1) {
		return true
	}
	wait, cancel := context.WithTimeout(ctx, h.cfg.Limits.Wait)
	defer cancel()
	return places.Acquire(wait, 1) == nil
}

// end notes that an operation is over.
func (o *socketOperation) end(ctx context.Context) {
	o.mu.Lock()
	if o.running[o.id] == o {
		delete(o.running, o.id)
	}
	o.mu.Unlock()
	o.op.hold.Set(0)
	o.h.finish(ctx, o.op)
	o.cancel()
}

// execute executes the operation and sends its answer. The answer to a panic is an error. It
// reports whether the operation goes on, as a subscription, which leaves by itself.
func (o *socketOperation) execute(ctx context.Context, payload []byte) (goesOn bool) {
	defer func() {
		if failure := recover(); failure != nil {
			o.op.errors = o.h.panicked(ctx, o.request, failure).list()
			o.answer(&graphql.Response{Errors: o.op.errors}, false)
			o.complete()
		}
	}()
	var params params
	run, p := o.h.begin(ctx, o.op, payload, &params.RawParams, func() *problem {
		p := jsonText{what: "the payload of subscribe"}.read(payload, &params)
		o.op.documentID = cmp.Or(params.DocumentID, params.ID)
		if p != nil {
			p.status = closeInvalid
		}
		return p
	})
	switch {
	case p != nil && p.status == closeInvalid:
		o.socket.end(&violation{closeInvalid, p.message})
		o.op.errors = p.list()
		return false
	case p != nil:
		o.refuse(p)
		return false
	}
	defer func() {
		if !goesOn {
			run.end()
		}
	}()
	if run.subscribes() {
		run.follow(ctx, o.cancel, o.next, func(wrong gqlerror.List) {
			if wrong != nil {
				o.fail(wrong)
			}
			run.end()
			o.leave(ctx)
		})
		return true
	}
	response := run.answer()
	if run.refused != nil {
		o.fail(response.Errors)
		return false
	}
	o.answer(response, response.Data != nil)
	o.complete()
	return false
}

// refuse sends why the operation is not executed, which is its last message.
func (o *socketOperation) refuse(p *problem) {
	o.op.errors = p.list()
	o.fail(o.op.errors)
}

func (o *socketOperation) fail(list gqlerror.List) {
	o.send(messageError, answerText{data: mustEncode(list)})
}

// answer sends an answer.
func (o *socketOperation) answer(response *graphql.Response, executed bool) {
	o.send(messageNext, encode(new(bytes.Buffer), response, executed, o.op.instant))
}

// next sends answers of a subscription at once, and reports whether the client waits for more.
func (o *socketOperation) next(events []*batch) bool {
	var payloads []answerText
	for _, b := range events {
		payloads = append(payloads, b.answers...)
	}
	return o.send(messageNext, payloads...)
}

func (o *socketOperation) complete() { o.send(messageComplete, answerText{}) }

// send sends messages of the operation, unless the client has ended it, and reports whether it
// had not. Any but "next" is its last.
func (o *socketOperation) send(kind string, payloads ...answerText) (waited bool) {
	o.mu.Lock()
	waited = o.running[o.id] == o
	if waited && kind != messageNext {
		delete(o.running, o.id)
	}
	o.mu.Unlock()
	if waited {
		o.socket.send(kind, o.id, payloads...)
	}
	return waited
}

// send sends messages, after those that are being sent, short ones in one system call. A client
// that takes them too slowly is dropped: then, and in general where sending fails, the connection ends.
func (s *socket) send(kind, id string, payloads ...answerText) {
	if s.sending.Acquire(s.ctx, 1) != nil {
		return // it has ended
	}
	defer s.sending.Release(1)
	length := 0
	for i, payload := range payloads {
		payloads[i] = messageText(kind, id, payload)
		length += payloads[i].length()
	}
	ctx, cancel := context.WithTimeout(s.ctx, s.h.transferTime(length))
	defer cancel()
	for i, text := range payloads {
		s.under.more.Store(i < len(payloads)-1 && text.length() <= mostCopied)
		if s.write(ctx, text) != nil {
			_ = s.conn.CloseNow() // else what the client has sent before it left would be read on
			return
		}
	}
}

func (s *socket) write(ctx context.Context, text answerText) error {
	if text.length() <= mostCopied {
		return s.conn.Write(ctx, websocket.MessageText, slices.Concat(text.before, text.data, text.after))
	}
	w, err := s.conn.Writer(ctx, websocket.MessageText)
	if err == nil {
		err = text.writeTo(w)
	}
	if err != nil {
		return err
	}
	return w.Close()
}
