package storage

import (
	"context"
	"fmt"
	"strconv"

	"github.com/asof/asof/storage/diff"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/fault"
	"github.com/asof/asof/storage/normal"
	"github.com/asof/asof/storage/rawjson"
	"github.com/asof/asof/storage/record"
)

// restoration is the mutation of Restore.
func (s *Store) restoration(t *record.Type, in *RestoreInput) (*mutation, error) {
	m := &mutation{t: t, key: in.Key, expected: in.ExpectedVersion, message: in.Message, clientMutationID: in.ClientMutationID, tombstone: true}
	if err := m.checkExpected(); err != nil {
		return m, err
	}
	if in.To == nil {
		return m, fault.BadInput("input.to: name the version to restore by its number (version) or by an instant (asOf)")
	}
	m.next = func(ctx context.Context, op *operation, cur *driver.Version) (*driver.Write, error) {
		return s.restored(ctx, op, t, in, cur)
	}
	return m, nil
}

// restored returns what writes the state of an earlier version after cur, which is the
// expected one; nil where that would change nothing.
func (s *Store) restored(ctx context.Context, op *operation, t *record.Type, in *RestoreInput, cur *driver.Version) (*driver.Write, error) {
	target, err := s.referred(ctx, op, op.now(cur), t, in.Key, "input.to", *in.To)
	if err != nil {
		return nil, err
	}
	if target == nil {
		return nil, fault.Errorf(fault.CodeVersionNotFound, "input.to: %s %q did not exist at %s", t.Name, in.Key, *in.To.AsOf)
	}
	if target.Deleted {
		return nil, fault.BadInput("input.to: %s %q did not exist in version %d, which is a deletion; to delete it again, use delete%s", t.Name, in.Key, target.Number, t.Name)
	}
	switch erasing, err := s.isErasing(ctx, op.now(cur), target, cur.Number); {
	case err != nil:
		return nil, err
	case erasing:
		return nil, fault.Errorf(fault.CodeUnavailable, "something of version %d of %s %q is being erased; nothing was written; try again in a minute", target.Number, t.Name, in.Key)
	}
	data := target.Data
	if in.Paths != nil {
		if cur.Deleted {
			return nil, fault.BadInput("input.paths: %s %q is deleted: restore the whole document, without paths", t.Name, in.Key)
		}
		if data, err = restorePaths(t, cur.Data, target.Data, in.Paths); err != nil {
			return nil, err
		}
	}
	was := cur
	if cur.Deleted { // it may come back as it was
		if was, err = s.getOne(ctx, t, driver.Ref{Key: in.Key, Number: cur.Number - 1}, nil); err != nil {
			return nil, err
		}
	}
	if err := restorable(t, was, target, data, in.Paths != nil, cur.Deleted); err != nil {
		return nil, err
	}
	if why := s.outgrown(t, in.Key, dataOf(cur), data); why != "" {
		return nil, fault.BadInput("input.to: %s", why)
	}
	if _, erased := rawjson.HideErased(data); erased {
		return nil, fault.BadInput("input.to: something of version %d of %s %q was erased; restore what is left of it, with paths", target.Number, t.Name, in.Key)
	}
	changed := normal.Changed(dataOf(cur), data)
	if len(changed) == 0 && !cur.Deleted {
		return nil, nil
	}
	return &driver.Write{Op: driver.OpRestore, Changed: changed, Data: data}, nil
}

// restorable refuses what would make a document unreadable in a place where it is
// not now, or was not until it was deleted: states of the past need not fit today's
// schema.
func restorable(t *record.Type, was, target *driver.Version, data []byte, parts, deleted bool) error {
	found, err := t.NewMismatches(dataOf(was), data)
	if err != nil {
		return &fault.Error{Code: fault.CodeInternal, Message: "internal error", Cause: err}
	}
	if len(found) == 0 {
		return nil
	}
	arg, instead := "input.to", "restore the fields that fit, with paths"
	switch {
	case parts:
		arg, instead = "input.paths", "leave the path out"
	case deleted:
		instead = "create the document again, with values that fit"
	}
	return fault.BadInput("%s: what version %d of %s %q held could not be read under today's schema: %v; %s, or declare the field otherwise",
		arg, target.Number, t.Name, target.Key, found[0], instead)
}

// maxRestored bounds what is looked through for the paths of a restoration, in bytes: both states
// for each of them, and what they hold at each step of it. Each byte takes up to 40 ns.
const maxRestored = 8 << 20

// restorePaths returns the current document with the values at the paths taken
// from an earlier state; what was not there then is removed.
func restorePaths(t *record.Type, now, then []byte, paths []string) ([]byte, error) {
	if len(paths) == 0 {
		return nil, fault.BadInput("input.paths: name at least one path, or leave paths out to restore the whole document")
	}
	looked := 0
	for i, path := range paths {
		arg := "input.paths[" + strconv.Itoa(i) + "]"
		names, stored, f, err := storedPath(t, arg, path)
		if err != nil {
			return nil, err
		}
		if looked, err = containers(t, arg, path, stored, names, looked, now, then); err != nil {
			return nil, err
		}
		value := rawjson.Find(then, stored)
		if f == nil && value == nil && rawjson.Find(now, stored) == nil {
			return nil, fault.BadInput("%s: there is nothing at %s, neither then nor now", arg, path)
		}
		if rawjson.IsNull(value) && f != nil && f.NonNull && f.Default == nil && (!f.List || value != nil) {
			return nil, fault.BadInput("%s: %s had no value then, and it is declared %s", arg, path, f.TypeName(true))
		}
		now = rawjson.Set(now, stored, value)
	}
	return now, nil
}

// storedPath translates a JSON Pointer of GraphQL names. The field is that of its last
// name, nil below a JSON value.
func storedPath(t *record.Type, arg, path string) (names, stored []string, f *record.Field, err error) {
	names, ok := diff.Split(path)
	if !ok || len(names) == 0 {
		like := "/" + t.Fields[0].Name
		for _, f := range t.Fields {
			if f.Kind == record.KindObject && !f.List {
				like = fmt.Sprintf("%s or /%s/%s", like, f.Name, f.Object.Fields[0].Name)
				break
			}
		}
		return nil, nil, nil, fault.BadInput("%s: %s is not a JSON Pointer to a field; one looks like %s", arg, fault.QuoteShort(path), like)
	}
	o := t.Object
	for i, name := range names {
		if o == nil { // inside a JSON value
			stored = append(stored, name)
			f = nil
			continue
		}
		if f = o.Field(name); f == nil {
			return nil, nil, nil, fault.BadInput("%s: %s has no field %s", arg, o.Name, fault.QuoteShort(name))
		}
		stored = append(stored, f.Stored)
		if i == len(names)-1 {
			break
		}
		switch {
		case f.List:
			return nil, nil, nil, fault.BadInput("%s: %s lies in a list; name the whole list, %s", arg, path, listPath(names[:i+1]))
		case f.Kind == record.KindObject:
			o = f.Object
		case f.Kind == record.KindJSON:
			o = nil
		default:
			return nil, nil, nil, fault.BadInput("%s: %s has nothing inside", arg, listPath(names[:i+1]))
		}
	}
	return names, stored, f, nil
}

// containers checks what a path leads through, in both states. Inside JSON
// values the schema does not tell. A list is restored as a whole, as places in
// it mean something else after each change, and so is what was of another kind. It returns how many
// bytes were looked through, with those before, of which there may be maxRestored, or what both states
// have: a member of any document can be restored alone.
func containers(t *record.Type, arg, path string, stored, names []string, looked int, now, then []byte) (int, error) {
	most := max(maxRestored, len(now)+len(then))
	for _, state := range [...][]byte{now, then} {
		looked += len(state)
		o := t.Object
		for i := range stored {
			if looked > most {
				return 0, fault.BadInput("%s: the paths up to this one are too many to be restored at once of a document of this size: name what they lie in, or restore them one part after the other", arg)
			}
			if i == len(stored)-1 {
				break
			}
			var f *record.Field
			if o != nil {
				f = &o.Fields[o.StoredAs(stored[i])]
				o = f.Object
			}
			state = rawjson.Find(state, stored[i:i+1])
			looked += len(state)
			here := func() string { return listPath(names[:i+1]) } // for an error: each step takes as long as the path
			switch {
			case state == nil:
			case f != nil && rawjson.IsNull(state): // as if it were not there
			case rawjson.Erased(state):
				return 0, fault.BadInput("%s: %s was erased, so nothing inside it can be restored", arg, here())
			case state[0] == '[':
				return 0, fault.BadInput("%s: %s lies in a list; name the whole list, %s", arg, path, here())
			case state[0] != '{':
				return 0, fault.BadInput("%s: %s was not an object in both versions, so nothing inside it can be restored; restore the whole of %s", arg, here(), here())
			}
			if state == nil || rawjson.IsNull(state) {
				break
			}
		}
	}
	return looked, nil
}

func listPath(names []string) string {
	path := ""
	for _, n := range names {
		path = diff.Join(path, n)
	}
	return path
}
