package transfer

import (
	"bufio"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

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
		f.temp = filepath.Join(filepath.Dir(f.path), "."+filepath.Base(f.path)+"."+rand.Text()[:10]+".part")
		f.file, err = createLike(f.temp, info)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot write %s: %w", path, err)
	}
	f.out = bufio.NewWriterSize(f.file, 256<<10)
	f.codec, err = compressor(f.out, path)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// createLike makes a file with the permissions of the one that it will replace;
// nil: there is none, and only the owner may read it, as with the store.
func createLike(path string, old fs.FileInfo) (*os.File, error) {
	const flags = os.O_WRONLY | os.O_CREATE | os.O_EXCL
	if old == nil {
		return os.OpenFile(path, flags, 0o600)
	}
	f, err := os.OpenFile(path, flags, old.Mode().Perm())
	if err != nil {
		return nil, err
	}
	// The process's mask may have taken some away. Where all files have the same,
	// as on disks without owners, nobody may set them.
	info, err := f.Stat()
	if err == nil && info.Mode().Perm() != old.Mode().Perm() {
		err = f.Chmod(old.Mode().Perm())
	}
	if err != nil {
		return nil, errors.Join(err, f.Close(), os.Remove(path))
	}
	return f, nil
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
