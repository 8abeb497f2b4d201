package sqlitestore

// stateCache keeps the states of documents between transactions, so that a
// bulk load, or a row of updates of one document, does not read them again.
// It belongs to the writer, the only one who changes documents.
type stateCache struct {
	states map[stateKey]*state
	bytes  int
}

type stateKey struct {
	coll int64
	key  string
}

// Limits of the cache between transactions.
const (
	maxCachedBytes  = 24 << 20
	maxCachedStates = 50_000
)

func (c *stateCache) get(coll *collection, key string) *state {
	return c.states[stateKey{coll.id, key}]
}

func (c *stateCache) put(st *state) {
	if c.states == nil {
		c.states = map[stateKey]*state{}
	}
	c.states[stateKey{st.coll.id, st.key}] = st
	c.bytes += len(st.key) + 256
	for _, entries := range st.entries {
		for _, e := range entries {
			c.bytes += len(e.value) + 64
		}
	}
}

func (c *stateCache) clear() { *c = stateCache{} }

// trim empties a cache that has grown too large. It must not be called within
// a transaction, whose states are all here.
func (c *stateCache) trim() {
	if c.bytes > maxCachedBytes || len(c.states) > maxCachedStates {
		c.clear()
	}
}
