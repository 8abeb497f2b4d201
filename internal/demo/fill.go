package demo

import (
	"context"

	"github.com/asof/asof/storage"
)

// Fill puts the catalogue into an empty store and reports whether it did: a
// store that holds anything, be it only deleted documents, is left as it is.
// The store's types must be those of the software catalogue.
func Fill(ctx context.Context, store *storage.Store) (bool, error) {
	stats, err := store.Engine().Stats(ctx)
	if err != nil || stats.Versions > 0 {
		return false, err
	}
	versions, err := Versions()
	if err != nil {
		return false, err
	}
	_, err = store.Load(ctx, versions)
	return err == nil, err
}
