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
//     long names, is compared as a whole. So are lists and objects with more than
//     MaxElements elements or members, or of more than maxBytes.
package diff

import (
	"bytes"
	"iter"
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

// Values yields the changes between two values, as far as they are wanted. Nil stands
// for a value that is not there. Paths begin with the given one.
func Values(path string, old, now []byte) iter.Seq[Change] {
	return func(yield func(Change) bool) {
		if alikeInKind(old, now) {
			visitor(yield).values(Room(path), old, now)
		} else if c, changed := asWhole(old, now); changed {
			c.Path = path
			yield(c)
		}
	}
}

// alikeInKind reports whether both values are objects, or lists.
func alikeInKind(old, now []byte) bool {
	return old != nil && now != nil && old[0] == now[0] && (old[0] == '{' || old[0] == '[')
}

// asWhole is the change, without its path, between values that are not compared by their parts.
func asWhole(old, now []byte) (c Change, changed bool) {
	switch {
	case old == nil && now == nil:
		return c, false
	case old == nil:
		return Change{Op: Add, New: now}, true
	case now == nil:
		return Change{Op: Remove, Old: old}, true
	}
	return Change{Op: Replace, Old: old, New: now}, !normal.Equal(old, now)
}

// visitor is given one change after the other; it returns false for the last one that
// is wanted. So do its methods, which write what is below a path behind it.
type visitor func(Change) bool

func (visit visitor) values(path, old, now []byte) bool {
	if alikeInKind(old, now) && !bytes.Equal(old, now) && !Whole(rawjson.View(path), old, now) {
		if old[0] == '{' {
			return visit.objects(path, old, now)
		}
		return visit.lists(path, old, now)
	}
	c, changed := asWhole(old, now)
	if !changed {
		return true
	}
	c.Path = string(path)
	return visit(c)
}

// maxPath and maxNesting bound the paths, in bytes and in steps, below which
// changes are reported one by one. Each of a thousand numbers in a list would
// otherwise repeat the path of the list, however long that is.
const (
	maxPath    = 512
	maxNesting = 32
)

// MaxElements is how many elements a list may have, and members an object, to be compared
// by them: to compare two lists takes some 100 bytes for each element, and to write one up to
// 15 µs, where it is an entry of an index.
const MaxElements = 30_000

// maxBytes is how long such a list or object may be: what is compared is read some
// times.
const maxBytes = 2 << 20

// Whole reports whether values at a path are compared as a whole, because the paths inside
// would be too long, or one of the values was erased, or has more than MaxElements parts or maxBytes.
func Whole(path string, values ...[]byte) bool {
	return len(path) > maxPath || strings.Count(path, "/") > maxNesting || slices.ContainsFunc(values, func(v []byte) bool {
		if len(v) < 2*MaxElements || len(v) > maxBytes {
			return len(v) > maxBytes || rawjson.Erased(v)
		}
		if bytes.Count(v, []byte(",")) < MaxElements { // quicker than to look for its own parts
			return false
		}
		n := 0
		more := func() bool { n++; return n <= MaxElements }
		if v[0] == '[' {
			rawjson.Elements(v, func(int, int) bool { return more() })
		} else {
			rawjson.Members(v, func([]byte, int, int) bool { return more() })
		}
		return n > MaxElements
	})
}

func (visit visitor) objects(path, old, now []byte) bool {
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
		more := true
		switch {
		case order < 0:
			more = visit.values(Append(path, before[0].Name), before[0].Value, nil)
			before = before[1:]
		case order > 0:
			more = visit.values(Append(path, after[0].Name), nil, after[0].Value)
			after = after[1:]
		default:
			if !bytes.Equal(before[0].Value, after[0].Value) {
				more = visit.values(Append(path, before[0].Name), before[0].Value, after[0].Value)
			}
			before, after = before[1:], after[1:]
		}
		if !more {
			return false
		}
	}
	return true
}

func (visit visitor) lists(path, old, now []byte) bool {
	before, after := Elements(old), Elements(now)
	i, more := 0, true
	here := func() []byte { return strconv.AppendInt(append(path, '/'), int64(i), 10) }
	for e := range Align(before, after) {
		switch {
		case e.New < 0:
			if !visit(Change{Path: string(here()), Op: Remove, Old: before[e.Old]}) {
				return false
			}
			continue
		case e.Old < 0:
			more = visit(Change{Path: string(here()), Op: Add, New: after[e.New]})
		case e.Alike:
			more = visit.values(here(), before[e.Old], after[e.New])
		case !normal.Equal(before[e.Old], after[e.New]):
			more = visit(Change{Path: string(here()), Op: Replace, Old: before[e.Old], New: after[e.New]})
		}
		if !more {
			return false
		}
		i++
	}
	return true
}

// Member is a member of an object.
type Member struct {
	Name  string
	Value []byte
}

// The parts of a value of longValue bytes are counted before there is a list of more than fewParts.
const (
	longValue = 4 << 10
	fewParts  = 16
)

// Members returns the members of an object, sorted by name. They are parts of it.
func Members(object []byte) []Member {
	var out []Member
	sorted := true
	rawjson.Members(object, func(name []byte, start, end int) bool {
		if len(out) == fewParts && len(object) >= longValue {
			n := 0
			rawjson.Members(object, func([]byte, int, int) bool { n++; return true })
			out = slices.Grow(out, n-fewParts)
		}
		m := Member{Value: object[start:end:end]}
		if bytes.IndexByte(name, '\\') < 0 {
			m.Name = rawjson.View(name)
		} else {
			m.Name = rawjson.Name(name)
		}
		sorted = sorted && (len(out) == 0 || out[len(out)-1].Name < m.Name)
		out = append(out, m)
		return true
	})
	if !sorted {
		slices.SortFunc(out, func(a, b Member) int { return strings.Compare(a.Name, b.Name) })
	}
	return out
}

// Elements returns the elements of a list, which are parts of it.
func Elements(list []byte) [][]byte {
	var out [][]byte
	rawjson.Elements(list, func(start, end int) bool {
		if len(out) == fewParts && len(list) >= longValue {
			n := 0
			rawjson.Elements(list, func(int, int) bool { n++; return true })
			out = slices.Grow(out, n-fewParts)
		}
		out = append(out, list[start:end:end])
		return true
	})
	return out
}

var pointerEscapes = strings.NewReplacer("~", "~0", "/", "~1")

// Join appends a member name to a JSON Pointer.
func Join(path, name string) string { return path + "/" + escaped(name) }

// Room returns a JSON Pointer with room for those of values that are not compared as a whole, so that
// Append takes no memory for each.
func Room(path string) []byte { return append(make([]byte, 0, 2*maxPath), path...) }

// Append appends a member name to a JSON Pointer that is being put together.
func Append(path []byte, name string) []byte { return append(append(path, '/'), escaped(name)...) }

func escaped(name string) string {
	if strings.ContainsAny(name, "~/") {
		return pointerEscapes.Replace(name)
	}
	return name
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
