package transfer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// chunkBytes is about how much is read, parsed and handed on at a time.
const chunkBytes = 512 << 10

// chunk is a run of whole lines.
type chunk struct {
	text      []byte // every line with its newline
	firstLine int64  // the number of the first line, from 1
	// end is why nothing follows the text: io.EOF, or what was wrong there.
	// It is nil where another chunk follows.
	end error
}

// chunker cuts a stream into chunks.
type chunker struct {
	r       io.Reader
	rest    []byte // the beginning of the next line, in memory of its own
	line    int64  // the number of that line
	maxLine int
}

func newChunker(r io.Reader, maxLine int) *chunker {
	return &chunker{r: r, line: 1, maxLine: maxLine}
}

// next returns the next chunk, in the memory given if that is large enough. It
// must not be called after the one that has end set.
func (c *chunker) next(memory []byte) chunk {
	buf := memory[:0]
	if least := max(chunkBytes, 2*len(c.rest)); cap(buf) < least {
		buf = make([]byte, 0, least)
	}
	buf = append(buf, c.rest...)
	searched := len(buf)
	for {
		n, err := fill(c.r, buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		cut := searched + bytes.LastIndexByte(buf[searched:], '\n') + 1
		if cut == searched {
			cut = 0
		}
		searched = len(buf)
		switch {
		case err != nil:
			return c.cut(buf, cut, err)
		case cut > 0:
			return c.cut(buf, cut, nil)
		case len(buf) > c.maxLine:
			return c.cut(buf, 0, tooLong(c.maxLine))
		}
		buf = append(make([]byte, 0, 2*cap(buf)), buf...)
	}
}

// fill reads until p is full or there is an error.
func fill(r io.Reader, p []byte) (n int, err error) {
	for n < len(p) && err == nil {
		var m int
		m, err = r.Read(p[n:])
		n += m
	}
	return n, err
}

// cut makes a chunk of buf up to at and keeps what follows.
func (c *chunker) cut(buf []byte, at int, end error) chunk {
	out := chunk{text: buf[:at], firstLine: c.line, end: end}
	c.rest = append(c.rest[:0], buf[at:]...)
	c.line += int64(bytes.Count(out.text, []byte{'\n'}))
	switch {
	case end == nil:
	case !errors.Is(end, io.EOF):
		out.end = &LineError{Line: c.line, Err: end}
	case len(c.rest) > c.maxLine:
		out.end = &LineError{Line: c.line, Err: tooLong(c.maxLine)}
	case len(bytes.TrimSpace(c.rest)) == 0:
	case c.rest[0] == '{' && json.Valid(c.rest): // an object that is cut off is none
		out.text = append(buf, '\n')
	default:
		out.end = &LineError{Line: c.line, Err: fmt.Errorf("%w: it ends here in the middle of a line", ErrTruncated)}
	}
	return out
}

func tooLong(most int) error {
	return fmt.Errorf("is longer than the %d bytes that a line may have", most)
}
