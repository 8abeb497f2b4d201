// Package rule reads the expressions that say which documents somebody may read:
//
//	owner = $sub or $sub in editors or not (draft = true) and team in $teams
//
// A name is a field of the document, a name after $ a claim of whoever asks. Values are
// compared by =, != and in; conditions are joined by and, or, not and brackets. Other values are
// "text", numbers, true, false and null.
package rule

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
)

// Expr is an expression: And, Or, Not or Compare.
type Expr interface{ expr() }

// And holds where both do.
type And struct{ A, B Expr }

// Or holds where one does.
type Or struct{ A, B Expr }

// Not holds where its expression does not.
type Not struct{ Of Expr }

// Compare relates two values.
type Compare struct {
	Op   Op
	A, B Value
}

func (And) expr()     {}
func (Or) expr()      {}
func (Not) expr()     {}
func (Compare) expr() {}

// Op is how two values are related.
type Op string

// The relations.
const (
	Equal   Op = "="
	Unequal Op = "!="
	In      Op = "in" // the second is a list with the first
)

// Value is what is compared: a field, a claim, or else the literal, which is a string, an
// int64, a bool, or nil for null.
type Value struct {
	Field, Claim string
	Literal      any
}

func (v Value) String() string {
	switch {
	case v.Field != "":
		return v.Field
	case v.Claim != "":
		return "$" + v.Claim
	case v.Literal == nil:
		return "null"
	}
	return fmt.Sprintf("%#v", v.Literal)
}

// deepest bounds the nesting of an expression.
const deepest = 50

// Parse reads an expression. An error says what is wrong, and where.
func Parse(text string) (Expr, error) {
	p := &parser{text: text}
	p.next()
	e := p.or(0)
	if p.err == nil && p.token != "" {
		p.fail("and, or, or the end is wanted")
	}
	return e, p.err
}

type parser struct {
	text  string
	at    int    // behind the token
	token string // "": the end
	err   error
}

func (p *parser) fail(want string) {
	if p.err == nil {
		found := strconv.Quote(p.token)
		if p.token == "" {
			found = "the end"
		}
		p.err = fmt.Errorf("at character %d, %s is found where %s", p.at-len(p.token)+1, found, want)
	}
	p.token = ""
}

func isWord(r rune) bool { return r == '_' || r == '-' || unicode.IsLetter(r) || unicode.IsDigit(r) }

// next reads a token.
func (p *parser) next() {
	rest := strings.TrimLeft(p.text[p.at:], " \t\r\n")
	p.at = len(p.text) - len(rest)
	n := 0
	switch {
	case rest == "":
	case strings.HasPrefix(rest, "!="):
		n = 2
	case strings.ContainsRune("=()", rune(rest[0])):
		n = 1
	case rest[0] == '"':
		for n = 1; n < len(rest) && rest[n] != '"'; n++ {
			if rest[n] == '\\' {
				n++
			}
		}
		n = min(n+1, len(rest))
	default:
		word := strings.TrimPrefix(rest, "$")
		end := strings.IndexFunc(word, func(r rune) bool { return !isWord(r) })
		if end < 0 {
			end = len(word)
		}
		n = max(len(rest)-len(word)+end, 1)
	}
	p.token = rest[:n]
	p.at += n
}

func (p *parser) is(token string) bool {
	if p.token != token {
		return false
	}
	p.next()
	return true
}

func (p *parser) or(depth int) Expr {
	e := p.and(depth)
	for p.is("or") {
		e = Or{e, p.and(depth)}
	}
	return e
}

func (p *parser) and(depth int) Expr {
	e := p.not(depth)
	for p.is("and") {
		e = And{e, p.not(depth)}
	}
	return e
}

func (p *parser) not(depth int) Expr {
	if depth > deepest {
		p.fail("an expression that is nested less deeply is wanted")
	}
	switch {
	case p.err != nil:
		return Compare{}
	case p.is("not"):
		return Not{p.not(depth + 1)}
	case p.is("("):
		e := p.or(depth + 1)
		if !p.is(")") {
			p.fail(") is wanted")
		}
		return e
	}
	c := Compare{A: p.value()}
	switch op := Op(p.token); op {
	case Equal, Unequal, In:
		c.Op = op
		p.next()
	default:
		p.fail("=, != or in is wanted")
	}
	c.B = p.value()
	return c
}

func (p *parser) value() Value {
	token := p.token
	var v Value
	switch first, _ := firstOf(token); {
	case token == "null":
	case token == "true", token == "false":
		v.Literal = token == "true"
	case first == '"':
		text, err := strconv.Unquote(token)
		if err != nil {
			p.fail(`a text such as "open" is wanted`)
		}
		v.Literal = text
	case first == '-' || unicode.IsDigit(first):
		n, err := strconv.ParseInt(token, 10, 64)
		if err != nil {
			p.fail("a whole number is wanted")
		}
		v.Literal = n
	case first == '$' && len(token) > 1:
		v.Claim = token[1:]
	case isWord(first) && token != "and" && token != "or" && token != "not" && token != "in":
		v.Field = token
	default:
		p.fail("a field, a claim such as $sub, or a value is wanted")
	}
	p.next()
	return v
}

func firstOf(token string) (rune, bool) {
	for _, r := range token {
		return r, true
	}
	return 0, false
}

// Comparisons calls fn with each comparison of an expression, until it returns an error.
func Comparisons(e Expr, fn func(Compare) error) error {
	switch e := e.(type) {
	case And:
		if err := Comparisons(e.A, fn); err != nil {
			return err
		}
		return Comparisons(e.B, fn)
	case Or:
		if err := Comparisons(e.A, fn); err != nil {
			return err
		}
		return Comparisons(e.B, fn)
	case Not:
		return Comparisons(e.Of, fn)
	case Compare:
		return fn(e)
	}
	return nil
}

// Kind is what a field holds, as far as rules can look at it.
type Kind string

// The kinds of fields.
const (
	Text   Kind = "a text"
	Number Kind = "a whole number"
	Truth  Kind = "true or false"
	Other  Kind = "of a type that rules cannot compare, or a list with a default"
)

// Check returns an error for an expression that makes no sense for a document: fieldOf
// returns what a field holds, and whether it is a list of that; false where there is none.
func Check(e Expr, fieldOf func(name string) (kind Kind, list, ok bool)) error {
	return Comparisons(e, func(c Compare) error {
		if c.A.Field != "" && c.B.Field != "" {
			return fmt.Errorf("%s and %s are two fields; compare a field with a claim or a value", c.A, c.B)
		}
		if c.Op == In && c.B.Field == "" && c.B.Claim == "" {
			return fmt.Errorf("%s is no list; what is behind in must be a field or a claim that is one", c.B)
		}
		of, with := c.A, c.B
		if of.Field == "" {
			of, with = with, of
		}
		if of.Field == "" {
			return nil
		}
		kind, list, ok := fieldOf(of.Field)
		switch fits := map[Kind]bool{}; {
		case !ok:
			return fmt.Errorf("there is no field %s", of)
		case kind == Other:
			return fmt.Errorf("%s is %s", of, kind)
		case list != (c.Op == In && of == c.B):
			return fmt.Errorf("%s: a list is asked with in, as in $sub in %[1]s, and other fields are not", of)
		case with.Claim == "" && with.Literal != nil:
			switch with.Literal.(type) {
			case string:
				fits[Text] = true
			case int64:
				fits[Number] = true
			case bool:
				fits[Truth] = true
			}
			if !fits[kind] {
				return fmt.Errorf("%s is %s, and %s is not", of, kind, with)
			}
		}
		return nil
	})
}
