package diff

import (
	"slices"
	"strconv"

	"github.com/asof/asof/storage/normal"
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

// Align returns an edit script between two lists. It is the shortest one where
// that can be found with little work.
func Align(old, now [][]byte) []Edit {
	head := 0
	for head < len(old) && head < len(now) && normal.Equal(old[head], now[head]) {
		head++
	}
	tail := 0
	for tail < len(old)-head && tail < len(now)-head && normal.Equal(old[len(old)-1-tail], now[len(now)-1-tail]) {
		tail++
	}
	edits := make([]Edit, 0, max(len(old), len(now)))
	for i := range head {
		edits = append(edits, Edit{Old: i, New: i})
	}
	a, b := intern(old[head:len(old)-tail], now[head:len(now)-tail])
	i, j := head, head
	for _, m := range common(a, b) {
		edits = gap(edits, old, now, i, head+m.old, j, head+m.new)
		edits = append(edits, Edit{Old: head + m.old, New: head + m.new})
		i, j = head+m.old+1, head+m.new+1
	}
	edits = gap(edits, old, now, i, len(old)-tail, j, len(now)-tail)
	for k := range tail {
		edits = append(edits, Edit{Old: len(old) - tail + k, New: len(now) - tail + k})
	}
	return edits
}

// intern numbers the elements, so that equal ones have equal numbers.
func intern(old, now [][]byte) (a, b []int) {
	if len(old) == 0 || len(now) == 0 {
		return nil, nil
	}
	numbers := map[string]int{}
	var text []byte
	number := func(elems [][]byte) []int {
		out := make([]int, len(elems))
		for i, e := range elems {
			key := e
			if len(e) > 0 && (e[0] == '{' || e[0] == '[') {
				text = appendCanonical(text[:0], e)
				key = text
			}
			n, ok := numbers[string(key)]
			if !ok {
				n = len(numbers)
				numbers[string(key)] = n
			}
			out[i] = n
		}
		return out
	}
	return number(old), number(now)
}

// appendCanonical writes a value with its members in order.
func appendCanonical(dst, v []byte) []byte {
	switch v[0] {
	case '{':
		dst = append(dst, '{')
		for _, m := range Members(v) {
			dst = append(strconv.AppendQuote(dst, m.Name), ':')
			dst = append(appendCanonical(dst, m.Value), ',')
		}
		return append(dst, '}')
	case '[':
		dst = append(dst, '[')
		for _, e := range Elements(v) {
			dst = append(appendCanonical(dst, e), ',')
		}
		return append(dst, ']')
	}
	return append(dst, v...)
}

// match is an element that both lists have.
type match struct{ old, new int }

// maxScript bounds the length of the scripts that Myers' algorithm looks for:
// its time is the length of the lists times this, its memory the square of it.
const maxScript = 400

// common returns a common subsequence of two lists: the longest, if the script
// between them is short enough to be found quickly.
func common(a, b []int) []match {
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
func myers(a, b []int) ([]match, bool) {
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
func walk(a, b []int, trace [][]int32) []match {
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
			out = append(out, match{x, y})
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
func increasing(a, b []int) []match {
	free := make([]int32, max(slices.Max(a), slices.Max(b))+1) // the first free place of a number in b, plus 1
	next := make([]int32, len(b))                              // the one after a place
	for j, x := range slices.Backward(b) {
		next[j], free[x] = free[x], int32(j+1)
	}
	var pairs []match
	for i, x := range a {
		if j := free[x]; j > 0 {
			pairs = append(pairs, match{i, int(j - 1)})
			free[x] = next[j-1]
		}
	}
	ends := []int{} // ends[l]: the pair with the least new index that ends a run of length l+1
	before := make([]int, len(pairs))
	for p := range pairs {
		l, _ := slices.BinarySearchFunc(ends, pairs[p].new, func(q, j int) int { return pairs[q].new - j })
		before[p] = -1
		if l > 0 {
			before[p] = ends[l-1]
		}
		if l == len(ends) {
			ends = append(ends, p)
		} else {
			ends[l] = p
		}
	}
	var out []match
	if len(ends) > 0 {
		for p := ends[len(ends)-1]; p >= 0; p = before[p] {
			out = append(out, pairs[p])
		}
	}
	slices.Reverse(out)
	return out
}
