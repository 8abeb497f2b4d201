package storage

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/asof/asof/internal/scalar/literal"
	"github.com/asof/asof/storage/diff"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/fault"
	"github.com/asof/asof/storage/rawjson"
	"github.com/asof/asof/storage/record"
)

// ChangeOp is what happened to a value, as in RFC 6902.
type ChangeOp string

// The change operations.
const (
	ChangeAdd     ChangeOp = "ADD"
	ChangeReplace ChangeOp = "REPLACE"
	ChangeRemove  ChangeOp = "REMOVE"
)

// FieldChange is one changed value. The changes of one version, in order, are a
// JSON Patch from the version before.
type FieldChange struct {
	Path     string // JSON Pointer (RFC 6901) in GraphQL names
	Field    string // the top-level field's GraphQL name
	Op       ChangeOp
	OldValue json.RawMessage // nil: there was none
	NewValue json.RawMessage // nil: there is none
	Erased   bool            // something of the values was erased, and is null in them

	madeBy
	store *Store
	typ   *record.Type
	seen  driver.Instant
}

// madeBy is the version that made something.
type madeBy struct{ v *driver.Version }

// Version is its number.
func (b madeBy) Version() int { return int(b.v.Number) }

// ChangedAt is when it was recorded.
func (b madeBy) ChangedAt() driver.Instant { return b.v.RecordedAt }

// ChangedBy is who wrote it.
func (b madeBy) ChangedBy() *Actor { return &Actor{ID: b.v.Author} }

// Message is what the writer said about it; nil for nothing.
func (b madeBy) Message() *string { return optional(b.v.Message) }

// DocumentType is the name of the document's type.
func (c *FieldChange) DocumentType() string { return c.typ.Name }

// DocumentKey is the document's key.
func (c *FieldChange) DocumentKey() string { return c.v.Key }

// ChangeGroup is shared by what was written together; nil for none.
func (c *FieldChange) ChangeGroup() *string { return groupOf(c.typ, c.v) }

// Document is the document as this version left it; nil when it was deleted, and for what
// only a draft has changed.
func (c *FieldChange) Document() AnyDocument {
	if c.v.Deleted || inDraft(c.typ, c.v) {
		return nil
	}
	return c.store.wrapAny(c.store.newDocument(c.typ, c.v, c.v.RecordedAt, c.seen, true))
}

// FieldBlame says which version last set a value.
type FieldBlame struct {
	Path  string // JSON Pointer in GraphQL names: a field, or a leaf inside it
	Field string
	Value json.RawMessage

	madeBy
	atOrBefore bool
}

// AtOrBefore says that the value is as old as the version or older: what was before that
// was pruned.
func (b *FieldBlame) AtOrBefore() bool { return b.atOrBefore }

// DocumentDiff is the difference between two states of a document.
type DocumentDiff struct {
	// From and To are nil for a moment before the first version.
	From, To *VersionInfo

	t             *record.Type
	before, after *driver.Version
	changes       func() ([]*FieldChange, error)
	patch         func() json.RawMessage
}

// Before is the state that the difference begins with, in GraphQL names; JSON null where the
// document did not exist, or was deleted.
func (d *DocumentDiff) Before() json.RawMessage { return visibleState(d.t, d.before) }

// After is the state that the difference leads to, as Before.
func (d *DocumentDiff) After() json.RawMessage { return visibleState(d.t, d.after) }

// JSONPatch leads from Before to After (RFC 6902).
func (d *DocumentDiff) JSONPatch() json.RawMessage { return d.patch() }

// Changes are the differences, each with the version that made it: see
// Store.attribute. In a diff that leads back in time the values are those before
// and after the diff, and the version is the one that is taken back.
func (d *DocumentDiff) Changes() ([]*FieldChange, error) { return d.changes() }

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// fieldChange is a change as it is shown, with the version v that made it.
func (s *Store) fieldChange(t *record.Type, c record.Change, v *driver.Version, seen driver.Instant) *FieldChange {
	old, some := rawjson.HideErased(c.Old)
	now, more := rawjson.HideErased(c.New)
	return &FieldChange{
		Path: c.Path, Field: c.Field.Name, Op: changeOps[c.Op], OldValue: old, NewValue: now, Erased: some || more,
		madeBy: madeBy{v}, store: s, typ: t, seen: seen,
	}
}

// listChanges lists the visible changes between two states of a document, which carry the
// version v; the list is never nil. They count as details, each four steps of a path, or 64
// bytes of it as JSON, as one more, and are refused while they are listed where that are too many.
func (s *Store) listChanges(ctx context.Context, t *record.Type, before, after, v *driver.Version, seen driver.Instant) ([]*FieldChange, error) {
	err := ended(ctx)
	if err == nil {
		err = s.detail(ctx, 0) // nor is a list begun for one too many
	}
	if err != nil {
		return nil, err
	}
	out := []*FieldChange{}
	for c := range untilEnded(ctx, &err, t.Object.Changes(dataOf(before), dataOf(after))) {
		if err := s.detail(ctx, 1+max(strings.Count(c.Path, "/")/4, literal.TextLength(c.Path)/64)); err != nil {
			return nil, err
		}
		out = append(out, s.fieldChange(t, c, v, seen))
	}
	return out, err
}

var changeOps = [...]ChangeOp{diff.Add: ChangeAdd, diff.Replace: ChangeReplace, diff.Remove: ChangeRemove}

// dataOf returns a version's document; nil for none and for a tombstone.
func dataOf(v *driver.Version) []byte {
	if v == nil || v.Deleted {
		return nil
	}
	return v.Data
}

// storedNames turns GraphQL names of top-level fields into stored ones, each once. Names
// that the type does not have are an error.
func storedNames(t *record.Type, arg string, names []string) ([]string, error) {
	out := make([]string, 0, min(len(names), len(t.Object.Fields)))
	for _, name := range names {
		f := t.Object.Field(name)
		if f == nil {
			return nil, fault.BadInput("%s: %s has no field %s", arg, t.Name, fault.QuoteShort(name))
		}
		if !slices.Contains(out, f.Stored) { // who reads the same of many documents keeps it with each
			out = append(out, f.Stored)
		}
	}
	return out, nil
}

// jsonPatch writes changes as a JSON Patch (RFC 6902). A document that does not
// exist is null: it becomes an empty object first, or null at last.
func jsonPatch(changes []*FieldChange, fromNothing, toNothing bool) json.RawMessage {
	out := []byte{'['}
	op := func(name, path string, value []byte) {
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(append(out, `{"op":"`...), name...), `","path":`...)
		out = rawjson.AppendString(out, path)
		if value != nil {
			out = append(append(out, `,"value":`...), value...)
		}
		out = append(out, '}')
	}
	if fromNothing && !toNothing {
		op("replace", "", []byte("{}"))
	}
	for _, c := range changes {
		op(strings.ToLower(string(c.Op)), c.Path, c.NewValue)
	}
	if toNothing && !fromNothing {
		op("replace", "", []byte("null"))
	}
	return append(out, ']')
}
