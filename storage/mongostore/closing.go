package mongostore

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
)

// closingTimeout bounds how long the server may take to forget what is left of
// an answer. It forgets by itself after some minutes.
const closingTimeout = 5 * time.Second

// closeCursor gives up what is left of an answer, which the server is told. Who
// asked does not wait for it when his time is up.
func closeCursor(ctx context.Context, cursor *mongo.Cursor) {
	if cursor.ID() == 0 {
		_ = cursor.Close(ctx) // nothing is left, and nothing is sent
		return
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closingTimeout)
	tell := func() {
		defer cancel()
		_ = cursor.Close(closing)
	}
	if ctx.Err() != nil {
		go tell()
		return
	}
	tell()
}
