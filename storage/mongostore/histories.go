package mongostore

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/asof/asof/storage/driver"
)

// Histories of several documents are read together: what is in the documents with
// one command, and what is in the overflow with another, where more is wanted. In
// the overflow that is looked for by number where the numbers are known, which
// follow on each other; where a time or other conditions say what is wanted, by
// windows that grow, all documents in step.

// How many versions are read together, about, and how many of a history without a
// limit in one step.
const (
	versionsTogether = 1_000
	firstWindow      = 64
	mostWindow       = 1024
)

// histories is the part of a log of histories that is read at once.
type histories struct {
	c       *collection
	q       *driver.LogQuery
	parts   []*documentLog
	byKey   map[string][]*documentLog
	uniform bool // all have the same bounds
	out     int  // versions that were read and are not wanted
	outSize int
}

// documentLog is one of them.
type documentLog struct {
	q     *driver.LogQuery // with the bounds of both
	place int              // in the query
	known []*record        // read from the document, and then from its runs, by number
	// What the overflow may still have: the numbers [low, high).
	low, high int64
	window    int64
	// The run that has an instant is to be found first.
	anchored bool
	anchor   driver.Instant
}

// histories reads the histories of a query, one after another.
func (s *Store) histories(ctx context.Context, q *driver.LogQuery, c *collection, yield func(driver.Entry, error) bool) error {
	size := maxKeys
	switch {
	case q.Limit == 0 && len(q.Histories) == 1: // it may be as long as it likes
		return s.log(ctx, q.Of(q.Histories[0]), yield)
	case q.Limit > 0:
		size = max(1, min(size, versionsTogether/q.Limit))
	case !q.NoData:
		size = 1 + versionsTogether/mostWindow
	}
	for from := 0; from < len(q.Histories); from += size {
		h := &histories{c: c, q: q, byKey: make(map[string][]*documentLog)}
		for place := from; place < min(from+size, len(q.Histories)); place++ {
			one := &documentLog{q: q.Of(q.Histories[place]), place: place}
			h.parts = append(h.parts, one)
			h.byKey[one.q.Keys[0]] = append(h.byKey[one.q.Keys[0]], one)
		}
		h.uniform = !slices.ContainsFunc(h.parts, func(one *documentLog) bool {
			a, b := one.q, h.parts[0].q
			return a.From != b.From || a.To != b.To || a.FromNumber != b.FromNumber || a.ToNumber != b.ToNumber
		})
		entries, err := h.read(ctx)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if err := ctx.Err(); err != nil {
				return err
			}
			if !yield(e, nil) {
				return nil
			}
		}
	}
	return nil
}

// read reads what there is of all of them.
func (h *histories) read(ctx context.Context) ([]driver.Entry, error) {
	if err := h.documents(ctx); err != nil {
		return nil, err
	}
	for {
		var open []*documentLog
		for _, one := range h.parts {
			if one.open() {
				open = append(open, one)
			}
		}
		if len(open) == 0 {
			break
		}
		if err := h.runs(ctx, open); err != nil {
			return nil, err
		}
		if err := h.drop(open); err != nil {
			return nil, err
		}
	}
	entries := h.entries()
	if h.q.Examined != nil && h.out > 0 {
		if err := h.q.Examined(h.out, h.outSize); err != nil {
			return nil, err
		}
	}
	if h.q.Previous || h.q.PreviousOfDeleted {
		return entries, h.c.store.fillPrevious(ctx, h.q, entries, h.near())
	}
	return entries, nil
}

// drop lets go of the data of versions that were looked at and are not wanted, of
// which there can be any number where other conditions than bounds hold.
func (h *histories) drop(list []*documentLog) error {
	if !conditional(h.q) || h.q.Previous || h.q.PreviousOfDeleted {
		return nil
	}
	size := 0
	for _, one := range list {
		for i, r := range one.known {
			if len(r.Data) == 0 || inLog(one.q, r) {
				continue
			}
			size += len(r.Data)
			without := *r // others have it, too
			without.Data = nil
			one.known[i] = &without
		}
	}
	if h.q.Examined == nil || size == 0 {
		return nil
	}
	return h.q.Examined(0, size)
}

// documents reads the versions that are in the documents themselves.
func (h *histories) documents(ctx context.Context) error {
	keys := make(bson.A, 0, len(h.byKey))
	for key := range h.byKey {
		keys = append(keys, encodeString(key))
	}
	slices.SortFunc(keys, func(a, b any) int { return strings.Compare(a.(string), b.(string)) })
	stages := bson.A{bson.D{{Key: "$match", Value: bson.D{{Key: "_id", Value: in(keys)}}}}}
	// The number of the oldest version in prev, which has none where nothing was
	// superseded.
	oldest := func(field string) any { return bson.D{{Key: "$arrayElemAt", Value: bson.A{"$prev." + field, 0}}} }
	first, begins := oldest("v"), oldest("at")
	for _, list := range h.wanted() {
		stages = append(stages, bson.D{{Key: "$project", Value: bson.D{
			{Key: "n", Value: 1}, {Key: "current", Value: 1}, {Key: "prev", Value: list}, {Key: "first", Value: first}, {Key: "begins", Value: begins},
		}}})
		first, begins = 1, 1
	}
	without := bson.D{{Key: "current.x", Value: 0}, {Key: "prev.x", Value: 0}}
	if h.q.NoData {
		without = append(without, bson.E{Key: "current.data", Value: 0}, bson.E{Key: "prev.data", Value: 0})
	}
	stages = append(stages, bson.D{{Key: "$project", Value: without}})
	cursor, err := h.c.main.Aggregate(ctx, stages, options.Aggregate().SetBatchSize(int32(len(keys))))
	return each(ctx, cursor, err, h.document)
}

// wanted are expressions that leave of prev, one after the other, what can be in a
// history, where that is the same of all of them; otherwise there are none.
func (h *histories) wanted() []any {
	q := h.parts[0].q
	if !h.uniform || q.Limit == 0 || conditional(q) {
		return nil
	}
	n := int64(q.Limit)
	if q.Previous || q.PreviousOfDeleted {
		n++
	}
	var bounds bson.A
	add := func(field, op string, value any) {
		bounds = append(bounds, bson.D{{Key: op, Value: bson.A{"$$p." + field, value}}})
	}
	keep := func() any {
		return bson.D{{Key: "$filter", Value: bson.D{{Key: "input", Value: "$prev"}, {Key: "as", Value: "p"}, {Key: "cond", Value: bson.D{{Key: "$and", Value: bounds}}}}}}
	}
	number := func(place int) bson.D { return bson.D{{Key: "$arrayElemAt", Value: bson.A{"$prev.v", place}}} }
	if q.To != 0 {
		add("at", "$lt", int64(q.To))
	}
	if q.ToNumber != 0 {
		add("v", "$lt", q.ToNumber)
	}
	if !q.Backward && q.From > 0 {
		add("to", "$gt", int64(q.From)) // and the one before, which may be asked for
	}
	if !q.Backward && q.FromNumber > 1 {
		add("v", "$gte", q.FromNumber-1)
	}
	var list []any
	if bounds != nil {
		list = append(list, keep())
	}
	// Numbers have no gaps.
	if bounds = nil; q.Backward {
		add("v", "$gt", bson.D{{Key: "$subtract", Value: bson.A{number(-1), n}}})
	} else {
		add("v", "$lte", bson.D{{Key: "$add", Value: bson.A{number(0), n}}})
	}
	return append(list, keep())
}

// conditional reports whether more than bounds says which versions are wanted.
func conditional(q *driver.LogQuery) bool {
	return len(q.Authors)+len(q.Ops)+len(q.Groups)+len(q.Changed) > 0
}

// document takes what was read of a document.
func (h *histories) document(raw bson.Raw) error {
	if isStub(raw) {
		return nil
	}
	key, err := h.c.key(raw.Lookup("_id"))
	if err != nil {
		return err
	}
	records, err := h.c.list(key, raw.Lookup("prev"))
	if err != nil {
		return err
	}
	current, err := h.c.version(key, raw.Lookup("current"))
	if err != nil {
		return err
	}
	first, ok := raw.Lookup("first").Int64OK()
	var end driver.Instant // of the overflow: when what follows it begins
	switch {
	case ok && readInstant(&end, raw.Lookup("begins")):
	case len(records) > 0:
		first, end = records[0].Number, records[0].RecordedAt
	default:
		first, end = current.Number, current.RecordedAt
	}
	for _, one := range h.byKey[key] {
		one.begin(append(slices.Clone(records), current), first, end)
	}
	return nil
}

// begin takes what is in the document, and says what may be in the overflow: the
// versions before a number.
func (o *documentLog) begin(records []*record, first int64, end driver.Instant) {
	o.known = records
	o.low, o.high = max(1, o.q.FromNumber), first
	if o.q.Backward && (o.q.Previous || o.q.PreviousOfDeleted) {
		o.low = max(1, o.low-1)
	}
	if o.q.ToNumber != 0 {
		o.high = min(o.high, o.q.ToNumber)
	}
	o.window = firstWindow
	if o.q.Limit == 0 && o.q.NoData {
		o.window = math.MaxInt32
	}
	if o.low >= o.high {
		return
	}
	switch {
	case o.q.Backward && o.q.ToNumber != 0 && o.q.ToNumber <= first:
		// The instant's version may be one of the document's, none of which were
		// asked for: the overflow is read from the number on.
	case o.q.Backward && o.q.To != 0 && o.q.To <= end && !slices.ContainsFunc(records, func(r *record) bool { return r.RecordedAt < o.q.To }):
		o.anchored, o.anchor = true, o.q.To-1
	case !o.q.Backward && o.q.From > 0 && o.q.From < end:
		o.anchored, o.anchor = true, o.q.From
	case !o.q.Backward && o.q.From > 0:
		o.high = o.low // the overflow ended before
	}
}

// left is how many versions are still wanted, at least; 0: none.
func (o *documentLog) left() int64 {
	if o.q.Limit == 0 {
		return math.MaxInt32
	}
	have := 0
	var furthest *record
	for _, r := range o.known {
		// Going forward, what is in the document follows what is in the overflow.
		if inLog(o.q, r) && (o.q.Backward || r.Number < o.low) {
			have++
			if furthest == nil || r.Number < furthest.Number {
				furthest = r
			}
		}
	}
	if have == o.q.Limit && o.q.Backward && o.lacks(furthest) {
		return 1
	}
	return int64(max(0, o.q.Limit-have))
}

// lacks reports whether the version before one is asked for and was not read.
func (o *documentLog) lacks(v *record) bool {
	return v.Number > 1 && o.q.WithPrevious(&v.Version) &&
		!slices.ContainsFunc(o.known, func(r *record) bool { return r.Number == v.Number-1 })
}

// open reports whether the overflow has to be asked.
func (o *documentLog) open() bool {
	if o.low >= o.high {
		return false
	}
	if o.q.Backward && o.q.From > 0 && slices.ContainsFunc(o.known, func(r *record) bool { return r.RecordedAt < o.q.From }) {
		return false // what is before is not wanted
	}
	if !o.q.Backward && o.q.To != 0 && slices.ContainsFunc(o.known, func(r *record) bool { return r.Number < o.low && r.RecordedAt >= o.q.To }) {
		return false // nor is what is behind
	}
	return o.left() > 0
}

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
