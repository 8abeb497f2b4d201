package httpapi

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"
	"github.com/vektah/gqlparser/v2/lexer"
	"github.com/vektah/gqlparser/v2/parser"
)

// syntaxProblem is the error for a document that does not parse, where this
// server can say more of it than the parser; otherwise nil.
func (s *shapeLimit) syntaxProblem(source *ast.Source, err error) *gqlerror.Error {
	given, ok := errors.AsType[*gqlerror.Error](err)
	if !ok {
		return nil
	}
	switch message := given.Message; {
	case message == fmt.Sprintf("exceeded token limit of %d", s.limits.Tokens):
		return refuse(CodeTooComplex, "the query has more than %d tokens (names, values and punctuators), the limit of this server", s.limits.Tokens)
	case message == fmt.Sprintf("exceeded maximum nesting depth of %d", parser.MaxNestingDepth):
		refused := refuse(CodeTooComplex, "the query nests more than %d levels deep (selections, lists and objects together), the limit of this server", parser.MaxNestingDepth)
		refused.Locations = given.Locations
		return refused
	case strings.HasSuffix(message, " <Invalid>"), strings.HasSuffix(message, " found Invalid"):
		return tokenProblem(source)
	default:
		return nil
	}
}

// tokenProblem says why a document cannot be divided into tokens; nil: it can.
// The parser, which looks one token ahead, says only that a token is invalid.
func tokenProblem(source *ast.Source) *gqlerror.Error {
	tokens := lexer.New(source)
	for {
		token, err := tokens.ReadToken()
		if err != nil {
			refused := refuse(CodeBadInput, "%s", strings.ToValidUTF8(plainMessage(err), "…"))
			refused.Locations = []gqlerror.Location{{Line: token.Pos.Line, Column: token.Pos.Column}}
			return refused
		}
		if token.Kind == lexer.EOF {
			return nil
		}
	}
}

// plainMessage is what an error says, without its place.
func plainMessage(err error) string {
	if given, ok := errors.AsType[*gqlerror.Error](err); ok {
		return given.Message
	}
	return err.Error()
}

// hugeNumber refuses a document that parses and has a number which only a
// variable can have: an executor reads an integer into 64 bits before it knows
// what for.
func hugeNumber(source *ast.Source) *gqlerror.Error {
	if !mayBeHuge(source.Input) {
		return nil
	}
	tokens := lexer.New(source)
	for {
		token, err := tokens.ReadToken()
		if err != nil || token.Kind == lexer.EOF {
			return nil
		}
		switch token.Kind {
		case lexer.Int:
			_, err = strconv.ParseInt(token.Value, 10, 64)
		case lexer.Float:
			_, err = strconv.ParseFloat(token.Value, 64)
		default:
		}
		if err != nil {
			refused := refuse(CodeBadInput, "the number %s is too large for the text of a query; "+
				"write it in quotes (ID, Decimal) or send it in a variable", shorten(token.Value))
			refused.Locations = []gqlerror.Location{{Line: token.Pos.Line, Column: token.Pos.Column}}
			return refused
		}
	}
}

// mayBeHuge reports whether a text has so many digits together, or an exponent,
// that a number in it may be out of range.
func mayBeHuge(text string) bool {
	const digits = 19 // of the largest integer of 64 bits
	together := 0
	for i := range len(text) {
		switch c := text[i]; {
		case c >= '0' && c <= '9':
			if together++; together == digits {
				return true
			}
		case together > 0 && c|0x20 == 'e':
			return true
		default:
			together = 0
		}
	}
	return false
}

// halfPair refuses a document that parses and has a string with an escape for
// half of a surrogate pair, which the parser replaces by U+FFFD.
func halfPair(text string) *gqlerror.Error {
	if !strings.Contains(text, `\u`) {
		return nil
	}
	for at := 0; at < len(text); {
		rest := text[at:]
		switch {
		case rest[0] == '#':
			end := strings.IndexAny(rest, "\n\r")
			if end < 0 {
				return nil
			}
			at += end
		case strings.HasPrefix(rest, `"""`):
			at += blockEnd(rest) // it has no escapes but \"""
		case rest[0] == '"':
			end := stringEnd(rest)
			if half := loneSurrogate([]byte(rest[:end])); half >= 0 {
				refused := refuse(CodeBadInput, `a string has half of a surrogate pair, %s, which is no character; `+
					`write both halves, or the character itself`, rest[half:half+6])
				refused.Locations = []gqlerror.Location{location(text, at+half)}
				return refused
			}
			at += end
		default:
			at++
		}
	}
	return nil
}

// blockEnd is the length of the block string that a text begins with.
func blockEnd(text string) int {
	for at := len(`"""`); at < len(text); at++ {
		switch {
		case strings.HasPrefix(text[at:], `\"""`):
			at += len(`\"""`) - 1
		case strings.HasPrefix(text[at:], `"""`):
			return at + len(`"""`)
		}
	}
	return len(text)
}

// stringEnd is the length of the string that a text begins with.
func stringEnd(text string) int {
	for at := 1; at < len(text); at++ {
		switch text[at] {
		case '\\':
			at++
		case '"':
			return at + 1
		}
	}
	return len(text)
}

// location is the line of a place in a text and the character in it, both
// counted from one.
func location(text string, at int) gqlerror.Location {
	before := strings.ReplaceAll(text[:at], "\r\n", "\n")
	before = strings.ReplaceAll(before, "\r", "\n")
	start := strings.LastIndexByte(before, '\n') + 1
	return gqlerror.Location{
		Line:   strings.Count(before, "\n") + 1,
		Column: utf8.RuneCountInString(before[start:]) + 1,
	}
}
