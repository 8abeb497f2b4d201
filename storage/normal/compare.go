package normal

import (
	"bytes"
	"hash/maphash"
	"slices"

	"github.com/asof/asof/storage/rawjson"
)

// member is one member of an object in normal form; the name as written.
type member struct{ name, value []byte }

// usual is how many members there is room for without an allocation.
const usual = 32

// appendMembers adds the members of an object to a list.
func appendMembers(list []member, object []byte) []member {
	rawjson.Members(object, func(name []byte, start, end int) bool {
		list = append(list, member{name, object[start:end]})
		return true
	})
	return list
}

// MaxNesting is how deep values may lie in others to be compared themselves, and not by a Hash. At
// each depth all that lies deeper is passed over to find where it ends, so that the work would grow
// with the depth times the size.
const MaxNesting = 32

// Equal reports whether two values in normal form are the same but for the order of members.
func Equal(a, b []byte) bool { return equal(a, b, 0) }

func equal(a, b []byte, depth int) bool {
	if bytes.Equal(a, b) {
		return true
	}
	// Reordering keeps the length.
	if len(a) != len(b) || len(a) == 0 || a[0] != b[0] {
		return false
	}
	if depth > MaxNesting {
		return Hash(a) == Hash(b)
	}
	switch a[0] {
	case '{':
		return equalObjects(a, b, depth)
	case '[':
		next := 1 // in b
		same := rawjson.Elements(a, func(start, end int) bool {
			stop := rawjson.End(b, next)
			same := stop >= 0 && equal(a[start:end], b[next:stop], depth+1)
			next = stop + 1
			return same
		})
		return same && next == len(b)
	}
	return false
}

// Hash is a hash of a value in normal form, which all that are equal to it have in this process. It
// reads the value once.
func Hash(v []byte) uint64 {
	h, _ := hashAt(v, 0)
	return h
}

// hashAt is Hash of the value that begins at v[i], and where that ends. Where there is none, as in
// damaged text, it is the end of the text.
func hashAt(v []byte, i int) (hash uint64, end int) {
	text := func(i int) (uint64, int) {
		end := rawjson.End(v, i)
		if end < 0 {
			return 0, len(v)
		}
		return maphash.Bytes(hashSeed, v[i:end]), end
	}
	if i >= len(v) || v[i] != '{' && v[i] != '[' {
		return text(i)
	}
	part := struct {
		kind          byte
		before, value uint64 // before: the name, or the hash of the elements before
	}{kind: v[i]}
	sum := uint64(0)
	for i++; i < len(v) && v[i] != '}' && v[i] != ']'; {
		if v[i] == ',' {
			i++
		}
		if part.before = sum; part.kind == '{' {
			part.before, i = text(i)
			i++ // the colon
		}
		part.value, i = hashAt(v, i)
		if h := maphash.Comparable(hashSeed, part); part.kind == '{' {
			sum += h // in any order
		} else {
			sum = h
		}
	}
	part.before, part.value = 0, sum
	return maphash.Comparable(hashSeed, part), i + 1
}

func equalObjects(a, b []byte, depth int) bool {
	var roomA, roomB [usual]member
	ma, mb := roomA[:0], roomB[:0]
	if len(a) > longObject {
		n, sum := tally(a)
		if m, other := tally(b); m != n || other != sum {
			return false
		}
		ma, mb = make([]member, 0, n), make([]member, 0, n)
	}
	ma, mb = appendMembers(ma, a), appendMembers(mb, b)
	if len(ma) != len(mb) {
		return false
	}
	sortMembers(ma)
	sortMembers(mb)
	for i := range ma {
		if !bytes.Equal(ma[i].name, mb[i].name) || !equal(ma[i].value, mb[i].value, depth+1) {
			return false
		}
	}
	return true
}

// longObject is the length from which on members are counted and hashed before there is a list of
// them, which takes 50 bytes for each.
const longObject = 4 << 10

var hashSeed = maphash.MakeSeed()

// tally returns how many members an object has, and a sum of hashes that all have that are equal to it.
func tally(object []byte) (n int, sum uint64) {
	rawjson.Members(object, func(name []byte, start, end int) bool {
		n++
		if object[start] != '{' && object[start] != '[' { // the members of these may have another order
			name = object[start-len(`":`)-len(name) : end]
		}
		sum += maphash.Bytes(hashSeed, name)
		return true
	})
	return n, sum
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
	out, ok := changedInStep(before, after)
	if !ok {
		out = changedByName(before, after)
	}
	slices.Sort(out)
	return out
}

// changedInStep compares two documents that have the same members in the same
// order, as nearly all versions of one document do; it reports whether they have.
// A member is looked at more closely only from where its bytes differ.
func changedInStep(before, after []byte) (out []string, ok bool) {
	if len(before) < 3 || len(after) < 3 || before[0] != '{' || after[0] != '{' {
		return nil, false
	}
	i, j := 1, 1
	for {
		name, start, end := rawjson.Member(after, j)
		if end < 0 {
			return nil, false
		}
		// The text behind a value is part of it here: 1 is not the beginning of 12.
		if size := end + 1 - j; i+size <= len(before) && bytes.Equal(before[i:i+size], after[j:end+1]) {
			i += size
		} else {
			was, wasStart, wasEnd := rawjson.Member(before, i)
			if wasEnd < 0 || !bytes.Equal(was, name) || before[wasEnd] != after[end] {
				return nil, false
			}
			if !Equal(before[wasStart:wasEnd], after[start:end]) {
				out = append(out, rawjson.Name(name))
			}
			i = wasEnd + 1
		}
		if j = end + 1; after[end] == '}' {
			return out, true
		}
	}
}

// changedByName compares two documents whatever their members are.
func changedByName(before, after []byte) (out []string) {
	var roomOld, roomNow [usual]member
	old, now := appendMembers(roomOld[:0], before), appendMembers(roomNow[:0], after)
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
