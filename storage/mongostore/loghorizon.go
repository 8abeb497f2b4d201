package mongostore

import (
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/asof/asof/storage/driver"
)

// horizon is how far a log with a limit can reach. As many versions as the limit
// says, wherever they were found, leave out all that are further than the last of
// them: so what is current, which an index has in the order of the log, bounds what
// is looked for in prev, both bound the overflow, and one collection bounds the
// next. Without a limit there is no horizon.
type horizon struct {
	q      *driver.LogQuery
	places []driver.LogPosition // the first that are known, as far as the limit
}

// add notes what was found.
func (h *horizon) add(found ...*record) {
	if h.q.Limit == 0 {
		return
	}
	for _, r := range found {
		h.places = append(h.places, positionOf(r))
	}
	slices.SortFunc(h.places, func(a, b driver.LogPosition) int {
		c := comparePositions(a, b)
		if h.q.Backward {
			return -c
		}
		return c
	})
	h.places = slices.Compact(h.places) // a version may be in two places
	h.places = h.places[:min(len(h.places), h.q.Limit)]
}

// bounded is a query of the log with the interval that the horizon and the
// position behind which it begins leave of it.
func (h *horizon) bounded(q *driver.LogQuery) *driver.LogQuery {
	b := *q
	from := func(at driver.Instant) { b.From = max(b.From, at) }
	to := func(last driver.Instant) {
		if last < driver.Forever && (b.To == 0 || last < b.To) {
			b.To = last + 1
		}
	}
	far, near := to, from
	if q.Backward {
		far, near = from, to
	}
	if q.After != nil {
		near(q.After.At)
	}
	if q.Limit > 0 && len(h.places) == q.Limit {
		far(h.places[q.Limit-1].At)
	}
	return &b
}

// runsOf are conditions, which an index has, on the runs in which a query of the
// log can find something.
func runsOf(q *driver.LogQuery) bson.D {
	var conditions bson.D
	if q.From != 0 {
		conditions = append(conditions, bson.E{Key: "to", Value: bson.D{{Key: "$gt", Value: int64(q.From)}}})
	}
	if q.To != 0 {
		conditions = append(conditions, bson.E{Key: "from", Value: bson.D{{Key: "$lt", Value: int64(q.To)}}})
	}
	return conditions
}
