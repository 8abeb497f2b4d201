package normal

import (
	"bytes"
	"errors"
	"math"
	"strconv"

	"github.com/asof/asof/internal/scalar/literal"
)

// number reads a number and appends its normal form.
func (p *parser) number() {
	n, integer, err := literal.Scan(p.in[p.i:])
	start := p.i
	switch p.i += n; {
	case errors.Is(err, literal.ErrZero):
		p.fail("%v", err)
		return
	case err != nil:
		p.unexpected("a digit")
		return
	}
	text := p.in[start:p.i]
	const safe = 18 // int64 holds all integers of 18 digits
	if integer && n <= safe && string(text) != "-0" {
		p.out = append(p.out, text...)
		return
	}
	p.out = appendNumber(p.out, text)
}

// appendNumber appends the normal form of a number.
func appendNumber(dst, text []byte) []byte {
	number, ok := literal.ParseNumber(string(text))
	if !ok {
		return append(dst, text...)
	}
	if n, ok := integer(number); ok {
		return strconv.AppendInt(dst, n, 10)
	}
	x, err := strconv.ParseFloat(string(text), 64)
	if err != nil || math.IsInf(x, 0) {
		return append(dst, text...)
	}
	shortest := appendFloat(nil, x)
	if same, ok := literal.ParseNumber(string(shortest)); !ok || same.Compare(number) != 0 {
		return append(dst, text...)
	}
	return append(dst, shortest...)
}

// appendFloat formats as ECMAScript does (ECMA-262, Number::toString).
func appendFloat(dst []byte, x float64) []byte {
	if abs := math.Abs(x); abs != 0 && (abs < 1e-6 || abs >= 1e21) {
		dst = strconv.AppendFloat(dst, x, 'e', -1, 64)
		if n := len(dst); n >= 4 && dst[n-2] == '0' && (dst[n-3] == '-' || dst[n-3] == '+') {
			dst = append(dst[:n-2], dst[n-1]) // e-09 is written e-9
		}
		return dst
	}
	return strconv.AppendFloat(dst, x, 'f', -1, 64)
}

// integer returns the number as an int64, if it is one.
func integer(d literal.Number) (int64, bool) {
	if len(d.Digits) == 0 {
		return 0, true
	}
	if d.Exponent < len(d.Digits) || d.Exponent > 19 {
		return 0, false
	}
	text := make([]byte, 0, 20)
	if d.Negative {
		text = append(text, '-')
	}
	text = append(text, d.Digits...)
	text = append(text, bytes.Repeat([]byte{'0'}, d.Exponent-len(d.Digits))...)
	n, err := strconv.ParseInt(string(text), 10, 64)
	return n, err == nil
}
