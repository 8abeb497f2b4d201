package storage

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/asof/asof/storage/checkpoint"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/normal"
	"github.com/asof/asof/storage/record"
	"github.com/asof/asof/storage/seal"
)

// archiveCollection is where a store that follows another one, or what other programs write, keeps how
// far: one document for each source.
const archiveCollection = "asof_archive"

const archiveKey = "source"

func archiveType() *record.Type {
	t := &record.Type{Name: archiveCollection, Collection: archiveCollection} // a schema may have a type Archive
	for _, name := range []string{"last", "hash", "loaded", "captured"} {     // see archived; captured: package capture
		t.Fields = append(t.Fields, record.Field{Name: name, Kind: record.KindJSON})
	}
	return t
}

// IsArchived reports whether an archive, or an export, takes a collection along: all but what is
// known of the store itself, which is how far it was pruned, what it is an archive of, and which schemas it
// was opened with.
func IsArchived(collection string) bool {
	return collection != retentionCollection && collection != archiveCollection && collection != schemaCollection
}

// archived is how far a source was followed.
type archived struct {
	// Last is the last version in the source's log that was loaded, with all before it; nil:
	// none. Hash is that version's.
	Last *driver.LogPosition `json:"last,omitempty"`
	Hash []byte              `json:"hash,omitempty"`
	// Loaded is the last load into the source that this takes account of.
	Loaded driver.Instant `json:"loaded,omitempty"`
}

// Archive follows a store, the source, into another one: it loads every version of the source as it
// is, seals included, in the order of the source's log. What is there already is skipped, so that
// it may end, or be killed, anywhere, and be begun again. Its methods are called by one
// goroutine, but for Reached.
type Archive struct {
	From, To *Store
	archived
	stored  *driver.Version // that holds it; nil: there is none
	read    int             // versions since that
	batch   []driver.Version
	bytes   int // of the batch
	reached atomic.Int64
}

// Bounds of what is loaded at once; and what is read again at most when an archive goes on. The
// versions of one commit are loaded together.
const (
	archiveVersions = 16 << 10
	archiveBytes    = 16 << 20
)

// NewArchive returns the archive of one store in another one, which goes on where the last one of the
// same source has ended. Errors are the engines'; of CodeInvalid, where both are one store.
func NewArchive(ctx context.Context, from, to *Store) (*Archive, error) {
	a := &Archive{From: from, To: to}
	var err error
	if a.stored, err = to.ReadPlace(ctx, archiveKey, &a.archived); err != nil {
		return nil, err
	}
	if err := a.apart(ctx); err != nil || a.Last == nil {
		return a, err
	}
	there, err := from.all.Get(ctx, a.Last.Collection, []driver.Ref{{Key: a.Last.Key, Number: a.Last.Number}}, []string{})
	if err != nil {
		return nil, err
	}
	if there[0] == nil || !bytes.Equal(seal.Hash(there[0].Seal), a.Hash) { // another source, or an older copy of it
		a.archived = archived{}
		return a, nil
	}
	a.reached.Store(int64(a.Last.At - 1))
	return a, nil
}

// apart fails with CodeInvalid where both stores are one, under two names: what is noted in the target is
// then in the source as well. So it is in a copy: another note tells.
func (a *Archive) apart(ctx context.Context) error {
	for noted := false; ; noted = true {
		there, err := a.From.ReadPlace(ctx, archiveKey, new(archived))
		switch {
		case err != nil:
			return err
		case (there == nil) != (a.stored == nil), there != nil && (there.Number != a.stored.Number || !bytes.Equal(there.Seal, a.stored.Seal)):
			return nil
		case noted:
			return driver.Errorf(driver.CodeInvalid, "the archive is the store itself, under another name")
		}
		if err := a.note(ctx); err != nil {
			return err
		}
	}
}

// note notes how far the source was followed.
func (a *Archive) note(ctx context.Context) (err error) {
	a.stored, err = a.To.NotePlace(ctx, archiveKey, a.stored, a.archived)
	if driver.CodeOf(err) == driver.CodeConflict { // another program does the same, and what it noted is true as well
		a.stored, err = a.To.ReadPlace(ctx, archiveKey, new(archived))
	}
	return err
}

// ReadPlace reads how far a source was followed, by the key under which NotePlace has noted it. It
// returns the version to be given to NotePlace; nil: there is none.
func (s *Store) ReadPlace(ctx context.Context, key string, into any) (*driver.Version, error) {
	return readOwn(ctx, s.all, archiveCollection, key, into)
}

// NotePlace notes it, in place of the version before.
// CodeConflict: another process has noted something meanwhile.
func (s *Store) NotePlace(ctx context.Context, key string, before *driver.Version, place any) (*driver.Version, error) {
	return s.noteOwn(ctx, archiveCollection, key, before, place)
}

// Reached is the instant up to which the archive has all of its source; 0: it is not known.
func (a *Archive) Reached() driver.Instant { return driver.Instant(a.reached.Load()) }

// Follow loads what the source has committed until now, and returns how many versions the target
// did not have. Where old versions were loaded into the source since, it begins at the
// beginning.
// Errors are the engines'; of CodeInvalid, where the target holds something else than the source.
func (a *Archive) Follow(ctx context.Context) (added int64, err error) {
	until, err := a.From.all.Now(ctx)
	if err != nil {
		return 0, err
	}
	loaded, err := a.From.all.Loaded(ctx) // after Now: every load of an instant up to that is known
	if err != nil {
		return 0, err
	}
	if loaded != a.Loaded && loaded <= until { // a load that goes on is not in the log yet
		a.archived = archived{Loaded: loaded}
	}
	q := &driver.LogQuery{To: until + 1, After: a.Last}
	if a.Last != nil {
		q.From = a.Last.At
	}
	a.batch, a.bytes = a.batch[:0], 0
	for v, err := range a.From.all.Log(ctx, q) {
		if err != nil {
			return added, err
		}
		if !IsArchived(v.Collection) {
			continue
		}
		if a.isFull(v) {
			n, err := a.load(ctx)
			if added += n; err != nil {
				return added, err
			}
		}
		a.batch, a.bytes = append(a.batch, *v), a.bytes+v.Size()
	}
	n, err := a.load(ctx)
	if added += n; err == nil {
		a.reached.Store(int64(until))
	}
	return added, err
}

// isFull reports whether the batch is loaded before a version. What has one time is one commit,
// unless there is more of it than one may have.
func (a *Archive) isFull(v *driver.Version) bool {
	n := len(a.batch)
	if n < archiveVersions && a.bytes < archiveBytes {
		return false
	}
	return a.batch[n-1].RecordedAt < v.RecordedAt || n >= archiveVersions+driver.MaxWrites || a.bytes >= archiveBytes+driver.MaxCommitBytes
}

// load loads the batch, and empties it.
func (a *Archive) load(ctx context.Context) (added int64, err error) {
	if len(a.batch) == 0 {
		return 0, nil
	}
	last := a.batch[len(a.batch)-1]
	if err := a.raiseHorizons(ctx); err != nil {
		return 0, err
	}
	// Those of a document together, as the target is written with less effort then.
	slices.SortStableFunc(a.batch, func(v, w driver.Version) int {
		return cmp.Or(strings.Compare(v.Collection, w.Collection), strings.Compare(v.Key, w.Key))
	})
	result, err := a.To.LoadPrepared(ctx, a.batch)
	if _, refused := errors.AsType[*driver.LoadError](err); refused { // perhaps as it is in the future
		if err := a.To.Await(ctx, last.RecordedAt); err != nil {
			return 0, err
		}
		result, err = a.To.LoadPrepared(ctx, a.batch)
	}
	if refused, ok := errors.AsType[*driver.LoadError](err); ok {
		return 0, &driver.LoadError{Index: refused.Index, Err: fmt.Errorf("the archive does not hold what its source does: %w; "+
			"something else was written or imported into it, or the source is another one: archive into an empty store", refused.Err)}
	}
	if err != nil {
		return 0, err
	}
	place := last.Position()
	a.Last, a.Hash = &place, seal.Hash(last.Seal)
	a.read += len(a.batch)
	clear(a.batch)
	a.batch, a.bytes = a.batch[:0], 0
	a.reached.Store(int64(place.At - 1))
	if a.read < archiveVersions {
		return result.Added, nil
	}
	err = a.note(ctx)
	a.read = 0
	return result.Added, err
}

// Await waits until an instant of a source is in the past of the store, whose clock may be a little
// behind. CodeUnavailable: it is not so in two seconds.
func (s *Store) Await(ctx context.Context, at driver.Instant) error {
	for wait := time.Millisecond; ; wait *= 2 {
		err := s.all.Settle(ctx, at)
		switch {
		case driver.CodeOf(err) != driver.CodeInvalid:
			return err
		case wait > time.Second:
			return driver.Errorf(driver.CodeUnavailable, "the clock of the source is ahead of the store's, which takes no versions of the future: %w", err)
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// raiseHorizons has lists refused of which the batch has only pruned versions, before it is loaded.
func (a *Archive) raiseHorizons(ctx context.Context) error {
	pruned, err := a.To.prunedNow(ctx, a.batch)
	if err != nil {
		return err
	}
	horizons := map[string]driver.Instant{}
	for v, now := range pruned {
		if now {
			horizons[v.Collection] = max(horizons[v.Collection], v.SupersededAt)
		}
	}
	return a.To.raiseHorizons(ctx, horizons)
}

// Verify compares both stores as of the end of the last Follow, by the last hash of each document, which
// stands for all of its history. It returns a line for each collection that differs.
func (a *Archive) Verify(ctx context.Context) (differences []string, err error) {
	var roots [2]*checkpoint.Checkpoint
	for i, s := range []*Store{a.From, a.To} {
		if roots[i], err = checkpoint.Make(ctx, s.all, a.Reached()); err != nil {
			return nil, err
		}
		roots[i].Collections = slices.DeleteFunc(roots[i].Collections, func(c checkpoint.CollectionRoot) bool { return !IsArchived(c.Name) })
	}
	return roots[0].Compare(roots[1]), nil
}

// readOwn reads the value that a document of a collection of asof's own holds. It returns the version; nil: there is none.
func readOwn(ctx context.Context, engine driver.Engine, collection, key string, into any) (*driver.Version, error) {
	vs, err := engine.Get(ctx, collection, []driver.Ref{{Key: key, At: latest}}, nil)
	if err != nil || !live(vs[0]) {
		return nil, err
	}
	return vs[0], json.Unmarshal(vs[0].Data, into)
}

// noteOwn stores a value as a document of a collection of asof's own, in place of the version
// before; nil: it is the first. It returns the new version.
// CodeConflict: another process has stored one meanwhile.
func (s *Store) noteOwn(ctx context.Context, collection, key string, before *driver.Version, value any) (*driver.Version, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	if data, err = normal.Object(data); err != nil {
		return nil, err
	}
	w := driver.Write{ID: newID(), Collection: collection, Key: key, Op: driver.OpCreate, Author: "asof", Data: data}
	if before != nil {
		w.Expected, w.Op = before.Number, driver.OpUpdate
	}
	w.Changed = normal.Changed(dataOf(before), data)
	return driver.CommitOne(ctx, s.all, &w)
}
