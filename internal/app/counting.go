package app

import (
	"context"
	"iter"

	"github.com/asof/asof/internal/app/httpapi"
	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
)

// counting is an engine that counts the versions that each operation reads, and
// their bytes. It stops an operation that has read more than it may; what is not
// done for an operation, such as an import, is not limited.
type counting struct {
	driver.Engine
	remembers driver.Rememberer // the engine, or nil
	first     int               // so many references are read at first
}

// counted counts what is read of an engine.
func counted(engine driver.Engine) driver.Engine {
	c := counting{Engine: engine, first: getFirst}
	c.remembers, _ = driver.As[driver.Rememberer](engine)
	if _, distant := driver.As[driver.Distant](engine); distant {
		c.first = getTogether // each call goes there and back
	}
	return c
}

// Unwrap returns the engine that is counted, see driver.As.
func (c counting) Unwrap() driver.Engine { return c.Engine }

// References can lead to many documents at once: so many are read before they are
// counted, where they are small, and at first; and so many bytes at a time after that.
const (
	getTogether = 256
	getFirst    = 8
	getBytes    = 1 << 20
)

func (c counting) Get(ctx context.Context, collection string, refs []driver.Ref, fields []string) ([]*driver.Version, error) {
	n := c.first
	if len(refs) <= n {
		versions, _, err := c.get(ctx, collection, refs, fields)
		return versions, err
	}
	all := make([]*driver.Version, 0, len(refs))
	for len(refs) > 0 {
		n = min(n, len(refs))
		versions, size, err := c.get(ctx, collection, refs[:n], fields)
		if err != nil {
			return nil, err
		}
		all, refs = append(all, versions...), refs[n:]
		n = min(max(n*getBytes/max(size, 1), 1), getTogether)
	}
	return all, nil
}

// get also returns the bytes of what it has read.
func (c counting) get(ctx context.Context, collection string, refs []driver.Ref, fields []string) ([]*driver.Version, int, error) {
	versions, err := c.Engine.Get(ctx, collection, refs, fields)
	if err != nil {
		return nil, 0, err
	}
	size, err := count(ctx, versions...)
	return versions, size, err
}

// Remembered implements driver.Rememberer; nil where the engine does not.
func (c counting) Remembered(ctx context.Context, collection, key string, number int64) (*driver.Version, error) {
	if c.remembers == nil {
		return nil, nil
	}
	v, err := c.remembers.Remembered(ctx, collection, key, number)
	if v == nil || err != nil {
		return nil, err
	}
	_, err = count(ctx, v)
	return v, err
}

func (c counting) Query(ctx context.Context, q *driver.Query) ([]*driver.Version, error) {
	asked := *q
	asked.Bytes = httpapi.LeftToRead(ctx)
	versions, err := c.Engine.Query(ctx, &asked)
	if err != nil {
		return nil, err
	}
	_, err = count(ctx, versions...)
	return versions, err
}

func (c counting) Log(ctx context.Context, q *driver.LogQuery) iter.Seq2[*driver.Version, error] {
	return func(yield func(*driver.Version, error) bool) {
		for v, err := range c.Engine.Log(ctx, q) {
			if err == nil {
				_, err = count(ctx, v)
			}
			if !yield(v, err) || err != nil {
				return
			}
		}
	}
}

// usualSize is the size from which on the bytes of a document count twice: to compare it, or to
// answer it, takes several times its memory, all of which exists at once.
const usualSize = 64 << 10

// count counts versions, and returns their bytes; nil ones are those that were not
// there.
func count(ctx context.Context, versions ...*driver.Version) (size int, err error) {
	found, again := 0, 0
	for _, v := range versions {
		if v != nil {
			found++
			size += len(v.Data)
			again += max(len(v.Data)-usualSize, 0)
		}
	}
	if err := httpapi.CountRead(ctx, found, size+again); err != nil {
		return size, &storage.Error{Code: storage.CodeQueryTooComplex, Message: err.Error()}
	}
	return size, nil
}
