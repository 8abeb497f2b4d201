package demo

import (
	"errors"
	"fmt"

	"github.com/asof/asof/storage"
)

// ErrUnfit is what Fits returns for types that lack some of the demo's.
var ErrUnfit = errors.New("the demo needs the types Project, Tag, License and Platform of the schema that comes with asof; leave --demo out")

// Fits reports whether the catalogue can be documents of these types: it wraps
// ErrUnfit where a type is missing, or where a value is not what a type declares.
func Fits(types []*storage.Type) error {
	byCollection := make(map[string]*storage.Type, len(types))
	for _, t := range types {
		byCollection[t.Collection] = t
	}
	for collection, name := range map[string]string{software: "Project", tags: "Tag", licenses: "License", platforms: "Platform"} {
		if t := byCollection[collection]; t == nil || t.Name != name {
			return ErrUnfit
		}
	}
	versions, err := Versions()
	if err != nil {
		return err
	}
	for _, v := range versions {
		if v.Deleted {
			continue
		}
		if _, err := byCollection[v.Collection].Validate(v.Data); err != nil {
			return fmt.Errorf("%w (%s %q: %w)", ErrUnfit, v.Collection, v.Key, err)
		}
	}
	return nil
}
