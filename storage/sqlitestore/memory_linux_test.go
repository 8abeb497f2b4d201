package sqlitestore

import (
	"bytes"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"unsafe"
)

func TestSQLiteUsesOurMemory(t *testing.T) {
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "a.db"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	sqliteMemory.mu.Lock()
	defer sqliteMemory.mu.Unlock()
	if sqliteMemory.chunk == 0 {
		t.Error("a store is open, and no block was handed out: SQLite has another allocator")
	}
}

func TestClassesOfBlocks(t *testing.T) {
	last := -1
	for n := 1; n <= maxBlock; n++ {
		class, size := classOf(n)
		if class < last || class > last+1 || class >= classes {
			t.Fatalf("size %d is of class %d, the one before of %d", n, class, last)
		}
		if size < n || size > max(n+8, n+n/8) || size%8 != 0 || size > maxBlock {
			t.Fatalf("size %d has blocks of %d", n, size)
		}
		if c, s := classOf(size); c != class || s != size {
			t.Fatalf("a block of %d for %d is of class %d, not %d", size, n, c, class)
		}
		last = class
	}
}

func TestBlocksKeepTheirContent(t *testing.T) {
	type block struct {
		p    uintptr
		want []byte
	}
	var m memory
	random := rand.New(rand.NewPCG(1, 2))
	view := func(b block) []byte { return unsafe.Slice((*byte)(pointer(b.p)), len(b.want)) }
	blocks := make([]block, 200)
	for i := range 50_000 {
		b := &blocks[random.IntN(len(blocks))]
		n := 1 + random.IntN(1<<random.IntN(18))
		if b.p != 0 && !bytes.Equal(view(*b), b.want) {
			t.Fatalf("step %d: a block of %d bytes has changed", i, len(b.want))
		}
		switch {
		case b.p == 0:
			b.p = m.alloc(int32(n))
		case i%2 == 0:
			m.free(b.p)
			*b = block{}
			continue
		default:
			b.p = m.realloc(b.p, int32(n))
			kept := block{b.p, b.want[:min(n, len(b.want))]}
			if !bytes.Equal(view(kept), kept.want) {
				t.Fatalf("step %d: growing or shrinking a block has changed it", i)
			}
		}
		if b.p == 0 || b.p%8 != 0 || int(sizeOf(b.p)) < n {
			t.Fatalf("step %d: a block for %d bytes at %#x", i, n, b.p)
		}
		b.want = bytes.Repeat([]byte{byte(i)}, n)
		copy(view(*b), b.want)
	}
	for _, b := range blocks {
		m.free(b.p)
	}
}
