package storage

import (
	"fmt"

	"github.com/asof/asof/storage/diff"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/fault"
	"github.com/asof/asof/storage/normal"
	"github.com/asof/asof/storage/rawjson"
	"github.com/asof/asof/storage/record"
)

// patched applies a patch to a stored document, as RFC 7396 does but for one
// difference: lists and JSON values are replaced as a whole. An absent field is
// untouched, null removes the member or sets its default, nested objects are
// merged. Members keep their places, new ones come last, and what the type does
// not declare stays. What would read as it does now is not written: no read would
// show the difference.
// A nil document stands for one that is made now; then every non-null field
// without a default must be given, and fields that are not given, or null, get
// their defaults. They are stored, so that another default later changes
// nothing that was written before. The same goes for new nested objects.
func (s *Store) patched(t *record.Type, doc []byte, patch map[string]any, path string) ([]byte, error) {
	out, err := record.Patch(t.Object(), doc, patch, path)
	if err != nil {
		return nil, err
	}
	if why := s.tooLarge(out); why != "" {
		return nil, fault.BadInput("%s: %s", path, why)
	}
	if out, err = normal.Object(out); err != nil { // deeper than a document may be
		return nil, fault.BadInput("%s: %v", path, err)
	}
	return out, nil
}

// tooLarge says why a document cannot be written; "" where it can.
func (s *Store) tooLarge(doc []byte) string {
	if len(doc) > s.limits.DocumentBytes {
		return fmt.Sprintf("the document would have %d bytes; at most %d are allowed (--max-document of asof serve)", len(doc), s.limits.DocumentBytes)
	}
	if len(doc) < 2*diff.MaxElements {
		return ""
	}
	if n := listElements(doc); n > diff.MaxElements {
		return fmt.Sprintf("the lists would have %d elements together; at most %d are allowed", n, diff.MaxElements)
	}
	return ""
}

// Excess says in which way a version that was recorded elsewhere is larger than one that can
// be written here; "" where it is not.
func (s *Store) Excess(v *driver.Version) string {
	for _, text := range [...]struct {
		what, is string
		most     int
	}{{"author", v.Author, MaxAuthor}, {"message", v.Message, MaxMessage}, {"change group", v.Group, maxGroup}} {
		if len(text.is) > text.most {
			return fmt.Sprintf("the %s has %d bytes; at most %d are allowed", text.what, len(text.is), text.most)
		}
	}
	return s.tooLarge(v.Data)
}

// The longest texts of a version, in bytes.
const (
	MaxAuthor  = 200
	MaxMessage = 16 << 10
	maxGroup   = 1 << 10 // that of an approval names the draft and the approver
)

// listElements returns the number of elements of all lists in a value, of which an empty one
// counts as one.
func listElements(value []byte) (n int) {
	var lists []bool // which of the lists and objects around a place are lists
	for i := 0; i < len(value); i++ {
		switch value[i] {
		case '"':
			i = rawjson.End(value, i) - 1
		case '[', '{':
			lists = append(lists, value[i] == '[')
			if value[i] == '[' {
				n++
			}
		case ',':
			if lists[len(lists)-1] {
				n++
			}
		case ']', '}':
			lists = lists[:len(lists)-1]
		}
	}
	return n
}
