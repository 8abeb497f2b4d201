package mongostore

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/asof/asof/storage/driver"
)

// textCondition is the condition on a string's search form. Beginnings are a
// range, which an index answers; the rest are regular expressions made of
// literals. They do without the server's own rules about case, which are not
// those of strings.ToLower: each letter becomes the set of letters that have
// it as their small one.
func textCondition(f driver.Text) bson.D {
	if !f.Fold {
		value := encodeString(f.Value)
		if f.Op == driver.Equals {
			return bson.D{{Key: "$eq", Value: value}}
		}
		if f.Op == driver.HasPrefix {
			return bson.D{{Key: "$gte", Value: value}, {Key: "$lt", Value: value + afterAll}}
		}
	}
	return bson.D{{Key: "$regex", Value: pattern(f)}}
}

// maxPattern is how long a regular expression MongoDB takes, in bytes.
const maxPattern = 32764

// checkText refuses what would become a longer one.
func checkText(f driver.Text) error {
	if !f.Fold && (f.Op == driver.Equals || f.Op == driver.HasPrefix) || len(f.Value) < maxPattern/longestFolded {
		return nil // none, or one that is certainly short enough
	}
	if n := len(pattern(f)); n > maxPattern {
		return invalidf("the text of a condition, of %d bytes, is too long for MongoDB: the pattern made of it has %d bytes, at most %d are possible; ask for a part of it", len(f.Value), n, maxPattern)
	}
	return nil
}

// longestFolded is more than what a byte of a text becomes in a pattern.
const longestFolded = 20

// pattern is the regular expression for a match that is no range.
func pattern(f driver.Text) string {
	var b strings.Builder
	if f.Op == driver.HasPrefix || f.Op == driver.Equals {
		b.WriteString(`\A`)
	}
	value := f.Value
	if f.Fold {
		value = strings.ToLower(value)
	}
	for _, r := range value {
		if f.Fold {
			writeFolded(&b, r)
		} else {
			writeLiteral(&b, r)
		}
	}
	if f.Op == driver.HasSuffix || f.Op == driver.Equals {
		b.WriteString(`\z`)
	}
	return b.String()
}

// writeLiteral writes what matches one character of a text and nothing else.
func writeLiteral(b *strings.Builder, r rune) {
	switch {
	case r < ' ' || r == 0x7f:
		b.WriteString(`\x`)
		if r < 16 {
			b.WriteByte('0')
		}
		b.WriteString(strconv.FormatInt(int64(r), 16))
	case r < 0x80 && !(r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'):
		b.WriteByte('\\')
		b.WriteRune(r)
	default:
		writeEncoded(b, r)
	}
}

// writeFolded writes what matches every character whose small form is this one.
func writeFolded(b *strings.Builder, small rune) {
	others := uppers()[small]
	if unicode.ToLower(small) == small {
		others = append([]rune{small}, others...)
	}
	switch len(others) {
	case 0:
		b.WriteString(`(?!)`) // nothing has this small form
	case 1:
		writeLiteral(b, others[0])
	default:
		if slices.Max(others) < firstEscaped { // each is one character
			b.WriteByte('[')
			for _, r := range others {
				b.WriteRune(r)
			}
			b.WriteByte(']')
			return
		}
		b.WriteString("(?:")
		for i, r := range others {
			if i > 0 {
				b.WriteByte('|')
			}
			writeLiteral(b, r)
		}
		b.WriteByte(')')
	}
}

// uppers maps each small letter to the others that unicode.ToLower takes to it.
var uppers = sync.OnceValue(func() map[rune][]rune {
	found := make(map[rune][]rune)
	for _, c := range unicode.CaseRanges {
		for r := rune(c.Lo); r <= rune(c.Hi); r++ {
			if small := unicode.ToLower(r); small != r {
				found[small] = append(found[small], r)
			}
		}
	}
	return found
})
