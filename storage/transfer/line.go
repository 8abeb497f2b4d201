package transfer

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

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
	intern map[string]string
}

func newLineParser() *lineParser { return &lineParser{intern: make(map[string]string)} }

// parse reads one line, without its newline. The version has no number; its
// data is in normal form, does not share memory with the line and was not
// compared with a schema. The error does not name the line.
func (p *lineParser) parse(line []byte) (v driver.Version, err error) {
	if bytes.HasPrefix(line, []byte("\xef\xbb\xbf")) {
		return v, errors.New("starts with a byte order mark; save the file as UTF-8 without one")
	}
	text, err := normal.Object(line)
	if wrong, ok := errors.AsType[*normal.SyntaxError](err); ok {
		return v, fmt.Errorf("is not one JSON object, at byte %d: %s", wrong.Offset+1, wrong.Message)
	}
	var given uint // members that are there and not null
	var op ops
	rawjson.Members(text, func(name []byte, start, end int) bool {
		member, value := memberOf(name), text[start:end]
		switch {
		case member < 0:
			err = fmt.Errorf("unknown member %q; a line has %s", rawjson.Name(name), strings.Join(memberNames[:], ", "))
		case rawjson.IsNull(value):
		case member == memberData && value[0] != '{':
			err = fmt.Errorf(`"data" must be an object, not %s`, excerpt(value))
		case member == memberData:
			v.Data = bytes.Clone(value)
		case member == memberChanged:
			if v.Changed = changedNames(value); v.Changed == nil {
				err = errors.New(`"changed" must be a sorted list of names, each once`)
			}
		case value[0] != '"':
			err = fmt.Errorf("%q must be a string, not %s", memberNames[member], excerpt(value))
		default:
			err = set(&v, &op, member, p.keep(value, member))
		}
		if member >= 0 && !rawjson.IsNull(value) {
			given |= 1 << member
		}
		return err == nil
	})
	if err != nil {
		return v, err
	}
	err = complete(&v, op, given)
	return v, err
}

// changedNames reads a sorted list of names, each of which is there once; nil for what is none.
func changedNames(list []byte) (names []string) {
	if json.Unmarshal(list, &names) != nil || !slices.IsSorted(names) || len(slices.Compact(slices.Clone(names))) < len(names) {
		return nil
	}
	return names
}

// complete checks what only the whole line can tell.
func complete(v *driver.Version, op ops, given uint) error {
	for m, name := range memberNames {
		if bit := uint(1) << m; required&bit != 0 && given&bit == 0 {
			return fmt.Errorf("has no %q", name)
		}
	}
	if v.Collection == "" {
		return errors.New(`"collection" is empty`)
	}
	if why := driver.KeyProblem(v.Key); why != "" {
		return errors.New(`"id" ` + why)
	}
	named := given&(1<<memberOperation) != 0
	switch op.op {
	case "put":
		if v.Op = operations[op.operation]; !named {
			v.Op = driver.OpImport
		}
		switch {
		case v.Op == 0 || v.Op == driver.OpDelete:
			return fmt.Errorf(`"operation" of a put must be CREATE, UPDATE, RESTORE, IMPORT or ERASE, or left out, not %s`, excerpt([]byte(op.operation)))
		case v.Data == nil:
			return errors.New(`has no "data"; a put carries the document as it was after it; to delete the document, write "op":"delete"`)
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

// keep returns the text of a JSON string, in memory of its own. What comes back in every
// other line, such as names of authors, is kept once.
func (p *lineParser) keep(quoted []byte, member int) string {
	if s, ok := p.intern[string(quoted)]; ok {
		return s
	}
	const maxInterned, maxInternedBytes = 4096, 256
	s, _ := rawjson.Unquote(quoted)
	if len(s) <= maxInternedBytes && member != memberAt && member != memberSeal {
		if len(p.intern) >= maxInterned {
			clear(p.intern)
		}
		p.intern[string(quoted)] = s
	}
	return s
}

// parseInstant reads an RFC 3339 time. What is finer than a microsecond is cut.
func parseInstant(s string) (driver.Instant, error) {
	t, err := literal.CutDateTime(s)
	if err != nil {
		return 0, fmt.Errorf(`"at": %w`, err)
	}
	return driver.InstantOf(t), nil
}

// excerpt quotes the beginning of what was given.
func excerpt(b []byte) string {
	const most = 40
	if len(b) > most {
		return fmt.Sprintf("%q…", b[:most])
	}
	return fmt.Sprintf("%q", b)
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
