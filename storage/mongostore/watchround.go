package mongostore

import (
	"cmp"
	"context"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/asof/asof/storage/driver"
)

// roundDocuments is how many documents a round reads at a time.
const roundDocuments = 100

// loadedField is where a version that was loaded has the instant at which it was.
const loadedField = "ld"

// arrived is when a version came into the store. It grows with the number.
func (r *record) arrived() driver.Instant { return max(r.RecordedAt, r.loaded) }

// step tells what is next behind the place: a round that is shared, or one of
// its own. more says that there may be another one at once.
func (w *watching) step(ctx context.Context) (more bool, err error) {
	h := &w.store.sharing
	if w.place.to == 0 {
		r, join, err := h.next(ctx, w.store, w.place.from)
		if err != nil {
			return false, err
		}
		if r != nil {
			if w.shared(r) > 0 {
				w.store.waker.found.Store(true)
			}
			return !h.ended(r), nil
		}
		w.place.to = join
	}
	return true, w.round(ctx)
}

// shared tells what the watch is about of a shared round.
func (w *watching) shared(r *sharedRound) (told int) {
	w.place.to = r.to
	for _, v := range r.versions {
		if !slices.ContainsFunc(w.collections, func(c *collection) bool { return c.name == v.Collection }) {
			continue
		}
		told++
		w.place.collection, w.place.key, w.place.number = v.Collection, v.Key, v.Number
		if w.told(v); w.left {
			return told
		}
	}
	w.place = watchPlace{store: w.place.store, from: r.to}
	return told
}

// round tells what arrived in the round that the place is in.
func (w *watching) round(ctx context.Context) error {
	p := &w.place
	for _, c := range w.collections {
		if c.name < p.collection {
			continue
		}
		if err := w.roundOf(ctx, c); err != nil || w.left {
			return err
		}
	}
	w.place = watchPlace{store: p.store, from: p.to}
	return nil
}

// roundOf tells what a collection has for the round.
func (w *watching) roundOf(ctx context.Context, c *collection) error {
	after := int64(0) // of the document in the middle of which the place is
	middle := ""      // its key
	if w.place.collection == c.name {
		middle, after = w.place.key, w.place.number
	}
	for next := encodeString(middle); ; {
		documents, further, err := c.changed(ctx, w.place.from, next)
		if err != nil {
			return err
		}
		for _, d := range documents {
			if d.key != middle {
				after = 0
			}
			if err := w.document(ctx, c, d, after); err != nil || w.left {
				return err
			}
		}
		if further == "" {
			return nil
		}
		next = further
	}
}

// changedDocument is a document with the versions that are in itself.
type changedDocument struct {
	key    string
	newest []*record
}

// changed reads the next documents, from an encoded key on, whose last version
// arrived after an instant, by their keys. Where there may be others, further is
// the encoded key to go on with. Documents of other programs are passed over;
// their keys need not be ones that decode to anything.
//
// Those whose last version was loaded are asked for first: meanwhile one may
// become the others' by a commit, and no document goes the other way, since the
// time of its last version only grows. Likewise, a document that moves in the
// index while the index is read moves ahead.
func (c *collection) changed(ctx context.Context, after driver.Instant, next string) (found []changedDocument, further string, err error) {
	ctx, leave, err := c.store.enter(ctx)
	if err != nil {
		return nil, "", err
	}
	defer leave()
	fields := []string{"current." + loadedField, "current.at"}
	if after == 0 {
		fields = []string{""} // all documents
	}
	until, cut := "", false // beyond it, not all of them were read
	for _, field := range fields {
		filter := bson.D{{Key: "_id", Value: bson.D{{Key: "$gte", Value: next}}}}
		if field != "" {
			filter = append(bson.D{{Key: field, Value: bson.D{{Key: "$gt", Value: int64(after)}}}}, filter...)
		}
		cursor, err := c.main.Find(ctx, filter, options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}).SetLimit(roundDocuments).
			SetProjection(append(arrivalFields("current"), arrivalFields("prev")...)))
		n, last := 0, ""
		err = each(ctx, cursor, err, func(raw bson.Raw) error {
			n++
			last, _ = raw.Lookup("_id").StringValueOK() // no other type is in the range
			if raw.Lookup("current").Type != bson.TypeEmbeddedDocument {
				return nil // another program's
			}
			d, err := c.changedDocument(raw)
			if err != nil {
				return err
			}
			found = append(found, d)
			return nil
		})
		if err != nil {
			return nil, "", wrap(err, "reading "+c.name)
		}
		if n == roundDocuments && (!cut || last < until) {
			until, cut = last, true
		}
	}
	// Of a document that was read twice, the later has more.
	slices.Reverse(found)
	slices.SortStableFunc(found, func(a, b changedDocument) int { return cmp.Compare(a.key, b.key) })
	found = slices.CompactFunc(found, func(a, b changedDocument) bool { return a.key == b.key })
	if cut {
		found = slices.DeleteFunc(found, func(d changedDocument) bool { return encodeString(d.key) > until })
		further = until + "\x00"
	}
	return found, further, nil
}

func (c *collection) changedDocument(raw bson.Raw) (changedDocument, error) {
	key, err := c.key(raw.Lookup("_id"))
	if err != nil {
		return changedDocument{}, err
	}
	d := changedDocument{key: key}
	if d.newest, err = c.list(key, raw.Lookup("prev")); err != nil {
		return changedDocument{}, err
	}
	current, err := c.version(key, raw.Lookup("current"))
	d.newest = append(d.newest, current)
	return d, err
}

// arrivalFields is a projection to versions with when they arrived.
func arrivalFields(list string) bson.D {
	return append(versionFields(list), bson.E{Key: list + "." + loadedField, Value: 1})
}

// document tells the versions of a document behind a number that arrived within
// the round.
func (w *watching) document(ctx context.Context, c *collection, d changedDocument, after int64) error {
	first := d.newest[0]
	for older := first.arrived() > w.place.from && first.Number > after+1; older; {
		runs, err := c.runsBetween(ctx, d.key, after, first.Number)
		if err != nil {
			return err
		}
		if !w.tell(runs, &after) {
			return nil
		}
		older = len(runs) > 0
	}
	w.tell(d.newest, &after)
	return nil
}

// tell tells those of a list of versions of a document that are of the round. It
// returns false when no others are, or the loop was left.
func (w *watching) tell(list []*record, after *int64) bool {
	for _, r := range list {
		if r.Number <= *after {
			continue
		}
		if r.arrived() > w.place.to {
			return false
		}
		*after = r.Number
		if r.arrived() <= w.place.from {
			continue
		}
		w.place.collection, w.place.key, w.place.number = r.Collection, r.Key, r.Number
		if w.told(&r.Version); w.left {
			return false
		}
	}
	return true
}

// runsBetween reads the next versions in the overflow of a document that are
// behind one number and before another.
func (c *collection) runsBetween(ctx context.Context, key string, after, before int64) ([]*record, error) {
	ctx, leave, err := c.store.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	cursor, err := c.history.Find(ctx, bson.D{
		{Key: "k", Value: encodeString(key)},
		{Key: "n", Value: bson.D{{Key: "$lt", Value: before}}},
		{Key: "last", Value: bson.D{{Key: "$gt", Value: after}}},
	}, options.Find().SetSort(bson.D{{Key: "n", Value: 1}}).SetLimit(runBatch).SetProjection(arrivalFields("vs")))
	var found []*record
	err = each(ctx, cursor, err, func(raw bson.Raw) error {
		records, err := c.list(key, raw.Lookup("vs"))
		for _, r := range records {
			if r.Number > after && r.Number < before {
				found = append(found, r)
				after = r.Number
			}
		}
		return err
	})
	return found, wrap(err, "reading "+c.name)
}
