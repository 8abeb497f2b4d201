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

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/mongostore"
	"github.com/asof/asof/storage/normal"
	"github.com/asof/asof/storage/transfer"
)

// document is one that is changed, as it was before the changes that follow.
type document struct {
	key    string
	first  driver.Instant // up to then nothing changes it: it is in the store as it became
	number int64          // of its last version
	data   []byte         // of that; nil: it does not exist
	value  map[string]any // the same; nil where it was not needed yet
	found  bool           // it was found before, too
}

// Bounds of what is in memory of the store: how many documents are read at once, and after how many
// bytes of those, and of versions, the versions are loaded.
const (
	readAtOnce = 32
	loadBytes  = 16 << 20
)

// loading makes versions of changes, and loads them.
type loading struct {
	*Capture
	documents map[string]*document // those that were read, by key
	vs        []driver.Version
	bytes     int // of both
	added     int64
}

// all handles changes, which are in the order of time.
func (l *loading) all(ctx context.Context, changes []mongostore.Change) error {
	slices.SortStableFunc(changes, func(a, b mongostore.Change) int { // those that a transaction makes of one document together
		return cmp.Or(cmp.Compare(a.At, b.At), strings.Compare(a.Key, b.Key))
	})
	for len(changes) > 0 {
		n, first := 1, &changes[0]
		for n < len(changes) && changes[n].At == first.At && changes[n].Key == first.Key {
			n++
		}
		some := changes[:n]
		if !l.leftOut(first) {
			if l.documents[first.Key] == nil {
				if err := l.read(ctx, changes); err != nil {
					return err
				}
			}
			if err := l.version(l.documents[first.Key], some); err != nil {
				return driver.Errorf(driver.CodeInvalid, "%s %q of %s: %w", l.Type.Name, first.Key, first.At, err)
			}
		}
		if changes = changes[n:]; l.bytes >= loadBytes || len(changes) == 0 {
			if err := l.load(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// leftOut reports whether a change is of a document that cannot be one, and was left out by the filter.
func (l *loading) leftOut(ch *mongostore.Change) bool {
	return l.Filtered && !creates(ch) && driver.KeyProblem(ch.Key) != ""
}

func (l *loading) load(ctx context.Context) error {
	if len(l.vs) > 0 {
		if err := l.store.Await(ctx, l.vs[len(l.vs)-1].RecordedAt); err != nil {
			return err
		}
	}
	result, err := l.store.Load(ctx, l.vs)
	l.added += result.Added
	if refused, ok := errors.AsType[*driver.LoadError](err); ok {
		return &driver.LoadError{Index: refused.Index, Err: fmt.Errorf("the store does not hold what was captured: %w; "+
			"something else was written to it, or it was captured with other flags: capture into an empty store", refused.Err)}
	}
	l.vs, l.bytes = nil, 0
	clear(l.documents)
	return err
}

// read reads the first of the documents that changes are about and that were not read.
func (l *loading) read(ctx context.Context, changes []mongostore.Change) error {
	var some []*document
	var refs []driver.Ref
	for i := range changes {
		ch := &changes[i]
		if l.documents[ch.Key] != nil || l.leftOut(ch) {
			continue
		}
		why := driver.KeyProblem(ch.Key)
		if len(some) == readAtOnce || why != "" && len(some) > 0 {
			break
		}
		if why != "" {
			return driver.Errorf(driver.CodeInvalid, `the _id %.100q %s, and so cannot be a key; leave it out by a --filter that it does not meet`, ch.Key, why)
		}
		d := &document{key: ch.Key}
		l.documents[ch.Key] = d
		some, refs = append(some, d), append(refs, driver.Ref{Key: ch.Key, At: ch.At - 1})
	}
	overlaps := changes[0].At <= l.source.Position.Until
	for _, d := range some {
		if overlaps {
			refs = append(refs, driver.Ref{Key: d.key, Number: 1})
		}
	}
	vs, err := l.store.Engine().Get(ctx, l.Type.Collection, refs, nil)
	if err != nil {
		return err
	}
	for i, d := range some {
		v := vs[i]
		if overlaps && vs[len(some)+i] != nil {
			if first := vs[len(some)+i]; refs[i].At < first.RecordedAt { // what is skipped comes before
				v, d.first = first, first.RecordedAt
			}
			d.found = true
		}
		if v != nil && v.Op == driver.OpPruned { // what comes before the last version is in the store
			last, err := l.store.Engine().Get(ctx, l.Type.Collection, []driver.Ref{{Key: d.key, At: driver.Forever - 1}}, nil)
			if err != nil {
				return err
			}
			v, d.first = last[0], last[0].RecordedAt
		}
		if v != nil {
			d.number, d.data = v.Number, v.Data
			l.bytes += v.Size()
		}
	}
	return nil
}

// version adds the one that changes of one instant make of a document, if they make one.
func (l *loading) version(d *document, changes []mongostore.Change) error {
	before, last := d.data, mongostore.ChangeKind(0)
	// What goes to another shard is inserted there and deleted here at one time, and may be told in this order.
	if i := slices.IndexFunc(changes, func(ch mongostore.Change) bool { return ch.Kind == mongostore.Deleted }); i > 0 && before != nil && changes[0].Kind == mongostore.Inserted {
		deleted := changes[i]
		copy(changes[1:i+1], changes[:i])
		changes[0] = deleted
	}
	for i := range changes {
		ch := &changes[i]
		if ch.Kind == mongostore.Found && d.found {
			continue // it is known already
		}
		skip, err := l.skips(d, ch)
		if err == nil && !skip {
			last = ch.Kind
			err = l.apply(d, ch)
		}
		if err != nil {
			return err
		}
	}
	if last == 0 || bytes.Equal(before, d.data) {
		return nil
	}
	d.number++
	v := driver.Version{
		Collection: l.Type.Collection, Key: d.key, RecordedAt: changes[0].At, Group: changes[0].Group,
		Number: d.number, Data: d.data, Author: l.author(d.value),
	}
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
	l.vs, l.bytes = append(l.vs, v), l.bytes+v.Size()
	return transfer.Misfit(l.store, l.Type, &v, l.Lenient)
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
			if slices.Contains(c.Drop, e.Path[0]) {
				continue
			}
			name, err := c.name(e.Path[0])
			if err != nil {
				return err
			}
			if _, err := edit(d.value, append([]string{name}, e.Path[1:]...), e); err != nil && !(errors.Is(err, errNothing) && c.left(e)) {
				return fmt.Errorf("%s cannot be changed as it was: %w", strings.Join(e.Path, "."), err)
			}
		}
		for _, path := range c.Drop { // what is inside of others is made by an edit, and is gone with it
			if outer, inner, deep := strings.Cut(path, "."); deep {
				name, _ := c.name(outer)
				remove(d.value[name], strings.Split(inner, "."))
			}
		}
	}
	text, err := json.Marshal(d.value)
	if err == nil {
		d.data, err = normal.Object(text)
	}
	return err
}

// name returns the stored name of a member of the source's documents. It fails for one of which the name is
// given to another one: what an update says of one would change the other.
func (c *Capture) name(name string) (string, error) {
	if to, ok := c.Rename[name]; ok {
		return to, nil
	}
	for from, to := range c.Rename {
		if to == name {
			return "", fmt.Errorf("it has the member %q, and %q gets that name; drop or rename it, too", name, from)
		}
	}
	return name, nil
}

// asStored returns a document of the source as it is stored.
func (c *Capture) asStored(document map[string]any) (map[string]any, error) {
	for _, path := range c.Drop {
		remove(document, strings.Split(path, "."))
	}
	out := make(map[string]any, len(document))
	for name, value := range document {
		to, err := c.name(name)
		if err != nil {
			return nil, err
		}
		out[to] = value
	}
	return out, nil
}

// remove removes what is at a path from a value, from each element of lists.
func remove(value any, path []string) {
	switch value := value.(type) {
	case map[string]any:
		if len(path) == 1 {
			delete(value, path[0])
		} else {
			remove(value[path[0]], path[1:])
		}
	case []any:
		for _, element := range value {
			remove(element, path)
		}
	}
}

// author returns who changed a document, as that says.
func (c *Capture) author(value map[string]any) string {
	if c.AuthorField == "" {
		return Author
	}
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

// left reports whether what leads to an edit is left out; a number may be a place in a list.
func (c *Capture) left(e *mongostore.Edit) bool {
	return slices.ContainsFunc(c.Drop, func(drop string) bool {
		names := strings.Split(drop, ".")
		for _, at := range e.Path {
			if len(names) > 0 && at == names[0] {
				names = names[1:]
			} else if _, err := strconv.Atoi(at); err != nil {
				break
			}
		}
		return len(names) == 0
	})
}

// errNothing is of a list that is cut and is not there: it was left out, or changes are missing.
var errNothing = errors.New("there is no list")

// edit returns a value in which something at a path was changed.
func edit(in any, path []string, e *mongostore.Edit) (any, error) {
	if len(path) == 0 {
		if !e.Cut {
			return e.Value, nil
		}
		if list, ok := in.([]any); ok && e.Size >= 0 && e.Size <= len(list) {
			return list[:e.Size], nil
		}
		if in == nil {
			return nil, errNothing
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
