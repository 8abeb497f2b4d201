package driver

import "sync/atomic"

// Notes are kept beside a version by an engine that returns it more than once:
// what a reader found out about its Data, so that the next one need not. They
// are one value of the readers' choice, which is shared and never modified, and
// has to say itself what it is about. The zero Notes are empty; engines never
// look into them, and need not have any: readers then find out again.
type Notes struct{ value atomic.Pointer[any] }

// Get returns what was kept last; nil for nothing, also on nil Notes.
func (n *Notes) Get() any {
	if n == nil {
		return nil
	}
	if v := n.value.Load(); v != nil {
		return *v
	}
	return nil
}

// Keep keeps a value in place of the last one; nil Notes keep nothing.
func (n *Notes) Keep(value any) {
	if n != nil {
		n.value.Store(&value)
	}
}
