package mongostore

import (
	"context"
	"fmt"
	"testing"

	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/mongostore/mongotest"
)

// A log that is read while versions are loaded leaves out none that was there when
// it began, wherever what was loaded has moved them.
func TestLogBesideLoad(t *testing.T) {
	t.Parallel()
	const documents, last, one = logPart + 200, "k1199", driver.Instant(10)
	load := func(ctx context.Context, s *Store, versions ...driver.Instant) error {
		var vs []driver.Version
		for _, at := range versions {
			vs = append(vs, driver.Version{
				Collection: "things", Key: last, RecordedAt: at, Op: driver.OpImport, Author: "import", Data: fmt.Appendf(nil, `{"a":%d}`, at),
			})
		}
		_, err := loadAgain(ctx, s, vs)
		return err
	}
	const late = one + 2*documents
	many := make([]driver.Instant, 6)
	for i := range many {
		many[i] = late + driver.Instant(i)
	}
	commit := func(ctx context.Context, s *Store, from, to int64) error {
		for n := from; n < to; n++ {
			if _, err := commitAgain(ctx, s, write(last, fmt.Sprint(n), n)); err != nil {
				return err
			}
		}
		return nil
	}
	for _, test := range []struct {
		name      string
		meanwhile func(context.Context, *Store) error
	}{
		{"one version", func(ctx context.Context, s *Store) error { return load(ctx, s, late) }},
		{"so many that they move on", func(ctx context.Context, s *Store) error { return load(ctx, s, many...) }},
		{"one, and a commit after it", func(ctx context.Context, s *Store) error {
			if err := load(ctx, s, late); err != nil {
				return err
			}
			return commit(ctx, s, 2, 3)
		}},
		{"one, and so many commits that it moves on", func(ctx context.Context, s *Store) error {
			if err := load(ctx, s, late); err != nil {
				return err
			}
			return commit(ctx, s, 2, 9)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			uri, _ := mongotest.NewServer(t).Database(t)
			ctx, cancel := context.WithTimeout(t.Context(), hangs)
			defer cancel()
			s := newServerOf(t, uri, Options{timing: unhurried, Bounds: map[string]Bounds{"things": {Versions: 3}}})
			var vs []driver.Version
			for i := range documents {
				vs = append(vs, driver.Version{
					Collection: "things", Key: fmt.Sprintf("k%04d", i), RecordedAt: one + driver.Instant(i), Op: driver.OpImport, Author: "import", Data: []byte(`{}`),
				})
			}
			if _, err := loadAgain(ctx, s, vs); err != nil {
				t.Fatal(err)
			}
			told := make(map[string]int)
			began := false
			var before driver.LogPosition
			for v, err := range s.Log(ctx, &driver.LogQuery{}) {
				if err != nil {
					t.Fatal(err)
				}
				if !began {
					began = true
					if err := test.meanwhile(ctx, s); err != nil {
						t.Fatal(err)
					}
				}
				if here := (driver.LogPosition{At: v.RecordedAt, Collection: v.Collection, Key: v.Key, Number: v.Number}); comparePositions(here, before) <= 0 {
					t.Errorf("%v comes after %v", here, before)
				} else {
					before = here
				}
				told[fmt.Sprint(v.Key, "@", v.Number)]++
				if v.Op != driver.OpImport {
					t.Errorf("%s@%d is in the log, which began before it", v.Key, v.Number)
				}
			}
			for i := range documents {
				if name := fmt.Sprintf("k%04d@1", i); told[name] != 1 {
					t.Errorf("%s is in the log %d times", name, told[name])
				}
			}
		})
	}
}
