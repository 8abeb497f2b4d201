package normal

import (
	"bytes"
	"math"
	"strconv"
)

// number reads a number and appends its normal form.
func (p *parser) number() {
	start := p.i
	i := start
	digits := func() bool {
		from := i
		for i < len(p.in) && p.in[i] >= '0' && p.in[i] <= '9' {
			i++
		}
		return i > from
	}
	if p.in[i] == '-' {
		i++
	}
	first := i
	ok := digits()
	if ok && p.in[first] == '0' && i > first+1 {
		p.fail("a number begins with a zero")
		return
	}
	integer := true
	if ok && i < len(p.in) && p.in[i] == '.' {
		integer = false
		i++
		ok = digits()
	}
	if ok && i < len(p.in) && (p.in[i] == 'e' || p.in[i] == 'E') {
		integer = false
		i++
		if i < len(p.in) && (p.in[i] == '+' || p.in[i] == '-') {
			i++
		}
		ok = digits()
	}
	if p.i = i; !ok {
		p.unexpected("a digit")
		return
	}
	text := p.in[start:i]
	const safe = 18 // so many digits always fit int64
	if integer && i-first <= safe && string(text) != "-0" {
		p.out = append(p.out, text...)
		return
	}
	p.out = appendNumber(p.out, text)
}

// appendNumber appends the normal form of a number.
func appendNumber(dst, text []byte) []byte {
	d, ok := parseDecimal(text)
	if !ok {
		return append(dst, text...)
	}
	if n, ok := d.int64(); ok {
		return strconv.AppendInt(dst, n, 10)
	}
	x, err := strconv.ParseFloat(string(text), 64)
	if err != nil || math.IsInf(x, 0) {
		return append(dst, text...)
	}
	shortest := appendFloat(nil, x)
	if same, ok := parseDecimal(shortest); !ok || !same.equal(d) {
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

// decimal is ±0.digits × 10^exp, without zeros at either end of the digits.
type decimal struct {
	negative bool
	digits   []byte
	exp      int
}

func parseDecimal(text []byte) (decimal, bool) {
	var d decimal
	if text[0] == '-' {
		d.negative = true
		text = text[1:]
	}
	if e := bytes.IndexAny(text, "eE"); e >= 0 {
		exp, err := strconv.Atoi(string(text[e+1:]))
		if err != nil || exp > 1e6 || exp < -1e6 {
			return d, false
		}
		d.exp = exp
		text = text[:e]
	}
	whole, fraction, _ := bytes.Cut(text, []byte{'.'})
	d.digits = append(append(make([]byte, 0, len(text)), whole...), fraction...)
	d.exp += len(whole)
	stripped := bytes.TrimLeft(d.digits, "0")
	d.exp -= len(d.digits) - len(stripped)
	d.digits = bytes.TrimRight(stripped, "0")
	if len(d.digits) == 0 {
		return decimal{}, true
	}
	return d, true
}

func (d decimal) equal(e decimal) bool {
	return d.negative == e.negative && d.exp == e.exp && bytes.Equal(d.digits, e.digits)
}

func (d decimal) int64() (int64, bool) {
	if len(d.digits) == 0 {
		return 0, true
	}
	if d.exp < len(d.digits) || d.exp > 19 {
		return 0, false
	}
	text := make([]byte, 0, 20)
	if d.negative {
		text = append(text, '-')
	}
	text = append(text, d.digits...)
	text = append(text, bytes.Repeat([]byte{'0'}, d.exp-len(d.digits))...)
	n, err := strconv.ParseInt(string(text), 10, 64)
	return n, err == nil
}
