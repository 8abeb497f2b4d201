package storage

import (
	"context"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/record"
)

// SourceOf returns where the field is in the document that it is copied from: an object and the
// place in it; nil where there is no such object.
func SourceOf(c *record.Copy, d *Document) (*Object, int, error) {
	o := &d.Object
	for _, i := range c.In {
		var err error
		if o, err = o.Object(i); o == nil || err != nil {
			return nil, 0, err
		}
	}
	return o, c.Place, nil
}

// meeting returns the keys of the documents that meet a condition at an instant, at most so many,
// and one more if there are more.
func (s *Store) meeting(ctx context.Context, t *record.Type, at driver.Instant, f driver.Filter, most int) ([]driver.Value, error) {
	vs, err := s.engine.Query(ctx, &driver.Query{Collection: t.Collection, At: at, Filter: f, Limit: most + 1, Fields: []string{}, Keys: true})
	if err != nil {
		return nil, fromDriver(ctx, err)
	}
	keys := make([]driver.Value, len(vs))
	for i, v := range vs {
		keys[i] = v.Key
	}
	return keys, s.beyond(ctx, t, at)
}
