package storage

import (
	"context"

	"github.com/asof/asof/storage/condition"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/fault"
)

// Since says where a subscription begins: behind a position or behind an instant.
type Since struct {
	Position *string
	AsOf     *driver.Instant
}

// EventKind is what a version did to the list that a subscription is about.
type EventKind string

// The kinds. Of a document by itself, a version enters that creates it, and leaves that
// deletes it.
const (
	EventEntered EventKind = "ENTERED"
	EventChanged EventKind = "CHANGED"
	EventLeft    EventKind = "LEFT"
)

// DocumentEvent is an event of documents of one type.
type DocumentEvent[T AnyDocument] struct {
	*Event
	in *Collection[T]
}

// Document is the model of the document as the version left it; the zero T when it was deleted.
func (e *DocumentEvent[T]) Document() T { return e.in.Wrap(e.document()) }

// Kind is what the version did to the list.
func (e *Event) Kind() EventKind { return e.kind }

// DocumentType is the name of the document's type.
func (e *Event) DocumentType() string { return e.t.Name }

// Key is the document's key.
func (e *Event) Key() string { return e.v.Key }

// VersionInfo describes the version.
func (e *Event) VersionInfo() *VersionInfo {
	return &VersionInfo{typ: e.t, v: e.v, seen: e.v.RecordedAt}
}

// Document is the model of the document as the version left it, with its references as they
// were then; nil when it was deleted. Its id names the version only if there is a later one.
func (e *Event) Document() AnyDocument {
	if d := e.document(); d != nil {
		return e.store.wrapAny(d)
	}
	return nil
}

func (e *Event) document() *Document {
	if e.v.Deleted {
		return nil
	}
	return e.store.newDocument(e.t, e.v, e.v.RecordedAt, e.v.RecordedAt, false)
}

// DeletedID is the id by which caches know the document, when it was deleted; otherwise nil.
func (e *Event) DeletedID() *string {
	if !e.v.Deleted {
		return nil
	}
	id := encodeID(e.t.Name, e.v.Key, 0)
	return &id
}

// Changes lists what the version changed, in the order in which it can be
// applied. It reads the version before.
func (e *Event) Changes(ctx context.Context) ([]*FieldChange, error) {
	var before *driver.Version
	if e.v.Number > 1 {
		var err error
		if before, err = e.store.getOne(ctx, e.t, driver.Ref{Key: e.v.Key, Number: e.v.Number - 1}, nil); err != nil {
			return nil, err
		}
	}
	return e.store.listChanges(ctx, e.t, before, e.v, e.v, e.v.RecordedAt)
}

// Context returns a context in which the root field of a subscription tells the event, and an
// operation reads at its instant.
func (e *Event) Context(ctx context.Context) context.Context {
	return context.WithValue(ctx, eventKey{}, e)
}

type (
	eventKey        struct{} // *Event
	subscriptionKey struct{} // *Subscription
)

// Subscription is what a subscription is about.
type Subscription struct {
	store *Store
	query WatchQuery
}

// Subscribe returns a context in which the root field of a subscription, when it is resolved,
// tells no events, but notes what it is about.
func (s *Store) Subscribe(ctx context.Context) (context.Context, *Subscription) {
	sub := &Subscription{store: s}
	return context.WithValue(ctx, subscriptionKey{}, sub), sub
}

// Watch begins a watch of the events that may be for the subscription: in the context of
// each, its root field tells it, or that it is for others.
func (s *Subscription) Watch(ctx context.Context) (*Watch, error) {
	return s.store.Watch(ctx, s.query)
}

// listen resolves the root field of a subscription: the channel has the one event of the
// context, if it is one of the list that the filter selects, and ends.
func listen[E any](ctx context.Context, s *Store, q WatchQuery, since *Since, f driver.Filter, as func(*Event) E) (<-chan E, error) {
	out := make(chan E, 1)
	defer close(out)
	if e, ok := ctx.Value(eventKey{}).(*Event); ok {
		told, err := *e, e.err // others tell the same event, of other lists
		if err == nil {
			told.kind, err = s.kindOf(ctx, e, f)
		}
		if err == nil && told.kind != "" {
			out <- as(&told)
		}
		return out, err
	}
	sub, ok := ctx.Value(subscriptionKey{}).(*Subscription)
	if !ok {
		return nil, fault.BadInput("subscriptions are not executed here")
	}
	switch sub.query = q; {
	case since == nil:
	case since.Position != nil && since.AsOf == nil && *since.Position != "":
		sub.query.After = *since.Position
	case since.AsOf != nil && since.Position == nil:
		sub.query.Since = since.AsOf
	default:
		return nil, fault.BadInput("since: give position or asOf, one of them")
	}
	return out, nil
}

// kindOf returns what an event's version did to the list that a filter selects; "" for nothing.
// The engine says what is in the list, just before the version and with it. What was in it before something was
// erased is not known any more, and taken for granted.
func (s *Store) kindOf(ctx context.Context, e *Event, f driver.Filter) (EventKind, error) {
	all := driver.And{driver.Compare{Field: condition.Key, Op: driver.Eq, Value: e.v.Key}}
	if f != nil {
		all = append(all, f)
	}
	in := [2]bool{e.v.Op == driver.OpErase}
	for i, at := range [2]driver.Instant{e.v.RecordedAt - 1, e.v.RecordedAt} {
		if in[i] {
			continue
		}
		n, err := s.engine.Count(ctx, &driver.Query{Collection: e.t.Collection, At: at, Filter: all})
		if err != nil {
			return "", fromDriver(ctx, err)
		}
		in[i] = n > 0
	}
	switch in {
	case [2]bool{false, true}:
		return EventEntered, nil
	case [2]bool{true, true}:
		return EventChanged, nil
	case [2]bool{true, false}:
		return EventLeft, nil
	}
	return "", nil
}

// DocumentChanged resolves a subscription to one document.
func (c *Collection[T]) DocumentChanged(ctx context.Context, key string, since *Since) (<-chan *DocumentEvent[T], error) {
	if why := driver.KeyProblem(key); why != "" {
		return nil, fault.BadInput("key: %s is no key of a document: it %s", fault.QuoteShort(key), why)
	}
	return listen(ctx, c.store, WatchQuery{Collections: []string{c.t.Collection}, Keys: []string{key}}, since, nil, c.event)
}

// DocumentsChanged resolves a subscription to the documents that satisfy a condition.
func (c *Collection[T]) DocumentsChanged(ctx context.Context, where map[string]any, since *Since) (<-chan *DocumentEvent[T], error) {
	f, err := condition.Filter(c.t, where, nil)
	if err != nil {
		return nil, err
	}
	return listen(ctx, c.store, WatchQuery{Collections: []string{c.t.Collection}}, since, f, c.event)
}

func (c *Collection[T]) event(e *Event) *DocumentEvent[T] { return &DocumentEvent[T]{e, c} }

// Changes resolves a subscription to all documents.
func (s *Store) Changes(ctx context.Context, where *ChangelogWhere, since *Since) (<-chan *Event, error) {
	if where == nil {
		where = &ChangelogWhere{}
	}
	if where.From != nil || where.To != nil {
		return nil, fault.BadInput("where: from and to do not bound a subscription: say in since where it begins, and end it when you have enough")
	}
	l := &changelog{store: s}
	none, err := l.where(where)
	if err != nil {
		return nil, err
	}
	if none {
		return nil, fault.BadInput("where: no change can meet these conditions")
	}
	q := WatchQuery{Collections: l.log.Collections, Keys: l.log.Keys, Hints: l.log.Hints}
	return listen(ctx, s, q, since, nil, func(e *Event) *Event { return e })
}
