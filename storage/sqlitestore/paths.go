package sqlitestore

import (
	"bytes"
	"encoding/json"
	"strings"
)

// paths is a set of member paths, as a tree. Scanning a document once finds
// the values at all of them: what a filter, an order or an index needs of a
// document costs one pass, which stops when nothing is missing any more.
type paths struct {
	slot    int // where the value at this node goes; -1: nowhere
	members []member
}

type member struct {
	name []byte // as it is written in a document, without the quotes
	paths
}

func newPaths() *paths { return &paths{slot: -1} }

// add makes sure that the value at a path goes to a slot: the one that it
// goes to already, or the given one. It reports which.
func (p *paths) add(path []string, slot int) int {
	if len(path) == 0 {
		if p.slot < 0 {
			p.slot = slot
		}
		return p.slot
	}
	name := quotedName(path[0])
	for i := range p.members {
		if bytes.Equal(p.members[i].name, name) {
			return p.members[i].add(path[1:], slot)
		}
	}
	p.members = append(p.members, member{name: name, paths: paths{slot: -1}})
	return p.members[len(p.members)-1].add(path[1:], slot)
}

// quotedName is a member name in normal form, without the quotes.
func quotedName(name string) []byte {
	if strings.IndexFunc(name, func(r rune) bool { return r < ' ' || r == '"' || r == '\\' }) < 0 {
		return []byte(name)
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(name); err != nil {
		return []byte(name) // strings always encode
	}
	line := bytes.TrimSuffix(b.Bytes(), []byte("\n"))
	return line[1 : len(line)-1]
}

// find stores the values at the paths in slots, which the caller has cleared.
// A value is a slice of data; a missing one stays nil. It never panics, but
// what it finds in bytes that are not JSON is unspecified.
func (p *paths) find(data []byte, slots [][]byte) {
	if p.slot >= 0 {
		slots[p.slot] = data
	}
	if len(p.members) == 0 || len(data) < 2 || data[0] != '{' {
		return
	}
	missing := len(p.members)
	for i := 1; i < len(data) && data[i] == '"'; i++ {
		nameStart := i + 1
		i = skipString(data, i)
		if i > len(data) {
			return
		}
		name := data[nameStart : i-1]
		if i >= len(data) || data[i] != ':' {
			return
		}
		valueStart := i + 1
		i = skipValue(data, valueStart)
		if i > len(data) {
			return
		}
		for m := range p.members {
			if bytes.Equal(p.members[m].name, name) {
				p.members[m].find(data[valueStart:i], slots)
				if missing--; missing == 0 {
					return
				}
				break
			}
		}
		if i >= len(data) || data[i] != ',' {
			return
		}
	}
}

// elements calls yield for each element of a JSON array until it returns
// false. Bytes that are not an array have no elements.
func elements(data []byte, yield func(element []byte) bool) {
	if len(data) < 2 || data[0] != '[' || data[1] == ']' {
		return
	}
	for i := 1; i < len(data); i++ {
		start := i
		i = skipValue(data, start)
		if i > len(data) || i == start || !yield(data[start:i]) || i >= len(data) || data[i] != ',' {
			return
		}
	}
}

// skipString returns the index behind the string that starts at i; more than
// len(data) if it does not end.
func skipString(data []byte, i int) int {
	for i++; i < len(data); {
		end := bytes.IndexByte(data[i:], '"')
		if end < 0 {
			break
		}
		end += i
		slashes := 0
		for end-1-slashes >= i && data[end-1-slashes] == '\\' {
			slashes++
		}
		i = end + 1
		if slashes%2 == 0 {
			return i
		}
	}
	return len(data) + 1
}

// skipValue returns the index behind the value that starts at i; more than
// len(data) if it does not end.
func skipValue(data []byte, i int) int {
	if i >= len(data) {
		return len(data) + 1
	}
	switch data[i] {
	case '"':
		return skipString(data, i)
	case '{', '[':
		for depth := 0; i < len(data); {
			switch data[i] {
			case '"':
				i = skipString(data, i)
				continue
			case '{', '[':
				depth++
			case '}', ']':
				if depth--; depth == 0 {
					return i + 1
				}
			}
			i++
		}
		return len(data) + 1
	default:
		for i < len(data) && data[i] != ',' && data[i] != '}' && data[i] != ']' {
			i++
		}
		return i
	}
}
