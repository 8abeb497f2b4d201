package dataloader

import (
	"context"
	"encoding/json"

	"github.com/asof/asof/storage"
)

// versionsKey names the versions of documents that were read together, by one
// set of arguments; a document that was read alone is together with nothing.
type versionsKey struct {
	batch *storage.Batch
	alone *storage.Document
	args  string // as JSON, which tells null from an empty list
}

// versions are the pages of all of them, complete once done is closed.
type versions struct {
	done  chan struct{}
	pages map[*storage.Document]storage.VersionsOf // of the documents that were asked for
}

// Versions implements storage.VersionLoader: it reads the versions of all
// documents that were read together with d, in one read of the store.
func (l *loader) Versions(ctx context.Context, d *storage.Document, args *storage.VersionsArgs) (*storage.VersionPage, error) {
	if err := l.follow(1); err != nil {
		return nil, err
	}
	text, err := json.Marshal(args)
	if err != nil {
		return nil, &storage.Error{Code: storage.CodeInternal, Message: "internal error", Cause: err}
	}
	k := versionsKey{batch: d.Siblings(), args: string(text)}
	docs := []*storage.Document{d}
	if k.batch == nil {
		k.alone = d
	} else {
		docs = together(d)
	}
	l.mu.Lock()
	v := l.versions[k]
	first := v == nil
	if first {
		if l.versions == nil {
			l.versions = map[versionsKey]*versions{}
		}
		v = &versions{done: make(chan struct{})}
		l.versions[k] = v
	}
	l.mu.Unlock()
	if first {
		l.readVersions(ctx, v, docs, args)
	}
	select {
	case <-v.done:
	case <-ctx.Done():
		return nil, storage.Unanswered(ctx, ctx.Err())
	}
	found, ok := v.pages[d]
	if !ok { // reading them panicked
		return nil, &storage.Error{Code: storage.CodeInternal, Message: "internal error"}
	}
	return found.Page, found.Err
}

// together are the documents of d's type that were read with it.
func together(d *storage.Document) []*storage.Document {
	var docs []*storage.Document
	for _, other := range d.Siblings().Docs {
		if other != nil && other.Type() == d.Type() {
			docs = append(docs, other)
		}
	}
	return docs
}

// readVersions reads versions and closes done, also where reading panics, so that no
// goroutine waits for ever.
func (l *loader) readVersions(ctx context.Context, v *versions, docs []*storage.Document, args *storage.VersionsArgs) {
	defer close(v.done)
	found := l.store.VersionsTogether(ctx, docs, args)
	v.pages = make(map[*storage.Document]storage.VersionsOf, len(docs))
	for i, d := range docs {
		v.pages[d] = found[i]
	}
}
