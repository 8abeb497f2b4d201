package httpapi

import (
	"encoding/json"
	"strconv"
	"strings"
	"sync"

	"github.com/99designs/gqlgen/graphql"
)

// Why a WebSocket is closed, as graphql-transport-ws has it: an error of the
// protocol ends the connection at once.
const (
	closeInvalid      = 4400 // a message that cannot be read
	closeUnauthorized = 4401 // an operation before connection_init
	closeForbidden    = 4403 // connection_init says who asks, in vain
	closeInitTimeout  = 4408 // no connection_init in time
	closeTwice        = 4409 // the id of an operation that is not complete
	closeInitTwice    = 4429 // a second connection_init
)

// violation is a message against the protocol.
type violation struct {
	code   int
	reason string
}

// longestReason is how many bytes the reason of a close frame may have.
const longestReason = 123

// text is the reason, as long as it may be.
func (v *violation) text() string {
	if len(v.reason) <= longestReason {
		return v.reason
	}
	return strings.ToValidUTF8(v.reason[:longestReason], "")
}

// The types of messages that are looked at.
const (
	messageInit      = "connection_init"
	messageSubscribe = "subscribe"
	messageNext      = "next"
	messageError     = "error"
	messageComplete  = "complete"
	messagePing      = "ping"
	messagePong      = "pong"
)

// message is one of the protocol. The order of its members is that in which it is
// written.
type message struct {
	Payload json.RawMessage `json:"payload,omitempty"`
	ID      string          `json:"id,omitempty"`
	Type    string          `json:"type"`
}

// text writes a message; its payload, which may be long, as it is.
func (m message) text() []byte {
	id, _ := json.Marshal(m.ID) // strings always encode
	text := make([]byte, 0, len(m.Payload)+len(id)+len(m.Type)+len(`{"payload":,"id":,"type":""}`))
	text = append(text, '{')
	if len(m.Payload) > 0 {
		text = append(append(append(text, `"payload":`...), m.Payload...), ',')
	}
	if m.ID != "" {
		text = append(append(append(text, `"id":`...), id...), ',')
	}
	return append(append(append(text, `"type":"`...), m.Type...), `"}`...)
}

// conversation keeps a WebSocket to the protocol, which gqlgen's transport does not
// in all: it stands between the connection and the transport, and knows which
// operations the client waits for. The transport knows them by names that are never
// used again, so that nothing of an operation that its client has ended can be taken
// for a part of the next one of the same id.
type conversation struct {
	mu    sync.Mutex
	begun bool
	last  int
	names map[string]string // of operations, by the client's id
	ids   map[string]string // the client's, by name
}

func newConversation() *conversation {
	return &conversation{names: map[string]string{}, ids: map[string]string{}}
}

// received is what the transport gets instead of a client's message; false: nothing.
func (t *conversation) received(m message) (message, bool, *violation) {
	t.mu.Lock()
	defer t.mu.Unlock()
	name, waited := t.names[m.ID]
	switch {
	case m.Type == messageInit && t.begun:
		return m, false, &violation{closeInitTwice, "Too many initialisation requests"}
	case m.Type == messageInit:
		t.begun = true
	case m.Type == messageSubscribe && !t.begun:
		return m, false, &violation{closeUnauthorized, "Unauthorized: send connection_init, and wait for connection_ack"}
	case m.Type == messageSubscribe && waited:
		return m, false, &violation{closeTwice, "Subscriber for " + m.ID + " already exists"}
	case m.Type == messageSubscribe:
		t.last++
		name = strconv.Itoa(t.last)
		t.names[m.ID], t.ids[name] = name, m.ID
		m.ID = name
	case m.Type == messageComplete:
		delete(t.names, m.ID)
		delete(t.ids, name)
		m.ID = name
		return m, waited, nil
	}
	return m, t.begun, nil
}

// sent is what the client gets instead of the transport's message; false: nothing,
// because it has ended the operation, or knows that it has ended.
func (t *conversation) sent(m message) (message, bool) {
	switch m.Type {
	case messageNext, messageError, messageComplete:
	default:
		return m, true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	id, waited := t.ids[m.ID]
	if m.Type != messageNext {
		delete(t.ids, m.ID)
		if waited {
			delete(t.names, id)
		}
	}
	m.ID = id
	return m, waited
}

// end forgets the operations: nothing of them is sent any more.
func (t *conversation) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.names)
	clear(t.ids)
}

// hasBegun reports whether there was a connection_init.
func (t *conversation) hasBegun() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.begun
}

// readMessage reads a client's message.
func readMessage(text []byte) (message, *violation) {
	bad := func(reason string) (message, *violation) { return message{}, &violation{closeInvalid, reason} }
	if p := checkJSON(text, jsonText{what: "the message", like: `{"type": "ping"}`, list: "send one message at a time"}); p != nil {
		return bad(p.message)
	}
	if why := repeatedText(text, "the message", true); why != "" {
		return bad(why)
	}
	var given struct {
		Type, ID any
		Payload  json.RawMessage
	}
	if err := json.Unmarshal(text, &given); err != nil {
		return bad(err.Error()) // valid JSON always decodes
	}
	m := message{Payload: given.Payload}
	var ok bool
	if m.ID, ok = given.ID.(string); given.ID != nil && !ok {
		return bad(`the "id" of a message must be a string`)
	}
	if m.Type, ok = given.Type.(string); given.Type == nil {
		return bad(`the message has no "type"`)
	} else if !ok {
		return bad(`the "type" of a message must be a string`)
	}
	isObject := len(m.Payload) > 0 && m.Payload[0] == '{'
	switch m.Type {
	case messageInit, messagePing, messagePong:
		if len(m.Payload) > 0 && !isObject && string(m.Payload) != "null" {
			return bad("the payload of " + m.Type + " must be an object")
		}
	case messageSubscribe, messageComplete:
		if m.ID == "" {
			return bad(`a message of the type ` + m.Type + ` must have an "id", which is not empty`)
		}
		if m.Type == messageComplete {
			break
		}
		if !isObject {
			return bad(`the payload of subscribe must be an object such as {"query": "{ __typename }"}`)
		}
		if readParams(m.Payload, new(graphql.RawParams)) != nil {
			return bad(explainParams(m.Payload, "the payload of subscribe"))
		}
	default:
		return bad(`the "type" of a message must be connection_init, subscribe, complete, ping or pong`)
	}
	return m, nil
}
