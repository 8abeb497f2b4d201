package storage

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// encodeID makes a global id: Type:key, or Type:key@number for a version. In
// the key, percent signs, at signs and control characters are percent-encoded.
func encodeID(typeName, key string, number int64) string {
	return string(appendID(make([]byte, 0, len(typeName)+len(key)+8), typeName, key, number))
}

func appendID(b []byte, typeName, key string, number int64) []byte {
	b = append(append(b, typeName...), ':')
	const hex = "0123456789ABCDEF"
	for i := range len(key) {
		if c := key[i]; c == '%' || c == '@' || c < ' ' || c == 0x7f {
			b = append(b, '%', hex[c>>4], hex[c&15])
		} else {
			b = append(b, c)
		}
	}
	if number > 0 {
		b = strconv.AppendInt(append(b, '@'), number, 10)
	}
	return b
}

// parseID is the inverse of encodeID; number is 0 where the id names none.
func parseID(id string) (typeName, key string, number int64, err error) {
	bad := func(why string) (string, string, int64, error) {
		return "", "", 0, badInput("id %s is malformed: %s; an id is the name of a type, a colon and a key, and for one version an at sign and its number, as in Type:some-key@17", quoteShort(id), why)
	}
	typeName, rest, ok := strings.Cut(id, ":")
	if !ok || typeName == "" {
		return bad("it does not begin with a type and a colon")
	}
	if encoded, digits, versioned := strings.Cut(rest, "@"); versioned {
		n, err := strconv.ParseInt(digits, 10, 64)
		if err != nil || n < 1 || digits[0] == '+' || digits[0] == '0' {
			return bad("what follows the at sign is not a version number (an at sign in a key is written %40)")
		}
		rest, number = encoded, n
	}
	key, ok = unescapeKey(rest)
	if !ok {
		return bad("a percent sign is not followed by two hexadecimal digits (a percent sign in a key is written %25)")
	}
	if why := KeyProblem(key); why != "" {
		return bad("its key " + why)
	}
	return typeName, key, number, nil
}

func unescapeKey(s string) (string, bool) {
	if !strings.Contains(s, "%") {
		return s, true
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			b.WriteByte(s[i])
			continue
		}
		if i+3 > len(s) {
			return "", false
		}
		n, err := strconv.ParseUint(s[i+1:i+3], 16, 8)
		if err != nil {
			return "", false
		}
		b.WriteByte(byte(n))
		i += 2
	}
	return b.String(), true
}

// maxKey is the length of the longest key, in bytes.
const maxKey = 512

// KeyProblem says why no document can have the key, such as "is empty"; "" if
// one can.
func KeyProblem(key string) string {
	switch {
	case key == "":
		return "is empty"
	case len(key) > maxKey:
		return "is longer than " + strconv.Itoa(maxKey) + " bytes"
	case !utf8.ValidString(key):
		return "is not valid UTF-8"
	case strings.ContainsRune(key, 0):
		return "contains a NUL character"
	}
	return ""
}

// quoteShort quotes what a user gave, without repeating all of it.
func quoteShort(s string) string {
	const most = 80
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return strconv.Quote(s)
}
