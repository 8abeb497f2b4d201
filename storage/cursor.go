package storage

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"hash/fnv"
	"strconv"
	"unicode/utf8"

	"github.com/asof/asof/internal/scalar/literal"
	"github.com/asof/asof/storage/driver"
)

// A cursor is base64url of a compact JSON array: the format's version, a hash of
// the list's arguments, the instant of the first page, and a place in the list.
const cursorVersion = 1

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

func encodeCursor(hash string, at driver.Instant, place ...any) string {
	raw, err := json.Marshal(append([]any{cursorVersion, hash, at}, place...))
	if err != nil { // places are strings, finite numbers and booleans
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(raw)
}

// appendCursor appends what encodeCursor makes of a key and sort values, with
// fewer allocations.
func appendCursor(dst []byte, hash string, at driver.Instant, key string, values []driver.Value) []byte {
	var buf [256]byte
	raw := append(strconv.AppendInt(append(buf[:0], '['), cursorVersion, 10), ',')
	raw = append(appendJSON(raw, hash), ',')
	raw = append(strconv.AppendInt(raw, int64(at), 10), ',')
	raw = appendJSON(raw, key)
	for _, v := range values {
		raw = append(raw, ',')
		switch v := v.(type) {
		case nil:
			raw = append(raw, "null"...)
		case int64:
			raw = strconv.AppendInt(raw, v, 10)
		case driver.Instant:
			raw = strconv.AppendInt(raw, int64(v), 10)
		case bool:
			raw = strconv.AppendBool(raw, v)
		case string:
			raw = appendJSON(raw, v)
		default: // a float, which is finite
			text, err := json.Marshal(v)
			if err != nil {
				text = []byte("null")
			}
			raw = append(raw, text...)
		}
	}
	return base64.RawURLEncoding.AppendEncode(dst, append(raw, ']'))
}

// appendVersionCursor appends what encodeCursor makes of a version's number.
func appendVersionCursor(dst []byte, hash string, at driver.Instant, number int64) []byte {
	var buf [96]byte
	raw := append(strconv.AppendInt(append(buf[:0], '['), cursorVersion, 10), ',')
	raw = append(appendJSON(raw, hash), ',')
	raw = append(strconv.AppendInt(raw, int64(at), 10), ',')
	raw = append(strconv.AppendInt(raw, number, 10), ']')
	return base64.RawURLEncoding.AppendEncode(dst, raw)
}

// appendJSON appends a string as encoding/json writes it.
func appendJSON(dst []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= utf8.RuneSelf || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			text, err := json.Marshal(s)
			if err != nil { // strings always encode
				return dst
			}
			return append(dst, text...)
		}
	}
	return append(append(append(dst, '"'), s...), '"')
}

// decodeCursor returns the instant and the place; arg is the argument's name.
func decodeCursor(arg, cursor, hash string, places int) (driver.Instant, []any, error) {
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
	if !ok || at < 1 || len(parts) != 3+places { // nothing is recorded before
		return 0, nil, badInput("%s: %s is not a cursor of this list", arg, quoteShort(cursor))
	}
	return driver.Instant(at), parts[3:], nil
}

// checkInstant checks the instant of a cursor of a list that belongs to a document, which
// was read as of another one. What comes after that does not show, unless the
// document was read as of now, which differs between servers.
func (o *operation) checkInstant(arg string, at, read driver.Instant) error {
	if at > read && read < o.begin {
		return badInput("%s: the cursor belongs to a list read at %s, not at %s", arg, at, read)
	}
	return nil
}

func number(v any) (int64, bool) {
	n, ok := v.(json.Number)
	if !ok {
		return 0, false
	}
	i, err := strconv.ParseInt(string(n), 10, 64)
	return i, err == nil
}

// cursorValue reads a sort value back from a cursor.
func cursorValue(kind driver.Kind, v any) (driver.Value, bool) {
	if v == nil {
		return nil, true
	}
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
