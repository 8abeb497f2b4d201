package storage

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"hash/fnv"
	"slices"
	"strconv"
	"sync"

	"github.com/asof/asof/internal/scalar/literal"
	"github.com/asof/asof/storage/condition"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/fault"
	"github.com/asof/asof/storage/rawjson"
	"github.com/asof/asof/storage/record"
)

// paging is the checked form of first, after, last and before.
type paging struct {
	limit         int
	backward      bool
	after, before *string
}

// paging returns the context's operation, and Relay's arguments when it has checked them. First
// and last exclude each other, as a page that is both has no useful meaning.
func (s *Store) paging(ctx context.Context, first *int, after *string, last *int, before *string) (op *operation, p paging, err error) {
	if op, err = s.operation(ctx); err != nil {
		return nil, p, err
	}
	p = paging{limit: s.limits.PageDefault, after: after, before: before}
	name, n := "first", first
	switch {
	case first != nil && last != nil:
		return nil, p, fault.BadInput("first and last are both given: ask for the first or the last of a list")
	case last != nil:
		p.backward = true
		name, n = "last", last
	}
	if n == nil {
		return op, p, nil
	}
	if *n < 0 {
		return nil, p, fault.BadInput("%s: %d is negative; ask for 0 to %d", name, *n, s.limits.PageMax)
	}
	if *n > s.limits.PageMax {
		return nil, p, fault.BadInput("%s: %d is more than a page can hold; ask for at most %d (--max-page) and go on with the cursor", name, *n, s.limits.PageMax)
	}
	p.limit = *n
	return op, p, nil
}

// around says what lies around a page: more is whether the list goes on in the
// direction of the page. A cursor belongs to an element of the list, so there
// is always something on its other side.
func (p paging) around(more bool) (next, previous bool) {
	if p.backward {
		return p.before != nil, more || p.after != nil
	}
	return more || p.before != nil, p.after != nil
}

// info is around as it is shown.
func (p paging) info(more bool) PageInfo {
	next, previous := p.around(more)
	return PageInfo{HasNextPage: next, HasPreviousPage: previous}
}

// trim cuts the element that was read to know whether there are more.
func trim[T any](p paging, items []T) ([]T, bool) {
	if len(items) <= p.limit {
		return items, false
	}
	if p.backward {
		return items[len(items)-p.limit:], true
	}
	return items[:p.limit], true
}

// Page returns a page of the documents as they were at one instant: that of
// asOf, of the cursor, or of the operation; or those that have a tag at that instant, in the
// versions that it is on. It chooses each document's version first and filters then.
// Errors: BAD_USER_INPUT for arguments that are out of bounds or contradict
// each other, AMBIGUOUS_VERSION for both asOf and tag, AS_OF_IN_FUTURE.
func (c *Collection[T]) Page(ctx context.Context, where map[string]any, orderBy []*OrderInput, first *int, after *string,
	last *int, before *string, asOf *driver.Instant, tag *string,
) (*Connection[T], error) {
	pg, err := c.store.Page(ctx, c.t, &PageArgs{
		Where: where, OrderBy: orderBy, First: first, After: after, Last: last, Before: before, AsOf: asOf, Tag: tag,
	})
	if err != nil {
		return nil, err
	}
	return connect(pg, c.wrap), nil
}

func connect[T any](pg *Page, wrap func(*Document) T) *Connection[T] {
	info := PageInfo{HasNextPage: pg.HasNextPage, HasPreviousPage: pg.HasPreviousPage}
	return connection(len(pg.Docs), info, pg.count, pg.cursorOf, func(place int) T { return wrap(pg.Docs[place]) })
}

// PageArgs are the arguments of a list of documents; they are only read.
type PageArgs struct {
	Where   map[string]any
	OrderBy []*OrderInput
	First   *int
	After   *string
	Last    *int
	Before  *string
	AsOf    *driver.Instant
	Tag     *string
	// Fields are the stored names of the top-level members that the caller will
	// look at; nil: all. What cursors are made of need not be among them.
	Fields []string
	// CountOnly says that the caller looks at nothing but TotalCount.
	CountOnly bool
	// Only holds beside Where; nil: nothing more.
	Only driver.Filter
}

// Page is a page of documents, or of the versions of one, without models. It is
// for one goroutine.
type Page struct {
	Docs                         []*Document
	HasNextPage, HasPreviousPage bool
	count                        counter
	cursor                       func(dst []byte, place int) []byte
}

// TotalCount counts the whole list, at the instant of its pages.
func (p *Page) TotalCount(ctx context.Context) (int, error) { return p.count(ctx) }

// AppendCursor appends the cursor of the document at a place of the page.
func (p *Page) AppendCursor(dst []byte, place int) []byte { return p.cursor(dst, place) }

func (p *Page) cursorOf(place int) string { return rawjson.View(p.AppendCursor(nil, place)) } // which may be long

// Page is Collection.Page without models.
func (s *Store) Page(ctx context.Context, t *record.Type, args *PageArgs) (*Page, error) {
	op, p, err := s.paging(ctx, args.First, args.After, args.Last, args.Before)
	if err != nil {
		return nil, err
	}
	q := &driver.Query{Collection: t.Collection, At: op.begin, Backward: p.backward, Limit: p.limit + 1}
	if q.Order, err = s.order(t, args.OrderBy); err != nil {
		return nil, err
	}
	if args.AsOf != nil {
		q.At = *args.AsOf
	}
	name := t.Name
	var list lister = s.engine
	beyond := s.beyond
	if args.Tag != nil {
		beyond = func(context.Context, *record.Type, driver.Instant) error { return nil } // tagged versions are not pruned
		if args.AsOf != nil {
			return nil, fault.Errorf(fault.CodeAmbiguousVersion, "asOf and tag are both given: name the versions by one of them")
		}
		name, list = name+"@"+*args.Tag, &tagged{store: s, t: t, name: *args.Tag}
	}
	first := firstCopied(t, q.Order)
	if first != nil && args.Tag != nil {
		return nil, fault.BadInput("orderBy[0]: %s is copied from other documents, which are as of one instant only in lists without a tag: sort by another field", first.Name)
	}
	hash := sync.OnceValue(func() string { return argsHash(name, args.Where, args.OrderBy) })
	after, before, at, err := p.places(hash, q.At, args.AsOf != nil, driver.Forever, keyKinds, q.Order)
	if err != nil {
		return nil, err
	}
	q.At, q.After, q.Before = at, positionAt(after), positionAt(before)
	if args.AsOf == nil && q.At < op.begin && !s.guard.mayPage(ctx, t) {
		q.At = op.begin // further pages are of now, too
	}
	if err := s.settled(ctx, op, q.At); err != nil {
		return nil, err
	}
	meeting := func(of *record.Type, f driver.Filter, most int) ([]driver.Value, error) {
		return s.meeting(ctx, of, q.At, f, most)
	}
	if args.Tag != nil {
		meeting = nil
	}
	if q.Filter, err = condition.Filter(t, args.Where, meeting); err != nil {
		return nil, err
	}
	if args.Only != nil {
		where := driver.And{args.Only}
		if q.Filter != nil {
			where = append(where, q.Filter)
		}
		q.Filter = where
	}
	query := list.Query
	var sorted *byCopy
	if first != nil {
		sorted = &byCopy{store: s, t: t, c: first}
		query = sorted.Query
	}
	count := func(ctx context.Context) (int, error) {
		n, err := list.Count(ctx, &driver.Query{Collection: t.Collection, At: q.At, Filter: q.Filter})
		if err != nil {
			return 0, fromDriver(ctx, err)
		}
		return int(n), beyond(ctx, t, q.At)
	}
	if args.CountOnly && sorted == nil { // else the order may fail
		n, err := count(ctx)
		return &Page{count: known(n)}, err
	}
	q.Fields = fieldsOf(q, args.Fields)
	vs, err := query(ctx, q)
	if err != nil {
		return nil, fromDriver(ctx, err)
	}
	if err := beyond(ctx, t, q.At); err != nil {
		return nil, err
	}
	vs, more := trim(p, vs)
	lists(ctx, vs...)
	pg := &Page{Docs: make([]*Document, len(vs))}
	pg.HasNextPage, pg.HasPreviousPage = p.around(more)
	docs := make([]Document, len(vs))
	for i, v := range vs {
		pg.Docs[i] = &docs[i]
		at, pinned := q.At, args.AsOf != nil
		if args.Tag != nil {
			at, pinned = v.RecordedAt, true
		}
		s.fillDocument(pg.Docs[i], t, v, at, q.At, pinned)
	}
	inBatch(pg.Docs)
	pg.cursor = func(dst []byte, place int) []byte {
		pos := position(pg.Docs[place], q.Order)
		if sorted != nil {
			pos.Values[0] = sorted.values[pos.Key]
		}
		return appendCursor(dst, hash(), q.At, pos.Key, pos.Values...)
	}
	if pg.count = count; !more && p.after == nil && p.before == nil {
		pg.count = known(len(vs)) // the page is the whole list
	}
	return pg, nil
}

// lister finds documents, as driver.Engine does.
type lister interface {
	Query(ctx context.Context, q *driver.Query) ([]*driver.Version, error)
	Count(ctx context.Context, q *driver.Query) (int64, error)
}

// known counts what was counted.
func known(n int) counter {
	return func(context.Context) (int, error) { return n, nil }
}

// fieldsOf adds to the names that a caller will look at those that cursors are
// made of.
func fieldsOf(q *driver.Query, fields []string) []string {
	if fields == nil {
		return nil
	}
	for _, o := range q.Order {
		if o.Field.Meta == driver.MetaNone && !slices.Contains(fields, o.Field.Path[0]) {
			fields = append(slices.Clip(fields), o.Field.Path[0])
		}
	}
	return fields
}

// positionAt is a place in a list of documents.
func positionAt(place []driver.Value) *driver.Position {
	if place == nil {
		return nil
	}
	return &driver.Position{Key: place[0].(string), Values: place[1:]}
}

// A cursor is base64url of a compact JSON array: the format's version, a hash of
// the list's arguments, the instant of the first page, and a place in the list, which is
// values of certain kinds.
const cursorVersion = 1

// The kinds of the values of places: a document's in a list, a version's and a change's in the log.
var (
	keyKinds    = []driver.Kind{driver.KindString}
	logKinds    = []driver.Kind{driver.KindInstant, driver.KindString, driver.KindString, driver.KindInt}
	changeKinds = append(slices.Clip(logKinds), driver.KindInt)
)

// argsHash identifies the arguments of a list, so that a cursor made with
// others is recognised.
func argsHash(parts ...any) string {
	h := fnv.New64a()
	enc := json.NewEncoder(h)
	for _, p := range parts {
		if enc.Encode(p) != nil { // what cannot be written as JSON counts as nothing
			h.Write([]byte{0})
		}
	}
	return strconv.FormatUint(h.Sum64(), 36)
}

// appendCursor appends the cursor of a place, which has a first value and others. Floats are finite.
func appendCursor(dst []byte, hash string, at driver.Instant, first driver.Value, others ...driver.Value) []byte {
	var buf [256]byte
	raw := append(strconv.AppendInt(append(buf[:0], '['), cursorVersion, 10), ',')
	raw = append(rawjson.AppendString(raw, hash), ',')
	raw = strconv.AppendInt(raw, int64(at), 10)
	for i := -1; i < len(others); i++ {
		value := first
		if i >= 0 {
			value = others[i]
		}
		raw = append(raw, ',')
		switch v := value.(type) {
		case int64:
			raw = strconv.AppendInt(raw, v, 10)
		case driver.Instant:
			raw = strconv.AppendInt(raw, int64(v), 10)
		case float64:
			raw = strconv.AppendFloat(raw, v, 'g', -1, 64)
		case bool:
			raw = strconv.AppendBool(raw, v)
		case string:
			raw = rawjson.AppendString(raw, v)
		default:
			raw = append(raw, "null"...)
		}
	}
	return base64.RawURLEncoding.AppendEncode(dst, append(raw, ']'))
}

// places returns the places of after and before, nil for none, and the instant that they are read at:
// that of the cursors, or at, from which theirs may not differ where it is pinned. It is not after
// latest.
func (p paging) places(hash func() string, at driver.Instant, pinned bool, latest driver.Instant, kinds []driver.Kind, order []driver.Order) (after, before []driver.Value, seen driver.Instant, err error) {
	read := func(arg string, cursor *string) (place []driver.Value) {
		if cursor == nil || err != nil {
			return nil
		}
		seen, place, err = decodeCursor(arg, *cursor, hash(), kinds, order)
		if err == nil && (pinned && seen != at || seen > latest) {
			err = fault.BadInput("%s: the cursor belongs to a list read at %s, not at %s", arg, seen, at)
		}
		at, pinned = seen, true
		return place
	}
	after, before = read("after", p.after), read("before", p.before)
	return after, before, at, err
}

// latest is the latest instant of a cursor of a list that belongs to a document, which
// was read as of another one. What comes after that does not show, unless the
// document was read as of now, which differs between servers.
func (o *operation) latest(read driver.Instant) driver.Instant {
	if read < o.begin {
		return read
	}
	return driver.Forever
}

// decodeCursor returns the instant and the place, which is values of some kinds, and then those of
// an order, which may be null; arg is the argument's name.
func decodeCursor(arg, cursor, hash string, kinds []driver.Kind, order []driver.Order) (driver.Instant, []driver.Value, error) {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	var parts []any
	if err == nil {
		dec := json.NewDecoder(bytes.NewReader(raw))
		dec.UseNumber()
		err = dec.Decode(&parts)
	}
	if err != nil || len(parts) < 3 {
		return 0, nil, fault.BadInput("%s: %s is not a cursor; take one from an edge or from pageInfo", arg, fault.QuoteShort(cursor))
	}
	if v, ok := parts[0].(json.Number); !ok || v != "1" {
		return 0, nil, fault.BadInput("%s: the cursor is of another version of the server; begin again without it", arg)
	}
	if parts[1] != hash {
		return 0, nil, fault.BadInput("%s: the cursor comes from a list with other arguments; use it with the ones that it was made with", arg)
	}
	at, ok := number(parts[2])
	fits := ok && at >= 1 && len(parts) == 3+len(kinds)+len(order) // nothing is recorded before
	place := make([]driver.Value, len(parts)-3)
	for i, part := range parts[3:] {
		switch {
		case !fits:
		case i < len(kinds):
			place[i], fits = cursorValue(kinds[i], part)
		case part != nil:
			place[i], fits = cursorValue(order[i-len(kinds)].Field.Kind, part)
		}
	}
	if !fits {
		return 0, nil, fault.BadInput("%s: %s is not a cursor of this list", arg, fault.QuoteShort(cursor))
	}
	return driver.Instant(at), place, nil
}

func number(v any) (int64, bool) {
	n, ok := v.(json.Number)
	if !ok {
		return 0, false
	}
	i, err := strconv.ParseInt(string(n), 10, 64)
	return i, err == nil
}

// cursorValue reads a value of a place back.
func cursorValue(kind driver.Kind, v any) (driver.Value, bool) {
	switch kind {
	case driver.KindInt:
		n, ok := number(v)
		return n, ok
	case driver.KindInstant:
		n, ok := number(v)
		return driver.Instant(n), ok
	case driver.KindFloat:
		n, ok := v.(json.Number)
		if !ok {
			return nil, false
		}
		x, err := n.Float64()
		return x, err == nil
	case driver.KindBool:
		b, ok := v.(bool)
		return b, ok
	case driver.KindDecimal:
		s, ok := v.(string)
		return s, ok && literal.IsDecimal(s)
	case driver.KindDate:
		s, ok := v.(string)
		return s, ok && literal.IsDate(s)
	default:
		s, ok := v.(string)
		return s, ok
	}
}

const maxOrderFields = 8

// order turns an orderBy argument into the engine's order. A field with a
// default sorts as null where the stored version lacks it.
func (s *Store) order(t *record.Type, orderBy []*OrderInput) ([]driver.Order, error) {
	if len(orderBy) > maxOrderFields {
		return nil, fault.BadInput("orderBy: %d fields are given; at most %d can be sorted by", len(orderBy), maxOrderFields)
	}
	var out []driver.Order
	for i, o := range orderBy {
		if o == nil {
			return nil, fault.BadInput("orderBy[%d]: null is not an order", i)
		}
		order := driver.Order{Desc: o.Direction == Desc}
		switch o.Field {
		case "key":
			order.Field = condition.Key
		case "version":
			order.Field = driver.Field{Meta: driver.MetaNumber, Kind: driver.KindInt}
		case "recordedAt":
			order.Field = driver.Field{Meta: driver.MetaRecordedAt, Kind: driver.KindInstant}
		default:
			if c := t.Copy(o.Field); c != nil {
				if i > 0 {
					return nil, fault.BadInput("orderBy[%d]: %s is copied from other documents, by which lists can only be sorted first: give it as the first field, and one of its kind", i, o.Field)
				}
				order.Field = driver.Field{Meta: metaCopied, Path: []string{o.Field}, Kind: c.Target().Kind}
				break
			}
			f := t.Object.Field(o.Field)
			if f == nil || !f.Sortable() {
				return nil, fault.BadInput("orderBy[%d]: %s cannot be sorted by %s", i, t.Plural, fault.QuoteShort(o.Field))
			}
			order.Field = f.Driver()
		}
		same := func(o driver.Order) bool {
			return o.Field.Meta == order.Field.Meta && slices.Equal(o.Field.Path, order.Field.Path)
		}
		if !slices.ContainsFunc(out, same) { // a field decides once
			out = append(out, order)
		}
	}
	return out, nil
}

// position is the place of a document in an order.
func position(d *Document, orders []driver.Order) driver.Position {
	p := driver.Position{Key: d.v.Key}
	for _, o := range orders {
		v := d.v.Meta(o.Field.Meta)
		switch {
		case len(o.Field.Path) > 1: // of what is copied from it
			v = condition.SortValue(o.Field.Kind, &record.Field{Kind: record.KindDate}, rawjson.Find(d.v.Data, o.Field.Path))
		case o.Field.Meta == driver.MetaNone:
			i := d.typ.StoredAs(o.Field.Path[0])
			v = condition.SortValue(o.Field.Kind, &d.typ.Fields[i], d.stored(i))
		}
		p.Values = append(p.Values, v)
	}
	return p
}
