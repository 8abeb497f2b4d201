package normal

import (
	"bytes"
	"slices"

	"github.com/asof/asof/storage/rawjson"
)

// member is one member of an object in normal form; the name as written.
type member struct{ name, value []byte }

func members(object []byte) []member {
	out := make([]member, 0, 16)
	rawjson.Members(object, func(name []byte, start, end int) bool {
		out = append(out, member{name, object[start:end]})
		return true
	})
	return out
}

// Equal reports whether two values in normal form are the same but for the
// order of members.
func Equal(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	// Reordering keeps the length.
	if len(a) != len(b) || len(a) == 0 || a[0] != b[0] {
		return false
	}
	switch a[0] {
	case '{':
		ma, mb := members(a), members(b)
		if len(ma) != len(mb) {
			return false
		}
		sortMembers(ma)
		sortMembers(mb)
		for i := range ma {
			if !bytes.Equal(ma[i].name, mb[i].name) || !Equal(ma[i].value, mb[i].value) {
				return false
			}
		}
		return true
	case '[':
		var ea, eb [][]byte
		rawjson.Elements(a, func(start, end int) bool { ea = append(ea, a[start:end]); return true })
		rawjson.Elements(b, func(start, end int) bool { eb = append(eb, b[start:end]); return true })
		return slices.EqualFunc(ea, eb, Equal)
	}
	return false
}

func sortMembers(ms []member) {
	slices.SortFunc(ms, func(x, y member) int { return bytes.Compare(x.name, y.name) })
}

// Changed returns the names of the top-level members in which two documents in
// normal form differ, sorted. Nil stands for a document without members.
func Changed(before, after []byte) []string {
	if bytes.Equal(before, after) {
		return nil
	}
	old, now := members(before), members(after)
	var out []string
	if sameNames(old, now) {
		for i := range old {
			if !Equal(old[i].value, now[i].value) {
				out = append(out, rawjson.Name(old[i].name))
			}
		}
	} else {
		sortMembers(old)
		sortMembers(now)
		for len(old) > 0 || len(now) > 0 {
			switch order := nextName(old, now); {
			case order < 0:
				out = append(out, rawjson.Name(old[0].name))
				old = old[1:]
			case order > 0:
				out = append(out, rawjson.Name(now[0].name))
				now = now[1:]
			default:
				if !Equal(old[0].value, now[0].value) {
					out = append(out, rawjson.Name(old[0].name))
				}
				old, now = old[1:], now[1:]
			}
		}
	}
	slices.Sort(out)
	return out
}

func nextName(old, now []member) int {
	switch {
	case len(old) == 0:
		return 1
	case len(now) == 0:
		return -1
	default:
		return bytes.Compare(old[0].name, now[0].name)
	}
}

func sameNames(a, b []member) bool {
	return slices.EqualFunc(a, b, func(x, y member) bool { return bytes.Equal(x.name, y.name) })
}
