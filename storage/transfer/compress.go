package transfer

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// The first bytes of compressed data (RFC 1952, RFC 8878).
var (
	magicGzip = []byte{0x1f, 0x8b}
	magicZstd = []byte{0x28, 0xb5, 0x2f, 0xfd}
)

// maxWindow is the largest window of zstd data that is accepted: what
// "zstd --long" makes. The decoder's memory is bounded by it.
const maxWindow = 128 << 20

// source is a stream that decompresses what it reads, as its first bytes say.
type source struct {
	io.Reader
	compressed bool
	raw        *counter
	close      func()
}

// counter counts the bytes read through it, before decompression.
type counter struct {
	r io.Reader
	n atomic.Int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n.Add(int64(n))
	return n, err
}

// openSource begins to read r. The name, which may be empty, tells what to
// expect: ".gz" and ".zst" must be what they say.
func openSource(r io.Reader, name string) (*source, error) {
	raw := &counter{r: r}
	buffered := bufio.NewReaderSize(raw, 128<<10)
	head, err := buffered.Peek(len(magicZstd))
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("cannot read: %w", err)
	}
	s := &source{raw: raw, close: func() {}}
	isGzip, isZstd := bytes.HasPrefix(head, magicGzip), bytes.HasPrefix(head, magicZstd)
	switch {
	case strings.HasSuffix(name, ".gz") && !isGzip:
		return nil, notWhatItSays(name, "gzip", len(head))
	case strings.HasSuffix(name, ".zst") && !isZstd:
		return nil, notWhatItSays(name, "zstd", len(head))
	case isGzip:
		z, err := gzip.NewReader(buffered)
		if err != nil {
			return nil, decompressError(err)
		}
		s.Reader, s.compressed = z, true
	case isZstd:
		z, err := zstd.NewReader(buffered, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, decompressError(err)
		}
		s.Reader, s.compressed, s.close = z, true, z.Close
	default:
		s.Reader = buffered
	}
	return s, nil
}

func notWhatItSays(name, format string, have int) error {
	if have < len(magicZstd) {
		return fmt.Errorf("%w: %s ends before its first block", ErrTruncated, name)
	}
	return fmt.Errorf("%s is named like %s data but is not; rename it, or compress it again", name, format)
}

// Read reads decompressed bytes. Its errors say whether the data is cut off,
// damaged, or could not be read.
func (s *source) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	if err == nil || errors.Is(err, io.EOF) {
		return n, err
	}
	if !s.compressed {
		return n, fmt.Errorf("cannot read: %w", err)
	}
	return n, decompressError(err)
}

// errFollowed is damage behind data that is as it was compressed.
var errFollowed = fmt.Errorf("%w: something else follows it", ErrCorrupt)

func decompressError(err error) error {
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return fmt.Errorf("%w: the compressed data ends too early", ErrTruncated)
	case errors.Is(err, gzip.ErrHeader), errors.Is(err, zstd.ErrMagicMismatch):
		return errFollowed
	case errors.Is(err, zstd.ErrWindowSizeExceeded):
		return fmt.Errorf("the zstd data needs a window of more than %d MB; compress it again without --ultra --long", maxWindow>>20)
	default:
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
}
