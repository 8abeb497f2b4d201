package mongostore

import (
	"context"
	"errors"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// maxBulkBytes is what one command of a load sends at most, unless one write is larger.
const maxBulkBytes = 512 << 10

// bulk gathers writes of different documents and sends them together, in
// commands of a bounded size. Inserts may find that there is something already.
type bulk struct {
	target *mongo.Collection
	store  *Store
	models []mongo.WriteModel
	bytes  int64
	sent   int   // before models
	found  int64 // how many were made, or found what they are for
	there  []int // which of all that was added found something that was there before
}

func (b *bulk) add(ctx context.Context, model mongo.WriteModel, bytes int64) error {
	if len(b.models) > 0 && b.bytes+bytes > maxBulkBytes {
		if err := b.flush(ctx); err != nil {
			return err
		}
	}
	b.models, b.bytes = append(b.models, model), b.bytes+bytes
	return nil
}

func (b *bulk) flush(ctx context.Context) error {
	if len(b.models) == 0 {
		return nil
	}
	ctx, cancel := b.store.step(ctx)
	defer cancel()
	result, err := b.target.BulkWrite(ctx, b.models, options.BulkWrite().SetOrdered(false))
	sent := len(b.models)
	b.models, b.bytes = nil, 0
	there, err := onlyDuplicates(err)
	for _, i := range there {
		b.there = append(b.there, b.sent+i)
	}
	b.sent += sent
	if result != nil {
		b.found += result.InsertedCount + result.MatchedCount
	}
	return err
}

// onlyDuplicates takes errors of writes that found their document made by
// another out of the error of a bulk, and tells which those are.
func onlyDuplicates(err error) (which []int, rest error) {
	bulk, ok := errors.AsType[mongo.BulkWriteException](err)
	if !ok || bulk.WriteConcernError != nil {
		return nil, err
	}
	for _, e := range bulk.WriteErrors {
		if e.Code != duplicateKey || ofForeignIndex(e.WriteError) {
			return nil, err
		}
		which = append(which, e.Index)
	}
	return which, nil
}
