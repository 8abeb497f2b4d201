package resolvers

import (
	"context"

	"github.com/asof/asof/internal/scalar"
	"github.com/asof/asof/storage"
)

// nodes answers Query.nodes: what is wrong with one id is an error of its
// element, and the others are answered.
func nodes(ctx context.Context, store *storage.Store, ids []string) ([]storage.Node, error) {
	found, bad, err := store.Nodes(ctx, ids)
	for _, b := range bad {
		scalar.FailedElement(ctx, b.Index, b.Err)
	}
	return found, err
}
