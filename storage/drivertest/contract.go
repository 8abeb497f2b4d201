package drivertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"iter"
	"maps"
	"slices"
	"sync"

	"github.com/asof/asof/storage/driver"
)

// Contract wraps an engine so that every call is checked: that its result is
// what was asked for and in the order that package driver promises, that an
// error has a code which the method may return, that nothing returned earlier
// was changed since, and that a version never reads differently from before.
// Each violation is reported as one line; calls may come from any number of
// goroutines, and so may reports.
func Contract(engine driver.Engine, report func(violation string)) driver.Engine {
	return &contract{
		Engine: engine,
		report: func(format string, args ...any) { report(fmt.Sprintf(format, args...)) },
		seed:   maphash.MakeSeed(),
		known:  make(map[driver.LogPosition]uint64),
	}
}

type contract struct {
	driver.Engine
	report func(format string, args ...any)
	seed   maphash.Seed

	mu    sync.Mutex
	floor driver.Instant // Now may not return less
	// known has the checksum of every version seen, with its data, and handed
	// those that were returned themselves, up to a bound each.
	known  map[driver.LogPosition]uint64
	handed []handed
}

type handed struct {
	version *driver.Version
	sum     uint64
}

const (
	maxKnown  = 200_000
	maxHanded = 5_000
)

// code reports an error that a method may not return.
func (c *contract) code(method string, err error, allowed ...driver.Code) {
	if err == nil {
		return
	}
	allowed = append(allowed, driver.CodeUnavailable, driver.CodeInternal)
	if code := driver.CodeOf(err); !slices.Contains(allowed, code) {
		c.report("%s returned code %q (%v), which is none of %q", method, code, err, allowed)
	}
}

func (c *contract) checksum(v *driver.Version) uint64 {
	var h maphash.Hash
	h.SetSeed(c.seed)
	_, _ = fmt.Fprintf(&h, "%q %q %d %d %d %t %q %q %q %q %x %t", v.Collection, v.Key, v.Number, v.RecordedAt, v.Op, v.Deleted,
		v.Author, v.Message, v.Group, v.Changed, v.Seal, v.Data == nil)
	_, _ = h.Write(v.Data)
	return h.Sum64()
}

// version checks one returned version on its own; whole says that its data
// was not cut down.
func (c *contract) version(method string, v *driver.Version, whole bool) {
	name := fmt.Sprintf("%s: %s %q version %d", method, v.Collection, v.Key, v.Number)
	switch {
	case v.Number < 1 || v.RecordedAt <= 0:
		c.report("%s: number or time (%d) is not positive", name, v.RecordedAt)
	case v.SupersededAt <= v.RecordedAt:
		c.report("%s: superseded at %d, recorded at %d", name, v.SupersededAt, v.RecordedAt)
	case v.Op < driver.OpCreate || v.Op > driver.OpErase || v.Op == driver.OpPruned && !v.Deleted:
		c.report("%s: unknown operation %d", name, v.Op)
	case v.Deleted && v.Data != nil:
		c.report("%s: a tombstone has data", name)
	case !whole:
	case !v.Deleted && len(v.Data) == 0:
		c.report("%s: no data", name)
	}
	if !whole {
		return
	}
	sum := c.checksum(v)
	c.mu.Lock()
	defer c.mu.Unlock()
	p := v.Position()
	switch before, ok := c.known[p]; {
	case !ok && len(c.known) < maxKnown:
		c.known[p] = sum
	case ok && before != sum:
		c.report("%s: reads differently than before: now %+v", name, *v)
	}
	if len(c.handed) < maxHanded {
		c.handed = append(c.handed, handed{v, sum})
	}
}

func (c *contract) Now(ctx context.Context) (driver.Instant, error) {
	c.mu.Lock()
	floor := c.floor
	c.mu.Unlock()
	now, err := c.Engine.Now(ctx)
	c.code("Now", err)
	if err != nil {
		return now, err
	}
	if now < floor {
		c.report("Now returned %d, after it had returned, or committed at, %d", now, floor)
	}
	c.raise(now)
	return now, nil
}

func (c *contract) raise(at driver.Instant) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.floor = max(c.floor, at)
}

func (c *contract) Settle(ctx context.Context, at driver.Instant) error {
	err := c.Engine.Settle(ctx, at)
	c.code("Settle", err, driver.CodeInvalid)
	return err
}

func (c *contract) Get(ctx context.Context, collection string, refs []driver.Ref, fields []string) ([]*driver.Version, error) {
	asked := slices.Clone(refs)
	vs, err := c.Engine.Get(ctx, collection, refs, fields)
	c.code("Get", err, driver.CodeInvalid)
	if !slices.Equal(asked, refs) {
		c.report("Get changed its references")
	}
	if err != nil {
		if vs != nil {
			c.report("Get returned versions with the error %v", err)
		}
		return vs, err
	}
	if len(vs) != len(refs) {
		c.report("Get returned %d versions for %d references", len(vs), len(refs))
		return vs, nil
	}
	for i, v := range vs {
		if v == nil {
			continue
		}
		ref := refs[i]
		c.version("Get", v, fields == nil)
		switch {
		case v.Collection != collection || v.Key != ref.Key:
			c.report("Get returned %s %q for %s %q", v.Collection, v.Key, collection, ref.Key)
		case ref.Number != 0 && v.Number != ref.Number:
			c.report("Get returned %q version %d for version %d", v.Key, v.Number, ref.Number)
		case ref.Number == 0 && !currentAt(v, ref.At):
			c.report("Get returned %q version %d, current in [%d, %d), for the instant %d",
				v.Key, v.Number, v.RecordedAt, v.SupersededAt, ref.At)
		}
	}
	return vs, nil
}

func currentAt(v *driver.Version, at driver.Instant) bool {
	return v.RecordedAt <= at && (at < v.SupersededAt || v.Current())
}

func (c *contract) Query(ctx context.Context, q *driver.Query) ([]*driver.Version, error) {
	vs, err := c.Engine.Query(ctx, q)
	c.code("Query", err, driver.CodeInvalid)
	if err != nil {
		if vs != nil {
			c.report("Query returned versions with the error %v", err)
		}
		return vs, err
	}
	if q.Limit > 0 && len(vs) > q.Limit {
		c.report("Query returned %d documents, with a limit of %d", len(vs), q.Limit)
	}
	if q.Keys {
		return vs, nil
	}
	for _, v := range vs {
		c.version("Query", v, q.Fields == nil)
		if v.Collection != q.Collection || v.Deleted || !currentAt(v, q.At) {
			c.report("Query at %d of %s returned %s %q version %d (deleted: %t), current in [%d, %d)",
				q.At, q.Collection, v.Collection, v.Key, v.Number, v.Deleted, v.RecordedAt, v.SupersededAt)
		}
	}
	return vs, nil
}

func (c *contract) Count(ctx context.Context, q *driver.Query) (int64, error) {
	n, err := c.Engine.Count(ctx, q)
	c.code("Count", err, driver.CodeInvalid)
	if n < 0 || err != nil && n != 0 {
		c.report("Count returned %d with the error %v", n, err)
	}
	return n, err
}

func (c *contract) Log(ctx context.Context, q *driver.LogQuery) iter.Seq2[*driver.Version, error] {
	return func(yield func(*driver.Version, error) bool) {
		var last *driver.Version
		ended, n := false, 0
		for v, err := range c.Engine.Log(ctx, q) {
			if ended {
				c.report("Log went on after an error")
				return
			}
			if err != nil {
				ended = true
				c.code("Log", err, driver.CodeInvalid)
				if v != nil {
					c.report("Log returned a version with the error %v", err)
				}
			} else {
				n++
				c.logged(q, v, last)
				last = v
			}
			if !yield(v, err) {
				return
			}
		}
		if q.Limit > 0 && n > q.Limit {
			c.report("Log returned %d entries, with a limit of %d", n, q.Limit)
		}
	}
}

func (c *contract) logged(q *driver.LogQuery, v, last *driver.Version) {
	c.version("Log", v, q.Fields == nil)
	if !logged(q, v) {
		c.report("Log returned %s %q version %d, which was not asked for: %s", v.Collection, v.Key, v.Number, showLog(q))
	}
	if last != nil {
		if order := last.Position().Compare(v.Position()); order == 0 || (order > 0) != q.Backward {
			c.report("Log returned %+v after %+v", v.Position(), last.Position())
		}
	}
}

// Unwrap returns the engine that is checked, see driver.As.
func (c *contract) Unwrap() driver.Engine { return c.Engine }

func (c *contract) Commit(ctx context.Context, ws []driver.Write) ([]*driver.Version, error) {
	vs, err := c.Engine.Commit(ctx, ws)
	c.code("Commit", err, driver.CodeInvalid, driver.CodeConflict)
	if err != nil {
		if vs != nil {
			c.report("Commit returned versions with the error %v", err)
		}
		if driver.CodeOf(err) == driver.CodeConflict {
			c.conflict(ws, err)
		}
		return vs, err
	}
	if len(vs) != len(ws) {
		c.report("Commit of %d writes returned %d versions", len(ws), len(vs))
		return vs, nil
	}
	at := driver.Instant(0)
	for i, v := range vs {
		if (v == nil) != ws[i].Compare {
			c.report("Commit of %+v made %+v", ws[i], v)
		}
		if v == nil {
			continue
		}
		c.committed(&ws[i], v)
		if at != 0 && v.RecordedAt != at {
			c.report("Commit of %d writes recorded one at %d, and %d at %d", len(ws), at, i, v.RecordedAt)
		}
		at = v.RecordedAt
	}
	return vs, nil
}

func (c *contract) committed(w *driver.Write, v *driver.Version) {
	c.version("Commit", v, true)
	if v.Collection != w.Collection || v.Key != w.Key || v.Op != w.Op || v.Deleted != w.Deleted || v.Author != w.Author ||
		v.Message != w.Message || v.Group != w.Group || !slices.Equal(v.Changed, w.Changed) || !bytes.Equal(v.Data, w.Data) ||
		w.Expected != 0 && v.Number != w.Expected+1 {
		c.report("Commit of %+v made %+v", *w, *v)
	}
	c.raise(v.RecordedAt)
}

func (c *contract) conflict(ws []driver.Write, err error) {
	var conflict *driver.ConflictError
	if !errors.As(err, &conflict) || len(conflict.Lost) == 0 {
		c.report("Commit returned a conflict that is a %T, not a *ConflictError, or names no write: %v", err, err)
		return
	}
	next := 0
	for _, lost := range conflict.Lost {
		i := slices.IndexFunc(ws[next:], func(w driver.Write) bool {
			return w.Collection == lost.Collection && w.Key == lost.Key && w.Expected == lost.Expected
		})
		switch next += i + 1; {
		case i < 0:
			c.report("Commit returned the conflict %+v, which is of none of its writes, or not in their order", lost)
			return
		case lost.Actual < 0 || lost.Actual == lost.Expected:
			c.report("Commit returned a conflict that is none: %+v", lost)
		}
	}
}

func (c *contract) Load(ctx context.Context, vs []driver.Version) (driver.LoadResult, error) {
	result, err := c.Engine.Load(ctx, vs)
	c.code("Load", err, driver.CodeInvalid)
	var refused *driver.LoadError
	switch {
	case err == nil:
		if result.Added < 0 || result.Skipped < 0 || result.Added+result.Skipped != int64(len(vs)) {
			c.report("Load of %d versions returned %+v", len(vs), result)
		}
		for i := range vs {
			c.raise(vs[i].RecordedAt)
		}
	case result != driver.LoadResult{}:
		c.report("Load returned %+v with the error %v", result, err)
	case driver.CodeOf(err) == driver.CodeInvalid && (!errors.As(err, &refused) || refused.Index < 0 || refused.Index >= len(vs)):
		c.report("Load of %d versions returned %v (%T), which is not a *LoadError with an index into them", len(vs), err, err)
	}
	return result, err
}

func (c *contract) Rewrite(ctx context.Context, collection, key string, vs []driver.Version) error {
	err := c.Engine.Rewrite(ctx, collection, key, vs)
	c.code("Rewrite", err, driver.CodeInvalid)
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.known, func(p driver.LogPosition, _ uint64) bool { return p.Collection == collection && p.Key == key })
	return err
}

func (c *contract) Loaded(ctx context.Context) (driver.Instant, error) {
	at, err := c.Engine.Loaded(ctx)
	c.code("Loaded", err)
	return at, err
}

func (c *contract) Stats(ctx context.Context) (driver.Stats, error) {
	s, err := c.Engine.Stats(ctx)
	c.code("Stats", err)
	var sum driver.Stats
	for i, one := range s.Collections {
		if sum.Add(one); one.Documents < 0 || one.Versions < one.Documents || one.Versions == 0 || i > 0 && s.Collections[i-1].Name >= one.Name {
			c.report("Stats returned the collections %+v, want those with versions, by name", s.Collections)
		}
	}
	if sum.Documents != s.Documents || sum.Versions != s.Versions {
		c.report("Stats returned %+v, which is not the sum of its collections", s)
	}
	if s.Documents < 0 || s.Versions < s.Documents || s.Bytes < 0 {
		c.report("Stats returned %+v", s)
	}
	return s, err
}

func (c *contract) Ping(ctx context.Context) error {
	err := c.Engine.Ping(ctx)
	c.code("Ping", err)
	return err
}

func (c *contract) Check(ctx context.Context, report func(problem string)) error {
	err := c.Engine.Check(ctx, report)
	c.code("Check", err)
	return err
}

// Close also looks whether what was handed out is still what it was.
func (c *contract) Close() error {
	err := c.Engine.Close()
	c.code("Close", err)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, h := range c.handed {
		if c.checksum(h.version) != h.sum {
			c.report("%q version %d was changed after it was returned", h.version.Key, h.version.Number)
		}
	}
	return err
}
