package httpapi

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/vektah/gqlparser/v2/ast"
)

// errRepeated is the error for a request that has a member twice: which one was
// meant is not for a server to guess.
var errRepeated = errors.New("a member is given more than once")

// repeatedText is what a client is told of a text that has a member twice; "":
// it has none. The text is known to be valid JSON; see repeated.
func repeatedText(text []byte, what string, folded bool) string {
	way := repeated(text, folded)
	if len(way) == 0 {
		return ""
	}
	return fmt.Sprintf("%s has the member %q more than once; send it once", what, shorten(strings.TrimPrefix(asText(way), ".")))
}

// repeated is the way to the first member that an object in valid JSON has more
// than once; empty: there is none. Folded: the members of the object itself, not
// of what is in it, are decoded whatever the case of their names.
func repeated(text []byte, folded bool) ast.Path {
	r := repeats{paramScanner: paramScanner{text: text}, folded: folded}
	r.value(r.next())
	return r.way
}

// repeats looks for members that an object has more than once.
type repeats struct {
	paramScanner
	folded bool     // names are the same in another case, in the next object
	way    ast.Path // from the text to the member, once it is found
}

// value passes a value; true: a member in it was found, and the way to it is
// made on the way back.
func (r *repeats) value(first byte) (found bool) {
	switch first {
	case '"':
		r.raw()
	case '{':
		return r.object()
	case '[':
		for i, c := 0, r.next(); c != ']'; c = r.next() {
			if c == ',' {
				continue
			}
			if r.value(c) {
				r.way = append(ast.Path{ast.PathIndex(i)}, r.way...)
				return true
			}
			i++
		}
	default:
		r.paramScanner.value(first)
	}
	return false
}

func (r *repeats) object() (found bool) {
	const few = 32 // members that are compared with each other
	var names [few][]byte
	var more map[string]bool
	same, n := bytes.Equal, 0
	if r.folded {
		same, r.folded = bytes.EqualFold, false
	}
	for c := r.next(); c != '}'; c = r.next() {
		if c == ',' {
			continue
		}
		name := r.name()
		again := more[string(name)]
		for _, other := range names[:min(n, few)] {
			again = again || same(name, other)
		}
		if !again {
			r.next() // the colon
			found = r.value(r.next())
		}
		if again || found {
			r.way = append(ast.Path{ast.PathName(name)}, r.way...)
			return true
		}
		if n < few {
			names[n] = name
		} else {
			if more == nil {
				more = map[string]bool{}
			}
			more[string(name)] = true
		}
		n++
	}
	return false
}

// name passes the rest of a member's name and returns it.
func (r *repeats) name() []byte {
	start := r.at
	raw := r.raw()
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw
	}
	r.at = start
	return []byte(r.string())
}
