package diff

import (
	"bytes"
	"iter"
	"slices"
	"strings"

	"github.com/asof/asof/storage/normal"
	"github.com/asof/asof/storage/rawjson"
)

// Edit is one step of the way from one list to another: an element that is in
// both (equal, or changed into the other), or in one only (the other index is
// -1). The indexes ascend from step to step.
type Edit struct {
	Old, New int
	// Alike says that the elements differ and have something in common: they
	// are to be compared inside.
	Alike bool
}

// Align yields an edit script between two lists. It is the shortest one where
// that can be found with little work.
func Align(old, now [][]byte) iter.Seq[Edit] {
	return func(yield func(Edit) bool) {
		head := 0
		for head < len(old) && head < len(now) && normal.Equal(old[head], now[head]) {
			if !yield(Edit{Old: head, New: head}) {
				return
			}
			head++
		}
		tail := 0
		for tail < len(old)-head && tail < len(now)-head && normal.Equal(old[len(old)-1-tail], now[len(now)-1-tail]) {
			tail++
		}
		a, b := intern(old[head:len(old)-tail], now[head:len(now)-tail])
		i, j := head, head
		for _, m := range common(a, b) {
			x, y := head+int(m.old), head+int(m.new)
			if !gap(old, now, i, x, j, y, yield) || !yield(Edit{Old: x, New: y}) {
				return
			}
			i, j = x+1, y+1
		}
		if !gap(old, now, i, len(old)-tail, j, len(now)-tail, yield) {
			return
		}
		for k := tail; k > 0 && yield(Edit{Old: len(old) - k, New: len(now) - k}); k-- {
		}
	}
}

// intern numbers the elements, so that equal ones have equal numbers. Those with parts are told
// apart by hashes, which read them once.
func intern(old, now [][]byte) (a, b []int32) {
	if len(old) == 0 || len(now) == 0 {
		return nil, nil
	}
	texts, hashes, known := map[string]int32{}, map[uint64]int32{}, int32(0)
	number := func(elems [][]byte) []int32 {
		out := make([]int32, len(elems))
		for i, e := range elems {
			if e[0] == '{' || e[0] == '[' {
				out[i] = numberOf(hashes, normal.Hash(e), &known)
			} else {
				out[i] = numberOf(texts, rawjson.View(e), &known) // lists are not changed while they are compared
			}
		}
		return out
	}
	return number(old), number(now)
}

// numberOf returns the number of a key: the next one for one that is not known.
func numberOf[K comparable](numbers map[K]int32, key K, known *int32) int32 {
	n, ok := numbers[key]
	if !ok {
		n = *known
		numbers[key] = n
		*known++
	}
	return n
}

// match is an element that both lists have.
type match struct{ old, new int32 }

// maxScript bounds the length of the scripts that Myers' algorithm looks for:
// its time is the length of the lists times this, its memory the square of it.
const maxScript = 400

// common returns a common subsequence of two lists: the longest, if the script
// between them is short enough to be found quickly.
func common(a, b []int32) []match {
	if len(a) == 0 || len(b) == 0 {
		return nil
	}
	if m, ok := myers(a, b); ok {
		return m
	}
	return increasing(a, b)
}

// myers finds the longest common subsequence: the greedy algorithm of E. Myers,
// "An O(ND) Difference Algorithm and Its Variations", Algorithmica 1 (1986). It
// gives up when the script is longer than maxScript.
func myers(a, b []int32) ([]match, bool) {
	n, m := len(a), len(b)
	most := min(n+m, maxScript)
	v := make([]int32, 2*most+3) // furthest x on each diagonal k, at v[k+most+1]
	at := func(k int) int { return k + most + 1 }
	var trace [][]int32 // what v was before step d, from -d to d
	for d := 0; d <= most; d++ {
		trace = append(trace, slices.Clone(v[at(-d)-1:at(d)+2]))
		for k := -d; k <= d; k += 2 {
			var x int
			if k == -d || k != d && v[at(k-1)] < v[at(k+1)] {
				x = int(v[at(k+1)])
			} else {
				x = int(v[at(k-1)]) + 1
			}
			for x < n && x-k < m && a[x] == b[x-k] {
				x++
			}
			v[at(k)] = int32(x)
			if x >= n && x-k >= m {
				return walk(a, b, trace), true
			}
		}
	}
	return nil, false
}

// walk follows a script back to its beginning and collects the matches.
func walk(a, b []int32, trace [][]int32) []match {
	var out []match
	x, y := len(a), len(b)
	for d, v := range slices.Backward(trace) { // v[k+d+1] is diagonal k
		k := x - y
		from := k - 1
		if k == -d || k != d && v[k-1+d+1] < v[k+1+d+1] {
			from = k + 1
		}
		px := int(v[from+d+1])
		py := px - from
		if d == 0 {
			px, py = 0, 0
		}
		for x > px && y > py && a[x-1] == b[y-1] {
			x, y = x-1, y-1
			out = append(out, match{int32(x), int32(y)})
		}
		x, y = px, py
	}
	slices.Reverse(out)
	return out
}

// increasing finds a common subsequence that need not be the longest, in
// O(n log n): each element takes the first equal one that is free, and of these
// pairs the longest run that ascends in both lists is kept (as in patience
// diff; the run is found as by C. Schensted, 1961).
func increasing(a, b []int32) []match {
	free := make([]int32, max(slices.Max(a), slices.Max(b))+1) // the first free place of a number in b, plus 1
	next := make([]int32, len(b))                              // the one after a place
	for j, x := range slices.Backward(b) {
		next[j], free[x] = free[x], int32(j+1)
	}
	pairs := make([]match, 0, min(len(a), len(b)))
	for i, x := range a {
		if j := free[x]; j > 0 {
			pairs = append(pairs, match{int32(i), j - 1})
			free[x] = next[j-1]
		}
	}
	ends := []int32{} // ends[l]: the pair with the least new index that ends a run of length l+1
	before := make([]int32, len(pairs))
	for p := range pairs {
		l, _ := slices.BinarySearchFunc(ends, pairs[p].new, func(q, j int32) int { return int(pairs[q].new - j) })
		before[p] = -1
		if l > 0 {
			before[p] = ends[l-1]
		}
		if l == len(ends) {
			ends = append(ends, int32(p))
		} else {
			ends[l] = int32(p)
		}
	}
	out := make([]match, 0, len(ends))
	if len(ends) > 0 {
		for p := ends[len(ends)-1]; p >= 0; p = before[p] {
			out = append(out, pairs[p])
		}
	}
	slices.Reverse(out)
	return out
}

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
		more = yield(Edit{Old: i0, New: j0, Alike: alike(partsOf(old[i0]), partsOf(now[j0])) > 0})
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
	before, after := make([]parts, k), make([]parts, m) // each is compared with many
	for i := range before {
		before[i] = partsOf(old[i0+i])
	}
	for j := range after {
		after[j] = partsOf(now[j0+j])
	}
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
				pair[i*m+j] = alike(before[i], after[j])
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

// parts are those of a value: none of what has none.
type parts struct {
	members  []Member
	elements [][]byte
}

func partsOf(v []byte) (p parts) {
	switch v[0] {
	case '{':
		p.members = Members(v)
	case '[':
		p.elements = Elements(v)
	}
	return p
}

// alike says how much two different values have in common, in percent; 0 means
// that one replaces the other as a whole.
func alike(old, now parts) int {
	same := 0
	for i, e := range old.elements[:min(len(old.elements), len(now.elements))] {
		if bytes.Equal(e, now.elements[i]) {
			same++
		}
	}
	for a, b := old.members, now.members; len(a) > 0 && len(b) > 0; {
		switch order := strings.Compare(a[0].Name, b[0].Name); {
		case order < 0:
			a = a[1:]
		case order > 0:
			b = b[1:]
		default:
			if bytes.Equal(a[0].Value, b[0].Value) {
				same++
			}
			a, b = a[1:], b[1:]
		}
	}
	if same == 0 {
		return 0
	}
	return max(1, same*100/max(len(old.members), len(now.members), len(old.elements), len(now.elements)))
}
