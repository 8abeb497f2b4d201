package storage_test

import (
	"context"
	"testing"

	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/record"
)

// keeping is an engine that has one version in memory, and gives it to everyone.
type keeping struct {
	driver.Engine
	version *driver.Version
}

func (k *keeping) Now(context.Context) (driver.Instant, error) { return 1_000, nil }

func (k *keeping) Get(context.Context, string, []driver.Ref, []string) ([]*driver.Version, error) {
	return []*driver.Version{k.version}, nil
}

// What is noted beside a version serves all who read it, but only those to whom
// it applies: not another schema, nor a version with other data.
func TestNotesAreAboutWhatTheyApplyTo(t *testing.T) {
	engine := &keeping{version: &driver.Version{
		Collection: "things", Key: "k", Number: 1, SupersededAt: driver.Forever, Op: driver.OpCreate,
		Data: []byte(`{"first":"1","second":"2"}`), Notes: new(driver.Notes),
	}}
	schema := func(names ...string) (*storage.Store, *record.Type) {
		typ := &record.Type{Name: "Thing", Singular: "thing", Plural: "things", Collection: "things"}
		for _, name := range names {
			typ.Fields = append(typ.Fields, record.Field{Name: name, Kind: record.KindString})
		}
		s, err := storage.New(engine, []*record.Type{typ})
		if err != nil {
			t.Fatal(err)
		}
		return s, typ
	}
	read := func(s *storage.Store, typ *record.Type, fields []string, want ...string) {
		t.Helper()
		d, err := s.Document(t.Context(), typ, "k", nil, nil, fields)
		if err != nil {
			t.Fatal(err)
		}
		for i, text := range want {
			if got, err := d.String(i); err != nil || got != text {
				t.Errorf("field %d: %q, %v, want %q", i, got, err, text)
			}
		}
	}
	one, oneType := schema("first", "second")
	other, otherType := schema("second", "first")
	for _, fields := range [][]string{nil, {"first", "second"}} {
		read(one, oneType, fields, "1", "2")
		found := engine.version.Notes.Get()
		if found == nil {
			t.Fatal("nothing is noted")
		}
		read(one, oneType, fields, "1", "2")
		if engine.version.Notes.Get() != found {
			t.Error("it was found out again")
		}
		read(other, otherType, fields, "2", "1")
		read(one, oneType, fields, "1", "2")

		copied := *engine.version
		copied.Data = []byte(`{"second":"second","first":"first"}`)
		engine.version = &copied
		read(one, oneType, fields, "first", "second")
		copied.Data = []byte(`{"first":"1","second":"2"}`)
	}
}
