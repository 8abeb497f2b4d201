package storage_test

import (
	"context"
	"testing"

	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/fault"
)

// vanishing is an engine whose database is emptied after some reads of documents,
// as by somebody who drops it to restore a backup.
type vanishing struct {
	driver.Engine
	reads int
}

func (e *vanishing) Get(ctx context.Context, collection string, refs []driver.Ref, fields []string) ([]*driver.Version, error) {
	if e.reads--; e.reads < 0 {
		return make([]*driver.Version, len(refs)), nil
	}
	return e.Engine.Get(ctx, collection, refs, fields)
}

// A version is asked for of a document that has just been read, and is no more:
// that is told, and not the versions that it had.
func TestDocumentThatVanishes(t *testing.T) {
	e := newEnv(t)
	e.load("software", "a", `{"name":"A"}`)
	e.load("software", "a", `{"name":"B"}`)
	d := e.get("a").Document
	whole := e.engine.Engine
	restore := func(to storage.VersionRef) error {
		_, err := e.projects.Restore(e.begin(), storage.RestoreInput{Key: "a", ExpectedVersion: 2, To: &to})
		return err
	}
	for name, c := range map[string]struct {
		reads int
		run   func() error
		place string
	}{
		"restoring a number":       {1, func() error { return restore(storage.VersionRef{Version: ptr(1)}) }, "input.to: "},
		"restoring a number to be": {1, func() error { return restore(storage.VersionRef{Version: ptr(3)}) }, "input.to: "},
		"comparing with a number": {0, func() error {
			_, err := e.store.Diff(e.begin(), d, storage.VersionRef{Version: ptr(1)}, nil)
			return err
		}, "from: "},
	} {
		t.Run(name, func(t *testing.T) {
			e.engine.Engine = &vanishing{whole, c.reads}
			defer func() { e.engine.Engine = whole }()
			wantError(t, c.run(), fault.CodeNotFound, c.place+`there is no Project "a"`)
		})
	}
}
