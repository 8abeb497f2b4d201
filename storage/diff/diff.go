// Package diff finds the changes between two JSON values.
//
// Invariants:
//
//   - Values are in normal form (package normal), and equal ones have no changes.
//   - The changes, applied one after the other as a JSON Patch (RFC 6902), lead
//     from the old value to the new one: indexes in lists are those at that step.
//   - Objects are compared member by member, lists by element: an insert is one
//     ADD, wherever it happens. Objects in lists that are alike are matched and
//     compared inside.
//   - Work is bounded by the size of the input times a constant, also for hostile
//     input; where the best script would take longer, a valid one is returned
//     that may be longer.
//   - So is the text of all paths together: what lies very deep, or below very
//     long names, is compared as a whole.
package diff

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"github.com/asof/asof/storage/normal"
	"github.com/asof/asof/storage/rawjson"
)

// Op is what happened to a value.
type Op uint8

// The operations, as in RFC 6902.
const (
	Add Op = iota + 1
	Replace
	Remove
)

// Change is one changed value.
type Change struct {
	Path string // JSON Pointer, RFC 6901
	Op   Op
	Old  []byte // nil for Add
	New  []byte // nil for Remove
}

// Values appends the changes between two values to out. Nil stands for a value
// that is not there. Paths begin with the given one.
func Values(out []Change, path string, old, now []byte) []Change {
	switch {
	case old == nil && now == nil:
		return out
	case old == nil:
		return append(out, Change{Path: path, Op: Add, New: now})
	case now == nil:
		return append(out, Change{Path: path, Op: Remove, Old: old})
	case bytes.Equal(old, now):
		return out
	case old[0] == '{' && now[0] == '{' && !Whole(path):
		return objects(out, path, old, now)
	case old[0] == '[' && now[0] == '[' && !Whole(path):
		return lists(out, path, old, now)
	case normal.Equal(old, now):
		return out
	}
	return append(out, Change{Path: path, Op: Replace, Old: old, New: now})
}

// maxPath and maxNesting bound the paths, in bytes and in steps, below which
// single changes are told apart. Each of a thousand numbers in a list would
// otherwise repeat the path of the list, however long that is.
const (
	maxPath    = 512
	maxNesting = 32
)

// Whole reports whether the value at a path is compared as a whole, because
// the paths inside it would be too long.
func Whole(path string) bool {
	return len(path) > maxPath || strings.Count(path, "/") > maxNesting
}

func objects(out []Change, path string, old, now []byte) []Change {
	before, after := Members(old), Members(now)
	for len(before) > 0 || len(after) > 0 {
		order := 0
		switch {
		case len(before) == 0:
			order = 1
		case len(after) == 0:
			order = -1
		default:
			order = strings.Compare(before[0].Name, after[0].Name)
		}
		switch {
		case order < 0:
			out = Values(out, Join(path, before[0].Name), before[0].Value, nil)
			before = before[1:]
		case order > 0:
			out = Values(out, Join(path, after[0].Name), nil, after[0].Value)
			after = after[1:]
		default:
			out = Values(out, Join(path, before[0].Name), before[0].Value, after[0].Value)
			before, after = before[1:], after[1:]
		}
	}
	return out
}

func lists(out []Change, path string, old, now []byte) []Change {
	before, after := Elements(old), Elements(now)
	i := 0
	for _, e := range Align(before, after) {
		here := path + "/" + strconv.Itoa(i)
		switch {
		case e.New < 0:
			out = append(out, Change{Path: here, Op: Remove, Old: before[e.Old]})
			continue
		case e.Old < 0:
			out = append(out, Change{Path: here, Op: Add, New: after[e.New]})
		case e.Alike:
			out = Values(out, here, before[e.Old], after[e.New])
		default:
			if !normal.Equal(before[e.Old], after[e.New]) {
				out = append(out, Change{Path: here, Op: Replace, Old: before[e.Old], New: after[e.New]})
			}
		}
		i++
	}
	return out
}

// Member is a member of an object.
type Member struct {
	Name  string
	Value []byte
}

// Members returns the members of an object, sorted by name.
func Members(object []byte) []Member {
	var out []Member
	rawjson.Members(object, func(name []byte, start, end int) bool {
		out = append(out, Member{rawjson.Name(name), object[start:end:end]})
		return true
	})
	slices.SortFunc(out, func(a, b Member) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// Elements returns the elements of a list.
func Elements(list []byte) [][]byte {
	var out [][]byte
	rawjson.Elements(list, func(start, end int) bool {
		out = append(out, list[start:end:end])
		return true
	})
	return out
}

var pointerEscapes = strings.NewReplacer("~", "~0", "/", "~1")

// Join appends a member name to a JSON Pointer.
func Join(path, name string) string {
	if strings.ContainsAny(name, "~/") {
		name = pointerEscapes.Replace(name)
	}
	return path + "/" + name
}

// Split returns the names and indexes that a JSON Pointer is made of.
func Split(path string) ([]string, bool) {
	if path == "" {
		return nil, true
	}
	if path[0] != '/' {
		return nil, false
	}
	parts := strings.Split(path[1:], "/")
	for i, p := range parts {
		for rest := p; ; {
			at := strings.IndexByte(rest, '~')
			if at < 0 {
				break
			}
			if at+1 >= len(rest) || rest[at+1] != '0' && rest[at+1] != '1' {
				return nil, false
			}
			rest = rest[at+2:]
		}
		parts[i] = strings.ReplaceAll(strings.ReplaceAll(p, "~1", "/"), "~0", "~")
	}
	return parts, true
}
