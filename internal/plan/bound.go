package plan

import "errors"

// The memory of an answer that was sent is used for another one, unless it is
// too small to be worth it or too large to be kept, in bytes. A new one gets as
// much as the last answer of the same plan took, which may have been much longer,
// up to a bound.
const (
	leastRecycled = 1 << 10
	mostRecycled  = 64 << 10
	largestStart  = 256 << 10
)

// Recycle takes back the data of a plan's answer that is not used any more. Without
// the call the collector frees it.
func (e *executable) Recycle(data []byte) {
	if cap(data) >= leastRecycled && cap(data) <= mostRecycled {
		e.buffers.Put(&data)
	}
}

// buffer returns memory for an answer of about size bytes.
func (e *executable) buffer(size int64) []byte {
	if data, ok := e.buffers.Get().(*[]byte); ok {
		if int64(cap(*data)) >= size {
			return (*data)[:0]
		}
		e.buffers.Put(data)
	}
	return make([]byte, 0, min(size+size/8+64, largestStart))
}

// reused returns the memory of a list of an execution for another one, without
// what is in it, unless it is too large to be kept.
func reused[T any](list []T) []T {
	if cap(list) > mostReused {
		return nil
	}
	clear(list)
	return list[:0]
}

// mostReused is how many elements such a list has at most.
const mostReused = 4 << 10

// writtenPerLook is after how many bytes memory is taken for them: twice as much, since
// what grows is copied.
const writtenPerLook = 64 << 10

// An answer's data may be longer than is allowed (WithMaxAnswer). One byte more than that is
// kept. Writing goes on for up to mostExcess bytes, which are dropped: a non-null field
// without a value may still remove an object, and the answer is sent if what remains is
// short enough. Recorded places in the data are exact within the allowed length; beyond it
// they only say that they are beyond it.
const mostExcess = 1 << 20

// errLong ends the writing of an answer that is too long. It is no error of the answer: the
// sender refuses the answer by its length.
var errLong = errors.New("the answer is too long")

// bound drops data beyond the allowed length, and ends the writing of an answer that is much
// too long or for which there is no memory. It is called after each field, so that at most
// one field is held in excess.
func (r *run) bound() {
	switch excess := len(r.out) - r.of.most; {
	case r.late != nil:
	case excess > 1:
		r.out = r.out[:r.of.most+1]
		if r.excess += excess; r.excess > mostExcess {
			r.late = errLong
		}
	case len(r.out)-r.counted >= writtenPerLook:
		r.late = r.of.memory(r.ctx, 2*(len(r.out)-r.counted))
		r.counted = len(r.out)
	}
}

// back takes away what was written since the data was n bytes long.
func (r *run) back(n int) { r.out = r.out[:min(n, len(r.out))] }
