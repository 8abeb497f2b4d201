// Package resolvers connects the generated executor with the store. A resolver
// is one call into package storage or package dataloader; everything that
// decides something is there.
//
// Invariants:
//
//   - versioned.go and versioned.resolvers.go are generated; the other files are
//     written by hand.
//   - No error reaches a client without a code, and no cause of an internal one
//     reaches it at all.
package resolvers

import (
	"context"

	"github.com/99designs/gqlgen/graphql"

	"github.com/asof/asof/dataloader"
	"github.com/asof/asof/graph"
	"github.com/asof/asof/storage"
)

// Resolver holds what the resolvers need. Its fields are not exported, as its
// methods have the names of types and root fields.
type Resolver struct {
	store       *storage.Store
	collections collections
}

// root is what the resolvers of each type embed, under a name that no root field
// can have.
type root = Resolver

// New returns the resolvers of a store's documents. It registers the models
// with the store, so it is called before the store is used.
func New(store *storage.Store) *Resolver {
	return &Resolver{store: store, collections: newCollections(store)}
}

// Config is what the generated executor is configured with.
func Config(store *storage.Store) graph.Config {
	return graph.Config{Resolvers: New(store)}
}

// NewSchema returns the executable schema of a store's documents.
func NewSchema(store *storage.Store) graphql.ExecutableSchema {
	return graph.NewExecutableSchema(Config(store))
}

// Begin gives an operation its loaders. The store's own Begin chooses its
// instant; both are needed, once for each operation.
func Begin(ctx context.Context, store *storage.Store) context.Context {
	return dataloader.Begin(ctx, store)
}
