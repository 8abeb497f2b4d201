package app

import (
	"fmt"
	"strings"

	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/mongostore"
)

// Bounds of what --mongodb-embed takes. MongoDB refuses documents of 16 MB, and
// a document's current version is beside its history.
const (
	maxEmbedVersions = 10_000
	maxEmbedBytes    = 8 << 20
)

// embedBounds reads the values of --mongodb-embed, each VERSIONS[:SIZE] for all
// types or TYPE=VERSIONS[:SIZE] for one: bounds of the history that stays inside
// a document, by collection.
func embedBounds(values []string, types []*storage.Type) (map[string]mongostore.Bounds, error) {
	bounds := make(map[string]mongostore.Bounds)
	own := make(map[string]bool) // collections with a value for their type
	general := false
	for _, value := range values {
		refuse := func(format string, args ...any) error {
			return usageError{fmt.Errorf("--mongodb-embed %s: "+format, append([]any{value}, args...)...)}
		}
		name, text, named := strings.Cut(value, "=")
		if !named {
			text = value
		}
		b, err := parseBounds(text)
		if err != nil {
			return nil, refuse("%w", err)
		}
		var names []string
		found := false
		for _, t := range types {
			names = append(names, t.Name)
			if named && t.Name != name || !named && own[t.Collection] {
				continue
			}
			if named && own[t.Collection] {
				return nil, refuse("%s has bounds already", name)
			}
			own[t.Collection] = named
			bounds[t.Collection] = b
			found = true
		}
		switch {
		case named && !found:
			return nil, refuse("there is no type %q; the types are %s", name, strings.Join(names, ", "))
		case !named && general:
			return nil, refuse("bounds for all types were given before")
		}
		general = general || !named
	}
	return bounds, nil
}

func parseBounds(text string) (mongostore.Bounds, error) {
	versions, bytes, sized := strings.Cut(text, ":")
	n, err := positive(versions)
	if err != nil || n > maxEmbedVersions {
		return mongostore.Bounds{}, fmt.Errorf("want VERSIONS or VERSIONS:SIZE, such as 64:64KB, with 1 to %d versions", maxEmbedVersions)
	}
	b := mongostore.Bounds{Versions: int(n)}
	if sized {
		var s size
		if err := s.UnmarshalText([]byte(bytes)); err != nil || s > maxEmbedBytes {
			return mongostore.Bounds{}, fmt.Errorf("want a size such as 64KB after the colon, at most %dMB", maxEmbedBytes>>20)
		}
		b.Bytes = int(s)
	}
	return b, nil
}
