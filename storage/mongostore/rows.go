package mongostore

import (
	"context"
	"errors"
	"slices"

	"github.com/tidwall/gjson"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/asof/asof/storage/driver"
)

// rows reads what a query finds in all three places, each version once. Only
// their keys are read where the caller wants to count, and knows that there are
// later versions.
func (c *collection) rows(ctx context.Context, p *planned, keysOnly bool) ([]row, error) {
	if _, none := p.filter.(never); none {
		return nil, nil
	}
	r := &reader{c: c, p: p, keysOnly: keysOnly, seen: make(map[string]bool)}
	find := options.Find().SetSort(place.sortBy(at("current"), p.sorting(), p.Backward)).SetLimit(p.limit()).
		SetProjection(currentProjection(keysOnly)).SetAllowDiskUse(true)
	cursor, err := c.main.Find(ctx, p.currentFilter(), find)
	if err := r.all(ctx, cursor, err, "current"); err != nil {
		return nil, err
	}
	if !keysOnly {
		if later, err := c.changedSince(ctx, p.At); err != nil || !later {
			return r.rows, err
		}
	}
	cursor, err = c.main.Aggregate(ctx, p.prevPipeline(keysOnly), options.Aggregate().SetAllowDiskUse(true))
	if err := r.all(ctx, cursor, err, "prev"); err != nil {
		return nil, err
	}
	cursor, err = c.history.Aggregate(ctx, p.overflowPipeline(keysOnly), options.Aggregate().SetAllowDiskUse(true))
	return r.rows, r.all(ctx, cursor, err, "vs")
}

// sorting is the order that the database sorts by.
func (p *planned) sorting() []driver.Order {
	if p.local {
		return nil
	}
	return p.Order
}

// changedSince reports whether any document has a version after an instant. What is
// after one stays so, and needs no second look.
func (c *collection) changedSince(ctx context.Context, at driver.Instant) (bool, error) {
	if at == driver.Forever {
		return false, nil
	}
	if c.knownSince(at) {
		return true, nil
	}
	last, err := c.main.FindOne(ctx, bson.D{{Key: "current.at", Value: bson.D{{Key: "$gt", Value: int64(at)}}}},
		options.FindOne().SetSort(bson.D{{Key: "current.at", Value: -1}}).SetProjection(bson.D{{Key: "_id", Value: 0}, {Key: "current.at", Value: 1}})).Raw()
	if errors.Is(err, mongo.ErrNoDocuments) {
		return false, nil
	}
	if latest, ok := last.Lookup("current", "at").Int64OK(); ok {
		for old := c.latest.Load(); old < latest && !c.latest.CompareAndSwap(old, latest); {
			old = c.latest.Load()
		}
	}
	return err == nil, err
}

// knownSince is changedSince as far as it is known without asking.
func (c *collection) knownSince(at driver.Instant) bool { return int64(at) < c.latest.Load() }

// reader collects rows, each document once.
type reader struct {
	c        *collection
	p        *planned
	keysOnly bool
	seen     map[string]bool
	rows     []row
}

// all reads a cursor to its end; its versions are in a field of its documents.
func (r *reader) all(ctx context.Context, cursor *mongo.Cursor, err error, field string) error {
	if err != nil {
		return err
	}
	defer closeCursor(ctx, cursor)
	for cursor.Next(ctx) {
		key, err := r.c.key(cursor.Current.Lookup("_id"))
		if err != nil {
			return err
		}
		if r.seen[key] {
			continue
		}
		r.seen[key] = true
		if r.keysOnly {
			r.rows = append(r.rows, row{version: &driver.Version{Key: key}})
			continue
		}
		found, err := r.record(key, cursor.Current, field)
		if err != nil {
			return err
		}
		r.rows = append(r.rows, newRow(r.p.Order, &found.Version))
	}
	return cursor.Err()
}

// record reads a version that is in a field. Who was shown a current one may be about
// to update it, so it is remembered.
func (r *reader) record(key string, raw bson.Raw, field string) (*record, error) {
	if field != "current" {
		return r.c.version(key, raw.Lookup(field))
	}
	h, err := r.c.decodeHead(key, raw)
	if err != nil {
		return nil, err
	}
	r.c.remember(key, h)
	return &h.record, nil
}

// evaluate filters, and cuts at the positions, what the database could not.
func (p *planned) evaluate(rows []row) []row {
	return slices.DeleteFunc(rows, func(r row) bool {
		against := func(position *driver.Position) int {
			return comparePlaces(p.Order, r.values, placeOf(p.Order, position), r.version.Key, position.Key)
		}
		return p.After != nil && against(p.After) <= 0 || p.Before != nil && against(p.Before) >= 0 ||
			!holds(p.filter, r.version, gjson.ParseBytes(r.version.Data))
	})
}

// page sorts what came from several places and cuts the page out of it.
func (p *planned) page(rows []row) []row {
	slices.SortFunc(rows, func(a, b row) int { return compareRows(p.Order, a, b) })
	if p.Limit > 0 && len(rows) > p.Limit {
		if p.Backward {
			return rows[len(rows)-p.Limit:]
		}
		return rows[:p.Limit]
	}
	return rows
}
