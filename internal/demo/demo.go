// Package demo is a small catalogue of self-hosted software that does not
// exist, with the edits of the year 2025: what `asof serve --demo` fills an
// empty store with, so that every capability has something to show.
//
// The catalogue is a file as `asof export` writes it, without hashes. To change
// it, import it, edit, and export it.
package demo

import (
	"bytes"
	"compress/gzip"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/record"
)

//go:embed catalogue.ndjson.gz
var catalogue []byte

var operations = map[string]driver.Op{
	"CREATE": driver.OpCreate, "UPDATE": driver.OpUpdate, "DELETE": driver.OpDelete, "RESTORE": driver.OpRestore, "": driver.OpDelete,
}

// Versions returns the demo's versions in the order of their times, which
// strictly increase.
func Versions() ([]driver.Version, error) {
	text, err := gzip.NewReader(bytes.NewReader(catalogue))
	if err != nil {
		return nil, fmt.Errorf("the demo's catalogue: %w", err)
	}
	var versions []driver.Version
	for lines := json.NewDecoder(text); ; {
		var line struct {
			Collection, ID, By, Message, Source, Operation string
			At                                             time.Time
			Data                                           json.RawMessage
		}
		if err := lines.Decode(&line); errors.Is(err, io.EOF) {
			return versions, nil
		} else if err != nil {
			return nil, fmt.Errorf("the demo's catalogue: %w", err)
		}
		versions = append(versions, driver.Version{
			Collection: line.Collection, Key: line.ID, RecordedAt: driver.InstantOf(line.At), Op: operations[line.Operation],
			Author: line.By, Message: line.Message, Group: line.Source, Data: line.Data, Deleted: line.Data == nil,
		})
	}
}

// Fill puts the catalogue into an empty store and reports whether it did: a
// store that holds anything, be it only deleted documents, is left as it is.
// The store's types must be those of the software catalogue.
func Fill(ctx context.Context, store *storage.Store) (bool, error) {
	stats, err := store.Engine().Stats(ctx)
	if _, _, versions := storage.Held(stats); err != nil || versions > 0 {
		return false, err
	}
	versions, err := Versions()
	if err != nil {
		return false, err
	}
	_, err = store.Load(ctx, versions)
	return err == nil, err
}

// Filled reports whether a store holds the demo's catalogue, be it from Fill or from
// an import of what was exported: the first version of the project that most of the
// story is about.
func Filled(ctx context.Context, engine driver.Engine) (bool, error) {
	first, err := engine.Get(ctx, "software", []driver.Ref{{Key: "lanternfish", Number: 1}}, []string{"name"})
	if err != nil {
		return false, err
	}
	return first[0] != nil && first[0].Author == "mira", nil
}

// ErrUnfit is what Fits returns for types that lack some of the demo's.
var ErrUnfit = errors.New("the demo needs the types Project, Tag, License and Platform of the schema that comes with asof; leave --demo out")

// Fits reports whether the catalogue can be documents of these types: it wraps
// ErrUnfit where a type is missing, or where a value is not what a type declares.
func Fits(types []*record.Type) error {
	byCollection := make(map[string]*record.Type, len(types))
	for _, t := range types {
		byCollection[t.Collection] = t
	}
	for collection, name := range map[string]string{"software": "Project", "tags": "Tag", "licenses": "License", "platforms": "Platform"} {
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
