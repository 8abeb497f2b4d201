package storage

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/fault"
	"github.com/asof/asof/storage/normal"
	"github.com/asof/asof/storage/record"
	"github.com/asof/asof/storage/seal"
)

// schemaCollection is where the schemas are that documents were written under, which of them is the
// current one, and which types were rewritten under it. It is in no export: versions say the number.
const schemaCollection = "asof_schemas"

// The keys of its documents. That of a schema is its number, in hexadecimal digits.
const (
	currentSchema = "current"
	rewrittenType = "rewritten " // and the collection
)

func schemaType() *record.Type {
	t := &record.Type{Name: schemaCollection, Collection: schemaCollection}
	for _, name := range []string{"sdl", "schema", "loaded"} { // see schemaNote
		t.Fields = append(t.Fields, record.Field{Name: name, Kind: record.KindJSON})
	}
	return t
}

type schemaNote struct {
	SDL    string `json:"sdl,omitempty"`    // of a schema
	Schema string `json:"schema,omitempty"` // of the others: its key
	// Loaded is the last load when a type was rewritten.
	Loaded driver.Instant `json:"loaded,omitempty"`
}

// schema is the one that a store's types are made from.
type schema struct {
	number uint32 // 0: it is not known
}

func schemaKey(number uint32) string { return fmt.Sprintf("%08x", number) }

// SchemaNumber identifies a schema, the same in all stores: the first 32 bits of a hash of what codegen writes
// of it, which is what documents can hold.
func SchemaNumber(sdl string) uint32 {
	sum := sha256.Sum256([]byte(sdl))
	return max(1, binary.BigEndian.Uint32(sum[:])) // 0 is for none
}

// UseSchema says which schema the types are made from. It notes that in the store, unless nothing may be
// written there, and then returns the number of the one before, where it was another. A program that opens
// a store calls it once, before the store is used.
func (s *Store) UseSchema(ctx context.Context, sdl string, note bool) (other string, err error) {
	s.schema.number = SchemaNumber(sdl)
	if !note {
		return "", nil
	}
	key := schemaKey(s.schema.number)
	var before schemaNote
	if _, err := readOwn(ctx, s.all, schemaCollection, currentSchema, &before); err == nil && before.Schema != key {
		other = before.Schema
	}
	for {
		err := s.noteSchema(ctx, key, schemaNote{SDL: sdl})
		if err == nil {
			err = s.noteSchema(ctx, currentSchema, schemaNote{Schema: key})
		}
		if !isConflict(err) { // with another server that starts
			return other, fromDriver(ctx, err)
		}
	}
}

// noteSchema notes something, unless it is noted already.
func (s *Store) noteSchema(ctx context.Context, key string, note schemaNote) error {
	var is schemaNote
	v, err := readOwn(ctx, s.all, schemaCollection, key, &is)
	if err == nil && is != note {
		_, err = s.noteOwn(ctx, schemaCollection, key, v, note)
	}
	return err
}

func readSchemaNote(v *driver.Version) (note schemaNote, err error) {
	if live(v) {
		err = json.Unmarshal(v.Data, &note)
	}
	return note, err
}

// isCurrent reports whether no server has opened the store with another schema since.
func (s *schema) isCurrent(ctx context.Context, engine driver.Engine) (bool, error) {
	var note schemaNote
	_, err := readOwn(ctx, engine, schemaCollection, currentSchema, &note)
	return note.Schema == schemaKey(s.number), err
}

// rewritten reports whether all documents of a type that were current at an instant have today's form.
func (s *schema) rewritten(ctx context.Context, engine driver.Engine, collection string, at driver.Instant) (bool, error) {
	vs, err := engine.Get(ctx, schemaCollection, []driver.Ref{{Key: currentSchema, At: at}, {Key: rewrittenType + collection, At: at}}, nil)
	if err != nil {
		return false, err
	}
	var note schemaNote
	for _, v := range vs {
		if note, err = readSchemaNote(v); err != nil || note.Schema != schemaKey(s.number) {
			return false, err
		}
	}
	if vs[0].RecordedAt > vs[1].RecordedAt { // a server with another schema was there since
		return false, nil
	}
	loaded, err := engine.Loaded(ctx) // what was loaded may be current at that instant
	return loaded == note.Loaded, err
}

// maxRewrites is how often Rewrite looks for documents that others have written meanwhile.
const maxRewrites = 10

// Rewrite writes the current documents of a type in today's form, where they have another one, as new
// versions, and returns how many it wrote. When it has succeeded, filters and orders of reads from then on
// are the engine's again. It can be repeated, and several may run at once.
func (s *Store) Rewrite(ctx context.Context, t *record.Type) (written int, err error) {
	if s.migrating.types[t.Collection] == nil {
		return 0, nil
	}
	for range maxRewrites {
		n, loaded, missed, err := s.rewriteOnce(ctx, t)
		written += n
		if unreadable, ok := errors.AsType[*unreadableError](err); ok { // with what clients may not be told
			return written, unreadable
		}
		if err != nil {
			return written, fromDriver(ctx, err)
		}
		if n == 0 && !missed {
			return written, s.noteRewritten(ctx, t, loaded)
		}
	}
	return written, fault.Errorf(fault.CodeUnavailable, "others write %s in an earlier form all the time: end the servers that have an earlier schema, and begin again", t.Plural)
}

// noteRewritten notes a new version even where there is one of that schema, as its time tells.
func (s *Store) noteRewritten(ctx context.Context, t *record.Type, loaded driver.Instant) error {
	key := rewrittenType + t.Collection
	v, err := readOwn(ctx, s.all, schemaCollection, key, new(schemaNote))
	if err == nil {
		_, err = s.noteOwn(ctx, schemaCollection, key, v, schemaNote{Schema: schemaKey(s.schema.number), Loaded: loaded})
	}
	if isConflict(err) { // another one has noted it
		return nil
	}
	return fromDriver(ctx, err)
}

// rewriteOnce rewrites what is there when it begins, which includes the last load, at loaded. Missed says that another
// writer was faster, or that a load goes on.
func (s *Store) rewriteOnce(ctx context.Context, t *record.Type) (written int, loaded driver.Instant, missed bool, err error) {
	now, err := s.all.Now(ctx)
	if err != nil {
		return 0, 0, false, err
	}
	if loaded, err = s.all.Loaded(ctx); err != nil { // after Now: every load of an instant up to that is known
		return 0, 0, false, err
	}
	missed = loaded > now
	q := &driver.Query{Collection: t.Collection, At: now, Limit: few} // which are held in both forms
	for {
		vs, err := s.all.Query(ctx, q)
		if err != nil {
			return written, loaded, missed, err
		}
		for _, v := range vs {
			q.After = &driver.Position{Key: v.Key}
			wrote, err := s.rewriteDocument(ctx, v)
			switch {
			case isConflict(err):
				missed = true
			case err != nil:
				return written, loaded, missed, err
			case wrote:
				written++
			}
		}
		if len(vs) < few {
			return written, loaded, missed, nil
		}
	}
}

func (s *Store) rewriteDocument(ctx context.Context, v *driver.Version) (written bool, err error) {
	to, err := s.migrating.today(v, false)
	if err != nil || bytes.Equal(to.Data, v.Data) {
		return false, err
	}
	if m := s.migrating.types[v.Collection]; m.hook != nil { // it is not called for what it made
		wrong, err := m.Type.Unreadable(to.Data)
		if err != nil {
			return false, err
		}
		if len(wrong) > 0 {
			return false, m.unreadable(v, fmt.Errorf("returned what does not fit the schema: %w", wrong[0]))
		}
	}
	w := driver.Write{
		ID: newID(), Collection: v.Collection, Key: v.Key, Expected: v.Number, Op: driver.OpUpdate, Author: "asof",
		Message: "Rewritten in the form of schema " + schemaKey(s.schema.number), Changed: normal.Changed(v.Data, to.Data), Data: to.Data, Schema: s.schema.number,
	}
	_, err = driver.CommitOne(ctx, s.all, &w)
	s.feed.wake()
	return err == nil, err
}

// KnownSchema is a schema that a store was opened with.
type KnownSchema struct {
	Number, SDL string
	Since       driver.Instant // when that was, for the first time
	Versions    int64          // of documents, that were written under it
	Current     bool
}

// Schemas returns the schemas that a store was opened with, oldest first. It reads all versions; the first
// one, without SDL, stands for those whose schema is not known.
func (s *Store) Schemas(ctx context.Context) ([]KnownSchema, error) {
	list := []KnownSchema{{}}
	current := ""
	for v, err := range s.all.Log(ctx, &driver.LogQuery{Collections: []string{schemaCollection}}) {
		if err != nil {
			return nil, fromDriver(ctx, err)
		}
		note, err := readSchemaNote(v)
		switch {
		case err != nil:
			return nil, err
		case v.Key == currentSchema:
			current = note.Schema
		case note.SDL != "":
			list = append(list, KnownSchema{Number: v.Key, SDL: note.SDL, Since: v.RecordedAt})
		}
	}
	for v, err := range s.all.Log(ctx, &driver.LogQuery{Collections: s.collections(), Fields: []string{}}) {
		if err != nil {
			return nil, fromDriver(ctx, err)
		}
		number := ""
		if known := seal.Schema(v.Seal); known != 0 {
			number = schemaKey(known)
		}
		i := slices.IndexFunc(list, func(k KnownSchema) bool { return k.Number == number })
		if i < 0 { // of another store
			i = len(list)
			list = append(list, KnownSchema{Number: number})
		}
		list[i].Versions++
	}
	for i := range list {
		list[i].Current = current != "" && list[i].Number == current
	}
	return list, nil
}
