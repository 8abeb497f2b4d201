package app

import (
	"context"
	"log/slog"

	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/driver"
)

// warnUndeclared says which collections of the store no type of the schema
// declares: after a change of schema.graphqls, or with the store of another
// program, they would just seem to be gone.
func warnUndeclared(ctx context.Context, logger *slog.Logger, store *storage.Store, stats driver.Stats) {
	for _, c := range stats.Collections {
		if store.TypeOfCollection(c.Name) == nil {
			logger.WarnContext(ctx, "the store holds a collection that the schema does not declare: it is kept, and in exports, but no request reaches it; "+
				"to see it, declare a type with @versioned(collection:) in schema.graphqls, run go generate ./... and start again",
				"collection", c.Name, "documents", c.Documents, "versions", c.Versions)
		}
	}
}
