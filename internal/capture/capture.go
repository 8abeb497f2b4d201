package capture

import (
	"context"
	"reflect"
	"time"

	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/mongostore"
	"github.com/asof/asof/storage/record"
)

// Author is the author of what nobody is named for.
const Author = "capture"

// Options say what becomes of the documents of a source.
type Options struct {
	Type   *record.Type      // that they get
	Drop   []string          // members that are left out: a.b is the member b of a, or of each of a list a
	Rename map[string]string // stored names of others, of the outermost level
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
// CodeInvalid: the collection has documents of other origin, or is that of another source, or two members
// would get one name.
func New(ctx context.Context, store *storage.Store, source *mongostore.Source, o Options) (*Capture, error) {
	c := &Capture{Options: o, store: store, source: source, notedAt: o.Now()}
	given := map[string]string{}
	for from, to := range o.Rename {
		if other, taken := given[to]; taken {
			return nil, driver.Errorf(driver.CodeInvalid, "%q and %q would both get the name %q; drop one of them, or give it another name", min(from, other), max(from, other), to)
		}
		given[to] = from
	}
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

// endTimeout is how long End may take: who ends a program waits for some seconds only, and stores have to be closed, too.
const endTimeout = 5 * time.Second

// End does so when the context has ended. Where it fails, more is read again by the next capture.
func (c *Capture) End(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	return c.Note(ctx)
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
	l := &loading{Capture: c, documents: map[string]*document{}}
	if err := l.all(ctx, changes); err != nil {
		return l.added, false, err
	}
	added = l.added
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
