package transfer

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/asof/asof/internal/scalar/literal"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/normal"
	"github.com/asof/asof/storage/rawjson"
)

// The members of a line, in the order in which they are written.
const (
	memberCollection = iota
	memberID
	memberAt
	memberBy
	memberMessage
	memberSource
	memberOp
	memberOperation
	memberSeal
	memberChanged
	memberData
	memberCount
)

var memberNames = [memberCount]string{"collection", "id", "at", "by", "message", "source", "op", "operation", "seal", "changed", "data"}

// operations are what memberOperation can say of a version, beside what op does.
// Without it a version that puts a document is an import.
var operations = map[string]driver.Op{
	"CREATE": driver.OpCreate, "UPDATE": driver.OpUpdate, "RESTORE": driver.OpRestore, "IMPORT": driver.OpImport, "DELETE": driver.OpDelete, "ERASE": driver.OpErase,
}

// required are the members that every line has; data depends on op.
const required = 1<<memberCollection | 1<<memberID | 1<<memberAt | 1<<memberBy | 1<<memberOp

// lineParser turns lines into versions. It is not safe for concurrent use.
type lineParser struct {
	dec     *jsontext.Decoder
	buf     bytes.Buffer
	intern  map[string]string
	scratch normal.Scratch
}

func newLineParser() *lineParser {
	return &lineParser{dec: jsontext.NewDecoder(new(bytes.Buffer)), intern: make(map[string]string)}
}

// parse reads one line, without its newline. The version has no number; its
// data is in normal form, does not share memory with the line and was not
// compared with a schema. The error does not name the line.
func (p *lineParser) parse(line []byte) (driver.Version, error) {
	if v, ok := p.usual(line); ok {
		return v, nil
	}
	return p.strict(line)
}

// strict is parse for lines that are written in any way, and tells what is
// wrong with one.
func (p *lineParser) strict(line []byte) (driver.Version, error) {
	var v driver.Version
	if bytes.HasPrefix(line, []byte("\xef\xbb\xbf")) {
		return v, errors.New("starts with a byte order mark; save the file as UTF-8 without one")
	}
	p.buf = *bytes.NewBuffer(line)
	p.dec.Reset(&p.buf)
	tok, err := p.dec.ReadToken()
	if err != nil {
		return v, p.syntax(err, line)
	}
	if tok.Kind() != '{' {
		return v, fmt.Errorf("is %s; each line must be one JSON object", describe(tok.Kind()))
	}
	var seen, nulls uint
	var op ops
	for p.dec.PeekKind() != '}' {
		member, err := p.member(line)
		if err != nil {
			return v, err
		}
		seen |= 1 << member
		raw, err := p.dec.ReadValue()
		if err != nil {
			return v, p.syntax(err, line)
		}
		if raw.Kind() == 'n' {
			nulls |= 1 << member
			continue
		}
		if member == memberData {
			if raw.Kind() != '{' {
				return v, fmt.Errorf(`"data" must be an object, not %s`, describe(raw.Kind()))
			}
			if v.Data, err = p.scratch.Object(raw); err != nil {
				return v, fmt.Errorf(`"data": %w`, err)
			}
			continue
		}
		if member == memberChanged {
			if err := json.Unmarshal(raw, &v.Changed); err != nil || !slices.IsSorted(v.Changed) {
				return v, errors.New(`"changed" must be a sorted list of names`)
			}
			continue
		}
		text, err := p.text(raw, member)
		if err != nil {
			return v, err
		}
		if err := set(&v, &op, member, text); err != nil {
			return v, err
		}
	}
	if _, err := p.dec.ReadToken(); err != nil {
		return v, p.syntax(err, line)
	}
	if rest := bytes.TrimLeft(line[p.dec.InputOffset():], " \t\r"); len(rest) > 0 {
		return v, fmt.Errorf("has more after the object, at byte %d: %s", len(line)-len(rest)+1, excerpt(rest))
	}
	err = p.complete(&v, op, seen, nulls)
	return v, err
}

// complete checks what only the whole line can tell.
func (p *lineParser) complete(v *driver.Version, op ops, seen, nulls uint) error {
	for m := range memberCount {
		switch bit := uint(1) << m; {
		case required&bit == 0:
		case seen&bit == 0:
			return fmt.Errorf("has no %q", memberNames[m])
		case nulls&bit != 0:
			return fmt.Errorf("%q must be a string, not null", memberNames[m])
		}
	}
	if v.Collection == "" {
		return errors.New(`"collection" is empty`)
	}
	if why := driver.KeyProblem(v.Key); why != "" {
		return errors.New(`"id" ` + why)
	}
	named := (seen&^nulls)&(1<<memberOperation) != 0
	switch op.op {
	case "put":
		if v.Op = operations[op.operation]; !named {
			v.Op = driver.OpImport
		}
		switch {
		case v.Op == 0 || v.Op == driver.OpDelete:
			return fmt.Errorf(`"operation" of a put must be CREATE, UPDATE, RESTORE, IMPORT or ERASE, or left out, not %s`, excerpt([]byte(op.operation)))
		case seen&(1<<memberData) == 0:
			return errors.New(`has no "data"; a put carries the document as it was after it`)
		case nulls&(1<<memberData) != 0:
			return errors.New(`"data" must be an object, not null; to delete the document, write "op":"delete"`)
		}
	case "delete":
		v.Op, v.Deleted = driver.OpDelete, true
		if op.operation == "ERASE" {
			v.Op = driver.OpErase
		}
		if v.Data != nil {
			return errors.New(`is a delete with "data"; leave "data" out, or write "op":"put"`)
		}
		if named && op.operation != "DELETE" && op.operation != "ERASE" {
			return fmt.Errorf(`"operation" of a delete must be DELETE or ERASE, or left out, not %s`, excerpt([]byte(op.operation)))
		}
	case "prune":
		v.Op, v.Deleted = driver.OpPruned, true
		if v.Data != nil || named {
			return errors.New(`is a version that was pruned, with "data" or "operation"; leave them out`)
		}
	default:
		return fmt.Errorf(`"op" must be "put", "delete" or "prune", not %s`, excerpt([]byte(op.op)))
	}
	return nil
}

// member reads the next member name.
func (p *lineParser) member(line []byte) (int, error) {
	tok, err := p.dec.ReadToken()
	if err != nil {
		return 0, p.syntax(err, line)
	}
	name := tok.String()
	if m := memberOf([]byte(name)); m >= 0 {
		return m, nil
	}
	return 0, fmt.Errorf("unknown member %q; a line has %s", name, strings.Join(memberNames[:], ", "))
}

// text returns the string that raw stands for.
func (p *lineParser) text(raw jsontext.Value, member int) (string, error) {
	if raw.Kind() != '"' {
		return "", fmt.Errorf("%q must be a string, not %s", memberNames[member], describe(raw.Kind()))
	}
	body := raw[1 : len(raw)-1]
	if bytes.IndexByte(body, '\\') >= 0 {
		unquoted, err := jsontext.AppendUnquote(nil, raw)
		if err != nil {
			return "", fmt.Errorf("%q: %w", memberNames[member], err)
		}
		body = unquoted
	}
	return p.keep(body, member), nil
}

// keep returns a text in memory of its own. What comes back in every other line,
// such as names of authors, is kept once.
func (p *lineParser) keep(body []byte, member int) string {
	if member == memberAt || member == memberSeal {
		return string(body)
	}
	if s, ok := p.intern[string(body)]; ok {
		return s
	}
	const maxInterned, maxInternedBytes = 4096, 256
	s := string(body)
	if len(s) <= maxInternedBytes {
		if len(p.intern) >= maxInterned {
			clear(p.intern)
		}
		p.intern[s] = s
	}
	return s
}

// syntax says in a sentence what the decoder found.
func (p *lineParser) syntax(err error, line []byte) error {
	var se *jsontext.SyntacticError
	switch {
	case errors.As(err, &se) && errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return fmt.Errorf("is not valid JSON: it ends in the middle of a value, at byte %d", len(line))
	case errors.As(err, &se) && errors.Is(err, jsontext.ErrDuplicateName):
		where := se.JSONPointer.Parent()
		if where == "" {
			return fmt.Errorf("has the member %q twice", se.JSONPointer.LastToken())
		}
		return fmt.Errorf("has the member %q twice in %s", se.JSONPointer.LastToken(), where)
	case errors.As(err, &se):
		return fmt.Errorf("is not valid JSON at byte %d: %w", se.ByteOffset+1, se.Err)
	default:
		return fmt.Errorf("is not valid JSON: %w", err)
	}
}

// parseInstant reads an RFC 3339 time. What is finer than a microsecond is cut.
func parseInstant(s string) (driver.Instant, error) {
	t, err := literal.CutDateTime(s)
	if err != nil {
		return 0, fmt.Errorf(`"at": %w`, err)
	}
	return driver.InstantOf(t), nil
}

// describe names a kind of JSON value.
func describe(k jsontext.Kind) string {
	switch k {
	case 'n':
		return "null"
	case 't', 'f':
		return "a boolean"
	case '"':
		return "a string"
	case '0':
		return "a number"
	case '{':
		return "an object"
	case '[':
		return "a list"
	default:
		return "nothing"
	}
}

// excerpt quotes the beginning of what was given.
func excerpt(b []byte) string {
	const most = 40
	if len(b) > most {
		return fmt.Sprintf("%q…", b[:most])
	}
	return fmt.Sprintf("%q", b)
}

// usual reads a line that is written as programs write lines: compact, each
// member at most once, no nulls, and strings outside of the document that are
// plain. It reports false for every other line, also for wrong ones: those are
// for the strict parser, which tells what is wrong. What usual accepts, the
// strict parser reads in the same way.
func (p *lineParser) usual(line []byte) (v driver.Version, ok bool) {
	if len(line) < 2 || line[0] != '{' {
		return v, false
	}
	var seen uint
	var op ops
	for i := 1; ; {
		name, start, end := rawjson.Member(line, i)
		if end < 0 {
			return v, false
		}
		member := memberOf(name)
		if member < 0 || seen&(1<<member) != 0 {
			return v, false
		}
		seen |= 1 << member
		value := line[start:end]
		if member == memberData {
			data, err := p.scratch.Object(value)
			if err != nil {
				return v, false
			}
			v.Data = data
		} else if text, plain := p.plain(value, member); !plain || set(&v, &op, member, text) != nil {
			return v, false
		}
		switch line[end] {
		case ',':
			i = end + 1
			continue
		case '}':
			return v, end == len(line)-1 && p.complete(&v, op, seen, 0) == nil
		default:
			return v, false
		}
	}
}

// memberOf returns which member has a name; -1: none.
func memberOf(name []byte) int {
	for m, known := range memberNames {
		if string(name) == known {
			return m
		}
	}
	return -1
}

// ops is what a line says of what its version does.
type ops struct{ op, operation string }

// set fills in a member other than the document.
func set(v *driver.Version, op *ops, member int, text string) (err error) {
	switch member {
	case memberCollection:
		v.Collection = text
	case memberID:
		v.Key = text
	case memberAt:
		v.RecordedAt, err = parseInstant(text)
	case memberBy:
		v.Author = text
	case memberMessage:
		v.Message = text
	case memberSource:
		v.Group = text
	case memberOp:
		op.op = text
	case memberOperation:
		op.operation = text
	case memberSeal:
		if v.Seal, err = base64.StdEncoding.DecodeString(text); err != nil {
			err = fmt.Errorf(`"seal": %w`, err)
		}
	}
	return err
}

// plain returns a string without escapes.
func (p *lineParser) plain(raw []byte, member int) (string, bool) {
	if len(raw) < 2 || raw[0] != '"' || raw[len(raw)-1] != '"' {
		return "", false
	}
	body := raw[1 : len(raw)-1]
	if !normal.IsPlain(body) {
		return "", false
	}
	return p.keep(body, member), true
}
