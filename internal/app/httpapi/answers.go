package httpapi

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"strconv"
	"sync"

	"github.com/99designs/gqlgen/graphql"
)

// answers are the finished answers of one WebSocket that are about to be sent.
// gqlgen's transport would encode an answer twice more, so it gets a stand-in,
// whose data is a name, and the message gets the answer in its place when it is
// written. The names cannot be guessed: no client can have another message
// filled.
type answers struct {
	secret string
	mu     sync.Mutex
	last   int
	ready  map[string][]byte // by name
}

func newAnswers() *answers {
	return &answers{secret: rand.Text(), ready: map[string][]byte{}}
}

// keep encodes an answer that was read at an instant, and returns its stand-in.
func (a *answers) keep(r *graphql.Response, instant string) (*graphql.Response, error) {
	var text bytes.Buffer
	if err := encodeAny(&text, r, instant); err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.last++
	name := a.secret + strconv.Itoa(a.last)
	a.ready[name] = text.Bytes()
	return &graphql.Response{Data: json.RawMessage(strconv.Quote(name))}, nil
}

// fill returns a message with the answer that its stand-in names; other messages
// as they are.
func (a *answers) fill(message []byte) []byte {
	const before, after = `{"payload":`, `{"data":"`
	rest, ok := bytes.CutPrefix(message, []byte(before+after))
	if !ok {
		return message
	}
	name, rest, ok := bytes.Cut(rest, []byte(`"}`))
	if !ok {
		return message
	}
	a.mu.Lock()
	text, ok := a.ready[string(name)]
	delete(a.ready, string(name))
	a.mu.Unlock()
	if !ok {
		return message
	}
	filled := make([]byte, 0, len(before)+len(text)+len(rest))
	return append(append(append(filled, before...), text...), rest...)
}
