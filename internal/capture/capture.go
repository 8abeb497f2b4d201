package capture

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/mongostore"
)

// Author is the author of what nobody is named for.
const Author = "capture"

// Options say what becomes of the documents of a source.
type Options struct {
	Type   *storage.Type     // that they get
	Drop   []string          // members that are left out
	Rename map[string]string // stored names of others
	// AuthorField is the stored member that says who made a change; empty: it is not known.
	AuthorField string
	// Filtered says that the source has documents that are left out.
	Filtered bool
	// Lenient keeps what does not fit the type, as an import does.
	Lenient bool
	Now     func() time.Time
}

// Capture follows a source into a store. Its methods are called by one goroutine.
type Capture struct {
	Options
	store   *storage.Store
	source  *mongostore.Source
	loaded  mongostore.SourcePosition // up to which all is in the store
	place   place
	stored  *driver.Version // that holds it
	notedAt time.Time
	changes int            // since then
	reached driver.Instant // see Reached
}

// place is what is noted.
type place struct {
	Captured mongostore.SourcePosition `json:"captured"`
}

// After so many changes, or so long, how far the source was read is noted: what is read again at
// most when a capture goes on, and how old it is for which the source's oplog is needed.
const (
	noteChanges = 16 << 10
	noteEvery   = 10 * time.Minute
)

// New returns a capture that goes on where the last one into the collection has ended.
// CodeInvalid: the collection has documents of other origin, or is that of another source.
func New(ctx context.Context, store *storage.Store, source *mongostore.Source, o Options) (*Capture, error) {
	c := &Capture{Options: o, store: store, source: source, notedAt: o.Now()}
	var err error
	if c.stored, err = store.ReadPlace(ctx, c.key(), &c.place); err != nil {
		return nil, err
	}
	if c.stored != nil {
		c.loaded = c.place.Captured
		err = source.Resume(c.loaded)
		return c, err
	}
	for _, err := range store.Engine().Log(ctx, &driver.LogQuery{Collections: []string{o.Type.Collection}, Limit: 1, Fields: []string{}}) {
		if err == nil {
			err = driver.Errorf(driver.CodeInvalid, "the store has documents of the type %s that were not captured: capture into another type, or an empty store", o.Type.Name)
		}
		return nil, err
	}
	if err := source.Begin(ctx); err != nil {
		return nil, err
	}
	c.loaded = source.Position
	err = c.Note(ctx)
	return c, err
}

func (c *Capture) key() string { return "capture " + c.Type.Collection }

// Note notes how far the source was loaded. Step does so now and then.
func (c *Capture) Note(ctx context.Context) (err error) {
	now := place{c.loaded}
	if c.stored == nil || !reflect.DeepEqual(now, c.place) {
		if c.stored, err = c.store.NotePlace(ctx, c.key(), c.stored, now); err != nil {
			return err
		}
	}
	c.place, c.notedAt, c.changes = now, c.Now(), 0
	return nil
}

// Reached is the instant up to which the store has what the source had; 0: it is not known.
func (c *Capture) Reached() driver.Instant { return c.reached }

// Step loads the next documents or changes. It returns how many versions the store did not have,
// and whether there was nothing for half a second.
// CodeInvalid: what the source has cannot be captured, or the store has something else.
func (c *Capture) Step(ctx context.Context) (added int64, idle bool, err error) {
	began, scanning := driver.InstantOf(c.Now()), !c.source.Position.Scanned()
	read := c.source.Next
	if scanning {
		read = c.source.Scan
	}
	changes, err := read(ctx)
	if err != nil {
		return 0, false, err
	}
	if added, err = c.load(ctx, changes); err != nil {
		return added, false, err
	}
	c.loaded = c.source.Position
	idle = !scanning && len(changes) == 0
	switch {
	case idle:
		c.reached = began
	case !scanning:
		c.reached = changes[len(changes)-1].At
	}
	c.changes += len(changes)
	if c.changes >= noteChanges || c.Now().Sub(c.notedAt) >= noteEvery || scanning && c.source.Position.Scanned() {
		err = c.Note(ctx)
	}
	return added, idle, err
}

func (c *Capture) load(ctx context.Context, changes []mongostore.Change) (added int64, err error) {
	if len(changes) == 0 {
		return 0, nil
	}
	documents, err := c.documents(ctx, changes)
	if err != nil {
		return 0, err
	}
	var vs []driver.Version
	for _, d := range documents {
		if vs, err = c.versions(vs, d); err != nil {
			return 0, err
		}
	}
	if len(vs) == 0 {
		return 0, nil
	}
	if err := c.store.Await(ctx, changes[len(changes)-1].At); err != nil {
		return 0, err
	}
	result, err := c.store.Load(ctx, vs)
	if refused, ok := errors.AsType[*driver.LoadError](err); ok {
		return 0, &driver.LoadError{Index: refused.Index, Err: fmt.Errorf("the store does not hold what was captured: %w; "+
			"something else was written to it, or it was captured with other flags: capture into an empty store", refused.Err)}
	}
	return result.Added, err
}
