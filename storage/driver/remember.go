package driver

import "context"

// Rememberer is an Engine for which it is worth while not to ask its database for
// what a write is based on.
type Rememberer interface {
	// Remembered returns the version of a document with a number, where the engine
	// knows it, without asking, as the last one that it saw; else nil. Another one
	// may have followed since, or it may not be acknowledged yet: it is good only as
	// what a Write with this number as Expected is made from, since Commit compares.
	// The context is that of the operation that reads it.
	Remembered(ctx context.Context, collection, key string, number int64) (*Version, error)
}
