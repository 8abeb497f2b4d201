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

// fill returns the answer that a message's payload names; other payloads as they
// are.
func (a *answers) fill(payload []byte) []byte {
	name, ok := bytes.CutPrefix(payload, []byte(`{"data":"`))
	if !ok {
		return payload
	}
	if name, ok = bytes.CutSuffix(name, []byte(`"}`)); !ok {
		return payload
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	answer, ok := a.ready[string(name)]
	if !ok {
		return payload
	}
	delete(a.ready, string(name))
	return answer
}
