package httpapi

import (
	"encoding/json"
	"strings"
)

// subprotocol is the only one that is spoken (graphql-transport-ws, as its
// specification in the repository enisdenjo/graphql-ws has it); the older graphql-ws is
// not.
const subprotocol = "graphql-transport-ws"

// Why a WebSocket is closed, as the protocol has it: an error of the protocol ends the
// connection at once.
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

// The types of messages.
const (
	messageInit      = "connection_init"
	messageAck       = "connection_ack"
	messageSubscribe = "subscribe"
	messageNext      = "next"
	messageError     = "error"
	messageComplete  = "complete"
	messagePing      = "ping"
	messagePong      = "pong"
)

// message is one of a client.
type message struct {
	Type    string
	ID      string
	Payload json.RawMessage
}

// messageText is a message to a client around its payload, which is written as it is and
// may have several parts; none: there is no payload.
func messageText(kind, id string, payload answerText) answerText {
	if payload.length() == 0 {
		payload.before = []byte{'{'}
	} else {
		payload.before = append([]byte(`{"payload":`), payload.before...)
		payload.after = append(payload.after, ',')
	}
	if id != "" {
		name, _ := json.Marshal(id) // strings always encode
		payload.after = append(append(append(payload.after, `"id":`...), name...), ',')
	}
	payload.after = append(append(append(payload.after, `"type":"`...), kind...), `"}`...)
	return payload
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
	default:
		return bad(`the "type" of a message must be connection_init, subscribe, complete, ping or pong`)
	}
	return m, nil
}
