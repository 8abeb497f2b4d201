package mongostore

import (
	"bytes"
	"context"
	"errors"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/seal"
)

// Load implements driver.Engine. Every version is checked before the first is
// written, so that a load that is refused changes nothing. The writes
// themselves are one atomic update for each document, many in one command, beside what
// others commit. Where it fails on the way, some of it may be there: of each document
// the first of its versions. The same load, made again, adds the rest.
//
// The store's timeout bounds each command, not the whole load.
func (s *Store) Load(ctx context.Context, vs []driver.Version) (driver.LoadResult, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.life, cancel)()
	ctx, done := s.causal(ctx)
	defer done()
	result, arrived, err := s.load(ctx, vs)
	if err == nil {
		err = s.clock.settle(ctx, arrived)
	}
	if err != nil {
		return driver.LoadResult{}, wrap(err, "loading")
	}
	return result, nil
}

// load loads, and says until when what it is about has arrived.
func (s *Store) load(ctx context.Context, vs []driver.Version) (result driver.LoadResult, arrived driver.Instant, err error) {
	began := s.clock.elapsed()
	for wait := firstPause; ; wait = min(2*wait, longestPause) {
		now, err := s.clock.latest(ctx, driver.Forever)
		if err != nil {
			return result, 0, err
		}
		l := &loading{store: s, documents: make(map[documentKey]*loadedDocument), now: now}
		planned, latest, err := l.plan(ctx, vs)
		if err != nil {
			return result, 0, err
		}
		if result == (driver.LoadResult{}) {
			result = planned
		}
		err = l.write(ctx)
		if err == nil {
			return result, max(latest, l.arrived()), nil
		}
		// Others may have changed a document: it is looked at again.
		if again := errors.Is(err, errChanged) || passes(err); !again || ctx.Err() != nil || s.clock.elapsed()-began > s.timeout {
			return result, 0, wrap(err, "some of it may be loaded; load the same again for the rest")
		}
		pause(ctx, wait)
	}
}

// errChanged: a document is not as it was when the load looked at it, or a flight's life was over.
var errChanged = driver.Errorf(driver.CodeUnavailable, "a document was changed while it was loaded; load it again")

// plan checks versions, and works out what has to be added. It returns how many
// that are, and the latest time.
func (l *loading) plan(ctx context.Context, vs []driver.Version) (result driver.LoadResult, latest driver.Instant, err error) {
	if err := l.read(ctx, vs); err != nil {
		return result, 0, wrap(err, "reading what is there")
	}
	for i := range vs {
		added, err := l.add(ctx, &vs[i])
		switch {
		case driver.CodeOf(err) == driver.CodeInvalid:
			return result, 0, &driver.LoadError{Index: i, Err: err}
		case err != nil:
			return result, 0, wrap(err, "reading what is there")
		case added:
			result.Added++
		default:
			result.Skipped++
		}
		latest = max(latest, vs[i].RecordedAt)
	}
	return result, latest, nil
}

// arrived is when the last of what is there had arrived, which may be in flight still, of
// another server.
func (l *loading) arrived() driver.Instant {
	last := driver.Instant(0)
	for _, d := range l.order {
		if d.head != nil {
			last = max(last, d.head.arrived())
		}
	}
	return last
}

// documentKey names a document of any collection.
type documentKey struct{ collection, key string }

// loading is one Load on its way.
type loading struct {
	store     *Store
	now       driver.Instant
	documents map[documentKey]*loadedDocument
	order     []*loadedDocument // as they came
}

// loadedDocument is a document that versions are added to.
type loadedDocument struct {
	c     *collection
	key   string
	head  *head     // before the load; nil: no document
	added []*record // versions that follow on the head
	// past has what is in prev and, once it was asked for, in the overflow,
	// by time.
	past     map[driver.Instant]*record
	pastFrom driver.Instant // past has all versions from here on
}

// read reads the heads of all documents that versions are for.
func (l *loading) read(ctx context.Context, vs []driver.Version) error {
	keys := make(map[*collection][]string)
	for i := range vs {
		c := l.store.collections[vs[i].Collection]
		d := documentKey{vs[i].Collection, vs[i].Key}
		if l.documents[d] != nil {
			continue
		}
		document := &loadedDocument{c: c, key: vs[i].Key}
		l.documents[d] = document
		l.order = append(l.order, document)
		keys[c] = append(keys[c], vs[i].Key)
	}
	for c, list := range keys {
		for part := range slices.Chunk(list, maxKeys) {
			heads, err := c.readHeads(ctx, part)
			if err != nil {
				return err
			}
			for key, h := range heads {
				if h.Number > 0 {
					l.documents[documentKey{c.name, key}].head = h
				}
			}
		}
	}
	return nil
}

// add plans one version. It reports false where the version is there already.
func (l *loading) add(ctx context.Context, v *driver.Version) (bool, error) {
	d := l.documents[documentKey{v.Collection, v.Key}]
	last := d.last()
	if last != nil && v.RecordedAt <= last.RecordedAt {
		there, err := d.at(ctx, v.RecordedAt)
		switch {
		case err != nil:
			return false, err
		case there == nil:
			return false, invalidf("%s %q: %s is not after the last version, of %s", v.Collection, v.Key, v.RecordedAt, last.RecordedAt)
		case v.Number != 0 && v.Number != there.Number:
			return false, invalidf("%s %q: the version of %s is number %d, not %d", v.Collection, v.Key, v.RecordedAt, there.Number, v.Number)
		case !sameContent(&there.Version, v):
			return false, invalidf("%s %q: another version of %s is there already", v.Collection, v.Key, v.RecordedAt)
		}
		return false, nil
	}
	number, before := int64(1), []byte(nil)
	if last != nil {
		number, before = last.Number+1, last.Seal
	}
	switch {
	case v.RecordedAt > l.now:
		return false, invalidf("%s %q: %s is in the future", v.Collection, v.Key, v.RecordedAt)
	case v.Number != 0 && v.Number != number:
		return false, invalidf("%s %q: number %d does not follow number %d", v.Collection, v.Key, v.Number, number-1)
	}
	r := &record{Version: *v}
	r.Number, r.SupersededAt = number, driver.Forever
	sealed, err := seal.Follow(before, &r.Version)
	if err != nil {
		return false, invalidf("%s %q: version %d %w", v.Collection, v.Key, number, err)
	}
	r.Seal = sealed
	if tooLarge(r) {
		return false, invalidf("%s %q: the version of %s %s", v.Collection, v.Key, v.RecordedAt, isTooLargeText)
	}
	d.added = append(d.added, r)
	return true, nil
}

// Bounds of one version as it is stored, in bytes: a document of MongoDB has room for two,
// the current one and the one before, and what is around them; and the JSON that is in it
// whatever it says: of two bytes, a digit in a list, come 60 at most.
const (
	maxDocument  = 16 << 20
	maxStored    = maxDocument/2 - 256<<10
	surelyStored = maxStored / 64
)

const isTooLargeText = "is too large for MongoDB, which takes 16 MB for two versions with what searches look at; divide the document"

// tooLarge reports whether MongoDB does not take a version.
func tooLarge(r *record) bool {
	besides := len(r.Author) + len(r.Message) + len(r.Group)
	for _, name := range r.Changed {
		besides += len(name)
	}
	return len(r.Data)+besides > surelyStored && len(encodeVersion(r)) > maxStored
}

// sameContent compares what a version says, not how it came about, as far as all of it is there.
func sameContent(a, b *driver.Version) bool {
	return seal.Same(a, b) || a.Deleted == b.Deleted && a.Author == b.Author && a.Message == b.Message && a.Group == b.Group && bytes.Equal(a.Data, b.Data)
}

// last is the version that the next one follows on.
func (d *loadedDocument) last() *record {
	if n := len(d.added); n > 0 {
		return d.added[n-1]
	}
	if d.head != nil {
		return &d.head.record
	}
	return nil
}

// at returns the version that was recorded at an instant; nil where there is none.
func (d *loadedDocument) at(ctx context.Context, at driver.Instant) (*record, error) {
	if i, ok := slices.BinarySearchFunc(d.added, at, func(r *record, at driver.Instant) int {
		return int(min(1, max(-1, r.RecordedAt-at)))
	}); ok {
		return d.added[i], nil
	}
	if d.head == nil || at > d.head.RecordedAt {
		return nil, nil
	}
	if at == d.head.RecordedAt {
		return &d.head.record, nil
	}
	if d.past == nil || at < d.pastFrom {
		d.past, d.pastFrom = make(map[driver.Instant]*record), at
		if err := d.readPast(ctx, at); err != nil {
			return nil, err
		}
	}
	return d.past[at], nil
}

// readPast reads the versions before the head that are not older than an instant.
func (d *loadedDocument) readPast(ctx context.Context, from driver.Instant) error {
	ctx, cancel := d.c.store.step(ctx)
	defer cancel()
	for _, place := range []struct {
		list   string
		source *mongo.Collection
		narrow bson.D
	}{
		{"prev", d.c.main, byKey(d.key)},
		{"vs", d.c.history, bson.D{{Key: "k", Value: encodeString(d.key)}, {Key: "to", Value: bson.D{{Key: "$gt", Value: int64(from)}}}}},
	} {
		cursor, err := place.source.Find(ctx, place.narrow, options.Find().SetProjection(versionFields(place.list)))
		err = each(ctx, cursor, err, func(raw bson.Raw) error {
			records, err := d.c.list(d.key, raw.Lookup(place.list))
			for _, r := range records {
				d.past[r.RecordedAt] = r
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// list reads a list of versions; a missing one is empty.
func (c *collection) list(key string, v bson.RawValue) ([]*record, error) {
	stored, err := elements(v)
	if err != nil {
		return nil, layoutError(c.name, key, "a list of versions is broken")
	}
	records := make([]*record, len(stored))
	for i, raw := range stored {
		if records[i], err = decodeVersion(c.name, key, raw); err != nil {
			return nil, err
		}
	}
	return records, nil
}

// elements are the documents in a list, nil for what is none; none where there is no list.
func elements(v bson.RawValue) ([]bson.Raw, error) {
	array, ok := v.ArrayOK()
	if !ok {
		return nil, nil
	}
	values, err := array.Values()
	list := make([]bson.Raw, len(values))
	for i, value := range values {
		list[i], _ = value.DocumentOK()
	}
	return list, err
}
