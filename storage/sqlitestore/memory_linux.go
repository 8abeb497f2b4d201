package sqlitestore

import (
	"math/bits"
	"sync"
	"unsafe"

	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"
)

// SQLite's memory. The allocator that the driver brings gives memory back to
// the system whenever a size is out of use for a moment, and asks for it again
// at once: a quarter of the time of a bulk load. It also rounds sizes up to a
// power of two, so that a page cache takes twice its size. This one keeps what
// was freed for the next request of about the same size, and rounds up by at
// most an eighth. It is set before the first connection is opened; should
// something else in the process have opened one before, SQLite keeps its own.
//
// SQLite's configuration is the process's, and so is its memory.
var manageMemory = sync.OnceFunc(func() {
	tls := libc.NewTLS()
	defer tls.Close()
	methods := sqlite3.Tsqlite3_mem_methods{
		FxMalloc:   function(func(_ *libc.TLS, n int32) uintptr { return sqliteMemory.alloc(n) }),
		FxFree:     function(func(_ *libc.TLS, p uintptr) { sqliteMemory.free(p) }),
		FxRealloc:  function(func(_ *libc.TLS, p uintptr, n int32) uintptr { return sqliteMemory.realloc(p, n) }),
		FxSize:     function(func(_ *libc.TLS, p uintptr) int32 { return sizeOf(p) }),
		FxRoundup:  function(func(_ *libc.TLS, n int32) int32 { return (n + 7) &^ 7 }),
		FxInit:     function(func(*libc.TLS, uintptr) int32 { return sqlite3.SQLITE_OK }),
		FxShutdown: function(func(*libc.TLS, uintptr) {}),
	}
	// What SQLite is given must not lie on a stack, which can move.
	arg := libc.Xmalloc(tls, libc.Tsize_t(unsafe.Sizeof(methods)))
	list := libc.Xmalloc(tls, 8)
	if arg == 0 || list == 0 {
		return
	}
	defer libc.Xfree(tls, arg)
	defer libc.Xfree(tls, list)
	*(*sqlite3.Tsqlite3_mem_methods)(pointer(arg)) = methods
	sqlite3.Xsqlite3_config(tls, sqlite3.SQLITE_CONFIG_MALLOC, libc.VaList(list, arg))
})

var sqliteMemory memory

// function returns what C code calls. A func value is a pointer to where its
// code's address lies (https://golang.org/s/go11func), here in read-only data,
// as the functions close over nothing.
func function[F any](f F) uintptr { return *(*uintptr)(unsafe.Pointer(&f)) }

// pointer views an address outside of Go's memory.
func pointer(p uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&p)) }

// memory hands out blocks of the sizes 8, 16, 24 … with eight steps between
// powers of two, up to maxBlock, and cuts them from chunks, which it keeps.
// Larger blocks are the system's. Before each block lies its size, in 8 bytes.
type memory struct {
	mu         sync.Mutex
	lists      [classes]uintptr // free blocks of each size; each holds the next
	chunk, end uintptr          // what is left of the last chunk
}

const (
	blockHeader = 8
	chunkSize   = 512 << 10
	maxBlock    = 64 << 10
	classes     = 8 * 11
)

// classOf returns the class of a size of at least 1, and the size of its blocks.
func classOf(n int) (class, size int) {
	units := (n + 7) / 8 // counted from 1
	if units <= 8 {
		return units - 1, units * 8
	}
	shift := bits.Len(uint(units-1)) - 4 // so that the first four bits count
	steps := (units + 1<<shift - 1) >> shift
	return shift*8 + steps - 1, steps << shift * 8
}

func (m *memory) alloc(n int32) uintptr {
	if n <= 0 {
		return 0
	}
	class, size := 0, int(n)
	if n <= maxBlock {
		class, size = classOf(int(n))
		m.mu.Lock()
		defer m.mu.Unlock()
		if p := m.lists[class]; p != 0 {
			m.lists[class] = *(*uintptr)(pointer(p))
			return p
		}
	}
	p := m.cut(size)
	if p == 0 {
		return 0
	}
	*(*int64)(pointer(p)) = int64(size)
	return p + blockHeader
}

// cut returns fresh memory for a block and its header; 0: there is none.
func (m *memory) cut(size int) uintptr {
	need := uintptr(size + blockHeader)
	if size > maxBlock {
		return libc.Xmalloc(nil, libc.Tsize_t(need))
	}
	if m.end-m.chunk < need {
		p := libc.Xmalloc(nil, chunkSize)
		if p == 0 {
			return 0
		}
		m.chunk, m.end = p, p+chunkSize
	}
	p := m.chunk
	m.chunk += need
	return p
}

func (m *memory) free(p uintptr) {
	if p == 0 {
		return
	}
	size := int(sizeOf(p))
	if size > maxBlock {
		libc.Xfree(nil, p-blockHeader)
		return
	}
	class, _ := classOf(size)
	m.mu.Lock()
	defer m.mu.Unlock()
	*(*uintptr)(pointer(p)) = m.lists[class]
	m.lists[class] = p
}

func (m *memory) realloc(p uintptr, n int32) uintptr {
	old := sizeOf(p)
	if n <= old && n > old/2 {
		return p
	}
	q := m.alloc(n)
	if q != 0 {
		n = min(n, old)
		copy(unsafe.Slice((*byte)(pointer(q)), n), unsafe.Slice((*byte)(pointer(p)), n))
		m.free(p)
	}
	return q
}

// sizeOf returns how many bytes a block has room for.
func sizeOf(p uintptr) int32 { return int32(*(*int64)(pointer(p - blockHeader))) }
