package codegen

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"
	"github.com/vektah/gqlparser/v2/lexer"
)

// textProblem is the first thing that is wrong with SDL as a text, before it is
// parsed; nil: nothing. The parser replaces what is not UTF-8, so that a stored name
// or a default would not be the one that was written, and hides why it cannot read a word.
func textProblem(src *ast.Source) *Problem {
	if at := invalidUTF8(src.Input); at >= 0 {
		p := &Problem{File: src.Name, Message: fmt.Sprintf("the byte 0x%02x is not UTF-8; save the file as UTF-8", src.Input[at])}
		p.Line, p.Column = lineOf(src.Input[:at])
		return p
	}
	for tokens := lexer.New(src); ; {
		token, err := tokens.ReadToken()
		if err != nil {
			return tokenProblem(src, token, err)
		}
		if token.Kind == lexer.EOF {
			return nil
		}
	}
}

func tokenProblem(src *ast.Source, token lexer.Token, err error) *Problem {
	p := &Problem{File: src.Name, Line: token.Pos.Line, Column: token.Pos.Column, Message: err.Error()}
	if g, ok := errors.AsType[*gqlerror.Error](err); ok {
		p.Message = g.Message
	}
	runes := []rune(src.Input) // positions of tokens count characters
	start := min(token.Pos.Start, len(runes))
	switch {
	case strings.HasPrefix(p.Message, "Cannot parse the unexpected character") && start < len(runes):
		// the lexer names a byte
		p.Message = fmt.Sprintf("the character %q can only stand in a string or a comment; names have the letters A to Z, a to z, digits and _", string(runes[start]))
	case p.Message != "Unterminated string.":
	case strings.HasSuffix(string(runes[:start]), `"""`):
		p.Line, p.Column = lineOf(string(runes[:start-3]))
		p.Message = `the string that begins here does not end; close it with """`
	default:
		p.Line, p.Column = lineOf(string(runes[:max(start-1, 0)]))
		p.Message = `the string that begins here does not end on its line; close it with ", or begin and end it with """ where it has several lines`
	}
	p.Message = "syntax error: " + p.Message
	return p
}

// lineOf is the line and the column, from 1, of what comes after a text.
func lineOf(before string) (line, column int) {
	before = strings.ReplaceAll(strings.ReplaceAll(before, "\r\n", "\n"), "\r", "\n")
	return strings.Count(before, "\n") + 1, utf8.RuneCountInString(before[strings.LastIndexByte(before, '\n')+1:]) + 1
}

// invalidUTF8 is the place of the first byte that is not UTF-8; -1: none.
func invalidUTF8(text string) int {
	for i, r := range text {
		if r != utf8.RuneError {
			continue
		}
		if _, size := utf8.DecodeRuneInString(text[i:]); size == 1 {
			return i
		}
	}
	return -1
}
