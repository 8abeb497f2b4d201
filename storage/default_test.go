package storage_test

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/record"
	"github.com/asof/asof/storage/sqlitestore"
)

// Another default changes what versions without a value read as, and nothing
// that was written while the earlier one was in force.
func TestAnotherDefaultKeepsWhatWasWritten(t *testing.T) {
	types := func(size, color string) []*record.Type {
		part := &record.ObjectType{Name: "Part", Fields: []record.Field{
			{Name: "no", Kind: record.KindInt},
			{Name: "color", Kind: record.KindString, Default: json.RawMessage(color)},
		}}
		return []*record.Type{{Name: "Thing", Singular: "thing", Plural: "things", Collection: "things", Fields: []record.Field{
			{Name: "size", Stored: "SIZE", Kind: record.KindInt, NonNull: true, Default: json.RawMessage(size)},
			{Name: "parts", Kind: record.KindObject, Object: part, List: true},
			{Name: "main", Kind: record.KindObject, Object: part},
		}}}
	}
	type thing struct{ *storage.Document }
	file := filepath.Join(t.TempDir(), "test.db")
	with := func(types []*record.Type, use func(*storage.Store, *storage.Collection[*thing])) {
		t.Helper()
		engine, err := sqlitestore.Open(t.Context(), file, sqlitestore.Options{Collections: storage.CollectionsOf(types)})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := engine.Close(); err != nil {
				t.Error(err)
			}
		}()
		store, err := storage.New(engine, types)
		if err != nil {
			t.Fatal(err)
		}
		use(store, storage.NewCollection(store, types[0], func(d *storage.Document) *thing { return &thing{d} }))
	}
	with(types("1", `"red"`), func(store *storage.Store, things *storage.Collection[*thing]) {
		for key, data := range map[string]object{
			"absent": {"parts": []any{object{"no": 1}}, "main": object{}},
			"null":   {"size": nil},
			"given":  {"size": 7},
		} {
			s, ok := must(things.Create(t.Context(), storage.CreateInput{Key: key, Data: data}))(t).(*storage.Success[*thing])
			if !ok {
				t.Fatalf("%s exists", key)
			}
			if key != "absent" {
				continue
			}
			want := []string{`ADD /size -> 1`, `ADD /parts -> [{"no":1,"color":"red"}]`, `ADD /main -> {"color":"red"}`}
			if diff := cmp.Diff(want, lines(must(s.Changes())(t))); diff != "" {
				t.Error(diff)
			}
		}
		old := []driver.Version{{Collection: "things", Key: "imported", RecordedAt: 1, Data: []byte(`{}`)}}
		must(store.Load(t.Context(), old))(t)
	})
	with(types("2", `"blue"`), func(store *storage.Store, things *storage.Collection[*thing]) {
		for key, want := range map[string]int{"absent": 1, "null": 1, "given": 7, "imported": 2} {
			d := must(things.Get(t.Context(), key, nil, nil))(t)
			if got := must(d.Int(0))(t); got != want {
				t.Errorf("%s: the size is %d, want %d", key, got, want)
			}
		}
		main := must(must(things.Get(t.Context(), "absent", nil, nil))(t).Object.Object(2))(t)
		if got := must(main.String(1))(t); got != "red" {
			t.Errorf("the color is %s", got)
		}
		// Writing what an absent value reads as changes nothing that anybody sees.
		for size, version := range map[any]int{2: 1, nil: 1} {
			s, ok := must(things.Update(t.Context(), storage.UpdateInput{Key: "imported", ExpectedVersion: 1, Patch: object{"size": size}}))(t).(*storage.Success[*thing])
			if !ok || s.Changed || s.Version != version {
				t.Errorf("%v: %+v", size, s)
			}
		}
		// Null is the default, which is stored like any other value.
		s, ok := must(things.Update(t.Context(), storage.UpdateInput{Key: "given", ExpectedVersion: 1, Patch: object{"size": nil}}))(t).(*storage.Success[*thing])
		if !ok || s.Version != 2 {
			t.Fatalf("%+v", s)
		}
		if diff := cmp.Diff([]string{`REPLACE /size 7 -> 2`}, lines(must(s.Changes())(t))); diff != "" {
			t.Error(diff)
		}
	})
}
