package diff

import "bytes"

// maxGap bounds the pairs of elements that are compared with each other, and
// maxGapBytes the bytes of all of them.
const (
	maxGap      = 4096
	maxGapBytes = 256 << 10
)

// The cost of a step in a gap. A change of one element into another is one
// step, cheaper the more they have in common.
const (
	costOne     = 100 // remove, or add
	costReplace = 100
	costOther   = 110 // replace by a value of another kind
)

// gap yields the edits of a part of the lists that have no element in common. It returns
// false where no more are wanted.
func gap(old, now [][]byte, i0, i1, j0, j1 int, yield func(Edit) bool) bool {
	if i0 < i1 && j0 < j1 && worthwhile(old[i0:i1], now[j0:j1]) {
		return pairUp(old, now, i0, i1, j0, j1, yield)
	}
	more := true
	for ; more && i0 < i1 && j0 < j1; i0, j0 = i0+1, j0+1 {
		more = yield(Edit{Old: i0, New: j0, Alike: alike(old[i0], now[j0]) > 0})
	}
	for ; more && i0 < i1; i0++ {
		more = yield(Edit{Old: i0, New: -1})
	}
	for ; more && j0 < j1; j0++ {
		more = yield(Edit{Old: -1, New: j0})
	}
	return more
}

// worthwhile reports whether pairing up the elements by what they have in
// common can matter and is cheap enough.
func worthwhile(old, now [][]byte) bool {
	if len(old) == len(now) && len(old) == 1 || len(old)*len(now) > maxGap {
		return false
	}
	composite, size := false, 0
	for _, list := range [][][]byte{old, now} {
		for _, e := range list {
			composite = composite || e[0] == '{' || e[0] == '['
			size += len(e)
		}
	}
	return composite && size*min(len(old), len(now)) <= maxGapBytes
}

// pairUp finds the cheapest alignment of a gap (Needleman and Wunsch, 1970).
func pairUp(old, now [][]byte, i0, i1, j0, j1 int, yield func(Edit) bool) bool {
	k, m := i1-i0, j1-j0
	cost := make([]int, (k+1)*(m+1))
	pair := make([]int, k*m) // what a pair has in common, in percent
	at := func(i, j int) int { return i*(m+1) + j }
	for i := k; i >= 0; i-- {
		for j := m; j >= 0; j-- {
			switch {
			case i == k && j == m:
			case i == k:
				cost[at(i, j)] = cost[at(i, j+1)] + costOne
			case j == m:
				cost[at(i, j)] = cost[at(i+1, j)] + costOne
			default:
				pair[i*m+j] = alike(old[i0+i], now[j0+j])
				cost[at(i, j)] = min(
					cost[at(i+1, j+1)]+pairCost(old[i0+i], now[j0+j], pair[i*m+j]),
					cost[at(i+1, j)]+costOne,
					cost[at(i, j+1)]+costOne,
				)
			}
		}
	}
	for i, j := 0, 0; i < k || j < m; {
		e := Edit{Old: i0 + i, New: j0 + j}
		switch {
		case i < k && j < m && cost[at(i, j)] == cost[at(i+1, j+1)]+pairCost(old[i0+i], now[j0+j], pair[i*m+j]):
			e.Alike = pair[i*m+j] > 0
			i, j = i+1, j+1
		case i < k && cost[at(i, j)] == cost[at(i+1, j)]+costOne:
			e.New = -1
			i++
		default:
			e.Old = -1
			j++
		}
		if !yield(e) {
			return false
		}
	}
	return true
}

func pairCost(old, now []byte, common int) int {
	if kind(old) != kind(now) {
		return costOther
	}
	return costReplace - common*9/10
}

func kind(v []byte) byte {
	switch v[0] {
	case '{', '[', '"', 't', 'n':
		return v[0]
	case 'f':
		return 't'
	}
	return '0'
}

// alike says how much two different values have in common, in percent; 0 means
// that one replaces the other as a whole.
func alike(old, now []byte) int {
	if old[0] != now[0] {
		return 0
	}
	same, all := 0, 0
	switch old[0] {
	case '{':
		a, b := Members(old), Members(now)
		all = max(len(a), len(b))
		for len(a) > 0 && len(b) > 0 {
			switch {
			case a[0].Name < b[0].Name:
				a = a[1:]
			case a[0].Name > b[0].Name:
				b = b[1:]
			default:
				if bytes.Equal(a[0].Value, b[0].Value) {
					same++
				}
				a, b = a[1:], b[1:]
			}
		}
	case '[':
		a, b := Elements(old), Elements(now)
		all = max(len(a), len(b))
		for i := range min(len(a), len(b)) {
			if bytes.Equal(a[i], b[i]) {
				same++
			}
		}
	default:
		return 0
	}
	if same == 0 {
		return 0
	}
	return max(1, same*100/all)
}
