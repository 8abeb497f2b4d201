package storage

import (
	"bytes"
	"cmp"
	"context"
	"fmt"

	"github.com/asof/asof/storage/diff"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/normal"
	"github.com/asof/asof/storage/rawjson"
	"github.com/asof/asof/storage/record"
	"github.com/asof/asof/storage/seal"
)

// Load adds versions that were recorded elsewhere, in the order given, with
// their own times, authors and data in normal form (see Type.Validate and
// package normal), which stays as it is from then on. It works out which members
// each one changed, and fills Changed of the versions given. Op 0 stands for an import. A *driver.LoadError
// names the version that is refused: by the engine, or because it deletes a
// document that never existed.
func (s *Store) Load(ctx context.Context, vs []driver.Version) (driver.LoadResult, error) {
	if err := s.NewLoading().Prepare(ctx, vs); err != nil {
		return driver.LoadResult{}, err
	}
	return s.LoadPrepared(ctx, vs)
}

// Loading prepares batch after batch for being loaded, while nobody else writes their documents. It holds
// the last states that it prepared, so that it need not read back what was just
// written, nor wait until it is written. It forgets by generations: what the last batch
// has is in one of the two, whatever the sizes. It is for one goroutine.
type Loading struct {
	store *Store
	docs  map[loadKey]loadState // this generation
	bytes int                   // of its data
	older map[loadKey]loadState // the one before
}

// NewLoading returns one that knows no documents.
func (s *Store) NewLoading() *Loading { return &Loading{store: s, docs: map[loadKey]loadState{}} }

// Prepare does the first half of Load: it fills Op and Changed. Batches are
// prepared in the order in which they are loaded; while one
// is prepared, the one before it may still be on its way into the engine. If that fails,
// what was prepared meanwhile has to be prepared again, by another Loading.
func (l *Loading) Prepare(ctx context.Context, vs []driver.Version) error {
	if l.bytes > maxLoaded {
		l.docs, l.older, l.bytes = map[loadKey]loadState{}, l.docs, 0
	}
	if err := l.readPrevious(ctx, vs); err != nil {
		return err
	}
	return l.fillChanged(ctx, vs)
}

// LoadPrepared does the second half of Load: it gives the engine what was prepared.
func (s *Store) LoadPrepared(ctx context.Context, vs []driver.Version) (driver.LoadResult, error) {
	res, err := s.all.Load(ctx, vs)
	s.feed.wake()
	return res, err
}

func (l *Loading) fillChanged(ctx context.Context, vs []driver.Version) error {
	s := l.store
	pruned, err := s.prunedNow(ctx, vs)
	if err != nil {
		return err
	}
	horizons := map[string]driver.Instant{}
	for i := range vs {
		v := &vs[i]
		if v.Op == 0 {
			v.Op = driver.OpImport
		}
		before := l.swap(v, loadState{at: v.RecordedAt, data: v.Data, existed: true, pruned: pruned[v], erased: seal.Erased(v.Seal)})
		if before.pruned {
			horizons[v.Collection] = max(horizons[v.Collection], v.RecordedAt)
		}
		if v.Op == driver.OpPruned {
			v.Changed = nil
			continue
		}
		if v.Deleted && !before.existed && s.byCollection[v.Collection] != nil {
			return &driver.LoadError{Index: i, Err: driver.Errorf(driver.CodeInvalid, "%s %q cannot be deleted: it has no version before %s", v.Collection, v.Key, v.RecordedAt)}
		}
		if v.Changed != nil && (before.data == nil && before.existed || before.erased || seal.Erased(v.Seal)) {
			continue // after one that was pruned or erased, or was loaded before it was erased: it is said what has changed
		}
		v.Changed = normal.Changed(before.data, v.Data)
	}
	return s.raiseHorizons(ctx, horizons)
}

// prunedNow returns those of the versions to load that were pruned elsewhere and are not here
// in full.
func (s *Store) prunedNow(ctx context.Context, vs []driver.Version) (map[*driver.Version]bool, error) {
	pruned := map[string][]*driver.Version{}
	for i := range vs {
		if v := &vs[i]; v.Op == driver.OpPruned && s.byCollection[v.Collection] != nil { // else the engine refuses it
			pruned[v.Collection] = append(pruned[v.Collection], v)
		}
	}
	now := map[*driver.Version]bool{}
	for collection, vs := range pruned {
		refs := make([]driver.Ref, len(vs))
		for i, v := range vs {
			refs[i] = driver.Ref{Key: v.Key, At: v.RecordedAt}
		}
		here, err := s.all.Get(ctx, collection, refs, []string{})
		if err != nil {
			return nil, err
		}
		for i, v := range here {
			now[vs[i]] = v == nil || v.RecordedAt != vs[i].RecordedAt || v.Op == driver.OpPruned
		}
	}
	return now, nil
}

// readPrevious reads the states before the first versions of those documents
// that the cache does not know, one read for each collection.
func (l *Loading) readPrevious(ctx context.Context, vs []driver.Version) error {
	refs := map[string][]driver.Ref{}
	for i := range vs {
		v := &vs[i]
		if state, ok := l.get(loadKey{v.Collection, v.Key}); !ok || state.at >= v.RecordedAt {
			refs[v.Collection] = append(refs[v.Collection], driver.Ref{Key: v.Key, At: v.RecordedAt - 1})
			l.put(loadKey{v.Collection, v.Key}, loadState{at: v.RecordedAt - 1}) // asked for once
		}
	}
	for collection, rs := range refs {
		if l.store.byCollection[collection] == nil {
			continue // the engine refuses it
		}
		before, err := l.store.all.Get(ctx, collection, rs, nil)
		if err != nil {
			return err
		}
		for i, v := range before {
			l.put(loadKey{collection, rs[i].Key}, loadState{at: rs[i].At, data: dataOf(v), existed: v != nil, pruned: v != nil && v.Op == driver.OpPruned, erased: v != nil && seal.Erased(v.Seal)})
		}
	}
	return nil
}

// maxLoaded bounds each of the two generations of a Loading, in bytes.
const maxLoaded = 32 << 20

type loadKey struct{ collection, key string }

type loadState struct {
	at      driver.Instant
	data    []byte
	existed bool // there was a version, which may be a tombstone
	pruned  bool // it is one that was pruned
	erased  bool // it is one of which something was erased, perhaps in another form, see Store.eraseOnce
}

func (l *Loading) get(k loadKey) (state loadState, ok bool) {
	if state, ok = l.docs[k]; !ok {
		state, ok = l.older[k]
	}
	return state, ok
}

func (l *Loading) put(k loadKey, state loadState) {
	l.bytes += len(state.data) - len(l.docs[k].data)
	l.docs[k] = state
}

// swap sets the state of a version's document and returns the one before.
func (l *Loading) swap(v *driver.Version, state loadState) (before loadState) {
	k := loadKey{v.Collection, v.Key}
	before, _ = l.get(k)
	l.put(k, state)
	return before
}

// tooLarge says why a document of a type cannot be written; "" where it can. What the type does
// not say holds where it is nil.
func (s *Store) tooLarge(t *record.Type, key string, doc []byte) string {
	if len(doc) > s.limits.DocumentBytes {
		return fmt.Sprintf("the document would have %d bytes; at most %d are allowed (--max-document of asof serve)", len(doc), s.limits.DocumentBytes)
	}
	if t != nil && (len(doc) > maxIndexed || 5*(bytes.Count(doc, []byte(","))+1)+maxIndexed/128 > maxEntries) { // with the longest key one counts as five
		all := 0
		for _, f := range t.Fields {
			if !f.Indexed {
				continue
			}
			value := rawjson.Find(doc, []string{cmp.Or(f.Stored, f.Name)})
			longest, elements := inIndex(value)
			if longest > maxIndexed {
				return fmt.Sprintf("%s would have a text of %d bytes; at most %d are allowed in a field with @index", f.Name, longest, maxIndexed)
			}
			all += entries(elements, key, len(value))
		}
		if all > maxEntries {
			return fmt.Sprintf("the lists with @index would have %d elements together, those counted more that are long with the key; at most %d are allowed", all, maxEntries)
		}
	}
	if len(doc) < 2*normal.MaxDepth {
		return ""
	}
	switch elements, depth := rawjson.Lists(doc); {
	case depth > normal.MaxDepth:
		return fmt.Sprintf("the document would be nested more than %d deep", normal.MaxDepth)
	case elements > diff.MaxElements:
		return fmt.Sprintf("the lists would have %d elements together; at most %d are allowed", elements, diff.MaxElements)
	}
	return ""
}

// outgrown is tooLarge of a document that takes the place of another one, nil for none: what is too large
// already, as an import may have left it, may be changed where it does not grow.
func (s *Store) outgrown(t *record.Type, key string, was, doc []byte) string {
	why := s.tooLarge(t, key, doc)
	if why != "" && len(doc) <= len(was) && s.tooLarge(t, key, was) != "" {
		return ""
	}
	return why
}

const (
	// maxIndexed is how long a text may be, in bytes, that is in an index: databases read whole
	// values to compare them.
	maxIndexed = 4 << 10
	// maxEntries is how many elements the lists of a document may have that are in indexes, as entries
	// counts them: in one of millions of entries, each takes 25 to 55 µs of processor time to be replaced, and
	// up to 280 µs between long ones.
	maxEntries = 1_000
)

// entries is how many entries of an index the elements of a list count as, which has so many bytes:
// with the key of the document, which each has, they count once more for each 128 bytes.
func entries(elements int, key string, bytes int) int {
	return elements * (1 + (len(key)+bytes/max(elements, 1))/128)
}

// inIndex returns how long the longest text is in an indexed value, in bytes, and how many elements
// it has.
func inIndex(value []byte) (longest, elements int) {
	text := func(value []byte) {
		if s, ok := rawjson.Unquote(value); ok {
			longest = max(longest, len(s))
		}
	}
	text(value)
	rawjson.Elements(value, func(start, end int) bool {
		text(value[start:end])
		elements++
		return true
	})
	return longest, elements
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
	t := s.byCollection[v.Collection]
	declared := func(name string) bool { return t != nil && t.Object.StoredAs(name) >= 0 }
	members, longest := 0, 0
	rawjson.Members(v.Data, func(name []byte, _, _ int) bool {
		if !declared(rawjson.View(name)) {
			members, longest = members+1, max(longest, len(name))
		}
		return true
	})
	changed, quoted := 0, []byte(nil)
	for _, name := range v.Changed {
		if !declared(name) {
			quoted = rawjson.AppendString(quoted[:0], name)
			changed, longest = changed+1, max(longest, len(quoted)-len(`""`))
		}
	}
	switch {
	case longest > maxName:
		return fmt.Sprintf("the name of a member that is not declared has %d bytes as JSON; at most %d are allowed", longest, maxName)
	case members > maxMembers || changed > 2*maxMembers: // those before and after it
		return fmt.Sprintf("there are %d members that are not declared; at most %d are allowed, not counting those of objects in them", max(members, changed), maxMembers)
	}
	return s.tooLarge(t, v.Key, v.Data)
}

// The longest texts of a version, in bytes, and how many members a document may have that its type does
// not declare: the names of those that changed are read with each version.
const (
	MaxAuthor  = 200
	MaxMessage = 16 << 10
	maxGroup   = 1 << 10 // that of an approval names the draft and the approver
	maxName    = 200     // as JSON
	maxMembers = 1_000
)
