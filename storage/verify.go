package storage

import (
	"bytes"
	"context"
	"iter"
	"sync/atomic"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/seal"
)

// VerifyReads returns an engine of which one in so many reads is verified: 1 is each. The versions
// that it returns are then read again, with those before them, and the read fails with CodeInternal where
// one is not as it was sealed.
func VerifyReads(engine driver.Engine, every int64) driver.Engine {
	return &verifying{Engine: engine, every: every}
}

type verifying struct {
	driver.Engine
	every int64
	reads atomic.Int64
}

// Unwrap is for driver.As.
func (e *verifying) Unwrap() driver.Engine { return e.Engine }

func (e *verifying) Get(ctx context.Context, collection string, refs []driver.Ref, fields []string) ([]*driver.Version, error) {
	vs, err := e.Engine.Get(ctx, collection, refs, fields)
	if err == nil {
		err = e.verify(ctx, vs...)
	}
	if err != nil {
		return nil, err
	}
	return vs, nil
}

func (e *verifying) Query(ctx context.Context, q *driver.Query) ([]*driver.Version, error) {
	vs, err := e.Engine.Query(ctx, q)
	if err == nil {
		err = e.verify(ctx, vs...)
	}
	if err != nil {
		return nil, err
	}
	return vs, nil
}

func (e *verifying) Log(ctx context.Context, q *driver.LogQuery) iter.Seq2[*driver.Version, error] {
	return func(yield func(*driver.Version, error) bool) {
		for v, err := range e.Engine.Log(ctx, q) {
			if err == nil {
				if err = e.verify(ctx, v); err != nil {
					v = nil
				}
			}
			if !yield(v, err) || err != nil {
				return
			}
		}
	}
}

// verify verifies versions of one collection, where it is their turn. Nil, and what an older
// server on the same database wrote without a seal, is left out.
func (e *verifying) verify(ctx context.Context, vs ...*driver.Version) error {
	if e.reads.Add(1)%e.every != 0 {
		return nil
	}
	var refs []driver.Ref
	var read []*driver.Version
	for _, v := range vs {
		if v != nil && v.Seal != nil {
			refs = append(refs, driver.Ref{Key: v.Key, Number: v.Number}, driver.Ref{Key: v.Key, Number: max(1, v.Number-1)})
			read = append(read, v)
		}
	}
	if len(read) == 0 {
		return nil
	}
	found, err := e.Engine.Get(ctx, read[0].Collection, refs, nil)
	if err != nil {
		return err
	}
	for i, v := range read {
		is, previous := found[2*i], found[2*i+1]
		wrong := is == nil || previous == nil || !bytes.Equal(seal.Hash(is.Seal), seal.Hash(v.Seal))
		if !wrong {
			before := previous.Seal
			if v.Number == 1 {
				before = nil
			}
			wrong = seal.Verify(before, is) != nil
		}
		if wrong {
			return driver.Errorf(driver.CodeInternal, "%s %q: version %d is not as it was sealed; asof check finds all that are not", v.Collection, v.Key, v.Number)
		}
	}
	return nil
}
