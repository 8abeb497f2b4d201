package httpapi

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/99designs/gqlgen/graphql/errcode"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"
	"github.com/vektah/gqlparser/v2/lexer"
	"github.com/vektah/gqlparser/v2/parser"
)

// parse parses a document of at most so many tokens. It returns how many there are,
// and how long the longest of them is, in bytes. An error is for the client.
func parse(text string, most int) (doc *ast.QueryDocument, tokens, longest int, refused *gqlerror.Error) {
	source := &ast.Source{Input: text}
	if tokens, longest, refused = readTokens(source, most); refused != nil {
		return nil, 0, 0, refused
	}
	doc, err := parser.ParseQuery(source)
	given, ok := errors.AsType[*gqlerror.Error](err)
	switch {
	case err == nil && len(doc.Operations) == 0:
		refused = refuse(CodeBadInput, "no operation provided")
	case err == nil:
		return doc, tokens, longest, nil
	case ok && given.Message == fmt.Sprintf("exceeded maximum nesting depth of %d", parser.MaxNestingDepth):
		refused = refuse(CodeTooComplex, "the query nests more than %d levels deep (selections, lists and objects together), the limit of this server", parser.MaxNestingDepth)
		refused.Locations = given.Locations
	case ok:
		refused = given
		errcode.Set(refused, errcode.ParseFailed)
	default:
		refused = refuse(CodeBadInput, "%v", err)
	}
	return nil, 0, 0, refused
}

// readTokens counts the tokens of a document, and measures the longest, without
// comments. It refuses what is no token (the parser, which looks one ahead, says only
// that one is invalid), and tokens that a parser would change without a word.
func readTokens(source *ast.Source, most int) (tokens, longest int, refused *gqlerror.Error) {
	var text []rune // where it is needed
	for reader := lexer.New(source); ; tokens++ {
		token, err := reader.ReadToken()
		switch {
		case err != nil:
			refused = refuse(CodeBadInput, "%s", strings.ToValidUTF8(plainMessage(err), "…"))
		case token.Kind == lexer.EOF:
			return tokens, longest, nil
		case tokens == most:
			return 0, 0, refuse(CodeTooComplex, "the query has more than %d tokens (names, values and punctuators), the limit of this server (--max-tokens): send values as variables, or several operations", most)
		case token.Kind == lexer.Int || token.Kind == lexer.Float:
			refused = hugeNumber(token)
		case token.Kind == lexer.String && strings.ContainsRune(token.Value, utf8.RuneError):
			if text == nil {
				text = []rune(source.Input)
			}
			refused = halfPair(string(text[token.Pos.Start:token.Pos.End]), &token.Pos)
		default:
		}
		if refused != nil {
			refused.Locations = []gqlerror.Location{{Line: token.Pos.Line, Column: token.Pos.Column}}
			return 0, 0, refused
		}
		if token.Kind != lexer.Comment {
			longest = max(longest, len(token.Value))
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

// hugeNumber refuses a number that only a variable can have: an executor reads an
// integer into 64 bits before it knows what for.
func hugeNumber(token lexer.Token) *gqlerror.Error {
	var err error
	if token.Kind == lexer.Int {
		_, err = strconv.ParseInt(token.Value, 10, 64)
	} else {
		_, err = strconv.ParseFloat(token.Value, 64)
	}
	if err == nil {
		return nil
	}
	return refuse(CodeBadInput, "the number %s is too large for the text of a query; "+
		"write it in quotes (ID, Decimal) or send it in a variable", shorten(token.Value))
}

// halfPair refuses a string, as it is written, with an escape for half of a surrogate
// pair, which the lexer replaces by U+FFFD, and moves its place there.
func halfPair(written string, place *ast.Position) *gqlerror.Error {
	half := loneSurrogate([]byte(written))
	if half < 0 {
		return nil
	}
	place.Column += utf8.RuneCountInString(written[1:half]) // it is behind the quote
	return refuse(CodeBadInput, `a string has half of a surrogate pair, %s, which is no character; `+
		`write both halves, or the character itself`, written[half:half+6])
}

// loneSurrogate returns where a string of a document, as it is written, has an
// escape for half of a surrogate pair; -1: nowhere.
func loneSurrogate(text []byte) int {
	for at := 0; ; {
		next := bytes.IndexByte(text[at:], '\\')
		if next < 0 {
			return -1
		}
		at += next
		switch unit := escaped(text[at:]); {
		case unit < 0: // another escape; \u{…} is never half a pair
			at += 2
		case unit >= 0xDC00 && unit <= 0xDFFF:
			return at
		case unit >= 0xD800 && unit <= 0xDBFF:
			low := escaped(text[at+6:])
			if low < 0xDC00 || low > 0xDFFF {
				return at
			}
			at += 12
		default:
			at += 6
		}
	}
}

// escaped is the code unit of the \uXXXX that text begins with; -1: none.
func escaped(text []byte) int64 {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return -1
	}
	unit, err := strconv.ParseInt(string(text[2:6]), 16, 32)
	if err != nil {
		return -1
	}
	return unit
}
