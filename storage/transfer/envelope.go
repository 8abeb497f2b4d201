package transfer

import (
	"encoding/base64"
	"fmt"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/normal"
	"github.com/asof/asof/storage/rawjson"
)

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
