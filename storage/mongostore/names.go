package mongostore

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

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
	afterAll     = "\uD7FF" // greater than whatever follows an encoded text
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

// memberName makes a name of any JSON member one that BSON and the paths of
// queries take: without dots, dollars and NUL, not empty, and not a number,
// which a path could take for a place in a list.
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
