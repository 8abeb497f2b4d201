package demo_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/asof/asof/internal/demo"
	"github.com/asof/asof/internal/fixture/graph/model"
	"github.com/asof/asof/storage/record"
)

func TestFits(t *testing.T) {
	// changed is the schema with another type of the name.
	changed := func(name string, change func(*record.Type)) []*record.Type {
		types := slices.Clone(model.Types)
		i := slices.IndexFunc(types, func(typ *record.Type) bool { return typ.Name == name })
		old := types[i]
		types[i] = &record.Type{Name: old.Name, Singular: old.Singular, Plural: old.Plural, Collection: old.Collection, Fields: slices.Clone(old.Fields)}
		change(types[i])
		return types
	}
	for name, c := range map[string]struct {
		types []*record.Type
		fits  bool
	}{
		"the schema that comes with asof": {model.Types, true},
		"with another type":               {append(slices.Clone(model.Types), &record.Type{Name: "Maintainer", Collection: "maintainers"}), true},
		"without types":                   {nil, false},
		"without projects":                {slices.DeleteFunc(slices.Clone(model.Types), func(typ *record.Type) bool { return typ.Name == "Project" }), false},
		"under another name":              {changed("Tag", func(typ *record.Type) { typ.Name = "Topic" }), false},
		"in another collection":           {changed("Tag", func(typ *record.Type) { typ.Collection = "topics" }), false},
		"with fewer fields":               {changed("Project", func(typ *record.Type) { typ.Fields = typ.Fields[:2] }), true},
		"with a field of another type": {changed("Tag", func(typ *record.Type) {
			typ.Fields[slices.IndexFunc(typ.Fields, func(f record.Field) bool { return f.Name == "name" })].Kind = record.KindInt
		}), false},
	} {
		t.Run(name, func(t *testing.T) {
			if err := demo.Fits(c.types); (err == nil) != c.fits || err != nil && !errors.Is(err, demo.ErrUnfit) {
				t.Errorf("fits: %t, want %t: %v", err == nil, c.fits, err)
			}
		})
	}
}
