package mongostore

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/driver/check"
)

// A version is in one of three places: a document's current version, its prev,
// or the overflow. It only ever moves on from one to the next, and arrives
// before it leaves. So a read that looks at them in this order, one after the
// other, meets every version at least once; what it meets twice it drops.
//
// The version of a document at an instant is the one whose interval [at, to)
// holds it, so that choosing the version and filtering are one condition.

// planned is a query, checked and made ready.
type planned struct {
	*driver.Query
	filter driver.Filter // planned and hoisted
	local  bool          // deeper than the search form: filtered, sorted and cut here
}

func planQuery(q *driver.Query) (*planned, error) {
	p := &planned{Query: q, filter: always{}}
	if q.Limit < 0 {
		return nil, invalidf("the limit %d is negative", q.Limit)
	}
	for _, o := range q.Order {
		if err := check.Field(o.Field, false); err != nil {
			return nil, err
		}
		p.local = p.local || len(o.Field.Path) > maxDepth
	}
	for _, position := range []*driver.Position{q.After, q.Before} {
		if err := checkPosition(position, q.Order); err != nil {
			return nil, err
		}
	}
	if q.Filter != nil {
		filter, err := plan(q.Filter, false)
		if err != nil {
			return nil, err
		}
		p.filter = hoist(filter)
	}
	p.local = p.local || depth(p.filter) > maxDepth
	return p, nil
}

// pushed is what the database applies of the filter and the page.
func (p *planned) pushed(at place) bson.A {
	var conditions bson.A
	if p.local {
		return conditions
	}
	if _, all := p.filter.(always); !all {
		conditions = append(conditions, at.compile(p.filter))
	}
	if p.After != nil {
		conditions = append(conditions, at.beyond(p.Order, p.After, true))
	}
	if p.Before != nil {
		conditions = append(conditions, at.beyond(p.Order, p.Before, false))
	}
	return conditions
}

func (p *planned) limit() int64 {
	if p.local {
		return 0
	}
	return int64(p.Limit)
}

// Query implements driver.Engine. It takes one command for a read of what is
// current for ever, two for one of what is current, and at most four for one
// of the past.
func (s *Store) Query(ctx context.Context, q *driver.Query) ([]*driver.Version, error) {
	ctx, leave, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	c, err := s.collection(q.Collection)
	if err != nil {
		return nil, err
	}
	p, err := planQuery(q)
	if err != nil {
		return nil, err
	}
	var rows []row
	err = s.inSnapshot(ctx, func(ctx context.Context) error {
		rows, err = c.rows(ctx, p, false)
		return err
	})
	if err != nil {
		return nil, wrap(err, "querying "+c.name)
	}
	if p.local {
		rows = p.evaluate(rows)
	}
	rows = p.page(rows)
	found := make([]*driver.Version, len(rows))
	for i, r := range rows {
		found[i] = r.version
	}
	return found, nil
}

// Count implements driver.Engine.
func (s *Store) Count(ctx context.Context, q *driver.Query) (int64, error) {
	ctx, leave, err := s.enter(ctx)
	if err != nil {
		return 0, err
	}
	defer leave()
	c, err := s.collection(q.Collection)
	if err != nil {
		return 0, err
	}
	if _, err := planQuery(q); err != nil {
		return 0, err
	}
	whole := *q
	whole.After, whole.Before, whole.Limit, whole.Order = nil, nil, 0, nil
	p, err := planQuery(&whole)
	if err != nil {
		return 0, err
	}
	if _, none := p.filter.(never); none {
		return 0, nil
	}
	var n int64
	err = s.inSnapshot(ctx, func(ctx context.Context) error {
		n, err = c.count(ctx, p)
		return err
	})
	return n, wrap(err, "counting in "+c.name)
}

// count counts what a query finds.
func (c *collection) count(ctx context.Context, p *planned) (int64, error) {
	if !p.local && !c.knownSince(p.At) {
		n, err := c.main.CountDocuments(ctx, p.currentFilter())
		if err != nil {
			return 0, err
		}
		if later, err := c.changedSince(ctx, p.At); err != nil || !later {
			return n, err
		}
	}
	// Some documents have later versions: their counted ones are in three
	// places, and only the keys tell which are the same.
	rows, err := c.rows(ctx, p, !p.local)
	if err != nil {
		return 0, err
	}
	if p.local {
		rows = p.evaluate(rows)
	}
	return int64(len(rows)), nil
}
