package mongostore

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tidwall/gjson"

	"github.com/asof/asof/internal/scalar/literal"
	"github.com/asof/asof/storage/driver"
)

// readings are the names, in the search form of a value, of how it reads as a kind.
var readings = [...]string{
	driver.KindString: "s", driver.KindInt: "i", driver.KindFloat: "f", driver.KindBool: "b",
	driver.KindInstant: "t", driver.KindDate: "d", driver.KindDecimal: "m", driver.KindObject: readingObject,
}

// The other members of a search form.
const (
	readingObject = "o"
	readingList   = "l"
	readingCut    = "z"
)

// readAs returns a stored JSON value as a kind, in the form that the database
// compares: string, int64 or bool; nil where it is not of the kind.
func readAs(kind driver.Kind, v gjson.Result) any {
	switch v.Type {
	case gjson.String:
		return textAs(kind, text(v))
	case gjson.True, gjson.False:
		if kind == driver.KindBool {
			return v.Type == gjson.True
		}
	case gjson.Number:
		return numberAs(kind, v.Raw)
	case gjson.Null, gjson.JSON:
	}
	return nil
}

// textAs is readAs for a decoded string.
func textAs(kind driver.Kind, s string) any {
	switch kind {
	case driver.KindString:
		return encodeString(s)
	case driver.KindInstant:
		if t, err := time.Parse(time.RFC3339, s); err == nil {
			return int64(driver.InstantOf(t))
		}
	case driver.KindDate:
		if literal.IsDate(s) {
			return s
		}
	case driver.KindDecimal:
		if m, ok := decimal(s); ok {
			return m
		}
	case driver.KindInt, driver.KindFloat, driver.KindBool, driver.KindObject:
	}
	return nil
}

// numberAs is readAs for the text of a number.
func numberAs(kind driver.Kind, raw string) any {
	switch kind {
	case driver.KindInt:
		if i, err := strconv.ParseInt(raw, 10, 64); err == nil {
			return i
		}
	case driver.KindFloat:
		if f, err := strconv.ParseFloat(raw, 64); err == nil {
			return ordered(f)
		}
	case driver.KindDecimal:
		if m, ok := decimal(raw); ok {
			return m
		}
	case driver.KindString, driver.KindBool, driver.KindInstant, driver.KindDate, driver.KindObject:
	}
	return nil
}

// operand converts a query's value, which is of the kind, to the same form.
func operand(kind driver.Kind, value driver.Value) any {
	switch value := value.(type) {
	case string:
		if kind == driver.KindDecimal {
			m, _ := decimal(value)
			return m
		}
		return encodeString(value) // a date is unchanged by this
	case float64:
		return ordered(value)
	case driver.Instant:
		return int64(value)
	default:
		return value
	}
}

// ordered maps floats to integers in the same order, so that comparisons are
// exact also on servers that compare large floats as integers.
func ordered(f float64) int64 {
	bits := int64(math.Float64bits(f + 0)) // a negative zero equals zero
	if bits < 0 {
		bits ^= math.MaxInt64
	}
	return bits
}

// text decodes a JSON string.
func text(v gjson.Result) string {
	raw := v.Raw
	if len(raw) < 2 {
		return ""
	}
	if strings.IndexByte(raw, '\\') < 0 {
		return raw[1 : len(raw)-1]
	}
	var s string
	if json.Unmarshal([]byte(raw), &s) != nil {
		return v.Str
	}
	return s
}

// exponentBias makes every exponent of a decimal positive.
const exponentBias = 500_000_000

// decimal encodes a decimal number, of any length, as text whose order is
// that of the numbers: the sign, the exponent and the digits of 0.d₁d₂… × 10ᵉ,
// each digit inverted for negative numbers.
func decimal(s string) (string, bool) {
	number, ok := literal.ParseDecimal(s)
	switch {
	case !ok:
		return "", false
	case len(number.Digits) == 0:
		return "5", true
	}
	biased := []byte(strconv.Itoa(number.Exponent + exponentBias))
	if !number.Negative {
		return "6" + string(biased) + string(number.Digits), true
	}
	for _, part := range [][]byte{biased, number.Digits} {
		for i, c := range part {
			part[i] = '0' + '9' - c
		}
	}
	return "4" + string(biased) + string(number.Digits) + "~", true
}

// Strings that the database compares are stored such that they are in the same
// order whether a server compares the bytes of UTF-8, as MongoDB does, or the
// units of UTF-16, as some servers with its protocol do. The two differ where
// characters beyond U+FFFF meet those between U+E000 and U+FFFF, so everything
// from U+D7B0 on is written as five characters: a mark and four digits of base
// 64, which are themselves characters from U+D7B0 on. Text of other characters,
// which is nearly all text, is stored as it is. The encoding keeps beginnings,
// and an encoded text occurs in another only where the text itself does.
const (
	firstEscaped = 0xD7B0
	escapeMark   = '\uD7FE'
	afterAll     = "\uD7FF" // greater than every continuation of an encoded text
	digitBits    = 6
	digitCount   = 4
	digitMask    = 1<<digitBits - 1
	leadEscaped  = 0xED // the first byte in UTF-8 of U+D000 and later is at least this
)

func encodeString(s string) string {
	for i := range len(s) {
		if s[i] >= leadEscaped {
			return escapeString(s)
		}
	}
	return s
}

func escapeString(s string) string {
	var b strings.Builder
	b.Grow(len(s) + 16)
	for _, r := range s {
		writeEncoded(&b, r)
	}
	return b.String()
}

func writeEncoded(b *strings.Builder, r rune) {
	if r < firstEscaped {
		b.WriteRune(r)
		return
	}
	b.WriteRune(escapeMark)
	for i := digitCount - 1; i >= 0; i-- {
		b.WriteRune(firstEscaped + r>>(i*digitBits)&digitMask)
	}
}

// decodeString reverses encodeString.
func decodeString(s string) string {
	at := strings.IndexRune(s, escapeMark)
	if at < 0 {
		return s
	}
	var b strings.Builder
	b.Grow(len(s))
	for at >= 0 {
		b.WriteString(s[:at])
		s = s[at+utf8.RuneLen(escapeMark):]
		var r rune
		for range digitCount {
			digit, size := utf8.DecodeRuneInString(s)
			r = r<<digitBits | (digit-firstEscaped)&digitMask
			s = s[size:]
		}
		b.WriteRune(r)
		at = strings.IndexRune(s, escapeMark)
	}
	b.WriteString(s)
	return b.String()
}

// memberName encodes the name of a JSON member for BSON and the paths of queries:
// without dots, dollars and NUL, not empty, and not a number, which in a path could
// mean a position in a list.
func memberName(name string) string {
	if name == "" {
		return "%"
	}
	if strings.ContainsAny(name, "%.$\x00") || name[0] >= '0' && name[0] <= '9' {
		return escapeName(name)
	}
	return name
}

func escapeName(name string) string {
	var b strings.Builder
	for i := range len(name) {
		c := name[i]
		if c == '%' || c == '.' || c == '$' || c == 0 || i == 0 && c >= '0' && c <= '9' {
			b.WriteByte('%')
			if c < 16 {
				b.WriteByte('0')
			}
			b.WriteString(strings.ToUpper(strconv.FormatUint(uint64(c), 16)))
			continue
		}
		b.WriteByte(c)
	}
	return b.String()
}

// collectionName is the name in the database for a collection of documents.
// No two collections share one, and none ends like those of this package.
func collectionName(name string) string {
	if name == "system" {
		return "%73ystem" // what starts with "system." belongs to the server
	}
	var b strings.Builder
	for i := range len(name) {
		switch c := name[i]; c {
		case '%', '.', '$', 0:
			b.WriteByte('%')
			b.WriteString(strings.ToUpper(strconv.FormatUint(0x100|uint64(c), 16)[1:]))
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

// What this package adds to the names of collections, which have no dots.
const (
	historySuffix = ".history"
	metaName      = "asof.meta"
)
