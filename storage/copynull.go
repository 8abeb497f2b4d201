package storage

import (
	"context"
	"maps"

	"github.com/asof/asof/storage/condition"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/rawjson"
)

// An ascending order begins with the documents without a value: those without a reference, which an
// index has together, and those whose reference leads to no document with a value. To find the
// references that do so, an engine looks between the keys of all sources. So what was found is
// remembered, and a later list only looks at what was written since.

// emptyRefs are references that may lead to no value of a copied field: all that do at the instants
// from since to until, and perhaps others. It is not changed once it is made.
type emptyRefs struct {
	since, until driver.Instant
	loaded       driver.Instant // the last load into the past that is known in it
	keys         map[string]bool
}

const (
	mostEmptyRefs = 64   // that are remembered
	mostChanges   = 1000 // versions that are looked at; after more, all references are looked for again
)

// valueless is the condition that a document has no value of the copied field.
func (w *walk) valueless(ctx context.Context) (driver.Filter, error) {
	op, err := w.store.operation(ctx)
	if err != nil {
		return nil, err
	}
	if !w.store.guard.seesAll(ctx, w.c.Of) { // what is remembered is of all sources
		return w.others(ctx)
	}
	loaded, err := w.store.engine.Loaded(ctx) // before what follows is read
	if err != nil {
		return nil, err
	}
	known, _ := w.store.emptyRefs.Load(w.c)
	was, _ := known.(*emptyRefs)
	if was != nil && was.loaded == loaded && was.since <= w.q.At {
		// Also for an instant of the past: what an erasure takes from that, the log tells of now.
		if now := w.extend(ctx, was, max(op.begin, w.q.At)); now != nil {
			return w.knownEmpty(ctx, was, now)
		}
	}
	others, err := w.others(ctx)
	if err != nil {
		return nil, err
	}
	ref := w.c.Reference(w.t)
	vs, err := w.store.engine.Query(trusted(ctx), &driver.Query{
		Collection: w.t.Collection, At: w.q.At, Filter: driver.And{driver.Present{Field: ref}, others}, Limit: mostEmptyRefs + 1, Fields: ref.Path,
	})
	if err != nil || len(vs) > mostEmptyRefs {
		return others, err
	}
	now := &emptyRefs{since: w.q.At, until: w.q.At, loaded: loaded, keys: map[string]bool{}}
	for _, v := range vs {
		now.add(v, ref)
	}
	return w.knownEmpty(ctx, was, now)
}

// others is the condition that the reference leads to none of the documents with a value.
func (w *walk) others(ctx context.Context) (driver.Filter, error) {
	keys, err := w.store.meeting(ctx, w.c.Of, w.q.At, driver.Present{Field: w.c.Target()}, condition.MaxSources)
	if err == nil && len(keys) > condition.MaxSources {
		err = w.tooMany("there are")
	}
	return driver.Not{Filter: w.c.Refers(w.t, keys)}, err
}

func valuesOf(keys map[string]bool) []driver.Value {
	values := make([]driver.Value, 0, len(keys))
	for key := range keys {
		values = append(values, key)
	}
	return values
}

// add adds the reference of a version of a document.
func (e *emptyRefs) add(v *driver.Version, ref driver.Field) {
	if key, ok := rawjson.Unquote(rawjson.Find(v.Data, ref.Path)); ok {
		e.keys[key] = true
	}
}

// extend adds what documents that were written until an instant refer to, and the keys of sources
// that were; nil where that is too much, or not readable.
func (w *walk) extend(ctx context.Context, was *emptyRefs, until driver.Instant) *emptyRefs {
	if until <= was.until {
		return was
	}
	now := &emptyRefs{was.since, until, was.loaded, maps.Clone(was.keys)}
	q := &driver.LogQuery{
		Collections: []string{w.t.Collection}, From: was.until + 1, To: until + 1, Limit: mostChanges + 1, Fields: w.c.Reference(w.t).Path,
	}
	if w.c.Of != w.t {
		q.Collections = append(q.Collections, w.c.Of.Collection)
	}
	changes := 0
	for v, err := range w.store.engine.Log(trusted(ctx), q) {
		if changes++; err != nil || changes > mostChanges {
			return nil
		}
		if v.Collection == w.t.Collection {
			now.add(v, w.c.Reference(w.t))
		}
		if v.Collection == w.c.Of.Collection {
			now.keys[v.Key] = true
		}
	}
	return now
}

// knownEmpty is the condition that a document has no value, where the references that may lead to
// none are known; they take the place of those that were.
func (w *walk) knownEmpty(ctx context.Context, was, now *emptyRefs) (driver.Filter, error) {
	if err := w.store.beyond(ctx, w.c.Of, w.q.At); err != nil {
		return nil, err
	}
	keys := maps.Clone(now.keys)
	if len(keys) > 0 {
		with, err := w.store.meeting(ctx, w.c.Of, w.q.At, driver.And{
			driver.In{Field: condition.Key, Values: valuesOf(keys)}, driver.Present{Field: w.c.Target()},
		}, len(keys))
		if err != nil {
			return nil, err
		}
		for _, key := range with {
			delete(keys, key.(string)) //nolint:forcetypeassert // keys are strings
		}
	}
	if len(now.keys) > mostEmptyRefs && w.q.At == now.until {
		now = &emptyRefs{since: now.until, until: now.until, loaded: now.loaded, keys: keys}
	}
	if len(now.keys) <= mostEmptyRefs && (was == nil || was.until <= now.until || was.loaded != now.loaded) {
		w.store.emptyRefs.Store(w.c, now)
	}
	null := driver.Not{Filter: driver.Present{Field: w.c.Reference(w.t)}}
	if len(keys) == 0 {
		return null, nil
	}
	return driver.Or{null, w.c.Refers(w.t, valuesOf(keys))}, nil
}
