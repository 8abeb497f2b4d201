package storage

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"
	"sync"

	"github.com/asof/asof/storage/condition"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/fault"
	"github.com/asof/asof/storage/record"
)

// A tag is a document of a collection beside that of its type: it names a version of a
// document, which is not pruned while the tag is there. Its own history says who has set it,
// and who has removed it.

// tagKey is the key of a tag, which is as short for all names and keys of documents.
func tagKey(key, name string) string {
	sum := sha256.Sum256([]byte(name + "\x00" + key))
	return hex.EncodeToString(sum[:])
}

// TagProblem says why a version that was recorded elsewhere is none of a tag here, where it should be; ""
// where it is one, or is of something else.
func (s *Store) TagProblem(v *driver.Version) string {
	t := s.byCollection[v.Collection]
	if t == nil || !strings.HasSuffix(t.Collection, record.TagSuffix) || v.Deleted {
		return ""
	}
	tag := VersionTag{s.newDocument(t, v, v.RecordedAt, v.RecordedAt, false)}
	key, noKey := tag.Key()
	name, noName := tag.Name()
	number, noNumber := tag.Version()
	switch {
	case noKey != nil || noName != nil || noNumber != nil || !tagNames.MatchString(name) || number < 1:
		return `"data" of a tag must have "documentKey", "name" and "number": the key of a document, the name of the tag (1 to 100 letters, digits, and . _ -), and the number of a version`
	case v.Key != tagKey(key, name):
		return `"id" of a tag must be the SHA-256 of its name, a zero byte and the key of its document, in hexadecimal`
	}
	return ""
}

var tagNames = regexp.MustCompile(`^[A-Za-z0-9._-]{1,100}$`)

// VersionTag is a tag of a version of a document.
type VersionTag struct{ d *Document }

// Name is unique among the tags of the document.
func (t *VersionTag) Name() (string, error) { return t.d.String(record.TagName) }

// Key is that of the document.
func (t *VersionTag) Key() (string, error) { return t.d.String(record.TagDocument) }

// Version is the number of the version.
func (t *VersionTag) Version() (int, error) { return t.d.Int(record.TagVersion) }

// Message says why the tag was set; nil for nothing.
func (t *VersionTag) Message() *string { return optional(t.d.v.Message) }

// TaggedAt is when it was set.
func (t *VersionTag) TaggedAt() driver.Instant { return t.d.v.RecordedAt }

// TaggedBy is who did.
func (t *VersionTag) TaggedBy() *Actor { return &Actor{ID: t.d.v.Author} }

// TagVersionInput sets a tag.
type TagVersionInput struct {
	Key              string
	Version          int
	Name             string
	Message          *string
	ClientMutationID *string
}

// UntagVersionInput removes a tag.
type UntagVersionInput struct {
	Key              string
	Name             string
	Message          *string
	ClientMutationID *string
}

// VersionTagSuccess is what setting or removing a tag returns.
type VersionTagSuccess struct {
	Tag              *VersionTag
	Changed          bool // false where the tag was there already
	ClientMutationID *string
}

// TagVersion tags a version of a document. Errors: NOT_FOUND for a document that does not
// exist in that version, VERSION_NOT_FOUND, HISTORY_PRUNED for a version that is pruned or due
// to be, BAD_USER_INPUT for a tag that is on another version of the document.
func (c *Collection[T]) TagVersion(ctx context.Context, in TagVersionInput) (*VersionTagSuccess, error) {
	s, t := c.store, c.t
	op, err := s.operation(ctx)
	if err != nil {
		return nil, Unwritten(err)
	}
	if !tagNames.MatchString(in.Name) {
		return nil, fault.BadInput("input.name: %s is not the name of a tag: that has 1 to 100 characters, each a letter from a to z or A to Z, a digit, or one of . _ -", fault.QuoteShort(in.Name))
	}
	d, err := s.Document(ctx, t, in.Key, nil, &in.Version, []string{})
	if err != nil {
		return nil, Unwritten(err)
	}
	if d == nil {
		return nil, fault.Errorf(fault.CodeNotFound, "input.key: there is no %s %s in version %d", t.Name, fault.QuoteShort(in.Key), in.Version)
	}
	n, err := s.all.Count(ctx, &driver.Query{Collection: t.Tags.Collection, At: latest, Filter: tagIs(t, record.TagDocument, in.Key)})
	if err != nil {
		return nil, Unwritten(fromDriver(ctx, err))
	}
	if n >= mostTags {
		return nil, fault.BadInput("input.key: %s %s has %d tags, as many as there may be: remove some first", t.Name, fault.QuoteShort(in.Key), n)
	}
	m, err := s.creation(t.Tags, &CreateInput{
		Key: tagKey(in.Key, in.Name), Data: map[string]any{"documentKey": in.Key, "name": in.Name, "number": in.Version}, Message: in.Message,
	})
	if err != nil {
		return nil, err
	}
	outs, err := s.mutate(ctx, op, op.group(), m)
	if err != nil {
		return nil, Unwritten(err)
	}
	if k := outs[0].conflict; k != nil {
		tag := &VersionTag{k.current}
		if tag.ref().Number != int64(in.Version) {
			return nil, fault.BadInput("input.name: the tag %s is on another version of %s %s: to move it, remove it first", in.Name, t.Name, fault.QuoteShort(in.Key))
		}
		return &VersionTagSuccess{tag, false, in.ClientMutationID}, nil
	}
	tag := outs[0].doc
	ctx = context.WithoutCancel(ctx) // what does not stand is taken back, also where nobody waits for it
	if err := s.keeps(ctx, t, tag.v, d.v); err != nil {
		if _, undone := s.mutate(ctx, op, op.group(), s.ending(t.Tags, tag.v, nil)); undone != nil {
			return nil, undone
		}
		return nil, err
	}
	return &VersionTagSuccess{&VersionTag{tag}, true, in.ClientMutationID}, nil
}

// UntagVersion removes a tag. Errors: NOT_FOUND for one that is not there, or is on a version
// that may not be read.
func (c *Collection[T]) UntagVersion(ctx context.Context, in UntagVersionInput) (*VersionTagSuccess, error) {
	s := c.store
	op, err := s.operation(ctx)
	if err != nil {
		return nil, Unwritten(err)
	}
	if err := checkMessage(in.Message); err != nil {
		return nil, err
	}
	for {
		v, err := s.getOne(ctx, c.t.Tags, driver.Ref{Key: tagKey(in.Key, in.Name), At: latest}, nil)
		var tags []*VersionTag
		if err == nil && live(v) {
			tags, err = s.readableTags(ctx, c.t, []*VersionTag{s.tag(c.t, v)})
		}
		if err != nil {
			return nil, Unwritten(err)
		}
		if len(tags) == 0 {
			return nil, fault.Errorf(fault.CodeNotFound, "input.name: %s %s has no tag %s", c.t.Name, fault.QuoteShort(in.Key), fault.QuoteShort(in.Name))
		}
		outs, err := s.mutate(ctx, op, op.group(), s.ending(c.t.Tags, tags[0].d.v, in.Message))
		switch {
		case err != nil:
			return nil, Unwritten(err)
		case outs[0].conflict == nil: // else it was removed meanwhile
			return &VersionTagSuccess{tags[0], true, in.ClientMutationID}, nil
		}
	}
}

// tag is the tag that a version of it describes.
func (s *Store) tag(t *record.Type, v *driver.Version) *VersionTag {
	return &VersionTag{s.newDocument(t.Tags, v, v.RecordedAt, v.RecordedAt, false)}
}

// tags returns the tags that meet all of some conditions at an instant, by their names.
func (s *Store) tags(ctx context.Context, t *record.Type, at driver.Instant, where ...driver.Filter) ([]*VersionTag, error) {
	return s.tagPage(ctx, t, &driver.Query{At: at, Filter: driver.And(where)})
}

// tagPage returns the tags that a query finds, by their names.
func (s *Store) tagPage(ctx context.Context, t *record.Type, q *driver.Query) ([]*VersionTag, error) {
	q.Collection, q.Order = t.Tags.Collection, []driver.Order{{Field: t.Tags.Object.Fields[record.TagName].Driver()}}
	vs, err := s.all.Query(ctx, q)
	if err != nil {
		return nil, fromDriver(ctx, err)
	}
	tags := make([]*VersionTag, len(vs))
	for i, v := range vs {
		tags[i] = s.tag(t, v)
	}
	return tags, nil
}

// tagIs is the condition that a field of a tag is a value.
func tagIs(t *record.Type, field int, value driver.Value) driver.Filter {
	return driver.Compare{Field: t.Tags.Object.Fields[field].Driver(), Op: driver.Eq, Value: value}
}

// ref is the version that the tag is on.
func (t *VersionTag) ref() driver.Ref {
	key, _ := t.Key()
	number, _ := t.Version()
	return driver.Ref{Key: key, Number: max(int64(number), 1)} // 1: of what cannot be read
}

// versions returns the versions that tags are on; nil for one that may not be read.
func (s *Store) versions(ctx context.Context, t *record.Type, tags []*VersionTag, fields []string) ([]*driver.Version, error) {
	refs := make([]driver.Ref, len(tags))
	for i, tag := range tags {
		refs[i] = tag.ref()
	}
	vs, err := s.engine.Get(ctx, t.Collection, refs, fields)
	for i, v := range vs {
		if v != nil && v.Deleted && v.Op != driver.OpPruned {
			vs[i] = nil
		}
	}
	return vs, fromDriver(ctx, err)
}

// readableTags are those of some tags that are on versions which may be read.
func (s *Store) readableTags(ctx context.Context, t *record.Type, tags []*VersionTag) (readable []*VersionTag, err error) {
	vs, err := s.versions(ctx, t, tags, []string{})
	for i, v := range vs {
		if v != nil {
			readable = append(readable, tags[i])
		}
	}
	return readable, err
}

// Tags are those of all versions of the document, by their names.
func (h *History[T]) Tags(ctx context.Context) ([]*VersionTag, error) {
	s := h.Document.store
	tags, err := s.documentTags(ctx, documentAt{h.t, h.v.Key, h.seen})
	if err != nil {
		return nil, err
	}
	return s.readableTags(ctx, h.t, tags)
}

// Tags are those of the version, by their names. A deletion has none, nor has what may not be
// read, which is shown as one.
func (i *VersionInfo) Tags(ctx context.Context) ([]*VersionTag, error) {
	op, ok := ctx.Value(operationKey{}).(*operation)
	if !ok || i.v.Deleted || inDraft(i.typ, i.v) {
		return nil, nil
	}
	tags, err := op.tagsOf(ctx, documentAt{i.typ, i.v.Key, i.seen}, i.v.Number)()
	return tags[i.v.Number], err
}

// documentTags returns the tags of a document that meet some conditions, by their names. Errors:
// QUERY_TOO_COMPLEX for more than a document may have, which an import may have added.
func (s *Store) documentTags(ctx context.Context, d documentAt, where ...driver.Filter) ([]*VersionTag, error) {
	where = append(where, tagIs(d.t, record.TagDocument, d.key))
	tags, err := s.tagPage(ctx, d.t, &driver.Query{At: d.seen, Filter: driver.And(where), Limit: mostTags + 1})
	if len(tags) > mostTags {
		return nil, fault.Errorf(fault.CodeQueryTooComplex, "%s %s has more than %d tags, as many as there may be: ask for documents by their tags, or remove some", d.t.Name, fault.QuoteShort(d.key), mostTags)
	}
	return tags, err
}

// documentAt is a document as of an instant.
type documentAt struct {
	t    *record.Type
	key  string
	seen driver.Instant
}

// tagsOf returns the tags of a document by the numbers of its versions, of at least one number. Those of
// one version are read alone, since a page shows one of each of many documents; when they are asked for
// again, all are read, once, since a page shows many versions of one.
func (o *operation) tagsOf(ctx context.Context, d documentAt, number int64) func() (map[int64][]*VersionTag, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.tags == nil {
		o.tags = map[documentAt]func() (map[int64][]*VersionTag, error){}
	}
	all, again := o.tags[d]
	if all != nil {
		return all
	}
	var where []driver.Filter
	if !again {
		where = append(where, tagIs(d.t, record.TagVersion, number))
	}
	read := sync.OnceValues(func() (map[int64][]*VersionTag, error) {
		tags, err := o.store.documentTags(ctx, d, where...)
		of := map[int64][]*VersionTag{}
		for _, tag := range tags {
			number := tag.ref().Number
			of[number] = append(of[number], tag)
		}
		return of, err
	})
	if o.tags[d] = nil; again {
		o.tags[d] = read
	}
	return read
}

// State returns a document in the state that at most one of asOf, version, draft and tag names:
// the zero T where it does not exist in that, or there is no such draft or tag of the document
// that the actor may read. Errors are those of Get.
func (c *Collection[T]) State(ctx context.Context, key string, asOf *driver.Instant, version *int, draft, tag *string) (T, error) {
	none := c.Wrap(nil)
	switch {
	case draft == nil && tag == nil:
		return c.Get(ctx, key, asOf, version)
	case asOf != nil || version != nil || draft != nil && tag != nil:
		return none, fault.Errorf(fault.CodeAmbiguousVersion, "several of asOf, version, draft and tag are given: name the state by one of them")
	case draft != nil:
		found, err := c.Draft(ctx, *draft)
		if err != nil || found == nil || contentOf(c.t, found.d.v).Key != key {
			return none, err
		}
		return found.Document(), nil
	}
	op, err := c.store.operation(ctx)
	if err != nil {
		return none, err
	}
	v, err := c.store.getOne(ctx, c.t.Tags, driver.Ref{Key: tagKey(key, *tag), At: op.now(nil)}, nil)
	if err != nil || !live(v) {
		return none, err
	}
	number := int(c.store.tag(c.t, v).ref().Number)
	return c.Get(ctx, key, nil, &number)
}

// tagged is the list of the documents that have a tag, each in the version that it is on. It
// takes the place of the engine's list, which has all documents as of one instant.
type tagged struct {
	store *Store
	t     *record.Type
	name  string
	total *int64 // of what was queried, which a page counts next; nil: nothing was
}

// How many tags a document may have, and how many are read at a time.
const (
	mostTags       = 10_000
	taggedTogether = 5_000
)

// matching returns what meets a query's conditions, in no order.
func (l *tagged) matching(ctx context.Context, q *driver.Query) ([]*driver.Version, error) {
	if _, err := l.store.guard.view(ctx, l.t.Collection).query(ctx, q); err != nil {
		return nil, err
	}
	tags := driver.Query{At: q.At, Filter: tagIs(l.t, record.TagName, l.name), Limit: taggedTogether}
	var found []*driver.Version
	over := endedAtTimes(ctx)
	for {
		page, err := l.store.tagPage(ctx, l.t, &tags)
		if err != nil {
			return nil, err
		}
		vs, err := l.store.versions(ctx, l.t, page, nil)
		if err != nil {
			return nil, err
		}
		for _, v := range vs {
			switch {
			case v == nil:
			case v.Op == driver.OpPruned:
				return nil, l.store.pruned(ctx, l.t, v)
			case q.Filter == nil || condition.HoldsUntil(over, q.Filter, v, v.Data):
				found = append(found, v)
			}
		}
		if len(page) < taggedTogether {
			return found, ended(ctx)
		}
		tags.After = &driver.Position{Values: []driver.Value{l.name}, Key: page[len(page)-1].d.v.Key}
	}
}

// Count is driver.Engine's, of what was queried before, if anything was.
func (l *tagged) Count(ctx context.Context, q *driver.Query) (int64, error) {
	if l.total != nil {
		return *l.total, nil
	}
	found, err := l.matching(ctx, q)
	return int64(len(found)), err
}

// Query is driver.Engine's.
func (l *tagged) Query(ctx context.Context, q *driver.Query) ([]*driver.Version, error) {
	found, err := l.matching(ctx, q)
	if err != nil {
		return nil, err
	}
	total := int64(len(found))
	l.total = &total
	return pageOf(l.t, found, q), nil
}

// keeps returns an error if nothing but a tag that was just committed keeps a version. A pruner
// reads the tags after it has found what nothing keeps: one that has not seen the tag has
// found before that commit what is found after it here, as time and numbers only grow.
// So has one whose tag is undone: what another tag keeps has had it for longer than that takes.
func (s *Store) keeps(ctx context.Context, t *record.Type, tag, v *driver.Version) error {
	if t.Keep == nil {
		return nil
	}
	vs, err := s.all.Get(ctx, t.Collection, []driver.Ref{{Key: v.Key, Number: v.Number}, {Key: v.Key, At: latest}}, []string{})
	if err != nil {
		return fromDriver(ctx, err)
	}
	v = vs[0]
	switch {
	case v.Op == driver.OpPruned:
		return s.pruned(ctx, t, v)
	case !t.Keep.Lets(v, vs[1], tag.RecordedAt):
		return nil
	}
	pins, err := s.pinned(ctx, t, record.GraceBefore(tag.RecordedAt), v.Key)
	if err != nil || pins[driver.Ref{Key: v.Key, Number: v.Number}] {
		return err
	}
	return historyPruned(v.SupersededAt, "version %d of %s %q, of %s, is not kept any more, and is about to be pruned", v.Number, t.Name, v.Key, v.RecordedAt)
}

// pinned are the versions of documents that have tags which were set before an instant, and are
// there still.
func (s *Store) pinned(ctx context.Context, t *record.Type, before driver.Instant, keys ...driver.Value) (map[driver.Ref]bool, error) {
	now, err := s.all.Now(ctx)
	if err != nil {
		return nil, fromDriver(ctx, err)
	}
	tags, err := s.tags(ctx, t, now, driver.In{Field: t.Tags.Object.Fields[record.TagDocument].Driver(), Values: keys})
	pins := map[driver.Ref]bool{}
	for _, tag := range tags {
		if tag.TaggedAt() <= before {
			pins[tag.ref()] = true
		}
	}
	return pins, err
}

// released are the versions that tags were on, by document; those are named by the versions of
// tags, by the tag's key.
func (s *Store) released(ctx context.Context, t *record.Type, of map[string][]driver.Ref) (map[string][]driver.Ref, error) {
	var refs []driver.Ref
	for _, list := range of {
		refs = append(refs, list...)
	}
	vs, err := s.all.Get(ctx, t.Tags.Collection, refs, nil)
	if err != nil {
		return nil, fromDriver(ctx, err)
	}
	out := map[string][]driver.Ref{}
	for _, v := range vs {
		if live(v) {
			ref := s.tag(t, v).ref()
			out[ref.Key] = append(out[ref.Key], ref)
		}
	}
	return out, nil
}
