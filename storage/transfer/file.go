// Package transfer reads and writes the history of documents as NDJSON: one
// line of JSON for each version.
//
//	{"collection","id","at","by","message","source","op":"put"|"delete"|"prune","operation","seal","changed","data"}
//
// Invariants:
//
//   - What Export writes, Import reads. Exporting one store, importing that
//     into an empty one and exporting again gives the same bytes: the order is
//     the commit order (time, collection, id, number), members are written in
//     the order above, empty messages and sources are left out, times are
//     RFC 3339 in UTC and data is in normal form. The seal (see package seal, in
//     base64) is kept, and has to hold; a version without one gets one.
//   - Import stops at the first line that it cannot keep, and names it. What
//     came before that line is in the store, durably; the line and what follows
//     is not. Running it again skips what is there.
//   - A file that was cut off is never taken for a whole one: compressed files
//     carry checksums, and the last line of a plain one must be a whole object,
//     with a newline behind it or without.
//   - Memory does not grow with the size of the file: lines, batches and what
//     is in flight between the goroutines are bounded in bytes.
//   - A file that Export was writing when it was killed never carries the name
//     that it was asked to write.
package transfer

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// File is an export file that appears whole or not at all: it is written under
// another name in the same directory, and Commit gives it its own.
type File struct {
	out    *bufio.Writer
	codec  io.WriteCloser // nil: plain
	file   *os.File
	path   string // what it will be called
	temp   string // what it is called; "" when it is written in place
	closed bool
}

// CreateFile begins to write the file at path, compressed if that ends in .gz
// or .zst. Devices and pipes are written in place. Call Close in any case, and
// Commit before it once everything is written.
func CreateFile(path string) (*File, error) {
	f := &File{path: path}
	if target, err := filepath.EvalSymlinks(path); err == nil {
		f.path = target
	}
	info, err := os.Stat(f.path)
	switch {
	case err == nil && info.IsDir():
		return nil, fmt.Errorf("cannot write %s: it is a directory", path)
	case err == nil && !info.Mode().IsRegular():
		f.file, err = os.OpenFile(f.path, os.O_WRONLY, 0)
	case err == nil || errors.Is(err, fs.ErrNotExist):
		if f.file, err = os.CreateTemp(filepath.Dir(f.path), "."+filepath.Base(f.path)+".*.part"); err == nil {
			f.temp = f.file.Name()
		}
		if err == nil && info != nil {
			err = permitLike(f.file, info)
		}
	}
	if err != nil {
		if f.file != nil {
			err = errors.Join(err, f.Close())
		}
		return nil, fmt.Errorf("cannot write %s: %w", path, err)
	}
	f.out = bufio.NewWriterSize(f.file, 256<<10)
	f.codec, err = compressor(f.out, path)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// permitLike gives a file the permissions of the one that it will replace. Where there is none, only the owner may
// read it, as with the store. Where all files have the same, as on disks without owners, nobody may set them.
func permitLike(f *os.File, old fs.FileInfo) error {
	if is, err := f.Stat(); err != nil || is.Mode().Perm() == old.Mode().Perm() {
		return err
	}
	return f.Chmod(old.Mode().Perm())
}

// compressor returns what compresses for a file of that name, nil if nothing does.
func compressor(w io.Writer, name string) (io.WriteCloser, error) {
	switch {
	case strings.HasSuffix(name, ".gz"):
		return gzip.NewWriter(w), nil
	case strings.HasSuffix(name, ".zst"):
		return zstd.NewWriter(w)
	default:
		return nil, nil
	}
}

// Write adds uncompressed bytes.
func (f *File) Write(p []byte) (int, error) {
	if f.codec != nil {
		return f.codec.Write(p)
	}
	return f.out.Write(p)
}

// Commit finishes the file, makes it durable and gives it its name, replacing
// what had that name before.
func (f *File) Commit() error {
	err := f.finish()
	if err == nil && f.temp != "" {
		err = os.Rename(f.temp, f.path)
		if err == nil {
			f.temp = ""
			err = syncDir(filepath.Dir(f.path))
		}
	}
	if err != nil {
		return errors.Join(fmt.Errorf("cannot write %s: %w", f.path, err), f.Close())
	}
	return nil
}

// finish writes what is buffered and closes the file.
func (f *File) finish() error {
	if f.closed {
		return os.ErrClosed
	}
	if f.codec != nil {
		if err := f.codec.Close(); err != nil {
			return err
		}
	}
	if err := f.out.Flush(); err != nil {
		return err
	}
	if f.temp != "" {
		if err := f.file.Sync(); err != nil {
			return err
		}
	}
	f.closed = true
	return f.file.Close()
}

// Close removes what was written, unless it was committed.
func (f *File) Close() error {
	var err error
	if !f.closed {
		f.closed = true
		err = f.file.Close()
	}
	if f.temp != "" {
		err = errors.Join(err, os.Remove(f.temp))
		f.temp = ""
	}
	return err
}

// syncDir makes a rename in a directory durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

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

// LineError says which line of an import could not be kept, and why.
type LineError struct {
	Line int64 // counted from 1
	Err  error
}

func (e *LineError) Error() string { return fmt.Sprintf("line %d: %v", e.Line, e.Err) }

// Unwrap returns what is wrong with the line.
func (e *LineError) Unwrap() error { return e.Err }

// ErrTruncated is wrapped by the errors that report an import file that ends
// too early.
var ErrTruncated = errors.New("the file is cut off")

// ErrCorrupt is wrapped by the errors that report compressed data that does
// not decompress.
var ErrCorrupt = errors.New("the compressed data is damaged")
