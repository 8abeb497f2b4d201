package storage

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"sync"

	"github.com/asof/asof/internal/lru"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/fault"
	"github.com/asof/asof/storage/normal"
	"github.com/asof/asof/storage/rawjson"
	"github.com/asof/asof/storage/record"
)

// actorType is the type of what is known of actors, which no schema has: a document for each
// ID. So versions hold no names, and a name changes in one place.
func actorType() *record.Type {
	return &record.Type{Name: "Actor", Collection: actorCollection, Fields: []record.Field{{Name: actorName, Kind: record.KindString}}}
}

// actorCollection is where the names of actors are.
const actorCollection = "asof_actors"

const (
	actorName = "name"

	namesBytes = 1 << 20
	// nameAge is how long a name is remembered, in microseconds, as another server may
	// note a new one.
	nameAge = 60_000_000
)

// actorNames remembers the names of actors, by ID.
type actorNames struct {
	mu sync.Mutex
	by *lru.Cache[string, knownName]
}

// knownName is an actor's last version, nil for none, as it was at an instant.
type knownName struct {
	name    string
	version *driver.Version
	at      driver.Instant
}

// LatestName returns the name that the actor's verified identity had when it last wrote; nil:
// none is known. It is one name for everything that the actor has ever written.
func (a *Actor) LatestName(ctx context.Context) (*string, error) {
	op, ok := ctx.Value(operationKey{}).(*operation)
	if !ok {
		return nil, nil
	}
	known, err := op.store.nameOf(ctx, op, a.ID)
	if err != nil || known.name == "" {
		return nil, fromDriver(ctx, err)
	}
	return &known.name, nil
}

// namesTogether is how many names are read at once.
const namesTogether = 500

// lists notes the authors of what is listed: who asks for the name of one asks for all.
func lists(ctx context.Context, vs ...*driver.Version) {
	op, ok := ctx.Value(operationKey{}).(*operation)
	if !ok {
		return
	}
	op.mu.Lock()
	defer op.mu.Unlock()
	for _, v := range vs {
		n := len(op.authors)
		if v != nil && n < namesTogether && (n == 0 || op.authors[n-1] != v.Author) {
			op.authors = append(op.authors, v.Author)
		}
	}
}

// nameOf returns what is known of an actor when the operation began or shortly before.
func (s *Store) nameOf(ctx context.Context, op *operation, id string) (knownName, error) {
	known := func(id string) (knownName, bool) {
		s.names.mu.Lock()
		defer s.names.mu.Unlock()
		known, ok := s.names.by.Get(id)
		return known, ok && op.begin < known.at+nameAge
	}
	if name, ok := known(id); ok {
		return name, nil
	}
	op.mu.Lock()
	ids := op.authors
	op.authors = nil
	op.mu.Unlock()
	ids = append(ids, id)
	slices.Sort(ids)
	ids = slices.DeleteFunc(slices.Compact(ids), func(other string) bool {
		_, ok := known(other)
		return ok && other != id
	})
	refs := make([]driver.Ref, len(ids))
	for i, id := range ids {
		refs[i] = driver.Ref{Key: id, At: driver.Forever}
	}
	found, err := s.all.Get(ctx, actorCollection, refs, nil)
	if err != nil {
		return knownName{}, err
	}
	var wanted knownName
	for i, v := range found {
		name := knownName{version: v, at: op.begin}
		if live(v) {
			var data struct{ Name string }
			if err := json.Unmarshal(v.Data, &data); err != nil {
				return knownName{}, err
			}
			name.name = data.Name
		}
		s.rememberName(ids[i], name)
		if ids[i] == id {
			wanted = name
		}
	}
	return wanted, nil
}

func (s *Store) rememberName(id string, known knownName) {
	s.names.mu.Lock()
	defer s.names.mu.Unlock()
	s.names.by.Add(id, known, len(id)+2*len(known.name))
}

// noteName keeps the name of who has written, where it is another one than before. Where that
// fails, the next write does it.
func (s *Store) noteName(ctx context.Context, op *operation, a Actor) {
	known, err := s.nameOf(ctx, op, a.ID)
	if err != nil || known.name == a.Name {
		return
	}
	w := named(a.ID, a.Name)
	if v := known.version; v != nil && !v.Deleted {
		w.Expected, w.Op = v.Number, driver.OpUpdate
	}
	v, err := driver.CommitOne(ctx, s.all, w)
	if err != nil {
		s.names.mu.Lock()
		s.names.by.Remove(a.ID) // another server may have noted one
		s.names.mu.Unlock()
		s.log.WarnContext(ctx, "the name of an actor could not be noted; the next write does it", "actor", a.ID, "error", err)
		return
	}
	s.rememberName(a.ID, knownName{a.Name, v, op.begin})
}

// named is what stores the first name of an actor.
func named(id, name string) *driver.Write {
	return &driver.Write{
		ID: newID(), Collection: actorCollection, Key: id, Op: driver.OpCreate, Author: id, Changed: []string{actorName},
		Data: append(rawjson.AppendString([]byte(`{"`+actorName+`":`), name), '}'),
	}
}

// ReplaceName gives an actor another name, and erases all that it had. Servers that run may show the last
// one for a minute more. Errors are the engines', also where names are erased later, and NOT_FOUND for an
// actor whose name is not known.
func (s *Store) ReplaceName(ctx context.Context, id, name string) error {
	for {
		vs, err := s.all.Get(ctx, actorCollection, []driver.Ref{{Key: id, At: latest}}, nil)
		if err != nil {
			return err
		}
		cur := vs[0]
		if !live(cur) {
			return fault.Errorf(fault.CodeNotFound, "no name of an author with the id %s is known", fault.QuoteShort(id))
		}
		w := named(id, name)
		e := &erasure{Collection: actorCollection, Key: id, Number: cur.Number + 1, Group: newGroup(cur.RecordedAt), Paths: [][]string{{actorName}}, From: 1, To: cur.Number}
		w.Op, w.Expected, w.Group, w.Author, w.Changed = driver.OpErase, cur.Number, e.Group, "asof", normal.Changed(cur.Data, w.Data)
		note, err := s.noteErasure(ctx, nil, e)
		if err != nil {
			return err
		}
		_, lost := driver.CommitOne(ctx, s.all, w)
		if err := s.finishErasure(ctx, note); err != nil || !isConflict(lost) {
			return cmp.Or(lost, err)
		}
	}
}
