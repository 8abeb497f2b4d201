package storage

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"hash/fnv"
	"slices"
	"strconv"

	"github.com/asof/asof/internal/scalar/literal"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/rawjson"
)

// A cursor is base64url of a compact JSON array: the format's version, a hash of
// the list's arguments, the instant of the first page, and a place in the list, which is
// values of certain kinds.
const cursorVersion = 1

// The kinds of the values of places: a document's in a list, a version's in a history, a version's
// and a change's in the log.
var (
	keyKinds    = []driver.Kind{driver.KindString}
	numberKinds = []driver.Kind{driver.KindInt}
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
			err = badInput("%s: the cursor belongs to a list read at %s, not at %s", arg, seen, at)
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
		return 0, nil, badInput("%s: %s is not a cursor; take one from an edge or from pageInfo", arg, quoteShort(cursor))
	}
	if v, ok := parts[0].(json.Number); !ok || v != "1" {
		return 0, nil, badInput("%s: the cursor is of another version of the server; begin again without it", arg)
	}
	if parts[1] != hash {
		return 0, nil, badInput("%s: the cursor comes from a list with other arguments; use it with the ones that it was made with", arg)
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
		return 0, nil, badInput("%s: %s is not a cursor of this list", arg, quoteShort(cursor))
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
	default:
		s, ok := v.(string)
		return s, ok
	}
}
