package demo

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/asof/asof/storage/driver"
)

// The collections, as the schema names them.
const (
	software  = "software"
	tags      = "tags"
	licenses  = "licenses"
	platforms = "platforms"
)

// step is what one person wrote at one moment: one edit, or several that
// belong together.
type step struct {
	at      string // RFC 3339, UTC
	by      string
	message string
	group   string // empty: the edits of the step are a group if there are several
	op      driver.Op
	edits   []edit
}

// edit makes the next state of a document from the one before it; nil stands
// for a document that does not exist.
type edit struct {
	collection, key string
	apply           func(before []byte) (after []byte, err error)
	asOf            string // instead of apply: the state at this time
}

// put makes a document.
func put(collection, key string, document any) edit {
	return edit{collection: collection, key: key, apply: func([]byte) ([]byte, error) {
		return encode(document)
	}}
}

// remove deletes a document.
func remove(collection, key string) edit {
	return edit{collection: collection, key: key, apply: func([]byte) ([]byte, error) {
		return nil, nil
	}}
}

// restored gives a project the state that it had at a time.
func restored(key, at string) edit { return edit{collection: software, key: key, asOf: at} }

// change edits a document that must exist.
func change[T any](collection, key string, f func(*T)) edit {
	return edit{collection: collection, key: key, apply: func(before []byte) ([]byte, error) {
		if before == nil {
			return nil, fmt.Errorf("%s %q does not exist", collection, key)
		}
		document, err := decode[T](before)
		if err != nil {
			return nil, err
		}
		f(document)
		return encode(document)
	}}
}

// on edits a project.
func on(key string, f func(*project)) edit { return change(software, key, f) }

// The edits that the story is told in.

func describe(key, text string) edit { return on(key, func(p *project) { p.Description = text }) }

func rename(key, name string) edit { return on(key, func(p *project) { p.Name = name }) }

func tagAt(i int, key, tag string) edit {
	return on(key, func(p *project) { p.Tags = slices.Insert(p.Tags, min(i, len(p.Tags)), tag) })
}

func addTag(key, tag string) edit { return on(key, func(p *project) { p.Tags = append(p.Tags, tag) }) }

func swapTag(key, old, tag string) edit {
	return on(key, func(p *project) {
		if i := slices.Index(p.Tags, old); i >= 0 {
			p.Tags[i] = tag
		}
	})
}

func addPlatform(key, platform string) edit {
	return on(key, func(p *project) { p.Platforms = append(p.Platforms, platform) })
}

func dropPlatform(key, platform string) edit {
	return on(key, func(p *project) { p.Platforms = without(p.Platforms, platform) })
}

func relicense(key string, ids ...string) edit {
	return on(key, func(p *project) { p.Licenses = ids })
}

func demoAt(key, url string) edit { return on(key, func(p *project) { p.DemoURL = url }) }

func siteAt(key, url string) edit { return on(key, func(p *project) { p.WebsiteURL = url }) }

func archive(key string) edit {
	return on(key, func(p *project) { archived := true; p.Archived = &archived })
}

func publish(key, tag, day string) edit { //nolint:unparam // reads like its neighbours
	return on(key, func(p *project) { p.CurrentRelease = &release{Tag: tag, PublishedAt: day} })
}

func without(list []string, gone string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return s == gone })
}

// encode writes a document as it is stored: compact, nothing escaped that need
// not be.
func encode(document any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(document); err != nil {
		return nil, err
	}
	return bytes.TrimRight(b.Bytes(), "\n"), nil
}

func decode[T any](data []byte) (*T, error) {
	var document T
	if err := json.Unmarshal(data, &document); err != nil {
		return nil, err
	}
	return &document, nil
}
