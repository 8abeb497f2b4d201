package capture

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/mongostore"
	"github.com/asof/asof/storage/normal"
	"github.com/asof/asof/storage/transfer"
)

// document is one that is changed.
type document struct {
	key     string
	changes []*mongostore.Change
	first   driver.Instant // of its history in the store, where the first change is not after that; else 0
	number  int64          // of the last version before the changes that follow
	data    []byte         // of that; nil: it does not exist
	value   map[string]any // the same; nil where it was not needed yet
}

// documents returns those that are changed, in the order in which they come first.
func (c *Capture) documents(ctx context.Context, changes []mongostore.Change) (list []*document, err error) {
	byKey := make(map[string]*document)
	for i := range changes {
		ch := &changes[i]
		if why := storage.KeyProblem(ch.Key); why != "" {
			if c.Filtered && !creates(ch) {
				continue
			}
			return nil, driver.Errorf(driver.CodeInvalid, `the _id %.100q %s, and so cannot be a key; leave it out with --filter, such as {"_id": {"$ne": ""}}`, ch.Key, why)
		}
		d := byKey[ch.Key]
		if d == nil {
			d = &document{key: ch.Key}
			byKey[ch.Key] = d
			list = append(list, d)
		}
		d.changes = append(d.changes, ch)
	}
	refs := make([]driver.Ref, len(list))
	for i, d := range list {
		refs[i] = driver.Ref{Key: d.key, At: d.changes[0].At - 1}
	}
	overlaps := changes[0].At <= c.source.Position.Until
	for _, d := range list {
		if overlaps {
			refs = append(refs, driver.Ref{Key: d.key, Number: 1})
		}
	}
	vs, err := c.store.Engine().Get(ctx, c.Type.Collection, refs, nil)
	if err != nil {
		return nil, err
	}
	for i, d := range list {
		if v := vs[i]; v != nil {
			d.number, d.data = v.Number, v.Data
		}
		if !overlaps || vs[len(list)+i] == nil {
			continue
		}
		switch v := vs[len(list)+i]; {
		case d.changes[0].Kind == mongostore.Found:
			d.changes = nil // it is known already
		case d.changes[0].At <= v.RecordedAt: // what is skipped comes before
			d.first, d.number, d.data = v.RecordedAt, v.Number, v.Data
		}
	}
	return list, nil
}

// versions adds those that the changes of a document make.
func (c *Capture) versions(vs []driver.Version, d *document) ([]driver.Version, error) {
	for changes := d.changes; len(changes) > 0; {
		v := driver.Version{Collection: c.Type.Collection, Key: d.key, RecordedAt: changes[0].At, Group: changes[0].Group}
		wrong := func(err error) ([]driver.Version, error) {
			return nil, driver.Errorf(driver.CodeInvalid, "%s %q of %s: %w", c.Type.Name, d.key, v.RecordedAt, err)
		}
		before, last := d.data, mongostore.ChangeKind(0)
		for len(changes) > 0 && changes[0].At == v.RecordedAt { // of one transaction
			ch := changes[0]
			changes = changes[1:]
			skip, err := c.skips(d, ch)
			if err == nil && !skip {
				last = ch.Kind
				err = c.apply(d, ch)
			}
			if err != nil {
				return wrong(err)
			}
		}
		if last == 0 || bytes.Equal(before, d.data) {
			continue
		}
		d.number++
		v.Number, v.Data, v.Author = d.number, d.data, c.author(d.value)
		switch {
		case d.data == nil:
			v.Op, v.Deleted = driver.OpDelete, true
		case last == mongostore.Found:
			v.Op = driver.OpImport
		case before == nil:
			v.Op = driver.OpCreate
		default:
			v.Op = driver.OpUpdate
		}
		if err := transfer.Misfit(c.store, c.Type, &v, c.Lenient); err != nil {
			return wrong(err)
		}
		vs = append(vs, v)
	}
	return vs, nil
}

// skips reports whether a change makes no version: the document is there, as it was found or
// was inserted later than this, or it is not captured.
func (c *Capture) skips(d *document, ch *mongostore.Change) (bool, error) {
	switch {
	case ch.At <= d.first:
		return true, nil
	case creates(ch) && d.data != nil:
		return false, errors.New("it was inserted, and is there: two shards have the _id, or changes are missing; capture into an empty store")
	case creates(ch) || d.data != nil:
		return false, nil
	case ch.At <= c.source.Position.Until || c.Filtered:
		return true, nil
	}
	return false, errors.New("it was changed, and is not there: changes are missing; capture into an empty store")
}

// creates reports whether a document is taken without one before.
func creates(ch *mongostore.Change) bool {
	return ch.Kind == mongostore.Found || ch.Kind == mongostore.Inserted
}

// apply makes a change.
func (c *Capture) apply(d *document, ch *mongostore.Change) (err error) {
	switch {
	case ch.Kind == mongostore.Deleted:
		d.data, d.value = nil, nil
		return nil
	case ch.Document != nil:
		if d.value, err = c.asStored(ch.Document); err != nil {
			return err
		}
	default:
		if d.value == nil {
			in := json.NewDecoder(bytes.NewReader(d.data))
			in.UseNumber()
			if err := in.Decode(&d.value); err != nil {
				return err
			}
		}
		for i := range ch.Edits {
			e := &ch.Edits[i]
			name, kept := c.name(e.Path[0])
			if !kept {
				continue
			}
			if _, err := edit(d.value, append([]string{name}, e.Path[1:]...), e); err != nil {
				return fmt.Errorf("%s cannot be changed as it was: %w", strings.Join(e.Path, "."), err)
			}
		}
	}
	text, err := json.Marshal(d.value)
	if err == nil {
		d.data, err = normal.Object(text)
	}
	return err
}

// name returns the stored name of a member of the source's documents, and whether it is kept.
func (c *Capture) name(name string) (stored string, kept bool) {
	if slices.Contains(c.Drop, name) {
		return "", false
	}
	if to, ok := c.Rename[name]; ok {
		return to, true
	}
	return name, true
}

// asStored returns a document of the source as it is stored.
func (c *Capture) asStored(document map[string]any) (map[string]any, error) {
	out := make(map[string]any, len(document))
	for name, value := range document {
		to, kept := c.name(name)
		if !kept {
			continue
		}
		if _, taken := out[to]; taken {
			return nil, fmt.Errorf("two members would have the name %q; drop or rename the other one, too", to)
		}
		out[to] = value
	}
	return out, nil
}

// author returns who changed a document, as that says.
func (c *Capture) author(value map[string]any) string {
	switch by := value[c.AuthorField].(type) {
	case string:
		return cmp.Or(by, Author)
	case json.Number:
		return by.String()
	}
	return Author
}

// maxPadding is how many elements may be missing before one that is set, as MongoDB has it.
const maxPadding = 1_500_000

// edit returns a value in which something at a path was changed.
func edit(in any, path []string, e *mongostore.Edit) (any, error) {
	if len(path) == 0 {
		if !e.Cut {
			return e.Value, nil
		}
		if list, ok := in.([]any); ok && e.Size >= 0 && e.Size <= len(list) {
			return list[:e.Size], nil
		}
		return nil, fmt.Errorf("it is no list of %d elements or more", e.Size)
	}
	switch in := in.(type) {
	case nil:
		return edit(map[string]any{}, path, e)
	case map[string]any:
		if e.Remove && len(path) == 1 {
			delete(in, path[0])
			return in, nil
		}
		inner, err := edit(in[path[0]], path[1:], e)
		in[path[0]] = inner
		return in, err
	case []any:
		i, err := strconv.Atoi(path[0])
		if err != nil || i < 0 || i > len(in)+maxPadding {
			return nil, fmt.Errorf("%q is no index of a list of %d elements", path[0], len(in))
		}
		for i >= len(in) {
			in = append(in, nil)
		}
		in[i], err = edit(in[i], path[1:], e)
		return in, err
	}
	return nil, fmt.Errorf("%q is in what is neither an object nor a list", path[0])
}
