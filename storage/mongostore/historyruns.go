package mongostore

import (
	"cmp"
	"context"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/asof/asof/storage/driver"
)

// runs reads the next runs of histories, for all of them at once.
func (h *histories) runs(ctx context.Context, open []*documentLog) error {
	var conditions bson.A
	asked := make(map[*documentLog]bool, len(open))
	for _, one := range open {
		conditions = append(conditions, one.nextRuns())
		asked[one] = true
	}
	found := make(map[string][]*record)
	fields := append((&logging{c: h.c, q: h.q}).fields("vs"), bson.E{Key: "k", Value: 1})
	cursor, err := h.c.history.Find(ctx, oneOf(conditions), options.Find().SetProjection(fields).SetBatchSize(maxKeys))
	err = each(ctx, cursor, err, func(raw bson.Raw) error {
		key, err := h.c.key(raw.Lookup("k"))
		if err != nil {
			return err
		}
		records, err := h.c.list(key, raw.Lookup("vs"))
		found[key] = append(found[key], records...)
		return err
	})
	if err != nil {
		return err
	}
	for key, list := range h.byKey {
		records := found[key]
		slices.SortFunc(records, func(a, b *record) int { return cmp.Compare(a.Number, b.Number) })
		records = slices.CompactFunc(records, func(a, b *record) bool { return a.Number == b.Number })
		for _, one := range list {
			if !asked[one] {
				continue
			}
			if err := one.take(h.c, records); err != nil {
				return err
			}
		}
	}
	return nil
}

// nextRuns is the condition on the runs of a history that are wanted next.
func (o *documentLog) nextRuns() bson.D {
	run := bson.D{{Key: "k", Value: encodeString(o.q.Keys[0])}}
	if o.anchored {
		return append(run, bson.E{Key: "from", Value: bson.D{{Key: "$lte", Value: int64(o.anchor)}}}, bson.E{Key: "to", Value: bson.D{{Key: "$gt", Value: int64(o.anchor)}}})
	}
	from, to := o.next()
	return append(run, bson.E{Key: "n", Value: bson.D{{Key: "$lt", Value: to}}}, bson.E{Key: "last", Value: bson.D{{Key: "$gte", Value: from}}})
}

// next are the numbers that are wanted next.
func (o *documentLog) next() (from, to int64) {
	n := o.window
	if !conditional(o.q) && o.q.Limit > 0 {
		n = o.left()
		if o.q.Backward && (o.q.Previous || o.q.PreviousOfDeleted) {
			n++
		}
	}
	if o.q.Backward {
		return max(o.low, o.high-n), o.high
	}
	return o.low, min(o.high, o.low+n)
}

// take takes what was found, which is in order and may be more than was asked for.
func (o *documentLog) take(c *collection, found []*record) error {
	if o.anchored {
		o.takeAnchor(found)
		return nil
	}
	from, to := o.next()
	var taken []*record
	for _, r := range found {
		if r.Number >= from && r.Number < to {
			taken = append(taken, r)
		}
	}
	if int64(len(taken)) != to-from {
		return layoutError(c.name, o.q.Keys[0], "a version in the middle of its history is missing")
	}
	o.known = append(o.known, taken...)
	if o.q.Backward {
		o.high = from
	} else {
		o.low = to
	}
	o.window = min(2*o.window, mostWindow)
	return nil
}

// takeAnchor finds the version of an instant among those found, and with it the
// numbers from which on to read. Where there is none, that was before the first.
func (o *documentLog) takeAnchor(found []*record) {
	o.anchored = false
	at := driver.Instant(0)
	number := int64(0)
	for _, r := range found {
		if r.RecordedAt <= o.anchor && r.RecordedAt > at {
			at, number = r.RecordedAt, r.Number
		}
	}
	switch {
	case o.q.Backward && number == 0:
		o.high = o.low
	case o.q.Backward:
		o.high = min(o.high, number+1)
		o.hold(found)
	case number > 0:
		o.low = max(o.low, number)
		o.hold(found)
	}
}

// hold keeps of a run that was found by an instant what is wanted first.
func (o *documentLog) hold(found []*record) {
	var taken []*record
	for _, r := range found {
		if r.Number >= o.low && r.Number < o.high {
			taken = append(taken, r)
		}
	}
	if o.q.Backward {
		// From the end on, as far as there is no gap.
		for i := len(taken) - 1; i >= 0 && taken[i].Number == o.high-1; i-- {
			o.known, o.high = append(o.known, taken[i]), o.high-1
		}
		return
	}
	for i := 0; i < len(taken) && taken[i].Number == o.low; i++ {
		o.known, o.low = append(o.known, taken[i]), o.low+1
	}
}

// entries are what the histories have.
func (h *histories) entries() []driver.Entry {
	var entries []driver.Entry
	for _, one := range h.parts {
		slices.SortFunc(one.known, func(a, b *record) int { return cmp.Compare(a.Number, b.Number) })
		one.known = slices.CompactFunc(one.known, func(a, b *record) bool { return a.Number == b.Number })
		if one.q.Backward {
			slices.Reverse(one.known)
		}
		n := 0
		for _, r := range one.known {
			switch {
			case one.q.Limit > 0 && n == one.q.Limit:
			case inLog(one.q, r):
				n++
				entries = append(entries, driver.Entry{Version: &r.Version, History: one.place})
			default:
				h.out++
				h.outSize += len(r.Data)
			}
		}
	}
	return entries
}

// near is all that was read, for what was before others.
func (h *histories) near() *nearby {
	var all []*record
	for _, one := range h.parts {
		all = append(all, one.known...)
	}
	return &nearby{lists: [2][]*record{all}}
}
