package storage

import (
	"context"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/fault"
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

// maxSources is the most documents to copy from that the conditions of a list, or one place in
// its order, may be about: their keys are held in memory, and each is looked for in an index.
const maxSources = 10_000

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

// copied is the condition on a copied field: that the document's reference is to one of those
// that meet it; or, where null meets it, to none of those that do not, so that it holds for
// documents without a source, too.
func (b *filterBuilder) copied(c *record.Copy, m map[string]any, path string) (driver.Filter, error) {
	if b.meeting == nil {
		return nil, fault.BadInput("%s: it is copied from other documents, which are as of one instant only in lists: leave it out of subscriptions, and where a tag is given; a condition on %s is possible", path, c.From[0])
	}
	meets, err := b.scalar(c.Field, c.Target(), m, path)
	if err != nil {
		return nil, err
	}
	null := meets
	if c.Field.Default != nil {
		plain := *c.Field
		plain.Default = nil // it is that of a document which is there
		// An error would have been above.
		null, _ = (&filterBuilder{}).scalar(&plain, c.Target(), m, path)
	}
	negated := holds(null, nil, []byte("{}"))
	if negated {
		meets = driver.Not{Filter: meets}
	}
	keys, err := b.meeting(c.Of, meets, maxSources-b.found)
	if err != nil {
		return nil, err
	}
	if b.found += len(keys); b.found > maxSources {
		return nil, fault.Errorf(fault.CodeQueryTooComplex, "%s: the conditions on copied fields are about more than %d documents: ask for fewer values, or for %s by key", path, maxSources, c.From[0])
	}
	in := c.Refers(b.t, keys)
	if negated {
		return driver.Not{Filter: in}, nil
	}
	return in, nil
}
