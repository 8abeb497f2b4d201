package storage_test

import (
	"context"
	"fmt"
	"iter"
	"math"
	"strings"
	"testing"

	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/fault"
)

// leaving is an engine whose client goes while it reads, and that does not
// notice.
type leaving struct {
	driver.Engine
	cancel context.CancelFunc
	stay   int // entries of logs until the client goes
	read   int // entries of logs
}

func (l *leaving) Get(ctx context.Context, collection string, refs []driver.Ref, fields []string) ([]*driver.Version, error) {
	defer func() {
		if l.stay == 0 {
			l.cancel()
		}
	}()
	return l.Engine.Get(context.WithoutCancel(ctx), collection, refs, fields)
}

func (l *leaving) Log(ctx context.Context, q *driver.LogQuery) iter.Seq2[*driver.Version, error] {
	return func(yield func(*driver.Version, error) bool) {
		for entry, err := range l.Engine.Log(context.WithoutCancel(ctx), q) {
			if l.read++; l.read == l.stay {
				l.cancel()
			}
			if !yield(entry, err) {
				return
			}
		}
	}
}

// Comparing versions ends with the context of the operation, also where the
// engine still has more to say.
func TestComparisonsEndWithTheirContext(t *testing.T) {
	e := newEnv(t)
	for i := range 9 {
		e.load("software", "a", `{"name":"`+strings.Repeat("a", i+1)+`"}`)
	}
	d := e.get("a").Document
	one := 1
	whole := e.engine.Engine
	for name, c := range map[string]struct {
		stay int
		run  func(ctx context.Context) error
	}{
		"blame": {1, func(ctx context.Context) error {
			_, err := e.store.Blame(ctx, d, nil)
			return err
		}},
		"changelog": {3, func(ctx context.Context) error {
			_, err := e.store.DocumentChangelog(ctx, d, nil, nil, nil, nil, nil, nil, nil, nil)
			return err
		}},
		"total of a changelog": {5, func(ctx context.Context) error {
			conn, err := e.store.Changelog(ctx, nil, &one, nil, nil, nil)
			if err != nil {
				t.Error(err)
				return nil
			}
			_, err = conn.TotalCount(ctx)
			return err
		}},
		"changes of a version": {9, func(ctx context.Context) error {
			conn, err := e.projects.Versions(ctx, d, nil, nil, nil, nil, nil, nil, nil, nil)
			if err != nil {
				return err
			}
			_, err = conn.Edges[8].Changes()
			return err
		}},
		"diff": {0, func(ctx context.Context) error {
			_, err := e.store.Diff(ctx, d, storage.VersionRef{Version: &one}, nil)
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(e.begin())
			defer cancel()
			engine := &leaving{Engine: whole, cancel: cancel, stay: c.stay}
			e.engine.Engine = engine
			wantError(t, c.run(ctx), fault.CodeUnavailable)
			if engine.read != c.stay {
				t.Errorf("%d versions were read; the client left at number %d", engine.read, c.stay)
			}
		})
	}
}

// So it does within two versions, of which many parts are compared.
func TestComparisonsEndWithinVersions(t *testing.T) {
	const changes = 5000
	e := newEnv(t)
	for i := range 2 {
		var tags []string
		for j := range changes {
			tags = append(tags, fmt.Sprintf(`"%d/%d"`, i, j))
		}
		e.load("software", "a", `{"name":"a","tags":[`+strings.Join(tags, ",")+`]}`)
	}
	d := e.get("a").Document
	one, last := 1, 3 // the first version has two changes
	for name, run := range map[string]func(ctx context.Context) error{
		"changelog": func(ctx context.Context) error {
			_, err := e.store.DocumentChangelog(ctx, d, nil, nil, nil, nil, nil, nil, &last, nil) // the others are passed over
			return err
		},
		"total of a changelog": func(ctx context.Context) error {
			conn, err := e.store.Changelog(ctx, nil, &one, nil, nil, nil)
			if err == nil {
				_, err = conn.TotalCount(ctx)
			}
			return err
		},
		"changes of a version": func(ctx context.Context) error {
			conn, err := e.projects.Versions(ctx, d, nil, nil, nil, nil, &one, nil, nil, nil)
			if err == nil {
				_, err = conn.Edges[0].Changes()
			}
			return err
		},
		"diff": func(ctx context.Context) error {
			diff, err := e.store.Diff(ctx, d, storage.VersionRef{Version: &one}, nil)
			if err == nil {
				_, err = diff.Changes()
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			whole := &countedContext{Context: e.begin(), most: math.MaxInt}
			if err := run(whole); err != nil {
				t.Fatal(err)
			}
			half := &countedContext{Context: e.begin(), most: whole.asked / 2}
			wantError(t, run(half), fault.CodeUnavailable)
			if whole.asked < changes/100 || half.asked > half.most+10 {
				t.Errorf("its context was asked %d times, and %d times although it ended after %d", whole.asked, half.asked, half.most)
			}
		})
	}
}

// What a mutation has written is answered also when its time is over.
func TestChangesOfWhatWasWritten(t *testing.T) {
	e := newEnv(t)
	ctx, cancel := context.WithCancel(e.begin())
	res, err := e.projects.Create(ctx, storage.CreateInput{Key: "a", Data: object{"name": "A"}})
	cancel()
	if changes := must(asSuccess(t, res, err).Changes())(t); len(changes) == 0 {
		t.Error("nothing has changed")
	}
}

// What an operation is told about values is bounded, over all its fields; the
// next operation begins at nothing.
func TestDetailsAreBounded(t *testing.T) {
	e := newEnv(t, storage.WithLimits(storage.Limits{Details: 5}))
	e.load("software", "a", `{"name":"a","tags":["x","y","z"]}`)
	e.load("software", "a", `{"name":"b","tags":["u","v","w"]}`)
	d := e.get("a").Document
	one, created := 1, 0
	for name, run := range map[string]func(ctx context.Context) error{
		"blame": func(ctx context.Context) error {
			_, err := e.store.Blame(ctx, d, nil)
			return err
		},
		"diff": func(ctx context.Context) error {
			_, err := e.store.Diff(ctx, d, storage.VersionRef{Version: &one}, nil)
			return err
		},
		"changes": func(ctx context.Context) error {
			conn, err := e.projects.Versions(ctx, d, nil, nil, nil, nil, nil, nil, nil, nil)
			if err != nil {
				t.Error(err)
				return nil
			}
			_, err = conn.Edges[0].Changes()
			return err
		},
		"changes of a write": func(ctx context.Context) error {
			created++
			made, err := e.projects.Create(ctx, storage.CreateInput{Key: fmt.Sprint("made", created), Data: object{"name": "c", "stars": 1}})
			if err != nil {
				t.Error(err)
				return nil
			}
			_, err = made.(*storage.Success[*project]).Changes()
			return err
		},
		"changes since": func(ctx context.Context) error {
			lost, err := e.projects.Update(ctx, storage.UpdateInput{Key: "a", ExpectedVersion: 1, Patch: object{"name": "c"}})
			if err != nil {
				t.Error(err)
				return nil
			}
			_, err = lost.(*storage.Conflict[*project]).ChangesSince(ctx)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			for range 2 {
				ctx := e.begin()
				if err := run(ctx); err != nil {
					t.Fatal(err)
				}
				wantError(t, run(ctx), fault.CodeQueryTooComplex, "more than 5 values", "fewer documents")
			}
		})
	}
}
