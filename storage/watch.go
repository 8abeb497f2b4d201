package storage

import (
	"context"
	"iter"

	"github.com/asof/asof/storage/driver"
)

// WatchQuery says what a watch is about and where it begins.
type WatchQuery struct {
	Types []string // by their GraphQL names; empty: all that the schema has
	// After is the position of an event, to go on behind it, in another process
	// too; empty: from the beginning, with every version that there is.
	After string
	// FromNow leaves out what was acknowledged before the watch began; After is
	// empty then.
	FromNow bool
}

// Event is a step of a watch.
type Event struct {
	// Position is behind this event. Positions are opaque to everyone but the
	// store, and stay good; of two that a watch tells, or one that goes on
	// behind it, the later is the greater string.
	Position string
	// Arrived is the version; nil where the event is only a place.
	Arrived *Arrived
}

// Arrived is a version that was committed or loaded.
type Arrived struct {
	store *Store
	t     *Type
	v     *driver.Version
}

// Watch tells of every version that is committed or loaded, once, and those of a
// document in the order of their numbers, whatever the type; each as it was when
// it was recorded, which for a version that was loaded may be long ago.
//
// The first event is only a place: what is acknowledged from then on will be
// told. Others may follow at any time. The loop may take as long as it likes; it
// ends when it is left, or with an error, as when the context ends.
// Errors: BAD_USER_INPUT for an unknown type, for a position that is not one of
// this store, and for After together with FromNow; NOT_FOUND for a position that
// is older than what the database can still tell from; UNAVAILABLE.
func (s *Store) Watch(ctx context.Context, q WatchQuery) iter.Seq2[*Event, error] {
	return func(yield func(*Event, error) bool) {
		asked := driver.WatchQuery{After: driver.WatchPosition(q.After), FromNow: q.FromNow}
		for _, name := range q.Types {
			t := s.byName[name]
			if t == nil {
				yield(nil, badInput("there is no type %s", quoteShort(name)))
				return
			}
			asked.Collections = append(asked.Collections, t.Collection)
		}
		if len(q.Types) == 0 {
			for _, t := range s.types {
				asked.Collections = append(asked.Collections, t.Collection)
			}
		}
		for a, err := range s.engine.Watch(ctx, &asked) {
			if err != nil {
				yield(nil, fromDriver(ctx, err))
				return
			}
			e := &Event{Position: string(a.Position)}
			if v := a.Version; v != nil {
				e.Arrived = &Arrived{store: s, t: s.byCollection[v.Collection], v: v}
			}
			if !yield(e, nil) {
				return
			}
		}
	}
}

// Type is the type of the document.
func (a *Arrived) Type() *Type { return a.t }

// Key is the document's key.
func (a *Arrived) Key() string { return a.v.Key }

// VersionInfo describes the version.
func (a *Arrived) VersionInfo() *VersionInfo {
	return &VersionInfo{typ: a.t, v: a.v, seen: a.v.RecordedAt}
}

// Document is the model of the document as this version left it, with its
// references as they were then; nil when it was deleted.
func (a *Arrived) Document() AnyDocument {
	if a.v.Deleted {
		return nil
	}
	return a.store.wrapAny(a.store.newDocument(a.t, a.v, a.v.RecordedAt, a.v.RecordedAt, true))
}

// Changes lists what the version changed, in the order in which it can be
// applied. It reads the version before.
func (a *Arrived) Changes(ctx context.Context) ([]*FieldChange, error) {
	var before *driver.Version
	if a.v.Number > 1 {
		var err error
		if before, err = a.store.getOne(ctx, a.t, driver.Ref{Key: a.v.Key, Number: a.v.Number - 1}); err != nil {
			return nil, err
		}
	}
	return a.store.listChanges(ctx, a.t, before, a.v, a.v, a.v.RecordedAt)
}
